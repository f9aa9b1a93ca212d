"""Filters that are pushed down never cost a row, whatever the log: by rules, and on real logs."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from eoslog.client.admin.topics import list_offsets
from eoslog.client.records import fetch as fetching
from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.offsets.plan import Range
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source import pushed_filters
from eoslog.connector.source.pushed_filters import Pushed, push
from eoslog.connector.source.read_range import read_range
from eoslog.connector.source.reader import BatchReader
from eoslog.errors import RefusedByBroker, UnsupportedByBroker
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.topic_partitions import TopicPartition
from tests.connector.brokers import Kafka, start_broker
from tests.connector.source.pushdown import (
    EAGER,
    TIMES,
    Batch,
    Drawn,
    Log,
    Record,
    Row,
    Segment,
    T,
    Topics,
    drawn_filters,
    logs,
    make_topics,
    moment,
    passing,
)

# -- without a broker ----------------------------------------------------------------------------
# Filters that are pushed down never cost a row, whatever the log: rules and look-ups, without a broker.

EXAMPLES = int(os.environ.get("EXAMPLES", "300"))


class Cluster:
    """Logs by partition, and what was asked of them."""

    def __init__(self, logs: Mapping[TopicPartition, Log], types: Mapping[str, str] | None = None) -> None:
        self.logs, self.types = logs, types or {}
        self.asked: list[str] = []
        self.refuses: dict[str, Exception] = {}

    def list_offsets(
        self, _: Any, wanted: Mapping[TopicPartition, int], *, committed: bool
    ) -> dict[TopicPartition, int]:
        self._ask("offsets")
        assert all(at >= 0 for at in wanted.values()), "a time below 0 is a word for an end"
        return {tp: self.logs[tp].at(time)[0] for tp, time in wanted.items()}

    def newest(self, _: Any, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._ask("newest")
        found = {tp: self.logs[tp].newest() for tp in wanted}
        return {tp: time for tp, (offset, time) in found.items() if offset >= 0}

    def configs(self, _: Any, topics: list[str], names: list[str]) -> dict[str, dict[str, str]]:
        self._ask("configs")
        return {topic: {names[0]: self.types.get(topic, "CreateTime")} for topic in topics}

    def fetch(
        self, _: Any, topic: str, partition: int, start: int, end: int, **more: Any
    ) -> Iterator[SimpleNamespace]:
        self._ask("fetch")
        for record in self.logs[topic, partition].records():
            if start <= record.offset < end:
                yield SimpleNamespace(timestamp_type=pa.array(np.array([record.by_broker], np.int32)))

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what in self.refuses:
            raise self.refuses[what]

    def narrowed(self, pushed: Pushed, *, rise: bool = False) -> dict[TopicPartition, tuple[int, int]]:
        source: Any = SimpleNamespace(cluster=self, ids={}, options=SimpleNamespace(times_rise=rise))
        start = {tp: log.start for tp, log in self.logs.items()}
        end = {tp: log.end for tp, log in self.logs.items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pushed_filters, "list_offsets", self.list_offsets)
            patch.setattr(pushed_filters, "newest", self.newest)
            patch.setattr(pushed_filters, "topic_configs", self.configs)
            patch.setattr(fetching, "fetch", self.fetch)
            starts, ends = pushed_filters.narrowed(source, pushed, start, end)
        return {tp: (starts[tp], ends[tp]) for tp in ends if starts[tp] < ends[tp]}

    def rows(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[Row]:
        return [
            Row(*tp, record.offset, record.time * 1000)
            for tp, (start, end) in sorted(ranges.items())
            for record in self.logs[tp].records()
            if start <= record.offset < end
        ]

    def all_rows(self) -> list[Row]:
        return self.rows({tp: (log.start, log.end) for tp, log in self.logs.items()})


def check_no_row_is_missing(cluster: Cluster, drawn: list[Drawn], *, rise: bool = False) -> None:
    """What is read, and filtered by what is left to Spark, is what all filters leave of all rows."""
    pushed, left = push([one.filter for one in drawn])
    assert all(any(one is own.filter for own in drawn) for one in left), "Spark wants its own filters back"
    read = cluster.rows(cluster.narrowed(pushed, rise=rise))
    again = [one for one in drawn if any(one.filter is other for other in left)]
    assert passing(read, again) == passing(cluster.all_rows(), drawn)


MICROSECONDS = st.builds(
    lambda ms, off: ms * 1000 + off, TIMES, st.sampled_from([-1000, -1, 0, 0, 1, 500, 999])
)
FILTERS = drawn_filters(["a", "b"], st.integers(-1, 15), MICROSECONDS)


@settings(max_examples=EXAMPLES)
@given(st.lists(logs(), min_size=4, max_size=4), FILTERS)
def test_no_row_is_missing_whatever_the_log(four: list[Log], drawn: list[Drawn]) -> None:
    places = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    check_no_row_is_missing(Cluster(dict(zip(places, four, strict=True))), drawn)


@settings(max_examples=EXAMPLES)
@given(logs(by_broker=True), drawn_filters(["a"], st.integers(-1, 15), MICROSECONDS))
def test_no_row_is_missing_where_brokers_set_the_time(log: Log, drawn: list[Drawn]) -> None:
    check_no_row_is_missing(Cluster({("a", 0): log}, {"a": "LogAppendTime"}), drawn)


def rising(count: int, step: int = 1000, *, by_broker: bool = False) -> Log:
    """Records at 1, 1 + step ... ms, one a batch."""
    times = [1 + step * n for n in range(count)]
    batches = [Batch(time, [Record(n, time, by_broker)]) for n, time in enumerate(times)]
    return Log([Segment(0, batches)], 0, count)


def ranges(
    cluster: Cluster, *filters: ds.Filter, rise: bool = False
) -> dict[TopicPartition, tuple[int, int]]:
    pushed, _ = push(filters)
    return cluster.narrowed(pushed, rise=rise)


def from_ms(ms: int) -> ds.Filter:
    return ds.GreaterThanOrEqual(("timestamp",), moment(ms * 1000))


def before_ms(ms: int) -> ds.Filter:
    return ds.LessThan(("timestamp",), moment(ms * 1000))


def test_a_lower_bound_is_pushed_down_to_the_first_record_that_is_not_older() -> None:
    cluster = Cluster({("a", 0): rising(10), ("a", 1): rising(3)})
    assert ranges(cluster, from_ms(4002)) == {("a", 0): (5, 10)}
    assert ranges(cluster, from_ms(2001)) == {("a", 0): (2, 10), ("a", 1): (2, 3)}
    after = ds.GreaterThan(("timestamp",), moment(2001 * 1000))
    assert ranges(cluster, after) == {("a", 0): (3, 10)}, "a microsecond later is a millisecond later"


def test_an_upper_bound_is_pushed_down_where_brokers_set_the_time_or_it_is_asked_for() -> None:
    log = rising(3000, by_broker=True)
    by_broker = Cluster({("a", 0): log}, {"a": "LogAppendTime"})
    assert ranges(by_broker, before_ms(1_000_001)) == {("a", 0): (0, 1600)}
    assert ranges(Cluster({("a", 0): log}), before_ms(1_000_001)) == {("a", 0): (0, 3000)}
    assert ranges(Cluster({("a", 0): log}), before_ms(1_000_001), rise=True) == {("a", 0): (0, 1000)}


def test_the_record_at_an_upper_bound_must_have_a_broker_s_time() -> None:
    log = rising(3000, by_broker=False)
    switched = Cluster({("a", 0): log}, {"a": "LogAppendTime"})
    assert ranges(switched, before_ms(1_000_001)) == {("a", 0): (0, 3000)}
    assert switched.asked.count("fetch") == 1


@pytest.mark.parametrize(
    "filters",
    [
        (ds.EqualTo(("topic",), "b"),),
        (ds.EqualTo(("partition",), 7),),
        (ds.Not(ds.In(("partition",), (7, None))),),
        (ds.GreaterThan(("partition",), None),),
        (ds.IsNull(("offset",)),),
        (ds.GreaterThan(("offset",), 9),),
        (ds.GreaterThan(("offset",), 5), ds.LessThan(("offset",), 5)),
        (ds.In(("offset",), (11, 12)),),
        (from_ms(20_000),),
        (ds.EqualTo(("timestamp",), None),),
        (from_ms(5), before_ms(5)),
    ],
)
def test_filters_that_exclude_all_read_nothing(filters: tuple[ds.Filter, ...]) -> None:
    assert ranges(Cluster({("a", 0): rising(10)}), *filters) == {}


@pytest.mark.parametrize("ms", [-3, -2, -1, 0])
def test_a_time_that_would_be_a_word_for_an_end_is_not_asked_for(ms: int) -> None:
    cluster = Cluster({("a", 0): rising(10, by_broker=True)}, {"a": "LogAppendTime"})
    for one in (from_ms(ms), before_ms(ms)):
        assert ranges(cluster, one, rise=True) == {("a", 0): (0, 10)}
    assert not cluster.asked


@pytest.mark.parametrize("what", ["offsets", "newest", "configs", "fetch"])
@pytest.mark.parametrize(
    "why",
    [
        UnsupportedByBroker("too old"),
        RefusedByBroker(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "DescribeConfigs"),
        RefusedByBroker(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "ListOffsets"),
    ],
    ids=["too old", "no right", "old format"],
)
def test_what_a_broker_refuses_is_said_and_all_is_read(
    what: str, why: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster({("a", 0): rising(3000, by_broker=True)}, {"a": "LogAppendTime"})
    cluster.refuses = {what: why}
    found = ranges(cluster, from_ms(9_000_000) if what == "newest" else before_ms(1_000_001))
    assert found == {("a", 0): (0, 3000)}
    assert "a-0: a filter on timestamp is not pushed down, all is read" in caplog.text


def test_what_spark_has_to_apply_again() -> None:
    exact: list[ds.Filter] = [
        ds.EqualTo(("topic",), "a"),
        ds.StringStartsWith(("topic",), "a"),
        ds.Not(ds.In(("partition",), (1, 2))),
        ds.LessThanOrEqual(("offset",), 5),
        ds.In(("offset",), (4, 5, 6)),
        ds.IsNotNull(("timestamp",)),
    ]
    again: list[ds.Filter] = [
        ds.In(("offset",), (4, 6)),
        ds.Not(ds.EqualTo(("offset",), 5)),
        from_ms(5),
        before_ms(5),
        ds.EqualTo(("value",), b"1"),
        ds.IsNotNull(("value",)),
        ds.EqualTo(("headers", "key"), "a"),
        ds.EqualTo(("topic", "offset"), "a"),
        ds.EqualTo(("partition",), True),
        ds.GreaterThan(("offset",), 5.5),
        ds.EqualTo(("timestamp",), moment(0).replace(tzinfo=None)),
    ]
    pushed, left = push([*exact, *again])
    assert left == again
    assert pushed.offsets == (4, 6), "what is applied again bounds the read all the same"


# -- on real logs --------------------------------------------------------------------------------
# A batch read with filters against one without, on real logs: never a row less, and fewer bytes fetched.

LOG_EXAMPLES = int(os.environ.get("EXAMPLES", "100"))


@pytest.fixture(scope="module")
def own() -> Iterator[Kafka]:
    """A broker that compacts at once."""
    with start_broker(EAGER) as broker:
        yield Kafka(broker.bootstrap)


@pytest.fixture(scope="module")
def topics(own: Kafka) -> Topics:
    return make_topics(own)


def reader(kafka: Kafka, topics: Sequence[str], **more: str) -> BatchReader:
    named = {name.replace("__", "."): value for name, value in more.items()}
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": ",".join(topics)}
    given |= {"filter.push.down": "true", **named}
    return BatchReader(source_options(given, stream=False))


def planned(made: BatchReader) -> list[Range]:
    return [one for one in made.partitions() if isinstance(one, Range) and one.topic]


def rows(made: BatchReader) -> list[Row]:
    found = []
    for task in planned(made):
        for batch in read_range(made.options, task):
            columns = [batch.column(name) for name in ("topic", "partition", "offset", "timestamp", "value")]
            columns[3] = columns[3].cast("int64")
            found += [Row(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
    return sorted(found)


def all_rows(kafka: Kafka, topics: Topics, level: str) -> list[Row]:
    """What is read without filters."""
    return rows(reader(kafka, list(topics), kafka__isolation__level=level))


LOG_TIMES = st.one_of(
    st.integers(T - 50, T + 4100).map(lambda ms: ms * 1000),
    st.integers(T * 1000, (T + 4000) * 1000),
    st.sampled_from([-1_000_000, -1000, -1, 0, 1, 1000, 1_000_000, (T + 3_000_000) * 1000]),
    st.integers(T - 10, T + 3_600_000).map(lambda ms: ms * 1000),
)


@settings(max_examples=LOG_EXAMPLES)
@given(st.data(), st.sampled_from(["read_committed", "read_uncommitted"]))
def test_never_a_row_less_than_without_push_down(
    own: Kafka, topics: Topics, data: st.DataObject, level: str
) -> None:
    drawn = data.draw(drawn_filters(list(topics), st.integers(-1, 210), LOG_TIMES))
    made = reader(own, list(topics), kafka__isolation__level=level)
    left = list(made.pushFilters([one.filter for one in drawn]))
    again = [one for one in drawn if any(one.filter is other for other in left)]
    before = passing(all_rows(own, topics, level), drawn)
    found = passing(rows(made), again)
    after = passing(all_rows(own, topics, level), drawn)
    assert set(after) <= set(found) <= set(before), "only compaction takes rows away meanwhile"
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("place", ["plain-0", "plain-1", "plain-2", "compacted-0", "switched-0"])
def test_records_before_the_first_one_at_a_time_are_older(own: Kafka, topics: Topics, place: str) -> None:
    """The rule of ListOffsets on which a lower bound rests, for every time that occurs and the next one."""
    kind, _, number = place.partition("-")
    where = (getattr(topics, kind), int(number))
    records = [row for row in all_rows(own, topics, "read_uncommitted") if row[:2] == where]
    cluster = shared_cluster(reader(own, list(topics)).options.client)
    times = sorted({row.time // 1000 + off for row in records for off in (0, 1)})
    for time in [time for time in times if time > 0]:
        first = list_offsets(cluster, {where: time}, committed=False)[where]
        assert all(row.time < time * 1000 for row in records if row.offset < first), time


def fetched(kafka: Kafka, topic: str, *filters: ds.Filter, **more: str) -> tuple[int, int]:
    """Rows and bytes of record batches that a read with these filters fetches, look-ups included."""
    sizes: list[int] = []
    seen = fetching._seen

    def counted(name: str, answer: Any, *rest: Any) -> Any:
        sizes.append(len(answer.records))
        return seen(name, answer, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetching, "_seen", counted)
        made = reader(kafka, [topic], kafka__max__partition__fetch__bytes="65536", **more)
        if filters:
            made.pushFilters(list(filters))
        return len(rows(made)), sum(sizes)


@pytest.fixture(scope="module")
def hour(own: Kafka) -> str:
    """An hour in two partitions, a record of 1 kB a second in each, by time."""
    topic = own.topic(2, retention_ms="-1")
    for partition in (0, 1):
        producer = own.producer(enable_idempotence=True, linger_ms=20, batch_num_messages=20)
        for second in range(3600):
            producer.produce(topic, b"x" * 1000, partition=partition, timestamp=T + 1000 * second)
        assert producer.flush(60) == 0
    return topic


def at(seconds: int) -> Any:
    return moment((T + 1000 * seconds) * 1000)


def test_fewer_bytes_are_fetched(own: Kafka, hour: str) -> None:
    whole = fetched(own, hour)
    last = fetched(own, hour, ds.GreaterThanOrEqual(("timestamp",), at(3540)))
    one = fetched(own, hour, ds.EqualTo(("partition",), 1))
    few = fetched(own, hour, ds.EqualTo(("partition",), 1), ds.GreaterThan(("offset",), 3589))
    minute = ds.GreaterThanOrEqual(("timestamp",), at(60)), ds.LessThan(("timestamp",), at(120))
    between = fetched(own, hour, *minute)
    forced = fetched(own, hour, *minute, timestamp__upper__bound__force__push__down="true")
    print(f"\nwhole {whole}, last minute {last}, one partition {one}, ten offsets {few}, "
          f"second minute {between}, forced {forced}")  # fmt: skip
    assert (whole[0], last[0], one[0], few[0]) == (7200, 120, 3600, 10)
    assert (between[0], forced[0]) == (7080, 120)
    assert whole[1] > 7_200_000
    assert last[1] < whole[1] / 20
    assert one[1] < whole[1] * 0.55
    assert few[1] < 100_000
    assert forced[1] < whole[1] / 20


@pytest.mark.parametrize(
    "filters",
    [
        [ds.GreaterThan(("timestamp",), at(3600))],
        [ds.EqualTo(("topic",), "another")],
        [ds.EqualTo(("partition",), 2)],
        [ds.LessThan(("offset",), 0)],
        [ds.IsNull(("timestamp",))],
    ],
)
def test_a_predicate_that_excludes_all_fetches_nothing(own: Kafka, hour: str, filters: list[Any]) -> None:
    assert fetched(own, hour, *filters) == (0, 0)


def test_the_range_that_options_give_keeps_its_meaning(own: Kafka, hour: str) -> None:
    start, end = {hour: {"0": 100, "1": -2}}, {hour: {"0": 200, "1": 10}}
    bounds = {"startingOffsets": json.dumps(start), "endingOffsets": json.dumps(end)}
    made = reader(own, [hour], **bounds)
    made.pushFilters([ds.GreaterThanOrEqual(("timestamp",), at(5)), ds.LessThan(("offset",), 150)])
    assert [(r.partition, r.start, r.end) for r in planned(made)] == [(0, 100, 150), (1, 5, 10)]
    split = reader(own, [hour], **bounds, maxRecordsPerPartition="20")
    split.pushFilters([ds.EqualTo(("partition",), 0), ds.LessThan(("offset",), 150)])
    assert [r.size for r in planned(split)] == [16, 17, 17]


def test_an_offset_beyond_the_log_is_a_loss_with_and_without_filters(own: Kafka, hour: str) -> None:
    made = reader(own, [hour], endingOffsets=json.dumps({hour: {"0": 9999, "1": 10}}))
    made.pushFilters([ds.EqualTo(("partition",), 1)])
    with pytest.raises(Exception, match="has 0 to 3600, not 9999"):
        made.partitions()
