"""Where audited rows are: a partition of a topic, or a file of a table."""

from __future__ import annotations

from typing import Any, Protocol


class Place(Protocol):
    """Positions start..start+size-1; some of them may be empty."""

    @property
    def start(self) -> int:
        """The first position."""

    @property
    def size(self) -> int:
        """How many positions."""

    def where(self, position: int) -> dict[str, Any]:
        """A position in it, for the report."""

    def described(self, records: int) -> dict[str, Any]:
        """What was read of it, for the report."""
