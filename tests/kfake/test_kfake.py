"""The connector and `eoslog rehearse` on franz-go's kfake: what works there, and what stops loudly.

kfake's coordinator knows two states, Ongoing and Empty: it does not say how a transaction ended. It has no
topic __consumer_offsets, so a sink needs decision.topic. And it refuses to tell the offsets of a group that
it does not know, where Kafka says that there are none; so these tests make the group first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eoslog.client.admin.groups import commit_plain
from eoslog.rehearse import kills
from tests.connector.brokers import DECISIONS, Broker, Kafka
from tests.connector.crashes import test_crash_table as table
from tests.connector.crashes.crash_query import IN_DRIVER, IN_TASKS, Crash, run, start
from tests.docs.reader import all_match
from tests.kfake.kfake import Kfake
from tests.rehearse.rehearsing import document, names_of, not_holding, printed_on, rehearse, verdicts

IN_MID_BATCH = (
    "a task in the middle of its rows",
    "all tasks prepared",
    "decision staged",
    "before the decision",
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Kfake({}) as node:
        Kafka(node.bootstrap).topic(3, name=DECISIONS)
        yield node


@pytest.fixture
def bench(broker: Broker, tmp_path: Path) -> table.Bench:
    """A query of one batch."""
    made = table.Bench(broker, tmp_path / "checkpoint", decision__topic=DECISIONS)
    with made.cluster() as cluster:
        commit_plain(cluster, made.sink_id, {(made.topic, 0): (0, "")})
    made.query = replace(made.query, batches=1)
    return made


@pytest.mark.kafka
@pytest.mark.parametrize("options", [{}, {"decision__topic": DECISIONS}])
def test_a_new_sink_stops_before_anything_is_written(
    broker: Broker, tmp_path: Path, options: dict[str, str]
) -> None:
    bench = table.Bench(broker, tmp_path / "checkpoint", **options)
    said = run(bench.query)
    assert said.startswith("CommitFault") and "GROUP_ID_NOT_FOUND" in said
    assert bench.written(0) == 0


@pytest.mark.kafka
def test_one_batch_is_written_once(bench: table.Bench) -> None:
    table.test_no_crash(bench)


@pytest.mark.kafka
def test_the_second_batch_of_a_run_stops(bench: table.Bench) -> None:
    """Nothing shows that the driver's own commit has left this state. The first batch is there, once."""
    bench.query = replace(bench.query, batches=2)
    said = run(bench.query)
    assert said.startswith("SinkFenced") and "Empty" in said
    assert bench.visible() == bench.batch(0)


@pytest.mark.kafka
@pytest.mark.parametrize("at", IN_TASKS)
def test_task_killed(bench: table.Bench, at: str) -> None:
    assert run(bench.query, Crash(at, batch=0)) == "done"
    assert bench.visible() == bench.query.rows() and bench.open() == []


@pytest.mark.kafka
@pytest.mark.parametrize("at", IN_DRIVER)
def test_driver_killed(bench: table.Bench, at: str) -> None:
    """kfake keeps what is open, so the next start finds it."""
    assert run(bench.query, Crash(at, batch=0)) == "killed"
    early = bench.visible()
    assert len(set(early)) == len(early)
    assert run(bench.query) == "done"
    assert bench.visible() == bench.query.rows() and bench.open() == []


@pytest.mark.kafka
@pytest.mark.parametrize("at", table.BROKER_DIES_AT)
def test_broker_killed(bench: table.Bench, at: str) -> None:
    """kfake forgets open transactions when it is killed. Before the decision that costs a replay; after it
    the rows are lost, and every start says so."""
    running = start(bench.query, Crash(at, batch=0, stop=True))
    running.wait_until_stopped()
    bench.broker.kill()
    running.wake()
    bench.broker.restart()
    said = running.end()
    if at.startswith("decided"):
        for again in (said, run(bench.query), run(bench.query)):
            assert again.startswith("ParticipantsLost") and "batch 0" in again
        left = bench.visible()
        assert len(set(left)) == len(left) and set(left) < set(bench.query.rows())
        return
    if at in IN_MID_BATCH:
        assert said.startswith(("BatchRefused", "ProduceFailed")), said
    else:
        assert said == "done"
    assert run(bench.query) == "done"
    assert bench.visible() == bench.query.rows() and bench.open() == []


# -- eoslog rehearse -----------------------------------------------------------------------------
# `eoslog rehearse` says what the transactions of franz-go's kfake lack; docs/rehearse.md has a picture of it.

LACKS = {
    "what a dead producer left": "GROUP_ID_NOT_FOUND",
    "offsets in transactions": "GROUP_ID_NOT_FOUND",
    "ends of transactions": "tells Empty",
    "coordinators": "tells Empty",
    "a driver killed at every command": "GROUP_ID_NOT_FOUND",
    "time-outs": "GROUP_ID_NOT_FOUND",
}
"""Row -> what it says. test_kfake.py shows what becomes of queries there."""


@pytest.fixture
def kfake() -> Iterator[Kfake]:
    with Kfake({}) as node:
        Kafka(node.bootstrap).topic(3, DECISIONS)
        yield node


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_its_transactions_lack_is_named(kfake: Kfake) -> None:
    found = document(kfake.bootstrap, "--decision-topic", DECISIONS)
    said = not_holding(found)
    fails = {row for row, verdict in verdicts(found).items() if verdict == "fails"}
    assert fails == set(LACKS) and all(LACKS[row] in said[row] for row in fails), said
    assert found["status"] == 1 and not found["left"]
    assert not [name for name in names_of(kfake.bootstrap) if name.startswith("eoslog-")]


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(300)
def test_that_it_has_no_internal_topic_is_named(kfake: Kfake) -> None:
    found = document(kfake.bootstrap, "--timeout", "3")
    assert found["status"] == 1 and "__consumer_offsets" in str(not_holding(found)), found


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(300)
def test_that_it_forgets_in_a_crash_is_named(kfake: Kfake, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(_: str) -> None:
        kfake.kill()
        kfake.restart()

    monkeypatch.setattr(kills, "run_command", kill)
    found = document(kfake.bootstrap, "--decision-topic", DECISIONS, "--crash", "kill", "--timeout", "5")
    assert verdicts(found)["a crash of brokers"] == "fails", found
    print(not_holding(found)["a crash of brokers"])


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_picture_shows_what_it_prints(kfake: Kfake) -> None:
    command = f"eoslog rehearse --decision-topic {DECISIONS}"
    printed = rehearse(kfake.bootstrap, *command.split()[2:]).output
    assert all_match(printed.splitlines(), printed_on("kfake", command)), printed
