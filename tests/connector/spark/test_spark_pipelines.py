"""A declarative pipeline as docs/pipelines.md has it: run by spark-pipelines, killed, and run again."""

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.spark.orders import Orders
from tests.connector.stock_kafka import Kafka
from tests.docs.blocks import code_of
from tests.kit.program import Program

pytestmark = pytest.mark.long  # starts three applications, one after the other

_PAGE = "pipelines.md"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that can be told to keep its answers to itself."""
    with EmbeddedBroker(faults=True) as started:
        yield started


def _run(folder: Path) -> Program:
    command, *words = shlex.split(code_of(_PAGE, "spark-pipelines"))
    here = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    return Program([here / command, *words], folder / "log", environment=environment, folder=folder)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_pipeline_is_killed_after_a_decision(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Its second batch is decided, and it dies before it has heard so: the next run goes on."""
    orders = Orders(Kafka(broker.bootstrap))
    spec = code_of(_PAGE, "name: orders").replace("/path/to/storage", f"{tmp_path}/storage")
    orders.write(tmp_path / "spark-pipeline.yaml", spec)
    orders.write(tmp_path / "transformations" / "orders.py", code_of(_PAGE, "from pyspark import pipelines"))
    # A batch has two: its decision, and one for all that it has decided.
    unheard = broker.faults.drop_answer("EndTxn", nth=3, times=0, cut=False)
    with _run(tmp_path) as first:
        first.wait_until("a decision that was not heard of", lambda: unheard.happened > 0)
        assert first.ended is None
    broker.faults.disarm()
    orders.check_some_are_copied()
    with _run(tmp_path) as second:
        assert second.end() == 0, second.tail()
    orders.check_all_are_copied()
    assert (tmp_path / "storage/_checkpoints/orders_upper/upper/0/metadata").exists()
