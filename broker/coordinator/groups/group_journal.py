"""Reads and writes `__consumer_offsets`: chooses the partition, appends, waits until durable, replays.

Every change is written here first. State is changed right after the append, in the order of the log. An
answer is sent only after the log is durable up to that append, so no state that a client has seen is missing
after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from eoslog.broker.coordinator.groups import group_records
from eoslog.broker.coordinator.groups.consumer_group_state import Fact
from eoslog.broker.coordinator.groups.group_records import GroupRecord, KeyValue, OffsetRecord, decode
from eoslog.protocol import batch, control
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.internal_topics.coordinator_records import partition_of
from eoslog.protocol.plain_records import Record, encode_records, iter_records
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.schema import ProtocolError

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock
    from eoslog.broker.topics.topics import Topics

TOPIC = "__consumer_offsets"

T = TypeVar("T")

logger = logging.getLogger(__name__)

_AS_COORDINATOR_ERROR = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""Errors of the log, and what clients of a coordinator understand in place of them."""


def as_coordinator_error(error: KafkaError) -> KafkaError:
    """Return the error that a group's client gets for an error of the log."""
    code = _AS_COORDINATOR_ERROR.get(error.code)
    return error if code is None else KafkaError(code, str(error))


class GroupJournal:
    """Reads and writes `__consumer_offsets`.

    Requests about a partition that could not be read back are refused, so that its groups and offsets do not
    look as if they did not exist.
    """

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._unread: dict[int, str] = {}

    def partition(self, group_id: str) -> Partition:
        """Return the partition of `group_id`; the topic is created on first use.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE if the partition is offline or could not be read.
        """
        try:
            partitions = self._topics.internal(TOPIC)
        except KafkaError as error:
            raise as_coordinator_error(error) from error
        partition = partitions[partition_of(group_id, len(partitions))]
        self._check(partition)
        return partition

    def keeps(self, partition: Partition, group_id: str) -> bool:
        """Whether a group's records are in this partition."""
        return partition_of(group_id, len(self.existing())) == partition.index

    def existing(self) -> list[Partition]:
        """Return all partitions if the topic exists, else none."""
        return [] if self._topics.get(TOPIC) is None else self._topics.internal(TOPIC)

    def readable(self) -> list[Partition]:
        """Return all partitions, as `existing`. Raises KafkaError if one of them is not available."""
        partitions = self.existing()
        for partition in partitions:
            self._check(partition)
        return partitions

    def _check(self, partition: Partition) -> None:
        reason = self._unread.get(partition.index) or partition.offline
        if reason is not None:
            where = f"{TOPIC}-{partition.index}"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{where} is not available: {reason}")

    def replay(self, partition: Partition, read: Callable[[Partition], None]) -> None:
        """Read a partition back with `read`. If that fails, its groups are refused until the next start."""
        self._unread.pop(partition.index, None)
        try:
            read(partition)
        except (KafkaError, ProtocolError, batch.CorruptBatch) as error:
            self._unread[partition.index] = str(error)
            logger.error(
                "%s-%d: the groups it keeps are refused, as it cannot be read: %s. Put the partition back "
                "from a copy, then start the broker again",
                TOPIC, partition.index, error,
            )  # fmt: skip

    def append(
        self, partition: Partition, records: Sequence[KeyValue], producer: ProducerIdentity | None = None
    ) -> int:
        """Append records as one batch; if `producer` is given, in its transaction.

        Returns the first record's offset. Raises KafkaError with nothing written.
        """
        now = self._clock.now_ms()
        if producer is None:
            data = encode_records(records, now)
        else:
            pid, epoch = producer
            data = encode_records(records, now, producer_id=pid, producer_epoch=epoch, transactional=True)
        try:
            return partition.append(data, now_ms=now, coordinator=True).base_offset
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                logger.error("%s-%d: cannot write: %s", TOPIC, partition.index, error)
            raise as_coordinator_error(error) from error

    async def durable(self, partition: Partition, end: int) -> None:
        """Wait until everything below offset `end` is durable. Raises KafkaError if that fails."""
        if partition.high_watermark >= end:
            return
        try:
            await partition.wait_durable(end - 1)
        except KafkaError as error:
            raise as_coordinator_error(error) from error


class WhenDurable(Awaitable[T]):
    """A value that is returned once everything that is in the partition now is durable."""

    __slots__ = ("_end", "_journal", "_partition", "_value")

    def __init__(self, journal: GroupJournal, partition: Partition, value: T) -> None:
        self._journal, self._partition, self._value = journal, partition, value
        self._end = partition.log_end_offset

    def __await__(self) -> Generator[Any, None, T]:
        yield from self._journal.durable(self._partition, self._end).__await__()
        return self._value


def replay(
    partition: Partition,
    on_offset: Callable[[OffsetRecord, int | None], None],
    on_group: Callable[[GroupRecord], None],
    on_consumer_group: Callable[[str, Fact], None],
    on_marker: Callable[[int, bool], None],
) -> None:
    """Read a partition from its start and pass on each record, in order.

    `on_offset` also gets the producer id if the record is in a transaction, else None; `on_consumer_group`
    gets a group's id and a fact about it; `on_marker` gets a producer id and whether its transaction
    committed. Raises KafkaError, CorruptBatch and ProtocolError if something cannot be read.
    """
    for header, data in partition.scan():
        if header.is_control:
            on_marker(header.producer_id, control.read_control(data, 0, header).type == control.COMMIT)
            continue
        producer_id = header.producer_id if header.is_transactional else None
        for record in iter_records(data, 0, header):
            decoded = _decode(partition, record)
            if isinstance(decoded, OffsetRecord):
                on_offset(decoded, producer_id)
            elif isinstance(decoded, GroupRecord):
                on_group(decoded)
            elif decoded is not None:
                on_consumer_group(*decoded)


def _decode(partition: Partition, record: Record) -> OffsetRecord | GroupRecord | tuple[str, Fact] | None:
    where = f"{TOPIC}-{partition.index} offset {record.offset}"
    try:
        if coordinator_records.key_version(record.key or b"") in group_records.FACT_KINDS:
            return group_records.decode_fact(record)
        decoded = decode(record)
    except ProtocolError as error:
        raise ProtocolError(f"{where}: {error}") from error
    if decoded is None:
        logger.warning("%s: a record of an unknown kind is ignored", where)
    return decoded
