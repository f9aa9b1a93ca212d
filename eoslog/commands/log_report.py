"""What `eoslog log verify` reports: what was read, what is wrong, and what of it can be repaired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

COPY = (
    "Put the file back from a copy while no broker runs on it; or let readers begin behind it, as "
    "operating.md says under Damage"
)
"""What to do about lost records: no other file has them."""


class Fix(NamedTuple):
    """How to repair a file that is derived from the logs: replace its content. None: remove it; the broker
    makes it again or does without it.
    """

    content: bytes | None = None


@dataclass(frozen=True)
class LogFinding:
    """Something wrong at a byte position of a file; position 0 if it concerns the whole file."""

    path: str
    position: int
    text: str
    fix: Fix | None = None
    repaired: bool = False

    @property
    def repair(self) -> str | None:
        """What --repair would do ("remove", "rewrite") or did ("removed", "rewritten")."""
        if self.fix is None:
            return None
        words = ("rewrite", "rewritten") if self.fix.content is not None else ("remove", "removed")
        return words[self.repaired]

    def as_json(self) -> dict[str, object]:
        """The finding as part of the JSON document."""
        return {"path": self.path, "position": self.position, "text": self.text, "repair": self.repair}


def _nothing(size: int) -> None:
    """Ignores progress."""


@dataclass
class Report:
    """What was read, and what was found. `progress` is called with the number of bytes of each batch."""

    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("partitions", "segments", "batches", "bytes"), 0)
    )
    findings: list[LogFinding] = field(default_factory=list)
    running: list[str] = field(default_factory=list)  # data directories that a broker is running on
    progress: Callable[[int], None] = _nothing

    def add(self, path: str, position: int, text: str, fix: Fix | None = None) -> None:
        """Note a finding."""
        self.findings.append(LogFinding(path, position, text, fix))

    @property
    def remaining(self) -> list[LogFinding]:
        """The findings that were not repaired."""
        return [finding for finding in self.findings if not finding.repaired]
