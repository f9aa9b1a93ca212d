"""Schemas: what is skipped, refused, defaulted, and never copied."""

from __future__ import annotations

import dataclasses
import random
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.protocol.apis import APIS, Api
from eoslog.protocol.fields import (
    ARRAY,
    BOOL,
    BYTES,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    STRUCT,
    UUID,
    Array,
    F,
    Struct,
)
from eoslog.protocol.messages.cluster import METADATA_REQUEST
from eoslog.protocol.messages.records import FETCH_RESPONSE, PRODUCE_REQUEST
from eoslog.protocol.primitives import read_uvarint, uvarint
from eoslog.protocol.schema import Message, ProtocolError, Schema
from tests.protocol import kio_oracle as oracle

CASES = [
    (api, kind, schema, version)
    for api in APIS.values()
    for kind, schema in (("request", api.request), ("response", api.response))
    for version in range(schema.versions.first, schema.versions.last + 1)
]
EVERY = [pytest.param(*case, id=f"{case[2].name}-v{case[3]}") for case in CASES]
every_message = pytest.mark.parametrize(("api", "kind", "schema", "version"), EVERY)


def a_message(api: Api, kind: str, version: int, seed: int = 0, at_most: int = 1 << 30) -> bytes:
    """A valid message with values in it, of not more than `at_most` bytes if one turns up."""
    entity_type = oracle.payload_type(api.key, kind, version)
    rng = random.Random(zlib.crc32(f"{api.name} {kind} {version} {seed}".encode()))
    values = [oracle.random_value(entity_type, rng) for _ in range(12)]
    made = sorted((oracle.encode(oracle.to_entity(entity_type, value)) for value in values), key=len)
    return max((data for data in made if len(data) <= at_most), key=len, default=made[0])


# --- what other versions of the protocol may add -----------------------------------------------------------

FUTURE = "from_the_future"


def with_future_tags(type: Any) -> Any:
    """The same type with two tagged fields more in each struct."""
    match type:
        case Struct():
            fields = [dataclasses.replace(each, type=with_future_tags(each.type)) for each in type.fields]
            fields += [F(f"{FUTURE}_1", BYTES, tag=90), F(f"{FUTURE}_2", ARRAY(INT64), tag=20_000)]
            return Struct(tuple(fields))
        case Array():
            return Array(with_future_tags(type.of))
        case _:
            return type


def fill(type: Any, value: Any, version: int) -> Any:
    """Give the future fields of every struct that `version` carries a value."""
    match type, value:
        case Struct(), dict():
            carried = {each.name: each.type for each in type.fields if version in each.versions}
            filled = {name: fill(carried.get(name), each, version) for name, each in value.items()}
            return filled | {f"{FUTURE}_1": b"z" * 200, f"{FUTURE}_2": [1, 2]}
        case Array(), list():
            return [fill(type.of, each, version) for each in value]
        case _:
            return value


@pytest.mark.parametrize(
    ("api", "kind", "schema", "version"),
    [every for every, case in zip(EVERY, CASES, strict=True) if case[2].is_flexible(case[3])],
)
def test_unknown_tagged_fields_are_skipped(api: Api, kind: str, schema: Schema, version: int) -> None:
    future = Schema(
        schema.name,
        f"{version}",
        flexible=schema.flexible_from,
        fields=with_future_tags(schema.struct).fields,
    )
    message, _ = schema.read(version, a_message(api, kind, version))
    data = b"".join(future.write(version, fill(schema.struct, message, version)))
    assert data.count(b"z" * 200) >= 1
    again, end = schema.read(version, data)
    assert end == len(data)
    assert again == message or repr(again) == repr(message)  # a NaN is not equal to itself


def test_a_tagged_field_must_take_the_size_it_states() -> None:
    schema = Schema("Tagged", "0", flexible=0, fields=[F("label", STRING, tag=1)])
    data = b"".join(schema.write(0, {"label": "abc"}))
    assert data == b"\x01\x01\x04\x04abc"
    for wrong in (b"\x01\x01\x05\x04abc\0", b"\x01\x01\x03\x04abc"):
        with pytest.raises(ProtocolError, match=r"Tagged\.label"):
            schema.read(0, wrong)


# --- bytes that make no sense ------------------------------------------------------------------------------


@every_message
def test_every_truncation_is_refused(api: Api, kind: str, schema: Schema, version: int) -> None:
    data = a_message(api, kind, version, at_most=400)
    for cut in range(min(len(data), 1000)):
        with pytest.raises(ProtocolError):
            schema.read(version, data[:cut])


@every_message
def test_damaged_bytes_are_refused_or_read(api: Api, kind: str, schema: Schema, version: int) -> None:
    rng = random.Random(zlib.crc32(f"{schema.name} {version}".encode()))
    valid = a_message(api, kind, version, at_most=600)
    for _ in range(60):
        data = bytearray(valid if rng.random() < 0.8 else rng.randbytes(rng.randrange(80)))
        for _ in range(rng.randrange(1, 4)):
            if data:
                data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        read_or_refuse(schema, version, data)


def read_or_refuse(schema: Schema, version: int, data: bytes | bytearray) -> None:
    """Anything else than a message or a ProtocolError fails the test; what was read can be written again."""
    try:
        message, end = schema.read(version, data)
    except ProtocolError:
        return
    assert 0 <= end <= len(data)
    again, _ = schema.read(version, b"".join(schema.write(version, message)))
    assert again == message or repr(again) == repr(message)  # a NaN is not equal to itself


@settings(deadline=None)
@given(st.sampled_from(EVERY), st.binary(max_size=120))
def test_random_bytes_are_refused_or_read(case: Any, data: bytes) -> None:
    _, _, schema, version = case.values
    read_or_refuse(schema, version, data)


@pytest.mark.parametrize(
    ("version", "count"), [(1, b"\x7f\xff\xff\xff"), (9, b"\xff\xff\xff\xff\x07"), (9, b"\x80\x80\x80\x40")]
)
def test_absurd_counts_are_refused_before_anything_is_made(version: int, count: bytes) -> None:
    METADATA_REQUEST.read(version, b"".join(METADATA_REQUEST.write(version, {})))
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="beyond the end"):
        METADATA_REQUEST.read(version, count + b"\0" * 60)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000


def test_counts_are_checked_against_the_least_size_of_an_item() -> None:
    schema = Schema("Counts", "0", fields=[F("partitions", ARRAY(INT32)), F("ids", ARRAY(UUID))])
    with pytest.raises(ProtocolError, match="beyond the end"):
        schema.read(0, b"\0\0\0\x03" + b"\0" * 11)
    with pytest.raises(ProtocolError, match="beyond the end"):
        schema.read(0, b"\0\0\0\0" + b"\0\0\0\x02" + b"\0" * 31)
    data = b"".join(schema.write(0, {"partitions": [1], "ids": [b"a" * 16, b"b" * 16]}))
    assert schema.read(0, data)[0] == {"partitions": [1], "ids": [b"a" * 16, b"b" * 16]}


def test_things_are_counted_over_all_arrays() -> None:
    """Those of nested arrays and of numbers, too: each takes memory when it is read."""
    inner = STRUCT(F("name", STRING), F("partitions", ARRAY(INT32)))
    schema = Schema("Things", "0", fields=[F("topics", ARRAY(inner)), F("names", ARRAY(STRING))])
    body = {
        "topics": [{"name": "a", "partitions": [1, 2, 3]}, {"name": "b", "partitions": []}],
        "names": ["c"],
    }
    data = b"".join(schema.write(0, body))
    assert schema.read(0, data, 0, 6)[0] == body
    with pytest.raises(ProtocolError, match="more items than are read in one message"):
        schema.read(0, data, 0, 5)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xff", "Strings.name is null"),
        (b"\xff\xfe", "Strings.name is null"),
        (b"\0\x02\xff\xff\0\0", "not UTF-8"),
        (b"\0\x05abc", "beyond the end"),
        (b"\0", "cut short"),
        (b"\0\x01a\xff\xfe", "Strings.note is null"),
    ],
)
def test_strings_that_make_no_sense(data: bytes, why: str) -> None:
    schema = Schema("Strings", "0", fields=[F("name", STRING), F("note", STRING, nullable=True)])
    with pytest.raises(ProtocolError, match=why):
        schema.read(0, data)
    assert schema.read(0, b"\0\x01a\xff\xff")[0] == {"name": "a", "note": None}


def test_varints_of_more_than_32_bits_are_refused() -> None:
    schema = Schema("Compact", "0", flexible=0, fields=[F("name", STRING)])
    full = b"\xff\xff\xff\xff"
    for data in (full + b"\x10", full + b"\xff\x01", b"\x80" * 12):
        with pytest.raises(ProtocolError, match="32 bits"):
            read_uvarint(memoryview(data), 0)
        with pytest.raises(ProtocolError, match="32 bits"):
            schema.read(0, data)
    with pytest.raises(ProtocolError, match="above an int32"):
        schema.read(0, full + b"\x0f" + b"a" * 9)
    with pytest.raises(ProtocolError, match="32768"):
        schema.read(0, uvarint(32769) + b"a" * 32768 + b"\0")
    assert schema.read(0, uvarint(32768) + b"a" * 32767 + b"\0")[0] == {"name": "a" * 32767}


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_varints_round_trip(value: int) -> None:
    assert read_uvarint(memoryview(uvarint(value)), 0) == (value, len(uvarint(value)))


def test_positions_outside_the_bytes_are_refused() -> None:
    for pos in (-1, 2):
        with pytest.raises(ProtocolError, match="cannot start"):
            METADATA_REQUEST.read(9, b"\0", pos)


@pytest.mark.parametrize("version", [-1, 2, 14, 2**15])
def test_versions_the_schema_lacks_are_refused(version: int) -> None:
    for attempt in (lambda: PRODUCE_REQUEST.read(version, b""), lambda: PRODUCE_REQUEST.write(version, {})):
        with pytest.raises(ProtocolError, match="versions 3 to 13"):
            attempt()


# --- values that do not fit --------------------------------------------------------------------------------

PICKY = Schema(
    "Picky",
    "0-3",
    flexible=2,
    fields=[
        F("id", INT16, default=-1),
        F("name", STRING),
        F("old", STRING, "0", ignorable=True),
        F("must", INT32, "1+", default=7),
        F("uuid", UUID),
        F("blob", BYTES),
        F("items", ARRAY(F("text", STRING, nullable="1+"), F("late", INT32, "3+"))),
        F("maybe", STRUCT(F("on", BOOL)), "3+", nullable="3+", default=None),
        F("tagged", STRUCT(F("x", INT32, default=5), F("y", ARRAY(INT32))), "2+", tag=3),
    ],
)


@pytest.mark.parametrize(
    ("version", "value", "why"),
    [
        (0, {"id": 40_000}, r"Picky\.id cannot be 40000"),
        (0, {"id": "1"}, r"Picky\.id cannot be '1'"),
        (0, {"id": None}, r"Picky\.id cannot be None"),
        (0, {"name": None}, r"Picky\.name is null"),
        (0, {"name": b"bytes"}, r"Picky\.name cannot be b'bytes'"),
        (0, {"name": "\ud800"}, r"Picky\.name cannot be"),
        (0, {"name": "x" * 32_768}, r"Picky\.name is a string of 32768 bytes"),
        (2, {"name": "x" * 32_768}, r"Picky\.name is a string of 32768 bytes"),
        (0, {"nmae": "x"}, "Picky has no field nmae"),
        (0, {"items": [{"txet": "x"}]}, r"Picky\.items has no field txet"),
        (0, {"must": 8}, r"Picky\.must has a value, but version 0 cannot carry it"),
        (0, {"tagged": {"x": 6}}, r"Picky\.tagged has a value, but version 0 cannot carry it"),
        (2, {"items": [{}, {"late": 1}]}, r"Picky\.items\.late has a value, but version 2"),
        (0, {"uuid": b"short"}, r"Picky\.uuid must be 16 bytes"),
        (0, {"uuid": 3}, r"Picky\.uuid cannot be 3"),
        (0, {"blob": "text"}, r"Picky\.blob cannot be 'text'"),
        (0, {"blob": None}, r"Picky\.blob is null"),
        (0, {"items": None}, r"Picky\.items is null"),
        (0, {"items": {"text": "a"}}, r"Picky\.items must be a list, not dict"),
        (0, {"items": [{"text": "a"}, {"text": None}]}, r"Picky\.items\.text is null"),
        (0, {"items": [{"text": "a"}, {"text": 5}]}, r"Picky\.items\[1\]\.text cannot be 5"),
        (0, {"items": ["a"]}, r"Picky\.items\[0\] must be a dict, not 'a'"),
        (2, {"tagged": {"x": 2**31}}, r"Picky\.tagged\.x cannot be 2147483648"),
        (2, {"tagged": None}, r"Picky\.tagged"),
        (0, None, "Picky must be a dict"),
    ],
)
def test_values_that_do_not_fit_are_named(version: int, value: Any, why: str) -> None:
    with pytest.raises(ProtocolError, match=f"cannot write Picky v{version}: {why}"):
        PICKY.write(version, value)


def test_what_may_be_dropped_is_dropped() -> None:
    assert PICKY.write(1, {"old": "news"}) == PICKY.write(1, {})
    assert PICKY.write(0, {"must": 7, "tagged": {"x": 5, "y": []}, "maybe": None}) == PICKY.write(0, {})
    assert PICKY.write(0, {"tagged": {}}) == PICKY.write(0, {})


def test_missing_values_take_defaults() -> None:
    data = b"".join(PICKY.write(3, {"items": [{}], "maybe": {}}))
    message, end = PICKY.read(3, data)
    assert end == len(data)
    assert message == {
        "id": -1,
        "name": "",
        "old": "",
        "must": 7,
        "uuid": bytes(16),
        "blob": b"",
        "items": [{"text": "", "late": 0}],
        "maybe": {"on": False},
        "tagged": {"x": 5, "y": []},
    }


@pytest.mark.parametrize("version", [0, 3])
def test_defaults_are_made_anew_for_each_message(version: int) -> None:
    data = b"".join(PICKY.write(version, {}))
    PICKY.read(version, data)[0]["tagged"]["y"].append(1)
    assert PICKY.read(version, data)[0]["tagged"] == {"x": 5, "y": []}


def test_nullable_structs() -> None:
    schema = Schema("Maybe", "0", fields=[F("s", STRUCT(F("x", INT16)), nullable=True, default=None)])
    assert schema.write(0, {}) == [b"\xff"]
    assert schema.write(0, {"s": {"x": 2}}) == [b"\x01\0\x02"]
    assert schema.read(0, b"\xff") == ({"s": None}, 1)
    assert schema.read(0, b"\x01\0\x02") == ({"s": {"x": 2}}, 3)


def test_tagged_fields_are_written_by_rising_tag_and_only_if_set() -> None:
    schema = Schema("Order", "0", flexible=0, fields=[F("b", INT16, tag=2), F("a", INT16, default=3, tag=1)])
    assert schema.write(0, {"b": 1, "a": 4}) == [b"\x02\x01\x02\0\x04\x02\x02\0\x01"]
    assert schema.write(0, {"b": 0, "a": 3}) == [b"\0"]


# --- records ------------------------------------------------------------------------------------------------


def produce_request(records: Any) -> Message:
    return {"acks": -1, "topic_data": [{"name": "t", "partition_data": [{"index": 1, "records": records}]}]}


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_records_are_handed_through_uncopied(version: int) -> None:
    head, body = bytearray(b"h" * 61), memoryview(b"b" * 16_000)
    parts = PRODUCE_REQUEST.write(version, produce_request([head, body]))
    assert sum(part is head or part is body for part in parts) == 2

    data = bytearray(b"".join(parts))
    message, end = PRODUCE_REQUEST.read(version, data)
    records = message["topic_data"][0]["partition_data"][0]["records"]
    assert end == len(data)
    assert records == b"".join([head, body])
    records[0] = ord("!")
    assert data.count(b"!") == 1, "records are a view of the bytes read"


def test_records_may_be_one_buffer_none_or_wide_views() -> None:
    def written(records: Any) -> bytes:
        return b"".join(PRODUCE_REQUEST.write(9, produce_request(records)))

    assert written(b"abcd") == written([b"ab", b"cd"]) == written(memoryview(b"abcd").cast("I"))
    message, _ = PRODUCE_REQUEST.read(9, written(None))
    assert message["topic_data"][0]["partition_data"][0]["records"] is None


def test_fetch_responses_keep_batches_apart() -> None:
    partitions = [{"partition_index": index, "records": [b"batch" * index, b"tail"]} for index in range(3)]
    parts = FETCH_RESPONSE.write(17, {"responses": [{"topic_id": b"i" * 16, "partitions": partitions}]})
    message, _ = FETCH_RESPONSE.read(17, b"".join(parts))
    read = [bytes(each["records"]) for each in message["responses"][0]["partitions"]]
    assert read == [b"tail", b"batchtail", b"batchbatchtail"]


def test_null_records_are_refused_where_they_must_be() -> None:
    schema = Schema("R", "0", fields=[F("records", RECORDS)])
    with pytest.raises(ProtocolError, match=r"R\.records is null"):
        schema.write(0, {"records": None})
    with pytest.raises(ProtocolError, match=r"R\.records is null"):
        schema.read(0, b"\xff\xff\xff\xff")
