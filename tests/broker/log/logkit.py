"""What the tests of the log share: batches, a partition on a file system in memory, crashes anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.batch import build_batch, iter_headers
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.plain_records import encode_records
from tests.broker.log.fakefs import FakeClock, FakeFileSystem, Inode, Outcome, PowerLoss

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
