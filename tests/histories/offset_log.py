"""Spark's offset log; version 2: that of queries whose sources have names."""

import json
import re
from pathlib import Path
from typing import Any

VOID = "-"
"""In place of a source's offsets: it has none."""


def newest(log: Path) -> int | None:
    """The newest batch of a log."""
    return max((int(path.name) for path in log.iterdir() if path.name.isdecimal()), default=None)


def source_name(checkpoint: Path, wanted: str | None) -> str | None:
    """The source's name, if it has one. A living checkpoint stays with names, or without: Spark refuses to
    bring one from version 1 to 2 or back."""
    log = checkpoint / "offsets"
    last = newest(log) if log.exists() else None
    if last is None:
        return wanted
    version, _, line = (log / str(last)).read_text().splitlines()
    return (wanted or line.split(":", 1)[0]) if version == "v2" else None


def is_in(logged: str, name: str | None) -> bool:
    """Whether a file of the offset log has a source of this name."""
    return name is None or logged.splitlines()[2].startswith(f"{name}:")


def ends_of(logged: str) -> list[dict[str, Any] | None]:
    """Each source's offsets in a file of the offset log. None: it has none yet."""
    lines = (re.sub(r"^\w+:", "", line) for line in logged.splitlines()[2:])
    return [None if line == VOID else json.loads(line) for line in lines]


def offsets_of(logged: str) -> dict[str, Any]:
    """The offsets of all sources in a file of the offset log; they read different topics."""
    found: dict[str, Any] = {}
    for end in ends_of(logged):
        found |= end or {}
    return found


def files_in(entry: Path) -> list[str]:
    """The files that an entry of a file source's own log names."""
    return [str(json.loads(line)["path"]) for line in entry.read_text().splitlines()[1:]]


def starting_offsets(text: str) -> str:
    """What a text says for startingOffsets of each source, together."""
    found: dict[str, dict[str, int]] = {}
    for told in re.finditer(r"startingOffsets=(?=\{)", text):
        found |= json.JSONDecoder().raw_decode(text, told.end())[0]
    return json.dumps(found)
