"""A file system in memory that fails and loses power on demand, and logs on it."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import Any

import pytest

from eoslog.broker.config import BrokerConfig, FlushMode
from eoslog.broker.log.cleaning import CleaningRun
from eoslog.broker.log.durability import GroupFlush, PartitionPlace
from eoslog.broker.log.files import Checkpoints, OffsetCheckpoint
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition, create_directory, open_partition
from eoslog.broker.log.recovery import KnownLog, RecoveryFinding
from eoslog.broker.ports import Buffer, File
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.batch import build_batch, iter_headers
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.plain_records import encode_records

# -- the file system -------------------------------------------------------------------------------
# A file system in memory that fails like a real one: it loses what was not synced, tears writes, fills up.
#
# What a crash leaves, by `Outcome`:
#   NOTHING   no write since the file's last sync, no directory change since the directory's last sync
#   ALL       everything, as after kill -9
#   PREFIX    of each file's unsynced writes the first few, the next one torn; the same of directory changes
#   PAGES     of each file's unsynced bytes any 512-byte blocks, the others as they were (or zeros)


BLOCK = 512


class PowerLoss(BaseException):
    """The machine stops here; no handler of errors may go on."""


class Outcome(Enum):
    NOTHING = "nothing"
    ALL = "all"
    PREFIX = "prefix"
    PAGES = "pages"


@dataclass
class Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (position, bytes); None: truncate
    written_ms: int = 0

    def apply(self, position: int, data: bytes | None) -> None:
        if data is None:
            del self.data[position:]
            self.data.extend(bytes(position - len(self.data)))
            return
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data

    def crash(self, outcome: Outcome, random: Random) -> None:
        if outcome is Outcome.ALL:
            return  # the page cache outlives the process, but nothing became more durable by its end
        if outcome is Outcome.PAGES:
            self._lose_blocks(random)
        else:
            pending = self.pending
            self.data = bytearray(self.durable)
            keep = 0 if outcome is Outcome.NOTHING else random.randint(0, len(pending))
            for position, data in pending[:keep]:
                self.apply(position, data)
            if outcome is Outcome.PREFIX and keep < len(pending):
                position, data = pending[keep]
                if data:
                    self.apply(position, data[: random.randint(0, len(data))])
        self.durable, self.pending = bytes(self.data), []

    def _lose_blocks(self, random: Random) -> None:
        new, old = bytes(self.data), self.durable.ljust(len(self.data), b"\0")
        if new == self.durable:
            return
        size = random.randint(min(len(new), len(self.durable)), len(new))
        blocks = range(0, len(new), BLOCK)
        self.data = bytearray(
            b"".join((new if random.random() < 0.6 else old)[b : b + BLOCK] for b in blocks)
        )
        del self.data[size:]


@dataclass
class Directory:
    entries: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def set(self, *change: tuple[str, Inode | Directory | None]) -> None:
        self.pending.append(change)
        _set(self.entries, change)

    def sync(self) -> None:
        self.durable, self.pending = dict(self.entries), []

    def crash(self, outcome: Outcome, random: Random) -> None:
        if outcome is not Outcome.ALL:
            keep = 0 if outcome is Outcome.NOTHING else random.randint(0, len(self.pending))
            self.entries = dict(self.durable)
            for change in self.pending[:keep]:
                _set(self.entries, change)
            self.sync()
        for entry in self.entries.values():
            entry.crash(outcome, random)


# Names and what they stand for from now on (None: nothing); one change happens whole or not at all.
Change = tuple[tuple[str, Inode | Directory | None], ...]


def _set(entries: dict[str, Inode | Directory], change: Change) -> None:
    for name, value in change:
        if value is None:
            entries.pop(name, None)
        else:
            entries[name] = value


class FakeFile:
    def __init__(self, fs: FakeFileSystem, path: str, inode: Inode) -> None:
        self.path, self._fs, self._inode, self._life = path, fs, inode, fs.life
        self.closed = False
        self.syncs = 0

    def _check(self) -> None:
        assert self._life == self._fs.life, f"{self.path} was opened before the crash"
        assert not self.closed, f"{self.path} is closed"

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        self._check()
        data = b"".join(parts)
        self._fs.step()
        data, error = self._fs.admit(self.path, self._inode, data, position)
        if data:
            self._inode.pending.append((position, data))
            self._inode.apply(position, data)
            self._inode.written_ms = self._fs.now_ms
        if error is not None:
            raise error
        return len(data)

    def read(self, size: int, position: int) -> bytes:
        self._check()
        data = bytes(self._inode.data[position : position + size])
        self._fs.bytes_read[os.path.splitext(self.path)[1]] += len(data)
        return data

    def size(self) -> int:
        self._check()
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._check()
        self._fs.step()
        if self._fs.fail_truncate:
            raise OSError(errno.EIO, "truncate failed", self.path)
        self._inode.pending.append((size, None))
        self._inode.apply(size, None)

    def sync(self) -> None:
        self._check()
        self.syncs += 1
        self._fs.check_sync(self.path)
        self._inode.durable, self._inode.pending = bytes(self._inode.data), []

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "no descriptor in memory")

    def close(self) -> None:
        self.closed = True
        self._fs.locked.discard(self.path)


class FakeFileSystem:
    """See the head of this file. `life` counts crashes; files opened before the last one are dead."""

    def __init__(self) -> None:
        self.root = Directory()
        self.life = 0
        self.now_ms = 1_700_000_000_000  # the clock of files
        self.capacity: int | None = None  # bytes that may still be written
        self.volume: int | None = None  # bytes that all files may have; when full, no new name either
        self.fail_truncate = False
        self.fail_sync: str | None = None  # syncs of paths that hold this text fail
        self.fail_open: str | None = None  # making files whose path holds this text fails
        self.fail_rename: str | None = None  # renames of paths that hold this text fail
        self.locked: set[str] = set()
        self.bytes_read: Counter[str] = Counter()  # by the suffix of files' names
        self.steps_left: int | None = None  # after so many changes of the disk comes a PowerLoss

    # -- faults --------------------------------------------------------------------------------

    def admit(self, path: str, inode: Inode, data: bytes, position: int) -> tuple[bytes, OSError | None]:
        if self.volume is not None:
            grows = max(0, position + len(data) - len(inode.data))
            missing = grows - self.free()
            if missing >= len(data):
                return b"", OSError(errno.ENOSPC, "No space left on device", path)
            return data[: len(data) - max(0, missing)], None
        if self.capacity is None:
            return data, None
        if not self.capacity:
            return b"", OSError(errno.ENOSPC, "No space left on device", path)
        data = data[: self.capacity]
        self.capacity -= len(data)
        return data, None

    def free(self) -> int:
        """What is left of `volume`."""
        return 1 << 39 if self.volume is None else self.volume - used(self.root)

    def check_name(self, path: str) -> None:
        """A new name needs room in its directory."""
        if self.free() <= 0:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def step(self) -> None:
        """Called before each change."""
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise PowerLoss
            self.steps_left -= 1

    def check_sync(self, path: str) -> None:
        self.step()
        if self.fail_sync is not None and self.fail_sync in path:
            raise OSError(errno.EIO, "Input/output error", path)

    def crash(self, outcome: Outcome = Outcome.NOTHING, random: Random | None = None) -> None:
        self.life += 1
        self.steps_left = None
        self.locked.clear()
        self.root.crash(outcome, random or Random(0))

    # -- FileSystem ----------------------------------------------------------------------------

    def find(self, path: str) -> Inode | Directory | None:
        here: Inode | Directory = self.root
        for name in filter(None, path.split("/")):
            if not isinstance(here, Directory) or name not in here.entries:
                return None
            here = here.entries[name]
        return here

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, name = os.path.split(path)
        parent = self.find(head) if head.strip("/") else self.root
        if not isinstance(parent, Directory):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return parent, name

    def open(self, path: str, *, create: bool = False, private: bool = False) -> File:
        parent, name = self._parent(path)
        inode = parent.entries.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            if self.fail_open is not None and self.fail_open in path:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            self.check_name(path)
            self.step()
            inode = Inode()
            parent.set((name, inode))
        assert isinstance(inode, Inode)
        return FakeFile(self, path, inode)

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def written_ms(self, path: str) -> int:
        here = self.find(path)
        if not isinstance(here, Inode):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return here.written_ms

    def list(self, path: str) -> list[str]:
        here = self.find(path)
        if here is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if isinstance(here, Inode):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return sorted(here.entries)

    def make_dir(self, path: str, *, private: bool = False) -> None:
        here = self.root
        for name in path.strip("/").split("/"):
            if name not in here.entries:
                self.step()
                here.set((name, Directory()))
            below = here.entries[name]
            assert isinstance(below, Directory)
            here = below

    def rename(self, old: str, new: str) -> None:
        if self.fail_rename is not None and self.fail_rename in old:
            raise OSError(errno.EIO, "Input/output error", old)
        parent, name = self._parent(old)
        target, new_name = self._parent(new)
        assert parent is target, "renames stay within a directory"
        if new_name not in parent.entries:
            self.check_name(new)
        self.step()
        value = parent.entries[name]
        parent.set((new_name, value), (name, None))

    def link(self, old: str, new: str) -> None:
        inode = self.find(old)
        if not isinstance(inode, Inode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", old)
        parent, name = self._parent(new)
        self.step()
        parent.set((name, inode))

    def remove(self, path: str) -> None:
        parent, name = self._parent(path)
        if name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self.step()
        parent.set((name, None))

    def remove_tree(self, path: str) -> None:
        self.remove(path)

    def sync_dir(self, path: str) -> None:
        self.check_sync(path)
        here = self.find(path) if path.strip("/") else self.root
        assert isinstance(here, Directory)
        here.sync()

    def space(self, path: str) -> tuple[int, int]:
        return 1 << 40, self.free() if self.capacity is None else self.capacity

    def lock(self, path: str) -> File:
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        file = self.open(path, create=True)
        self.locked.add(path)
        return file


def used(here: Inode | Directory) -> int:
    """Bytes of all files below."""
    return len(here.data) if isinstance(here, Inode) else sum(map(used, here.entries.values()))


class FakeClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


# -- logs ------------------------------------------------------------------------------------------
# What the tests of the log share: batches, a partition on a file system in memory, crashes anywhere.


NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
TOPIC_ID = b"0123456789abcdef"


def batch(*values: bytes, timestamp: int = NOW, **options: Any) -> bytes:
    """A batch of records with key `k` and these values."""
    return encode_records([(b"k", value) for value in values], timestamp, **options)


def sequenced(pid: int, sequence: int, count: int = 1, epoch: int = 0, transactional: bool = False) -> bytes:
    """A batch of `count` records of an idempotent or transactional producer."""
    values = [b"%d/%d" % (pid, sequence + i) for i in range(count)]
    return batch(
        *values, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )


def header_only(**fields: Any) -> bytes:
    """A batch without bytes in its record section, for headers that no encoder makes."""
    options = {"base_timestamp": NOW, "max_timestamp": NOW} | fields
    return b"".join(build_batch([], options.pop("count", 1), **options))


class Disk:
    """A data directory with one partition's directory, which can be opened, crashed and opened again."""

    def __init__(self, settings: LogSettings | None = None, flush: FlushMode = "fsync") -> None:
        self.fs = FakeFileSystem()
        self.fs.make_dir("/data")
        self.settings = settings or LogSettings()
        self.mode: FlushMode = flush
        self.report: list[RecoveryFinding] = []
        create_directory(self.fs, DIRECTORY, TOPIC_ID, self.settings.index_interval_bytes)
        self.fs.sync_dir("/data")
        self.fs.sync_dir("/")

    def open(self, *, clean: bool = False, point: int = 0, now_ms: int = NOW, epoch: int = 0) -> Partition:
        self.flush = GroupFlush(self.mode)
        self.report = []
        place = PartitionPlace("t", 0, TOPIC_ID, DIRECTORY)
        known = KnownLog(point, clean, epoch)
        starts = OffsetCheckpoint(self.fs, "/data/log-start-offset-checkpoint")
        checkpoints = Checkpoints(starts, OffsetCheckpoint(self.fs, "/data/cleaner-offset-checkpoint"))
        return open_partition(
            self.fs, place, self.settings, self.flush, checkpoints, known, now_ms, self.report
        )

    def sync(self, partition: Partition) -> None:
        """What the group flush does, at once."""
        self.flush.flush_now(partition.durability)

    def append(self, partition: Partition, data: bytes) -> int:
        """Append, make durable, answer the base offset."""
        offset = partition.append(data, now_ms=NOW).base_offset
        self.sync(partition)
        return offset

    def file(self, name: str) -> bytearray:
        """The bytes of a file of the partition, to look at or to damage (a crash forgets the damage)."""
        inode = self.fs.find(f"{DIRECTORY}/{name}")
        assert isinstance(inode, Inode), name
        return inode.data

    def with_settings(self, **changes: Any) -> Disk:
        self.settings = replace(self.settings, **changes)
        return self


def offsets(records: Any) -> list[int]:
    """Base offsets of the batches in a fetch answer."""
    return [header.base_offset for _, header in iter_headers(records)]


def stored(partition: Partition) -> list[tuple[int, bytes]]:
    """(base offset, all bytes but base offset and leader epoch) of each batch in the log."""
    return [(header.base_offset, bytes(data[8:12]) + bytes(data[16:])) for header, data in partition.scan()]


def clean(disk: Disk, partition: Partition, now_ms: int = NOW, memory: int = 1 << 20) -> int:
    """Compact a log at once, in this thread; answers the offset up to which it is compacted."""
    plan = partition.compacting.plan(now_ms)
    run = CleaningRun(disk.fs, plan, memory)
    end = run.map()
    for group in plan.groups:
        if group[0].segment.base_offset >= end:
            break
        new = run.clean(group)
        if new is not None:
            assert partition.compacting.take_over(new, group, now_ms)
    partition.compacting.cleaned_up_to(end)
    return end


# -- topics and crashes --------------------------------------------------------------------------
# Topics on a file system in memory, and a crash at every point of what is done to them.

DATA = "/var/data"


def opened(fs: FakeFileSystem, config: BrokerConfig | None = None, **options: str) -> Topics:
    """The topics of a broker with this config, or with these options, dots as underlines."""
    return Topics.open(
        fs,
        DATA,
        config or BrokerConfig.from_options({name.replace("_", "."): text for name, text in options.items()}),
        FakeClock(),
        GroupFlush(),
    )


def code(call: Callable[[], object]) -> ErrorCode:
    """The code of the KafkaError that `call` raises."""
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


OUTCOMES = [Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX, Outcome.PREFIX, Outcome.PREFIX]


def every_crash(act: Callable[[Topics], object], check: Callable[[Topics, bool], None]) -> int:
    """Do `act` with a crash before each of its changes of the disk, in all ways; `check` after a restart."""
    steps = 0
    while True:
        finished = False
        for seed, outcome in enumerate(OUTCOMES):
            fs = FakeFileSystem()
            topics = opened(fs)
            topics.create("other", 1)
            keep = topics.create("keep", 1).partitions[0]
            keep.append(batch(b"x"), now_ms=NOW)
            keep.durability.flush_now()
            fs.steps_left = steps
            try:
                act(topics)
                finished = True
            except PowerLoss:
                finished = False
            fs.crash(outcome, Random(seed * 1000 + steps))
            again = opened(fs)
            assert again.report == []
            check(again, finished)
            kept = again.partition("keep", 0)
            assert kept is None or kept.log_end_offset == 1
            directories = sorted(name for name in fs.list(DATA) if "." not in name and "-" in name)
            wanted = [f"{p}" for name in again.names() for p in again.get(name).partitions]  # type: ignore[union-attr]
            assert directories == sorted(wanted), "nothing is left over"
            assert not [name for name in fs.list(DATA) if name.endswith((".tmp", "-delete"))]
        if finished:
            return steps
        steps += 1
