"""What `eoslog log verify` has to say: what was looked at, what is wrong, and what of it can be repaired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

COPY = (
    "Put the file back from a copy while no broker runs on it; or let readers begin behind it, as "
    "operating.md says under Damage"
)
"""The way out where records are concerned: nothing else has them."""


class Fix(NamedTuple):
    """How a file that is made of the logs is repaired: these bytes take the place of its own; None: it is
    removed, and the broker makes it anew or does without it."""

    content: bytes | None = None


@dataclass(frozen=True)
class Finding:
    """Something wrong, at a byte position of a file; 0 where it is about the whole file."""

    path: str
    position: int
    text: str
    fix: Fix | None = None
    repaired: bool = False

    @property
    def repair(self) -> str | None:
        """A word: what --repair would do ("remove", "rewrite") or did ("removed", "rewritten")."""
        if self.fix is None:
            return None
        words = ("rewrite", "rewritten") if self.fix.content is not None else ("remove", "removed")
        return words[self.repaired]

    def as_json(self) -> dict[str, object]:
        """What stands in the JSON document."""
        return {"path": self.path, "position": self.position, "text": self.text, "repair": self.repair}


def _nothing(size: int) -> None:
    """Nobody wants to know."""


@dataclass
class Report:
    """What was looked at, and what was found. `progress` is called with each number of bytes read."""

    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("partitions", "segments", "batches", "bytes"), 0)
    )
    findings: list[Finding] = field(default_factory=list)
    running: list[str] = field(default_factory=list)  # data directories that a broker is running on
    progress: Callable[[int], None] = _nothing

    def add(self, path: str, position: int, text: str, fix: Fix | None = None) -> None:
        """Note a finding."""
        self.findings.append(Finding(path, position, text, fix))

    @property
    def remaining(self) -> list[Finding]:
        """What is wrong still."""
        return [finding for finding in self.findings if not finding.repaired]
