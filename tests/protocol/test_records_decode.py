"""Decoding against the slow oracle: any batches, captured and damaged ones, one record at a time."""

import struct
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.protocol import batch, compression, control, decode, length_chains
from eoslog.protocol.batch import CorruptBatch, iter_headers, read_header
from eoslog.protocol.decode import decode_batches
from eoslog.protocol.plain_records import Record, encode_records, iter_records
from tests.protocol import capture, oracle
from tests.protocol.oracle import Batch, Rec, read_back, records, rows_of, stamp, with_right_crc, wrap

# -- batches of any shape ------------------------------------------------------------------------
# Decoding against the slow oracle: batches of any shape, many at once, few at once.

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


# -- one at a time -------------------------------------------------------------------------------
# The one-at-a-time codec of the coordinators' topics, against the oracle.

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


# -- batches of other clients --------------------------------------------------------------------
# Batches that other clients wrote, from the files in `captures/`: their bytes are read, and read right.

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


# -- damaged batches -----------------------------------------------------------------------------
# Damaged batches: refused with their offset named, or read exactly as the oracle reads them.
#
# The CRC is made to match after the damage, so that the structure alone has to give it away.

GOOD = Batch([Rec(b"k", b"v", 0, [("h", b"x")], i) for i in range(3)], last_offset_delta=2)


def oracle_reads(data: bytes) -> list[Rec] | None:
    """The rows, or None where the batches break the format."""
    try:
        batches = oracle.decode(data)
    except (oracle.Broken, OSError, EOFError, struct.error, ValueError):
        return None
    for one in batches:
        offsets = [record.offset - one.base_offset for record in one.records]
        within = range(one.last_offset_delta + 1)
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
