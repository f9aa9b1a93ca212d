"""More orderly ends in the middle of a batch than test_orderly_end.py has time for: `make test-ends`."""

from pathlib import Path

import pytest

from tests.connector.brokers import Broker
from tests.connector.run.test_orderly_end import SIGNALS, judge_ends
from tests.connector.spark_application import PATIENCE_SECONDS
from tests.connector.spark_probe import DECIDED, PREPARED, STARTED, UNDECIDED, WRITING

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(6 * PATIENCE_SECONDS)]


@pytest.mark.parametrize("way", ["stream", "tokens", "write"])
@pytest.mark.parametrize("how", SIGNALS)
def test_an_application_that_is_ended_leaves_nothing_open(
    broker: Broker, tmp_path: Path, how: str, way: str
) -> None:
    judge_ends(broker, tmp_path, [], how, way)


def test_a_query_that_is_stopped_or_fails_leaves_nothing_open(broker: Broker, tmp_path: Path) -> None:
    places = (STARTED, WRITING, PREPARED, UNDECIDED, DECIDED)
    ends = [*(f"stop@{place}" for place in places * 2), "fail@-", "fail:write@-", "fail:tokens@-"]
    judge_ends(broker, tmp_path, [*ends, *(f"stop:tokens@{place}" for place in places)], "SIGTERM to the JVM")


@pytest.mark.parametrize("way", ["stream", "tokens"])
def test_tasks_that_are_killed_late_leave_nothing_open_for_long(
    broker: Broker, tmp_path: Path, way: str
) -> None:
    """Each opens a transaction four seconds after abort, and is killed two seconds later."""
    judge_ends(broker, tmp_path, [f"late:{way}@{STARTED}"], "SIGTERM to the JVM")
