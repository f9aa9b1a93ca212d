"""docs/pipelines.md's declarative pipeline: run by spark-pipelines, killed, run again, refreshed."""

import os
import re
import shlex
import shutil
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


def _run(folder: Path, *more: str) -> Program:
    command, *words = shlex.split(code_of(_PAGE, "spark-pipelines run\n"))
    here = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    return Program([here / command, *words, *more], folder / "log", environment=environment, folder=folder)


def _written(broker: EmbeddedBroker, folder: Path, without: str = "") -> Orders:
    """The page's pipeline in a folder, without a piece of its program."""
    orders = Orders(Kafka(broker.bootstrap))
    spec = code_of(_PAGE, "name: orders").replace("/path/to/storage", f"{folder}/storage")
    orders.write(folder / "spark-pipeline.yaml", spec)
    program = code_of(_PAGE, "from pyspark import pipelines")
    assert without in program
    orders.write(folder / "transformations" / "orders.py", program.replace(without, ""))
    return orders


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_pipeline_is_killed_after_a_decision(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Its second batch is decided, and it dies before it has heard so: the next run goes on."""
    orders = _written(broker, tmp_path)
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


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_full_refresh_of_a_named_sink_stops(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Nothing is written; without the new checkpoint the pipeline goes on. A sink cannot be chosen."""
    orders = _written(broker, tmp_path)
    with _run(tmp_path) as first:
        assert first.end() == 0, first.tail()
    with _run(tmp_path, "--full-refresh", "orders_upper") as chosen:
        assert chosen.end() == 0, chosen.tail()
        assert "Flow 'upper' is EXCLUDED" in chosen.log.read_text()
    with _run(tmp_path, *_full_refresh()) as refresh:
        assert refresh.end() != 0, refresh.tail()
        assert "the checkpoint is new, and the sink has written" in refresh.log.read_text()
    orders.check_all_are_copied()
    _, _, new = shlex.split(code_of(_PAGE, "rm -r"))
    shutil.rmtree(new.replace("/path/to/storage", f"{tmp_path}/storage"))
    with _run(tmp_path) as last:
        assert last.end() == 0, last.tail()
    orders.check_all_are_copied()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_full_refresh_of_a_sink_without_a_name_stops(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """As the page says, and it writes all rows again if it is told to."""
    orders = _written(broker, tmp_path, without=', "transactional.id": "orders-upper"')
    with _run(tmp_path) as first:
        assert first.end() == 0, first.tail()
    with _run(tmp_path, *_full_refresh()) as refresh:
        assert refresh.end() != 0, refresh.tail()
        said = refresh.log.read_text()
        assert "as a full refresh of a pipeline makes it" in said
    word = re.findall(r"start\.accepted=(new-checkpoint:\d+)", said)[-1]
    orders.check_all_are_copied()
    program = tmp_path / "transformations" / "orders.py"
    text, sink = program.read_text(), '"topic": '
    assert sink in text
    program.write_text(text.replace(sink, f'"start.accepted": "{word}", {sink}'))
    with _run(tmp_path, *_full_refresh()) as accepted:
        assert accepted.end() == 0, accepted.tail()
    orders.check_all_are_copied(times=2)


def _full_refresh() -> list[str]:
    return shlex.split(code_of(_PAGE, "spark-pipelines run --full"))[2:]
