"""From Spark's strings to values by name: which options exist, and which are refused.

The table is in table.py. Names are case-insensitive, as everywhere in Spark.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from eoslog.client.wire.config import BOOTSTRAP_OPTION, BOOTSTRAP_ORIGIN, parse_addresses
from eoslog.connector.offsets import offsets
from eoslog.connector.options.ignored_and_refused import FIXED, FORBIDDEN, HANDLERS, NO_EFFECT
from eoslog.connector.options.table import ALIASES, TABLE, Option, OptionType, Use
from eoslog.errors import OptionError
from eoslog.protocol import jaas

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


logger = logging.getLogger(__name__)

SERVERS_VARIABLE, CONFIG_VARIABLE = "EOSLOG_BOOTSTRAP_SERVERS", "EOSLOG_COMMAND_CONFIG"
"""The cluster of queries and commands that name none: brokers, a file of properties of Kafka's clients."""

_BY_NAME = {option.name.lower(): option for option in TABLE}
_NO_EFFECT = {name.lower() for name in NO_EFFECT}


def parse(raw: Mapping[str, str], use: Use, *, quiet: bool = False) -> dict[str, Any]:
    """Every option that applies to `use`, by lower-case name: its parsed value, or its default (None: not
    set). Warns of options without effect, unless `quiet`. Raises OptionError.

    Options that name no brokers take those of the environment. Tasks get parsed options, and never ask it.
    """
    given = _without_copies({name.lower(): str(value) for name, value in raw.items()})
    origin = BOOTSTRAP_OPTION
    if BOOTSTRAP_OPTION not in given:
        found, origin = of_environment()
        given = found | given
    given = _resolve_aliases(given)
    for name in given:
        _check_name(name, use)
    _check_fixed(given)
    _check_token(given, use)
    if not quiet:
        _advise(given, use)
    wanted = {name: option for name, option in _BY_NAME.items() if option.use & use}
    values = {
        name: read_value(option, given[name]) if name in given else option.default
        for name, option in wanted.items()
    }
    if values[BOOTSTRAP_OPTION] is None:
        raise OptionError(
            "option kafka.bootstrap.servers is missing: give brokers as host:port,host:port, or set "
            f"{SERVERS_VARIABLE} where the driver starts. Spark passes on no OPTIONS of a table in its "
            "catalog: give them in the statement, SELECT * FROM t WITH (...)"
        )
    return values if origin == BOOTSTRAP_OPTION else values | {BOOTSTRAP_ORIGIN: origin}


def of_environment(environment: Mapping[str, str] = os.environ) -> tuple[dict[str, str], str]:
    """Options of the environment's cluster, and what has named its brokers. Raises OptionError.

    They belong together: a query that names other brokers must not send them this cluster's password.
    """
    file, servers = environment.get(CONFIG_VARIABLE), environment.get(SERVERS_VARIABLE)
    found = read_properties(file) if file else {}
    origin = f"bootstrap.servers in {file} ({CONFIG_VARIABLE})" if file else BOOTSTRAP_OPTION
    if not servers:
        return found, origin
    try:
        parse_addresses(servers)
    except OptionError as error:
        raise OptionError(str(error).replace(BOOTSTRAP_OPTION, SERVERS_VARIABLE)) from error
    return found | {BOOTSTRAP_OPTION: servers}, SERVERS_VARIABLE


def read_properties(path: str) -> dict[str, str]:
    """Options from a file of properties of Kafka's clients, in Java's format. Raises OptionError."""
    from javaproperties import InvalidUEscapeError, load  # rarely needed

    try:
        with open(path, encoding="utf-8") as lines:
            return {f"kafka.{name}".lower(): value.strip() for name, value in load(lines).items()}
    except (OSError, UnicodeDecodeError, InvalidUEscapeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OptionError(f"the file of properties {path} cannot be read: {reason}") from error


def fields_of(kind: type[DataclassInstance], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that fields of SinkOptions or SourceOptions get as they are, as the table says."""
    known = {field.name for field in fields(kind)}
    return {
        option.field: values[name]
        for name, option in _BY_NAME.items()
        if option.field in known and name in values
    }


_COPY = "option."


def _without_copies(given: dict[str, str]) -> dict[str, str]:
    """Without the second name under which CREATE TABLE gives each of its OPTIONS."""
    return {
        name: value
        for name, value in given.items()
        if not name.startswith(_COPY) or given.get(name.removeprefix(_COPY)) != value
    }


def _resolve_aliases(given: dict[str, str]) -> dict[str, str]:
    """Use one name for options that have several. Two names with different values are an error."""
    resolved = {name: value for name, value in given.items() if name not in ALIASES}
    for alias, name in ALIASES.items():
        if alias not in given:
            continue
        names = [n for n in (name, *ALIASES) if n in given and ALIASES.get(n, n) == name]
        if len({given[n].strip().lower() for n in names}) > 1:
            said = ", ".join(f"{n}={given[n]!r}" for n in names)
            raise OptionError(f"{said}: these names mean the same option; give {name} alone")
        resolved[name] = given[alias]
    return resolved


def _check_name(name: str, use: Use) -> None:
    """Refuse names that would be ignored silently: unknown client settings and misspelt options."""
    for refused, advice in FORBIDDEN.items():
        if name == refused.lower():
            raise OptionError(f"option {refused} is not supported: {advice}")
    if name in _BY_NAME:
        if name.startswith("ending") and Use.READ_STREAM in use:
            raise OptionError(f"option {_BY_NAME[name].name} is not valid in streaming queries: leave it out")
        return
    if name in FIXED or name in _NO_EFFECT:
        return
    near = _nearest(name)
    if name.startswith("kafka."):
        hint = f"did you mean {near}?" if near else "the documentation has the table of options"
        raise OptionError(f"unknown option {name}: {hint}")
    if near is not None:
        raise OptionError(f"unknown option {name}: did you mean {near}?")


_HERE = {
    Use.READ: "a batch read",
    Use.READ_STREAM: "a streaming read",
    Use.WRITE: "a batch write",
    Use.WRITE_STREAM: "a streaming write",
}


def _check_token(given: Mapping[str, str], use: Use) -> None:
    """Refuse write.token in a stream: its user relies on it, and it would do nothing."""
    if use is Use.WRITE_STREAM and "write.token" in given:
        raise OptionError(
            "option write.token names a batch write, and a streaming query writes each micro-batch once "
            "without it: leave it out, or give it to the df.write inside of foreachBatch"
        )


def _advise(given: Mapping[str, str], use: Use) -> None:
    """Warn of options without effect here. Settings of Kafka's clients may be given to both sides, as in a
    dictionary that source and sink share."""
    for option in (_BY_NAME[name] for name in given if name in _BY_NAME):
        if not option.use & use and not option.name.startswith("kafka."):
            logger.warning("option %s does nothing in %s. See connector-options.md", option.name, _HERE[use])
        if option.needs and not any(one.lower() in given for one in option.needs):
            needed = " or ".join(option.needs)
            logger.warning("option %s does nothing without %s. See connector-options.md", option.name, needed)


def _nearest(name: str) -> str | None:
    names = [*_BY_NAME, *FIXED, *_NO_EFFECT, *ALIASES]
    cutoff = 0.6 if name.startswith("kafka.") else 0.85
    names = [n for n in names if n not in ("mode", "path")]  # too short to compare spellings
    found = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return _BY_NAME[found[0]].name if found and found[0] in _BY_NAME else (found[0] if found else None)


def _check_fixed(given: Mapping[str, str]) -> None:
    for name, allowed in FIXED.items():
        value = given.get(name)
        if value is None or jaas.class_name(value).lower() in [one.lower() for one in allowed]:
            continue
        instead = HANDLERS.get(value.strip().rpartition(".")[2])
        advice = instead or f"it is always {allowed[0]}; leave it out"
        raise OptionError(f"option {name} cannot be {value!r}: {advice}")


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
    OptionType.NUMBER: _from_zero,
    OptionType.TIME: _from_zero,
    OptionType.TIMES: lambda option, text: offsets.parse_times(option.name, text),
    OptionType.DURATION: lambda option, text: _duration(option, text),
}
