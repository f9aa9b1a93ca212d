"""Filters that are pushed down never cost a row, whatever the log: rules and look-ups, without a broker."""

import os
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from eoslog.client.records import fetch as fetching
from eoslog.connector.source import pushed_ranges
from eoslog.connector.source.pushed_filters import Pushed, push
from eoslog.errors import RefusedByBroker, UnsupportedByBroker
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.topic_partitions import TopicPartition
from tests.connector.source.filter_draws import Drawn, Row, drawn_filters, moment, passing
from tests.connector.source.modelled_log import TIMES, Batch, Log, Record, Segment, logs

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
            patch.setattr(pushed_ranges, "list_offsets", self.list_offsets)
            patch.setattr(pushed_ranges, "newest", self.newest)
            patch.setattr(pushed_ranges, "topic_configs", self.configs)
            patch.setattr(fetching, "fetch", self.fetch)
            starts, ends = pushed_ranges.narrowed(source, pushed, start, end)
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
