"""Makes the Python source of a reader for one message at one version, and compiles it.

A generated reader is one flat function `read(buf, pos, left) -> (message, pos)`: neighbouring fields of fixed
size are unpacked together, nested arrays become nested loops, so that a request costs microseconds. For bad
bytes it may raise IndexError, struct.error or UnicodeDecodeError; `Schema.read` turns these into
ProtocolError. Every length is compared with the bytes left before anything of that length is made, and all
arrays together have at most `left` items.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from eoslog.protocol import primitives
from eoslog.protocol.fields import Array, Blob, Field, Fixed, Struct, Text, Type, default_source, least_size

Reader = Callable[[memoryview, int, int], tuple[Any, int]]


def compile_reader(name: str, struct_type: Struct, version: int, flexible: bool) -> Reader:
    """Make the reader of `struct_type` at `version`; `name` appears in its errors."""
    source = ReaderSource(version, flexible)
    source.line("def read(buf, pos, left):")
    source.depth += 1
    source.line("size = len(buf)")
    result = source.struct(struct_type, name)
    source.line(f"return {result}, pos")
    exec(compile("\n".join(source.lines), f"<reader of {name} v{version}>", "exec"), source.names)
    reader: Reader = source.names["read"]
    return reader


class ReaderSource:
    """Collects the lines of one reader. Its methods emit code and return the expression of the value read."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.depth = 0
        self.names: dict[str, Any] = {"unpack_from": struct.unpack_from, **vars(primitives)}
        self._count = 0
        self._run: list[tuple[str, str]] = []

    def line(self, text: str) -> None:
        """Emit one line at the current depth, after anything pending."""
        self.flush()
        self.lines.append("    " * self.depth + text)

    def name(self) -> str:
        """A new local variable."""
        self._count += 1
        return f"v{self._count}"

    def flush(self) -> None:
        """Unpack the pending run of fixed-size values with one call."""
        if not self._run:
            return
        packer = struct.Struct(">" + "".join(code for code, _ in self._run))
        targets = ", ".join(target for _, target in self._run)
        self._run = []
        unpack = f"unpack{len(self.names)}"
        self.names[unpack] = packer.unpack_from
        self.line(f"{targets}, = {unpack}(buf, pos)")
        self.line(f"pos += {packer.size}")

    def fixed(self, code: str) -> str:
        """Read one value of fixed size, together with its neighbours."""
        target = self.name()
        self._run.append((code, target))
        return target

    def length(self, classic_code: str) -> str:
        """Read a length or count; -1 (or below) is null."""
        if not self.flexible:
            target = self.fixed(classic_code)
            self.flush()
            return target
        target = self.name()
        self.line(f"{target} = buf[pos] - 1")
        self.line("pos += 1")
        self.line(f"if {target} > 126: {target}, pos = read_length(buf, pos - 1)")
        return target

    def value(self, type: Type, nullable: bool, path: str) -> str:
        """Read a value of any type."""
        match type:
            case Fixed():
                return self.fixed(type.code)
            case Text():
                return self.text(nullable, path)
            case Blob():
                return self.blob(type, nullable, path)
            case Array():
                return self.array(type, nullable, path)
            case Struct():
                return self.nullable_struct(type, path) if nullable else self.struct(type, path)

    def or_null(self, count: str, target: str, nullable: bool, path: str) -> None:
        """Open the branch for a value that is not null; a negative count is null."""
        self.line(f"if {count} < 0:")
        if nullable:
            self.line(f"    if {count} != -1: null_value({path!r})")
            self.line(f"    {target} = None")
        else:
            self.line(f"    null_value({path!r})")
        self.line("else:")
        self.depth += 1

    def text(self, nullable: bool, path: str) -> str:
        """Read a string."""
        size, target = self.length("h"), self.name()
        self.or_null(size, target, nullable, path)
        self.line(f"end = pos + {size}")
        self.line("if end > size: cut_short()")
        if self.flexible:
            self.line(f"if {size} > {primitives.MAX_STRING}: string_too_long({path!r}, {size})")
        self.line(f"{target} = str(buf[pos:end], 'utf-8')")
        self.line("pos = end")
        self.depth -= 1
        return target

    def blob(self, type: Blob, nullable: bool, path: str) -> str:
        """Read bytes (copied) or records (a view)."""
        size, target = self.length("i"), self.name()
        self.or_null(size, target, nullable, path)
        self.line(f"end = pos + {size}")
        self.line("if end > size: cut_short()")
        self.line(f"{target} = buf[pos:end]" if type.is_records else f"{target} = bytes(buf[pos:end])")
        self.line("pos = end")
        self.depth -= 1
        return target

    def array(self, type: Array, nullable: bool, path: str) -> str:
        """Read a list; its count may not exceed what could fit into the bytes left."""
        count, target = self.length("i"), self.name()
        self.or_null(count, target, nullable, path)
        least = least_size(type.of, self.version, self.flexible)
        self.line(f"if {count} * {least} > size - pos: cut_short()")
        self.line(f"left -= {count}")
        self.line("if left < 0: too_many_things()")
        if isinstance(type.of, Fixed) and type.of.name != "uuid":
            self.line(f"{target} = list(unpack_from(f'>{{{count}}}{type.of.code}', buf, pos))")
            self.line(f"pos += {count} * {type.of.size}")
        else:
            self.line(f"{target} = []")
            self.line(f"for _ in range({count}):")
            self.depth += 1
            item = self.value(type.of, False, path)
            self.line(f"{target}.append({item})")
            self.depth -= 1
        self.depth -= 1
        return target

    def nullable_struct(self, type: Struct, path: str) -> str:
        """Read a struct with an int8 in front of it: below 0 for null."""
        present, target = self.fixed("b"), self.name()
        self.line(f"if {present} < 0:")
        self.line(f"    {target} = None")
        self.line("else:")
        self.depth += 1
        value = self.struct(type, path)
        self.line(f"{target} = {value}")
        self.depth -= 1
        return target

    def struct(self, type: Struct, path: str) -> str:
        """Read a struct; fields that this version lacks get their defaults."""
        values: dict[str, str] = {field.name: default_source(field) for field in type.fields}
        for field in type.fields:
            if field.in_body(self.version):
                values[field.name] = self.value(
                    field.type, self.version in field.nullable, f"{path}.{field.name}"
                )
        if self.flexible:
            self.tags([field for field in type.fields if field.in_tags(self.version)], values, path)
        self.flush()
        return "{" + ", ".join(f"{name!r}: {value}" for name, value in values.items()) + "}"

    def tags(self, fields: list[Field], values: dict[str, str], path: str) -> None:
        """Read the tagged fields at the end of a struct; unknown ones are skipped."""
        for field in fields:
            values[field.name] = self.name()
            self.line(f"{values[field.name]} = {default_source(field)}")
        count, tag, stated, start = self.fixed("B"), self.name(), self.name(), self.name()
        self.line(f"if {count}:")
        self.depth += 1
        self.line(f"{count}, pos = read_uvarint(buf, pos - 1)")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.line(f"{tag}, pos = read_uvarint(buf, pos)")
        self.line(f"{stated}, pos = read_uvarint(buf, pos)")
        self.line(f"{start} = pos")
        self.line(f"if {start} + {stated} > size: cut_short()")
        for field in fields:
            self.line(f"if {tag} == {field.tag}:")
            self.depth += 1
            field_path = f"{path}.{field.name}"
            value = self.value(field.type, self.version in field.nullable, field_path)
            self.line(f"{values[field.name]} = {value}")
            self.line(f"if pos - {start} != {stated}: bad_size({field_path!r}, {stated}, pos - {start})")
            self.depth -= 1
        self.line(f"pos = {start} + {stated}")
        self.depth -= 2
