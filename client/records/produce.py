"""Produces record batches: several requests in flight, in order; each is acknowledged or raises."""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from eoslog.client.admin import transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import Address
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import Backoff, ErrorOutcome, outcome, passes
from eoslog.errors import ADVICE, BrokerUnreachable, ConnectionLost, ProduceFailed, TopicRecreated
from eoslog.protocol import errors
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import Buffer, read_header
from eoslog.protocol.errors import ErrorCode, KafkaError, info
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.sequence import add
from eoslog.protocol.topic_partitions import TopicPartition, by_topic
from eoslog.protocol.typed import PRODUCE

if TYPE_CHECKING:  # the codec is loaded by who writes: a committer sends nothing
    from eoslog.protocol.encode import EncodedBatch
    from eoslog.protocol.typed import (
        ProduceRequestDraft,
        ProduceRequestPartitionDataDraft,
        ProduceRequestTopicDataDraft,
        ProduceResponsePartitionResponse,
    )

# -- what an answer means for a batch in flight ----------------------------------------------------
# What a producer remembers of its batches, and what an answer means for them. Pure.
#
# A batch gets its sequence numbers once, when it is handed over, and keeps them in every retry: the broker
# recognizes a repeated (producer id, epoch, sequence) as the batch that it has already (KIP-98). For that at
# most five requests may be unanswered, a partition's batches must be sent in order, and its first one alone.


MAX_UNANSWERED = 5
"""Brokers remember only the last five batches of a producer on a partition."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A finished batch to be sent. `number` counts batches in the order in which they were handed over.
    `deadline` is on the monotonic clock, in seconds; `size` in bytes."""

    where: TopicPartition
    parts: list[Buffer]
    size: int
    count: int
    number: int
    deadline: float


class BatchVerdict(Enum):
    """What an answer means for a batch."""

    DONE = "it is in the log"
    AGAIN = "send it again, with the same sequence"
    FAILED = "it will never be accepted"


class Unanswered:
    """The unacknowledged batches of each partition, oldest first, and the next sequences."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, deque[int]] = {}
        self._next: dict[TopicPartition, int] = {}
        self._begun: set[TopicPartition] = set()
        self._number = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def sequence(self, where: TopicPartition, count: int) -> int:
        """The base sequence of the partition's next batch, of `count` records."""
        base = self._next.get(where, 0)
        self._next[where] = add(base, count)
        return base

    def last_sequence(self, where: TopicPartition) -> int:
        """The sequence of the partition's last record; -1: it has none."""
        return add(self._next[where], -1) if where in self._next else -1

    def enter(self, where: TopicPartition) -> int:
        """Return the number of a batch that is handed over now."""
        self._number += 1
        self._waiting.setdefault(where, deque()).append(self._number)
        return self._number

    def oldest(self, batch: Outgoing) -> bool:
        """Whether no earlier batch of its partition is unacknowledged."""
        return self._waiting[batch.where][0] == batch.number

    def may_leave(self, batch: Outgoing) -> bool:
        """Whether a batch may be sent now. A partition's second batch waits until the first is acknowledged.
        A partition that does not know the producer accepts any sequence: if it refused the first batch, it
        would accept the second, and the first could never follow."""
        return batch.where in self._begun or self.oldest(batch)

    def judge(self, batch: Outgoing, code: int) -> BatchVerdict:
        """What an answer's error code means. An acknowledged batch is removed."""
        if code == ErrorCode.NONE or outcome(code, ApiKey.PRODUCE) is ErrorOutcome.ANSWER:
            self._waiting[batch.where].remove(batch.number)
            self._begun.add(batch.where)
            return BatchVerdict.DONE
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.oldest(batch):
            return BatchVerdict.AGAIN  # the batch before it was not accepted; both are sent again, in order
        return (
            BatchVerdict.AGAIN if outcome(code, ApiKey.PRODUCE) is ErrorOutcome.AGAIN else BatchVerdict.FAILED
        )


def pack(batches: Iterable[Outgoing], max_bytes: int) -> list[list[Outgoing]]:
    """Group batches into requests, in order: one batch of a partition in each, and at most `max_bytes`
    unless one batch is larger."""
    requests: list[list[Outgoing]] = []
    size, taken = 0, set[TopicPartition]()
    for batch in batches:
        if not requests or batch.where in taken or size + batch.size > max_bytes:
            requests.append([])
            size, taken = 0, set()
        requests[-1].append(batch)
        size += batch.size
        taken.add(batch.where)
    return requests


# -- produce ---------------------------------------------------------------------------------------
# A topic is written to by its id if the broker supports that (Produce 13): a topic that is deleted and
# created again is another topic, and gets none of the rows meant for the old one.
#
# One thread, no background work: `send` puts a batch on the wire (or waits for room), `flush` waits for every
# acknowledgement. After a failure that may pass, all requests in flight are first settled (answered or lost).
# Then all batches that are not acknowledged are sent again, in their order.


_PRODUCE_BY_NAME = 12
_PRODUCE_BY_ID = 13
_PRODUCE_TV1_MAX = 11
_PRODUCE_TV2_MIN = 12  # the version that adds partitions to transactions itself (KIP-890)

_UNCERTAIN = (
    errors.RequestTimedOut,
    errors.NotEnoughReplicasAfterAppend,
    errors.NotLeaderOrFollower,  # also if the leader stepped down after it had written
    errors.KafkaStorageError,
    errors.NetworkException,
)
"""Answers that do not tell whether the batch is in the log."""


class _Again(Exception):
    """Batches must be sent again; `reason` is the broker's."""

    def __init__(self, reason: KafkaError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Producer:
    """Sends batches for one identity (None: without idempotence). Create, send, flush, close.

    In a transaction `transactional_id` and `identity` are both given; partitions are added automatically.
    `records`, `bytes` and `partitions` count what was acknowledged so far, `last_rows` has the offset of
    the last record in a partition, as far as it was told, with the largest timestamp of its batch,
    `first_rows` that of the first one, and `topic_ids` the topics' ids (None: the brokers have none).
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        identity: ProducerIdentity | None,
        transactional_id: str | None = None,
        acks: int = -1,
        max_in_flight: int | None = None,
        retries: bool = True,
    ) -> None:
        """`max_in_flight` None: as configured.
        `retries=False`: a batch whose outcome is unknown is never sent twice; the failure is raised.
        Raises ValueError for combinations that would break what an identity promises."""
        max_in_flight = cluster.config.max_in_flight if max_in_flight is None else max_in_flight
        if identity is not None and (acks != -1 or not 0 < max_in_flight <= MAX_UNANSWERED):
            raise ValueError("an idempotent producer needs acks=-1 and one to five requests in flight")
        if transactional_id is not None and identity is None:
            raise ValueError("a transactional producer needs the identity that InitProducerId gave")
        self.cluster, self.identity, self.transactional_id = cluster, identity, transactional_id
        self.acks, self.max_in_flight, self.retries = acks, max_in_flight, retries
        self.records = self.bytes = 0
        self.partitions: set[TopicPartition] = set()
        self.last_rows: dict[TopicPartition, tuple[int, int]] = {}
        self.first_rows: dict[TopicPartition, int] = {}
        self._unplaced: set[TopicPartition] = set()  # a batch there whose place was not told
        self.topic_ids: dict[str, str | None] = {}
        self._unanswered = Unanswered()
        self._queue: deque[Outgoing] = deque()
        self._queued: set[TopicPartition] = set()
        self._queued_bytes = 0
        self._lanes: dict[Address, tuple[BrokerConnection, deque[list[Outgoing]]]] = {}
        self._enlisted: set[TopicPartition] = set()
        self._failed: Exception | None = None
        self._tv2 = transactional_id is None or cluster.transaction_version() >= transactions.TV2

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def send(self, topic: str, partition: int, batch: EncodedBatch) -> None:
        """Send a batch; waits while the window is full. Raises ProduceFailed, also for earlier batches."""
        self._check()
        where = (topic, partition)
        if self.identity is None:
            parts = batch.finish()
        else:
            base = self._unanswered.sequence(where, batch.count)
            parts = batch.finish(
                self.identity.producer_id, self.identity.epoch, base, self.transactional_id is not None
            )
        deadline = time.monotonic() + self.cluster.config.delivery_timeout_ms / 1000
        number = self._unanswered.enter(where)
        if where in self._queued:
            self._pump()  # one batch for each partition and request
        self._queue.append(Outgoing(where, parts, batch.size, batch.count, number, deadline))
        self._queued.add(where)
        self._queued_bytes += batch.size
        if self._queued_bytes >= self.cluster.config.max_request_bytes // 2:
            self._pump()

    def flush(self) -> None:
        """Wait until every batch is acknowledged. Raises ProduceFailed naming topic and partition."""
        self._check()
        self._pump(wait=True)

    def last_sequence(self, where: TopicPartition) -> int:
        """The sequence number of the last record that was sent to a partition; -1: none was."""
        return self._unanswered.last_sequence(where)

    def close(self) -> None:
        """Give the connections back. The outcome of batches that are still unanswered stays unknown."""
        for connection, _ in self._lanes.values():
            self.cluster.give_back(connection)
        self._lanes.clear()

    # -- the loop -----------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failed is not None:
            raise ProduceFailed(f"this producer failed before: {self._failed}") from self._failed

    def _pump(self, *, wait: bool = False) -> None:
        """Send what is queued; with `wait` also wait for all answers. Tries again while that may help."""
        backoff = Backoff(self.cluster.config, self.cluster.config.delivery_timeout_ms)
        while True:
            try:
                self._transmit_queue()
                if wait:
                    self._await_all_answers()
                return
            except _Again as again:
                self._recover(again.reason, backoff, asked=True)
            except (KafkaError, ConnectionLost, BrokerUnreachable) as error:
                self._recover(error, backoff)
            except Exception as error:
                self._failed = error
                raise

    def _transmit_queue(self) -> None:
        if self._queue:
            self._enlist()
            for address, batches in self._routes().items():
                for request in pack(batches, self.cluster.config.max_request_bytes):
                    self._make_room(address, self.max_in_flight - 1)
                    if not all(map(self._unanswered.may_leave, request)):
                        self._await_all_answers()
                    self._transmit(address, request)
        self._queued.clear()
        self._queued_bytes = 0

    def _enlist(self) -> None:
        """With TV1, add partitions to the transaction before their first record."""
        new = {batch.where for batch in self._queue} - self._enlisted
        if self.transactional_id is not None and self.identity is not None and new and not self._tv2:
            transactions.add_partitions(self.cluster, self.transactional_id, self.identity, sorted(new))
            self._enlisted |= new

    def _routes(self) -> dict[Address, list[Outgoing]]:
        routes: dict[Address, list[Outgoing]] = {}
        for batch in self._queue:
            self._pin(batch.where[0])
            address = self.cluster.leader_address(*batch.where)
            routes.setdefault(address, []).append(batch)
        return routes

    def _pin(self, topic: str) -> None:
        """Note the topic's id at its first use. Only then may asking for the topic create it.

        Raises TopicRecreated if rows of this producer are gone with an older topic of that name.
        """
        now = self.cluster.topic(topic, create=topic not in self.topic_ids).topic_id
        pinned = self.topic_ids.setdefault(topic, now)
        if now == pinned or now is None:
            return
        if pinned is not None and any(topic == written for written, _ in self.partitions):
            raise TopicRecreated(
                f"topic {topic} was deleted and created again while rows were written to it (its id was "
                f"{pinned} and is {now}). The rows written so far went with the old topic, so nothing of the "
                "batch goes to the new one. Start the query again: it writes the batch as a whole"
            )
        self.topic_ids[topic] = now

    def _transmit(self, address: Address, request: list[Outgoing]) -> None:
        connection, waiting = self._lane(address)
        in_transaction = self.transactional_id is not None
        highest = _PRODUCE_BY_ID if all(self.topic_ids[b.where[0]] for b in request) else _PRODUCE_BY_NAME
        version = connection.pick(
            ApiKey.PRODUCE,
            max_version=highest if self._tv2 else _PRODUCE_TV1_MAX,
            min_version=_PRODUCE_TV2_MIN if in_transaction and self._tv2 else 0,
        )
        # From here on the request may reach the broker, even if the call fails.
        sent = set(map(id, request))
        self._queue = deque(batch for batch in self._queue if id(batch) not in sent)
        waiting.append(request)
        answered = self.acks != 0
        connection.ask(PRODUCE, self._body(request, version), version, answered=answered)
        if not answered:
            waiting.pop()
            for batch in request:
                self._unanswered.judge(batch, ErrorCode.NONE)
                self._acknowledge(batch)

    def _body(self, request: list[Outgoing], version: int) -> ProduceRequestDraft:
        rows: Iterator[tuple[str, int, ProduceRequestPartitionDataDraft]] = (
            (*batch.where, {"index": batch.where[1], "records": batch.parts}) for batch in request
        )
        return {
            "transactional_id": self.transactional_id,
            "acks": self.acks,
            "timeout_ms": self.cluster.config.request_timeout_ms,
            "topic_data": [
                {**self._named(topic, version), "partition_data": parts} for topic, parts in by_topic(rows)
            ],
        }

    def _named(self, topic: str, version: int) -> ProduceRequestTopicDataDraft:
        return {"name": topic} if version < _PRODUCE_BY_ID else {"topic_id": self._id_bytes(topic)}

    def _id_bytes(self, topic: str) -> bytes:
        return urlsafe_b64decode(f"{self.topic_ids[topic]}==")

    def _lane(self, address: Address) -> tuple[BrokerConnection, deque[list[Outgoing]]]:
        lane = self._lanes.get(address)
        if lane is None:
            lane = self._lanes[address] = (self.cluster.take(address), deque())
        return lane

    def _make_room(self, address: Address, most: int) -> None:
        """Wait for answers on a connection until at most `most` are still to come."""
        _, waiting = self._lane(address)
        while len(waiting) > most:
            reason = self._receive(address)
            if reason is not None:
                raise _Again(reason)

    def _await_all_answers(self) -> None:
        """Wait for every answer that is to come."""
        for address in list(self._lanes):
            self._make_room(address, 0)

    # -- answers ------------------------------------------------------------------------------

    def _receive(self, address: Address) -> KafkaError | None:
        """Receive one answer. Batches to be sent again are queued, and the reason is returned."""
        connection, waiting = self._lane(address)
        left = min(batch.deadline for batch in waiting[0]) - time.monotonic()
        answer = connection.answer(PRODUCE, min(self.cluster.config.request_timeout_ms, max(left * 1000, 1)))
        request = waiting.popleft()
        topics = {batch.where[0] for batch in request}
        names = {self._id_bytes(topic): topic for topic in topics if self.topic_ids[topic]}
        results = {
            (topic["name"] or names.get(topic["topic_id"]), part["index"]): part
            for topic in answer["responses"]
            for part in topic["partition_responses"]
        }
        reason = None
        for batch in request:
            refused = self._take_answer(batch, results.get(batch.where))
            reason = reason or refused
        return reason

    def _take_answer(
        self, batch: Outgoing, result: ProduceResponsePartitionResponse | None
    ) -> KafkaError | None:
        if result is None:
            raise self._failure(batch, ErrorCode.UNKNOWN_SERVER_ERROR, "the answer leaves this partition out")
        code, text = result["error_code"], result["error_message"] or ""
        verdict = self._unanswered.judge(batch, code)
        if verdict is BatchVerdict.DONE:
            self._acknowledge(batch)
            self._locate(batch, result)
            return None
        if verdict is BatchVerdict.FAILED:
            raise self._failure(batch, code, text)
        self._queue.append(batch)
        return KafkaError(code, f"{batch.where[0]}-{batch.where[1]}: {text}")

    def _acknowledge(self, batch: Outgoing) -> None:
        self.records += batch.count
        self.bytes += batch.size
        self.partitions.add(batch.where)

    def _locate(self, batch: Outgoing, result: ProduceResponsePartitionResponse) -> None:
        """Note where a batch is. A broker may not say it of one that it had already."""
        base, time_ms = result["base_offset"], result["log_append_time_ms"]
        if base < 0:
            self._unplaced.add(batch.where)
            self.last_rows.pop(batch.where, None)
            return
        time_ms = read_header(batch.parts[0]).max_timestamp if time_ms < 0 else time_ms
        place = (base + batch.count - 1, time_ms)
        if batch.where not in self._unplaced:  # else it may not be the last one
            self.last_rows[batch.where] = max(place, self.last_rows.get(batch.where, place))
        self.first_rows[batch.where] = min(base, self.first_rows.get(batch.where, base))

    # -- failures -----------------------------------------------------------------------------

    def _recover(self, error: Exception, backoff: Backoff, *, asked: bool = False) -> None:
        """Settle everything in flight, queue the unacknowledged batches in order, and pause; or give up.
        `asked`: the broker's answer itself asks for another try."""
        uncertain = self._drain_lanes()
        self._queue = deque(sorted((*self._queue, *uncertain), key=lambda batch: batch.number))
        if not (asked or passes(error)) or (
            isinstance(error, BrokerUnreachable) and not self.cluster.reached
        ):
            self._give_up(error)
        unclear = isinstance(error, _UNCERTAIN)
        if not self.retries and (uncertain or unclear):
            self._give_up(error)
        if self._queue and (backoff.over or self._queue[0].deadline <= time.monotonic()):
            first, limit = self._queue[0], self.cluster.config.delivery_timeout_ms
            self._give_up(
                self._failure(
                    first,
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"not acknowledged within {limit} ms (kafka.delivery.timeout.ms); last failure: {error}",
                ),
                error,
            )
        for topic in {batch.where[0] for batch in self._queue}:
            self.cluster.forget_topic(topic)
        backoff.pause(error)

    def _drain_lanes(self) -> list[Outgoing]:
        """Receive all answers that still come. Returns the batches whose outcome is unknown."""
        uncertain: list[Outgoing] = []
        for address, (connection, waiting) in list(self._lanes.items()):
            try:
                while waiting and not connection.closed:
                    self._receive(address)
            except ConnectionLost:
                connection.close()
            except ProduceFailed as error:
                self._give_up(error)
            uncertain.extend(batch for request in waiting for batch in request)
            waiting.clear()
            self.cluster.give_back(connection)
            del self._lanes[address]
        return uncertain

    def _give_up(self, error: Exception, cause: Exception | None = None) -> None:
        self._failed = error
        raise error from cause

    def _failure(self, batch: Outgoing, code: int, text: str) -> ProduceFailed:
        topic, partition = batch.where
        known = info(code)
        said = "; ".join(piece for piece in (known.meaning, text, ADVICE.get(code, "")) if piece)
        return ProduceFailed(
            f"{batch.count} records ({batch.size} bytes) for {topic}-{partition} were not written: "
            f"{known.name}: {said}",
            topic,
            partition,
            code,
        )
