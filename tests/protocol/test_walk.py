"""A batch is walked without making anything: it can be read to its end exactly if the decoder reads it."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.protocol import walk as walking
from eoslog.protocol.batch import CorruptBatch, PayloadTooLarge, build_batch, read_header
from eoslog.protocol.decode import decode_batches
from eoslog.protocol.plain_records import write_varint
from eoslog.protocol.walk import NO_TIME, Walked, keyless_rows, walk, walk_quickly
from tests.protocol import oracle
from tests.protocol.batches import records, with_right_crc
from tests.protocol.oracle import Batch, Rec

MOST = 1 << 24
BASE = 1_700_000_000_000


def walked(data: bytes) -> Walked:
    return walk(memoryview(data), read_header(data), MOST)


def read(data: bytes) -> Walked | None:
    """What the decoder says about the same batch; None where it refuses, or offsets do not count up."""
    header = read_header(data)
    plain = header._replace(attributes=header.attributes & ~0x08)  # the records' own times
    try:
        found = decode_batches(data, [(0, plain)], headers=True, check_crc=False)
    except (CorruptBatch, PayloadTooLarge):
        return None
    if [offset - header.base_offset for offset in found.offset.to_pylist()] != list(range(header.count)):
        return None
    times = found.timestamp.to_pylist()
    real = [time for time in times if time != NO_TIME]
    return Walked(min(real, default=NO_TIME), max(*times, NO_TIME), found.key.null_count > 0)


def judge(data: bytes) -> bool:
    expected = read(data)
    if expected is None:
        with pytest.raises((CorruptBatch, PayloadTooLarge)):  # a damaged size
            walked(data)
        return False
    assert walked(data) == expected
    return True


def record(number: int, delta: int, key: bytes | None, value: bytes | None, headers: bytes = b"\0") -> bytes:
    def sized(part: bytes | None) -> bytes:
        return write_varint(-1) if part is None else write_varint(len(part)) + part

    body = b"\0" + write_varint(delta) + write_varint(number) + sized(key) + sized(value) + headers
    return write_varint(len(body)) + body


def alike(count: int, deltas: list[int], key: bytes | None, value: bytes | None, **header: Any) -> bytes:
    section = b"".join(record(n, deltas[n % len(deltas)], key, value) for n in range(count))
    options = {"base_timestamp": BASE, "max_timestamp": BASE} | header
    return b"".join(build_batch([section], count, **options))


blobs = st.sampled_from([None, b"", b"k", b"x" * 63, b"x" * 64, b"x" * 300])
rising = st.integers(1, 300).map(lambda step: list(range(0, 200 * step, step)))
close = st.lists(st.integers(-64, 63), min_size=1, max_size=4)
far = st.lists(st.integers(64, 8191), min_size=1, max_size=4)
counts = st.sampled_from([1, 2, 63, 64, 65, 200])


@settings(deadline=None, max_examples=100)
@given(
    counts, close | far | rising, blobs, blobs, st.integers(0, 4), st.sampled_from([BASE, -1, 0, 2**63 - 1])
)
def test_records_of_one_shape(
    count: int, deltas: list[int], key: bytes | None, value: bytes | None, codec: int, base: int
) -> None:
    assert judge(alike(count, deltas, key, value, codec=codec, base_timestamp=base))


def test_records_of_one_shape_are_not_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what makes them cheap."""
    monkeypatch.setattr(walking, "lay_out", None)
    for count in (1, 64, 65, 9000):
        data = alike(count, [0, 5, -3], b"key", b"v" * 90)
        assert walked(data) == Walked(BASE - (3 if count > 1 else 0), BASE + (5 if count > 1 else 0), False)
    assert walked(alike(100, [300, 301], None, b"v")) == Walked(BASE + 300, BASE + 301, True)
    slow = alike(9000, list(range(9000)), b"key", b"v" * 90)  # deltas of one, two and three bytes
    assert walked(slow) == Walked(BASE, BASE + 8999, False)


sizes = st.sampled_from([-1, 0, 1, 5, 63, 64, 90, 300])
fills = st.sampled_from([b"x", b"\0", b"\0\x0c\0", b"\x0c\0", b"a\0\0"])
"""What values are made of: also bytes that look like the end of a record and the begin of the next."""


def uneven(count: int, keys: list[int], values: list[int], deltas: list[int], fill: bytes) -> list[bytes]:
    def blob(size: int) -> bytes | None:
        return None if size < 0 else (fill * (size // len(fill) + 1))[:size]

    rows = range(count)
    return [
        record(n, deltas[n % len(deltas)], blob(keys[n % len(keys)]), blob(values[n % len(values)]))
        for n in rows
    ]


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from([2, 24, 25, 26, 65, 130, 700]),
    st.lists(sizes, min_size=1, max_size=3),
    st.lists(sizes, min_size=2, max_size=5),
    close | far | rising,
    fills,
    st.integers(0, 4),
    st.sampled_from([BASE, -1, 0, 2**63 - 1]),
    st.data(),
)
def test_records_of_many_lengths(
    count: int, keys: list[int], values: list[int], deltas: list[int], fill: bytes, codec: int, base: int,
    data: st.DataObject,
) -> None:  # fmt: skip
    """As they are, and with a flipped byte or two in one of the records."""
    made = uneven(count, keys, values, deltas, fill)
    header: dict[str, Any] = {"base_timestamp": base, "max_timestamp": base, "codec": codec}
    assert judge(b"".join(build_batch(made, count, **header)))
    row = data.draw(st.integers(0, count - 1))
    hurt = bytearray(made[row])
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, min(len(hurt) - 1, 12)) | st.integers(0, len(hurt) - 1))
        hurt[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    judge(b"".join(build_batch([*made[:row], bytes(hurt), *made[row + 1 :]], count, **header)))


@pytest.mark.parametrize("count", [10, 200, 9000])
@pytest.mark.parametrize("fill", [b"x", b"\0\x0c\0"], ids=["text", "zeros"])
def test_records_of_many_lengths_are_not_laid_out(
    count: int, fill: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking, "lay_out", None)
    made = uneven(count, [-1, 3, 70], [20, 90, 0, 300, 50, -1, 64], [0, 4, 70], fill)
    data = b"".join(build_batch(made, count, base_timestamp=BASE, max_timestamp=BASE))
    assert walked(data) == Walked(BASE, BASE + 70, True)
    if fill == b"x":
        assert walk_quickly(memoryview(data), read_header(data)) == walked(data), "on the event loop, too"


def parts(row: int, /, longer: int = 0, **other: bytes) -> bytes:
    """A record of the key "k" and a value, with other bytes in place of these."""
    given = {"delta": write_varint(4), "key": b"\x02k", "value": write_varint(30) + b"v" * 30, "last": b"\0"}
    found = given | {"number": write_varint(row)} | other
    body = b"\0" + b"".join(found[name] for name in ("delta", "number", "key", "value", "last"))
    return other.get("length", write_varint(len(body) + longer)) + body


LONG = write_varint(8_300)
WRONG: dict[str, dict[str, Any]] = {
    "headers that are not there": {"last": b"\x02"},
    "a length above": {"longer": 1},
    "a length below": {"longer": -1},
    "a length whose last byte is among the attributes": {"length": b"\xc8\x80\x80"},
    "a time that goes on in the number": {"delta": b"\x88"},
    "a time that ends early": {"delta": b"\x08\x04"},
    "a key of -2 bytes": {"key": b"\x03"},
    "a key of -2 bytes, and one": {"key": b"\x03k"},
    "a value of -2 bytes": {"value": b"\x03"},
    "a value of -2 bytes, and one": {"value": b"\x03v"},
    "another number": {"number": b"\x02"},
    "more bytes": {"last": b"\0\0\0\0\0"},
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("count", [1, 30, 600])
@pytest.mark.parametrize("value", [(30,), (30, 31, 30, 33, 29)], ids=["alike", "uneven"])
@pytest.mark.parametrize("rows", ["first", "one", "last", "all"])
def test_a_record_with_one_part_wrong(name: str, count: int, value: tuple[int, ...], rows: str) -> None:
    chosen = {"first": {0}, "one": {count // 2}, "last": {count - 1}, "all": set(range(count))}[rows]
    made = []
    for number in range(count):
        size = value[number % len(value)]
        whole = {"value": write_varint(size) + b"v" * size}
        made.append(parts(number, **(whole | WRONG[name] if number in chosen else whole)))
    judge(b"".join(build_batch(made, count, base_timestamp=BASE, max_timestamp=BASE)))


@pytest.mark.parametrize("count", [1, 30, 600])
def test_bytes_behind_the_last_record(count: int) -> None:
    made = [*(parts(number) for number in range(count)), b"\0\0"]
    assert not judge(b"".join(build_batch(made, count, base_timestamp=BASE, max_timestamp=BASE)))


def test_times_of_two_bytes_among_which_one_ends_early() -> None:
    made = [parts(number, delta=write_varint(300)) for number in range(40)]
    made[7] = parts(7, delta=b"\x58\x04")  # as many bytes: the number is 2, then
    assert not judge(b"".join(build_batch(made, 40, base_timestamp=BASE, max_timestamp=BASE)))


def test_heads_that_a_word_does_not_hold() -> None:
    """Time and number take three bytes each. If its third byte were cut, the key would have one byte."""
    made = [parts(n, delta=write_varint(9_000), value=b"\x02v" if n % 2 else b"\x04vv") for n in range(9_000)]
    made[8_999] = parts(8_999, delta=write_varint(9_000), key=b"\x82\x80\x02k")
    assert not judge(b"".join(build_batch(made, 9_000, base_timestamp=BASE, max_timestamp=BASE)))
    made[8_999] = parts(8_999, delta=write_varint(9_000), key=LONG + b"k" * 8_300)
    assert judge(b"".join(build_batch(made, 9_000, base_timestamp=BASE, max_timestamp=BASE)))


def test_what_takes_long_to_find_is_not_walked_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "lay_out", None)
    made = [
        parts(n, value=LONG + b"v" * 8_300 if n % 99 == 50 else b"\x02v" if n % 2 else b"\x04vv")
        for n in range(400)
    ]
    data = b"".join(build_batch(made, 400, base_timestamp=BASE, max_timestamp=BASE))
    assert walk_quickly(memoryview(data), read_header(data)) is None
    assert walked(data) == Walked(BASE + 4, BASE + 4, False)


@pytest.mark.parametrize("codec", range(5))
def test_records_that_only_together_are_as_long_as_so_many_of_the_first(codec: int) -> None:
    sections = [record(number, 0, None, bytes(size)) for number, size in enumerate((20, 10, 30, 35, 5))]
    header: dict[str, Any] = {"base_timestamp": BASE, "max_timestamp": BASE, "codec": codec}
    assert judge(b"".join(build_batch(sections, 5, **header)))
    assert not judge(b"".join(build_batch([*sections[:4], sections[4] + b"\0"], 5, **header)))
    assert not judge(b"".join(build_batch(sections[:4], 5, **header)))


@settings(deadline=None, max_examples=200)
@given(counts, close | far | rising, blobs, blobs, st.data())
def test_flipped_bytes_of_records_of_one_shape(
    count: int, deltas: list[int], key: bytes | None, value: bytes | None, data: st.DataObject
) -> None:
    encoded = bytearray(alike(count, deltas, key, value))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(61, min(len(encoded) - 1, 90)) | st.integers(61, len(encoded) - 1))
        encoded[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    judge(bytes(encoded))


@settings(deadline=None, max_examples=150)
@given(records(st.integers(0, 1)), st.data())
def test_any_records_and_flipped_bytes_of_them(batch: Batch, data: st.DataObject) -> None:
    encoded = bytearray(oracle.encode(batch))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(61, min(len(encoded) - 1, 161)))
        encoded[at] = data.draw(st.integers(0, 255) | st.sampled_from([0x7F, 0x80, 0xFF]))
    judge(with_right_crc(bytes(encoded)))


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, 12, 14, 16, 127, 128, 255]), max_size=40), st.integers(1, 6))
def test_small_numbers_in_any_order(section: list[int], count: int) -> None:
    judge(oracle.encode(Batch([Rec(None, None)] * count, last_offset_delta=6), bytes(section)))


@pytest.mark.parametrize("size", [2, 3, 5, 6, 9, 10, 11])
@pytest.mark.parametrize("field", ["length", "time", "number", "key", "value"])
def test_numbers_that_are_longer_than_they_need_be(field: str, size: int) -> None:
    def long(value: int, mine: str) -> bytes:
        if mine != field:
            return write_varint(value)
        raw = value << 1
        return bytes(raw >> 7 * step & 0x7F | (0x80 if step < size - 1 else 0) for step in range(size))

    body = b"\0" + long(0, "time") + long(0, "number") + long(1, "key") + b"k" + long(1, "value") + b"v\0"
    section = long(len(body), "length") + body
    data = b"".join(build_batch([section], 1, base_timestamp=BASE, max_timestamp=BASE))
    assert judge(data) is (size <= (10 if field == "time" else 5))


@pytest.mark.parametrize("number", [1, 0, 3, -1])
@pytest.mark.parametrize("value", [b"v", b"longer"])
def test_offsets_that_do_not_count_up(number: int, value: bytes) -> None:
    section = record(0, 0, b"k", b"v") + record(number, 0, b"k", value) + record(2, 0, b"k", b"v")
    assert judge(b"".join(build_batch([section], 3, base_timestamp=BASE, max_timestamp=BASE))) is (
        number == 1
    )


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_bytes_of_no_record_in_any_codec(codec: int) -> None:
    for section in (b"garbage", b"", bytes(40)):
        header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(section), -1, 2, 0, codec, 0, 0, 0, -1, -1, -1, 1)
        with pytest.raises(CorruptBatch):
            walked(header + section)


def test_few_bytes_that_unpack_to_many() -> None:
    data = alike(1, [0], b"k", bytes(1 << 20), codec=4)
    with pytest.raises(PayloadTooLarge):
        walk(memoryview(data), read_header(data), 1 << 20)


def test_which_records_have_no_key() -> None:
    section = b"".join(record(n, 0, None if n % 2 else b"k", b"v") for n in range(4))
    data = b"".join(build_batch([section], 4, base_timestamp=BASE, max_timestamp=BASE))
    assert walked(data).keyless
    assert keyless_rows(memoryview(data), read_header(data), MOST) == [1, 3]
