"""What a partition takes, refuses, and stores; how it knows the batches of a producer again."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from eoslog.broker.log.batch_checks import MOST_UNPACKED
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.protocol import batch as protocol_batch
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import HEADER_SIZE, build_batch, iter_headers, read_header
from eoslog.protocol.control import control_batch
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.plain_records import encode_records, iter_records
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create
from tests.broker.log.logkit import (
    DIRECTORY,
    NOW,
    Disk,
    FakeFile,
    Outcome,
    batch,
    clean,
    header_only,
    offsets,
    sequenced,
    stored,
)
from tests.protocol.oracle import with_right_crc


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
    from tests.broker.log.logkit import FakeFile

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


# -- a header is read once -----------------------------------------------------------------------
# On the way of a Produce to the disk the header of a batch is read once, and handed on.


class Counting:
    """Reads and makes headers as `layout` does, and counts how many are read."""

    def __init__(self, layout: struct.Struct) -> None:
        self._layout, self.read = layout, 0

    def unpack_from(self, buf: protocol_batch.Buffer, pos: int) -> tuple[Any, ...]:
        self.read += 1
        return self._layout.unpack_from(buf, pos)

    def pack(self, *values: int) -> bytes:
        return self._layout.pack(*values)


@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
def test_a_produce_reads_each_header_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamped: str
) -> None:
    with EmbeddedBroker(data=tmp_path, in_thread=True) as broker:
        create(broker.bootstrap, "t", **{"message.timestamp.type": stamped})
        host, _, port = broker.bootstrap.rpartition(":")
        with Wire(host, int(port)) as wire:
            parts = [{"index": 0, "records": sequenced(7, 0, 2)}]
            counting = Counting(protocol_batch._HEADER)
            monkeypatch.setattr(protocol_batch, "_HEADER", counting)
            told = wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[{"name": "t", "partition_data": parts}])
            assert counting.read == 1
    (answer,) = told["responses"][0]["partition_responses"]
    assert (answer["error_code"], answer["base_offset"]) == (0, 0)
    data = (tmp_path / "t-0" / "00000000000000000000.log").read_bytes()
    ((at, header),) = protocol_batch.iter_headers(data)
    assert protocol_batch.crc_ok(data, at, header) and header.log_append_time is (stamped == "LogAppendTime")


# -- the last five batches -----------------------------------------------------------------------
# The last five batches of a producer are known through snapshots, replay and compaction, always.

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
