"""State and output together: a query with state is killed where it hurts, and its output is what a plain
computation says. One query and two kills here; all of them, at random, by `make soak-stateful`."""

from __future__ import annotations

import uuid
from pathlib import Path
from random import Random

import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.stock_kafka import Kafka
from tests.stateful.stateful_halts import EVERYWHERE, MIDDLE
from tests.stateful.stateful_input import CASES, PARTITIONS, Row, Seen, aggregation, judge, publish
from tests.stateful.stateful_run import RANDOM, WEAPONS, Application, Ordeal, Strike, strikes

BATCHES = 6
DECIDED = "decided, no winner finished"


@pytest.mark.spark
@pytest.mark.timeout(900)  # a JVM is started twice; a loaded machine needs its time
def test_an_aggregation_is_killed_after_the_decision_and_in_the_middle_of_its_rows(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """A decided batch runs again for its state alone, and its rows stay as they were decided; a task that has
    lost its worker begins again with the state of the batch before."""
    kafka, topics, case = Kafka(broker.bootstrap), f"t-{uuid.uuid4().hex[:8]}", aggregation(BATCHES, seed=1)
    publish(kafka, f"{topics}-aggregation", case)
    target = kafka.topic(PARTITIONS, name=f"{topics}-aggregation-killed")
    application = Application(["aggregation"], broker.bootstrap, topics, "killed", tmp_path).watched()
    plan = [Strike("application", 1, DECIDED), Strike("workers", 2, MIDDLE)]
    hits = Ordeal(application, broker, plan, BATCHES, Random(1)).run()
    assert all(hit.killed > 0 for hit in hits) and application.starts >= 2
    seen = Seen.of(kafka, target)
    verdict = judge(seen, case.expected, ordered=case.ordered)
    assert verdict.holds, verdict
    assert len(case.expected) > 100


@pytest.mark.parametrize("name", CASES)
def test_the_judge_takes_what_is_expected_and_nothing_else(name: str) -> None:
    case = CASES[name](9, 5)
    rows = case.expected
    assert judge(Seen(rows, 0, []), rows, ordered=case.ordered).holds
    assert judge(Seen(rows[1:], 0, []), rows, ordered=case.ordered).lost == 1
    assert judge(Seen([*rows, rows[3]], 0, []), rows, ordered=case.ordered).doubled == 1
    changed = [Row(rows[0].key, "{}"), *rows[1:]]
    verdict = judge(Seen(changed, 0, []), rows, ordered=case.ordered)
    assert (verdict.lost, verdict.strange) == (1, 1)
    assert not judge(Seen(rows, 0, ["t-0: 1 of 2"]), rows, ordered=case.ordered).holds


@pytest.mark.parametrize("name", ["aggregation", "sessions"])
def test_the_judge_sees_rows_of_a_key_out_of_order(name: str) -> None:
    rows = CASES[name](9, 5).expected
    verdict = judge(Seen(rows[::-1], 0, []), rows, ordered=True)
    assert verdict.disordered and not verdict.lost and not verdict.doubled


@pytest.mark.parametrize("kills", [1, 5, 6, 20])
def test_a_plan_goes_forward_and_has_all_weapons(kills: int) -> None:
    plan = strikes(kills, 24, Random(kills))
    assert [strike.after for strike in plan] == sorted(strike.after for strike in plan)
    assert len(plan) == kills and {strike.weapon for strike in plan} == set(WEAPONS[:kills])
    assert all(2 <= strike.after < 22 for strike in plan)
    plain = strikes(kills, 24, Random(kills), "at_least_once")
    assert {strike.place for strike in plain} <= {*EVERYWHERE, RANDOM}
