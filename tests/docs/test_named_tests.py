"""Tests that pages name are there, under that very name."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("objections.md", "exactly-once.md", "guarantees.md", "limits.md", "sql.md", "state.md")
OBJECTIONS = 8


@cache
def known_tests() -> dict[str, set[str]]:
    """File name -> names of its test functions; of several files of one name all."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("*.py"):
        names = {
            node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        }
        found.setdefault(path.name, set()).update(names)
    return found


def test_no_test_hides_in_a_file_that_pytest_passes_over() -> None:
    assert [name for name, tests in known_tests().items() if tests and not name.startswith("test_")] == []


def missing(page: str) -> list[str]:
    """What a page names and is not there: `file.py::test`, `test`, `test[case]`, `test_file.py`."""
    known = known_tests()
    everything = set().union(*known.values())
    wrong = []
    for text in re.findall(r"`([^`\s]*test_[^`]*)`", page):
        name = text.partition("[")[0].rpartition("/")[2]
        if name.endswith(".py") and name in known:
            continue
        file, sign, test = name.partition("::")
        if test not in known.get(file, set()) if sign else name not in everything:
            wrong.append(text)
    return wrong


@pytest.mark.parametrize("name", PAGES)
def test_every_test_that_a_page_names_is_there(name: str) -> None:
    assert missing((ROOT / "docs" / name).read_text()) == []


def test_each_objection_has_its_tests_and_your_duty() -> None:
    page = (ROOT / "docs" / "objections.md").read_text()
    sections = re.split(r"^## \d+\. ", page, flags=re.MULTILINE)[1:]
    assert len(sections) == OBJECTIONS
    for section in sections:
        assert re.findall(r"^- `\w+\.py::test_\w+`$", section, re.MULTILINE), section.splitlines()[0]
        assert section.count("**Your duty:**") == 1, section.splitlines()[0]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`test_traps.py::test_trap_5_commit_may_be_called_again`", False),
        ("`tests/connector/commit/test_traps.py`", False),
        ("`test_driver_killed[begun]`", False),
        ("`test_traps.py::test_that_is_not_there`", True),
        ("`test_model.py::test_trap_5_commit_may_be_called_again`", True),
        ("`test_that_is_not_there`", True),
        ("`tests/connector/test_that_is_not_there.py`", True),
    ],
)
def test_names_that_are_wrong_are_noticed(text: str, wrong: bool) -> None:
    assert bool(missing(text)) is wrong
