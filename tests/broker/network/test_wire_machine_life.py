"""A connection's life: its phases, and whether somebody is at the other end. Times are handed in."""

from dataclasses import dataclass
from typing import Any

import pytest

from eoslog.broker.fairness.memory import SMALL
from eoslog.broker.network.wire_machine import CLOSED, DRAINING, LOST, OPEN, CloseReason, Phase, WireMachine
from eoslog.protocol.apis import ApiKey
from tests.broker.network.machine_kit import LARGEST, begun, fed, framed, left, must_begin

IDLE, STALLED = 600.0, 30.0


@dataclass
class Shortage:
    requests_short: bool = False
    answers_short: bool = False


# Phases


def in_phase(phase: Phase) -> WireMachine:
    """One request of ten bytes has begun, another and half a third have come: a hundred and four bytes."""
    machine = fed(2, size=10)
    machine.receive(framed(b"x" * 1000)[:94], 0.0)
    must_begin(machine)
    {OPEN: lambda: None, DRAINING: machine.drain, CLOSED: machine.close, LOST: machine.lose}[phase]()
    assert machine.phase is phase
    return machine


@pytest.mark.parametrize("phase", Phase)
def test_half_a_frame_and_what_has_not_begun_are_held_by_an_open_connection_only(phase: Phase) -> None:
    machine = in_phase(phase)
    machine.account(0)
    assert machine.held_requests == (10 + 104 if phase is OPEN else 10)


@pytest.mark.parametrize("phase", Phase)
def test_requests_begin_on_an_open_connection_only(phase: Phase) -> None:
    machine = in_phase(phase)
    machine.receive(bytes(910) + framed(b"more"), 0.0)  # the third is whole now
    assert [begun(machine) is not None for _ in range(4)] == [phase is OPEN] * 3 + [False]


@pytest.mark.parametrize("phase", Phase)
def test_answers_leave_as_long_as_they_reach_somebody(phase: Phase) -> None:
    machine = in_phase(phase)
    slot = machine.first
    assert slot is not None, "what has begun ends"
    machine.fill(slot, [b"answer"])
    reach = phase in (OPEN, DRAINING)
    assert machine.sends is reach
    assert left(machine) == (b"answer" if reach else b"")
    assert machine.first is None


@pytest.mark.parametrize(
    ("phase", "drained", "closed"),
    [(OPEN, DRAINING, CLOSED), (DRAINING, DRAINING, CLOSED), (CLOSED, CLOSED, CLOSED), (LOST, LOST, LOST)],
)
def test_no_phase_comes_back(phase: Phase, drained: Phase, closed: Phase) -> None:
    found = []
    for end in (WireMachine.drain, WireMachine.close, WireMachine.lose):
        machine = in_phase(phase)
        end(machine)
        found.append(machine.phase)
    assert found == [drained, closed, LOST]


@pytest.mark.parametrize("end", [WireMachine.close, WireMachine.lose])
def test_what_was_not_written_before_the_end_is_not_written_after_it(end: Any) -> None:
    machine = fed(1)
    machine.fill(must_begin(machine), [b"answer"])
    assert (list(machine.leave()), bool(machine.unwritten)) == ([], True)
    end(machine)
    assert (bool(machine.unwritten), machine.flush()) == (False, b"")


def test_nothing_waits_for_a_client_that_has_gone() -> None:
    machine = fed(1)
    machine.writable = False
    machine.lose()
    assert machine.writable


@pytest.mark.parametrize(
    ("keys", "awaited", "wanted"),
    [
        ([], True, False),
        ([ApiKey.FETCH, ApiKey.END_TXN], True, True),
        ([ApiKey.FETCH], False, False),
        ([ApiKey.END_TXN, ApiKey.FETCH], True, False),
    ],
)
def test_only_a_fetch_that_is_next_waits_for_data(keys: list[ApiKey], awaited: bool, wanted: bool) -> None:
    machine = fed(len(keys))
    for key in keys:
        slot: Any = must_begin(machine, key)
        slot.answer = object() if awaited else None
    assert machine.waits_for_data is wanted


# Who is there


def look(machine: WireMachine, now: float, unsent: int = 0, **short: bool) -> CloseReason | None:
    return machine.look(now, unsent, Shortage(**short), IDLE, STALLED)


def test_a_silent_connection_is_idle_unless_it_waits_for_us() -> None:
    machine = WireMachine(LARGEST, 0.0)
    assert look(machine, IDLE) is None
    assert look(machine, IDLE + 1) is CloseReason.IDLE
    machine.receive(framed(b"x"), IDLE)
    assert machine.silent(IDLE + 2) == 2
    slot = must_begin(machine)
    assert look(machine, 3 * IDLE) is None, "a fetch may wait for long"
    machine.writable = False
    assert look(machine, 3 * IDLE) is CloseReason.IDLE, "we wait for it"
    machine.writable = True
    machine.fill(slot, [])
    left(machine)
    assert look(machine, 3 * IDLE) is CloseReason.IDLE


def test_who_reads_is_not_idle() -> None:
    machine = WireMachine(LARGEST, 0.0)
    assert look(machine, 0, unsent=100) is None
    assert look(machine, IDLE - 1, unsent=99) is None, "it has read a byte"
    assert look(machine, IDLE + 1, unsent=99) is None
    assert look(machine, 2 * IDLE, unsent=99) is CloseReason.IDLE


def test_who_does_not_read_is_cut_while_answers_are_short() -> None:
    machine = WireMachine(LARGEST, 0.0)
    assert look(machine, 0, unsent=100, answers_short=True) is None
    assert look(machine, STALLED, unsent=100, answers_short=True) is None
    assert look(machine, STALLED + 1, unsent=100) is None, "there is enough for all"
    assert look(machine, STALLED + 1, unsent=100, answers_short=True) is CloseReason.NOT_READING
    assert look(machine, STALLED + 2, unsent=50, answers_short=True) is None, "it has read"
    assert look(machine, 3 * STALLED, unsent=0, answers_short=True) is None, "there is nothing to read"


def test_who_does_not_get_on_with_much_is_cut_while_requests_are_short() -> None:
    machine = WireMachine(LARGEST, 0.0)
    machine.receive(framed(bytes(LARGEST))[:SMALL], 0.0)
    assert look(machine, STALLED + 1, requests_short=True) is None, "a little holds up nobody"
    machine.receive(b"x", 0.0)
    assert look(machine, STALLED, requests_short=True) is None
    assert look(machine, STALLED + 1) is None, "there is enough for all"
    assert look(machine, STALLED + 1, requests_short=True) is CloseReason.STUCK
    machine.reading = False
    assert look(machine, STALLED + 1, requests_short=True) is None, "it waits for others"
    machine.reading = True
    machine.receive(b"x", STALLED)
    assert look(machine, STALLED + 1, requests_short=True) is None


def test_who_has_much_that_cannot_begin_is_cut_though_it_is_not_read_from() -> None:
    machine = fed(1, size=SMALL + 1)
    machine.writable = machine.reading = False
    assert look(machine, STALLED + 1, requests_short=True) is CloseReason.STUCK


def test_who_does_not_read_the_rest_after_the_end_is_cut() -> None:
    machine = WireMachine(LARGEST, 0.0)
    look(machine, 0, unsent=100)
    machine.close()
    assert look(machine, STALLED, unsent=100) is None
    assert look(machine, STALLED + 1, unsent=100) is CloseReason.NOT_READING_AFTER_CLOSE
    assert look(machine, 2 * IDLE, unsent=99) is None, "it reads"
