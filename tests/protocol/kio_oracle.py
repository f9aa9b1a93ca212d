"""kio as the judge of our messages: its entities give shape and values, its serialiser the bytes.

kio is generated from Kafka's message definitions and shares no code with eoslog. Values are made from its own
field lists, so a field that we lack, misname or misplace cannot go unseen. Its own views of a value (dates,
durations, UUIDs, None for the zero UUID) are translated to plain integers and bytes here.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import types
import uuid
from typing import Any, Literal, get_args, get_origin

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from eoslog.protocol.fields import OWN_TAGS, Array, Field, Struct, default_source

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST_DATE_MS = 4_102_444_800_000  # the year 2100; kio uses floats and loses milliseconds far beyond it
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32}
_STRINGS = ["", "a", "flights", "ü€😀", "x" * 126, "x" * 127, "x" * 128, "y" * 300]
_BLOBS = [b"", b"\0", b"\xff" * 126, b"\xfe" * 127, b"r" * 200]


def payload_type(api_key: int, kind: str, version: int) -> type[Any]:
    """kio's class for a request or response; KioIndexError where it lacks one."""
    entity: Literal[EntityType.request, EntityType.response]
    entity = EntityType.request if kind == "request" else EntityType.response
    module = load_payload_module(api_key, version, entity)
    (found,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type) and getattr(each, "__type__", None) is entity
    )
    return found


def encode(entity: Any) -> bytes:
    """kio's bytes of an entity."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def decode(kind: type[Any], data: bytes) -> Any:
    """kio's reading of `data`, which must be used up."""
    entity, size = entity_reader(kind)(data, 0)
    assert size == len(data), f"kio reads {size} of {len(data)} bytes"
    return entity


@dataclasses.dataclass(frozen=True)
class KioField:
    """One field as kio describes it."""

    name: str
    kafka_type: str
    nested: type[Any] | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any


def fields_of(kind: type[Any]) -> list[KioField]:
    """The fields of a kio class in their order on the wire (tagged ones included)."""
    return [_describe(each) for each in dataclasses.fields(kind)]


def _describe(each: dataclasses.Field[Any]) -> KioField:
    inner: Any = each.type
    nullable = False
    if get_origin(inner) is types.UnionType:
        nullable = True
        (inner,) = (arg for arg in get_args(inner) if arg is not types.NoneType)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner = get_args(inner)[0]
        if get_origin(inner) is types.UnionType:
            (inner,) = (arg for arg in get_args(inner) if arg is not types.NoneType)
    nested = inner if dataclasses.is_dataclass(inner) else None
    kafka_type = each.metadata.get("kafka_type", "")
    assert isinstance(nested, type | None)
    return KioField(each.name, kafka_type, nested, is_array, nullable, each.metadata.get("tag"), each.default)


def random_value(kind: type[Any], rng: random.Random) -> dict[str, Any]:
    """A plain value of a kio class, under kio's names."""
    return {each.name: _random_field(each, rng) for each in fields_of(kind)}


def _random_field(field: KioField, rng: random.Random) -> Any:
    if field.tag is not None and field.default is not dataclasses.MISSING and rng.random() < 0.4:
        return to_plain(field, field.default)
    really_nullable = field.nullable and (field.is_array or field.kafka_type not in ("uuid", "datetime_i64"))
    if really_nullable and rng.random() < 0.25:
        return None
    if field.is_array:
        size = rng.choice([0, 1, 1, 2, 3]) if field.nested or rng.random() < 0.97 else 130
        return [_random_item(field, rng) for _ in range(size)]
    return _random_item(field, rng)


def _random_item(field: KioField, rng: random.Random) -> Any:
    if field.nested is not None:
        return random_value(field.nested, rng)
    match field.kafka_type:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(_STRINGS)
        case "bytes" | "records":
            return rng.choice(_BLOBS)
        case "uuid":
            return rng.choice([bytes(16), rng.randbytes(16)])
        case "error_code":
            return int(rng.choice(list(KioErrorCode)))
        case "datetime_i64":
            lowest = -1 if field.nullable else 0
            return rng.choice([lowest, 0, rng.randrange(_LAST_DATE_MS)])
        case "timedelta_i64":
            return rng.randrange(2**40)
        case "uint16":
            return rng.randrange(2**16)
        case "float64":
            return rng.choice([0.0, -1.5, rng.random()])
        case kafka_type:
            bits = _BITS[kafka_type]
            low, high = -(1 << bits - 1), (1 << bits - 1) - 1
            return rng.choice([low, -1, 0, 1, high, rng.randint(low, high)])


def to_entity(kind: type[Any], plain: dict[str, Any]) -> Any:
    """The kio entity of a plain value."""
    return kind(**{field.name: _to_kio(field, plain[field.name]) for field in fields_of(kind)})


def _to_kio(field: KioField, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        return tuple(_item_to_kio(field, item) for item in value)
    return _item_to_kio(field, value)


def _item_to_kio(field: KioField, value: Any) -> Any:
    if field.nested is not None:
        return to_entity(field.nested, value)
    match field.kafka_type:
        case "uuid":
            zero_is_none = field.nullable or field.is_array
            return None if zero_is_none and value == bytes(16) else uuid.UUID(bytes=value)
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            is_null = field.nullable and value == -1
            return None if is_null else EPOCH + datetime.timedelta(milliseconds=value)
        case _:
            return value


def from_entity(entity: Any) -> dict[str, Any]:
    """The plain value of a kio entity."""
    return {field.name: to_plain(field, getattr(entity, field.name)) for field in fields_of(type(entity))}


def to_plain(field: KioField, value: Any) -> Any:
    """The plain value of what kio holds in `field`."""
    if value is None and (field.is_array or field.kafka_type not in ("uuid", "datetime_i64")):
        return None
    if field.is_array:
        return [_item_to_plain(field, item) for item in value]
    return _item_to_plain(field, value)


def _item_to_plain(field: KioField, value: Any) -> Any:
    if field.nested is not None:
        return from_entity(value)
    match field.kafka_type:
        case "uuid":
            return bytes(16) if value is None else value.bytes
        case "timedelta_i32" | "timedelta_i64":
            return value // datetime.timedelta(milliseconds=1)
        case "datetime_i64":
            return -1 if value is None else (value - EPOCH) // datetime.timedelta(milliseconds=1)
        case "error_code":
            return int(value)
        case _:
            return value


def our_names(kind: type[Any], struct: Struct, version: int) -> dict[str, Field]:
    """kio's field names -> our fields of `version`: the same, but that kio drops the unit of times.

    Fails unless both sides have the very same fields, but for the tagged ones that are eoslog's own.
    """
    kafkas = [field for field in struct.fields if (field.tag or 0) < OWN_TAGS]
    ours = {field.name: field for field in kafkas if version in field.versions}
    pairs = {}
    for field in fields_of(kind):
        name = field.name if field.name in ours else f"{field.name}_ms"
        assert name in ours, f"{kind.__name__} v{version} has a field {field.name}, we do not"
        pairs[field.name] = ours.pop(name)
    assert not ours, f"{kind.__name__} v{version} has no {sorted(ours)}, we do"
    return pairs


def to_ours(kind: type[Any], plain: dict[str, Any], struct: Struct, version: int) -> dict[str, Any]:
    """What our reader must answer for a plain value: our names, and defaults for what the version lacks."""
    message = {field.name: eval(default_source(field)) for field in struct.fields}
    fields = {field.name: field for field in fields_of(kind)}
    for name, ours in our_names(kind, struct, version).items():
        message[ours.name] = _nested_to_ours(fields[name], plain[name], ours, version)
    return message


def _nested_to_ours(field: KioField, value: Any, ours: Field, version: int) -> Any:
    if field.nested is None or value is None:
        return value
    inner = ours.type.of if isinstance(ours.type, Array) else ours.type
    assert isinstance(inner, Struct)
    if field.is_array:
        return [to_ours(field.nested, item, inner, version) for item in value]
    return to_ours(field.nested, value, inner, version)
