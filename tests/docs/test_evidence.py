"""docs/evidence.md has the tests of each promise, under names that are there; users' pages name none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
import yaml

from tests.docs.reader import ROOT

# -- tests that pages name -----------------------------------------------------------------------
# Tests that pages name are there, under that very name.

NAMING = ("evidence.md", "objections.md", "exactly-once.md")
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


@pytest.mark.parametrize("name", NAMING)
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


# -- a row for each promise ----------------------------------------------------------------------
# Each row of guarantees.md, and each limit of limits.md, has its row in evidence.md, with tests.

EVIDENCE = (ROOT / "docs" / "evidence.md").read_text()
UNTESTED = {
    "Spark identifies a file by its path",
    "A batch in which a function of `foreachBatch` writes nothing leaves no trace",
    "PySpark plans a batch source once for each DataFrame",
    "librdkafka 2.16 can wait for ever for a coordinator",
}
"""What no test can show; evidence.md says why."""


def tables(page: str) -> dict[str, list[list[str]]]:
    """Heading -> the rows of the tables below it, without their heads. The page's title is ""."""
    found: dict[str, list[list[str]]] = {}
    parts = re.split(r"(?m)^## (.+)$", page)
    for heading, body in zip(["", *parts[1::2]], parts[::2], strict=True):
        rows = [line for line in body.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
        heads = [at for at, row in enumerate(cells) if set("".join(row)) <= {"-"} and row[0]]
        left_out = {*heads, *(at - 1 for at in heads)}
        kept = [row for at, row in enumerate(cells) if at not in left_out]
        if kept:
            found[heading] = kept
    return found


def promises() -> dict[str, list[str]]:
    """Section of evidence.md -> its first column: rows of guarantees.md, bold words and boxes of limits."""
    page = (ROOT / "docs" / "guarantees.md").read_text()
    found = {
        f"Guarantees: {heading}" if heading else "Guarantees": [row[0] for row in rows]
        for heading, rows in tables(page).items()
    }
    told = re.finditer(
        r'(?ms)^(?:\*\*(.+?)\*\*|!!! danger "(.+?)"$)', (ROOT / "docs" / "limits.md").read_text()
    )
    return found | {"Limits": [" ".join((one[1] or one[2]).split()).rstrip(".,:") for one in told]}


@pytest.mark.parametrize("section", promises())
def test_each_promise_has_its_row(section: str) -> None:
    assert [row[0] for row in tables(EVIDENCE)[section]] == promises()[section]


def test_each_row_names_tests_or_says_why_not() -> None:
    others = (
        "What was run",
        "Versions of ",
        "Rehearsals of ",
        "Brokers that are not",
        "JAAS texts of Kerberos",
    )
    sections = {name: rows for name, rows in tables(EVIDENCE).items() if not name.startswith(others)}
    told = [(row[-2], row[-1]) for rows in sections.values() for row in rows]
    assert len(told) > 150
    assert {promise for promise, tests in told if re.match(r"none: \w+", tests)} == UNTESTED
    for promise, tests in told:
        assert promise in UNTESTED or re.search(r"`[^`]*test_|`make [a-z-]+`", tests), promise


def test_paths_and_targets_of_the_evidence_are_there() -> None:
    paths = re.findall(r"`(tests/[\w./-]+)`", EVIDENCE)
    targets = {*re.findall(r"`make ([a-z0-9-]+)", EVIDENCE)}
    there = {*re.findall(r"(?m)^([a-z0-9-]+):", (ROOT / "Makefile").read_text())}
    assert len(paths) > 30 and len(targets) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == [] and targets <= there


def test_the_pages_of_the_evidence_are_there() -> None:
    pages = {page for row in tables(EVIDENCE)["Other pages"] for page in re.findall(r"[\w./-]+\.md", row[0])}
    assert len(pages) > 20
    assert [page for page in pages if not any((one / page).exists() for one in (ROOT, ROOT / "docs"))] == []


# -- users' pages --------------------------------------------------------------------------------
# What is for who works on eoslog stands in Internals: users' pages name no test, no target, no date.

_OF_THE_HOUSE = re.compile(r"\btest_\w+|\btests/\w|`make (?!jar|dist|setup)[a-z]|\b20\d\d-\d\d-\d\d\b(?!T)")


def users_pages() -> list[str]:
    """The pages of the navigation that are not in Internals, but the changelog: releases have dates."""
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text())
    groups = [group for group in yaml.safe_load(text)["nav"] if "Internals" not in group]
    return sorted({*_pages_of(groups)} - {"changelog.md"})


def _pages_of(part: object) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    for one in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _pages_of(one)


def of_the_house(page: str) -> list[str]:
    """What a page says that is not for users, without its blocks and comments."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$|<!--.*?-->", "", page)
    return _OF_THE_HOUSE.findall(text)


@pytest.mark.parametrize("page", users_pages())
def test_a_page_for_users_names_no_test_target_or_date(page: str) -> None:
    assert of_the_house((ROOT / "docs" / page).read_text()) == []


def test_what_is_not_for_users_is_noticed() -> None:
    page = "`test_a`, `make soak-kill` on 2026-11-23\n<!-- run by: tests/a.py -->\n```python\ntest_b\n```\n"
    assert of_the_house(page) == ["test_a", "`make s", "2026-11-23"]
