"""The whole coordinator over real logs against a dumb model: time, crashes, zombies, keeping, expiry.

The model knows who was given which (producer id, epoch), and of every written number whether it is open,
committed or aborted. What readers of the logs find has to be the same after each step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.plain_records import iter_records
from eoslog.protocol.topic_partitions import TopicPartition
from tests.broker.coordinator.transactions.transaction_machine import (
    Client,
    Machine,
    PowerCut,
    after_crash,
    fresh_disk,
)
from tests.broker.log.logkit import Outcome

Token = tuple[int, int]

DISK = fresh_disk("a", "b")
NAMES = st.sampled_from(["x", "y"])
PLACES = st.sampled_from([("a", 0), ("b", 0)])
TIMEOUT_MS = 60_000
WEEK_MS = 604_800_000


@dataclass
class Known:
    """One transactional id in the model."""

    given: list[Token] = field(default_factory=list)
    """Every (producer id, epoch) that was handed out, the newest last."""
    holder: Token | None = None
    """None where the broker has bumped the epoch on its own account, or the id is not known."""
    writer: Token | None = None
    open: list[int] = field(default_factory=list)
    opened_at: int | None = None
    patient: bool = False
    """Whether what it begins next never times out."""
    patient_now: bool = False
    touched: int = 0
    ended: bool | None = None


class Coordinator(RuleBasedStateMachine):
    """Two transactional ids, two partitions; each step runs to its end."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.fs = PowerCut(DISK)
        self.machine = self.run(self.start())
        self.ids = {name: Known() for name in ("x", "y")}
        self.numbers = 0
        self.outcomes: dict[int, bool | None] = {}
        self.sequences: dict[tuple[Token, TopicPartition], int] = {}

    async def start(self, clock: Any = None) -> Machine:
        machine = Machine(self.fs, clock=clock)
        await machine.transactions.complete()
        return machine

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.machine.close()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()

    @property
    def now(self) -> int:
        return int(self.machine.clock.now_ms())

    def client(self, name: str, token: Token, tv2: bool) -> Client:
        client = Client(self.machine, name, tv2, TIMEOUT_MS)
        client.producer = token
        return client

    def decide(self, known: Known, commit: bool) -> None:
        for number in known.open:
            self.outcomes[number] = commit
        known.open, known.opened_at, known.writer, known.ended = [], None, None, commit
        known.touched = self.now

    def hand_out(self, known: Known, token: Token) -> None:
        assert all(token not in one.given for one in self.ids.values()), "nobody else ever had it"
        known.given.append(token)
        known.holder = token

    # -- requests

    @rule(name=NAMES, keep=st.booleans(), two_phase=st.booleans())
    def init(self, name: str, keep: bool, two_phase: bool) -> None:
        known, transactions = self.ids[name], self.machine.transactions
        begun = known.opened_at is not None
        ask = transactions.keep_prepared if keep else transactions.init_producer_id
        try:
            answer = self.run(ask(name, TIMEOUT_MS, two_phase=two_phase))
        except KafkaError as error:
            assert error.code is E.CONCURRENT_TRANSACTIONS
            assert begun
            assert not keep
            self.decide(known, False)
            known.holder, known.ended = None, None
            return
        token, ongoing = answer if keep else (answer, (-1, -1))
        self.hand_out(known, token)
        known.touched = self.now
        if begun:
            assert keep, "an open transaction is not left behind"
            assert ongoing == known.writer
            known.patient_now = known.patient_now or two_phase
        else:
            assert ongoing == (-1, -1)
            known.ended = None
        known.patient = two_phase or (begun and known.patient_now)

    @rule(name=NAMES, place=PLACES, tv2=st.booleans(), back=st.sampled_from([0, 0, 0, 1, 2]))
    def write(self, name: str, place: TopicPartition, tv2: bool, back: int) -> None:
        known = self.ids[name]
        if len(known.given) <= back:
            return
        token = known.given[-1 - back]
        client = self.client(name, token, tv2)
        client.sequences[place] = self.sequences.get((token, place), 0)
        self.numbers += 1
        try:
            self.run(self._write(client, place, self.numbers))
        except KafkaError as error:
            kept = known.opened_at is not None and known.writer != known.holder
            assert token != known.holder or (kept and error.code is E.INVALID_TXN_STATE), error
            return
        assert token == known.holder, "only the holder writes"
        assert known.writer in (None, token), "nobody writes in a transaction that was kept"
        self.sequences[token, place] = client.sequences[place]
        if known.opened_at is None:
            known.opened_at, known.patient_now, known.ended = self.now, known.patient, None
        known.writer = token
        known.touched = self.now
        known.open.append(self.numbers)
        self.outcomes[self.numbers] = None

    async def _write(self, client: Client, place: TopicPartition, number: int) -> None:
        if not client.tv2:
            await client.add([place])
        await client.produce(place, number)

    @rule(name=NAMES, commit=st.booleans(), tv2=st.booleans(), back=st.sampled_from([0, 0, 0, 1, 2]))
    def end(self, name: str, commit: bool, tv2: bool, back: int) -> None:
        known = self.ids[name]
        if len(known.given) <= back:
            return
        token = known.given[-1 - back]
        begun, holds = known.opened_at is not None, token == known.holder
        try:
            answer = self.run(self.machine.transactions.end_txn(name, *token, commit, bump=tv2))
        except KafkaError:
            assert not (begun and holds), "who holds an open transaction can end it"
            return
        if begun:
            assert holds, "nobody else ends it"
            self.decide(known, commit)
        elif answer in known.given:
            assert known.ended is commit, "a repetition of the same end"
            return
        else:
            assert tv2
            assert not commit, "there is nothing to commit"
            known.touched, known.ended = self.now, False
        if tv2:
            self.hand_out(known, answer)
        else:
            assert answer == token

    # -- time and crashes

    @rule(by=st.sampled_from([1, TIMEOUT_MS, TIMEOUT_MS + 1, 86_400_000, WEEK_MS - 1, WEEK_MS]))
    def time_passes(self, by: int) -> None:
        self.machine.clock.now += by
        self.run(self.machine.transactions.tick())
        self.run(self.machine.transactions.forget_idle())
        for place in (("a", 0), ("b", 0)):
            self.machine.partition(place).expire_producers(self.now)
        for known in self.ids.values():
            since = known.opened_at
            if since is not None and not known.patient_now and since + TIMEOUT_MS < self.now:
                self.decide(known, False)
                known.holder = known.ended = None
            elif since is None and known.touched + WEEK_MS <= self.now:
                known.holder = known.ended = None

    @rule(outcome=st.sampled_from([Outcome.NOTHING, Outcome.ALL]))
    def crash(self, outcome: Outcome) -> None:
        clock = self.machine.clock
        self.machine.close()
        self.fs = PowerCut(after_crash(self.fs.root, outcome, self.numbers))
        self.machine = self.run(self.start(clock))

    # -- what is seen

    def seen(self, place: TopicPartition) -> tuple[dict[int, bool | None], int]:
        """What became of each number in a partition's log, and the first offset that is open."""
        found: dict[int, bool | None] = {}
        waiting: dict[int, list[tuple[int, int]]] = {}
        partition = self.machine.partition(place)
        for header, data in partition.scan():
            pid = header.producer_id
            if header.is_control:
                (marker,) = iter_records(data, 0, header)
                assert marker.key is not None
                for _, number in waiting.pop(pid, []):
                    found[number] = marker.key[3] == 1
                continue
            for record in iter_records(data, 0, header):
                number = int(record.value or b"")
                waiting.setdefault(pid, []).append((record.offset, number))
                assert number not in found, "written twice"
                found[number] = None
        first = [lines[0][0] for lines in waiting.values()]
        return found, min([partition.high_watermark, *first])

    @invariant()
    def readers_see_what_was_decided(self) -> None:
        if not hasattr(self, "machine"):
            return
        everything: dict[int, bool | None] = {}
        for place in (("a", 0), ("b", 0)):
            found, stable = self.seen(place)
            everything |= found
            assert self.machine.partition(place).last_stable_offset == stable
        assert everything == self.outcomes

    @invariant()
    def it_tells_what_is_so(self) -> None:
        if not hasattr(self, "machine"):
            return
        for name, known in self.ids.items():
            told = self.machine.transactions.describe(name)
            if known.opened_at is not None:
                assert told is not None
                assert told.state.text == "Ongoing"
                assert (told.producer_id, told.producer_epoch) == known.writer
            elif told is not None:
                assert told.state.text in ("Empty", "CompleteCommit", "CompleteAbort")
                assert known.given
            owner = known.writer[0] if known.writer is not None else -2
            for place in (("a", 0), ("b", 0)):
                partition = self.machine.partition(place)
                owned = self.machine.transactions.owner_of(owner, *place)
                assert owned == (name if partition.ongoing(owner) is not None else owned)


Coordinator.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestCoordinator = Coordinator.TestCase
