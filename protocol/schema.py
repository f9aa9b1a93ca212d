"""A message schema: reads and writes one kind of message at any of its versions.

Schemas are data (`fields.py` has the notation, `messages/` the messages). For each version in use, a reader
and a writer are compiled once, on first use.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Never, TypeAlias

from eoslog.protocol.fields import LATEST, Array, Field, Struct, Versions
from eoslog.protocol.primitives import MAX_LENGTH, Buffer, ProtocolError
from eoslog.protocol.reader_source import Reader, compile_reader
from eoslog.protocol.writer_source import Writer, compile_writer

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Read = TypeVar("Read", default=Any)
    Draft = TypeVar("Draft", default=Any)
else:
    from typing import TypeVar

    Read, Draft = TypeVar("Read"), TypeVar("Draft")

__all__ = ["Buffer", "Given", "Message", "ProtocolError", "Schema"]

Message = dict[str, Any]
"""A message of any kind, for code that treats all kinds alike; `typed/` has a type for each."""

Given: TypeAlias = "Draft | Callable[[Never], Draft]"
"""A draft whose type follows from the API or schema passed with it: mypy infers that type for a dict display
only if the parameter could be a function, too. No such function can be called, so none is ever passed."""

_CUT = (struct.error, IndexError)
_MISFIT = (struct.error, TypeError, AttributeError, ValueError, OverflowError)


class Schema(Generic[Read, Draft]):
    """One kind of message: it has type `Read` when read, and type `Draft` to be written.

    Values are plain: int, bool, str, bytes, float, lists and dicts; a topic id is 16 bytes; records are a
    memoryview of the bytes read, or any buffer or list of buffers to write.
    """

    def __init__(
        self, name: str, versions: str, *, flexible: int = LATEST + 1, fields: Iterable[Field] = ()
    ) -> None:
        """`versions` as in "3-13"; `flexible` is the first flexible version (KIP-482), none by default."""
        self.name = name
        self.versions = Versions.parse(versions)
        self.flexible_from = flexible
        self.struct = Struct(tuple(fields))
        self._readers: dict[int, Reader] = {}
        self._writers: dict[int, Writer] = {}

    def __repr__(self) -> str:
        return f"<Schema {self.name} {self.versions.first}-{self.versions.last}>"

    def is_flexible(self, version: int) -> bool:
        """Whether `version` has compact lengths and tagged fields."""
        return version >= self.flexible_from

    def read(self, version: int, buf: Buffer, pos: int = 0, most: int = MAX_LENGTH) -> tuple[Read, int]:
        """Read a message at `pos` whose arrays hold at most `most` things; answers it and where it ends.

        The message has every field of the schema: those that `version` lacks have their defaults. Records are
        views of `buf`. Raises only ProtocolError, for bytes that are incomplete or not valid.
        """
        reader = self._readers.get(version) or self._compile_reader(version)
        view = memoryview(buf)
        if view.format != "B" or view.ndim != 1:
            view = view.cast("B")
        if not 0 <= pos <= len(view):
            raise ProtocolError(f"{self.name} v{version} cannot start at {pos} of {len(view)} bytes")
        try:
            return reader(view, pos, most)
        except _CUT as error:
            raise ProtocolError(self._complaint(version, view, pos, "the bytes are cut short")) from error
        except UnicodeDecodeError as error:
            raise ProtocolError(self._complaint(version, view, pos, "a string is not UTF-8")) from error
        except ProtocolError as error:
            raise ProtocolError(self._complaint(version, view, pos, str(error))) from error

    def write(self, version: int, value: Given[Draft]) -> list[Buffer]:
        """Write a message as parts that belong one after the other.

        A missing key gets its default. ProtocolError, which names the field, for a value that does not fit, a
        key that the schema does not know, or a value that `version` cannot carry and that may not be dropped.
        """
        writer = self._writers.get(version) or self._compile_writer(version)
        try:
            return writer(value)
        except ProtocolError as error:
            raise ProtocolError(f"cannot write {self.name} v{version}: {error}") from error
        except _MISFIT as error:
            where = _misfit(self.name, self.struct, version, self.is_flexible(version), value)
            raise ProtocolError(f"cannot write {self.name} v{version}: {where or error}") from error

    def _complaint(self, version: int, view: memoryview, pos: int, what: str) -> str:
        return f"cannot read {self.name} v{version} from byte {pos} of {len(view)}: {what}"

    def _check(self, version: int) -> None:
        if version not in self.versions:
            first, last = self.versions
            raise ProtocolError(f"{self.name} has versions {first} to {last}, not {version}")

    def _compile_reader(self, version: int) -> Reader:
        self._check(version)
        reader = compile_reader(self.name, self.struct, version, self.is_flexible(version))
        return self._readers.setdefault(version, reader)

    def _compile_writer(self, version: int) -> Writer:
        self._check(version)
        writer = compile_writer(self.name, self.struct, version, self.is_flexible(version))
        return self._writers.setdefault(version, writer)


def _misfit(path: str, type: Struct, version: int, flexible: bool, value: Any) -> str | None:
    """Name the first field that cannot be written, by writing each field alone. For failures only."""
    if not isinstance(value, dict):
        return f"{path} must be a dict, not {value!r:.60}"
    for field in type.fields:
        if field.name not in value or version not in field.versions:
            continue
        content, where = value[field.name], f"{path}.{field.name}"
        try:
            compile_writer(where, Struct((field,)), version, flexible)({field.name: content})
        except _MISFIT as error:
            deeper = _deeper(where, field, version, flexible, content)
            return deeper or f"{where} cannot be {content!r:.60} ({error})"
    return None


def _deeper(path: str, field: Field, version: int, flexible: bool, content: Any) -> str | None:
    """The same within a struct or an array of structs."""
    if isinstance(field.type, Struct):
        return _misfit(path, field.type, version, flexible, content)
    if isinstance(field.type, Array) and isinstance(field.type.of, Struct):
        for index, item in enumerate(content):
            found = _misfit(f"{path}[{index}]", field.type.of, version, flexible, item)
            if found:
                return found
    return None
