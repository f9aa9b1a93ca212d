"""What push-down is tried on: filters drawn at random, logs in memory, topics with all that is odd."""

import operator
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import shared_cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.protocol.encode import encode_batches
from tests.connector.brokers import ON_KAFKA, Kafka
from tests.kit.program import until

# -- filters -------------------------------------------------------------------------------------
# Filters as Spark pushes them down, drawn at random, each with what SQL says of a row.


class Row(NamedTuple):
    """The columns that filters may be about. `time` in microseconds since 1970."""

    topic: str
    partition: int
    offset: int
    time: int
    value: bytes | None = None


class Drawn(NamedTuple):
    """A filter and SQL's answer for a row: None is null."""

    filter: ds.Filter
    passes: Callable[[Row], bool | None]


COLUMNS = {"topic": 0, "partition": 1, "offset": 2, "timestamp": 3, "value": 4}
COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ds.EqualTo: operator.eq,
    ds.GreaterThan: operator.gt,
    ds.GreaterThanOrEqual: operator.ge,
    ds.LessThan: operator.lt,
    ds.LessThanOrEqual: operator.le,
}


def moment(microseconds: int) -> datetime:
    """A time as Spark gives it to Python."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def passing(rows: Sequence[Row], drawn: Sequence[Drawn]) -> list[Row]:
    """The rows for which all filters are true."""
    return [row for row in rows if all(one.passes(row) is True for one in drawn)]


def drawn_filters(
    topics: Sequence[str], offsets: st.SearchStrategy[int], times: st.SearchStrategy[int]
) -> st.SearchStrategy[list[Drawn]]:
    """One to three filters on the columns. `times` in microseconds."""
    values: dict[str, st.SearchStrategy[Any]] = {
        "topic": st.sampled_from([*topics, "other", ""]),
        "partition": st.integers(-1, 4),
        "offset": offsets,
        "timestamp": times,
        "value": st.sampled_from([b"", b"1"]),
    }
    weights = ["topic", "partition", "partition", "offset", "offset", *["timestamp"] * 4, "value"]
    one = st.sampled_from(weights).flatmap(lambda column: _on(column, values[column]))
    return st.lists(one, min_size=1, max_size=3)


def _on(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Drawn]:
    plain = st.one_of(
        st.builds(lambda kind, at: _compared(column, kind, at), st.sampled_from(list(COMPARISONS)), values),
        st.builds(lambda kind: _compared(column, kind, None), st.sampled_from(list(COMPARISONS))),
        st.builds(lambda at: _null_safe(column, at), st.none() | values),
        st.builds(lambda some: _in(column, some), st.lists(st.none() | values, min_size=1, max_size=4)),
        st.builds(lambda null: _null(column, null), st.booleans()),
    )
    texts = st.sampled_from(list(TEXTS))
    if column == "topic":
        plain = plain | st.builds(_text, texts, values.map(lambda text: text[:3]))
    return st.builds(lambda one, turned: _not(one) if turned else one, plain, st.booleans())


def _literal(column: str, value: Any) -> Any:
    return moment(value) if column == "timestamp" and value is not None else value


def _compared(column: str, kind: type, value: Any) -> Drawn:
    at, compare = COLUMNS[column], COMPARISONS[kind]

    def passes(row: Row) -> bool | None:
        return None if value is None or row[at] is None else compare(row[at], value)

    return Drawn(kind((column,), _literal(column, value)), passes)


def _null_safe(column: str, value: Any) -> Drawn:
    at = COLUMNS[column]
    return Drawn(ds.EqualNullSafe((column,), _literal(column, value)), lambda row: bool(row[at] == value))


def _in(column: str, some: list[Any]) -> Drawn:
    at = COLUMNS[column]

    def passes(row: Row) -> bool | None:
        if row[at] is None:
            return None
        return (
            True if row[at] in [one for one in some if one is not None] else None if None in some else False
        )

    return Drawn(ds.In((column,), tuple(_literal(column, one) for one in some)), passes)


def _null(column: str, null: bool) -> Drawn:
    at, kind = COLUMNS[column], ds.IsNull if null else ds.IsNotNull
    return Drawn(kind((column,)), lambda row: (row[at] is None) == null)


TEXTS: dict[type, Callable[[str, str], bool]] = {
    ds.StringStartsWith: lambda text, piece: text.startswith(piece),
    ds.StringEndsWith: lambda text, piece: text.endswith(piece),
    ds.StringContains: lambda text, piece: piece in text,
}


def _text(kind: type, text: str) -> Drawn:
    return Drawn(kind(("topic",), text), lambda row: TEXTS[kind](row.topic, text))


def _not(one: Drawn) -> Drawn:
    def passes(row: Row) -> bool | None:
        inner = one.passes(row)
        return None if inner is None else not inner

    return Drawn(ds.Not(one.filter), passes)


# -- a log without a broker ----------------------------------------------------------------------
# A partition's log by Kafka's rule of ListOffsets for times, with all that makes its answers odd. No broker.
#
# Kafka (UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp, FileRecords.searchForTimestamp)
# looks for the first segment whose largest timestamp is not older, and only in it for the first batch and
# record. A batch that compaction has emptied keeps its largest timestamp, and so does its segment, as does
# one whose first records were deleted. A segment without any timestamp counts as old as its file.

NEVER = -1


class Record(NamedTuple):
    """A record: its offset, time (ms) and whether the broker has set that."""

    offset: int
    time: int
    by_broker: bool = False


@dataclass
class Batch:
    """Records and the largest time in the header: that of the batch as it was written."""

    largest: int
    records: list[Record]


@dataclass
class Segment:
    """Batches, and when the file was changed last (ms)."""

    changed: int
    batches: list[Batch] = field(default_factory=list)

    @property
    def largest_known(self) -> int:
        return max((batch.largest for batch in self.batches), default=NEVER)

    @property
    def largest(self) -> int:
        return self.largest_known if self.largest_known >= 0 else self.changed


@dataclass
class Log:
    """Segments; readers see the offsets from `start` to below `end`."""

    segments: list[Segment]
    start: int
    end: int

    def records(self) -> list[Record]:
        """What a reader sees."""
        every = (r for segment in self.segments for batch in segment.batches for r in batch.records)
        return [record for record in every if record.offset >= self.start]

    def at(self, time: int) -> tuple[int, int]:
        """(offset, timestamp) for a time, or (-1, -1)."""
        for segment in self.segments:
            if segment.largest >= time:
                return self._in(segment, time)
        return NEVER, NEVER

    def newest(self) -> tuple[int, int]:
        """(offset, timestamp) of the largest time; (-1, -1) also if its batch is empty now."""
        segment = max(self.segments, key=lambda one: one.largest_known)
        batch = next((one for one in segment.batches if one.largest == segment.largest_known), None)
        if batch is None or not batch.records:
            return NEVER, NEVER
        found = max(batch.records, key=lambda record: record.time)
        return found.offset, batch.largest

    def _in(self, segment: Segment, time: int) -> tuple[int, int]:
        for batch in segment.batches:
            if batch.largest >= time:
                for record in batch.records:
                    if record.time >= time and record.offset >= self.start:
                        return record.offset, record.time
        return NEVER, NEVER


TIMES = st.sampled_from([NEVER, 0, 1, 2, 3, 5, 8, 13, 900_000, 900_005, 2_000_000])
"""Few, so that filters meet them; some are further apart than brokers' clocks may be."""


@st.composite
def logs(draw: st.DrawFn, by_broker: bool = False) -> Log:
    """Random logs. `by_broker`: the times are the brokers', whose clocks are up to 10 minutes apart; those of
    the first records may be the producers'."""
    count = draw(st.integers(0, 14))
    times = draw(st.lists(TIMES, min_size=count, max_size=count))
    switched = draw(st.integers(0, count)) if by_broker else count
    if by_broker:
        times[switched:] = _nearly_rising(draw, count - switched)
    records = [Record(n, time, by_broker and n >= switched) for n, time in enumerate(times)]
    segments = [Segment(draw(TIMES))]
    for record in records:
        if draw(st.booleans()) or not segments[-1].batches:
            if draw(st.integers(0, 3)) == 0:
                segments.append(Segment(draw(TIMES)))
            segments[-1].batches.append(Batch(NEVER, []))
        batch = segments[-1].batches[-1]
        batch.largest = max(batch.largest, record.time)
        if draw(st.integers(0, 3)) != 0:  # else compacted away
            batch.records.append(record)
    return Log(segments, draw(st.integers(0, count)) if count else 0, count)


def _nearly_rising(draw: st.DrawFn, count: int) -> list[int]:
    steps = draw(st.lists(st.sampled_from([0, 1, 300_000]), min_size=count, max_size=count))
    off = draw(st.lists(st.sampled_from([0, 0, 1, 299_999]), min_size=count, max_size=count))
    return [sum(steps[: n + 1]) + 300_000 - off[n] for n in range(count)]


# -- topics --------------------------------------------------------------------------------------
# Topics on which filters are tried: times out of order, nulls, transactions, gaps, brokers' times.

T = 1_700_000_000_000
EAGER = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}
"""The broker's options: compaction at once."""
_LEAST = 1 << (20 if ON_KAFKA else 10)
"""The smallest segment that the broker allows."""
_SMALL_SEGMENTS = {"segment_bytes": str(_LEAST)}


class Topics(NamedTuple):
    """Names by kind."""

    plain: str
    transactional: str
    compacted: str
    switched: str

    @property
    def partitions(self) -> dict[str, int]:
        return {self.plain: 3, self.transactional: 2, self.compacted: 1, self.switched: 1}


def make_topics(kafka: Kafka) -> Topics:
    """Fill the topics; the last of the producers leaves its transaction open."""
    return Topics(_plain(kafka), _transactional(kafka), _compacted(kafka), _switched(kafka))


def _name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def _put(kafka: Kafka, topic: str, partition: int, times: list[int], key: bytes | None = None) -> None:
    """A batch with these times, which may be -1, as stock clients do not write it."""
    values = pa.array([None if n % 5 == 0 else b"%d" % n * 9 for n in range(len(times))], pa.binary())
    keys = pa.array([key if n % 3 else None for n in range(len(times))], pa.binary())
    stamps = pa.array(times, pa.int64())
    cluster = shared_cluster(ClientConfig(parse_addresses(kafka.bootstrap)))
    with Producer(cluster, identity=None) as producer:
        for batch in encode_batches(keys, values, None, stamps, codec=0, max_batch_bytes=900_000):
            producer.send(topic, partition, batch)
        producer.flush()


def _plain(kafka: Kafka) -> str:
    """Three partitions: about rising, at random, and with records without a time."""
    topic, random = kafka.topic(3, _name("plain"), **_SMALL_SEGMENTS), Random(1)
    for step in range(40):
        _put(kafka, topic, 0, [T + 100 * step + random.randrange(120) for _ in range(5)])
        _put(kafka, topic, 1, [T + random.randrange(4000) for _ in range(5)])
        if step % 4 == 0:
            _put(kafka, topic, 2, [random.choice([-1, 0, 1, T + 50 * step]) for _ in range(5)])
    return topic


def _transactional(kafka: Kafka) -> str:
    topic, random = kafka.topic(2, _name("transactional"), **_SMALL_SEGMENTS), Random(2)
    producer = kafka.transactional(topic)
    for number in range(12):
        producer.begin_transaction()
        for i in range(6):
            at = T + 300 * number + random.randrange(600)
            producer.produce(topic, b"%d" % i * 20, None if i % 2 else b"k", partition=i % 2, timestamp=at)
        assert producer.flush(20) == 0  # abort would drop what has not been sent
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0, timestamp=T + 10)
    assert producer.flush(20) == 0
    _LEFT_OPEN.append(producer)
    kafka.put(topic, [b"behind"], 0, timestamp=T + 5000)
    return topic


_LEFT_OPEN: list[object] = []
"""Producers whose transactions are to stay open."""


def _compacted(kafka: Kafka) -> str:
    """Gaps, whole batches gone, among them those with the largest times."""
    config = {**_SMALL_SEGMENTS, "min_cleanable_dirty_ratio": "0.01", "cleanup_policy": "compact"}
    topic, random = kafka.topic(1, _name("compacted"), **config), Random(3)
    for step in range(60):
        at = T + 3900 if step == 7 else T + 60 * step + random.randrange(200)
        kafka.put(
            topic, [random.randbytes(_LEAST // 12)], 0, key=b"k%d" % (random.randrange(8)), timestamp=at
        )
    until(lambda: len(kafka.rows(topic)) < 40, "the topic is compacted")
    return topic


def _switched(kafka: Kafka) -> str:
    """First the producers' times, far ahead and out of order, then the broker's."""
    topic, random = kafka.topic(1, _name("switched"), **_SMALL_SEGMENTS), Random(4)
    for _ in range(10):
        _put(kafka, topic, 0, [T + random.randrange(3_000_000) for _ in range(4)])
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(
                "message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET
            )
        ],
    )
    for future in kafka.admin.incremental_alter_configs([resource]).values():
        future.result(20)
    for _ in range(5):
        _put(kafka, topic, 0, [T] * 4)
    return topic
