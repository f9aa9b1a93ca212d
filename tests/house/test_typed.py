"""Messages are typed: the types are the schemas', mypy sees what does not fit, and the rooms use them."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eoslog.broker import handlers
from eoslog.protocol.apis import APIS
from eoslog.protocol.fields import Array, Struct

ROOT = Path(__file__).parents[2]
WRONG = Path(__file__).with_name("wrong_fields.py")

CLIENTS = ("client", "connector/run", "eoslog/commands", "eoslog/top", "eoslog/audit")

_BY_FIELD = {
    "remove_denied",
    "denied_entries",
    "topics",
    "needs",
}  # functions of broker/authorize/filtering.py that take fields' names


@pytest.mark.timeout(600)
def test_mypy_sees_what_does_not_fit(tmp_path: Path) -> None:
    """Without what an earlier run left, it reads half of the sources."""
    subprocess.run([sys.executable, ROOT / "packaging" / "message_types.py"], check=True)
    mypy = [sys.executable, "-m", "mypy", "--config-file", "setup.cfg", "--cache-dir", str(tmp_path)]
    run = subprocess.run(
        [*mypy, "-m", "tests.house.wrong_fields"],
        cwd=ROOT, env={**os.environ, "MYPY_FORCE_COLOR": "0"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = {int(line) for line in re.findall(r"^\S*wrong_fields\.py:(\d+): error:", run.stdout, re.M)}
    marked = {
        number for number, line in enumerate(WRONG.read_text().splitlines(), 1) if "  # wrong: " in line
    }
    assert marked and found == marked, run.stdout + run.stderr


@pytest.mark.parametrize("module", handlers.ALL, ids=lambda module: module.KEY.name)
def test_a_handler_takes_and_answers_its_own_api(module: Any) -> None:
    name, hints = APIS[module.KEY].name, module.handle.__annotations__
    assert hints["request"] == f"{name}Request"
    assert set(re.findall(r"\w+(?:Draft|Message|Any)\b", hints["return"])) == {f"{name}ResponseDraft"}


@pytest.mark.parametrize("module", handlers.ALL, ids=lambda module: module.KEY.name)
def test_a_check_judges_its_own_api(module: Any) -> None:
    hints, name = module.access.__annotations__, APIS[module.KEY].name
    (judged,) = re.findall(r"^AccessRequest\[(\w+)\]$", hints["asked"])
    assert judged in (f"{name}Request", "Any")
    assert set(re.findall(r"\w+Draft\b", hints["return"] or "")) <= {f"{name}ResponseDraft"}


def test_fields_named_to_the_checks_are_some_request_s() -> None:
    """mypy does not see these: they are texts."""
    known = {name for api in APIS.values() for name in _names(api.request.struct)}
    rooms = (ROOT / "broker" / "authorize", ROOT / "broker" / "handlers")
    named = {text for room in rooms for file in room.glob("*.py") for text in _texts(file)}
    assert {"group_id", "topic_data", "topics"} <= named <= known, named - known


def test_no_client_function_sends_or_receives_what_is_not_typed() -> None:
    """`ask`, `answer` and `call` say what goes with an API; below them are `send` and `receive`."""
    files = [file for room in CLIENTS for file in (ROOT / room).rglob("*.py")]
    loose = [
        f"{f}: {x}" for f in files for x in re.findall(r"\w*connection\.(?:send|receive)\(", f.read_text())
    ]
    assert files and loose == []


def _names(struct: Struct) -> Iterator[str]:
    for field in struct.fields:
        yield field.name
        inner = field.type.of if isinstance(field.type, Array) else field.type
        if isinstance(inner, Struct):
            yield from _names(inner)


def _texts(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BY_FIELD:
            given = [*node.args[:3], *(word.value for word in node.keywords if word.arg in ("name", "field"))]
            yield from (
                one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)
            )
