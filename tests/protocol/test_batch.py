"""The header of record batches, byte for byte; control batches; the walk over batches."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from eoslog.protocol import batch
from eoslog.protocol.batch import CorruptBatch, build_batch, iter_headers, read_header
from eoslog.protocol.control import ABORT, COMMIT, control_batch, read_control
from eoslog.protocol.plain_records import encode_records
from tests.protocol import oracle
from tests.protocol.oracle import Batch, Rec
from tests.protocol.stamp import stamp

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
