"""A connection's rules while it is open: frames, order, what a request waits for, what is held."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.broker.network.wire_machine import JOIN_BELOW, MAX_HELD_BYTES, MAX_IN_FLIGHT, WireMachine, joined
from eoslog.protocol.frames import FrameError
from tests.broker.network.machine_kit import LARGEST, begun, fed, framed, left, must_begin

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
