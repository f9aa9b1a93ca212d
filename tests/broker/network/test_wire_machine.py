"""A connection's rules: frames, order, bounds, phases; times are handed in. A second, simpler model judges
them.
"""

import struct
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eoslog.broker.fairness import SMALL
from eoslog.broker.network import wire_machine
from eoslog.broker.network.wire_machine import (
    CLOSED,
    DRAINING,
    JOIN_BELOW,
    LOST,
    MAX_HELD_BYTES,
    MAX_IN_FLIGHT,
    OPEN,
    CloseReason,
    Phase,
    Slot,
    WireMachine,
    joined,
)
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import FrameError, RequestHeader

# -- a machine with requests ---------------------------------------------------------------------
# A connection's machine to which requests have come, and what a test does with it.

LARGEST = 1 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def fed(count: int, size: int = 1) -> WireMachine:
    """A machine to which so many requests have come."""
    machine = WireMachine(LARGEST, 0.0)
    machine.receive(framed(*[b"x" * size] * count), 0.0)
    return machine


def begun(machine: WireMachine, key: ApiKey = ApiKey.PRODUCE, answers_short: bool = False) -> Slot | None:
    """The next request, if it may begin."""
    frame = machine.next_frame(answers_short)
    if frame is None:
        return None
    return machine.begin(RequestHeader(key, 9, 1, None), len(frame), 0.0)


def must_begin(machine: WireMachine, key: ApiKey = ApiKey.PRODUCE) -> Slot:
    slot = begun(machine, key)
    assert slot is not None
    return slot


def left(machine: WireMachine) -> bytes:
    """Let all answers leave whose turn it is."""
    out = b""
    while machine.first is not None and machine.first.parts is not None:
        out += b"".join(machine.leave())
    return out + machine.flush()


# -- while it is open ----------------------------------------------------------------------------
# A connection's rules while it is open: frames, order, what a request waits for, what is held.

# Frames


@settings(deadline=None)
@given(bodies=st.lists(st.binary(max_size=40), max_size=8), data=st.data())
def test_any_chunks_make_the_same_requests(bodies: list[bytes], data: st.DataObject) -> None:
    machine, stream, found = WireMachine(LARGEST, 0.0), framed(*bodies), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        buffer = bytearray(stream[:size])
        machine.receive(buffer, 0.0)
        buffer[:] = bytes(size)  # the next bytes of anyone come into it
        stream = stream[size:]
        while (frame := machine.next_frame(False)) is not None:
            found.append(bytes(frame))
    assert found == bodies
    assert (machine.unbegun, machine.missing) == (0, 4)


def test_how_much_of_a_frame_is_missing() -> None:
    machine = WireMachine(LARGEST, 0.0)
    machine.receive(framed(b"x" * 1000)[:100], 0.0)
    assert (machine.unbegun, machine.missing) == (100, 904)


@pytest.mark.parametrize("size", [-1, 11, 2**31 - 1])
def test_a_size_that_is_not_allowed(size: int) -> None:
    machine = WireMachine(10, 0.0)
    with pytest.raises(FrameError, match=str(size)):
        machine.receive(struct.pack(">i", size), 0.0)


def test_larger_frames_once_the_client_is_known() -> None:
    machine = WireMachine(10, 0.0)
    machine.receive(framed(b"x" * 10), 0.0)
    machine.allow(11)
    machine.receive(framed(b"x" * 11), 0.0)
    assert [len(machine.next_frame(False) or b"") for _ in range(2)] == [10, 11]
    with pytest.raises(FrameError):
        machine.receive(framed(b"x" * 12), 0.0)


# Order

PARTS = st.lists(
    st.sampled_from([b"", b"a", b"bc" * 50, b"d" * JOIN_BELOW, b"e" * (JOIN_BELOW + 1)]), max_size=3
)


@settings(deadline=None)
@given(answers=st.lists(PARTS, min_size=1, max_size=8), data=st.data())
def test_answers_leave_in_the_order_of_requests(answers: list[list[bytes]], data: st.DataObject) -> None:
    """Whatever the order in which they become known; a Produce with acks=0 has none."""
    machine, out = fed(len(answers)), b""
    marked: list[Any] = [[*parts, b"<%d>" % number] if parts else [] for number, parts in enumerate(answers)]
    slots = [must_begin(machine) for _ in answers]
    for number in data.draw(st.permutations(range(len(answers)))):
        machine.fill(slots[number], marked[number])
        if data.draw(st.booleans()):
            out += left(machine)
    out += left(machine)
    assert out == b"".join(part for parts in marked for part in parts)
    assert machine.first is None


def test_an_answer_that_is_known_waits_for_those_before_it() -> None:
    machine = fed(2)
    first, second = must_begin(machine), must_begin(machine)
    machine.fill(second, [b"second"])
    assert machine.first is first and left(machine) == b""
    machine.fill(first, [b"first,"])
    assert left(machine) == b"first,second"


def test_small_answers_leave_with_one_write() -> None:
    machine = fed(3)
    for _ in range(3):
        machine.fill(must_begin(machine), [b"a", b"b"])
    assert [list(machine.leave()) for _ in range(3)] == [[], [], []]
    assert bool(machine.unwritten) is True
    assert machine.flush() == b"ababab"
    assert (bool(machine.unwritten), machine.flush()) == (False, b"")


def test_small_answers_do_not_pile_up() -> None:
    machine = fed(3)
    for _ in range(3):
        machine.fill(must_begin(machine), [b"x" * 7000])
    assert [[len(piece) for piece in machine.leave()] for _ in range(3)] == [[], [], [21_000]]
    assert not machine.unwritten


def test_a_large_part_is_not_copied_and_leaves_behind_the_small_ones() -> None:
    machine, large = fed(2), b"x" * (JOIN_BELOW + 1)
    machine.fill(must_begin(machine), [b"before"])
    machine.fill(must_begin(machine), [b"head", large, b"tail"])
    assert list(machine.leave()) == []
    before, head, same, tail = machine.leave()
    assert (before, head, tail) == (b"before", b"head", b"tail")
    assert same is large


def test_small_parts_of_an_answer_leave_together() -> None:
    """Each piece would be a system call; large parts are not copied."""
    parts: list[Any] = [b"a" * 10] * 5000 + [b"b" * 20_000] + [b"c"] * 2_000_000
    pieces = [bytes(piece) for piece in joined(parts)]
    assert b"".join(pieces) == b"".join(parts)
    assert [len(piece) for piece in pieces] == [50_000, 20_000, (1 << 20) + 1, 2_000_000 - (1 << 20) - 1]


# What a request waits for


def test_a_request_with_effects_to_come_holds_back_the_next() -> None:
    """So do the steps of SASL. What had begun before it may end at any time."""
    machine = fed(4)
    before, blocks = must_begin(machine), must_begin(machine)
    machine.block(blocks)
    assert begun(machine) is None
    machine.fill(before, [b""])
    assert left(machine) == b"" and begun(machine) is None
    machine.fill(blocks, [b""])
    assert begun(machine) and begun(machine)


def test_requests_in_flight_are_bounded() -> None:
    machine = fed(MAX_IN_FLIGHT + 2)
    slots = [must_begin(machine) for _ in range(MAX_IN_FLIGHT)]
    assert begun(machine) is None and not machine.has_room
    machine.fill(slots[1], [])
    assert begun(machine) is None, "its place is not free before it has left"
    machine.fill(slots[0], [])
    left(machine)
    assert begun(machine) and begun(machine) and begun(machine) is None


def test_bytes_in_flight_are_bounded() -> None:
    """Requests and answers together."""
    machine = fed(2, size=LARGEST)
    first, answer = must_begin(machine), memoryview(bytes(MAX_HELD_BYTES - LARGEST))
    machine.fill(first, [answer[1:]])
    second = must_begin(machine)
    machine.receive(framed(b"x"), 0.0)
    machine.fill(second, [])
    assert begun(machine) is None
    left(machine)
    machine.fill(must_begin(machine), [answer, answer])
    assert not machine.has_room, "what is on its way can still come; no more is read"
    left(machine)
    assert machine.has_room


def test_nothing_is_read_while_a_request_waits_for_its_beginning() -> None:
    machine = fed(2)
    slot = must_begin(machine)
    machine.block(slot)
    assert (machine.has_backlog, machine.has_room) == (True, False)
    machine.fill(slot, [])
    must_begin(machine)
    assert (machine.has_backlog, machine.has_room) == (False, True)


def test_who_does_not_read_its_answers_gets_no_further_ones() -> None:
    machine = fed(1)
    machine.writable = False
    assert begun(machine) is None
    machine.writable = True
    assert begun(machine)


def test_while_answers_are_short_only_who_has_none_gets_one() -> None:
    machine = fed(3)
    slot = begun(machine, answers_short=True)
    assert slot is not None
    machine.fill(slot, [b"answer"])
    machine.account(0)
    assert begun(machine, answers_short=True) is None
    left(machine)
    machine.account(unsent=1)
    assert begun(machine, answers_short=True) is None, "what was sent is not read yet"
    assert begun(machine, answers_short=False)
    machine.account(0)
    assert begun(machine, answers_short=True)


def test_who_is_mute_neither_begins_nor_reads() -> None:
    machine = fed(1)
    machine.muted = True
    assert begun(machine) is None
    empty = WireMachine(LARGEST, 0.0)
    empty.muted = True
    assert not empty.has_room
    machine.muted = False
    assert begun(machine)


# What is held


def test_what_is_held_is_told_as_changes() -> None:
    machine = fed(2, size=100)
    machine.receive(b"\0\0", 0.0)
    assert machine.account(0) == (202, 0)
    first, second = must_begin(machine), must_begin(machine)
    assert machine.account(0) == (0, 0), "a request is held until its answer has left"
    machine.fill(second, [b"x" * 7])
    assert machine.account(5) == (0, 12)
    assert (machine.held_requests, machine.held_answers) == (202, 12)
    machine.fill(first, [])
    left(machine)
    assert machine.account(0) == (-200, -12)


# -- its life ------------------------------------------------------------------------------------
# A connection's life: its phases, and whether somebody is at the other end. Times are handed in.

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


# -- any history ---------------------------------------------------------------------------------
# Any history of a connection, beside a second, simpler statement of its order and its bounds.

IN_FLIGHT, HELD, JOINED, SMALL_LARGEST, CHUNK = 4, 300, 60, 150, 1000


class Begun(NamedTuple):
    slot: Slot
    answer: bytes


class Histories(RuleBasedStateMachine):
    """Bounds are small here, so that they are reached."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = patch.multiple(
            wire_machine, MAX_IN_FLIGHT=IN_FLIGHT, MAX_HELD_BYTES=HELD, JOIN_BELOW=JOINED
        )
        self.patches.start()
        self.machine = WireMachine(SMALL_LARGEST, 0.0)
        self.coming = b""  # what the client sends, not read yet
        self.sent: deque[bytes] = deque()  # requests, in the client's order, not begun
        self.line: deque[Begun] = deque()
        self.bodies = 0
        self.blocker = -1  # its place, counted from the connection's first request
        self.count = 0  # answers that have left
        self.expected, self.out = b"", b""

    def teardown(self) -> None:
        try:
            self.all_is_answered_in_the_end()
        finally:
            self.patches.stop()

    @rule(bodies=st.lists(st.integers(0, SMALL_LARGEST), min_size=1, max_size=5))
    def send(self, bodies: list[int]) -> None:
        for size in bodies:
            self.bodies += 1
            body = (b"%d," % self.bodies * size)[:size]
            self.sent.append(body)
            self.coming += framed(body)

    @precondition(lambda self: self.coming and self.machine.has_room)
    @rule(size=st.integers(1, CHUNK))
    def read(self, size: int) -> None:
        """As the one who holds the machine does: only while it has room."""
        self.machine.receive(self.coming[:size], 0.0)
        self.coming = self.coming[size:]

    @rule(ones=st.lists(st.tuples(st.sampled_from([False] * 4 + [True]), st.integers(0, 300)), min_size=1))
    def begin(self, ones: list[tuple[bool, int]]) -> None:
        """As many requests as may begin: whether each blocks, and how large its answer will be."""
        for blocks, size in ones:
            held, in_flight = self.held, len(self.line)
            frame = self.machine.next_frame(False)
            if frame is None:
                return
            assert bytes(frame) == self.sent.popleft()
            assert held < HELD and in_flight < IN_FLIGHT, "it begins within the bounds"
            assert self.blocker < 0 and self.machine.writable and not self.machine.muted
            slot = self.machine.begin(RequestHeader(ApiKey.PRODUCE, 9, 1, None), len(frame), 0.0)
            number = self.count + len(self.line)
            if blocks:
                self.machine.block(slot)
                self.blocker = number
            self.line.append(Begun(slot, (b"%d," % number * size)[:size]))

    @precondition(lambda self: any(one.slot.parts is None for one in self.line))
    @rule(data=st.data())
    def know(self, data: st.DataObject) -> None:
        """An answer becomes known, in any order."""
        open_ones = [n for n, one in enumerate(self.line) if one.slot.parts is None]
        self.fill(data.draw(st.sampled_from(open_ones)))

    def fill(self, place: int) -> None:
        slot, answer = self.line[place]
        self.machine.fill(slot, [answer[:5], answer[5:]] if answer else [])
        if self.blocker == self.count + place:
            self.blocker = -1

    @precondition(lambda self: self.line and self.line[0].slot.parts is not None)
    @rule()
    def leave(self) -> None:
        assert self.machine.first is self.line[0].slot
        self.expected += self.line.popleft().answer
        self.count += 1
        for piece in self.machine.leave():
            self.out += piece

    @rule()
    def flush(self) -> None:
        self.out += self.machine.flush()
        assert self.out == self.expected

    @rule(how=st.sampled_from([(True, False), (True, False), (False, False), (True, True)]))
    def hold_back(self, how: tuple[bool, bool]) -> None:
        self.machine.writable, self.machine.muted = how

    @property
    def held(self) -> int:
        return sum(one.slot.frame_size + self.known_size(one) for one in self.line)

    @staticmethod
    def known_size(one: Begun) -> int:
        return 0 if one.slot.parts is None else len(one.answer)

    @invariant()
    def answers_leave_in_order(self) -> None:
        assert self.expected.startswith(self.out)
        assert len(self.expected) - len(self.out) <= JOINED, "small answers do not pile up"

    @invariant()
    def requests_are_bounded(self) -> None:
        """By one request more than the bound, what was read at once, and the frame in the making."""
        assert len(self.line) <= IN_FLIGHT
        assert sum(one.slot.frame_size for one in self.line) < HELD + SMALL_LARGEST
        assert self.machine.unbegun <= CHUNK + SMALL_LARGEST + 4

    @invariant()
    def the_accounts_are_right(self) -> None:
        self.machine.account(0)
        assert self.machine.held_answers == sum(map(self.known_size, self.line))
        assert self.machine.held_requests == self.machine.unbegun + sum(o.slot.frame_size for o in self.line)

    def all_is_answered_in_the_end(self) -> None:
        """Nothing is stuck: once answers become known and the client reads, everything gets through."""
        self.hold_back((True, False))
        while self.sent or self.line:
            before = len(self.coming), len(self.sent), len(self.line)
            if self.coming and self.machine.has_room:
                self.read(CHUNK)
            self.begin([(False, 10)])
            if self.line:
                if self.line[0].slot.parts is None:
                    self.fill(0)
                self.leave()
            assert before != (len(self.coming), len(self.sent), len(self.line)), "nothing goes on"
        self.flush()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
