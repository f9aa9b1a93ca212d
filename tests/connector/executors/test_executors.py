"""Tasks that fail, executors that die, stages that are tried again, in a Spark with executors of its own:
what readers see is every row once. Each test proves that what it is named for really happened.

`make test-executors` runs more of it (test_losses.py, test_losses.py).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connector.executors.cluster import Copy, SparkCluster
from tests.connector.spark_application import PATIENCE_SECONDS
from tests.connector.spark_probe import PREPARED, STARTED, WRITING
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * PATIENCE_SECONDS)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """One application for all tests here."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def test_tasks_fail_after_some_rows(cluster: SparkCluster, kafka: Kafka, tmp_path: Path) -> None:
    """Each task of a batch twice, with rows written; Spark tries them again."""
    copy = Copy(kafka, tmp_path)
    cluster.order({"at": WRITING, "batch": 1, "do": "fail", "visits": 2})
    cluster.tell(copy.stream())
    assert cluster.answer()["error"] is None
    for partition in range(2):
        attempts = [note["attempt"] for note in cluster.notes(WRITING, batch=1, partition=partition)]
        assert attempts == [0, 1, 2]
    assert len(copy.visible(committed=False)) > len(copy.rows), "the failed attempts have written"
    copy.check()


def test_an_executor_dies_and_its_stage_is_tried_again(
    cluster: SparkCluster, kafka: Kafka, tmp_path: Path
) -> None:
    """Its task was in the middle of its rows, and its shuffle files are gone with it: the stage of the sink
    gets a second attempt, whose tasks count their attempts from 0 again, while the other executor's task of
    the first attempt still runs."""
    copy = Copy(kafka, tmp_path)
    cluster.order({"at": WRITING, "batch": 1, "do": "wait"})
    cluster.tell(copy.stream(shuffle=True))
    first, second = cluster.wait_for(2, WRITING, batch=1)
    assert first["jvm"] != second["jvm"]
    cluster.kill_executor(first["jvm"])
    cluster.wait_for(1, PREPARED, batch=1, partition=first["partition"])
    cluster.wait_for(2, STARTED, batch=1, stage=first["stage"], partition=second["partition"])  # its twin
    cluster.go(WRITING)
    assert cluster.answer()["error"] is None
    again = cluster.notes(STARTED, batch=1, stage=first["stage"])
    assert first["jvm"] not in {note["jvm"] for note in again[2:]}
    assert cluster.stage_attempts({first["stage"]}) == [1]
    twins = [n for n in again if (n["partition"], n["attempt"]) == (second["partition"], 0)]
    assert len(twins) == 2 and twins[0]["task"] != twins[1]["task"]
    copy.check()
