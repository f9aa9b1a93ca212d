"""What a rehearsal finds out: a row for each promise that the commit protocol relies on. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Verdict(Enum):
    """Whether a promise holds. NOTE: nothing depends on it, but it is good to know."""

    HOLDS = "holds"
    NOTE = "note"
    FAILS = "fails"
    UNKNOWN = "unknown"


class Row(NamedTuple):
    """One promise: its name, the verdict, what was seen, and what to do."""

    name: str
    verdict: Verdict
    what: str
    do: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """The row for programs."""
        return {
            "row": self.name,
            "verdict": self.verdict.value,
            "what": self.what,
            "do": list(self.do),
        }

    def lines(self) -> Iterable[str]:
        """The row for people."""
        yield f"{self.verdict.value:7}  {self.name}: {self.what}"
        yield from (f"         {line}" for line in self.do)


class DoesNotHold(Exception):
    """A check has seen a promise broken. `do`: what to do about it, a line each."""

    def __init__(self, what: str, *do: str) -> None:
        super().__init__(what)
        self.do = do


class NotFoundOut(Exception):
    """A check could not see whether a promise holds."""


ALL_HOLD, SOME_FAIL, NOT_FOUND_OUT = 0, 1, 2


def exit_status(rows: Iterable[Row]) -> int:
    """0 all holds, 1 something does not, 2 something could not be found out."""
    found = {row.verdict for row in rows}
    if Verdict.FAILS in found:
        return SOME_FAIL
    return NOT_FOUND_OUT if Verdict.UNKNOWN in found or not found else ALL_HOLD


def summary(rows: Iterable[Row]) -> str:
    """How many rows have which verdict."""
    verdicts = [row.verdict for row in rows]
    words = {
        Verdict.HOLDS: "hold",
        Verdict.FAILS: "do not hold",
        Verdict.UNKNOWN: "could not be found out",
        Verdict.NOTE: "to note",
    }
    counts = ((verdicts.count(verdict), text) for verdict, text in words.items())
    return ", ".join(f"{count} {text}" for count, text in counts if count)
