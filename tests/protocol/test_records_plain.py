"""The one-at-a-time codec of the coordinators' topics, against the oracle."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.protocol import batch
from eoslog.protocol.plain_records import Record, encode_records, iter_records
from tests.protocol import oracle
from tests.protocol.batches import read_back, records, with_right_crc, wrap
from tests.protocol.oracle import Batch, Rec

pairs = st.lists(
    st.tuples(st.none() | st.binary(max_size=100), st.none() | st.binary(max_size=9000)), min_size=1
)


@settings(deadline=None)
@given(pairs, st.integers(0, 2**62))
def test_encoding(rows: list[tuple[bytes | None, bytes | None]], timestamp: int) -> None:
    (read,) = oracle.decode(encode_records(rows, timestamp))
    assert read.records == [Rec(key, value, timestamp, [], i) for i, (key, value) in enumerate(rows)]
    assert (read.producer_id, read.producer_epoch, read.base_sequence, read.transactional) == (
        -1,
        -1,
        -1,
        False,
    )
    assert (read.base_timestamp, read.max_timestamp, read.last_offset_delta) == (
        timestamp,
        timestamp,
        len(rows) - 1,
    )


def test_encoding_inside_a_transaction() -> None:
    data = encode_records(
        [(b"k", None)], 1, producer_id=4, producer_epoch=3, base_sequence=2, transactional=True
    )
    (read,) = oracle.decode(data)
    assert (read.producer_id, read.producer_epoch, read.base_sequence, read.transactional) == (4, 3, 2, True)


def test_a_batch_needs_records() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_records([], 0)


def plain(data: bytes) -> list[Record]:
    return [record for pos, header in batch.iter_headers(data) for record in iter_records(data, pos, header)]


@settings(deadline=None)
@given(st.lists(records(st.integers(0, 2)), max_size=3))
def test_decoding(batches: list[Batch]) -> None:
    read = plain(b"".join(map(oracle.encode, batches)))
    assert [Rec(r.key, r.value, r.timestamp, r.headers, r.offset) for r in read] == read_back(batches)


def test_wrong_crc() -> None:
    data = encode_records([(b"k", b"v")], 0)
    with pytest.raises(batch.CorruptBatch, match="CRC"):
        plain(data[:-1] + b"\x01")


@settings(deadline=None)
@given(st.data())
def test_damage_is_refused_as_the_oracle_does(data: st.DataObject) -> None:
    undamaged = data.draw(records(st.just(0)))
    undamaged.codec = 0
    whole = bytearray(oracle.encode(undamaged))
    at = data.draw(st.integers(61, min(len(whole) - 1, 161)))
    whole[at] = data.draw(st.integers(0, 255))
    damaged = with_right_crc(bytes(whole))
    try:
        expected = read_back(oracle.decode(damaged))
    except oracle.Broken:
        with pytest.raises(batch.CorruptBatch):
            plain(damaged)
    else:
        rows = [Rec(r.key, r.value, wrap(r.timestamp), r.headers, r.offset) for r in plain(damaged)]
        assert rows == expected
