"""Predicates in SQL, through Spark: with push-down every row that there is without it."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter

from tests.connector.brokers import Kafka, start_broker
from tests.connector.source.pushdown import EAGER, T, Topics, make_topics

pytestmark = pytest.mark.spark

SETTING = "spark.sql.python.filterPushdown.enabled"
ONCE = {"filter.push.down": "true"}
"""Each frame here is scanned once."""
EXAMPLES = int(os.environ.get("EXAMPLES", "10"))


@pytest.fixture(scope="module")
def own() -> Iterator[Kafka]:
    """A broker that compacts at once."""
    with start_broker(EAGER) as broker:
        yield Kafka(broker.bootstrap)


@pytest.fixture(scope="module")
def topics(own: Kafka) -> Topics:
    return make_topics(own)


@contextmanager
def session(spark: SparkSession, **settings_: str) -> Iterator[None]:
    """Settings of the session, for a while."""
    before = {name: spark.conf.get(name, None) for name in settings_}
    for name, value in settings_.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def frame(spark: SparkSession, kafka: Kafka, topics: Topics | str, **options: str) -> DataFrame:
    names = topics if isinstance(topics, str) else ",".join(topics)
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": names, **ONCE, **options}
    return spark.read.format("eoslog").options(**given).load()


def found(made: DataFrame) -> list[Any]:
    """Topic, partition and offset of each row."""
    return sorted(tuple(row) for row in made.select("topic", "partition", "offset").collect())


def compared(spark: SparkSession, kafka: Kafka, topics: Topics, where: str) -> str:
    """What differs with push-down, "" if nothing. Meanwhile compaction may take rows away."""
    before = found(frame(spark, kafka, topics).where(where))
    with session(spark, **{SETTING: "true"}):
        pushed = found(frame(spark, kafka, topics).where(where))
    after = found(frame(spark, kafka, topics).where(where)) if pushed != before else before
    fits = set(after) <= set(pushed) <= set(before) and len(set(pushed)) == len(pushed)
    return "" if fits else f"{where}: {len(before)} rows, {len(pushed)} with push-down, then {len(after)}"


def test_without_the_setting_spark_reads_and_filters_as_ever(
    spark: SparkSession, own: Kafka, topics: Topics
) -> None:
    with session(spark, **{SETTING: "false"}):
        assert {p for _, p, _ in found(frame(spark, own, topics.plain).where("partition = 1"))} == {1}
        assert frame(spark, own, topics.plain).count() == 450


PREDICATES = [
    "topic like 'plain%' and partition = 1",
    "topic not like 'plain%'",
    "partition in (0, 2) and offset between 3 and 17",
    "partition not in (0, null)",
    "not (partition = 0)",
    "partition = 0 or offset > 100",
    "(partition = 0 or offset > 100) and offset < 120",
    "offset <=> null or offset > 195",
    "offset is not null and offset <> 3",
    "offset > 195.5",
    "value is null and timestamp >= '2023-11-14 22:13:21'",
    "timestamp > '2023-11-14 22:13:21.9999995'",
    "timestamp < '2023-11-14 22:13:21'",
    "timestamp = timestamp_millis(1700000003900)",
    "timestamp >= timestamp_millis(1700000003899) + interval 1 microsecond",
    "timestamp between '2023-11-14 22:13:22' and '2023-11-14 22:13:22.5'",
    "timestamp in (timestamp_millis(1700000003900), timestamp_millis(-1))",
    "timestamp <= timestamp_millis(-1)",
    "timestamp > timestamp_millis(-4)",
    "timestamp >= timestamp_ntz'2023-11-14 22:13:22'",
    "date(timestamp) = '2023-11-14'",
    "not (timestamp < '2023-11-14 22:13:23')",
    "timestamp > '2100-01-01'",
    "timestampType = 1 and timestamp > '2024-01-01'",
    "false",
]


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_every_row_that_there_is_without_push_down(
    spark: SparkSession, own: Kafka, topics: Topics, zone: str
) -> None:
    with session(spark, **{"spark.sql.session.timeZone": zone}):
        assert [compared(spark, own, topics, where) for where in PREDICATES] == [""] * len(PREDICATES)


TIMES = st.integers((T - 50) * 1000, (T + 4100) * 1000)
COMPARED = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
ATOMS = st.one_of(
    st.builds("timestamp {} timestamp_micros({})".format, COMPARED, TIMES),
    st.builds("timestamp {} timestamp_millis({})".format, COMPARED, st.integers(T, T + 4100)),
    st.builds("offset {} {}".format, COMPARED, st.integers(-1, 210)),
    st.builds("partition {} {}".format, COMPARED, st.integers(-1, 3)),
    st.builds("partition in ({}, {})".format, st.integers(-1, 3), st.integers(0, 3) | st.just("null")),
    st.builds("topic {} '{}'".format, COMPARED, st.sampled_from(["d", "plain", "switched-"])),
    st.sampled_from(["topic like 'comp%'", "topic like '%a%'", "value is null", "offset is null"]),
)
WHERE = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=5,
)


@settings(
    max_examples=EXAMPLES,
    derandomize="EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(WHERE)
def test_random_predicates(spark: SparkSession, own: Kafka, topics: Topics, where: str) -> None:
    assert compared(spark, own, topics, where) == ""


def test_spark_applies_only_what_is_left(spark: SparkSession, own: Kafka, topics: Topics) -> None:
    with session(spark, **{SETTING: "true"}):
        made = frame(spark, own, topics.plain).where("partition = 1 and offset >= 195 and value is not null")
        plan = made._jdf.queryExecution().executedPlan().toString()
        filters = [line for line in plan.splitlines() if "Filter " in line]
        assert len(filters) == 1 and "isnotnull(value" in filters[0], plan
        assert "partition" not in filters[0] and "offset" not in filters[0], "Spark applies them again"
        assert made.rdd.getNumPartitions() == 1
        assert [row.offset for row in made.collect()] == [196, 197, 198, 199]
        nothing = frame(spark, own, topics.plain).where("timestamp > '2100-01-01'")
        assert nothing.count() == 0
        assert frame(spark, own, topics.plain).count() == 450, "no filter: nothing is pushed down"


def test_a_frame_that_is_scanned_again_has_all_its_rows(
    spark: SparkSession, own: Kafka, topics: Topics
) -> None:
    """By default. Spark 4.2 and 4.3 plan all scans of a frame by the filter that it planned last."""
    made = frame(spark, own, topics.plain, **{"filter.push.down": "auto"})
    one, two = made.where("partition = 1"), made.where("partition = 2")
    with session(spark, **{SETTING: "true"}):
        assert (one.count(), made.count(), two.count()) == (200, 450, 50)
        assert one.union(two).count() == 250
        assert one.union(made).count() == 650


def test_spark_plans_all_scans_of_a_frame_by_one_filter(spark: SparkSession) -> None:
    """Spark's own part in it, with a source that does as it is told. Where this fails, Spark has mended it,
    and pushed_filters.py has to know how to tell."""

    class Reader(DataSourceReader):
        only: int | None = None

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
            for one in filters:
                if isinstance(one, EqualTo):
                    self.only = one.value
                else:
                    yield one

        def read(self, partition: object) -> Iterator[tuple[int]]:
            yield from ((n,) for n in (1, 2, 3) if self.only in (None, n))

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers-that-are-filtered"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: object) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Numbers)
    made = spark.read.format("numbers-that-are-filtered").load()
    one, two = made.where("n = 1"), made.where("n = 2")
    with session(spark, **{SETTING: "true"}):
        assert [row.n for row in one.collect()] == [1]
        assert [row.n for row in one.union(two).collect()] in ([1, 1], [2, 2]), "rows of one filter, twice"


def test_a_stream_gets_no_filter(spark: SparkSession, own: Kafka, topics: Topics, tmp_path: Path) -> None:
    with session(spark, **{SETTING: "true"}):
        options = {"kafka.bootstrap.servers": own.bootstrap, "subscribe": topics.plain}
        rows = spark.readStream.format("eoslog").options(**options, startingOffsets="earliest").load()
        out = rows.where("partition = 1 and offset >= 195").writeStream.format("memory").queryName("pushed")
        query = out.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        assert spark.table("pushed").count() == 5
        progress = query.lastProgress
        assert progress is not None
        ends = json.loads(progress["sources"][0]["endOffset"])
        assert ends[topics.plain] == {"0": 200, "1": 200, "2": 50}
        assert sum(p["numInputRows"] for p in query.recentProgress) == 450


def test_the_page_s_query(spark: SparkSession, own: Kafka, topics: Topics) -> None:
    page = (Path(__file__).parents[3] / "docs" / "sql.md").read_text()
    (block,) = (part for part in page.split("```") if SETTING in part and part.startswith("python"))
    settings_, query = block.removeprefix("python").strip().rsplit("\n", 1)
    options = {"kafka.bootstrap.servers": own.bootstrap, "subscribe": topics.plain}
    names: dict[str, Any] = {"spark": spark, "options": options}
    with session(spark, **{SETTING: "false"}):
        exec(settings_, names)
        assert spark.conf.get(SETTING) == "true"
        assert eval(query, names) == sum(
            row.timestamp.timestamp() * 1000 >= T + 2000
            for row in frame(spark, own, topics.plain).where("partition = 1").collect()
        )
