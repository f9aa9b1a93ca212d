"""Compaction: which records stay, with their offsets, times, codecs, sequences and transactions."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log import leftovers
from eoslog.broker.log.cleaning import CleaningRun
from eoslog.broker.log.compaction import ENTRY_BYTES, CleaningPlan, KeyMap
from eoslog.broker.log.index import TransactionIndex
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.broker.log.upkeep import Cleaner
from eoslog.protocol.batch import BatchHeader, build_batch, iter_headers
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.plain_records import Record, encode_records, iter_records, write_varint
from tests.broker.log.logkit import (
    DIRECTORY,
    NOW,
    Directory,
    Disk,
    FakeClock,
    Inode,
    Outcome,
    batch,
    clean,
    offsets,
    sequenced,
)

DAY = 86_400_000
COMPACT = LogSettings(segment_bytes=1024, index_interval_bytes=100, compacted=True, deleted=False)

Pair = tuple[bytes | None, bytes | None]


def keyed(*pairs: Pair, timestamp: int = NOW, **options: Any) -> bytes:
    return encode_records(list(pairs), timestamp, **options)


def of_producer(pid: int, sequence: int, *pairs: Pair, transactional: bool = False, epoch: int = 0) -> bytes:
    return keyed(
        *pairs, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )


def roll(disk: Disk, partition: Partition) -> None:
    """Seal what is written."""
    partition._tail.roll()


def everything(partition: Partition) -> list[tuple[BatchHeader, list[Record]]]:
    return [(header, list(iter_records(bytes(data), 0, header))) for header, data in partition.scan()]


def records(partition: Partition) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for header, found in everything(partition)
        if not header.is_control
        for record in found
    ]


def markers(partition: Partition) -> list[int]:
    return [header.base_offset for header, _ in partition.scan() if header.is_control]


def logs(disk: Disk) -> list[int]:
    return [int(name[:20]) for name in disk.fs.list(DIRECTORY) if name.endswith(".log")]


def started(*batches: bytes, **changes: Any) -> tuple[Disk, Partition]:
    """A log that holds these batches in sealed segments."""
    disk = Disk(COMPACT).with_settings(**changes)
    partition = disk.open()
    for data in batches:
        disk.append(partition, data)
    roll(disk, partition)
    return disk, partition


def test_the_last_record_of_each_key_stays_under_its_offset() -> None:
    disk, partition = started(
        keyed((b"a", b"1"), (b"b", b"2"), (b"c", b"3")),
        keyed((b"b", b"4")),
        keyed((b"c", b"5"), (b"d", b"6")),
    )
    assert clean(disk, partition) == 6
    expected = [(0, b"a", b"1"), (3, b"b", b"4"), (4, b"c", b"5"), (5, b"d", b"6")]
    assert records(partition) == expected
    first = everything(partition)[0][0]
    assert (first.base_offset, first.last_offset, first.count) == (0, 2, 1)
    assert offsets(partition.read(1, 10**6, committed=False).records) == [0, 3, 4]
    for life in (Outcome.ALL, Outcome.NOTHING):
        disk.fs.crash(life)
        partition = disk.open()
        assert (disk.report, partition.offline, records(partition)) == ([], None, expected)


def test_segments_are_put_together_up_to_segment_bytes() -> None:
    disk = Disk(COMPACT)
    partition = disk.open()
    for number in range(40):
        disk.append(partition, keyed((b"%d" % (number % 4), b"x" * 200)))
    assert len(logs(disk)) == 14
    clean(disk, partition)
    assert logs(disk) == [0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39]
    clean(disk, partition)
    assert logs(disk) == [0, 30, 39] or len(logs(disk)) < 6
    kept = records(partition)
    assert [offset for offset, *_ in kept] == [35, 36, 37, 38, 39]
    assert clean(disk, partition) == 39
    partition.remove_files(NOW + 60_000)
    assert not [name for name in disk.fs.list(DIRECTORY) if ".deleted" in name or ".swap" in name]
    disk.fs.crash(Outcome.NOTHING)
    assert records(disk.open()) == kept


def test_the_active_segment_and_what_is_undecided_are_left_alone() -> None:
    disk, partition = started(keyed((b"a", b"1")), keyed((b"a", b"2")))
    disk.append(partition, of_producer(1, 0, (b"a", b"3"), transactional=True))
    roll(disk, partition)
    disk.append(partition, keyed((b"a", b"4")))
    roll(disk, partition)
    assert clean(disk, partition) == 2
    assert [offset for offset, *_ in records(partition)] == [1, 2, 3]
    partition.append_marker(1, 0, True, 0, NOW)
    disk.sync(partition)
    assert clean(disk, partition) == 4
    assert [offset for offset, *_ in records(partition)] == [3]


def test_a_tombstone_stays_for_delete_retention_ms_and_then_goes() -> None:
    disk, partition = started(
        keyed((b"a", b"1"), (b"b", b"2")),
        keyed((b"a", None), (b"c", b"3"), timestamp=NOW - 5000),
        keyed((b"z", b"9")),
        delete_retention_ms=DAY,
    )
    clean(disk, partition, NOW)
    assert records(partition) == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3"), (4, b"z", b"9")]
    header, found = everything(partition)[1]
    assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW + DAY)
    assert [record.timestamp for record in found] == [NOW - 5000, NOW - 5000]
    assert header.max_timestamp == NOW - 5000
    clean(disk, partition, NOW + DAY - 1)
    assert everything(partition)[1][0].base_timestamp == NOW + DAY, "a horizon is set once"
    assert len(records(partition)) == 4
    clean(disk, partition, NOW + DAY)
    assert records(partition) == [(1, b"b", b"2"), (3, b"c", b"3"), (4, b"z", b"9")]


def test_records_without_a_key_go() -> None:
    disk = Disk(LogSettings(segment_bytes=1024))
    partition = disk.open()
    disk.append(partition, keyed((None, b"old"), (b"a", b"1")))
    roll(disk, partition)
    partition.reconfigure(COMPACT)
    clean(disk, partition)
    assert records(partition) == [(1, b"a", b"1")]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_compressed_batches_are_written_with_their_codec_and_headers_intact(codec: int) -> None:
    def record(number: int, key: bytes) -> bytes:
        header = write_varint(1) + b"h" + write_varint(2) + b"%02d" % number
        body = (
            b"\0" + write_varint(number) * 2 + write_varint(len(key)) + key + write_varint(300) + b"v" * 300
        )
        body += write_varint(1) + header
        return write_varint(len(body)) + body

    section = [record(number, b"%d" % (number % 3)) for number in range(9)]
    options: dict[str, Any] = {"base_timestamp": NOW, "max_timestamp": NOW + 8, "codec": codec}
    disk, partition = started(b"".join(build_batch(section, 9, **options)), segment_bytes=1 << 20)
    clean(disk, partition)
    ((header, found),) = everything(partition)
    assert (header.codec, header.count, header.max_timestamp) == (codec, 3, NOW + 8)
    assert [(r.offset, r.timestamp, r.key, r.headers) for r in found] == [
        (n, NOW + n, b"%d" % (n % 3), [("h", b"%02d" % n)]) for n in (6, 7, 8)
    ]


def test_aborted_records_go_and_do_not_supersede_others() -> None:
    disk, partition = started(
        keyed((b"a", b"1")), of_producer(1, 0, (b"a", b"never"), (b"b", b"never"), transactional=True)
    )
    partition.append_marker(1, 0, False, 0, NOW)
    disk.append(partition, of_producer(1, 0, (b"b", b"2"), transactional=True, epoch=1))
    partition.append_marker(1, 1, True, 0, NOW)
    disk.sync(partition)
    roll(disk, partition)
    clean(disk, partition)
    assert records(partition) == [(0, b"a", b"1"), (4, b"b", b"2")]
    assert markers(partition) == [3, 5]
    result = partition.read(0, 10**6, committed=True)
    assert result.aborted == [(1, 1)], "its data was here in this run, and a reader may come from before"
    clean(disk, partition, NOW + 1)
    assert partition.read(0, 10**6, committed=True).aborted == []
    header = next(header for header, _ in everything(partition) if header.base_offset == 3)
    assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW + 1 + DAY)
    clean(disk, partition, NOW + DAY)
    assert markers(partition) == [3, 5], "it stays until its horizon"
    clean(disk, partition, NOW + 1 + DAY)
    assert markers(partition) == [5], "the marker of what is still there stays"
    disk.fs.crash(Outcome.NOTHING)
    partition = disk.open()
    assert partition.read(0, 10**6, committed=True).aborted == []
    assert partition.open_transactions() == []


def test_the_last_batch_of_a_producer_stays_as_an_empty_one() -> None:
    disk, partition = started(
        of_producer(1, 0, (b"a", b"1"), (b"b", b"1")),
        of_producer(1, 2, (b"a", b"2")),
        keyed((b"a", b"3"), (b"b", b"3")),
        keyed((b"c", b"3")),
    )
    clean(disk, partition)
    found = [(header.base_offset, header.count, header.last_sequence) for header, _ in everything(partition)]
    assert found == [(2, 0, 2), (3, 2, -1), (5, 1, -1)]
    for name in [name for name in disk.fs.list(DIRECTORY) if name.endswith(".snapshot")]:
        disk.fs.remove(f"{DIRECTORY}/{name}")
    partition = disk.open()
    appended = partition.append(of_producer(1, 2, (b"a", b"2")), now_ms=NOW)
    assert appended.base_offset == 2
    with pytest.raises(KafkaError) as caught:
        partition.append(of_producer(1, 4, (b"a", b"2")), now_ms=NOW)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    disk.append(partition, of_producer(1, 3, (b"z", b"1")))
    roll(disk, partition)
    clean(disk, partition)
    assert 2 not in [header.base_offset for header, _ in partition.scan()], "a later one is the last now"


def test_an_empty_batch_does_not_decide_what_the_latest_time_is() -> None:
    disk, partition = started(
        of_producer(1, 0, (b"a", b"1")),
        keyed((b"b", b"2"), timestamp=NOW - 7),
        keyed((b"a", b"3"), timestamp=NOW - 9),
    )
    clean(disk, partition)
    assert [header.count for header, _ in partition.scan()] == [0, 1, 1]
    for _ in range(2):
        assert partition.max_timestamp() == (NOW - 7, 1)
        assert partition.offset_for(NOW - 9, committed=False) == (NOW - 7, 1)
        assert partition.offset_for(NOW, committed=False) is None
        partition = disk.open()


def test_a_log_with_more_keys_than_memory_is_compacted_in_several_runs() -> None:
    pairs = [keyed((b"%d" % number, b"old"), (b"%d" % number, b"new")) for number in range(30)]
    disk, partition = started(*pairs)
    ends: list[int] = []
    while not ends or ends[-1] < 60:
        ends.append(clean(disk, partition, memory=7 * ENTRY_BYTES))
    assert ends == [14, 28, 42, 56, 60]
    assert records(partition) == [(2 * n + 1, b"%d" % n, b"new") for n in range(30)]


def test_the_map_of_keys_takes_the_memory_it_is_given() -> None:
    import tracemalloc

    keys = [b"key-%08d" % number for number in range(100_000)]
    tracemalloc.start()
    known = KeyMap(ENTRY_BYTES * len(keys))
    assert known.add(keys, range(len(keys)))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < ENTRY_BYTES * len(keys)
    assert not known.add([b"one more"], [len(keys)])
    assert (known.latest, len(known)) == (99_999, 100_000)


def test_when_a_log_needs_compaction() -> None:
    hour = 3_600_000
    disk, partition = started(keyed((b"a", b"1")), keyed((b"a", b"2")), min_cleanable_dirty_ratio=0.5)
    dirty_ratio = partition.compacting.dirty_ratio(NOW)
    assert dirty_ratio is not None
    assert (dirty_ratio.ratio, dirty_ratio.overdue) == (1.0, False)
    clean(disk, partition)
    assert partition.compacting.dirty_ratio(NOW) is None
    disk.append(partition, keyed((b"a", b"3")))
    roll(disk, partition)
    disk.settings = LogSettings(compacted=True, min_cleanable_dirty_ratio=0.9)
    partition.reconfigure(disk.settings)
    assert partition.compacting.dirty_ratio(NOW + hour) is None
    disk.with_settings(max_compaction_lag_ms=hour)
    partition.reconfigure(disk.settings)
    assert partition.compacting.dirty_ratio(NOW + hour) is None
    dirty_ratio = partition.compacting.dirty_ratio(NOW + hour + 1)
    assert dirty_ratio is not None
    assert dirty_ratio.overdue
    disk.with_settings(min_cleanable_dirty_ratio=0.1, min_compaction_lag_ms=2 * hour)
    partition.reconfigure(disk.settings)
    assert partition.compacting.dirty_ratio(NOW + 2 * hour - 1) is None
    assert partition.compacting.dirty_ratio(NOW + 2 * hour) is not None
    partition.reconfigure(LogSettings())
    assert partition.compacting.dirty_ratio(NOW + 9 * hour) is None


def test_what_is_kept_of_a_log_that_lost_its_cleaner_offset() -> None:
    disk, partition = started(keyed((b"a", b"1")), keyed((b"a", b"2")))
    clean(disk, partition)
    assert disk.open().compacting.cleaned_offset == 2
    disk.fs.remove("/data/cleaner-offset-checkpoint")
    partition = disk.open()
    assert partition.compacting.cleaned_offset == 0
    clean(disk, partition)
    assert records(partition) == [(1, b"a", b"2")]


def run_cleaner(disk: Disk, partition: Partition, rounds: int = 1) -> None:
    async def scenario() -> None:
        cleaner = Cleaner(disk.fs, lambda: [partition], FakeClock(NOW), BrokerConfig())
        for _ in range(rounds):
            await cleaner.clean()
        cleaner.close()

    asyncio.run(scenario())


def test_the_cleaner_compacts_what_needs_it() -> None:
    disk, partition = started(keyed((b"a", b"1")), keyed((b"a", b"2")))
    run_cleaner(disk, partition)
    assert records(partition) == [(1, b"a", b"2")]
    assert partition.compacting.cleaned_offset == 2


@pytest.mark.parametrize("fault", ["fail_open", "fail_sync", "fail_rename", "capacity"])
def test_a_failed_compaction_is_said_once_and_leaves_the_log_as_it_was(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk, partition = started(keyed((b"a", b"1")), keyed((b"a", b"2")))
    before = records(partition)
    setattr(disk.fs, fault, 20 if fault == "capacity" else ".cleaned")
    with caplog.at_level(logging.ERROR):
        run_cleaner(disk, partition, 3)
    (line,) = [record.message for record in caplog.records if "not compacted" in record.message]
    assert "t-0" in line
    assert partition.offline is None
    setattr(disk.fs, fault, None)
    assert records(partition) == before
    assert disk.append(partition, keyed((b"b", b"3"))) == 2
    run_cleaner(disk, partition)
    assert records(partition) == [(1, b"a", b"2"), (2, b"b", b"3")]
    disk.fs.crash(Outcome.NOTHING)
    assert records(disk.open()) == [(1, b"a", b"2"), (2, b"b", b"3")]


def test_a_compaction_half_in_place_takes_the_partition_offline_until_the_next_start() -> None:
    disk, partition = started(keyed((b"a", b"1")), keyed((b"a", b"2")))
    disk.fs.fail_rename = ".log.swap"
    run_cleaner(disk, partition)
    assert partition.offline is not None
    disk.fs.fail_rename = None
    disk.fs.crash(Outcome.NOTHING)
    assert records(disk.open()) == [(1, b"a", b"2")]


def test_a_damaged_segment_is_not_compacted() -> None:
    disk, partition = started(keyed((b"a", b"1")), keyed((b"a", b"2")))
    disk.file("00000000000000000000.log")[80] ^= 1
    before = bytes(disk.file("00000000000000000000.log"))
    run_cleaner(disk, partition)
    assert bytes(disk.file("00000000000000000000.log")) == before


def test_retention_may_take_segments_while_they_are_compacted() -> None:
    disk, partition = started(keyed((b"a", b"1")), keyed((b"a", b"2")), deleted=True, retention_bytes=0)
    plan = partition.compacting.plan(NOW)
    from eoslog.broker.log.cleaning import CleaningRun

    run = CleaningRun(disk.fs, plan, 1 << 20)
    run.map()
    new = run.clean(plan.groups[0])
    assert new is not None
    partition.retain(NOW)
    assert not partition.compacting.take_over(new, plan.groups[0], NOW)
    partition.compacting.drop_cleaned(new)
    assert [name for name in disk.fs.list(DIRECTORY) if "cleaned" in name or "swap" in name] == []
    assert (partition.log_start_offset, records(partition)) == (2, [])


def test_deleted_records_are_not_compacted_into_sight() -> None:
    disk, partition = started(
        keyed((b"a", b"1"), (b"b", b"2")), keyed((b"c", b"3")), deleted=True, retention_ms=-1
    )
    partition.delete_records(1)
    clean(disk, partition)
    assert partition.log_start_offset == 1
    ((_, data), *_) = list(iter_headers(partition.read(1, 10**6, committed=False).records))
    assert data.last_offset >= 1


# -- each step -----------------------------------------------------------------------------------
# Each step of a compaction is durable before the next; a try that was given up leaves nothing behind.
#
# The file system of the crash tests keeps the order of a directory's changes; a real one need not.

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
