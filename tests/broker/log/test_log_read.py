"""What readers see, and what they never see."""

from __future__ import annotations

from random import Random

import pytest

from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.logkit import NOW, Disk, batch, offsets, sequenced

ALL = 10**9


def filled(disk: Disk, count: int = 40) -> Partition:
    """Batches of one to three records at offsets that `starts` gives, over several segments."""
    partition = disk.open()
    random = Random(1)
    for _ in range(count):
        values = [bytes(random.randint(1, 300)) for _ in range(random.randint(1, 3))]
        disk.append(partition, batch(*values))
    return partition


@pytest.fixture
def disk() -> Disk:
    return Disk(LogSettings(segment_bytes=3000, index_interval_bytes=500))


def test_every_offset_is_found_and_a_read_begins_with_its_batch(disk: Disk) -> None:
    partition = filled(disk)
    spans = {o: h for h, _ in partition.scan() for o in range(h.base_offset, h.next_offset)}
    assert sorted(spans) == list(range(partition.log_end_offset))
    for offset, header in spans.items():
        result = partition.read(offset, ALL, committed=False)
        found = offsets(result.records)
        assert found[0] == header.base_offset
        assert found == sorted(
            {h.base_offset for o, h in spans.items() if found[0] <= o <= spans[found[-1]].last_offset}
        )


def test_reading_on_from_the_end_of_each_answer_gives_everything_once(disk: Disk) -> None:
    partition = filled(disk)
    expected = [header.base_offset for header, _ in partition.scan()]
    for max_bytes in (1, 100, 700, 2500, ALL):
        seen, offset = [], 0
        while offset < partition.high_watermark:
            from eoslog.protocol.batch import iter_headers

            headers = [h for _, h in iter_headers(partition.read(offset, max_bytes, committed=False).records)]
            seen += [h.base_offset for h in headers]
            offset = headers[-1].next_offset
        assert seen == expected


def test_max_bytes_and_the_first_batch(disk: Disk) -> None:
    partition = disk.open()
    disk.append(partition, batch(b"x" * 1000))
    disk.append(partition, batch(b"y"))
    assert offsets(partition.read(0, 10, committed=False).records) == [0]
    assert len(partition.read(0, 10, committed=False, min_one=False).records) == 0
    assert len(partition.read(0, 1200, committed=False, min_one=False).records) <= 1200


def test_offsets_outside_of_the_log_are_out_of_range(disk: Disk) -> None:
    partition = filled(disk, 3)
    end = partition.log_end_offset
    assert len(partition.read(end, ALL, committed=False).records) == 0
    for offset in (-1, end + 1):
        with pytest.raises(KafkaError) as caught:
            partition.read(offset, ALL, committed=False)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_nothing_unsynced_is_shown(disk: Disk) -> None:
    partition = disk.open()
    disk.append(partition, batch(b"a"))
    partition.append(batch(b"b", timestamp=NOW + 5), now_ms=NOW)
    assert (partition.high_watermark, partition.log_end_offset) == (1, 2)
    result = partition.read(0, ALL, committed=False)
    assert (offsets(result.records), result.high_watermark) == ([0], 1)
    assert len(partition.read(1, ALL, committed=False).records) == 0
    assert partition.max_timestamp() == (NOW, 0)
    assert partition.offset_for(NOW + 1, committed=False) is None
    disk.sync(partition)
    assert offsets(partition.read(0, ALL, committed=False).records) == [0, 1]
    assert partition.max_timestamp() == (NOW + 5, 1)


def test_with_flush_os_a_batch_is_shown_at_once() -> None:
    partition = Disk(flush="os").open()
    partition.append(batch(b"a"), now_ms=NOW)
    assert partition.high_watermark == 1
    assert offsets(partition.read(0, ALL, committed=True).records) == [0]


def transactions(disk: Disk) -> Partition:
    """Offsets: 0 of 1, 1 of 2, 2 plain, 3 abort 1, 4 of 1, 5 commit 2, 6 of 2, 7 commit 1; 2 is open at 6."""
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    disk.append(partition, sequenced(2, 0, transactional=True))
    disk.append(partition, batch(b"plain"))
    partition.append_marker(1, 0, False, 0, NOW)
    disk.append(partition, sequenced(1, 1, transactional=True))
    partition.append_marker(2, 0, True, 0, NOW)
    disk.append(partition, sequenced(2, 1, transactional=True))
    partition.append_marker(1, 0, True, 0, NOW)
    disk.sync(partition)
    return partition


@pytest.mark.parametrize("segment_bytes", [1024, 200])
def test_committed_reads_stop_at_the_last_stable_offset_and_name_the_aborted(segment_bytes: int) -> None:
    disk = Disk(LogSettings(segment_bytes=segment_bytes))
    for partition in (transactions(disk), disk.open()):
        assert partition.last_stable_offset == 6
        assert partition.open_transactions() == [(2, 6)]
        seen, offset, aborted = [], 0, set()
        while offset < 6:
            result = partition.read(offset, ALL, committed=True)
            assert result.last_stable_offset == 6
            seen += offsets(result.records)
            offset = seen[-1] + 1
            aborted.update(result.aborted or [])
        assert seen == [0, 1, 2, 3, 4, 5]
        assert aborted == {(1, 0)}
        assert len(partition.read(6, ALL, committed=True).records) == 0
        assert partition.read(4, ALL, committed=True).aborted == []
        assert partition.read(3, ALL, committed=True).aborted == [(1, 0)]
        assert partition.read(0, ALL, committed=False).aborted is None
        assert partition.offset_for(0, committed=True) == (NOW, 0)


def test_a_long_aborted_transaction_is_named_for_a_part_that_ends_before_shorter_ones() -> None:
    disk = Disk(LogSettings(index_interval_bytes=0))
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    for sequence in range(4):
        disk.append(partition, sequenced(2, sequence, transactional=True))
        partition.append_marker(2, 0, False, 0, NOW)
    partition.append_marker(1, 0, False, 0, NOW)
    disk.sync(partition)
    result = partition.read(0, 10, committed=True)
    assert offsets(result.records) == [0]
    assert (1, 0) in (result.aborted or [])
    assert (2, 5) not in (result.aborted or []), "the part ends long before"
    assert set(partition.read(2, ALL, committed=True).aborted or []) == {
        (1, 0),
        (2, 1),
        (2, 3),
        (2, 5),
        (2, 7),
    }
    assert set(partition.read(3, ALL, committed=True).aborted or []) == {(1, 0), (2, 3), (2, 5), (2, 7)}


def test_a_marker_decides_only_when_it_is_durable(disk: Disk) -> None:
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    disk.append(partition, batch(b"plain"))
    partition.append_marker(1, 0, False, 0, NOW)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
    assert len(partition.read(0, ALL, committed=True).records) == 0
    disk.sync(partition)
    assert partition.last_stable_offset == 3
    assert partition.read(0, ALL, committed=True).aborted == [(1, 0)]


def test_offsets_by_time(disk: Disk) -> None:
    partition = disk.open()
    random = Random(3)
    times = [NOW + random.randint(-50, 50) * 10 for _ in range(120)]
    for time in times:
        disk.append(partition, batch(bytes(100), timestamp=time))
    for reopened in (partition, disk.open()):
        for wanted in range(NOW - 520, NOW + 520, 7):
            expected = next(((t, o) for o, t in enumerate(times) if t >= wanted), None)
            assert reopened.offset_for(wanted, committed=False) == expected
        largest = max(times)
        assert reopened.max_timestamp() == (largest, times.index(largest))


def test_an_offset_by_time_lies_within_a_batch(disk: Disk) -> None:
    from eoslog.protocol.batch import build_batch

    partition = disk.open()
    # records at NOW, NOW+5, NOW+3: length, attributes, time delta, offset delta, no key, no value, no headers
    records = b"".join(bytes([12, 0, 2 * t, 2 * i, 1, 1, 0]) for i, t in enumerate((0, 5, 3)))
    disk.append(partition, b"".join(build_batch([records], 3, base_timestamp=NOW, max_timestamp=NOW + 5)))
    assert partition.offset_for(NOW + 1, committed=False) == (NOW + 5, 1)
    assert partition.max_timestamp() == (NOW + 5, 1)
    assert partition.offset_for(NOW + 6, committed=False) is None


def test_an_empty_log_has_no_times(disk: Disk) -> None:
    partition = disk.open()
    assert partition.max_timestamp() is None
    assert partition.offset_for(0, committed=False) is None
    assert list(partition.scan()) == []


def test_subscribers_hear_when_more_can_be_read(disk: Disk) -> None:
    partition = disk.open()
    heard: list[int] = []

    def callback() -> None:
        heard.append(partition.high_watermark)

    partition.subscribe(callback)
    partition.append(batch(b"a"), now_ms=NOW)
    assert heard == []
    disk.sync(partition)
    assert heard == [1]
    partition.unsubscribe(callback)
    partition.unsubscribe(callback)
    disk.append(partition, batch(b"a"))
    assert heard == [1]


def test_damage_met_while_reading_is_an_error_with_file_and_position(disk: Disk) -> None:
    partition = filled(disk, 2)
    disk.file("00000000000000000000.log")[20] ^= 0xFF
    with pytest.raises(KafkaError, match=r"00000000000000000000.log, position 0") as caught:
        list(partition.scan())
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_abort_is_known_however_far_behind_its_data_the_marker_lies(disk: Disk) -> None:
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    for _ in range(40):
        disk.append(partition, batch(bytes(250)))
    assert len(partition._log.segments) > 3
    partition.append_marker(1, 0, False, 0, NOW)
    disk.sync(partition)
    assert partition.read(0, 1, committed=True).aborted == [(1, 0)]
    assert partition.read(0, ALL, committed=True).aborted == [(1, 0)]
