"""The connector's error classes and the texts in its source: docs/troubleshooting.md is compared with them.

A text is the literal pieces of a string, with one HOLE wherever a value goes in.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import eoslog
from eoslog.connector.commit import faults
from eoslog.errors import EoslogError

HOLE = "\0"
ROOT = Path(eoslog.__file__).parent
ROOMS = ("connector", "client", "errors")


def modules() -> list[Path]:
    """The source files of the connector, of its client, and of their errors."""
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def error_classes() -> dict[str, type[EoslogError]]:
    """Every class of the connector that derives from EoslogError, itself among them. Those of the commands,
    which other tests may have imported, have pages of their own."""
    for room in ROOMS:
        for found in pkgutil.walk_packages([str(ROOT / room)], f"eoslog.{room}."):
            importlib.import_module(found.name)

    def below(one: type[EoslogError]) -> Iterator[type[EoslogError]]:
        yield one
        for child in one.__subclasses__():
            yield from below(child)

    homes = tuple(f"eoslog.{room}" for room in ROOMS)
    return {one.__name__: one for one in below(EoslogError) if one.__module__.startswith(homes)}


def raised() -> dict[str, set[str]]:
    """Names of the classes that the connector raises or makes, and the files that do so."""
    found: dict[str, set[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            call = node.exc if isinstance(node, ast.Raise) else None
            named = call.func if isinstance(call, ast.Call) else None
            if isinstance(named, ast.Name) and named.id[0].isupper():
                found.setdefault(named.id, set()).add(path.name)
    return found


def texts() -> list[str]:
    """Every string of the connector's source, with the strings that it is put together from."""
    found = []
    for path in modules():
        tree = ast.parse(path.read_text())
        scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        everywhere = _strings(tree, {})
        every: tuple[ast.Module | ast.FunctionDef, ...] = (tree, *scopes)
        for scope in every:
            known = everywhere | _strings(scope, everywhere)
            found += [text for node in ast.walk(scope) if (text := _text(node, known)) is not None]
    return found


def _strings(scope: ast.Module | ast.FunctionDef, known: dict[str, str]) -> dict[str, str]:
    """Names that stand for a string in a module or a function."""
    found = {}
    for node in scope.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = _text(node.value, known)
            if text is not None:
                found[node.targets[0].id] = text
    return found


def _text(node: ast.AST, constants: dict[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        pieces = [_piece(value, constants) for value in node.values]
        return re.sub(f"{HOLE}+", HOLE, "".join(pieces))
    return None


def _piece(value: ast.expr, constants: dict[str, str]) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    inner = value.value if isinstance(value, ast.FormattedValue) else value
    if isinstance(inner, ast.Name):
        return constants.get(inner.id, HOLE)
    if isinstance(inner, ast.Attribute) and inner.attr == "advice" and isinstance(inner.value, ast.Name):
        return str(getattr(faults, inner.value.id).advice)
    return HOLE


def quoted(page: str) -> list[tuple[str, str]]:
    """(title of the section, message) of every message that the page quotes."""
    found, title = [], ""
    for heading, body in re.findall(r"(?m)^#+ (.+)$|^```text\n(.+)\n```$", page):
        title = heading or title
        if body:
            found.append((title.strip("`"), body))
    return found


def is_said(message: str, said: list[str]) -> bool:
    """Whether a text of the source holds the message; `<...>` in the message stands for a value, or for
    a piece of the text."""
    wanted = [piece for piece in re.split(r"<[^<>]*>", message) if piece.strip(" :-();,")]
    return any(_in_order(wanted, text) for text in said)


def _in_order(pieces: list[str], text: str) -> bool:
    at = 0
    for piece in pieces:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return bool(pieces)


def messages() -> list[tuple[str, str, str]]:
    """(place, class, text) of every error that is raised with a text of its own."""
    found = []
    for path in modules():
        tree = ast.parse(path.read_text())
        everywhere = _strings(tree, {})
        for scope in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            known = everywhere | _strings(scope, everywhere)
            for node in ast.walk(scope):
                if not isinstance(node, ast.Raise):
                    continue
                call = node.exc
                named = call.func if isinstance(call, ast.Call) else None
                if not isinstance(call, ast.Call) or not isinstance(named, ast.Name) or not call.args:
                    continue
                if not named.id.strip("_")[0].isupper():
                    continue  # a function that makes the error
                text = _text(call.args[0], known)
                if text is not None:
                    found.append((f"{path.relative_to(ROOT)}:{node.lineno}", named.id, text))
    return found
