"""Reads a range of a partition, a whole answer at a time."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64decode
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

from eoslog.client.admin.topics import topic_configs
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import Address
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import Backoff, check, passes
from eoslog.errors import (
    BrokerUnreachable,
    ConnectionLost,
    EoslogError,
    OffsetsGone,
    RefusedByBroker,
    RetriesExhausted,
    TopicRecreated,
)
from eoslog.errors.pages import see
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import BatchHeader, Buffer, CorruptBatch, crc_ok, iter_headers
from eoslog.protocol.control import ABORT, read_control
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.typed import FETCH

if TYPE_CHECKING:
    from eoslog.protocol.decode import DecodedRecords
    from eoslog.protocol.typed import (
        FetchRequestDraft,
        FetchRequestPartitionDraft,
        FetchRequestTopicDraft,
        FetchResponse,
        FetchResponsePartition,
    )

# -- which batches a reader may see ----------------------------------------------------------------
# Which batches of a Fetch answer a reader may see. Pure: headers in, positions out.
#
# read_committed readers get, with the records, the transactions aborted in that range: (producer id, first
# offset). A producer's batches from such an offset up to its ABORT marker are hidden (KIP-98). Only batch
# headers and control records are read.


Located = tuple[int, BatchHeader]


@dataclass(frozen=True, slots=True)
class Visible:
    """Batches to decode, as (position, header), and the offset at which to continue.

    `next_offset` is -1 if the bytes have no whole batch. `missing`: the first gap in the range's offsets,
    from and to below; None: there is none. Only compaction removes records.
    """

    batches: list[Located]
    next_offset: int
    missing: tuple[int, int] | None


def visible(records: Buffer, start: int, end: int, aborted: Sequence[tuple[int, int]] | None) -> Visible:
    """The batches of `records` with offsets in start..end-1. `aborted` None: aborted records are included.

    Raises CorruptBatch, even for a damaged batch that would be skipped: its producer id may be wrong.
    """
    hidden = _Hidden(aborted or ())
    kept: list[Located] = []
    next_offset, before, missing = -1, start, None
    for pos, header in iter_headers(records):
        if missing is None and before < min(header.base_offset, end):
            missing = before, header.base_offset
        next_offset = before = max(next_offset, header.next_offset)
        if header.base_offset >= end:
            break
        if hidden.hides(records, pos, header) or header.is_control:
            if not crc_ok(records, pos, header):
                raise CorruptBatch(
                    f"batch at offset {header.base_offset} has a wrong CRC", header.base_offset
                )
        elif header.count and header.next_offset > start:
            kept.append((pos, header))
    return Visible(kept, next_offset, missing)


class _Hidden:
    """The producers with an aborted transaction at the current offset, as batches are read in order."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._now: set[int] = set()

    def hides(self, records: Buffer, pos: int, header: BatchHeader) -> bool:
        """Whether the next batch belongs to an aborted transaction. Call for every batch, in order."""
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._now.add(self._coming.pop()[0])
        if header.producer_id not in self._now:
            return False
        if header.is_control:
            if read_control(records, pos, header).type == ABORT:
                self._now.discard(header.producer_id)
            return True
        return header.is_transactional


# -- fetch -----------------------------------------------------------------------------------------
# The next Fetch is sent before this answer is decoded, so broker and network work at the same time as Arrow.
# Only batch headers are read one by one; the records of all batches of an answer are decoded at once. Control
# batches and records of aborted transactions are skipped.
#
# With client.rack a leader may send its reader to a near replica (KIP-392), and return no records itself. If
# that fails, or the replica does not have the records yet, the leader is asked; its answer is final.
#
# The codec is imported where records are decoded: a process that looks at batches alone does without it.


logger = logging.getLogger("eoslog")

_POLICY = "cleanup.policy"


class Gaps:
    """Offsets that are missing in a partition: removed by compaction, or lost.

    A log is written without gaps, and transactions, even aborted ones, leave their records and markers in
    place. So offsets that are missing in the middle of a topic that is not compacted were lost: a segment is
    damaged, or its file is gone.
    """

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self._cluster, self._topic, self._partition = cluster, topic, partition

    def are_explained(self) -> bool:
        """Whether the topic is compacted. If the cluster does not say so, it counts as compacted, with a
        warning."""
        if self._topic not in self._cluster.compacted and self._is_compacted():
            self._cluster.compacted.add(self._topic)
        return self._topic in self._cluster.compacted

    def _is_compacted(self) -> bool:
        try:
            policy = topic_configs(self._cluster, [self._topic], [_POLICY])[self._topic].get(_POLICY, "")
        except (KafkaError, EoslogError) as error:
            logger.warning(
                "%s-%d leaves offsets out, and whether it is compacted is not known (%s): continuing. %s",
                self._topic,
                self._partition,
                error,
                _SEE,
            )
            return True
        return "compact" in policy

    def error(self, first: int, behind: int) -> OffsetsGone:
        """The error for missing offsets, from `first` to below `behind`."""
        return OffsetsGone(
            f"offsets {first} to {behind - 1} of {self._topic}-{self._partition} are missing in the midst of "
            f"its log, and the topic is not compacted ({_POLICY}): its log is damaged",
            behind=behind,
        )


_DAMAGED = "read another replica (move the leader), or begin behind it with startingOffsets"
_SEE = see("offsets-are-missing-in-the-midst-of-a-partition")
_BY_NAME = 12  # the last version that names topics
_BY_ID = 13  # names them by their ids (KIP-516)
_OTHER_TOPIC = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The part of a Fetch answer for the one partition. `elsewhere`: the node that is to be asked instead."""

    records: Buffer
    last_stable_offset: int
    high_watermark: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    elsewhere: int


def fetch(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    committed: bool,
    topic_id: str | None = None,
    max_bytes: int | None = None,
    headers: bool = False,
    max_payload: int | None = None,
) -> Iterator[DecodedRecords]:
    """Records with offsets start..end-1, in order, one answer at a time.

    With `topic_id` no record of another topic with the same name is read. `max_bytes` (None: as configured)
    limits each answer; a single larger batch is returned all the same. Compressed batches are unpacked
    together, up to `max_payload` bytes at a time, but at least one. Raises OffsetsGone if the log no longer
    has `start`, never reached `end`, or lacks offsets that were not compacted away; TopicRecreated,
    CorruptBatch, KafkaError, and RetriesExhausted after poll_timeout_ms without progress.
    """
    name = f"{topic}-{partition}"
    answers = fetch_batches(
        cluster, topic, partition, start, end, committed=committed, topic_id=topic_id, max_bytes=max_bytes
    )
    with closing(answers):
        for answer in answers:
            for decoded in _decoded(name, answer.records, answer.batches, headers, max_payload):
                rows = clip(decoded, answer.position, end)
                if len(rows):
                    yield rows


class FetchedBatches(NamedTuple):
    """An answer's bytes, and the batches in it that a reader at `position` may see."""

    records: Buffer
    batches: Sequence[Located]
    position: int


def fetch_batches(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    committed: bool,
    topic_id: str | None = None,
    max_bytes: int | None = None,
) -> Generator[FetchedBatches]:
    """As `fetch`, and no record is decoded. The first and the last batch may have records outside of
    start..end-1. The next answer is asked for before this one is given."""
    config = cluster.config
    most = min(config.max_partition_fetch_bytes, config.fetch_max_bytes) if max_bytes is None else max_bytes
    reader = _Reader(cluster, topic, topic_id, partition, end, committed, most)
    gaps = Gaps(cluster, topic, partition)
    try:
        reader.ask(start)
        position = start
        while position < end:
            answer = reader.answer(position)
            seen = _seen(reader.name, answer, position, end, committed)
            if seen.next_offset <= position:
                reader.nothing(answer, position)
                continue
            lost = None if seen.missing is None or gaps.are_explained() else seen.missing
            if lost is not None:
                seen = _seen(reader.name, answer, position, lost[0], committed)
            elif seen.next_offset < end:
                reader.ask(seen.next_offset)
            yield FetchedBatches(answer.records, seen.batches, position)
            if lost is not None:
                raise gaps.error(*lost)
            position = seen.next_offset
    finally:
        reader.close()


def batch_at(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    *,
    topic_id: str | None = None,
    committed: bool = True,
) -> tuple[BatchHeader | None, bool]:
    """The batch that holds an offset, and whether its transaction was aborted. None: readers of committed
    data do not come to it, or not yet, or its records were compacted away. `committed` False: also what such
    readers do not come to. One answer is waited for. Raises OffsetsGone, TopicRecreated, KafkaError,
    RetriesExhausted."""
    reader = _Reader(cluster, topic, topic_id, partition, offset + 1, committed, 1)
    try:
        reader.ask(offset)
        answer = reader.answer(offset)
    finally:
        reader.close()
    headers = (header for _, header in iter_headers(answer.records) if header.next_offset > offset)
    found = next(headers, None)
    if found is None or found.base_offset > offset:
        return None, False
    return found, any(who == found.producer_id and at <= offset for who, at in answer.aborted)


def _seen(name: str, answer: _Answer, position: int, end: int, committed: bool) -> Visible:
    try:
        return visible(answer.records, position, end, answer.aborted if committed else None)
    except CorruptBatch as error:
        raise CorruptBatch(f"{name}: {error}; {_DAMAGED}", error.offset) from error


def _decoded(
    name: str, records: Buffer, batches: Sequence[Located], headers: bool, max_payload: int | None
) -> Iterator[DecodedRecords]:
    """All records of all batches at once; by halves if they unpack to more than `max_payload` bytes."""
    from eoslog.protocol.decode import PayloadTooLarge, decode_batches

    if not batches:
        return
    try:
        yield decode_batches(
            records, batches, headers=headers, max_payload=max_payload if len(batches) > 1 else None
        )
    except CorruptBatch as error:
        raise CorruptBatch(f"{name}: {error}; {_DAMAGED}", error.offset) from error
    except PayloadTooLarge:
        if len(batches) == 1:
            raise
        middle = len(batches) // 2
        yield from _decoded(name, records, batches[:middle], headers, max_payload)
        yield from _decoded(name, records, batches[middle:], headers, max_payload)


def clip(rows: DecodedRecords, start: int, end: int) -> DecodedRecords:
    """The rows with offsets start..end-1: a slice, since offsets rise."""
    import numpy as np

    offsets = rows.offset.to_numpy()
    first, last = (int(i) for i in np.searchsorted(offsets, (start, end)))
    if (first, last) == (0, len(offsets)):
        return rows
    columns = ((f.name, getattr(rows, f.name)) for f in fields(rows))
    return replace(rows, **{name: None if column is None else column[first:last] for name, column in columns})


class _Reader:
    """Fetches one partition, position by position, from its leader or from a replica near by."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        topic_id: str | None,
        partition: int,
        end: int,
        committed: bool,
        max_bytes: int,
    ) -> None:
        self.cluster, self.topic, self.partition = cluster, topic, partition
        self.topic_id = topic_id
        self._id = b"" if topic_id is None else urlsafe_b64decode(topic_id + "==")
        self.end, self.committed, self.max_bytes = end, committed, max_bytes
        self._connection: BrokerConnection | None = None
        self._asked = -1
        self._backoff: Backoff | None = None
        self._rack = cluster.config.client_rack
        self._near: Address | None = None
        """The replica that the leader has sent us to."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def ask(self, position: int) -> None:
        """Send a Fetch for the next position, after progress. A failure is left for `answer` to find."""
        self._backoff = None
        try:
            self._send(position)
        except (KafkaError, ConnectionLost, BrokerUnreachable) as error:
            self._drop()
            if not passes(error, ApiKey.FETCH):
                raise

    def answer(self, position: int) -> _Answer:
        """The answer for `position`. Tries again while failures may pass."""
        while True:
            try:
                if self._connection is None or self._asked != position:
                    self._drop()
                    self._send(position)
                answer = self._read()
                if self._goes_elsewhere(answer):
                    continue
            except (KafkaError, ConnectionLost, BrokerUnreachable) as error:
                self._again(error, position)
                continue
            return answer

    def nothing(self, answer: _Answer, position: int) -> None:
        """After an answer without a whole batch: ask for more bytes, or ask later, until the time is up."""
        if len(answer.records):  # the first batch does not fit
            self.max_bytes = min(self.max_bytes * 2, 1 << 30)
        bound = answer.last_stable_offset if self.committed else answer.high_watermark
        error = KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{self.name} has nothing to read at {position} of {self.end}; its end is {bound}",
        )
        self._again(error, position)

    def close(self) -> None:
        """Give the connection back, or close it if an answer is still to come."""
        if self._connection is not None:
            self.cluster.give_back(self._connection)
            self._connection = None

    def _send(self, position: int) -> None:
        if self._connection is None:
            address = self._near or self.cluster.leader_address(self.topic, self.partition)
            self._connection = self.cluster.take(address)
        version = self._connection.pick(
            ApiKey.FETCH, max_version=_BY_NAME if self.topic_id is None else _BY_ID
        )
        if self.topic_id is not None and version < _BY_ID:
            self._check_id()
        self._connection.ask(FETCH, self._body(position), version)
        self._asked = position

    def _body(self, position: int) -> FetchRequestDraft:
        wanted: FetchRequestPartitionDraft = {
            "partition": self.partition,
            "fetch_offset": position,
            "partition_max_bytes": self.max_bytes,
        }
        config = self.cluster.config
        topic: FetchRequestTopicDraft = {"topic": self.topic, "partitions": [wanted]}
        if self.topic_id is not None:
            topic["topic_id"] = self._id
        return {
            "replica_id": -1,
            "max_wait_ms": min(config.fetch_max_wait_ms, config.request_timeout_ms // 2),
            "min_bytes": config.fetch_min_bytes,
            "max_bytes": self.max_bytes,
            "isolation_level": int(self.committed),
            "topics": [topic],
            "rack_id": self._rack,
        }

    def _read(self) -> _Answer:
        assert self._connection is not None
        position, self._asked = self._asked, -1
        answer = self._connection.answer(FETCH)
        check(answer["error_code"], f"Fetch of {self.name}")
        part = self._only_partition(answer)
        if part["error_code"] in _OTHER_TOPIC:
            self._check_id()
        if part["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE and self._near is None:
            raise OffsetsGone(
                f"offset {position} of {self.name} is not in the log, which begins at "
                f"{part['log_start_offset']} and ends at {part['high_watermark']} (-1: unknown)",
                part["log_start_offset"],
                part["high_watermark"],
            )
        advice = f" ({_DAMAGED})" if part["error_code"] == ErrorCode.CORRUPT_MESSAGE else ""
        check(part["error_code"], f"Fetch of {self.name} at {position}{advice}")
        return _Answer(
            part["records"] or b"",
            part["last_stable_offset"],
            part["high_watermark"],
            part["log_start_offset"],
            [(a["producer_id"], a["first_offset"]) for a in part["aborted_transactions"] or ()],
            part["preferred_read_replica"],
        )

    def _goes_elsewhere(self, answer: _Answer) -> bool:
        """Whether the leader sent us to a replica. That is asked next."""
        if answer.elsewhere < 0 or len(answer.records) or self._near is not None:
            return False
        self._near = self.cluster.address(answer.elsewhere)
        if self._near is None and not self._rack:
            return False  # wait: the brokers choose by their own rule, and we do not know that node
        if self._near is None:
            self._leave_near()
        self._drop()
        return True

    def _leave_near(self) -> bool:
        """Continue at the leader, without our rack, so that it does not send us away again. Returns whether
        that is a change: a leader that sends us away all the same is asked with pauses."""
        had_rack, self._near, self._rack = bool(self._rack), None, ""
        return had_rack

    def _again(self, error: Exception, position: int) -> None:
        """Pause, and forget what may be wrong. Raises if the failure will not pass or the time is up."""
        self._drop()
        if self._near is not None and self._leave_near():
            return
        config = self.cluster.config
        never_reached = isinstance(error, BrokerUnreachable) and not self.cluster.reached
        if never_reached or not passes(error, ApiKey.FETCH):
            raise error
        limit, option = config.api_timeout_ms, "kafka.default.api.timeout.ms"
        if config.poll_timeout_ms is not None:
            limit, option = config.poll_timeout_ms, "kafkaConsumer.pollTimeoutMs"
        if self._backoff is None:
            self._backoff = Backoff(config, limit)
        if self._backoff.over:
            raise RetriesExhausted(
                f"reading {self.name} at offset {position}: no progress within {limit} ms ({option}): "
                f"{error}. Are the brokers up, or does an open transaction hold readers back? Fix that and "
                "start the query again"
            ) from error
        self.cluster.forget_topic(self.topic)
        self._backoff.pause(error)

    def _check_id(self) -> None:
        """Raises TopicRecreated if another topic has the name now."""
        self.cluster.forget_topic(self.topic)
        now = self.cluster.topic(self.topic).topic_id
        if now is not None and now != self.topic_id:
            raise TopicRecreated(
                f"topic {self.topic} was deleted and created again: its id is {now}, but records of "
                f"{self.topic_id} were to be read from {self.name}"
            )

    def _only_partition(self, answer: FetchResponse) -> FetchResponsePartition:
        for found in answer["responses"]:
            for part in found["partitions"]:
                named = found["topic"] == self.topic or found["topic_id"] == self._id
                if named and part["partition_index"] == self.partition:
                    return part
        raise RefusedByBroker(ErrorCode.UNKNOWN_SERVER_ERROR, f"the answer to Fetch leaves out {self.name}")

    def _drop(self) -> None:
        self.close()
        self._asked = -1


def count_rows(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    committed: bool,
    topic_id: str | None = None,
) -> Iterator[tuple[int, int]]:
    """How many records with offsets start..end-1 a reader sees: for each answer its records, and the offset
    behind its last visible batch. Raises as fetch().

    Headers tell it: control batches and aborted transactions do not count. A batch that the range cuts is
    counted by its offsets; if it was compacted, so that offsets do not tell, that one batch is decoded."""
    answers = fetch_batches(cluster, topic, partition, start, end, committed=committed, topic_id=topic_id)
    for answer in answers:
        first = max(answer.position, start)
        rows = sum(_rows(answer, located, first, end) for located in answer.batches)
        yield rows, min(answer.batches[-1][1].next_offset, end) if answer.batches else first


def _rows(answer: FetchedBatches, located: Located, start: int, end: int) -> int:
    """The records of one batch that are in the range."""
    header = located[1]
    if start <= header.base_offset and header.next_offset <= end:
        return header.count
    if header.count == header.last_offset_delta + 1:
        return min(header.next_offset, end) - max(header.base_offset, start)
    from eoslog.protocol.decode import decode_batches

    return len(clip(decode_batches(answer.records, [located], headers=False), start, end))
