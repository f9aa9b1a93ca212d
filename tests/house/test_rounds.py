"""Nothing rots on request: each target of the Makefile is in a round, or it says why not."""

import re
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests import rounds
from tests.rounds import PAGE, ROOT, TABLE, Ran, command, in_turn, noted, page, run, targets

MADE = re.compile(r"^([a-z0-9-]+):.*##", re.MULTILINE)


def test_each_target_is_in_a_round_or_says_why_not() -> None:
    table = tomllib.loads(TABLE.read_text())
    made = MADE.findall((ROOT / "Makefile").read_text())
    assert sorted([*table["targets"], *table["others"]]) == sorted(made)
    assert all(said["minutes"] <= 20 for said in table["targets"].values()), "a round has twenty minutes"


def test_the_page_is_what_was_run() -> None:
    text = PAGE.read_text()
    assert page(text, targets(), noted(text)) == text
    assert not [name for name, ran in noted(text).items() if ran.outcome != "passed"]
    assert all(date.fromisoformat(ran.day) <= date.today() for ran in noted(text).values())


def test_who_was_run_longest_ago_is_next() -> None:
    known: dict[str, dict[str, Any]] = {
        "old": {"minutes": 1},
        "new": {"minutes": 1},
        "never": {"minutes": 2, "with": "N=1"},
    }
    runs = {"new": Ran("2026-11-02", "1a", 0.5, "passed"), "old": Ran("2026-11-01", "1a", 1.0, "passed")}
    assert in_turn(known, runs) == ["never", "old", "new"]
    text = page("head\n\n| target |", known, runs)
    assert noted(text) == runs and text.index("make new") < text.index("make old")
    assert command("never", known["never"]) == "make never N=1"


def test_a_target_that_fails_or_hangs_is_red() -> None:
    assert run("true", 1)[0] == "passed"
    assert run("exit 3", 1)[0] == "failed (exit code 3)"
    assert run("sleep 60 & wait", 0.2 / 60 / rounds.PATIENCE)[0] == "failed (it did not end)"


@pytest.mark.parametrize("outcome", ["passed", "failed (exit code 2)"])
def test_a_round_is_as_long_as_its_minutes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: str
) -> None:
    asked: list[str] = []

    def ran(typed: str, minutes: float) -> tuple[str, float]:
        asked.append(typed)
        return outcome, minutes

    where = tmp_path / "rounds.md"
    where.write_text("head\n\n| target |")
    monkeypatch.setattr(rounds, "PAGE", where)
    monkeypatch.setattr(rounds, "run", ran)
    monkeypatch.setattr(
        rounds, "targets", lambda: {n: {"minutes": m} for n, m in (("a", 9), ("b", 2), ("c", 1))}
    )
    monkeypatch.setattr(sys, "argv", ["rounds", "--minutes", "10"])
    assert rounds.main() == int(outcome != "passed")
    assert asked == ["make a", "make c"]
    assert {name: ran.outcome for name, ran in noted(where.read_text()).items()} == {
        "a": outcome,
        "c": outcome,
    }
