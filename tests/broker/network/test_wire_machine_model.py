"""Any history of a connection, beside a second, simpler statement of its order and its bounds."""

from collections import deque
from typing import NamedTuple
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eoslog.broker.network import wire_machine
from eoslog.broker.network.wire_machine import Slot, WireMachine
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import RequestHeader
from tests.broker.network.machine_kit import framed

IN_FLIGHT, HELD, JOINED, LARGEST, CHUNK = 4, 300, 60, 150, 1000


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
        self.machine = WireMachine(LARGEST, 0.0)
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

    @rule(bodies=st.lists(st.integers(0, LARGEST), min_size=1, max_size=5))
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
        assert sum(one.slot.frame_size for one in self.line) < HELD + LARGEST
        assert self.machine.unbegun <= CHUNK + LARGEST + 4

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
