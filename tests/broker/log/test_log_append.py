"""What a partition takes, refuses, and stores."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog.broker.log.segment.batch_checks import MOST_UNPACKED
from eoslog.broker.log.segment.log_settings import LogSettings
from eoslog.protocol.batch import HEADER_SIZE, build_batch, iter_headers, read_header
from eoslog.protocol.control import control_batch
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.plain_records import encode_records, iter_records
from tests.broker.log.fakefs import FakeFile
from tests.broker.log.logkit import NOW, Disk, batch, header_only, offsets, sequenced, stored
from tests.protocol.batches import with_right_crc


def refused(disk: Disk, data: bytes, **options: Any) -> ErrorCode:
    partition = disk.open()
    before = bytes(disk.file("00000000000000000000.log"))
    with pytest.raises(KafkaError) as caught:
        partition.append(data, now_ms=NOW, **options)
    assert partition.log_end_offset == 0
    assert bytes(disk.file("00000000000000000000.log")) == before
    return caught.value.code


def test_batches_are_stored_as_they_came_but_for_offset_and_leader_epoch() -> None:
    disk = Disk()
    partition = disk.open()
    sent = [batch(b"a", b"b"), sequenced(1, 0, 3), batch(b"c")]
    assert [disk.append(partition, data) for data in sent] == [0, 2, 5]
    assert stored(partition) == [(o, d[8:12] + d[16:]) for o, d in zip([0, 2, 5], sent, strict=True)]
    assert {header.leader_epoch for header, _ in partition.scan()} == {0}
    assert partition.log_end_offset == partition.high_watermark == 6


def test_any_buffer_is_taken_and_left_alone() -> None:
    partition = Disk().open()
    data = batch(b"x")
    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(data))):
        partition.append(buffer, now_ms=NOW)
        assert bytes(buffer) == data


def test_what_an_append_answers() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, batch(b"x"))
    assert partition.append(sequenced(1, 0, 3), now_ms=NOW) == (1, 3, -1, 0)
    assert partition.append(sequenced(1, 0, 3), now_ms=NOW) == (1, 3, -1, 0)
    assert partition.log_end_offset == 4


GOOD = batch(b"x" * 100)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="nothing"),
        pytest.param(GOOD[:40], ErrorCode.INVALID_RECORD, id="cut header"),
        pytest.param(GOOD[:-1], ErrorCode.INVALID_RECORD, id="cut body"),
        pytest.param(GOOD + GOOD, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(GOOD[:16] + b"\x01" + GOOD[17:], ErrorCode.INVALID_RECORD, id="magic 1"),
        pytest.param(GOOD[:70] + b"\xff" + GOOD[71:], ErrorCode.CORRUPT_MESSAGE, id="flipped byte"),
        pytest.param(GOOD[:8] + b"\x00\x00\x00\x05" + GOOD[12:], ErrorCode.CORRUPT_MESSAGE, id="length 5"),
        pytest.param(header_only(base_offset=3), ErrorCode.INVALID_RECORD, id="base offset 3"),
        pytest.param(header_only(count=0), ErrorCode.INVALID_RECORD, id="no records"),
        pytest.param(control_batch(1, 5, 0, 0, NOW), ErrorCode.INVALID_RECORD, id="control batch"),
        pytest.param(
            header_only(producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD, id="no sequence"
        ),
        pytest.param(header_only(producer_id=5, base_sequence=0), ErrorCode.INVALID_RECORD, id="no epoch"),
        pytest.param(
            header_only(transactional=True), ErrorCode.INVALID_RECORD, id="transaction, no producer"
        ),
        pytest.param(
            batch(b"x", timestamp=NOW + 3_600_001), ErrorCode.INVALID_TIMESTAMP, id="an hour and more ahead"
        ),
    ],
)
def test_batches_that_break_a_rule_are_refused(data: bytes, code: ErrorCode) -> None:
    assert refused(Disk(), data) is code


def test_count_and_last_offset_delta_must_agree() -> None:
    data = bytearray(batch(b"a", b"b"))
    data[57:61] = (3).to_bytes(4, "big")
    data = bytearray(with_right_crc(bytes(data)))
    assert refused(Disk(), bytes(data)) is ErrorCode.INVALID_RECORD


def test_a_timestamp_up_to_an_hour_ahead_or_long_ago_is_fine() -> None:
    partition = Disk().open()
    partition.append(batch(b"x", timestamp=NOW + 3_600_000), now_ms=NOW)
    partition.append(batch(b"x", timestamp=0), now_ms=NOW)


def test_max_message_bytes() -> None:
    size = len(GOOD)
    Disk(LogSettings(max_message_bytes=size)).open().append(GOOD, now_ms=NOW)
    assert refused(Disk(LogSettings(max_message_bytes=size - 1)), GOOD) is ErrorCode.MESSAGE_TOO_LARGE
    Disk(LogSettings(max_message_bytes=size - 1)).open().append(GOOD, now_ms=NOW, coordinator=True)


def test_a_compacted_topic_needs_keys() -> None:
    from eoslog.protocol.plain_records import encode_records

    disk = Disk(LogSettings(compacted=True))
    assert refused(disk, encode_records([(b"k", b"v"), (None, b"v")], NOW)) is ErrorCode.INVALID_RECORD
    disk.open().append(encode_records([(b"k", b"v"), (b"l", None)], NOW), now_ms=NOW)


def test_log_append_time_stamps_the_batch_anew() -> None:
    disk = Disk(LogSettings(log_append_time=True))
    partition = disk.open()
    far = NOW + 10**9
    assert partition.append(batch(b"a", b"b", timestamp=far), now_ms=NOW).log_append_time == NOW
    disk.sync(partition)
    ((header, data),) = partition.scan()
    assert header.log_append_time
    assert header.max_timestamp == NOW
    assert {record.timestamp for record in iter_records(data, 0, header)} == {NOW}
    assert partition.max_timestamp() == (NOW, 0)


def test_a_coordinator_may_write_markers_and_batches_without_sequence() -> None:
    disk = Disk()
    partition = disk.open()
    data = batch(b"x", producer_id=5, producer_epoch=1, transactional=True)
    assert partition.append(data, now_ms=NOW, coordinator=True).base_offset == 0
    assert partition.append(data, now_ms=NOW, coordinator=True).base_offset == 1
    assert partition.ongoing(5) == 0
    partition.append(control_batch(0, 5, 1, 3, NOW), now_ms=NOW, coordinator=True)
    assert partition.ongoing(5) is None
    disk.sync(partition)
    assert partition.read(0, 10**6, committed=True).aborted == [(5, 0)]


def test_a_log_rolls_to_a_new_segment_when_the_next_batch_does_not_fit() -> None:
    data = batch(b"x" * 400)
    disk = Disk(LogSettings(segment_bytes=2 * len(data)))
    partition = disk.open()
    for _ in range(5):
        disk.append(partition, data)
    names = [name for name in disk.fs.list("/data/t-0") if name.endswith(".log")]
    assert names == [f"{base:020d}.log" for base in (0, 2, 4)]
    assert [len(disk.file(name)) for name in names] == [2 * len(data), 2 * len(data), len(data)]
    for offset in range(5):
        assert offsets(partition.read(offset, 10**6, committed=False).records)[0] == offset


def test_a_batch_above_the_segment_size_gets_a_segment_of_its_own() -> None:
    disk = Disk(LogSettings(segment_bytes=1024))
    partition = disk.open()
    for size in (5000, 10, 5000):
        disk.append(partition, batch(b"x" * size))
    assert [header.base_offset for header, _ in partition.scan()] == [0, 1, 2]


def test_one_write_call_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.broker.log.fakefs import FakeFile

    partition = Disk().open()
    calls = []
    write = FakeFile.write

    def noted(self: FakeFile, parts: Any, at: int) -> int:
        calls.append(self.path)
        return write(self, parts, at)

    monkeypatch.setattr(FakeFile, "write", noted)
    partition.append(GOOD, now_ms=NOW)
    assert calls == ["/data/t-0/00000000000000000000.log"]


def test_the_header_in_the_file_is_the_one_of_the_batch() -> None:
    disk = Disk()
    partition = disk.open()
    for _ in range(3):
        disk.append(partition, batch(b"a", b"b"))
    data = disk.file("00000000000000000000.log")
    assert [h.base_offset for _, h in iter_headers(data)] == [0, 2, 4]
    assert read_header(data).crc == read_header(batch(b"a", b"b")).crc


def test_records_that_are_too_old_are_refused_where_the_topic_says_so() -> None:
    disk = Disk(LogSettings(timestamp_before_max_ms=1000))
    partition = disk.open()
    disk.append(partition, batch(b"x", timestamp=NOW - 1000))
    with pytest.raises(KafkaError) as caught:
        partition.append(batch(b"x", timestamp=NOW - 1001), now_ms=NOW)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    disk.with_settings(log_append_time=True)
    partition.reconfigure(disk.settings)
    disk.append(partition, batch(b"x", timestamp=0))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_few_bytes_that_unpack_to_many_are_refused(codec: int) -> None:
    """Else a client would take memory and time that others need."""
    large, fine = (
        b"".join(
            build_batch(
                [encode_records([(b"k", bytes(size))], NOW)[HEADER_SIZE:]],
                1,
                base_timestamp=NOW,
                max_timestamp=NOW,
                codec=codec,
            )
        )
        for size in (MOST_UNPACKED, MOST_UNPACKED - 1000)
    )
    for compacted in (True, False):
        settings = LogSettings(compacted=compacted, max_message_bytes=1 << 21)
        assert refused(Disk(settings), large) is ErrorCode.MESSAGE_TOO_LARGE
        Disk(settings).open().append(fine, now_ms=NOW)
