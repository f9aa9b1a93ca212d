"""Writes eoslog/protocol/typed from the schemas: `python -m tests.house.typed_source`.

A module for each module of messages: a TypedDict for each message and each struct in it, in two forms.
As it was read (`FetchRequest`) every field is there. To be written (`FetchRequestDraft`) any may be left out
and takes its default. And apis.py, which binds each API to the types of its messages.
A test fails when a module is not what would be written here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple

import eoslog.protocol
from eoslog.protocol import messages
from eoslog.protocol.apis import APIS
from eoslog.protocol.fields import NEVER, Array, Blob, Field, Fixed, Struct, Text, Type
from eoslog.protocol.schema import Schema

HERE = Path(eoslog.protocol.__path__[0]) / "typed"

_DRAFT = "Draft"
_FIXED = {"bool": "bool", "float64": "float", "uuid": "bytes"}  # all others are int


_Path = tuple[str, ...]


class _Named(NamedTuple):
    """A struct, and what its class is called."""

    name: str
    struct: Struct


def sources() -> dict[str, str]:
    """What each file holds, by its name."""
    made = {f"{name}.py": _module(name, schemas) for name, schemas in _schemas()}
    made["apis.py"] = _apis()
    return {name: _formatted(text) for name, text in made.items()}


def main() -> None:
    """Write the files; those that no schema has any more go."""
    made = sources()
    for file in HERE.glob("*.py"):
        if file.name not in made and file.name != "__init__.py":
            file.unlink()
    for name, text in made.items():
        (HERE / name).write_text(text)


def _schemas() -> Iterator[tuple[str, list[Schema]]]:
    for found in iter_modules(messages.__path__):
        module = import_module(f"{messages.__name__}.{found.name}")
        yield found.name, [value for value in vars(module).values() if isinstance(value, Schema)]


def _module(name: str, schemas: list[Schema]) -> str:
    classes: list[str] = []
    for schema in schemas:
        named = _classes(schema)
        names = {id(one.struct): one.name for one in named}
        distinct = {one.name: one for one in named}.values()
        for draft in (False, True):
            for one in distinct:
                classes += _class(one, names, draft)
    text = "\n".join(classes)
    buffer = ["from eoslog.protocol.primitives import Buffer", ""] if "Buffer" in text else []
    sequence = ["from collections.abc import Sequence"] if "Sequence" in text else []
    head = [f'"""The types of `messages/{name}.py`, made of it by `make typed`."""', "",
            "from __future__ import annotations", "",
            *sequence, "from typing import TypedDict", "", *buffer, ""]  # fmt: skip
    return "\n".join([*head, text, ""])


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


def _apis() -> str:
    modules = sorted(key.name.lower() for key in APIS)
    lines = ['"""Every API with the types of its messages, made of the schemas by `make typed`."""', "",
             "from __future__ import annotations", "", "from typing import TYPE_CHECKING", "",
             "from eoslog.protocol.apis import APIS, Api, ApiKey", "", "if TYPE_CHECKING:",
             f"    from eoslog.protocol.typed import ({', '.join(modules)})", ""]  # fmt: skip
    for key, api in APIS.items():
        forms = [schema.name + end for schema in (api.request, api.response) for end in ("", _DRAFT)]
        types = ", ".join(f"{key.name.lower()}.{form}" for form in forms)
        lines.append(f"{key.name}: Api[{types}] = APIS[ApiKey.{key.name}]")
    return "\n".join([*lines, ""])


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _one(name: str) -> str:
    """What one item of a list is called."""
    return name.removesuffix("ies") + "y" if name.endswith("ies") else name.removesuffix("s")


def _formatted(text: str) -> str:
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(HERE / "any.py"), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
