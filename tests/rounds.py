"""`make round`: runs the targets of the Makefile that were run longest ago, as long as the minutes last.
`make certify`: runs those that show what this project claims, all of them.

The first notes in docs/rounds.md when each target was run, on which commit, and how it ended. The second
writes into docs/evidence.md what each has printed in the end, if all have passed.

Exit code 1: a target failed. rounds.toml says how long each takes.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "rounds.md"
EVIDENCE = ROOT / "docs" / "evidence.md"
TABLE = ROOT / "tests" / "rounds.toml"
PATIENCE = 3
"""A target that takes so many times its minutes hangs."""
_CERTIFIED = re.compile(r"(<!-- made by: make certify -->\n).*?(<!-- end of certified -->)", re.DOTALL)
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


def run(typed: str, minutes: float) -> tuple[str, float, list[str]]:
    """Run a command; how it ended, after how many minutes, and the lines that it printed, which go on to
    stdout as well."""
    begun = time.monotonic()
    with tempfile.NamedTemporaryFile("r", errors="replace") as said:
        through = f"set -o pipefail; {{ {typed}; }} 2>&1 | tee {said.name}"
        process = subprocess.Popen(["bash", "-c", through], cwd=ROOT, start_new_session=True)
        try:
            code = process.wait(PATIENCE * minutes * 60)
            outcome = "passed" if code == 0 else f"failed (exit code {code})"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            outcome = "failed (it did not end)"
        lines = said.read().splitlines()
    return outcome, round((time.monotonic() - begun) / 60, 1), lines


class Claim(NamedTuple):
    """A target that shows what is claimed. `says`: a pattern of the line that tells how it ended."""

    target: str
    claim: str
    minutes: float
    says: str
    with_: str = ""

    @property
    def typed(self) -> str:
        """What one types."""
        return " ".join(filter(None, ("make", self.target, self.with_)))

    def told(self, lines: Sequence[str]) -> str | None:
        """The last line that the pattern finds, without what draws around it. None: there is none."""
        found = [line for line in lines if re.search(self.says, line)]
        return " ".join(re.sub("[=│]", " ", found[-1]).replace("|", "/").split()) if found else None


def claims() -> list[Claim]:
    """What rounds.toml has of `make certify`, in order."""
    rows = tomllib.loads(TABLE.read_text())["certify"]
    return [
        Claim(row["target"], row["claim"], row["minutes"], row["says"], row.get("with", "")) for row in rows
    ]


def certified(text: str, head: str, rows: Sequence[tuple[Claim, float, str]]) -> str:
    """The page of evidence with what was run."""
    table = ["| claim | command | minutes | printed |", "|---|---|---|---|"]
    table += [f"| {one.claim} | `{one.typed}` | {took:g} | {told} |" for one, took, told in rows]
    whole = "\n".join([head, "", *table, ""])
    return _CERTIFIED.sub(lambda found: found[1] + whole + found[2], text)


def certify() -> int:
    """Run all claims. Returns the exit code."""
    commit, changed = _commit(), _git("status", "--porcelain", "--untracked-files=no")
    if changed:
        print(f"files were changed since commit {commit}: commit them first\n{changed}", file=sys.stderr)
        return 1
    rows, failed = list[tuple[Claim, float, str]](), list[str]()
    for one in claims():
        print(f"== {one.typed}", flush=True)
        outcome, took, lines = run(one.typed, one.minutes)
        told = one.told(lines)
        if outcome != "passed" or told is None:
            failed.append(f"{one.typed}: {outcome}" + ("" if told else f", and no line has {one.says!r}"))
            print(f"== {failed[-1]}", flush=True)
        rows.append((one, took, told or ""))
    if failed:
        print("not certified:", *failed, sep="\n", file=sys.stderr)
        return 1
    whole = sum(took for _, took, _ in rows)
    head = f"Commit {commit}, {date.today().isoformat()}: {whole:.0f} minutes on {os.cpu_count()} cores."
    EVIDENCE.write_text(certified(EVIDENCE.read_text(), head, rows))
    print(f"certified: {head} It is in {EVIDENCE.relative_to(ROOT)}")
    return 0


def _git(*given: str) -> str:
    return subprocess.check_output(["git", *given], cwd=ROOT, text=True).strip()


def _commit() -> str:
    return _git("rev-parse", "--short=8", "HEAD")


def main() -> int:
    """Run a round, or all claims."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="for all targets together")
    parser.add_argument("--only", nargs="*", help="these targets, whenever they were run")
    parser.add_argument("--certify", action="store_true", help="what the project claims, instead")
    given = parser.parse_args()
    if given.certify:
        return certify()
    known, runs = targets(), noted(PAGE.read_text())
    commit, left, failed = _commit(), given.minutes, False
    for name in given.only or in_turn(known, runs):
        if not given.only and known[name]["minutes"] > left:
            continue
        typed = command(name, known[name])
        print(f"== {typed}", flush=True)
        outcome, took, _ = run(typed, known[name]["minutes"])
        print(f"== {typed}: {outcome} after {took:g} minutes", flush=True)
        left, failed = left - took, failed or outcome != "passed"
        text = PAGE.read_text()  # as it is now: another round may have noted something meanwhile
        runs = noted(text) | {name: Ran(date.today().isoformat(), commit, took, outcome)}
        PAGE.write_text(page(text, known, runs))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
