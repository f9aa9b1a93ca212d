"""Produce (key 0, versions 3-13): append one record batch to each partition in the request.

The records of each batch are walked, in a thread where that takes long. They go from the request's bytes to
the partition's segment unchanged, under a header that says what they say. All partitions are appended to
first, then one wait until all of it is durable. acks=1 waits as acks=all does:
with a single copy there is no weaker promise worth making. acks=0 gets no answer; where the answer would have
been an error, the connection is closed, as by Kafka.

Transactional batches are checked against the transaction first: up to version 11 the partition must already
be in it, from version 12 it is added here (KIP-890). From version 13 topics are named by id (KIP-516). A
batch outside of a transaction, with the producer id of a transactional id and an epoch that was never given
out, is INVALID_PRODUCER_EPOCH; Kafka accepts it, and then refuses the real producer.

Left out: batches are never compressed again, whatever compression.type says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import TRANSACTION_DENIED, AccessRequest, RequestRefused, in_turn, topics
from eoslog.broker.log.batch_checks import (
    RejectedRecords,
    check_client,
    header_of,
    walk_lightly,
    walk_records,
)
from eoslog.broker.requests import CloseConnection, RequestContext, Settled
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import BatchHeader, CorruptBatch, read_header
from eoslog.protocol.error_places import error_answer, for_version
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.topics.topics import Topic
    from eoslog.protocol.typed import (
        ProduceRequest,
        ProduceRequestPartitionData,
        ProduceRequestTopicData,
        ProduceResponseDraft,
        ProduceResponsePartitionResponseDraft,
        ProduceResponseResponseDraft,
    )
    from eoslog.protocol.walk import Walked

KEY = ApiKey.PRODUCE
VERSIONS = (3, 13)
NAMED_FROM = 0
"""librdkafka drops features (compression, idempotence) if the listed range does not begin at 0."""


def _transactional_id(asked: AccessRequest[ProduceRequest]) -> RequestRefused[ProduceResponseDraft] | None:
    """A client that writes transactional batches needs WRITE on their id, or nothing is appended."""
    transactional_id = asked.request["transactional_id"]
    if not _has_transactional(asked.request) or (
        transactional_id is not None
        and asked.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        return None
    return RequestRefused(error_answer(asked.key, asked.version, asked.request, TRANSACTION_DENIED))


def _has_transactional(request: ProduceRequest) -> bool:
    """Whether one of the batches is transactional. Malformed batches are refused later."""
    for topic in request["topic_data"]:
        for part in topic["partition_data"]:
            try:
                if part["records"] and read_header(part["records"]).is_transactional:
                    return True
            except CorruptBatch:
                continue
    return False


access = in_turn(
    _transactional_id,
    topics(AclOperation.WRITE, field="topic_data"),
)


# First versions with a change.
_ZSTD_SINCE = 7
_ADDS_PARTITION_SINCE = 12
_TOPIC_IDS_SINCE = 13

_ZSTD = 4
_NO_ACKS = 0
_ACKS = (-1, _NO_ACKS, 1)


def handle(
    context: RequestContext, request: ProduceRequest
) -> ProduceResponseDraft | Awaitable[ProduceResponseDraft | None] | None:
    """Append now, unless large batches or a transaction must be checked first; then wait for the disk."""
    produce = _Produce(context, request)
    heavy = produce.walk()
    if heavy:
        return produce.append_walked(heavy)
    verdicts = produce.verify()
    if verdicts:
        return produce.append_after(verdicts)
    produce.append()
    return produce.answer() if produce.durable() else Settled(produce.settle(), produce.durable)


@dataclass(slots=True, eq=False)
class _Item:
    """One partition's batch. `answer` is its part of the response, an error once the batch is refused."""

    partition: Partition | None
    records: memoryview | None
    answer: ProduceResponsePartitionResponseDraft
    version: int
    header: BatchHeader | None = None
    walked: Walked | None = None
    last_offset: int = -1
    live: bool = True

    def refuse(self, error: KafkaError) -> None:
        """Set the answer to this error, as a producer of this request's version understands it."""
        self.live = False
        code = for_version(KEY, self.version, error.code)
        self.answer |= {"error_code": code, "base_offset": -1, "error_message": error.message or None}
        if isinstance(error, RejectedRecords):
            self.answer["record_errors"] = [
                {"batch_index": number, "batch_index_error_message": reason}
                for number, reason in error.reasons.items()
            ]


_Verdicts = list[tuple[_Item, Awaitable[None]]]


class _Produce:
    """One Produce request, from the checks to the answer."""

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        self._broker = context.broker
        self._version = context.header.api_version
        self._acks = request["acks"]
        self._transactional_id = request["transactional_id"]
        self._items: list[_Item] = []
        self._responses = [self._topic(topic) for topic in request["topic_data"]]
        self.appended: list[_Item] = []
        self._check_all()

    # Partitions and checks

    def _topic(self, data: ProduceRequestTopicData) -> ProduceResponseResponseDraft:
        topics, by_id = self._broker.topics, self._version >= _TOPIC_IDS_SINCE
        topic = topics.by_id(data["topic_id"]) if by_id else topics.get(data["name"])
        answers = [self._item(topic, part) for part in data["partition_data"]]
        return {"name": data["name"], "topic_id": data["topic_id"], "partition_responses": answers}

    def _item(
        self, topic: Topic | None, part: ProduceRequestPartitionData
    ) -> ProduceResponsePartitionResponseDraft:
        index = part["index"]
        known = topic is not None and 0 <= index < len(topic.partitions)
        item = _Item(
            topic.partitions[index] if topic is not None and known else None,
            part["records"],
            {"index": index, "base_offset": -1},
            self._version,
        )
        self._items.append(item)
        if topic is None:
            item.refuse(KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
        elif not known:
            item.refuse(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif topic.internal:
            item.refuse(KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is the broker's own"))
        return item.answer

    def _check_all(self) -> None:
        for item in self._items:
            if item.live:
                try:
                    item.header = self._check(item.records)
                except KafkaError as error:
                    item.refuse(error)
        headers = [item.header for item in self._items if item.header]
        if self._acks not in _ACKS:
            self._refuse_all(
                KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._acks}: must be -1, 0 or 1")
            )
        elif self._transactional_id is None and any(header.is_transactional for header in headers):
            self._refuse_all(
                KafkaError(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "a transactional batch in a request without a transactional id",
                )
            )

    def _check(self, records: memoryview | None) -> BatchHeader:
        if not records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch: one is needed for each partition")
        header = header_of(records)
        if header.codec == _ZSTD and self._version < _ZSTD_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {_ZSTD_SINCE} or later"
            )
        return header

    def _refuse_all(self, error: KafkaError) -> None:
        for item in self._items:
            item.refuse(error)

    # The records

    def walk(self) -> Sequence[_Item]:
        """Walk the records of each batch. Returns those that should be walked in a thread."""
        heavy = []
        for item in self._items:
            if not item.live or item.header is None or item.partition is None or item.records is None:
                continue
            settings = item.partition.settings
            try:
                check_client(item.header, settings)
                item.walked = walk_lightly(item.records, item.header, settings)
            except KafkaError as error:
                item.refuse(error)
                continue
            if item.walked is None:
                heavy.append(item)
        return heavy

    async def append_walked(self, heavy: Sequence[_Item]) -> ProduceResponseDraft | None:
        """Walk these in a thread, a few requests at a time, then append as after any wait."""
        async with self._broker.turns.large():
            for item in heavy:
                assert item.header is not None and item.partition is not None and item.records is not None
                settings = item.partition.settings
                try:
                    item.walked = await asyncio.to_thread(walk_records, item.records, item.header, settings)
                except KafkaError as error:
                    item.refuse(error)
        return await self.append_after(self.verify())

    # The transaction

    def verify(self) -> _Verdicts:
        """Check whether each transactional batch may be appended; returns the checks that have to wait."""
        verdicts: _Verdicts = []
        for item in self._items:
            if not item.live or item.header is None or item.partition is None:
                continue
            try:
                verdict = self._verdict(item.header, item.partition)
            except KafkaError as error:
                item.refuse(error)
            else:
                if verdict is not None:
                    verdicts.append((item, verdict))
        return verdicts

    def _verdict(self, header: BatchHeader, partition: Partition) -> Awaitable[None] | None:
        transactions = self._broker.transactions
        if header.is_transactional:
            return transactions.verify_partition(
                self._transactional_id,
                header.producer_id,
                header.producer_epoch,
                partition.topic,
                partition.index,
                self._version >= _ADDS_PARTITION_SINCE,
            )
        if header.producer_id >= 0:
            transactions.check_plain(header.producer_id, header.producer_epoch)
        return None

    async def append_after(self, verdicts: _Verdicts) -> ProduceResponseDraft | None:
        """Append at the moment at which every transaction allows it.

        While one check waits, another transaction may be ended from elsewhere. So all are checked again until
        all allow it at once: a batch appended after its transaction's marker would open a transaction that
        nothing ends. An ended transaction is refused (it has another epoch or state), so this loop ends.
        """
        while verdicts:
            for item, verdict in verdicts:
                try:
                    await verdict
                except KafkaError as error:
                    item.refuse(error)
            verdicts = self.verify()
        self.append()
        return await self.settle()

    # Append, wait, answer

    def append(self) -> None:
        """Append what has not been refused."""
        now_ms = self._broker.clock.now_ms()
        # KIP-890: if the first batch was lost on the way, the second must not be accepted.
        from_zero = self._transactional_id is not None and self._version >= _ADDS_PARTITION_SINCE
        for item in self._items:
            if not item.live or item.partition is None or item.records is None:
                continue
            try:
                done = item.partition.append(
                    item.records,
                    now_ms=now_ms,
                    from_zero=from_zero,
                    header=item.header,
                    walked=item.walked,
                )
            except KafkaError as error:
                item.refuse(error)
                continue
            item.last_offset = done.last_offset
            item.answer |= {
                "base_offset": done.base_offset,
                "log_append_time_ms": done.log_append_time,
                "log_start_offset": done.log_start_offset,
            }
            self.appended.append(item)

    def durable(self) -> bool:
        """Whether there is nothing to wait for: with flush.mode=os, or if all batches were retries."""
        return all(i.partition and i.last_offset < i.partition.high_watermark for i in self.appended)

    async def settle(self) -> ProduceResponseDraft | None:
        """Wait until all appended batches are durable, then answer. All partitions share one flush."""
        for item in self.appended:
            assert item.partition is not None
            try:
                await item.partition.wait_durable(item.last_offset)
            except KafkaError as error:
                item.refuse(error)
        return self.answer()

    def answer(self) -> ProduceResponseDraft | None:
        """The response. With acks=0 there is none; raises CloseConnection if it would have an error."""
        if self._acks != _NO_ACKS:
            return {"responses": self._responses}
        failed = [item for item in self._items if not item.live]
        if failed:
            first = failed[0].answer
            name = ErrorCode(first["error_code"]).name
            raise CloseConnection(f"acks=0 leaves no answer to say {name} for partition {first['index']}")
        return None
