"""Whether what was foretold is what was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Found = Mapping[str, Any]
"""A cluster's part of docs/simulated.json."""
COUNTED = 100
"""Tasks of the batch whose records are counted."""
BOUND, CLOCK_MS = 0.25, 3.0


def compared(found: Found) -> Iterator[tuple[str, str, float, float]]:
    """Tasks, figure, foretold and measured."""
    for tasks, measured in found["measured"].items():
        for figure, was in measured.items():
            yield tasks, figure, found["foretold"][tasks][figure], was


def wrongly_foretold(name: str, found: Found) -> list[str]:
    """What was foretold wrong: times outside the bound, counts at all."""
    wrong = [
        f"{name}, {tasks} tasks: {figure} took {was} ms, foretold were {said} ms"
        for tasks, figure, said, was in compared(found)
        if not close(said, was)
    ]
    if found["written"] != found["to_write"]:
        wrong.append(f"{name}: {COUNTED} tasks wrote {found['written']}, foretold were {found['to_write']}")
    return wrong


def close(foretold: float, measured: float) -> bool:
    """Within the bound, or within what clocks of milliseconds can tell."""
    return abs(foretold - measured) <= max(BOUND * measured, CLOCK_MS)
