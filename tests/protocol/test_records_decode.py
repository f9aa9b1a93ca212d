"""Decoding against the slow oracle: batches of any shape, many at once, few at once."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.protocol import batch, control, decode, length_chains
from eoslog.protocol.decode import decode_batches
from tests.protocol import oracle
from tests.protocol.batches import read_back, records, rows_of
from tests.protocol.oracle import Batch, Rec

no_gaps, gaps = st.just(0), st.integers(0, 3)


def encoded(batches: list[Batch]) -> bytes:
    return b"".join(map(oracle.encode, batches))


@settings(deadline=None)
@given(st.lists(records(no_gaps) | records(gaps), max_size=6))
def test_few_batches(batches: list[Batch]) -> None:
    assert rows_of(decode_batches(encoded(batches), headers=True)) == read_back(batches)


@settings(deadline=None)
@given(st.lists(records(no_gaps) | records(gaps), min_size=1, max_size=12), st.integers(1, 5))
def test_many_batches(batches: list[Batch], least: int) -> None:
    many = batches * 3
    with pytest.MonkeyPatch.context() as patch:  # so that lockstep and single walks share the work
        patch.setattr(length_chains, "LOCKSTEP_LEAST", least)
        assert rows_of(decode_batches(encoded(batches) * 3, headers=True)) == read_back(many)


def numbered(count: int, size: int, base_offset: int = 0) -> Batch:
    rows = [Rec(b"%d" % i, b"v" * (size + i % 2), i, [], base_offset + i) for i in range(count)]
    return Batch(rows, base_offset, last_offset_delta=count - 1)


def test_hundreds_of_batches_of_all_counts() -> None:
    """With the thresholds as they are."""
    batches = [numbered(1 + i * 7 % 23, i % 200, 1000 * i) for i in range(300)]
    assert rows_of(decode_batches(encoded(batches))) == read_back(batches)


def test_one_long_batch_among_short_ones() -> None:
    batches = [numbered(1, 5, i) for i in range(100)] + [numbered(3000, 70, 100)]
    assert rows_of(decode_batches(encoded(batches))) == read_back(batches)


@pytest.mark.parametrize("size", [0, 50, 100, 9000])
def test_records_of_equal_length(size: int) -> None:
    rows = [Rec(None, bytes([i]) * size, 0, [], i) for i in range(50)]
    batches = [Batch(rows, last_offset_delta=49)] * 3
    assert rows_of(decode_batches(encoded(batches))) == read_back(batches)


def test_unequal_records_that_look_equal_from_the_first() -> None:
    """The first record's length divides the section, but the others have other lengths."""
    sizes = [10, 9, 11, 8, 12]
    rows = [Rec(None, b"x" * size, 0, [], i) for i, size in enumerate(sizes)]
    batches = [Batch(rows, last_offset_delta=4)]
    assert len({len(oracle.encode_record(row, 0, 0)) for row in rows}) > 1
    assert rows_of(decode_batches(encoded(batches) * 70)) == read_back(batches * 70)


def test_timestamp_type_tells_who_set_the_time() -> None:
    rows = [Rec(b"", b"", 7, [], 0), Rec(b"", b"", 5, [], 1)]
    by_broker = Batch(rows, last_offset_delta=1, log_append_time=True, base_timestamp=7, max_timestamp=99)
    by_producer = Batch(rows, last_offset_delta=1, base_timestamp=7, max_timestamp=7)
    decoded = decode_batches(encoded([by_broker, by_producer]))
    assert decoded.timestamp.to_pylist() == [99, 99, 7, 5]
    assert decoded.timestamp_type.to_pylist() == [1, 1, 0, 0]


def test_delete_horizon_stands_in_for_the_base_timestamp() -> None:
    rows = [Rec(b"k", None, 4_000, [], 0)]
    compacted = Batch(rows, delete_horizon=True, base_timestamp=10_000, max_timestamp=4_000)
    data = encoded([compacted])
    assert batch.read_header(data).has_delete_horizon
    assert decode_batches(data).timestamp.to_pylist() == [4_000]


def test_columns_have_the_stated_types() -> None:
    for data in (b"", encoded([numbered(2, 3)])):
        decoded = decode_batches(data, headers=True)
        assert decoded.headers is not None
        columns = (decoded.key, decoded.value, decoded.offset, decoded.timestamp, decoded.timestamp_type)
        kinds = [column.type for column in columns]
        assert kinds == [pa.binary(), pa.binary(), pa.int64(), pa.int64(), pa.int32()]
        assert decoded.headers.type == decode.HEADERS
        assert decode_batches(data).headers is None
        for column in (*columns, decoded.headers):
            column.validate(full=True)


def test_batches_emptied_by_compaction_have_no_rows() -> None:
    empty = Batch([], base_offset=5, last_offset_delta=9)
    batches = [numbered(2, 3), empty, numbered(1, 3, 40), empty]
    assert rows_of(decode_batches(encoded(batches))) == read_back(batches)
    assert len(decode_batches(encoded([empty]), headers=True)) == 0


def test_only_the_chosen_batches_are_decoded() -> None:
    batches = [numbered(3, 4, 10 * i) for i in range(5)]
    data = encoded(batches)
    chosen = list(batch.iter_headers(data))[1:4:2]
    assert rows_of(decode_batches(data, chosen)) == read_back([batches[1], batches[3]])
    assert len(decode_batches(data, [])) == 0


def test_a_cut_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    data = encoded([numbered(3, 4), numbered(3, 4, 3)])
    for cut in range(1, len(data) // 2):
        assert decode_batches(data[:-cut]).offset.to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", [0, 4])
def test_result_outlives_the_buffer(form: type, codec: int) -> None:
    one = numbered(4, 3)
    one.codec = codec
    source = bytearray(encoded([one]))
    buf = memoryview(source) if form is memoryview else form(source)
    decoded = decode_batches(buf, headers=True)
    if form is not bytes:
        buf[:] = bytes(len(source))
    assert rows_of(decoded) == read_back([one])


def test_header_keys_that_are_no_text() -> None:
    """A C client can send them; the Java client reads them with replacements."""
    row = Rec(b"k", b"v", 0, [("ab", b"1"), ("cd", None)], 0)
    record = oracle.encode_record(row, 0, 0).replace(b"ab", b"\xff\xfe")
    decoded = decode_batches(oracle.encode(Batch([row]), record), headers=True)
    assert rows_of(decoded)[0].headers == [("\ufffd\ufffd", b"1"), ("cd", None)]


def test_headers_need_not_be_asked_for() -> None:
    rows = [Rec(b"k", b"v", 0, [("a", b"b")] * 3, 0), Rec(b"k", b"v", 0, [], 1)]
    one = Batch(rows, last_offset_delta=1)
    decoded = decode_batches(encoded([one]))
    assert decoded.headers is None
    assert decoded.value.to_pylist() == [b"v", b"v"]


def test_control_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="control"):
        decode_batches(control.control_batch(control.COMMIT, 1, 0, 0, 0))


def test_payload_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_PAYLOAD", 10_000)
    one = numbered(4, 1500)
    one.codec = 1
    assert len(decode_batches(encoded([one]))) == 4
    with pytest.raises(decode.PayloadTooLarge, match="fewer"):
        decode_batches(encoded([one, one]))
    assert len(decode_batches(encoded([one]), max_payload=6_000 + 200)) == 4
    with pytest.raises(decode.PayloadTooLarge, match="more than 5000 bytes"):
        decode_batches(encoded([one]), max_payload=5_000)
