"""What an option's text means: a reader for each kind of value. Pure; says what a wrong value should be."""

import re
import warnings
from collections.abc import Callable
from typing import Any

from eoslog.client.wire.config import parse_addresses
from eoslog.connector.offsets import offsets
from eoslog.connector.options.table import Option, OptionType
from eoslog.errors import OptionError


def read_value(option: Option, text: str) -> Any:
    """The value of an option that is given as `text`; raises OptionError."""
    if option.kind in (OptionType.COUNT, OptionType.MILLIS, OptionType.BYTES):
        return _whole_number(option, text)
    if option.kind is OptionType.BUFFER and text.strip() == "-1":
        return -1
    return _READERS[option.kind](option, text)


def _whole_number(option: Option, text: str) -> int:
    digits = text.strip()
    if not digits.isdecimal() or not 0 < int(digits) < 2**63:
        raise OptionError(f"option {option.name} cannot be {text!r}: give {option.kind.value}")
    if option.kind is not OptionType.COUNT and int(digits) > 2**31 - 1:
        raise OptionError(f"option {option.name} cannot be {text!r}: the largest is {2**31 - 1}")
    return int(digits)


def _from_zero(option: Option, text: str) -> int:
    digits = text.strip()
    if not digits.isdecimal() or int(digits) >= 2**63:
        raise OptionError(f"option {option.name} cannot be {text!r}: give {option.kind.value}")
    return int(digits)


_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration(option: Option, text: str) -> int:
    """Milliseconds; a number without unit is milliseconds, as in Spark."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if match is None or (match[2] or "ms") not in _UNITS:
        raise OptionError(f"option {option.name} cannot be {text!r}: give {option.kind.value}")
    return int(match[1]) * _UNITS[match[2] or "ms"]


def _word(option: Option, text: str) -> str:
    word = text.strip().lower()
    if word not in option.choices:
        raise OptionError(
            f"option {option.name} cannot be {text!r}: choose one of {', '.join(option.choices)}"
        )
    return word


def _bool(option: Option, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"option {option.name} cannot be {text!r}: give {option.kind.value}")
    return word == "true"


def _text(option: Option, text: str) -> str | None:
    if not text.strip() and option.name not in ("path", "queryName"):
        raise OptionError(f"option {option.name} is empty: give a value or leave it out")
    return (text.strip() if option.name in ("topic", "deadletter.topic") else text) or None


def _names(option: Option, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise OptionError(f"option {option.name} is empty: give {option.kind.value}")
    return names


def _pattern(option: Option, text: str) -> str:
    """A pattern that means the same in Java: where Python only warns of a doubt, it means something else."""
    pattern = str(_text(option, text)).strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
    except (re.error, Warning) as error:
        raise OptionError(
            f"option {option.name}: {text!r} is no regular expression of Python's: {error}"
        ) from error
    return pattern


_READERS: dict[OptionType, Callable[[Option, str], Any]] = {
    OptionType.TEXT: _text,
    OptionType.BUFFER: _whole_number,
    OptionType.BOOL: _bool,
    OptionType.CHOICE: _word,
    OptionType.NAMES: _names,
    OptionType.PATTERN: _pattern,
    OptionType.ADDRESSES: lambda option, text: parse_addresses(text),
    OptionType.ASSIGNMENT: lambda option, text: offsets.parse_assignment(option.name, text),
    OptionType.OFFSETS: lambda option, text: offsets.parse_bound(option.name, text),
    OptionType.LIMIT: _from_zero,
    OptionType.TIME: _from_zero,
    OptionType.TIMES: lambda option, text: offsets.parse_times(option.name, text),
    OptionType.DURATION: lambda option, text: _duration(option, text),
}
