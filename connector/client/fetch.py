"""Reading a range of a partition, a whole answer at a time.

The next Fetch is on its way before this answer is decoded, so broker and network work while Arrow
does. Only batch headers are looked at one by one; records of all batches of an answer are decoded at
once. Control batches and records of aborted transactions are passed over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from eoslog.connector.client.cluster import Cluster
from eoslog.connector.client.connection import Connection
from eoslog.connector.client.retry import Backoff, check, passes
from eoslog.connector.client.visible import Located, Visible, visible
from eoslog.connector.errors import BrokerUnreachable, ConnectionLost, OffsetsGone, RetriesExhausted
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import Buffer, CorruptBatch
from eoslog.protocol.decode import PayloadTooLarge
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.records import DecodedRecords, decode_batches
from eoslog.protocol.schema import Message

_FETCH_MAX = 12  # names the topics; later versions carry topic ids
MAX_BYTES = 4 << 20
_MAX_WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a Fetch brought for the one partition asked for."""

    records: Buffer
    last_stable_offset: int
    high_watermark: int
    log_start_offset: int
    aborted: list[tuple[int, int]]


def fetch(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    committed: bool,
    max_bytes: int = MAX_BYTES,
    headers: bool = False,
) -> Iterator[DecodedRecords]:
    """Records with offsets start..end-1, in order, an answer's worth at a time.

    `max_bytes` is asked of the broker for an answer; a single batch that is larger comes all the same.
    Raises OffsetsGone where the log no longer holds `start` or never reached `end`, CorruptBatch,
    KafkaError, and RetriesExhausted after api_timeout_ms without progress.
    """
    reader = _Reader(cluster, topic, partition, end, committed, max_bytes)
    try:
        reader.ask(start)
        position = start
        while position < end:
            answer = reader.answer(position)
            seen = _seen(reader.name, answer, position, end, committed)
            if seen.next_offset <= position:
                reader.nothing(answer, position)
                continue
            if seen.next_offset < end:
                reader.ask(seen.next_offset)
            for decoded in _decoded(reader.name, answer.records, seen.batches, headers):
                rows = _cut(decoded, position, end)
                if len(rows):
                    yield rows
            position = seen.next_offset
    finally:
        reader.close()


def _seen(name: str, answer: _Answer, position: int, end: int, committed: bool) -> Visible:
    try:
        return visible(answer.records, position, end, answer.aborted if committed else None)
    except CorruptBatch as error:
        raise CorruptBatch(f"{name}: {error}", error.offset) from error


def _decoded(
    name: str, records: Buffer, batches: Sequence[Located], headers: bool
) -> Iterator[DecodedRecords]:
    """All records of all batches at once; in halves where they unpack to more than one call may hold."""
    if not batches:
        return
    try:
        yield decode_batches(records, batches, headers=headers)
    except CorruptBatch as error:
        raise CorruptBatch(f"{name}: {error}", error.offset) from error
    except PayloadTooLarge:
        if len(batches) == 1:
            raise
        middle = len(batches) // 2
        yield from _decoded(name, records, batches[:middle], headers)
        yield from _decoded(name, records, batches[middle:], headers)


def _cut(rows: DecodedRecords, start: int, end: int) -> DecodedRecords:
    """Rows with offsets start..end-1; offsets rise, so it is a slice."""
    offsets = rows.offset.to_numpy()
    first, last = (int(i) for i in np.searchsorted(offsets, (start, end)))
    if (first, last) == (0, len(offsets)):
        return rows
    columns = ((f.name, getattr(rows, f.name)) for f in fields(rows))
    return DecodedRecords(
        **{name: None if column is None else column[first:last] for name, column in columns}
    )


class _Reader:
    """Asks for one partition at one position after another, over whatever connection leads there."""

    def __init__(
        self, cluster: Cluster, topic: str, partition: int, end: int, committed: bool, max_bytes: int
    ) -> None:
        self.cluster, self.topic, self.partition = cluster, topic, partition
        self.end, self.committed, self.max_bytes = end, committed, max_bytes
        self._connection: Connection | None = None
        self._asked = -1
        self._backoff: Backoff | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def ask(self, position: int) -> None:
        """Send a Fetch; a failure is left for `answer` to find."""
        try:
            self._send(position)
        except (KafkaError, ConnectionLost, BrokerUnreachable) as error:
            self._drop()
            if not passes(error):
                raise

    def answer(self, position: int) -> _Answer:
        """The answer for `position`, asked again while failures may pass."""
        while True:
            try:
                if self._connection is None or self._asked != position:
                    self._drop()
                    self._send(position)
                answer = self._read()
            except (KafkaError, ConnectionLost, BrokerUnreachable) as error:
                self._again(error, position)
                continue
            if answer.records:
                self._backoff = None
            return answer

    def nothing(self, answer: _Answer, position: int) -> None:
        """An answer without a whole batch: ask for more, or later, until the time is up."""
        if len(answer.records):  # the first batch does not fit
            self.max_bytes = min(self.max_bytes * 2, 1 << 30)
        bound = answer.last_stable_offset if self.committed else answer.high_watermark
        error = KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{self.name} has nothing to read at {position} of {self.end}; its end is {bound}",
        )
        self._again(error, position)

    def close(self) -> None:
        """Give the connection back, or close it where an answer is still to come."""
        if self._connection is not None:
            self.cluster.give_back(self._connection)
            self._connection = None

    def _send(self, position: int) -> None:
        if self._connection is None:
            address = self.cluster.leader_address(self.topic, self.partition)
            self._connection = self.cluster.take(address)
        version = self._connection.pick(ApiKey.FETCH, max_version=_FETCH_MAX)
        self._connection.send(ApiKey.FETCH, self._body(position), version)
        self._asked = position

    def _body(self, position: int) -> Message:
        wanted = {
            "partition": self.partition,
            "fetch_offset": position,
            "partition_max_bytes": self.max_bytes,
        }
        return {
            "replica_id": -1,
            "max_wait_ms": min(_MAX_WAIT_MS, self.cluster.config.request_timeout_ms // 2),
            "min_bytes": 1,
            "max_bytes": self.max_bytes,
            "isolation_level": int(self.committed),
            "topics": [{"topic": self.topic, "partitions": [wanted]}],
        }

    def _read(self) -> _Answer:
        assert self._connection is not None
        position, self._asked = self._asked, -1
        answer = self._connection.receive()
        check(answer["error_code"], f"Fetch of {self.name}")
        part = _only_partition(answer, self.topic, self.partition)
        if part["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetsGone(
                f"offset {position} of {self.name} is not in the log, which begins at "
                f"{part['log_start_offset']} and ends at {part['high_watermark']} (-1: not told)",
                part["log_start_offset"],
                part["high_watermark"],
            )
        check(part["error_code"], f"Fetch of {self.name} at {position}")
        return _Answer(
            part["records"] or b"",
            part["last_stable_offset"],
            part["high_watermark"],
            part["log_start_offset"],
            [(a["producer_id"], a["first_offset"]) for a in part["aborted_transactions"] or ()],
        )

    def _again(self, error: Exception, position: int) -> None:
        """Pause and forget what may be wrong; raise when it will not pass or the time is up."""
        self._drop()
        config = self.cluster.config
        if not passes(error) or (isinstance(error, BrokerUnreachable) and not self.cluster.reached):
            raise error
        if self._backoff is None:
            self._backoff = Backoff(config, config.api_timeout_ms)
        if self._backoff.over:
            raise RetriesExhausted(
                f"reading {self.name} at offset {position}: no progress within {config.api_timeout_ms} ms "
                f"(kafka.default.api.timeout.ms): {error}"
            ) from error
        self.cluster.forget_topic(self.topic)
        self._backoff.pause(error)

    def _drop(self) -> None:
        self.close()
        self._asked = -1


def _only_partition(answer: Message, topic: str, partition: int) -> Message:
    for found in answer["responses"]:
        for part in found["partitions"]:
            if found["topic"] == topic and part["partition_index"] == partition:
                wanted: Message = part
                return wanted
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the answer to Fetch leaves out {topic}-{partition}")
