"""A batch read with filters against one without, on real logs: never a row less, and fewer bytes fetched."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from eoslog.client.admin.list_offsets import list_offsets
from eoslog.client.records import fetch as fetching
from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.offsets.plan import Range
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.read_range import read_range
from eoslog.connector.source.reader import BatchReader
from tests.connector.brokers import start_broker
from tests.connector.source.filter_draws import Row, drawn_filters, moment, passing
from tests.connector.source.pushdown_topics import EAGER, T, Topics, make_topics
from tests.connector.stock_kafka import Kafka

EXAMPLES = int(os.environ.get("EXAMPLES", "100"))


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


TIMES = st.one_of(
    st.integers(T - 50, T + 4100).map(lambda ms: ms * 1000),
    st.integers(T * 1000, (T + 4000) * 1000),
    st.sampled_from([-1_000_000, -1000, -1, 0, 1, 1000, 1_000_000, (T + 3_000_000) * 1000]),
    st.integers(T - 10, T + 3_600_000).map(lambda ms: ms * 1000),
)


@settings(max_examples=EXAMPLES)
@given(st.data(), st.sampled_from(["read_committed", "read_uncommitted"]))
def test_never_a_row_less_than_without_push_down(
    own: Kafka, topics: Topics, data: st.DataObject, level: str
) -> None:
    drawn = data.draw(drawn_filters(list(topics), st.integers(-1, 210), TIMES))
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
