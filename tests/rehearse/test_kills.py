"""The kills judged: they run the real rules of the commit protocol, so a broken rule shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eoslog.connector.commit import begin, decide, prepare
from eoslog.connector.commit.commands import Command, End, Refused, Rules, Seal
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.rehearse import command, kills
from eoslog.rehearse.kills import HaltedRun
from eoslog.testing import EmbeddedBroker
from tests.rehearse.broken_brokers import SWEEPS
from tests.rehearse.rehearsing import document, not_holding

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


BROKEN = [
    decisions_are_not_carried_out,
    what_the_dead_left_is_not_ended,
    late_attempts_do_not_look,
    a_replay_is_written_again,
    source_offsets_are_left_out,
]


@pytest.mark.parametrize("broken", BROKEN)
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
