"""Random lives of a partition with crashes: what was acknowledged is there afterwards, in order, whole.

The model is the list of batches that were appended. After a crash the log must be a prefix of it that
holds at least all that was acknowledged; the idempotence window and the transactions must be those of
that prefix.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.topics import TopicOptions
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.log.index import TransactionIndex
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.broker.ports import OsFileSystem, SystemClock
from eoslog.broker.rules.producer_state import AbortedTransaction
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import KafkaError
from tests.broker.log.logkit import DIRECTORY, NOW, Disk, Inode, Outcome, batch, sequenced, stored


@dataclass
class Life:
    """A partition and what it should hold."""

    disk: Disk
    partition: Partition
    log: list[tuple[int, bytes]] = field(default_factory=list)  # (base offset, bytes without the offset)
    sent: list[tuple[int, bytes, int]] = field(default_factory=list)  # producer id, batch, base offset
    marked: list[tuple[int, int]] = field(default_factory=list)  # producer id, offset of its end marker
    acknowledged: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    random: Random = field(default_factory=Random)
    pages: bool = False

    def append(self, data: bytes) -> int:
        base = self.partition.append(data, now_ms=NOW).base_offset
        self.log.append((base, data[8:12] + data[16:]))
        return base

    def plain(self, size: int) -> None:
        self.append(batch(bytes(self.random.randbytes(size)), b"second"))

    def produce(self, pid: int, count: int, transactional: bool) -> None:
        first = self.sequences.get(pid, 0)
        data = sequenced(pid, first, count, transactional=transactional)
        try:
            base = self.append(data)
        except KafkaError:
            return  # plain inside of its transaction
        self.sent.append((pid, data, base))
        self.sequences[pid] = first + count

    def mark(self, pid: int, commit: bool) -> None:
        base = self.partition.append_marker(pid, 0, commit, 0, NOW).base_offset
        ((_, data),) = self.partition.scan(base)
        self.log.append((base, bytes(data[8:12]) + bytes(data[16:])))
        self.marked.append((pid, base))

    def sync(self) -> None:
        end = self.partition.log_end_offset
        self.disk.sync(self.partition)
        assert self.partition.high_watermark == end
        self.acknowledged = end

    def full_disk(self, room: int) -> None:
        self.disk.fs.capacity = room
        with suppress(KafkaError):
            self.plain(3000)
        self.disk.fs.capacity = None

    def restart(self, outcome: Outcome | None) -> bool:
        """Crash, or close in order for None. False if the partition refuses to start, which it may."""
        point = self.partition.recovery_point if self.random.random() < 0.3 else 0
        if outcome is None:
            self.partition.save()
            point = self.acknowledged = self.partition.log_end_offset
            self.partition.close()
            self.disk.fs.crash(Outcome.NOTHING)
        else:
            unsynced = self.partition.log_end_offset > self.partition.recovery_point
            self.disk.fs.crash(outcome, self.random)
        self.partition = self.disk.open(clean=outcome is None, point=point)
        if self.partition.offline is not None:
            assert outcome is Outcome.PAGES and unsynced, self.partition.offline
            assert self.disk.report
            return False
        self.check_contents()
        return True

    def check_contents(self) -> None:
        found = stored(self.partition)
        assert found == self.log[: len(found)]
        end = self.partition.log_end_offset
        assert end >= self.acknowledged
        assert self.partition.high_watermark == end
        self.acknowledged = end
        del self.log[len(found) :]
        self.sent = [entry for entry in self.sent if entry[2] < end]
        self.marked = [entry for entry in self.marked if entry[1] < end]
        self.check_producers()

    def check_producers(self) -> None:
        for pid in {entry[0] for entry in self.sent}:
            mine = [entry for entry in self.sent if entry[0] == pid]
            ended = max((base for marked, base in self.marked if marked == pid), default=-1)
            for _, data, base in mine[-5:]:
                if base < ended:
                    with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
                        self.partition.append(data, now_ms=NOW)
                    continue
                appended = self.partition.append(data, now_ms=NOW)
                assert appended.base_offset == base
        self.sequences = {}
        for state in self.partition.producers():
            if state.batches:
                self.sequences[state.producer_id] = state.last_sequence + 1
        fresh = self.disk_state_from_scratch()
        assert self.partition.open_transactions() == fresh.open_transactions()
        assert self.partition.last_stable_offset == fresh.last_stable_offset
        end = self.partition.log_end_offset
        assert self.partition._log.segments.aborted(0, end) == fresh._log.segments.aborted(0, end)

    def disk_state_from_scratch(self) -> Partition:
        """The same batches in a new log, taken one by one."""
        disk = Disk(LogSettings())
        partition = disk.open()
        from eoslog.protocol.batch import iter_headers
        from eoslog.protocol.control import read_control

        for header, data in self.partition.scan():
            raw = bytes(data)
            if header.is_control:
                control = read_control(raw, 0, header)
                commit = control.type == 1
                partition.append_marker(header.producer_id, header.producer_epoch, commit, 0, NOW)
            else:
                clean = bytes(8) + raw[8:]
                assert next(iter_headers(clean))[1].base_offset == 0
                partition.append(clean, now_ms=NOW)
        disk.sync(partition)
        return partition


PIDS = st.integers(1, 3)
CRASHES = [None, Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX]
STEP = st.one_of(
    st.tuples(st.just("plain"), st.integers(0, 900)),
    st.tuples(st.just("produce"), PIDS, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("mark"), PIDS, st.booleans()),
    st.tuples(st.just("sync")),
    st.tuples(st.just("full_disk"), st.integers(0, 3500)),
)
RESTART = st.tuples(st.just("restart"), st.sampled_from(CRASHES))
LOSE_PAGES = st.tuples(st.just("restart"), st.just(Outcome.PAGES))


ZEROS_IN_THE_TRANSACTION_INDEX: list[tuple[object, ...]] = [
    ("plain", 837),
    ("plain", 841),
    ("full_disk", 0),
    ("produce", 2, 1, True),
    ("mark", 2, False),
    ("sync",),
    ("restart", Outcome.PAGES),
    ("restart", Outcome.PAGES),
]


def live(steps: list[tuple[object, ...]], seed: int, segment_bytes: int) -> None:
    disk = Disk(LogSettings(segment_bytes=segment_bytes, index_interval_bytes=300))
    life = Life(disk, disk.open(), random=Random(seed))
    for name, *arguments in steps:
        if getattr(life, str(name))(*arguments) is False:
            return
    life.restart(Outcome.PREFIX)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(STEP, RESTART, RESTART), max_size=40),
    st.integers(0, 2**32),
    st.sampled_from([1024, 2500, 1 << 20]),
)
def test_everything_acknowledged_survives_crashes(
    steps: list[tuple[object, ...]], seed: int, segment_bytes: int
) -> None:
    live(steps, seed, segment_bytes)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(STEP, LOSE_PAGES, LOSE_PAGES), max_size=40),
    st.integers(0, 2**32),
    st.sampled_from([1024, 2500, 1 << 20]),
)
@example(ZEROS_IN_THE_TRANSACTION_INDEX, 0, 1024)
def test_if_a_crash_keeps_later_bytes_but_not_earlier_ones_nothing_is_lost_silently(
    steps: list[tuple[object, ...]], seed: int, segment_bytes: int
) -> None:
    live(steps, seed, segment_bytes)


# -- the transaction index: what a kill leaves is not on the disk -------------------------------------


ROLLS = LogSettings(segment_bytes=1024, index_interval_bytes=300)
INDEX = f"{DIRECTORY}/{0:020d}.txnindex"


def aborted(partition: Partition) -> list[tuple[int, int]]:
    """(producer id, first offset) of all that was aborted."""
    return partition._log.segments.aborted(0, partition.log_end_offset)


def roll(disk: Disk, partition: Partition) -> None:
    """Begin a new segment, with a snapshot: no start reads what is before it again."""
    end = partition.log_end_offset
    while partition._log.segments.active.base_offset < end:
        disk.append(partition, batch(bytes(500)))


def test_an_abort_that_a_crash_took_back_hides_no_committed_records() -> None:
    """Power fails, the start after it is killed, power fails again."""
    disk = Disk(ROLLS)
    partition = disk.open()
    disk.append(partition, sequenced(3, 0, transactional=True))
    partition.append_marker(3, 0, False, 0, NOW)
    partition._log.segments.active.transactions.sync()
    disk.fs.crash()
    partition = disk.open()
    assert partition.log_end_offset == 1, "the index is on the disk, the marker is not"
    disk.fs.crash(Outcome.ALL)
    partition = disk.open()
    partition.append_marker(3, 0, True, 0, NOW)
    roll(disk, partition)
    disk.fs.crash()
    assert aborted(disk.open()) == []


def test_an_index_that_was_rebuilt_is_on_the_disk_before_the_log_is_not_read_again() -> None:
    disk = Disk(ROLLS)
    partition = disk.open()
    disk.append(partition, sequenced(3, 0, transactional=True))
    partition.append_marker(3, 0, False, 0, NOW)
    roll(disk, partition)
    file = disk.fs.open(INDEX)
    file.write([b"\1" * 34], 0)
    file.sync()
    disk.fs.crash(Outcome.ALL)
    partition = disk.open()
    assert aborted(partition) == [(3, 0)]
    inode = disk.fs.find(INDEX)
    assert isinstance(inode, Inode) and not inode.pending
    roll(disk, partition)
    disk.fs.crash()
    assert aborted(disk.open()) == [(3, 0)]


def test_a_new_segment_takes_no_index_that_lies_under_its_name() -> None:
    """A segment was removed, and power failed before its index was."""
    disk = Disk(ROLLS)
    partition = disk.open()
    roll(disk, partition)
    end = partition.log_end_offset
    disk.append(partition, batch(bytes(500)))
    stale = TransactionIndex(disk.fs, f"{DIRECTORY}/{end + 1:020d}.txnindex")
    for number in range(2):
        stale.append(AbortedTransaction(8, end + 1 + number, end + 3 + number, 0))
    stale.close()
    disk.append(partition, batch(bytes(500)))
    assert partition._log.segments.active.base_offset == end + 1
    disk.append(partition, sequenced(9, 0, transactional=True))
    partition.append_marker(9, 0, False, 0, NOW)
    for _ in range(3):
        disk.append(partition, batch(b""))
    roll(disk, partition)
    before = aborted(partition)
    disk.fs.crash(Outcome.ALL)
    assert aborted(disk.open()) == before


# -- a real process on a real disk ---------------------------------------------------------------
# A real process on a real disk, killed with SIGKILL while it appends: nothing acknowledged is lost.

CONFIG = BrokerConfig(topics=TopicOptions(segment_bytes=20000))
CHILD = """
import asyncio, sys
from tests.broker.log.logkit import sequenced
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.ports import OsFileSystem, SystemClock
from eoslog.broker.topics.topics import Topics
from tests.broker.log.test_log_crash_model import CONFIG

async def main():
    flush = GroupFlush(sys.argv[2])
    flush.start()
    clock = SystemClock()
    topics = Topics.open(OsFileSystem(), sys.argv[1], CONFIG, clock, flush)
    partitions = (topics.get("t") or topics.create("t", 3)).partitions

    async def produce(pid, partition):
        sequence = partition.log_end_offset
        while True:
            last = partition.append(sequenced(pid, sequence, 2), now_ms=clock.now_ms()).last_offset
            await partition.wait_durable(last)
            print(partition.index, last, flush=True)
            sequence += 2
            await asyncio.sleep(0)

    await asyncio.gather(*(produce(p.index, p) for p in partitions))

asyncio.run(main())
"""


@pytest.mark.parametrize("mode", ["fsync", "os"])
def test_everything_acknowledged_is_there_after_kill_9(tmp_path: Path, mode: str) -> None:
    data, seed = str(tmp_path / "data"), random.randrange(1 << 30)
    for life in range(3):
        child = subprocess.Popen([sys.executable, "-c", CHILD, data, mode], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(random.Random(seed + life).uniform(0.05, 0.4))
        os.kill(child.pid, signal.SIGKILL)
        lines = [first, *child.stdout.readlines()]
        assert child.wait() == -signal.SIGKILL, seed
        acknowledged = [-1, -1, -1]
        for line in lines:
            if line.endswith("\n"):
                index, last = map(int, line.split())
                acknowledged[index] = last
        _check(data, acknowledged, seed)


def _check(data: str, acknowledged: list[int], seed: int) -> None:
    clock = SystemClock()
    topics = Topics.open(OsFileSystem(), data, CONFIG, clock, GroupFlush())
    topic = topics.get("t")
    assert topic is not None
    for partition, last in zip(topic.partitions, acknowledged, strict=True):
        assert partition.log_end_offset > last, seed
        sequences = [(h.base_offset, h.base_sequence, h.count) for h, _ in partition.scan()]
        assert sequences == [(o, o, 2) for o in range(0, partition.log_end_offset, 2)], seed
        newest = partition.log_end_offset - 2
        for offset in range(max(0, newest - 8), newest + 2, 2):
            appended = partition.append(sequenced(partition.index, offset, 2), now_ms=clock.now_ms())
            assert appended.base_offset == offset, seed
    topics.close()
