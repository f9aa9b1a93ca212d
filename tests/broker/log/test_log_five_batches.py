"""The last five batches of a producer are known through snapshots, replay and compaction, always."""

from __future__ import annotations

import pytest

from eoslog.broker.log.partition.partition import Partition
from eoslog.broker.log.segment.log_settings import LogSettings
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.fakefs import Outcome
from tests.broker.log.logkit import DIRECTORY, NOW, Disk, clean, sequenced

COMPACT = LogSettings(segment_bytes=1 << 20, index_interval_bytes=100, compacted=True, deleted=False)
WRAP = 2**31
FIRST = WRAP - 6
COUNT = 9
"""Batches of two records; their sequences go over the turn."""


def sequence(number: int) -> int:
    return (FIRST + 2 * number) % WRAP


def check(disk: Disk, partition: Partition, known: int = 5) -> None:
    """The last `known` batches are repetitions, those before are out of order, the next one is new."""
    for number in range(COUNT):
        data = sequenced(1, sequence(number), 2)
        if number >= COUNT - known:
            again = partition.append(data, now_ms=NOW)
            assert again.base_offset == 2 * number
        else:
            with pytest.raises(KafkaError) as caught:
                partition.append(data, now_ms=NOW)
            assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.log_end_offset == 2 * COUNT


@pytest.mark.parametrize("roll_after", [1, 4, 7, COUNT])
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("end", ["crash", "close"])
def test_five_batches(roll_after: int, compacted: bool, end: str) -> None:
    disk = Disk(COMPACT)
    partition = disk.open()
    for number in range(COUNT):
        disk.append(partition, sequenced(1, sequence(number), 2))
        if number + 1 == roll_after:
            partition._tail.roll()
    if compacted:
        clean(disk, partition)
        assert sum(1 for _ in partition.scan()) <= COUNT - roll_after + 1, "one is left of those before"
    check(disk, partition)
    if end == "close":
        partition.save()
        partition.close()
        partition = disk.open(clean=True, point=2 * COUNT)
    else:
        disk.fs.crash(Outcome.NOTHING)
        partition = disk.open()
    check(disk, partition)


def test_without_a_snapshot_the_log_itself_tells() -> None:
    """All five where nothing was compacted; of what was, the last batch."""
    for compacted, known in ((False, 5), (True, 1)):
        disk = Disk(COMPACT)
        partition = disk.open()
        for number in range(COUNT):
            disk.append(partition, sequenced(1, sequence(number), 2))
        partition._tail.roll()
        if compacted:
            clean(disk, partition)
        for name in [name for name in disk.fs.list(DIRECTORY) if name.endswith(".snapshot")]:
            disk.fs.remove(f"{DIRECTORY}/{name}")
        disk.fs.sync_dir(DIRECTORY)
        disk.fs.crash(Outcome.NOTHING)
        check(disk, disk.open(), known)
