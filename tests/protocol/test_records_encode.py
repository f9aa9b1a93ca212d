"""Records written: columns to batches, and the codecs that compress them."""

from __future__ import annotations

import gzip
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.protocol import columns, compression
from eoslog.protocol import encode as encoding
from eoslog.protocol.compression import CODECS, CompressionError, compress, decompress
from eoslog.protocol.decode import decode_batches
from eoslog.protocol.encode import EncodedBatch, encode_batches
from tests.protocol import oracle
from tests.protocol.oracle import (
    LARGE_HEADERS,
    Rec,
    blobs,
    header_column,
    headers,
    read_back,
    sizes,
    texts,
    times,
)

# -- records ---------------------------------------------------------------------------------------
# Encoding, judged by the slow oracle: what comes out is what went in, in batches within their limit.


HEADER_SIZE = 61
LIMIT = 100_000


def sent(batches: list[EncodedBatch]) -> bytes:
    """The bytes on the wire, offsets given as a broker would."""
    out, offset = b"", 0
    for one in batches:
        data = bytearray(b"".join(one.finish()))
        data[:8] = offset.to_bytes(8, "big")
        out, offset = out + bytes(data), offset + one.count
    return out


def read(batches: list[EncodedBatch]) -> list[Rec]:
    return read_back(oracle.decode(sent(batches)))


def expected(rows: list[tuple[Any, Any, Any, int]]) -> list[Rec]:
    return [
        Rec(key, value.encode() if isinstance(value, str) else value, time, row_headers or [], offset)
        for offset, (key, value, row_headers, time) in enumerate(rows)
    ]


rows_with = st.lists(st.tuples(blobs, texts, st.none() | headers, times), min_size=1, max_size=12)
binary = st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()])
string = st.sampled_from([pa.string(), pa.large_string(), pa.string_view()])


@settings(deadline=None)
@given(rows_with, binary, string, st.integers(0, 3), st.integers(0, 300), st.data())
def test_columns_of_any_kind(
    rows: list[Any],
    key_type: pa.DataType,
    value_type: pa.DataType,
    codec: int,
    limit: int,
    data: st.DataObject,
) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))  # sliced columns begin in the middle of their memory
    keys, values, lists, moments = ([row[i] for row in rows] for i in range(4))
    kind = data.draw(st.sampled_from([None, LARGE_HEADERS]))
    batches = encode_batches(
        pa.array(keys, key_type)[start:],
        pa.array(values, value_type)[start:],
        (header_column(lists, kind) if kind else header_column(lists))[start:],
        pa.array(moments, pa.int64())[start:],
        codec=codec,
        max_batch_bytes=limit,
    )
    assert read(batches) == expected(rows[start:])
    for one in batches:
        assert one.count == 1 or one.size <= limit
        assert one.size == len(b"".join(one.finish()))


equally_long = st.none() | sizes | st.sampled_from([150, 20_000])


@settings(deadline=None, max_examples=60)
@given(equally_long, equally_long, st.integers(0, 3), st.data())
def test_records_of_equal_length(key: int | None, value: int | None, codec: int, data: st.DataObject) -> None:
    """They have a way of their own: the oracle reads them, and they are what all other rows would be."""
    longest = 20_000 if (key or 0) + (value or 0) < 100 else 100
    count = data.draw(st.integers(1, longest) | st.sampled_from([63, 64, 65, longest]))
    limit = data.draw(st.sampled_from([0, 5_000, 10**6]))
    start = data.draw(st.integers(0, min(count - 1, 3)))
    groups = sorted({data.draw(st.integers(1, count)) for _ in range(data.draw(st.integers(0, 3)))})
    numbers = range(count)
    columns_of = [
        pa.array(
            [None if size is None else (b"%d" % number * size)[:size] for number in numbers], pa.binary()
        )
        for size in (key, value)
    ]
    moment = data.draw(times)

    def encoded() -> list[EncodedBatch]:
        keys, values = (column[start:] for column in columns_of)
        inside = [group for group in groups if group < count - start]
        return encode_batches(keys, values, None, moment, codec=codec, max_batch_bytes=limit, groups=inside)

    batches = encoded()
    rows = zip(*(column.to_pylist()[start:] for column in columns_of), strict=True)
    assert read(batches) == expected([(*row, None, moment) for row in rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "_as_table", lambda *_: None)
        general = encoded()
    assert [(b.count, b.size, bytes(b"".join(b.parts))) for b in batches] == [
        (b.count, b.size, bytes(b"".join(b.parts))) for b in general
    ]


def test_equal_lengths_are_taken_for_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that differ in a length, a time, or have a null among others, have to take the other way."""
    asked = []

    def joined(*rows: Any, **more: Any) -> list[bytes]:
        asked.append(rows)
        return [b""]

    monkeypatch.setattr(encoding, "_joined", joined)

    def goes_the_other_way(keys: list[Any], values: list[Any], moments: Any = 5) -> bool:
        asked.clear()
        encode_batches(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), None, moments,
                       codec=0, max_batch_bytes=LIMIT)  # fmt: skip
        return bool(asked)

    assert not goes_the_other_way([b"a", b"b"], [b"cc", b"dd"])
    assert not goes_the_other_way([None, None], [b"", b""])
    assert goes_the_other_way([b"a", b"bb"], [b"c", b"d"])
    assert goes_the_other_way([b"a", b"b"], [b"c", b""])
    assert goes_the_other_way([b"a", None], [b"c", b"d"])
    assert goes_the_other_way([b"", None], [b"c", b"d"])
    assert goes_the_other_way([b"a", b"b"], [b"c", b"d"], pa.array([5, 6]))


def holds_only_itself(part: Any) -> bool:
    """Whether what keeps these bytes alive has no others."""
    return isinstance(part, bytes) or memoryview(part.obj).nbytes == part.nbytes


@settings(deadline=None)
@given(st.lists(rows_with, min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 300))
def test_groups_together_are_what_each_is_alone(groups: list[list[Any]], codec: int, limit: int) -> None:
    """No batch has rows of two groups, and each is the same, byte for byte, as when its group is alone."""

    def encoded(rows: list[Any], begins: list[int]) -> list[EncodedBatch]:
        keys, values, lists, _ = ([row[i] for row in rows] for i in range(4))
        return encode_batches(
            pa.array(keys, pa.binary()), pa.array(values, pa.string()), header_column(lists), 5,
            codec=codec, max_batch_bytes=limit, groups=begins,
        )  # fmt: skip

    begins = list(itertools.accumulate(map(len, groups)))[:-1]
    together = encoded([row for rows in groups for row in rows], begins)
    alone = [one for rows in groups for one in encoded(rows, [])]
    assert [b"".join(one.finish()) for one in together] == [b"".join(one.finish()) for one in alone]
    if len(groups) > 1:
        assert all(holds_only_itself(part) for one in together for part in one.parts), "memory of its own"


@settings(deadline=None)
@given(st.lists(rows_with, min_size=1, max_size=4))
def test_chunked_columns(chunks: list[list[Any]]) -> None:
    def column(index: int, kind: pa.DataType) -> pa.ChunkedArray:
        return pa.chunked_array([[row[index] for row in rows] for rows in chunks], kind)

    lists = pa.chunked_array([header_column([row[2] for row in rows]) for rows in chunks])
    batches = encode_batches(
        column(0, pa.binary()), column(1, pa.string()), lists, column(3, pa.int64()),
        codec=0, max_batch_bytes=LIMIT,
    )  # fmt: skip
    assert read(batches) == expected([row for rows in chunks for row in rows])


@settings(deadline=None)
@given(rows_with, st.integers(0, 4), st.integers(62, 500))
def test_round_trip_with_every_codec(rows: list[Any], codec: int, limit: int) -> None:
    keys, values, lists, moments = ([row[i] for row in rows] for i in range(4))
    batches = encode_batches(
        pa.array(keys, pa.binary()), pa.array(values, pa.string()), header_column(lists), np.array(moments),
        codec=codec, max_batch_bytes=limit,
    )  # fmt: skip
    decoded = decode_batches(sent(batches), headers=True)
    assert decoded.key.to_pylist() == keys
    assert decoded.value.cast(pa.string()).to_pylist() == values
    assert decoded.timestamp.to_pylist() == moments
    assert decoded.offset.to_pylist() == list(range(len(rows)))
    assert decoded.headers is not None
    assert [[(h["key"], h["value"]) for h in row] for row in decoded.headers.to_pylist()] == [
        row or [] for row in lists
    ]


def encode(
    key: Any = None, value: Any = None, lists: Any = None, times: Any = 5, **options: Any
) -> list[Any]:
    return encode_batches(
        key, value, lists, times, codec=options.get("codec", 0), max_batch_bytes=options.get("limit", LIMIT)
    )


def test_nulls_that_hide_bytes() -> None:
    """Arrow allows a null to stand over bytes; they must not be sent."""
    offsets, data = pa.py_buffer(np.array([0, 3, 6, 9], np.int32)), pa.py_buffer(b"abcdefghi")
    valid = pa.py_buffer(bytes([0b101]))
    values = pa.Array.from_buffers(pa.binary(), 3, [valid, offsets, data])
    structs = pa.array([{"key": k, "value": None} for k in "xyz"], columns_type())
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), structs, mask=pa.array([False, True, False])
    )
    assert [(r.value, r.headers) for r in read(encode(values, values, lists))] == [
        (b"abc", [("x", None)]),
        (None, []),
        (b"ghi", [("z", None)]),
    ]


def columns_type() -> pa.DataType:
    return pa.struct([("key", pa.string()), ("value", pa.binary())])


def test_missing_columns_are_null_in_every_row() -> None:
    rows = read(encode(value=pa.array([b"v", None])))
    assert [(r.key, r.value, r.headers, r.timestamp) for r in rows] == [
        (None, b"v", [], 5),
        (None, None, [], 5),
    ]
    assert [r.value for r in read(encode(pa.array([b"k"]), pa.nulls(1), pa.nulls(1)))] == [None]


def test_one_time_for_all() -> None:
    for time in (7, np.int64(7), pa.array([7, 7]), pa.array([7, 7], pa.int32()), np.array([7, 7], np.int32)):
        assert [r.timestamp for r in read(encode(pa.array([b"a", b"b"]), times=time))] == [7, 7]


def test_no_rows_make_no_batches() -> None:
    assert (
        encode(pa.array([], pa.binary()), pa.array([], pa.string()), header_column([]), np.array([], int))
        == []
    )
    assert encode(pa.chunked_array([], pa.binary())) == []


@pytest.mark.parametrize(
    ("unit", "moments", "ms"),
    [
        ("s", [2, -1], [2000, -1000]),
        ("ms", [7, 8], [7, 8]),
        ("us", [1999, -1], [1, -1]),
        ("ns", [10**6, 1], [1, 0]),
    ],
)
def test_arrow_timestamps_become_ms(unit: str, moments: list[int], ms: list[int]) -> None:
    column = pa.array(moments, pa.timestamp(unit, "UTC"))
    assert [r.timestamp for r in read(encode(pa.array([b"", b""]), times=column))] == ms


def test_first_time_is_the_base_and_the_greatest_the_maximum() -> None:
    keys = pa.array([b"k" * 50] * 6)
    first, second = encode(keys, times=np.array([50, 10, 90, 7, 70, 30]), limit=HEADER_SIZE + 3 * 60)
    assert (first.count, first.base_timestamp, first.max_timestamp) == (3, 50, 90)
    assert (second.count, second.base_timestamp, second.max_timestamp) == (3, 7, 70)


def test_a_batch_is_filled_up_to_its_limit() -> None:
    batches = encode(value=pa.array([b"v" * 100] * 10_000), times=np.arange(10_000), limit=10_000)
    assert all(9_700 < one.size <= 10_000 for one in batches[:-1])
    assert sum(one.count for one in batches) == 10_000


@pytest.mark.parametrize("far", [0, 2**40, 2**63 - 1])
@pytest.mark.parametrize("count", [60, 20_000])
def test_the_limit_holds_where_deltas_are_most_of_a_record(far: int, count: int) -> None:
    times = np.array([0, far] * (count // 2))
    batches = encode(value=pa.nulls(count, pa.binary()), times=times, limit=6_000)
    assert sum(one.count for one in batches) == count
    assert all(one.size <= 6_000 for one in batches)
    assert decode_batches(sent(batches)).timestamp.to_pylist() == times.tolist()


def test_the_limit_is_used_up_to_the_last_byte_where_lengths_are_known() -> None:
    value = pa.array([b""] * 64)
    exact = encode(value=value)[0].size
    assert len(encode(value=value, limit=exact + 64)) == 1
    assert len(encode(value=value, limit=exact - 1)) == 2


def test_a_record_above_the_limit_stands_alone() -> None:
    batches = encode(value=pa.array([b"a", b"b" * 5000, b"c", b"d"]), limit=200)
    assert [one.count for one in batches] == [1, 1, 2]
    assert [len(r.value or b"") for r in read(batches)] == [1, 5000, 1, 1]


def test_sections_that_would_grow_are_sent_plain() -> None:
    value = pa.array([bytes(range(256))])
    for codec in range(1, 5):
        (one,) = encode(value=value, codec=codec)
        assert one.codec == 0
        (one,) = encode(value=pa.array([b"a" * 1000]), codec=codec)
        assert (one.codec, one.size < 200) == (codec, True)


def test_identity_and_sequence_are_given_at_the_end() -> None:
    one, two = encode(value=pa.array([b"v" * 40] * 4), limit=160)
    (batch,) = oracle.decode(b"".join(one.finish(77, 3, 2**31 - 2, True)))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 2**31 - 2)
    assert (batch.transactional, batch.control, batch.base_offset, batch.last_offset_delta) == (
        True,
        False,
        0,
        1,
    )
    (plain,) = oracle.decode(b"".join(two.finish()))
    assert (plain.producer_id, plain.producer_epoch, plain.base_sequence) == (-1, -1, -1)
    assert not plain.transactional


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((pa.array([1, 2]), None, None, 0), "key has type int64"),
        ((None, pa.array([[b"x"]]), None, 0), "value has type list"),
        ((pa.array([b"a"]), pa.array([b"a", b"b"]), None, 0), "unequal lengths"),
        ((None, None, None, 0), "no column"),
        ((pa.array([b"a"]), None, pa.array([["x"]]), 0), "headers have type"),
        ((pa.array([b"a"]), None, header_column([[(None, b"v")]]), 0), "key is null"),  # type: ignore[list-item]
        ((pa.array([b"a"]), None, pa.array([[None]], pa.list_(columns_type())), 0), "null element"),
        ((pa.array([b"a"]), None, None, pa.array([None], pa.int64())), "timestamps are null"),
        ((pa.array([b"a"]), None, None, pa.array(["now"])), "timestamps have type string"),
    ],
)
def test_columns_that_cannot_be_sent(arguments: tuple[Any, Any, Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(*arguments)


def test_unknown_codec() -> None:
    with pytest.raises(compression.CompressionError, match="codec 7"):
        encode(value=pa.array([b"v"]), codec=7)


def test_columns_above_what_32_bit_offsets_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit lowered, as 2 GiB are a lot for a test."""
    monkeypatch.setattr(columns, "ARROW_32", 50)
    rows = [(b"k" * i, "v" * i, [("h", b"w" * i)], i) for i in range(20)]
    keys, values = [row[0] for row in rows], [row[1] for row in rows]
    lists: list[list[tuple[str, Any]] | None] = [[*row[2]] for row in rows]
    moments = [row[3] for row in rows]
    chunked = pa.chunked_array([keys[:7], keys[7:]], pa.binary())
    batches = encode(chunked, pa.array(values), header_column(lists), np.array(moments), limit=300)
    assert read(batches) == expected(rows)


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5) | st.integers(-(2**33), 2**33) | st.integers(65_530, 65_541)))
def test_numbers_in_order(numbers: list[int]) -> None:
    """Whatever they span: short numbers are sorted in another way than long ones."""
    found = columns.stable_order(np.array(numbers, np.int64)).tolist()
    assert found == sorted(range(len(numbers)), key=numbers.__getitem__)


# -- codecs ----------------------------------------------------------------------------------------
# The codecs: what we write any client can read, what any client writes we read, and nothing fills memory.


GZIP, SNAPPY, LZ4, ZSTD = (CODECS[name] for name in ("gzip", "snappy", "lz4", "zstd"))

noise = random.Random(0).randbytes(150_000)
text = b"".join(b"line %d of some text; " % (i * i) for i in range(9_000))  # more than three blocks of 64 KiB
SAMPLES = {"empty": b"", "byte": b"x", "noise": noise, "text": text, "both": noise[:70_000] + text}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("codec", range(5))
def test_round_trip(codec: int, name: str) -> None:
    data = SAMPLES[name]
    assert decompress(codec, compress(codec, [data])) == data
    assert (
        decompress(codec, compress(codec, [data[:10], bytearray(data[10:50]), memoryview(data)[50:]])) == data
    )


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_others_can_read_what_we_write(codec: int, name: str) -> None:
    """The oracle reads as strictly as the Java client: snappy-java's framing, independent LZ4 blocks."""
    assert oracle.UNWRAP[codec](compress(codec, [SAMPLES[name]])) == SAMPLES[name]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_text_shrinks(codec: int) -> None:
    assert len(compress(codec, [text])) < len(text) / 2


def arrow(name: str) -> Callable[[bytes], bytes]:
    """As the C libraries under librdkafka compress: raw snappy, linked LZ4 blocks, zstd with its size."""
    return lambda data: bytes(pa.Codec(name).compress(data, asbytes=True))


def streamed_zstd(data: bytes) -> bytes:
    """Without the content's size in front, as the Java client's streams write it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


FORMS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip.compress),
    "gzip in two members": (GZIP, lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "raw snappy": (SNAPPY, arrow("snappy")),
    "raw snappy of literals": (SNAPPY, oracle.wrap_snappy),
    "framed snappy": (SNAPPY, oracle.wrap_xerial),
    "lz4 of linked blocks": (LZ4, arrow("lz4")),
    "lz4 of stored blocks": (LZ4, oracle.wrap_lz4),
    "zstd with its size": (ZSTD, arrow("zstd")),
    "zstd without its size": (ZSTD, streamed_zstd),
    "zstd of raw blocks": (ZSTD, oracle.wrap_zstd),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("form", FORMS)
def test_we_can_read_what_others_write(form: str, name: str) -> None:
    codec, wrap = FORMS[form]
    assert decompress(codec, wrap(SAMPLES[name])) == SAMPLES[name]
    assert decompress(codec, memoryview(bytearray(wrap(SAMPLES[name])))) == SAMPLES[name]


def test_a_lz4_frame_of_linked_blocks_is_not_what_we_write() -> None:
    """pyarrow's frames would be refused by Kafka's LZ4 reader: this is why we make our own."""
    with pytest.raises(oracle.Broken, match="depend"):
        oracle.unwrap_lz4(arrow("lz4")(text))


@pytest.mark.parametrize("form", FORMS)
def test_output_is_bounded(form: str) -> None:
    codec, wrap = FORMS[form]
    data = bytes(1_000_000)
    assert decompress(codec, wrap(data), max_size=len(data)) == data
    for limit in (len(data) - 1, 1000, 0):
        with pytest.raises(CompressionError, match="more than"):
            decompress(codec, wrap(data), max_size=limit)


def test_plain_sections_are_bounded_too() -> None:
    with pytest.raises(CompressionError, match="more than"):
        decompress(0, b"abc", max_size=2)


def test_a_snappy_block_that_claims_to_be_huge_costs_nothing() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff"):
        with pytest.raises(CompressionError):
            decompress(SNAPPY, claim + b"\0a")


@pytest.mark.parametrize("form", FORMS)
def test_cut_input_is_refused(form: str) -> None:
    codec, wrap = FORMS[form]
    data = wrap(text[:3000])
    for end in [*range(40), *range(len(data) - 30, len(data))]:
        if oracle_accepts_cut(form, data, end):
            continue
        with pytest.raises(CompressionError):
            decompress(codec, data[:end])


def oracle_accepts_cut(form: str, data: bytes, end: int) -> bool:
    """Forms made of pieces are whole after each piece: only the records' structure tells the difference."""
    if form == "gzip in two members":
        return end == len(gzip.compress(text[:9]))
    return form == "framed snappy" and end in {16, *framed_ends(data)}


def framed_ends(data: bytes) -> list[int]:
    ends, pos = [], 16
    while pos < len(data):
        pos += 4 + int.from_bytes(data[pos : pos + 4], "big")
        ends.append(pos)
    return ends


@settings(deadline=None)
@given(st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), st.binary(max_size=60))
def test_garbage_is_refused_or_read_but_nothing_else(codec: int, garbage: bytes) -> None:
    for data in (garbage, compress(codec, [text[:100]])[:20] + garbage, compression._XERIAL_HEADER + garbage):
        try:
            result = decompress(codec, data, 10_000)
        except CompressionError as error:
            assert "more than" in str(error) or "damaged" in str(error)
        else:
            assert len(result) <= 10_000


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(CompressionError, match="unknown"):
        compress(codec, [b""])
    with pytest.raises(CompressionError, match="unknown"):
        decompress(codec, b"")


def test_names_and_numbers() -> None:
    assert CODECS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    assert compression.NAMES[3] == "lz4"
