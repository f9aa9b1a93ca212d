"""Each step of a compaction is durable before the next; a try that was given up leaves nothing behind.

The file system of the crash tests keeps the order of a directory's changes; a real one need not.
"""

from __future__ import annotations

from eoslog.broker.log.compaction.cleaning_plan import CleaningPlan
from eoslog.broker.log.compaction.cleaning_run import CleaningRun
from eoslog.broker.log.partition.partition import Partition
from eoslog.broker.log.recovery import leftovers
from eoslog.broker.log.segment.index import TransactionIndex
from eoslog.broker.log.segment.log_settings import LogSettings
from tests.broker.log.fakefs import Directory, Inode
from tests.broker.log.logkit import DIRECTORY, NOW, Disk, batch, clean, sequenced

SETTINGS = LogSettings(segment_bytes=3000, index_interval_bytes=100, compacted=True, deleted=False)


def filled(disk: Disk, *, synced: bool = True) -> Partition:
    """Some segments of few keys, with a transaction that was aborted in the first of them."""
    partition = disk.open()
    partition.append(sequenced(1, 0, 3, transactional=True), now_ms=NOW)
    partition.append(batch(b"x"), now_ms=NOW)
    partition.append_marker(1, 0, False, 0, NOW)
    for number in range(60):
        partition.append(batch(b"%d" % number * 50), now_ms=NOW)
    if synced:
        disk.sync(partition)
    return partition


def directory(disk: Disk) -> Directory:
    found = disk.fs.find(DIRECTORY)
    assert isinstance(found, Directory)
    return found


def inodes(disk: Disk, ending: str) -> dict[str, Inode]:
    found = {name: disk.fs.find(f"{DIRECTORY}/{name}") for name in disk.fs.list(DIRECTORY)}
    return {name: one for name, one in found.items() if name.endswith(ending) and isinstance(one, Inode)}


def cleaned_group(disk: Disk, partition: Partition) -> CleaningPlan:
    """A run up to where its first group lies beside the log, durable."""
    plan = partition.compacting.plan(NOW)
    run = CleaningRun(disk.fs, plan, 1 << 20)
    run.map()
    new = run.clean(plan.groups[0])
    assert new is not None
    new.close()
    return plan


def test_nothing_is_compacted_that_is_not_durable() -> None:
    disk = Disk(SETTINGS, flush="os")
    partition = filled(disk, synced=False)
    assert len(partition._log.segments) > 3 and partition.compacting.plan(NOW).sources == []
    disk.sync(partition)
    assert partition.compacting.plan(NOW).sources


def test_a_compacted_segment_is_durable_before_anything_is_renamed() -> None:
    disk = Disk(SETTINGS)
    cleaned_group(disk, filled(disk))
    made = inodes(disk, ".cleaned")
    assert {name[20:] for name in made} >= {".log.cleaned", ".index.cleaned", ".timeindex.cleaned"}
    for name, inode in made.items():
        assert inode.durable == bytes(inode.data) and not inode.pending, name


def test_each_renaming_is_durable_before_the_next() -> None:
    disk = Disk(SETTINGS)
    plan = cleaned_group(disk, filled(disk))
    base, end = plan.groups[0][0].segment.base_offset, plan.groups[0][-1].next_offset
    leftovers.prepare(disk.fs, DIRECTORY, base)
    assert not directory(disk).pending
    leftovers.commit(disk.fs, DIRECTORY, base)
    assert not directory(disk).pending
    assert leftovers.take_out(disk.fs, DIRECTORY, base, end)
    assert not directory(disk).pending
    leftovers.move_in(disk.fs, DIRECTORY, base)
    assert not directory(disk).pending


def test_what_was_prepared_and_not_committed_changes_nothing() -> None:
    """Its indexes wait under names of their own; they are not those of the log that stays."""
    disk = Disk(SETTINGS)
    plan = cleaned_group(disk, filled(disk))
    names = [name for name in disk.fs.list(DIRECTORY) if not name.endswith(".cleaned")]
    before = {name: bytes(disk.file(name)) for name in names}
    leftovers.prepare(disk.fs, DIRECTORY, plan.groups[0][0].segment.base_offset)
    leftovers.finish(disk.fs, DIRECTORY)
    assert {name: bytes(disk.file(name)) for name in disk.fs.list(DIRECTORY)} == before


def test_entries_of_an_earlier_try_are_not_taken_over() -> None:
    disk = Disk(SETTINGS)
    partition = filled(disk)
    index = TransactionIndex(disk.fs, f"{DIRECTORY}/{0:020d}.txnindex.cleaned")
    entry = partition._log.segments[0].transactions.entries[0]
    for number in range(5):
        index.append(entry._replace(producer_id=9, first_offset=100 + number, last_offset=200 + number))
    index.close()
    clean(disk, partition)
    data = bytes(disk.file(f"{0:020d}.txnindex")) if inodes(disk, ".txnindex") else b""
    assert len(data) <= len(index.entries[:1]) * 34
