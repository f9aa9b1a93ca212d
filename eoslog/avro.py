"""Avro in Confluent's wire format: columns of messages to columns of structs, and back.

A message is a zero byte, the id of the writer's schema in four bytes (big-endian), and the record in Avro's
binary encoding. The registry's HTTP interface returns the schema of an id. Source: docs.confluent.io, "Wire
format" and "Schema Registry API". In Spark, for `mapInArrow`:

    def decoded(batches):
        for batch in batches:
            yield pa.RecordBatch.from_struct_array(decode(batch.column("value"), registry, READER))

Each record is read with its writer's schema and resolved to the reader's, so writers may change their schema
as Avro's rules allow. Each process asks for a schema once: the meaning of an id never changes. fastavro
(extra `avro`) reads and writes one record at a time, so this module does, too.
"""

from __future__ import annotations

import io
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

try:
    import fastavro
    from fastavro.validation import validate
except ImportError as error:
    raise ImportError("eoslog.avro needs fastavro: pip install 'eoslog[avro]'") from error

Schema = dict[str, Any] | list[Any] | str
"""An Avro schema as JSON has it, parsed."""

_HEADER = struct.Struct(">bI")
_REFUSED = (404, 409, 422)
"""Statuses of a working registry: there is no such schema, or it is not compatible."""
_JSON = "application/vnd.schemaregistry.v1+json"
_PLAIN = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),  # the only unit that Spark takes
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}

__all__ = [
    "AvroError",
    "Decoded",
    "RegistryError",
    "SchemaRegistry",
    "arrow_type",
    "decode",
    "encode",
    "try_decode",
]


class AvroError(ValueError):
    """A message, a schema or a registry's answer that is not valid; the text says which and why."""


class RegistryError(AvroError):
    """A registry that cannot be reached, or does not answer. The messages are not at fault."""


class Decoded(NamedTuple):
    """Structs, null for a message that is null or bad; and why a message is bad, else null."""

    values: pa.Array
    errors: pa.Array


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry. `authorization`: the HTTP header of that name."""

    url: str
    authorization: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0

    def schema(self, number: int) -> Any:
        """The schema of an id, parsed by fastavro. Raises AvroError."""
        return _schema(self, number)

    def register(self, subject: str, schema: Schema) -> int:
        """Register a schema, and return its id. Raises AvroError, also if the schema is not compatible with
        the subject's others."""
        return _registered(self, subject, json.dumps(schema))

    def ask(self, path: str, body: object = None) -> Any:
        """An answer of the registry. Raises AvroError."""
        headers = {"Accept": _JSON, "Content-Type": _JSON}
        if self.authorization:
            headers["Authorization"] = self.authorization
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url.rstrip("/") + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            kind = AvroError if error.code in _REFUSED else RegistryError
            raise kind(f"registry {self.url}{path}: {error.code} {error.reason}: {said}") from error
        except OSError as error:
            raise RegistryError(f"registry {self.url}{path}: {error}: is it running?") from error


@cache
def _schema(registry: SchemaRegistry, number: int) -> Any:
    answer = registry.ask(f"/schemas/ids/{number}")
    if answer.get("schemaType", "AVRO") != "AVRO" or answer.get("references"):
        raise AvroError(f"schema {number} of {registry.url} is not Avro, or refers to others: not supported")
    return fastavro.parse_schema(json.loads(answer["schema"]))


@cache
def _registered(registry: SchemaRegistry, subject: str, schema: str) -> int:
    return int(registry.ask(f"/subjects/{subject}/versions", {"schema": schema})["id"])


def decode(
    messages: pa.Array, registry: SchemaRegistry, reader: Schema, on_error: Literal["raise", "null"] = "raise"
) -> pa.Array:
    """Decode binary messages to structs of the reader's schema; null stays null.

    Raises AvroError for the first bad message. With on_error="null" it becomes null, and only RegistryError
    is raised.
    """
    if on_error not in ("raise", "null"):
        raise ValueError(f"on_error cannot be {on_error!r}: give raise or null")
    found = try_decode(messages, registry, reader)
    bad = pc.index(pc.is_valid(found.errors), True).as_py()
    if on_error == "raise" and bad >= 0:
        raise AvroError(f"row {bad}: {found.errors[bad]}")
    return found.values


def try_decode(messages: pa.Array, registry: SchemaRegistry, reader: Schema) -> Decoded:
    """Decode, with the reason for each bad message: its row can go to a dead letter topic. Raises
    RegistryError.
    """
    parsed = fastavro.parse_schema(reader)
    values: list[Any] = []
    errors: list[str | None] = []
    unknown: dict[int, AvroError] = {}
    for message in messages.to_pylist():
        value = error = None
        try:
            value = None if message is None else _read(message, registry, parsed, unknown)
        except RegistryError:
            raise
        except AvroError as why:
            error = str(why)
        values.append(value)
        errors.append(error)
    return Decoded(pa.array(values, arrow_type(reader)), pa.array(errors, pa.string()))


def encode(records: pa.Array, registry: SchemaRegistry, subject: str, schema: Schema) -> pa.Array:
    """Encode structs with exactly the schema's fields to binary messages; null stays null. The schema is
    registered under the subject. Raises AvroError.
    """
    number, parsed = registry.register(subject, schema), fastavro.parse_schema(schema)
    rows = [
        None if record is None else _write(record, row, number, parsed)
        for row, record in enumerate(records.to_pylist(maps_as_pydicts="strict"))
    ]
    return pa.array(rows, pa.binary())


def _read(message: bytes, registry: SchemaRegistry, reader: Any, unknown: dict[int, AvroError]) -> Any:
    """`unknown`: schemas that the registry has refused, so that it is asked for each only once."""
    if len(message) < _HEADER.size or message[0] != 0:
        raise AvroError(f"not a message in Confluent's wire format: it begins with {message[:5]!r}")
    number = _HEADER.unpack_from(message)[1]
    if number in unknown:
        raise unknown[number]
    try:
        writer = registry.schema(number)
    except AvroError as error:
        unknown[number] = error
        raise
    data = io.BytesIO(message)
    data.seek(_HEADER.size)
    try:
        record = fastavro.schemaless_reader(data, writer, reader)
    except Exception as error:  # fastavro raises whatever its parts raise
        raise AvroError(f"schema {number}: {type(error).__name__}: {error}") from error
    if data.tell() != len(message):
        raise AvroError(f"schema {number}: {len(message) - data.tell()} bytes too many")
    return record


def _write(record: Any, row: int, number: int, schema: Any) -> bytes:
    data = io.BytesIO(_HEADER.pack(0, number))
    data.seek(_HEADER.size)
    try:
        validate(record, schema, strict=True)  # the writer does not check the range of an int itself
        fastavro.schemaless_writer(data, schema, record, strict=True)
    except Exception as error:  # as above
        raise AvroError(f"row {row}, schema {number}: {type(error).__name__}: {error}") from error
    return data.getvalue()


def arrow_type(schema: Schema) -> pa.DataType:
    """The Arrow type of a schema's values. Raises AvroError if there is none."""
    return _type(schema, {})


def _type(schema: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    if isinstance(schema, str):
        found = _PLAIN.get(schema) or named.get(schema)
        return found if found is not None else _refuse(schema)
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        return _type(others[0], named) if len(others) == 1 else _refuse(schema)
    if "logicalType" in schema:
        return _logical(schema)
    kind = schema["type"]
    if kind == "record":
        made = pa.struct([pa.field(one["name"], _type(one["type"], named)) for one in schema["fields"]])
    elif kind == "array":
        return pa.list_(_type(schema["items"], named))
    elif kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], named))
    elif kind in ("enum", "fixed"):
        made = pa.string() if kind == "enum" else pa.binary()
    else:
        return _type(kind, named)
    named[schema["name"]] = made
    return made


def _logical(schema: Mapping[str, Any]) -> pa.DataType:
    if schema["logicalType"] == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return _LOGICAL.get(schema["logicalType"]) or _refuse(schema)


def _refuse(schema: object) -> NoReturn:
    raise AvroError(f"no Arrow type for {json.dumps(schema)}: leave the field out of the reader's schema")
