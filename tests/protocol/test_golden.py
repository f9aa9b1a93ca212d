"""Every message at every version against kio, both ways, with generated values."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import MISSING
from typing import Any

import pytest

from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.fields import OWN_TAGS, Array, Struct, default_source
from eoslog.protocol.schema import Schema
from tests.protocol import kio_oracle as oracle

ROUNDS = 25


def cases() -> Iterator[Any]:
    for api in APIS.values():
        for kind, schema in (("request", api.request), ("response", api.response)):
            for version in range(schema.versions.first, schema.versions.last + 1):
                yield pytest.param(api.key, kind, schema, version, id=f"{schema.name}-v{version}")


every_message = pytest.mark.parametrize(("key", "kind", "schema", "version"), list(cases()))


def plain(value: Any) -> Any:
    """Views of records as bytes, so that whole messages compare."""
    match value:
        case memoryview():
            return bytes(value)
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case _:
            return value


def joined(schema: Schema, version: int, message: dict[str, Any]) -> bytes:
    return b"".join(schema.write(version, message))


@every_message
def test_bytes_and_values_agree_with_kio(key: ApiKey, kind: str, schema: Schema, version: int) -> None:
    entity_type = oracle.payload_type(key, kind, version)
    rng = random.Random(zlib.crc32(f"{schema.name} {version}".encode()))
    for _ in range(ROUNDS):
        value = oracle.random_value(entity_type, rng)
        theirs = oracle.encode(oracle.to_entity(entity_type, value))
        message = oracle.to_ours(entity_type, value, schema.struct, version)

        ours = joined(schema, version, message)
        assert ours == theirs, "our bytes are their bytes"
        decoded, end = schema.read(version, theirs)
        assert end == len(theirs)
        assert plain(decoded) == message, "our reading of their bytes is the value"
        reading = oracle.from_entity(oracle.decode(entity_type, ours))
        assert reading == value, "their reading of our bytes is the value"


@every_message
def test_an_unset_message_has_kios_defaults(key: ApiKey, kind: str, schema: Schema, version: int) -> None:
    entity_type = oracle.payload_type(key, kind, version)
    unset, _ = schema.read(version, joined(schema, version, {}))
    assert unset == {field.name: eval(default_source(field)) for field in schema.struct.fields}
    compare_defaults(entity_type, schema.struct, version)


def compare_defaults(entity_type: type[Any], struct: Struct, version: int) -> None:
    fields = {field.name: field for field in oracle.fields_of(entity_type)}
    for name, ours in oracle.our_names(entity_type, struct, version).items():
        theirs = fields[name]
        assert theirs.tag == ours.tag
        if theirs.nested is not None:
            inner = ours.type.of if isinstance(ours.type, Array) else ours.type
            assert isinstance(inner, Struct)
            compare_defaults(theirs.nested, inner, version)
        elif theirs.default is not MISSING:
            assert oracle.to_plain(theirs, theirs.default) == ours.default, f"default of {ours.name}"
        if not (theirs.kafka_type in ("uuid", "datetime_i64") and not theirs.is_array):
            assert theirs.nullable == (version in ours.nullable), f"nullability of {ours.name}"


OWN: list[tuple[ApiKey, str, dict[str, Any]]] = [
    (ApiKey.API_VERSIONS, "response", {"ends_together": True}),
    (
        ApiKey.END_TXN,
        "request",
        {"together": [{"transactional_id": "x", "producer_id": 7, "producer_epoch": 1}]},
    ),
    (ApiKey.END_TXN, "response", {"together": [{"transactional_id": "x", "error_code": 90}]}),
]


@pytest.mark.parametrize(("key", "kind", "own"), OWN)
def test_who_does_not_know_what_is_our_own_reads_the_rest(
    key: ApiKey, kind: str, own: dict[str, Any]
) -> None:
    """By tagged fields with numbers that Kafka will not come to."""
    api = APIS[key]
    schema, version = api.request if kind == "request" else api.response, api.max_version
    kafkas = [field for field in schema.struct.fields if (field.tag or 0) < OWN_TAGS]
    theirs = Schema(schema.name, f"0-{version}", flexible=schema.flexible_from, fields=kafkas)
    entity_type = oracle.payload_type(key, kind, version)
    value = oracle.random_value(entity_type, random.Random(1))
    message = oracle.to_ours(entity_type, value, theirs.struct, version)
    data = joined(schema, version, message | own)
    assert len(data) > len(joined(theirs, version, message))
    assert theirs.read(version, data) == (message, len(data))
    (name,) = own
    assert plain(schema.read(version, data)[0][name])


@every_message
def test_flexible_from_kios_version(key: ApiKey, kind: str, schema: Schema, version: int) -> None:
    assert oracle.payload_type(key, kind, version).__flexible__ == schema.is_flexible(version)


def test_every_served_version_has_a_message() -> None:
    for api in APIS.values():
        for schema in (api.request, api.response):
            assert schema.versions.first <= api.min_version <= api.max_version <= schema.versions.last
        assert api.request.flexible_from == api.response.flexible_from == api.flexible_from
