"""A crash at every change of the disk: nothing told is untrue afterwards. The judge is judged, too."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from eoslog.broker.coordinator.transactions.transaction_changes import MarkerWriter, ReadBarrier
from eoslog.broker.coordinator.transactions.transaction_journal import TransactionJournal
from eoslog.broker.coordinator.transactions.transaction_state import PREPARED, TransactionState
from eoslog.broker.log import recovery
from eoslog.broker.log.partition import Partition
from eoslog.broker.rules.producer_state import ProducerStates
from eoslog.protocol.errors import KafkaError
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import create
from tests.crash.crash_lives import ORDERED, Count, Refused, follow, live, new_clients, random_lives, try_all
from tests.crash.crash_machine import Disk, FakeFile, FakeFileSystem, Outcome, after_crash, picture
from tests.crash.soak_kill9 import Round

# -- the judge -------------------------------------------------------------------------------------
# A crash at every change of the disk: nothing told is untrue afterwards. And kill -9.


@pytest.fixture
def quiet() -> Iterator[None]:
    """A crash is news to a log, thousands of times."""
    log = logging.getLogger("eoslog")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


def _two_of_three(number: int) -> tuple[Outcome, ...]:
    """`make soak-crash` tries all for each; here neighbours share the work."""
    return Outcome.NOTHING, (Outcome.PREFIX, Outcome.ALL)[number % 2]


@pytest.mark.usefixtures("quiet")
def test_a_crash_at_every_change_of_a_small_run() -> None:
    life = live(Disk(), new_clients(), 1, work=1, wanted=lambda number: True)
    assert len(life.pictures) == life.changes > 150
    count = Count()
    try_all(life, 1000, count, _two_of_three)
    print(count)
    assert count.outcomes == 2 * life.changes


@pytest.mark.usefixtures("quiet")
def test_a_crash_at_every_change_of_a_recovery() -> None:
    first = live(Disk(), new_clients(), 2, work=1, wanted=lambda number: number % 60 == 59)
    count = Count()
    for number, taken in first.pictures.items():
        disk, clients = after_crash(taken, Outcome.PREFIX, number)
        begun: list[int] = []
        second = live(disk, clients, number, work=0, wanted=lambda n: n <= 25, segment_bytes=700)
        begun.append(second.begun)
        try_all(second, 2000, count, lambda _: (Outcome.NOTHING, Outcome.PREFIX), work=0)
    print(count)
    assert count.points > 40


@pytest.mark.usefixtures("quiet")
def test_where_pages_are_lost_it_may_refuse_but_never_lie() -> None:
    life = live(Disk(), new_clients(), 3, work=1, wanted=lambda number: number % 4 == 0)
    count = Count()
    try_all(life, 3000, count, lambda _: (Outcome.PAGES,))
    print(count)
    assert count.refused < count.outcomes


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", range(6))
def test_crash_after_crash(seed: int) -> None:
    random_lives(seed, 6, Count())


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_call_to_the_disk_fails(error: int) -> None:
    """One call after the other; the broker goes on or stops serving, and after a restart all is well."""
    changes = live(Disk(), new_clients(), 4, work=1).changes
    served = 0
    for number in range(5 if error == errno.EIO else 7, changes, 10):
        disk, clients = Disk(fail_at=number, error=error), new_clients()
        with contextlib.suppress(Refused):  # it said so and stopped; anything else is a fault of the broker
            live(disk, clients, 4, work=1)
            served += 1
        left = picture(disk, clients)
        for outcome in ORDERED[::2]:
            after, survivors = after_crash(left, outcome, number)
            live(after, survivors, number, work=1)
    assert served


# -- kill -9 under stock clients -----------------------------------------------------------------
# kill -9 and power loss under stock clients: what was acked is there once, transactions whole or not.


def test_what_stock_clients_were_told_holds_after_the_broker_died() -> None:
    with EmbeddedBroker(faults=True, config={"offsets.topic.num.partitions": "2"}) as broker:
        create(broker.bootstrap, "plain", 3)
        create(broker.bootstrap, "whole", 2)
        round_ = Round(broker, 3)
        round_.run(2)
        round_.audit()


# -- the judge is judged ---------------------------------------------------------------------------
# The judge is judged: a broker that breaks one rule must be caught.


Patch = pytest.MonkeyPatch


def no_fdatasync(patch: Patch) -> None:
    sync = FakeFile.sync

    def broken(self: FakeFile) -> None:
        if not self.path.endswith(".log"):
            sync(self)

    patch.setattr(FakeFile, "sync", broken)


def acknowledges_before_it_is_durable(patch: Patch) -> None:
    async def at_once(self: Partition, offset: int) -> None:
        return None

    patch.setattr(Partition, "wait_durable", at_once)


def no_directory_sync(patch: Patch) -> None:
    patch.setattr(FakeFileSystem, "sync_dir", lambda self, path: self.check_sync(path))


def _journal(patch: Patch, states: set[TransactionState], written: bool) -> None:
    append = TransactionJournal.append

    def broken(self: TransactionJournal, metadata: Any) -> Any:
        if metadata.state not in states:
            return append(self, metadata)
        partition = append(self, metadata)[0] if written else self._topics.internal("__transaction_state")[0]
        return partition, -1  # what is before the first record is durable

    patch.setattr(TransactionJournal, "append", broken)


def prepare_is_not_written(patch: Patch) -> None:
    _journal(patch, set(PREPARED), written=False)


def prepare_is_not_waited_for(patch: Patch) -> None:
    _journal(patch, set(PREPARED), written=True)


def a_new_epoch_is_not_waited_for(patch: Patch) -> None:
    _journal(patch, {TransactionState.EMPTY}, written=True)


def a_marker_is_forgotten(patch: Patch) -> None:
    write = MarkerWriter.write

    async def broken(
        self: MarkerWriter, metadata: Any, missing: set[tuple[str, int]], barrier: ReadBarrier
    ) -> None:
        if len(missing) > 1:
            missing.discard(max(missing))
        await write(self, metadata, missing, barrier)

    patch.setattr(MarkerWriter, "write", broken)


def decisions_stay_unfinished(patch: Patch) -> None:
    from eoslog.broker.coordinator.transactions.transaction_changes import Changes

    async def nothing(self: Changes, entries: Any) -> None:
        return None

    patch.setattr(Changes, "finish_all", nothing)


def _window(patch: Patch, kept: int) -> None:
    load = recovery.load_producers

    def broken(*arguments: Any, **more: Any) -> ProducerStates:
        states = load(*arguments, **more)
        for state in states.all():
            while len(state.batches) > kept:
                del state.batches[0]
        return states

    patch.setattr(recovery, "load_producers", broken)


def only_the_last_batch_is_known_after_a_restart(patch: Patch) -> None:
    _window(patch, 1)


def no_batch_is_known_after_a_restart(patch: Patch) -> None:
    _window(patch, 0)


def a_retried_batch_is_written_again(patch: Patch) -> None:
    check = ProducerStates.check

    def broken(self: ProducerStates, *arguments: Any, **more: Any) -> None:
        check(self, *arguments, **more)

    patch.setattr(ProducerStates, "check", broken)


def the_torn_tail_is_not_cut(patch: Patch) -> None:
    def broken(self: Any, index: int, size: int, damage: Any) -> None:
        self._segments[index].size = size

    patch.setattr(recovery._Recovery, "_cut", broken)


def no_recovery_scan(patch: Patch) -> None:
    scan = recovery.open_segments

    def broken(fs: Any, directory: str, settings: Any, known: Any, *more: Any) -> Any:
        return scan(fs, directory, settings, recovery.KnownLog(known.recovery_point, clean=True), *more)

    def trusted(segments: Any, end: int) -> bool:
        for segment, after in pairwise(segments):
            segment.next_offset = after.base_offset
        segments[-1].trust()
        return True

    patch.setattr(recovery, "open_segments", broken)
    patch.setattr(recovery, "_trusted", trusted)


def readers_see_what_is_undecided(patch: Patch) -> None:
    patch.setattr(ProducerStates, "last_stable_offset", lambda self, high_watermark: high_watermark)


def fenced_epochs_may_write(patch: Patch) -> None:
    from eoslog.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from eoslog.broker.rules import producer_state

    verify = TransactionCoordinator.verify_partition

    def broken(self: Any, *arguments: Any, **more: Any) -> Any:
        try:
            return verify(self, *arguments, **more)
        except KafkaError:
            return None

    patch.setattr(producer_state, "_check_epoch", lambda state, epoch: None)
    patch.setattr(TransactionCoordinator, "verify_partition", broken)


BROKEN = [
    (no_fdatasync, "lost|the log ends here"),
    (acknowledges_before_it_is_durable, "lost|OUT_OF_RANGE|OUT_OF_ORDER|ID_MAPPING|was followed by"),
    (no_directory_sync, ""),
    (prepare_is_not_written, ""),
    (prepare_is_not_waited_for, ""),
    (a_new_epoch_is_not_waited_for, ""),
    (a_marker_is_forgotten, "stuck|told commit|split"),
    (decisions_stay_unfinished, ""),
    (only_the_last_batch_is_known_after_a_restart, "OUT_OF_ORDER|DUPLICATE"),
    (no_batch_is_known_after_a_restart, ""),
    (a_retried_batch_is_written_again, "doubled"),
    (the_torn_tail_is_not_cut, ""),
    (no_recovery_scan, ""),
    (readers_see_what_is_undecided, "nobody asked|split|told"),
    (fenced_epochs_may_write, "fenced"),
]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("broken", "complaint"), BROKEN, ids=[entry[0].__name__ for entry in BROKEN])
def test_a_broken_broker_is_caught(
    broken: Callable[[Patch], None], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with pytest.raises((AssertionError, Refused), match=complaint or None) as caught:
        hunt()
    print(f"{broken.__name__}: {caught.value}")


def hunt() -> None:
    """Crash at every moment of a life, in a random order, then of the next, until one is caught.

    A break may show at a few moments alone: one of 200 where only the last batch is known after a restart.
    """
    for seed in range(1, 4):
        life = live(Disk(), new_clients(), seed, work=2, wanted=lambda number: True)
        points = list(life.pictures.items())
        Random(seed).shuffle(points)
        for number, taken in points:
            for outcome in (Outcome.NOTHING, Outcome.PREFIX):
                follow(taken, outcome, number)
