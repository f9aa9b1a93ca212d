"""Damaged batches: refused with their offset named, or read exactly as the oracle reads them.

The CRC is made to match after the damage, so that the structure alone has to give it away.
"""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.protocol import length_chains
from eoslog.protocol.batch import CorruptBatch, iter_headers, read_header
from eoslog.protocol.decode import decode_batches
from tests.protocol import oracle
from tests.protocol.batches import read_back, records, rows_of, with_right_crc
from tests.protocol.oracle import Batch, Rec

GOOD = Batch([Rec(b"k", b"v", 0, [("h", b"x")], i) for i in range(3)], last_offset_delta=2)


def oracle_reads(data: bytes) -> list[Rec] | None:
    """The rows, or None where the batches break the format."""
    try:
        batches = oracle.decode(data)
    except (oracle.Broken, OSError, EOFError, struct.error, ValueError):
        return None
    for batch in batches:
        offsets = [record.offset - batch.base_offset for record in batch.records]
        within = range(batch.last_offset_delta + 1)
        if offsets != sorted(set(offsets)) or not all(offset in within for offset in offsets):
            return None
    return read_back(batches)


def judge(data: bytes) -> bool:
    """Whether it was read; fails where we and the oracle differ."""
    expected = oracle_reads(data)
    if expected is None:
        with pytest.raises(CorruptBatch):
            decode_batches(data, headers=True)
        return False
    assert rows_of(decode_batches(data, headers=True)) == expected
    return True


uncompressed = records(st.integers(0, 2)).map(lambda batch: with_codec(batch, 0))


def with_codec(batch: Batch, codec: int) -> Batch:
    batch.codec = codec
    return batch


@settings(deadline=None, max_examples=150)
@given(st.lists(uncompressed, min_size=1, max_size=3), st.sampled_from([1, 64]), st.data())
def test_flipped_bytes_of_records(batches: list[Batch], least: int, data: st.DataObject) -> None:
    encoded = [bytearray(oracle.encode(batch)) for batch in batches]
    for _ in range(data.draw(st.integers(1, 3))):
        victim = data.draw(st.sampled_from(encoded))
        at = data.draw(st.integers(61, min(len(victim) - 1, 161)))
        victim[at] = data.draw(st.integers(0, 255) | st.sampled_from([0x7F, 0x80, 0xFF]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(length_chains, "LOCKSTEP_LEAST", least)
        judge(b"".join(with_right_crc(bytes(batch)) for batch in encoded))


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, 12, 14, 16, 127, 128, 255]), max_size=40), st.integers(0, 6))
def test_small_numbers_in_any_order(section: list[int], count: int) -> None:
    """Sections made of what lengths are made of: more often almost right than flips are."""
    batch = Batch([Rec(None, None)] * count, last_offset_delta=6)
    judge(oracle.encode(batch, bytes(section)))


@settings(deadline=None)
@given(uncompressed, st.integers(0, 60), st.data())
def test_cut_and_lengthened_sections(batch: Batch, more: int, data: st.DataObject) -> None:
    encoded = oracle.encode(batch)
    cut = data.draw(st.integers(61, len(encoded)))
    section = encoded[61:cut] + bytes(more)
    read = judge(oracle.encode(batch, section))
    assert not read or len(section) == len(encoded) - 61, "as many zeros as were cut off may be a value's end"


@settings(deadline=None)
@given(records(st.just(0)), st.integers(1, 3), st.data())
def test_damaged_compression(batch: Batch, codec: int, data: st.DataObject) -> None:
    """Whatever comes out of a damaged stream, it is an error or whole records, never a crash."""
    encoded = bytearray(oracle.encode(with_codec(batch, codec)))
    at = data.draw(st.integers(61, min(len(encoded) - 1, 161)))
    encoded[at] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_batches(with_right_crc(bytes(encoded)), headers=True)
    except CorruptBatch as error:
        assert error.offset == batch.base_offset
    else:
        assert len(decoded) == len(batch.records)


@settings(deadline=None, max_examples=150)
@given(records(st.just(0)), st.data())
def test_damaged_headers(batch: Batch, data: st.DataObject) -> None:
    encoded = bytearray(oracle.encode(batch))
    for at in data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=4)):
        encoded[at] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_batches(with_right_crc(bytes(encoded)), headers=True)
    except ValueError as error:
        assert isinstance(error, CorruptBatch) or "control batch" in str(error)
    else:
        assert len(decoded) in (0, len(batch.records))  # 0: seems to be longer than what is there


def test_wrong_crc_is_told_with_the_offset() -> None:
    good, bad = oracle.encode(GOOD), bytearray(oracle.encode(GOOD))
    bad[:8], bad[-1] = (500).to_bytes(8, "big"), bad[-1] ^ 1
    with pytest.raises(CorruptBatch, match="500 to 502: its bytes do not match its CRC") as caught:
        decode_batches(good + bytes(bad))
    assert caught.value.offset == 500
    assert len(decode_batches(good + bytes(bad), check_crc=False)) == 6


def test_the_damaged_batch_among_many_is_named() -> None:
    many = [bytearray(oracle.encode(GOOD)) for _ in range(200)]
    for index, one in enumerate(many):
        one[:8] = (1000 * index).to_bytes(8, "big")
    for index in (0, 77, 199):
        damaged = [bytes(one) for one in many]
        damaged[index] = with_right_crc(damaged[index][:61] + b"\x02" + damaged[index][62:])
        with pytest.raises(CorruptBatch, match="do not fill it") as caught:
            decode_batches(b"".join(damaged))
        assert caught.value.offset == 1000 * index


@pytest.mark.parametrize(
    ("find", "put", "message"),
    [
        (b"\0\0\x02\x02k", b"\0\0\x02\x03k", "add up"),  # second record: key of -2 bytes
        (b"\0\0\x02\x02k", b"\0\0\x02\x7fk", "add up"),  # key of -64 bytes
        (b"\0\0\x02\x02k", b"\0\0\x02\x7ek", "add up"),  # key beyond the record
        (b"\0\0\x02\x02k", b"\0\0\x00\x02k", "rise"),  # the first's offset again
        (b"\0\0\x02\x02k", b"\0\0\x01\x02k", "rise"),  # an offset before the base
        (b"\0\0\x04\x02k", b"\0\0\x06\x02k", "rise"),  # an offset behind the batch
        (b"\x02v\x02\x02h\x02x", b"\x02v\x01\x02h\x02x", "add up"),  # -1 headers
        (b"\x02v\x02\x02h\x02x", b"\x02v\x00\x02h\x02x", "add up"),  # bytes, but no headers
        (b"\x02v\x02\x02h\x02x", b"\x02v\x06\x02h\x02x", "add up"),  # more headers than bytes for them
        (b"\x02v\x02\x02h\x02x", b"\x02v\x04\x02h\x02x", "headers"),  # a header more than there is
        (b"\x02v\x02\x02h\x02x", b"\x02v\x02\x01\x04hx", "without a key"),
        (b"\x02v\x02\x02h\x02x", b"\x02v\x02\x04hh\x03", "negative length"),  # at the record's end
        (b"\x02v\x02\x02h\x02x", b"\x02v\x02\x02h\x03x", "headers"),  # a header's value of -2 bytes
    ],
)
def test_each_rule(find: bytes, put: bytes, message: str) -> None:
    data = oracle.encode(GOOD)
    assert find in data
    damaged = with_right_crc(data.replace(find, put, 1))
    assert oracle_reads(damaged) is None
    with pytest.raises(CorruptBatch, match=message):
        decode_batches(damaged, headers=True)


@pytest.mark.parametrize("most", range(1, 12))
@pytest.mark.parametrize("which", ["length", "time", "offset", "key", "value", "headers"])
def test_numbers_of_too_many_bytes(which: str, most: int) -> None:
    """Long forms of a small number are legal up to 5 bytes, 10 for the time; the rest adds up in any case."""
    numbers = {"length": 0, "time": 0, "offset": 0, "key": 1, "value": 1, "headers": 0}
    forms = {name: bytes([number]) for name, number in numbers.items()}
    forms[which] = bytes([numbers[which] | 0x80]) + b"\x80" * (most - 1)
    for last in (b"", b"\0"):  # not ended within `most` bytes, or ended with one more
        ended = forms | {which: forms[which] + last}
        body = b"\0" + b"".join(ended[name] for name in ("time", "offset", "key", "value", "headers"))
        length = bytes([2 * len(body)])
        if which == "length":
            length = bytes([2 * len(body) | 0x80]) + ended["length"][1:]
        legal = last != b"" and most + 1 <= (10 if which == "time" else 5)
        assert judge(oracle.encode(Batch([Rec(None, None)]), length + body)) == legal
        assert judge(oracle.encode(Batch([Rec(None, None)]), length + body) * 100) == legal


def test_more_records_than_bytes_for_them() -> None:
    """A count of two thousand million must not be believed."""
    data = oracle.encode(GOOD)
    claimed = with_right_crc(data[:57] + (2**31 - 1).to_bytes(4, "big") + data[61:])
    with pytest.raises(CorruptBatch, match="so few bytes"):
        decode_batches(claimed)


def test_records_where_none_should_be() -> None:
    with pytest.raises(CorruptBatch, match="none should be"):
        decode_batches(oracle.encode(Batch([]), b"\x0c\0\0\0\1\1\0"))


def test_offsets_beyond_64_bits() -> None:
    data = oracle.encode(GOOD)
    for base in (2**63 - 2, 2**64 - 1):
        with pytest.raises(CorruptBatch, match="no such offsets"):
            decode_batches(base.to_bytes(8, "big") + data[8:])


def test_a_header_that_belongs_to_more_bytes() -> None:
    data = oracle.encode(GOOD)
    with pytest.raises(CorruptBatch, match="cut"):
        decode_batches(data[:-1], [(0, read_header(data))])


def test_unknown_codec() -> None:
    for codec in (5, 6, 7):
        data = bytearray(oracle.encode(GOOD))
        data[22] = codec
        with pytest.raises(CorruptBatch, match=f"codec {codec}"):
            decode_batches(with_right_crc(bytes(data)))


def test_every_truncation_of_a_fetch_answer() -> None:
    data = oracle.encode(GOOD) * 2
    for end in range(len(data)):
        assert len(decode_batches(data[:end], headers=True)) == 3 * len(list(iter_headers(data[:end])))
