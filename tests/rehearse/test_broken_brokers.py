"""The rehearsal is judged: it names each broken broker, and none that is whole."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import pytest

from eoslog.broker.coordinator.transactions.transaction_changes import Changes
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit import begin, decide, prepare
from eoslog.connector.commit.commands import Command, End, Refused, Rules, Seal
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.rehearse import command, kills, probes
from eoslog.rehearse.kills import HaltedRun
from eoslog.rehearse.probes import row
from eoslog.rehearse.work import NotFoundOut, Row, ScratchNames, Verdict, Work
from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.broker.coordinator.transactions import test_transaction_crash as coordinators
from tests.connector.brokers import Kafka
from tests.crash import test_crash_judge as judged
from tests.rehearse.rehearsing import (
    ANY,
    BROKEN,
    BROKEN_IN_CRASHES,
    BROKEN_UNDER_LOAD,
    ROWS,
    SAYS,
    STATES,
    SWEEPS,
    Break,
    document,
    not_holding,
)

# a rehearsal takes seconds, and there is one for each broken broker


@pytest.fixture
def quiet() -> Iterator[None]:
    log = logging.getLogger("eoslog")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@pytest.mark.usefixtures("quiet")
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("broken", "row"), BROKEN, ids=[entry[0].__name__ for entry in BROKEN])
def test_a_broken_broker_is_named(broken: Break, row: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        broken(patch)
        patch.setattr(command, "PATIENCE_S", 1.0)  # what has to come does not come
        patch.setattr(probes, "SWEEP_S", 2.0)
        with EmbeddedBroker(in_thread=True, config=SWEEPS) as broker:
            found = document(broker.bootstrap, "--timeout", "5")
    print(f"{broken.__name__}: {not_holding(found)}")
    verdicts = {one["row"]: one["verdict"] for one in found["rows"]}
    assert verdicts[row] == "fails" and found["status"] == 1, found
    assert SAYS.get(broken, "") in not_holding(found)[row]


@pytest.mark.usefixtures("quiet")
@pytest.mark.long
def test_a_whole_broker_holds() -> None:
    with EmbeddedBroker(in_thread=True, config=SWEEPS) as broker:
        found = document(broker.bootstrap)
    assert found["status"] == 0 and not not_holding(found), found


def crashed(broken: Break | None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A rehearsal in which the broker loses its power."""
    with EmbeddedBroker(in_thread=True, config=SWEEPS) as broker:

        def cut(_: str) -> None:
            broker.lose_unsynced()
            broker.start()

        monkeypatch.setattr(kills, "run_command", cut)
        if broken is not None:
            broken(monkeypatch)
        return document(broker.bootstrap, "--crash", "power")


@pytest.mark.usefixtures("quiet")
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("broken", BROKEN_IN_CRASHES)
def test_a_broker_that_comes_back_broken_is_named(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    found = crashed(broken, monkeypatch)
    print(not_holding(found))
    assert "a crash of brokers" in not_holding(found) and found["status"] == 1


@pytest.mark.usefixtures("quiet")
@pytest.mark.long
def test_a_broker_that_comes_back_whole_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = crashed(None, monkeypatch)
    assert found["status"] == 0 and not not_holding(found) and not found["left"], found


# -- kills ---------------------------------------------------------------------------------------
# The kills judged: they run the real rules of the commit protocol, so a broken rule shows.

ROW = "a driver killed at every command"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_thread=True, config=SWEEPS) as started:
        yield started


def _nothing(*_: Any, **__: Any) -> Rules[Any]:
    yield from ()
    return ()


def decisions_are_not_carried_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(begin, "finish_late", _nothing)
    patch.setattr(decide, "finish", _nothing)


def what_the_dead_left_is_not_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(begin, "clear", _nothing)


def late_attempts_do_not_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kills, "withdraw_if_late", _nothing)


def a_replay_is_written_again(patch: pytest.MonkeyPatch) -> None:
    def judge(begun: Any, *more: Any) -> Any:
        return prepare.Task.WRITE, prepare.judge(begun, *more)[1]

    patch.setattr(kills, "judge", judge)
    patch.setattr(decide, "_covers", lambda last, batch: False)


def source_offsets_are_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kills.Driver, "source", lambda self, batch_id: None)


BROKEN_RULES = [
    decisions_are_not_carried_out,
    what_the_dead_left_is_not_ended,
    late_attempts_do_not_look,
    a_replay_is_written_again,
    source_offsets_are_left_out,
]


@pytest.mark.parametrize("broken", BROKEN_RULES)
def test_a_broken_rule_is_named(
    broker: EmbeddedBroker, broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    monkeypatch.setattr(command, "PATIENCE_S", 3.0)
    found = document(broker.bootstrap)
    print(not_holding(found))
    assert set(not_holding(found)) == {ROW} and found["status"] == 1


WHO = (Participant("a", ProducerIdentity(1, 0)), Participant("b", ProducerIdentity(2, 0)))


def test_a_life_halts_before_each_command_and_goes_on() -> None:
    """One command for each transaction; the late one is sent when the life goes on."""
    done: list[Command[Any]] = []

    def perform(command: Any) -> Any:
        done.append(command)
        return {one.name: one.identity for one in command.participants}

    def rules() -> Rules[tuple[Any, ...]]:
        sealed = yield Seal(WHO)
        ended = yield End(True, WHO)
        return sealed, ended

    for commands in range(4):
        done.clear()
        life = HaltedRun.of(rules(), perform).run(commands)
        assert len(done) == commands == len(life.sent) and not life.ended
        kind, number = (Seal, End)[commands // 2], commands % 2
        halted = life.halted_before
        assert isinstance(halted, kind) and halted.participants == WHO[number : number + 1]
        both = {one.name: one.identity for one in WHO}
        assert life.run().result == (both, both)
    assert HaltedRun.of(rules(), perform).run(5).ended


def test_a_failure_is_the_answer_to_all() -> None:
    answer = Refused(1, "refused")

    def rules() -> Rules[Any]:
        return (yield End(True, WHO))

    life = HaltedRun.of(rules(), lambda command: answer).run()
    assert life.result == answer and len(life.sent) == 1


# -- a crash under load --------------------------------------------------------------------------
# A bundled broker whose power fails under the load of `eoslog rehearse --crash`, and the row that tells.

NAMES = ScratchNames("0123456789ab")
SYNC_S = 0.05
"""A sync takes so long when the power fails: what was not waited for is lost then."""
PATIENCE_MS = 6_000


def crashed_under_load(broken: Break | None, keep: Literal["nothing", "some"], slow: str, seed: int) -> Row:
    """The row of one crash. `slow`: of which files (a part of their path) syncs are slow before it."""
    with pytest.MonkeyPatch.context() as patch:
        if broken is not None:
            broken(patch)
        with EmbeddedBroker(in_thread=True, config=SWEEPS) as broker:
            return _crash_under_load(broker, keep, slow, seed)


def _crash_under_load(broker: EmbeddedBroker, keep: Literal["nothing", "some"], slow: str, seed: int) -> Row:
    where = parse_addresses(broker.bootstrap)
    config = ClientConfig(where, api_timeout_ms=PATIENCE_MS, delivery_timeout_ms=PATIENCE_MS)
    for topic in ("crash", "crash-load"):
        Kafka(broker.bootstrap).topic(2, NAMES.name(topic))

    def cut() -> None:
        broker.faults.delay_fsync(SYNC_S, path=slow)
        time.sleep(0.2 + 0.037 * seed)  # at another moment each time
        broker.lose_unsynced(keep, seed)
        try:
            broker.start()
        except BrokerFailed as failed:
            raise NotFoundOut(f"the broker does not come back: {failed}") from failed
        broker.faults.disarm()

    with Cluster(config) as cluster:
        work = Work(cluster, NAMES, PATIENCE_MS / 3000)
        return row("a crash of brokers", partial(kills.look, work, "crash", cut, lambda: Cluster(config)))


CRASHES = 80
"""A crash shows what is broken only at some moments: so many are tried."""
ON_OTHER_DISKS = {"no_fdatasync": "files_are_not_synced", "no_directory_sync": "directories_are_not_synced"}
"""They break the file system of the crash judge; these do the same to that of the embedded broker."""


@pytest.mark.usefixtures("quiet")
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("broken", "slow"), BROKEN_UNDER_LOAD, ids=[entry[0].__name__ for entry in BROKEN_UNDER_LOAD]
)
def test_a_broker_that_forgets_in_a_crash_is_named(broken: Break, slow: str) -> None:
    for seed in range(CRASHES):
        seen = crashed_under_load(broken, "some" if seed % 2 else "nothing", slow, seed)
        if seen.verdict is not Verdict.HOLDS:
            print(f"{broken.__name__}, crash {seed}: {seen.what}")
            return
    pytest.fail(f"{CRASHES} crashes hold: {seen.what}")


@pytest.mark.usefixtures("quiet")
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("slow", [ANY, STATES, ROWS])
def test_a_whole_broker_holds_in_a_crash(slow: str) -> None:
    for seed in range(4):
        seen = crashed_under_load(None, "some" if seed % 2 else "nothing", slow, seed)
        assert seen.verdict is Verdict.HOLDS and "under load" in seen.what, seen


@pytest.mark.usefixtures("quiet")
def test_each_broken_broker_of_the_suite_is_here() -> None:
    """Those of the crash judge and of the coordinator; a further file that has some is to be added here."""
    here = {entry[0].__name__ for entry in (*BROKEN, *BROKEN_UNDER_LOAD)}
    here |= {broken.__name__ for broken in BROKEN_IN_CRASHES}
    there = {ON_OTHER_DISKS.get(broken.__name__, broken.__name__) for broken, _ in judged.BROKEN}
    there |= {kind.__name__ for kind in vars(coordinators).values() if _is_broken(kind)}
    assert len(there) >= 21 and there <= here, there - here


def _is_broken(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Changes) and kind is not Changes
