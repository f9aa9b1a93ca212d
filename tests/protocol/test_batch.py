"""Record batches: the header byte for byte, control batches, the walk over batches, sequence numbers."""

import pickle
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.protocol import batch
from eoslog.protocol import walk as walking
from eoslog.protocol.batch import CorruptBatch, PayloadTooLarge, build_batch, iter_headers, read_header
from eoslog.protocol.control import ABORT, COMMIT, control_batch, read_control
from eoslog.protocol.decode import decode_batches
from eoslog.protocol.plain_records import encode_records, write_varint
from eoslog.protocol.sequence import NO_SEQUENCE, add, last_of, next_sequence
from eoslog.protocol.walk import NO_TIME, Walked, keyless_rows, walk, walk_quickly
from tests.protocol import oracle
from tests.protocol.oracle import Batch, Rec, records, stamp, with_right_crc

FORMS: list[Callable[[bytes], Any]] = [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))]


def sample(**facts: Any) -> Batch:
    rows = [Rec(b"k%d" % i, b"v", 100 + i, [], 1000 + i) for i in range(3)]
    return Batch(rows, base_offset=1000, last_offset_delta=2, base_timestamp=100, max_timestamp=102, **facts)


@pytest.mark.parametrize("form", FORMS)
def test_every_field_is_read(form: Callable[[bytes], Any]) -> None:
    facts = sample(
        leader_epoch=9, transactional=True, producer_id=2**40, producer_epoch=5, base_sequence=7, codec=1
    )
    data = oracle.encode(facts)
    header = read_header(form(b"??" + data), 2)
    assert header[:4] == (1000, len(data) - 12, 9, 2)
    assert header[5:] == (0x11, 2, 100, 102, 2**40, 5, 7, 3)
    assert (header.size, header.codec, header.last_offset, header.next_offset) == (len(data), 1, 1002, 1003)
    assert (header.is_transactional, header.is_control, header.log_append_time) == (True, False, False)
    assert header.last_sequence == 9
    assert batch.crc_ok(form(b"??" + data), 2, header)


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"log_append_time": True}, "log_append_time"),
        ({"transactional": True}, "is_transactional"),
        ({"control": True}, "is_control"),
        ({"delete_horizon": True}, "has_delete_horizon"),
    ],
)
def test_attributes(facts: dict[str, bool], name: str) -> None:
    assert getattr(read_header(oracle.encode(sample(**facts))), name)
    assert not getattr(read_header(oracle.encode(sample())), name)


def test_sequences_wrap_within_a_batch() -> None:
    assert read_header(oracle.encode(sample(base_sequence=2**31 - 2))).last_sequence == 0
    assert read_header(oracle.encode(sample())).last_sequence == -1


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("form", FORMS)
def test_built_batches_are_read_by_the_oracle(codec: int, form: Callable[[bytes], Any]) -> None:
    facts = sample(
        codec=codec, producer_id=3, producer_epoch=1, base_sequence=4, transactional=True, leader_epoch=6
    )
    parts = [form(oracle.encode_record(r, 1000, 100)) for r in facts.records]
    built = build_batch(
        parts, 3, base_timestamp=100, max_timestamp=102, codec=codec, producer_id=3, producer_epoch=1,
        base_sequence=4, transactional=True, base_offset=1000, leader_epoch=6,
    )  # fmt: skip
    assert oracle.decode(b"".join(built)) == [facts]
    if not codec:
        assert all(sent is given for sent, given in zip(built[1:], parts, strict=True))  # not copied


def test_another_offset_and_epoch_need_no_other_crc() -> None:
    data = bytearray(oracle.encode(sample()))
    stamp(data, 2**40, 12)
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (2**40, 12)
    assert batch.crc_ok(data, 0, header)
    (stamped,) = oracle.decode(bytes(data))
    assert [r.offset for r in stamped.records] == [2**40, 2**40 + 1, 2**40 + 2]


def test_another_largest_time_and_other_attributes_get_their_crc() -> None:
    data = oracle.encode(sample())
    header = read_header(data)
    assert batch.stamped(memoryview(data), header, header.attributes, header.max_timestamp) is header
    changed = batch.stamped(memoryview(data), header, batch.LOG_APPEND_TIME, 500)
    stored = batch.packed(changed) + data[batch.HEADER_SIZE :]
    assert batch.crc_ok(stored, 0, changed)
    (found,) = oracle.decode(stored)
    assert (found.log_append_time, found.max_timestamp) == (True, 500)


def test_any_changed_byte_under_the_crc_is_seen() -> None:
    data = oracle.encode(sample())
    for at in range(17, len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x10
        assert not batch.crc_ok(changed, 0, read_header(changed))
    assert not batch.crc_ok(data[:-1], 0, read_header(data))


def test_walking_over_batches_stops_at_a_cut_one() -> None:
    one, two = oracle.encode(sample()), oracle.encode(sample(codec=1))
    whole = one + two
    assert [pos for pos, _ in iter_headers(whole)] == [0, len(one)]
    for end in range(len(whole)):
        expected = [0] if end >= len(one) else []
        assert [pos for pos, _ in iter_headers(whole[:end])] == expected


def test_what_cannot_be_a_header() -> None:
    data = oracle.encode(sample())
    with pytest.raises(CorruptBatch, match="61 bytes, 60 are left"):
        read_header(data[:60])
    for magic in (0, 1, 3, 255):
        with pytest.raises(CorruptBatch, match="magic") as caught:
            read_header(data[:16] + bytes([magic]) + data[17:])
        assert caught.value.offset == 1000
    for at, size in ((8, 4), (23, 4), (57, 4)):  # length, last offset delta, count: negative
        with pytest.raises(CorruptBatch, match="is impossible"):
            read_header(data[:at] + b"\xff" * size + data[at + size :])
    with pytest.raises(CorruptBatch, match="is impossible"):
        list(iter_headers(data[:8] + (48).to_bytes(4, "big") + data[12:]))


def test_the_error_survives_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(CorruptBatch("what", 17)))
    assert (str(error), error.offset) == ("what", 17)


@pytest.mark.parametrize(("kind", "number"), [(ABORT, 0), (COMMIT, 1)])
def test_markers(kind: int, number: int) -> None:
    """KIP-98: key int16 version 0, int16 type; value int16 version 0, int32 coordinator epoch."""
    data = control_batch(kind, producer_id=99, producer_epoch=8, coordinator_epoch=258, timestamp=1234)
    (marker,) = oracle.decode(data)
    assert (marker.control, marker.transactional, marker.codec) == (True, True, 0)
    assert (marker.producer_id, marker.producer_epoch, marker.base_sequence) == (99, 8, -1)
    assert marker.records == [Rec(bytes([0, 0, 0, number]), b"\0\0\0\0\x01\x02", 1234, [], 0)]
    assert read_header(data).attributes == 0x30
    assert read_control(data, 0, read_header(data)) == (0, kind, 258)


def control(key: bytes | None, value: bytes | None) -> bytes:
    return oracle.encode(Batch([Rec(key, value)], control=True))


def test_control_records_of_other_makers() -> None:
    newer = control(b"\0\x01\0\x01\xff", b"\0\x05\0\0\0\x07more")
    assert read_control(newer, 0, read_header(newer)) == (1, COMMIT, 7)
    leader_change = control(b"\0\0\0\x02", b"\0\0?")
    assert read_control(leader_change, 0, read_header(leader_change)) == (0, 2, -1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (control(None, b""), "no key"),
        (control(b"\0\0\0", b""), "no key"),
        (control(b"\0\0\0\0", None), "no coordinator epoch"),
        (control(b"\0\0\0\x01", b"\0\0\0\0\0"), "no coordinator epoch"),
        (oracle.encode(Batch([], control=True)), "no key"),
        (encode_records([(b"\0\0\0\x01", b"\0\0\0\0\0\0")], 0), "not a control batch"),
    ],
)
def test_what_is_no_control_record(data: bytes, message: str) -> None:
    with pytest.raises(CorruptBatch, match=message):
        read_control(data, 0, read_header(data))


# -- the walk over records -----------------------------------------------------------------------
# A batch is walked without making anything: it can be read to its end exactly if the decoder reads it.

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


# -- sequence numbers ----------------------------------------------------------------------------
# Sequence numbers go from 2^31-1 back to 0.

TOP = 2**31 - 1


@pytest.mark.parametrize(
    ("start", "count", "result"),
    [(0, 0, 0), (0, 5, 5), (TOP, 1, 0), (TOP, 2, 1), (TOP - 1, 1, TOP), (TOP, TOP, TOP - 1), (0, -1, TOP)],
)
def test_adding(start: int, count: int, result: int) -> None:
    assert add(start, count) == result


def test_after_the_highest_comes_zero() -> None:
    assert next_sequence(TOP) == 0
    assert next_sequence(TOP - 1) == TOP


def test_a_batch_may_span_the_end() -> None:
    assert last_of(TOP - 1, 4) == 1
    assert last_of(TOP, 1) == TOP


def test_no_sequence_stays_none() -> None:
    assert last_of(NO_SEQUENCE, 10) == NO_SEQUENCE


@settings(deadline=None)
@given(st.integers(0, TOP), st.integers(1, 2**20), st.integers(1, 2**20))
def test_batches_follow_each_other(base: int, first: int, second: int) -> None:
    following = next_sequence(last_of(base, first))
    assert following == add(base, first)
    assert last_of(following, second) == add(base, first + second - 1)
