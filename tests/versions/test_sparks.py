"""A topic that is copied and whose driver dies after a decision, with each PySpark that is here."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.packages.bare_python import PATIENCE_SECONDS, Application, Copy, ThisPython
from tests.versions.sparks import SPARKS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * PATIENCE_SECONDS)]

ROUNDS: dict[str, Any] = {}
NOW: dict[str, Any] = {"trigger": {"availableNow": True}, "limit": 10_000}
REGISTER = "import eoslog\neoslog.register(spark)\neoslog.register(spark)"
"""It does no harm where Spark has found eoslog by itself."""
WRAPS = {"spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true"}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that can be told to keep its answers to itself."""
    with EmbeddedBroker(faults=True) as started:
        yield started


@pytest.mark.parametrize(
    "plans, settings",
    [
        pytest.param((NOW, ROUNDS), {}, id="now"),
        pytest.param((ROUNDS, NOW, NOW), {}, id="rounds", marks=pytest.mark.long),
        pytest.param((NOW, NOW), WRAPS, id="wrapped", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("spark", SPARKS)
def test_a_copy_that_is_killed_after_a_decision(
    spark: str,
    plans: Sequence[dict[str, Any]],
    settings: dict[str, str],
    broker: EmbeddedBroker,
    tmp_path: Path,
) -> None:
    """Its first batch is decided, and its driver dies before it has heard so. Others, with other triggers,
    plan it again, and go on with rows that have come."""
    kafka, python = Kafka(broker.bootstrap), ThisPython(tmp_path, SPARKS[spark])
    copy = Copy(kafka, tmp_path, "local[2]", register=REGISTER)
    unheard = broker.faults.drop_answer("EndTxn", times=0, cut=False)
    with Application(python, tmp_path, copy.plan | plans[0], copy.settings | settings) as first:
        first.wait_until("a decision that was not heard of", lambda: unheard.happened > 0)
    broker.faults.disarm()
    copy.add(1_000)
    for plan in plans[1:]:
        with Application(python, tmp_path, copy.plan | plan, copy.settings | settings) as again:
            result = again.result()
    copy.check(result, origin="eoslog", spark=spark, times=len(plans) - 1)
