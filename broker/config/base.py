"""How an option is declared: a dataclass field that carries Kafka's name, its meaning and its bounds."""

from __future__ import annotations

from dataclasses import field
from typing import Any

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ConfigError(ValueError):
    """An option has no known name or a value that does not fit; the text says which and what would."""


def option(
    default: Any,
    name: str,
    meaning: str,
    *,
    low: int = 0,
    high: int = INT64_MAX,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    dynamic: bool = False,
) -> Any:
    """A field of an options dataclass.

    `low` and `high` bound whole numbers (times in ms, sizes in bytes), `choices` limits a text to the ones
    named (none: any text), the value of a `secret` is never shown, and a `dynamic` option may be changed
    while the broker runs.
    """
    metadata = {
        "name": name,
        "meaning": meaning,
        "low": low,
        "high": high,
        "choices": choices,
        "secret": secret,
        "dynamic": dynamic,
    }
    return field(default=default, metadata=metadata)
