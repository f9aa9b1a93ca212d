"""Makes the Python source of a writer for one message at one version, and compiles it.

A generated writer is one flat function `write(message) -> parts`. Fixed-size neighbours are packed together;
records become parts of their own, not copied. It raises struct.error, TypeError and the like for a value that
does not fit; `Schema.write` turns those into ProtocolError and finds the field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from eoslog.protocol import primitives
from eoslog.protocol.fields import Array, Blob, Field, Fixed, Struct, Text, Type, default_source
from eoslog.protocol.primitives import Buffer, ProtocolError

Writer = Callable[[Any], list[Buffer]]


def compile_writer(name: str, struct_type: Struct, version: int, flexible: bool) -> Writer:
    """Make the writer of `struct_type` at `version`; `name` appears in its errors."""
    source = WriterSource(version, flexible)
    source.line("def write(message):")
    source.depth += 1
    source.line("parts = []")
    source.line("out = bytearray()")
    source.struct(struct_type, "message", name)
    source.line("if out: parts.append(out)")
    source.line("return parts")
    exec(compile("\n".join(source.lines), f"<writer of {name} v{version}>", "exec"), source.names)
    writer: Writer = source.names["write"]
    return writer


def unknown_fields(path: str, message: dict[str, Any], known: frozenset[str]) -> NoReturn:
    """Refuse keys that the schema does not have: a misspelt field must not vanish."""
    raise ProtocolError(f"{path} has no field {', '.join(sorted(map(str, set(message) - known)))}")


def not_carried(path: str, version: int) -> NoReturn:
    """Refuse to drop a value that matters and that this version cannot carry."""
    raise ProtocolError(f"{path} has a value, but version {version} cannot carry it")


def not_a_list(path: str, value: object) -> NoReturn:
    """Refuse anything but a list or tuple for an array."""
    raise ProtocolError(f"{path} must be a list, not {type(value).__name__}")


def bad_uuid(path: str, value: object) -> NoReturn:
    """Refuse a topic id that is not 16 bytes."""
    raise ProtocolError(f"{path} must be 16 bytes, not {value!r}")


def record_parts(value: Any) -> tuple[list[Buffer], int]:
    """The buffers of a records field as given (one, or a list of them), and their size in bytes."""
    parts = list(value) if isinstance(value, list | tuple) else [value]
    return parts, sum(memoryview(part).nbytes for part in parts)


_HELPERS: dict[str, Any] = {
    function.__name__: function
    for function in (unknown_fields, not_carried, not_a_list, bad_uuid, record_parts, struct.pack)
}


class WriterSource:
    """Collects the lines of one writer. Each method emits the code that writes the value of an expression."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.depth = 0
        self.names: dict[str, Any] = {**vars(primitives), **_HELPERS}
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

    def bind(self, expression: str) -> str:
        """Give `expression` a local name."""
        target = self.name()
        self.line(f"{target} = {expression}")
        return target

    def constant(self, value: object) -> str:
        """A name for a constant the writer needs."""
        key = f"c{len(self.names)}"
        self.names[key] = value
        return key

    def flush(self) -> None:
        """Pack the pending run of fixed-size values with one call."""
        if not self._run:
            return
        packer = struct.Struct(">" + "".join(code for code, _ in self._run))
        arguments = ", ".join(expression for _, expression in self._run)
        self._run = []
        self.line(f"out += {self.constant(packer.pack)}({arguments})")

    def fixed(self, code: str, expression: str) -> None:
        """Write one value of fixed size, together with its neighbours."""
        self._run.append((code, expression))

    def length(self, classic_code: str, count: str) -> None:
        """Write a length or count (a local variable or a constant); -1 is null."""
        if not self.flexible:
            self.fixed(classic_code, count)
        elif count == "-1":
            self.fixed("B", "0")
        else:
            self.line(f"if {count} < 127: out.append({count} + 1)")
            self.line(f"else: out += uvarint({count} + 1)")

    def value(self, type: Type, expression: str, nullable: bool, path: str) -> None:
        """Write a value of any type."""
        match type:
            case Fixed() if type.name == "uuid":
                value = self.bind(expression)
                self.line(f"if len({value}) != 16: bad_uuid({path!r}, {value})")
                self.fixed(type.code, value)
            case Fixed():
                self.fixed(type.code, expression)
            case Text():
                self.text(expression, nullable, path)
            case Blob():
                self.blob(type, expression, nullable, path)
            case Array():
                self.array(type, expression, nullable, path)
            case Struct():
                self.maybe_struct(type, expression, nullable, path)

    def unless_null(self, value: str, classic_code: str, nullable: bool, path: str) -> None:
        """Write null if the value is None; otherwise open the branch for the value."""
        self.line(f"if {value} is None:")
        self.depth += 1
        if nullable:
            self.length(classic_code, "-1")
            self.flush()
        else:
            self.line(f"null_value({path!r})")
        self.depth -= 1
        self.line("else:")
        self.depth += 1

    def text(self, expression: str, nullable: bool, path: str) -> None:
        """Write a string."""
        value = self.bind(expression)
        self.unless_null(value, "h", nullable, path)
        encoded = self.bind(f"{value}.encode()")
        size = self.bind(f"len({encoded})")
        self.line(f"if {size} > {primitives.MAX_STRING}: string_too_long({path!r}, {size})")
        self.length("h", size)
        self.line(f"out += {encoded}")
        self.depth -= 1

    def blob(self, type: Blob, expression: str, nullable: bool, path: str) -> None:
        """Write bytes, or pass records on as parts of their own."""
        value = self.bind(expression)
        self.unless_null(value, "i", nullable, path)
        if type.is_records:
            pieces, size = self.name(), self.name()
            self.line(f"{pieces}, {size} = record_parts({value})")
            self.length("i", size)
            self.line("parts.append(out)")
            self.line(f"parts += {pieces}")
            self.line("out = bytearray()")
        else:
            view = self.bind(f"memoryview({value})")
            self.length("i", self.bind(f"{view}.nbytes"))
            self.line(f"out += {view}")
        self.depth -= 1

    def array(self, type: Array, expression: str, nullable: bool, path: str) -> None:
        """Write a list."""
        value = self.bind(expression)
        self.unless_null(value, "i", nullable, path)
        self.line(f"if not isinstance({value}, (list, tuple)): not_a_list({path!r}, {value})")
        count = self.bind(f"len({value})")
        self.length("i", count)
        if isinstance(type.of, Fixed) and type.of.name != "uuid":
            self.line(f"out += pack(f'>{{{count}}}{type.of.code}', *{value})")
        else:
            item = self.name()
            self.line(f"for {item} in {value}:")
            self.depth += 1
            self.value(type.of, item, False, path)
            self.flush()
            self.depth -= 1
        self.depth -= 1

    def maybe_struct(self, type: Struct, expression: str, nullable: bool, path: str) -> None:
        """Write a struct, with an int8 in front of it if it may be null."""
        value = self.bind(expression)
        if not nullable:
            self.struct(type, value, path)
            return
        self.line(f"if {value} is None: out.append(255)")
        self.line("else:")
        self.depth += 1
        self.line("out.append(1)")
        self.struct(type, value, path)
        self.flush()
        self.depth -= 1

    def struct(self, type: Struct, value: str, path: str) -> None:
        """Write the fields of a struct, given as a dict."""
        known = self.constant(frozenset(field.name for field in type.fields))
        self.line(f"if not {value}.keys() <= {known}: unknown_fields({path!r}, {value}, {known})")
        for field in type.fields:
            where = f"{path}.{field.name}"
            if self.version not in field.versions and not field.ignorable:
                differs = self.differs(field, self.get(field, value))
                self.line(f"if {differs}: not_carried({where!r}, {self.version})")
        for field in type.fields:
            if field.in_body(self.version):
                nullable = self.version in field.nullable
                self.value(field.type, self.get(field, value), nullable, f"{path}.{field.name}")
        if self.flexible:
            self.tags([field for field in type.fields if field.in_tags(self.version)], value, path)

    def get(self, field: Field, value: str) -> str:
        """The expression of a field's value in the dict `value`, or of its default."""
        return f"{value}.get({field.name!r}, {default_source(field)})"

    def differs(self, field: Field, expression: str) -> str:
        """An expression for whether the value differs from the field's default."""
        if not isinstance(field.type, Struct) or field.default is None:
            return f"{expression} != {default_source(field)}"
        value = self.bind(expression)
        inner = (self.differs(sub, self.get(sub, value)) for sub in field.type.fields)
        return f"({value} is None or {' or '.join(inner)})"

    def tags(self, fields: list[Field], value: str, path: str) -> None:
        """Write the tagged fields that differ from their defaults, in order of tag."""
        if not fields:
            self.fixed("B", "0")
            return
        outer, count, tagged = self.name(), self.name(), self.name()
        self.line(f"{outer} = out; {count} = 0; {tagged} = bytearray()")
        for field in sorted(fields, key=lambda field: field.tag or 0):
            content = self.bind(self.get(field, value))
            self.line(f"if {self.differs(field, content)}:")
            self.depth += 1
            self.line("out = bytearray()")
            self.value(field.type, content, self.version in field.nullable, f"{path}.{field.name}")
            self.line(f"{tagged} += uvarint({field.tag}) + uvarint(len(out)) + out")
            self.line(f"{count} += 1")
            self.depth -= 1
        self.line(f"out = {outer}")
        self.line(f"out += uvarint({count}) + {tagged}")
