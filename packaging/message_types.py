"""Makes protocol/typed.pyi, the messages as types for mypy, from their schemas.

Each message, and each struct in it, is a TypedDict in two forms. As it was read (`FetchRequest`) every field
is there. To be written (`FetchRequestDraft`) any may be left out and takes its default. Each API follows with
the types of its messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple

from eoslog.protocol import messages
from eoslog.protocol.apis import APIS
from eoslog.protocol.fields import NEVER, Array, Blob, Field, Fixed, Struct, Text, Type
from eoslog.protocol.schema import Schema

FILE = Path(__file__).parents[1] / "protocol" / "typed.pyi"

_HEAD = """from collections.abc import Sequence
from typing import TypedDict

from eoslog.protocol.apis import Api
from eoslog.protocol.primitives import Buffer

"""
_DRAFT = "Draft"
_FIXED = {"bool": "bool", "float64": "float", "uuid": "bytes"}  # all others are int


_Path = tuple[str, ...]


class _Named(NamedTuple):
    """A struct, and what its class is called."""

    name: str
    struct: Struct


def source() -> str:
    """What the file holds."""
    classes = [line for schema in _schemas() for line in _message(schema)]
    return "\n".join([_HEAD, *classes, *_apis(), ""])


def main() -> None:
    """Write the file: whole or not at all, for mypy may be reading it."""
    made = FILE.with_suffix(".part")
    made.write_text(source())
    made.replace(FILE)


def _schemas() -> Iterator[Schema]:
    for found in iter_modules(messages.__path__):
        module = import_module(f"{messages.__name__}.{found.name}")
        yield from (value for value in vars(module).values() if isinstance(value, Schema))


def _message(schema: Schema) -> Iterator[str]:
    named = _classes(schema)
    names = {id(one.struct): one.name for one in named}
    for one in {one.name: one for one in named}.values():
        yield from _class(one, names, draft=False)
        yield from _class(one, names, draft=True)


def _classes(schema: Schema) -> list[_Named]:
    """The structs of a message, inner ones first. Where two would have one name, the parents' go before."""
    found = [*_structs(schema.struct, ()), ((), schema.struct)]
    return [_Named(schema.name + "".join(_shortest(path, struct, found)), struct) for path, struct in found]


def _shortest(path: _Path, struct: Struct, found: list[tuple[_Path, Struct]]) -> _Path:
    others = [other for other_path, other in found if other_path[-1:] == path[-1:]]
    return path[-1:] if all(other == struct for other in others) else path


def _structs(struct: Struct, path: _Path) -> Iterator[tuple[_Path, Struct]]:
    for field in struct.fields:
        inner = field.type.of if isinstance(field.type, Array) else field.type
        if isinstance(inner, Struct):
            deeper = (*path, _camel(_one(field.name) if isinstance(field.type, Array) else field.name))
            yield from _structs(inner, deeper)
            yield deeper, inner


def _class(named: _Named, names: dict[int, str], draft: bool) -> list[str]:
    end = _DRAFT if draft else ""
    bases = "TypedDict, total=False" if draft else "TypedDict"
    fields = [f"    {field.name}: {_field_type(field, names, draft)}" for field in named.struct.fields]
    return [f"class {named.name}{end}({bases}):", *(fields or ["    pass"]), "", ""]


def _field_type(field: Field, names: dict[int, str], draft: bool) -> str:
    may_be_none = field.nullable != NEVER or field.default is None
    return _type(field.type, names, draft) + (" | None" if may_be_none else "")


def _type(type: Type, names: dict[int, str], draft: bool) -> str:
    match type:
        case Fixed():
            return _FIXED.get(type.name, "int")
        case Text():
            return "str"
        case Blob() if draft:
            return "Buffer | Sequence[Buffer]" if type.is_records else "Buffer"
        case Blob():
            return "memoryview" if type.is_records else "bytes"
        case Array():
            return f"{'Sequence' if draft else 'list'}[{_type(type.of, names, draft)}]"
        case Struct():
            return names[id(type)] + (_DRAFT if draft else "")


def _apis() -> Iterator[str]:
    for key, api in APIS.items():
        forms = [schema.name + end for schema in (api.request, api.response) for end in ("", _DRAFT)]
        yield f"{key.name}: Api[{', '.join(forms)}]"


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _one(name: str) -> str:
    """What one item of a list is called."""
    return name.removesuffix("ies") + "y" if name.endswith("ies") else name.removesuffix("s")


if __name__ == "__main__":
    main()
