"""The notation in which the files of `messages/` describe Kafka's messages: types, fields and version ranges.

    Schema("SomeRequest", "0-5", flexible=3, fields=(
        F("transactional_id", STRING, nullable=True),
        F("topics", ARRAY(
            F("name", STRING),
            F("partitions", ARRAY(INT32)),
        )),
        F("producer_epoch", INT16, "3+", default=-1),
        F("cluster_id", STRING, "4+", nullable=True, default=None, tag=0, ignorable=True),
    ))

A field without a range is in every version of its message. Ranges are "3", "3-5" or "3+".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

LATEST = 0x7FFF
OWN_TAGS = 0x656F73
"""Tagged fields from this tag on are eoslog's own: Kafka counts its tags from 0, and skips unknown ones."""
_UNSET: Any = object()


class Versions(NamedTuple):
    """A range of versions, both ends included; `Versions(0, -1)` is empty."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read "3", "3-5" or "3+"."""
        if text.endswith("+"):
            return cls(int(text[:-1]), LATEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


ALWAYS = Versions(0, LATEST)
NEVER = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A type of fixed size; `code` is its letter in the `struct` module."""

    name: str
    code: str
    size: int
    default: Any = 0


@dataclass(frozen=True, slots=True)
class Text:
    """A string (UTF-8)."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes. `is_records` marks record batches, which are copied neither when read nor when written."""

    is_records: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in their order on the wire."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A list of items of one type."""

    of: Type


Type = Fixed | Text | Blob | Struct | Array

INT8 = Fixed("int8", "b", 1)
INT16 = Fixed("int16", "h", 2)
INT32 = Fixed("int32", "i", 4)
INT64 = Fixed("int64", "q", 8)
UINT16 = Fixed("uint16", "H", 2)
FLOAT64 = Fixed("float64", "d", 8, 0.0)
BOOL = Fixed("bool", "?", 1, False)
UUID = Fixed("uuid", "16s", 16, bytes(16))
STRING = Text()
BYTES = Blob()
RECORDS = Blob(is_records=True)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message or struct; made by `F`."""

    name: str
    type: Type
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    ignorable: bool

    def in_body(self, version: int) -> bool:
        """Whether `version` has this field among the others (not as a tagged field)."""
        return version in self.versions and self.tag is None

    def in_tags(self, version: int) -> bool:
        """Whether `version` has this field as a tagged field."""
        return version in self.versions and self.tag is not None


def F(
    name: str,
    type: Type,
    versions: str = "",
    *,
    nullable: str | bool = False,
    tag: int | None = None,
    default: Any = _UNSET,
    ignorable: bool = False,
) -> Field:
    """Describe a field.

    `nullable` is a range, or True for all versions; `tag` makes it a tagged field in all its versions;
    `default` replaces a missing value (otherwise zero, "", b"", [], or a struct of defaults; records: None);
    `ignorable` lets a writer drop a value that its version cannot carry.
    """
    if isinstance(nullable, str):
        null_range = Versions.parse(nullable)
    else:
        null_range = ALWAYS if nullable else NEVER
    value = natural_default(type) if default is _UNSET else default
    carried = Versions.parse(versions) if versions else ALWAYS
    return Field(name, type, carried, null_range, tag, value, ignorable)


def ARRAY(*of: Type | Field) -> Array:
    """A list: `ARRAY(INT32)` of one type, `ARRAY(F(...), F(...))` of structs."""
    if len(of) == 1 and not isinstance(of[0], Field):
        return Array(of[0])
    return Array(STRUCT(*of))


def STRUCT(*fields: Type | Field) -> Struct:
    """A struct of `fields`."""
    if not all(isinstance(field, Field) for field in fields):
        raise TypeError("a struct is made of fields: F(...)")
    return Struct(tuple(field for field in fields if isinstance(field, Field)))


def natural_default(type: Type) -> Any:
    """The value of a field that has no default of its own. Lists and dicts are new for each message."""
    match type:
        case Fixed():
            return type.default
        case Text():
            return ""
        case Blob():
            return None if type.is_records else b""
        case Array():
            return []
        case Struct():
            return {}


def default_source(field: Field) -> str:
    """The default of `field` as a Python expression that makes a fresh value."""
    if isinstance(field.type, Struct) and field.default is not None:
        return struct_default_source(field.type)
    return repr(field.default)


def struct_default_source(struct: Struct) -> str:
    """A dict display with the defaults of all fields of `struct`."""
    return "{" + ", ".join(f"{f.name!r}: {default_source(f)}" for f in struct.fields) + "}"


def least_size(type: Type, version: int, flexible: bool, nullable: bool = False) -> int:
    """The fewest bytes that a value of `type` can take, to reject an absurd array count before any
    allocation.
    """
    match type:
        case Fixed():
            return type.size
        case Text():
            return 1 if flexible else 2
        case Blob() | Array():
            return 1 if flexible else 4
        case Struct() if nullable:
            return 1
        case Struct():
            body = (f for f in type.fields if f.in_body(version))
            sizes = (least_size(f.type, version, flexible, version in f.nullable) for f in body)
            return sum(sizes) + flexible
