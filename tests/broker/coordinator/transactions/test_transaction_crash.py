"""The power fails at every write and every sync of a few transactions, and again while the broker recovers.

Whatever the disk has kept, afterwards:

- every transaction has one outcome on all its partitions, and the offsets committed in it share it;
- an outcome that was answered is that outcome;
- on the disk there is no marker without its decision, and no completion without all markers;
- nothing stays prepared, and what is open belongs to a transactional id that is Ongoing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random

import pytest

from eoslog.broker.config import FlushMode
from eoslog.broker.coordinator.transactions import transaction_journal
from eoslog.broker.coordinator.transactions.transaction_changes import Changes, ReadBarrier
from eoslog.broker.coordinator.transactions.transaction_journal import TransactionEntry
from eoslog.broker.coordinator.transactions.transaction_state import (
    COMPLETE,
    PREPARED,
    TransactionMetadata,
    TransactionState,
    complete,
)
from eoslog.broker.log.partition import Partition
from eoslog.protocol.control import COMMIT, read_control
from eoslog.protocol.plain_records import iter_records
from eoslog.protocol.topic_partitions import TopicPartition
from tests.broker.coordinator.transactions.transaction_machine import (
    GROUP_TOPIC,
    Client,
    Machine,
    PowerCut,
    after_crash,
    fresh_disk,
)
from tests.broker.log.logkit import Directory, Outcome

A, B, C = ("a", 0), ("b", 0), ("c", 0)
ALL = [A, B, C]


@pytest.fixture(scope="module")
def disk() -> Directory:
    return fresh_disk("a", "b", "c")


async def scenario(machine: Machine) -> list[Client]:
    """Two clients, TV1 and TV2, with commits, aborts, a fence, and both ending at the same time."""
    old, new = Client(machine, "old", tv2=False), Client(machine, "new", tv2=True)
    clients = [old, new]
    await asyncio.gather(old.init(), new.init())
    await new.write(1, [A, B], offsets=True)
    await new.end(True)
    await old.write(2, [B, A], offsets=True)
    await old.end(False)
    await new.write(3, [C])
    await old.write(4, [A, C], offsets=True)
    await asyncio.gather(new.end(False), old.end(True))
    await new.write(5, [B, C], offsets=True)
    await new.init()
    await asyncio.gather(new.write(6, ALL, offsets=True), old.write(7, [B]))
    await asyncio.gather(new.end(True), old.end(True))
    return clients


# The judge


class Found:
    """What the logs of a disk say."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.markers: dict[tuple[TopicPartition, int, int, bool], int] = Counter()
        self.outcome: dict[tuple[int, TopicPartition], bool | None] = {}
        self.opened_by: dict[tuple[int, TopicPartition], int] = {}
        for name in machine.topics.names():
            topic = machine.topics.get(name)
            assert topic is not None
            for partition in topic.partitions:
                self._read(partition)

    def _read(self, partition: Partition) -> None:
        place, open_numbers = (partition.topic, partition.index), dict[int, list[int]]()
        for header, data in partition.scan():
            pid = header.producer_id
            if header.is_control:
                commit = read_control(data, 0, header).type == COMMIT
                self.markers[place, pid, header.producer_epoch, commit] += 1
                for number in open_numbers.pop(pid, []):
                    self.outcome[number, place] = commit
            elif header.is_transactional and partition.topic != GROUP_TOPIC:
                for record in iter_records(data, 0, header):
                    assert record.value is not None
                    number = int(record.value)
                    assert (number, place) not in self.outcome, f"{number} is doubled on {place}"
                    open_numbers.setdefault(pid, []).append(number)
                    self.outcome[number, place] = None
                    self.opened_by[number, place] = pid

    def decisions(self) -> Iterator[TransactionMetadata]:
        """The records of `__transaction_state`, in order."""
        for partition in self.machine.topics.internal("__transaction_state"):
            for header, data in partition.scan():
                for record in iter_records(data, 0, header):
                    decoded = transaction_journal.decode(record)
                    assert decoded is not None
                    assert decoded[1] is not None
                    yield decoded[1]

    def check_order(self) -> None:
        """No marker without a decision, no completion without all markers."""
        decided: set[tuple[int, int, bool]] = set()
        prepared: dict[str, TransactionMetadata] = {}
        needed: dict[tuple[TopicPartition, int, int, bool], int] = Counter()
        for known in self.decisions():
            if known.state in PREPARED:
                prepared[known.transactional_id] = known
                decided.add(
                    (known.producer_id, known.producer_epoch, known.state is TransactionState.PREPARE_COMMIT)
                )
            elif known.state in COMPLETE:
                last = prepared.pop(known.transactional_id)
                commit = last.state is TransactionState.PREPARE_COMMIT
                for place in last.partitions:
                    needed[place, last.producer_id, last.producer_epoch, commit] += 1
        for place, pid, epoch, commit in self.markers:
            assert (pid, epoch, commit) in decided, f"a marker of {pid}.{epoch} on {place} without decision"
        for key, count in needed.items():
            assert self.markers.get(key, 0) >= count, f"completed, but a marker is missing: {key}"


async def judge(machine: Machine, clients: list[Client]) -> None:
    """After recovery."""
    found = Found(machine)
    found.check_order()
    for client in clients:
        description = machine.transactions.describe(client.name)
        state = None if description is None else description.state
        assert state not in PREPARED, f"{client.name} stays prepared"
        committed_offset = -1
        for transaction in client.history:
            number, places = transaction.number, transaction.places
            kinds = {
                place: found.outcome[number, place] for place in places if (number, place) in found.outcome
            }
            outcomes = set(kinds.values())
            assert len(outcomes) <= 1, f"transaction {number} is torn apart: {kinds}"
            outcome = outcomes.pop() if outcomes else False
            if outcome is None:
                assert description is not None
                assert state is TransactionState.ONGOING, f"{number} is open for ever"
                for place in kinds:
                    assert place in description.partitions
                    assert found.opened_by[number, place] == description.producer_id
            if outcome:
                assert len(kinds) == len(places), f"committed, but a part is lost: {kinds}"
                assert transaction.asked
                committed_offset = number if transaction.offsets else committed_offset
            if transaction.answered:
                assert outcome is transaction.asked, f"{number}: told {transaction.asked}, is {outcome}"
        await check_offset(machine, client, committed_offset, pending=state is TransactionState.ONGOING)


async def check_offset(machine: Machine, client: Client, expected: int, pending: bool) -> None:
    places = {t.places[0] for t in client.history if t.offsets}
    asked = [(place, None) for place in sorted(places)]
    fetched = dict(await machine.groups.fetch_offsets(client.name, asked, not pending))
    for place in places:
        newest = [t.number for t in client.history if t.offsets and t.places[0] == place]
        if expected in newest:
            assert fetched[place].offset == expected
        assert fetched[place].offset <= expected, "offsets of a transaction that did not commit"


# The runs


class Runner:
    """Runs the scenario with a crash, then what the disk may hold after it."""

    def __init__(
        self,
        disk: Directory,
        flush: FlushMode = "fsync",
        changes: type[Changes] = Changes,
    ) -> None:
        self.disk, self.flush = disk, flush
        self.changes = changes
        outcomes = (Outcome.ALL,) if flush == "os" else (Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX)
        self.outcomes = outcomes
        self.highest_id = -1

    def machine(self, fs: PowerCut, seed: int) -> Machine:
        return Machine(fs, seed=seed, flush=self.flush, changes=self.changes)

    def crash_at(self, step: int, seed: int) -> bool:
        """Crash at that step and judge; False if the scenario has fewer steps."""
        fs = PowerCut(self.disk, step)

        async def live() -> list[Client]:
            machine = self.machine(fs, seed)
            clients = await scenario(machine)
            machine.close()
            return clients

        clients = asyncio.run(live())
        left = fs.left if fs.left is not None else fs.root
        for outcome in self.outcomes:
            kept = after_crash(left, outcome, seed)
            kept = self.crash_again(kept, clients, seed)
            asyncio.run(self.recover(PowerCut(kept), clients, seed))
        return fs.dead

    def crash_again(self, kept: Directory, clients: list[Client], seed: int) -> Directory:
        """A second crash somewhere in the recovery, or none."""
        fs = PowerCut(kept, Random(seed).randint(1, 30))
        asyncio.run(self.recover(fs, clients, seed))
        return kept if fs.left is None else after_crash(fs.left, Random(seed).choice(self.outcomes), seed)

    async def recover(self, fs: PowerCut, clients: list[Client], seed: int) -> None:
        machine = self.machine(fs, seed)
        Found(machine).check_order()
        await machine.transactions.complete()
        await judge(machine, clients)
        if not fs.crash_at:
            await self.go_on(machine, clients)
        machine.close()

    async def go_on(self, machine: Machine, clients: list[Client]) -> None:
        """After a recovery everything can be used, and producer ids and epochs are new ones."""
        used = {pid for client in clients for pid, _ in client.heard}
        lives = []
        for number, client in enumerate(clients, 100):
            again = Client(machine, client.name, client.tv2)
            again.history = client.history[:]
            await again.init()
            pid, epoch = again.producer
            mine = [heard for heard in client.heard if heard[0] == pid]
            assert mine or pid not in used, "a producer id is handed out twice"
            assert all(heard[1] < epoch for heard in mine), "an epoch is handed out twice"
            used.add(pid)
            await again.write(number, ALL, offsets=True)
            await again.end(True)
            lives.append(again)
        await judge(machine, lives)
        for place in ALL:
            partition = machine.partition(place)
            assert partition.open_transactions() == []
            assert partition.last_stable_offset == partition.log_end_offset, "answered, but not readable"


def every_crash(runner: Runner, seed: int, stride: int = 1) -> int:
    step = 1
    while runner.crash_at(step, seed + step):
        step += stride
    return step


def test_power_cut_at_every_write_and_sync(disk: Directory) -> None:
    assert every_crash(Runner(disk), 1000) > 100


def test_kill_9_at_every_write_without_fsync(disk: Directory) -> None:
    """flush=os: what was written survives the process, and the order of writes is the order of things."""
    assert every_crash(Runner(disk, "os"), 5000) > 50


# The judge itself is judged: a coordinator that breaks one rule must be caught


class MarksBeforeDecisionIsDurable(Changes):
    async def _record(self, entry: TransactionEntry, following: TransactionMetadata) -> None:
        if following.state in PREPARED:
            self._journal.append(following)
            self._entries.take_over(entry, following)
        else:
            await super()._record(entry, following)


class JoinsWithoutWaiting(Changes):
    async def _record(self, entry: TransactionEntry, following: TransactionMetadata) -> None:
        if following.state is TransactionState.ONGOING:
            self._journal.append(following)
            self._entries.take_over(entry, following)
        else:
            await super()._record(entry, following)


class CompletesBeforeMarkers(Changes):
    async def _mark(self, entry: TransactionEntry, curtain: ReadBarrier) -> None:
        assert entry.metadata is not None
        self._journal.append(complete(entry.metadata, self._clock.now_ms()))
        await super()._mark(entry, curtain)

    def _complete(self, entry: TransactionEntry) -> None:
        assert entry.metadata is not None
        self._entries.take_over(entry, complete(entry.metadata, self._clock.now_ms()))


class DoesNotWaitForMarkers(Changes):
    async def _mark(self, entry: TransactionEntry, curtain: ReadBarrier) -> None:
        assert entry.metadata is not None
        late = self._markers.write(entry.metadata, set(entry.unmarked), curtain)
        asyncio.ensure_future(late)  # noqa: RUF006
        await asyncio.sleep(0)


class LeavesDecisionsUnfinished(Changes):
    async def finish_all(self, entries: Iterable[TransactionEntry]) -> None:
        pass


class CompletesWithoutMarkersAtStart(Changes):
    async def finish_all(self, entries: Iterable[TransactionEntry]) -> None:
        for entry in entries:
            if entry.metadata is not None and entry.metadata.state in PREPARED:
                completed = complete(entry.metadata, self._clock.now_ms())
                self._journal.append(completed)
                self._entries.take_over(entry, completed)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (MarksBeforeDecisionIsDurable, "without decision"),
        (JoinsWithoutWaiting, "is open for ever"),
        (CompletesBeforeMarkers, "a marker is missing"),
        (DoesNotWaitForMarkers, "a marker is missing|not readable"),
        (LeavesDecisionsUnfinished, "stays prepared"),
        (CompletesWithoutMarkersAtStart, "a marker is missing"),
    ],
)
def test_a_broken_coordinator_is_caught(disk: Directory, broken: type[Changes], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        every_crash(Runner(disk, changes=broken), 9000)
