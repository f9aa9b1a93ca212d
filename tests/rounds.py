"""`make round`: runs the targets of the Makefile that were run longest ago, as long as the minutes last.

It notes in docs/rounds.md when each was run, on which commit, and how it ended.

Exit code 1: a target failed. rounds.toml says how long each takes.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "rounds.md"
TABLE = ROOT / "tests" / "rounds.toml"
PATIENCE = 3
"""A target that takes so many times its minutes hangs."""
_ROW = re.compile(r"\| `make ([a-z0-9-]+)[^`]*` \| (\S+) \| (\w+) \| ([\d.]+) \| (.*) \|$")


class Ran(NamedTuple):
    """The last run of a target. `day`: ISO date."""

    day: str
    commit: str
    minutes: float
    outcome: str


def targets() -> dict[str, dict[str, Any]]:
    """What rounds.toml says of each target: minutes, and `with`, its variables."""
    found: dict[str, dict[str, Any]] = tomllib.loads(TABLE.read_text())["targets"]
    return found


def noted(text: str) -> dict[str, Ran]:
    """The runs on the page."""
    rows = (_ROW.match(line) for line in text.splitlines())
    return {row[1]: Ran(row[2], row[3], float(row[4]), row[5]) for row in rows if row}


def in_turn(known: Mapping[str, Mapping[str, Any]], runs: Mapping[str, Ran]) -> list[str]:
    """All targets, the one that was run longest ago first."""
    return sorted(known, key=lambda name: (runs[name].day if name in runs else "", name))


def page(text: str, known: Mapping[str, Mapping[str, Any]], runs: Mapping[str, Ran]) -> str:
    """The page with these runs."""
    head = text[: text.index("| target |")]
    rows = ["| target | day | commit | minutes | outcome |", "|---|---|---|---|---|"]
    for name in reversed(in_turn(known, runs)):
        if name in runs:
            day, commit, minutes, outcome = runs[name]
            rows.append(f"| `{command(name, known[name])}` | {day} | {commit} | {minutes:g} | {outcome} |")
    return head + "\n".join(rows) + "\n"


def command(name: str, said: Mapping[str, Any]) -> str:
    """What one types."""
    return " ".join(("make", name, *((said["with"],) if "with" in said else ())))


def run(typed: str, minutes: float) -> tuple[str, float]:
    """Run a command; how it ended, and after how many minutes. What it prints goes on to stdout."""
    begun = time.monotonic()
    process = subprocess.Popen(["bash", "-c", typed], cwd=ROOT, start_new_session=True)
    try:
        code = process.wait(PATIENCE * minutes * 60)
        outcome = "passed" if code == 0 else f"failed (exit code {code})"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        outcome = "failed (it did not end)"
    return outcome, round((time.monotonic() - begun) / 60, 1)


def main() -> int:
    """Run a round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="for all targets together")
    parser.add_argument("--only", nargs="*", help="these targets, whenever they were run")
    given = parser.parse_args()
    known, runs = targets(), noted(PAGE.read_text())
    commit = subprocess.check_output(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, text=True).strip()
    left, failed = given.minutes, False
    for name in given.only or in_turn(known, runs):
        if not given.only and known[name]["minutes"] > left:
            continue
        typed = command(name, known[name])
        print(f"== {typed}", flush=True)
        outcome, took = run(typed, known[name]["minutes"])
        print(f"== {typed}: {outcome} after {took:g} minutes", flush=True)
        left, failed = left - took, failed or outcome != "passed"
        runs[name] = Ran(date.today().isoformat(), commit, took, outcome)
        PAGE.write_text(page(PAGE.read_text(), known, runs))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
