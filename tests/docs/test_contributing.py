"""CONTRIBUTING.md tells of every package and every make target, and its paths and commands are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from setuptools import find_packages

from tests.docs.blocks import ROOT, blocks_of

PAGE = ROOT / "CONTRIBUTING.md"
TEXT = PAGE.read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's table."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_target_of_the_makefile_is_told_and_no_other() -> None:
    there = re.findall(r"(?m)^([a-z0-9-]+):.*?## (.*)$", (ROOT / "Makefile").read_text())
    told = [(target.strip("`").removeprefix("make "), what) for target, what in rows("Targets")]
    assert dict(told) == dict(there), "bring the table of targets in CONTRIBUTING.md to the Makefile's words"


def test_every_package_has_its_line() -> None:
    packages = find_packages(str(ROOT), include=["eoslog*"])
    told = {name.strip("`"): folder.strip("`") for name, folder, _ in rows("Rooms")}
    assert set(told) == set(packages)
    for name, folder in told.items():
        assert (ROOT / folder / "__init__.py").exists(), name


def test_every_path_is_there() -> None:
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", TEXT)
    assert len(paths) > 60
    for path in paths:
        assert (ROOT / path).exists(), path


def test_the_commands_name_tests_that_are_there() -> None:
    (block,) = (one for one in blocks_of(PAGE) if one.says.endswith(Path(__file__).name))
    for line in block.code.splitlines():
        words = shlex.split(line)
        assert words[:3] == ["python", "-m", "pytest"]
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))
        if "-k" in words:
            named = words[words.index("-k") + 1]
            assert f"def test_{named}" in (ROOT / words[3]).read_text()


@pytest.mark.parametrize("heading", ["Rooms", "Where a rule lives", "Judges", "Targets"])
def test_the_tables_are_found(heading: str) -> None:
    assert len(rows(heading)) > 8
