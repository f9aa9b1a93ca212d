"""A shadow takes over with its own state: each window is written once, by the one version or the other."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.checkpoint import restore_checkpoint
from eoslog.cli import main
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.spark.versions import works
from tests.connector.brokers import Kafka
from tests.shadow.test_shadow_spark import Pair, Version, counted

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
NOW: dict[str, Any] = {"availableNow": True}
TO_ITS_END: dict[str, Any] = NOW if works("now") else {"processingTime": "0 seconds"}
"""A run that ends with a batch without rows, which closes the windows that are over."""
_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"


def summed(rows: DataFrame) -> DataFrame:
    """Another version of `counted`, with another state: sums beside the counts."""
    seconds = rows.selectExpr("cast(cast(value as string) as bigint) as n")
    timed = seconds.withColumn("at", functions.timestamp_seconds("n")).withWatermark("at", "10 seconds")
    windows = timed.groupBy(functions.window("at", "1 minute")).agg(
        functions.count("*").alias("count"), functions.sum("n").alias("sum")
    )
    return windows.selectExpr("cast(window.start as string) as key", "to_json(struct(count, sum)) as value")


class TakenOver(Pair):
    """Rows are numbers of seconds; both partitions have the same."""

    def run(self, query: StreamingQuery, *, goes_on: bool = False) -> None:
        if goes_on:
            query.processAllAvailable()
            query.stop()
        assert query.awaitTermination(240)
        assert query.exception() is None

    def step(self, number: int, *starts: Any) -> None:
        """A hundred rows more, which each query reads."""
        self.put(100 * number, 100)
        for start, version in starts:
            self.run(start(version, NOW))

    def live(self, **more: str) -> StreamingQuery:
        """The new version, in the running query's place, with the shadow's checkpoint."""
        return self._start("new", summed, {}, self.names | more, NOW)

    @property
    def names(self) -> dict[str, str]:
        """Of the running query."""
        return {"topic": self.topic, "transactional.id": self.id, "kafka.group.id": self.group}

    def take_over(self, *more: str, key: bool = True) -> Result:
        command = ["shadow", "take-over", str(self.folder / "new"), "--watch", "0", "--fence", *more]
        command += ["--key"] if key else []
        return CliRunner().invoke(main, [*command, "--bootstrap-server", self.kafka.bootstrap])

    def windows(self) -> Counter[tuple[str, int]]:
        """Begin and count of each row that is there."""
        found: Counter[tuple[str, int]] = Counter()
        for _, _, key, value, *_ in self.kafka.rows(self.topic, 2):
            said = json.loads(value)
            found[key.decode(), said if isinstance(said, int) else said["count"]] += 1
        return found


@pytest.fixture
def pair(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Iterator[TakenOver]:
    yield TakenOver(spark, kafka, tmp_path)
    spark.conf.unset(_NO_DATA)


def expected(windows: int) -> Counter[tuple[str, int]]:
    """Each of the first windows, whose minute has a row a second in both partitions."""
    return Counter({(f"1970-01-01 00:{minute:02}:00", 120): 1 for minute in range(windows)})


def test_a_version_with_another_state_takes_over(pair: TakenOver) -> None:
    pair.spark.conf.set(_NO_DATA, "false")  # so that the running query has windows to close when it ends
    for number in range(3):
        pair.step(number, (pair.old, counted), (pair.shadow, summed))
    pair.step(3, (pair.old, counted))
    pair.spark.conf.set(_NO_DATA, "true")
    # It closes windows that the running query has not closed.
    pair.run(pair.shadow(summed, TO_ITS_END), goes_on=TO_ITS_END is not NOW)
    before = pair.windows()
    assert 0 < before.total() < 6

    tried = pair.take_over("--dry-run")
    assert tried.exit_code == 0 and "they would be written" in tried.output, tried.output
    assert pair.windows() == before
    done = pair.take_over("--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    assert said["done"] and said["rows"] == 6 - before.total(), said
    assert pair.windows() == expected(6), "windows that end before 390 s"

    pair.step(4)
    with pytest.raises(StreamingQueryException, match="TakenOver"):  # in a living driver, too
        pair.old(counted, NOW).awaitTermination(240)
    assert pair.windows() == expected(6)
    pair.run(pair.live())
    for number in range(5, 7):
        pair.step(number)
        pair.run(pair.live())
    assert pair.windows() == expected(11), "windows that end before 690 s"
    with pytest.raises(StreamingQueryException, match="TakenOver"):
        pair.old(counted, NOW).awaitTermination(240)
    assert pair.windows() == expected(11)


def test_it_can_be_interrupted_and_repeated(pair: TakenOver, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        pair.step(number, (pair.old, counted), (pair.shadow, summed))
    with monkeypatch.context() as patch:
        patch.setattr(NotedSink, "write", killed)
        with pytest.raises(Killed):
            pair.take_over()
    before = pair.windows()
    assert pair.take_over().exit_code == 0
    assert pair.windows() == before
    shadows = pair.kafka.rows(pair.into, 2)
    pair.step(2, (pair.shadow, summed))
    assert pair.kafka.rows(pair.into, 2) == shadows, "it is no shadow any more, with the options of one"
    assert pair.windows() == expected(4)
    pair.step(3)
    pair.run(pair.live())
    assert pair.windows() == expected(6)
    with pytest.raises(StreamingQueryException, match="this checkpoint has taken that query's place"):
        pair.shadow(summed, NOW).awaitTermination(240)


def test_a_shadow_that_has_taken_over_saves_its_state(pair: TakenOver) -> None:
    """In the place of the state that the old version has saved."""
    saved = {"state.topic": pair.kafka.topic(cleanup_policy="compact")}
    options = {"kafka.bootstrap.servers": pair.kafka.bootstrap, **pair.names, **saved}

    def old(version: Version, trigger: dict[str, Any]) -> StreamingQuery:
        return pair._start("old", version, {}, pair.names | saved, trigger)

    for number in range(2):
        pair.step(number, (old, counted), (pair.shadow, summed))
    done = pair.take_over()
    assert done.exit_code == 0, done.output
    place = pair.folder / "new"
    for number in (2, 3):
        pair.step(number)
        pair.run(pair.live(**saved))
        shutil.rmtree(place)
        assert restore_checkpoint(str(place), options) is not None
    pair.step(4)
    pair.run(pair.live(**saved))
    assert pair.windows() == expected(8), "windows that end before 490 s"


class Killed(BaseException):
    """The process dies."""


def killed(*_: object) -> None:
    raise Killed


def test_a_shadow_that_is_behind_or_differs_does_not_take_over(pair: TakenOver) -> None:
    for number in range(2):
        pair.step(number, (pair.old, counted), (pair.shadow, summed))
    pair.step(2, (pair.old, counted))
    behind = pair.take_over()
    assert behind.exit_code == 1 and "Stop the running query, let the shadow run" in behind.output
    pair.run(pair.shadow(summed, NOW))
    different = pair.take_over(key=False)
    assert different.exit_code == 1 and "would write them again" in different.output
    before = pair.windows()
    pair.step(3, (pair.old, counted))
    assert pair.windows() - before, "the running query was not disturbed"
