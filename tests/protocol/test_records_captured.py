"""Batches that other clients wrote, from the files in `captures/`: their bytes are read, and read right."""

from pathlib import Path

import pytest

from eoslog.protocol import batch, compression, control
from eoslog.protocol.decode import decode_batches
from eoslog.protocol.plain_records import iter_records
from tests.protocol import capture
from tests.protocol.batches import rows_of
from tests.protocol.stamp import stamp

CAPTURES = Path(__file__).parent / "captures"


def captured(name: str) -> bytes:
    return (CAPTURES / f"{name}.bin").read_bytes()


@pytest.mark.parametrize("codec", capture.CODECS)
def test_confluent_kafka(codec: str) -> None:
    data = captured(f"confluent-{codec}")
    assert {header.codec for _, header in batch.iter_headers(data)} == {compression.CODECS[codec]}
    rows = rows_of(decode_batches(data, headers=True))
    assert [(r.key, r.value, r.headers, r.timestamp) for r in rows] == capture.rows(codec)
    assert [r.offset for r in rows] == list(range(len(rows)))


@pytest.mark.parametrize("codec", capture.CODECS)
def test_kafka_console_producer(codec: str) -> None:
    data = captured(f"java-{codec}")
    assert {header.codec for _, header in batch.iter_headers(data)} == {compression.CODECS[codec]}
    rows = rows_of(decode_batches(data, headers=True))
    assert [(r.key, r.value, r.headers) for r in rows] == capture.java_rows(codec)
    assert [r.offset for r in rows] == list(range(len(rows)))
    assert all(r.timestamp > capture.rows(codec)[0][3] for r in rows)


@pytest.mark.parametrize("name", sorted(path.stem for path in CAPTURES.glob("*.bin")))
def test_one_at_a_time(name: str) -> None:
    data = captured(name)
    batches = [(pos, h) for pos, h in batch.iter_headers(data) if not h.is_control]
    plain = [record for pos, header in batches for record in iter_records(data, pos, header)]
    columns = rows_of(decode_batches(data, batches, headers=True))
    assert [(r.key, r.value, r.timestamp, r.headers, r.offset) for r in columns] == [
        (r.key, r.value, r.timestamp, r.headers, r.offset) for r in plain
    ]


def test_frames_span_several_blocks() -> None:
    for client in ("confluent", "java"):
        for codec in ("snappy", "lz4", "zstd", "gzip"):
            data = captured(f"{client}-{codec}")
            section = compression.decompress(compression.CODECS[codec], data[batch.HEADER_SIZE :])
            assert len(section) > 80_000


def test_librdkafka_writes_raw_snappy_and_java_framed() -> None:
    assert captured("java-snappy")[61:69] == b"\x82SNAPPY\0"
    assert captured("confluent-snappy")[61:69] != b"\x82SNAPPY\0"


def test_transactions_and_their_markers() -> None:
    data = captured("confluent-transactions")
    batches = list(batch.iter_headers(data))
    assert [(h.is_control, h.is_transactional, h.count) for _, h in batches] == [
        (False, True, 5), (True, True, 1), (False, True, 5), (True, True, 1),
    ]  # fmt: skip
    assert all(batch.crc_ok(data, pos, header) for pos, header in batches)
    (_, first), commit, (_, second), abort = batches
    assert control.read_control(data, *commit).type == control.COMMIT
    assert control.read_control(data, *abort).type == control.ABORT
    assert (first.base_sequence, first.last_sequence, first.next_offset) == (0, 4, commit[1].base_offset)
    assert len({h.producer_id for _, h in batches}) == 1
    assert second.base_offset == commit[1].next_offset


def test_our_marker_is_kafka_s_marker() -> None:
    data = captured("confluent-transactions")
    for pos, header in batch.iter_headers(data):
        if header.is_control:
            marker = control.read_control(data, pos, header)
            facts = (
                header.producer_id,
                header.producer_epoch,
                marker.coordinator_epoch,
                header.max_timestamp,
            )
            ours = bytearray(control.control_batch(marker.type, *facts))
            stamp(ours, header.base_offset, header.leader_epoch)
            assert ours == data[pos : pos + header.size]
