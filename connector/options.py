"""Options of the data source: from the strings that Spark hands over to two typed, frozen objects.

The table itself is option_table.py. Names are case-insensitive, as everywhere in Spark. Whatever is
wrong is said here, on the driver, before anything is read or written.
"""

import difflib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from eoslog.connector import offsets
from eoslog.connector.client.config import ClientConfig, parse_addresses
from eoslog.connector.client.window import MAX_UNANSWERED
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.errors import OptionError
from eoslog.connector.option_refusals import FIXED, FORBIDDEN, NO_EFFECT
from eoslog.connector.option_table import (
    ALIASES,
    CODEC_NAMES,
    TABLE,
    Kind,
    Option,
    Use,
)

_BY_NAME = {option.name.lower(): option for option in TABLE}
_NO_EFFECT = {name.lower() for name in NO_EFFECT}
_WHERE_FROM = ("subscribe", "subscribePattern", "assign")


class Guarantee(Enum):
    """What the sink promises about rows when something fails (`processing.guarantee`)."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


@dataclass(frozen=True)
class SourceOptions:
    """What a reader needs. Exactly one of subscribe, pattern and assign is set."""

    client: ClientConfig
    subscribe: tuple[str, ...] | None
    pattern: str | None
    assign: tuple[offsets.TopicPartition, ...] | None
    starting: offsets.Bound
    ending: offsets.Bound
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int | None
    min_partitions: int | None
    max_records: int | None
    headers: bool
    fail_on_data_loss: bool
    moved_to: str | None
    committed: bool
    group_id: str | None
    end_tries: int
    end_pause_ms: int


@dataclass(frozen=True)
class SinkOptions:
    """What a writer needs. `codec` is the compression's number in a batch's attributes; sizes in bytes."""

    client: ClientConfig
    topic: str | None
    transactional_id: str | None
    write_token: str | None
    deadletter_topic: str | None
    guarantee: Guarantee
    group_id: str | None
    transaction_timeout_ms: int
    two_phase: TwoPhase
    on_lost: OnLost
    codec: int
    max_batch_bytes: int
    checkpoint_location: str | None
    query_name: str | None
    path: str | None
    progress_log: bool


def source_options(raw: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """Options of a read; raises OptionError."""
    values = parse(raw, Use.READ_STREAM if stream else Use.READ)
    _check_where_from(values)
    _check_limits(values)
    values["startingoffsets"] = _start(values, stream)
    values["endingoffsets"] = _end(values)
    return SourceOptions(
        client=ClientConfig.from_options(values),
        subscribe=values["subscribe"],
        pattern=values["subscribepattern"],
        assign=values["assign"],
        starting=values["startingoffsets"],
        ending=values["endingoffsets"],
        max_offsets=values.get("maxoffsetspertrigger"),
        min_offsets=values.get("minoffsetspertrigger"),
        max_delay_ms=values.get("maxtriggerdelay"),
        min_partitions=values["minpartitions"],
        max_records=values["maxrecordsperpartition"],
        headers=values["includeheaders"],
        fail_on_data_loss=values["failondataloss"],
        moved_to=values.get("cluster.moved.to"),
        committed=values["kafka.isolation.level"] == "read_committed",
        group_id=values["kafka.group.id"],
        end_tries=values["fetchoffset.numretries"],
        end_pause_ms=values["fetchoffset.retryintervalms"],
    )


def sink_options(raw: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """Options of a write; raises OptionError."""
    values = parse(raw, Use.WRITE_STREAM if stream else Use.WRITE)
    _check_in_flight(values)
    return SinkOptions(
        client=ClientConfig.from_options(values),
        topic=values["topic"],
        transactional_id=values["transactional.id"],
        write_token=_token(values),
        deadletter_topic=_deadletter_topic(values),
        guarantee=Guarantee(values["processing.guarantee"]),
        group_id=values["kafka.group.id"],
        transaction_timeout_ms=values["kafka.transaction.timeout.ms"],
        two_phase=TwoPhase(values["two.phase.commit"]),
        on_lost=_on_lost(values, stream),
        codec=CODEC_NAMES.index(values["kafka.compression.type"]),
        max_batch_bytes=values["kafka.batch.size"],
        checkpoint_location=values["checkpointlocation"],
        query_name=values["queryname"],
        path=values["path"],
        progress_log=values.get("progress.log", False),
    )


def _deadletter_topic(values: Mapping[str, Any]) -> str | None:
    topic: str | None = values["deadletter.topic"]
    if topic is not None and topic == values["topic"]:
        raise OptionError("deadletter.topic must be another topic than topic: choose one")
    return topic


def _token(values: Mapping[str, Any]) -> str | None:
    token: str | None = values.get("write.token")
    if token is not None and values["processing.guarantee"] != "exactly_once":
        raise OptionError("write.token needs processing.guarantee=exactly_once: leave one of them out")
    return token


def _on_lost(values: Mapping[str, Any], stream: bool) -> OnLost:
    policy = OnLost(values["on.lost.transaction"])
    if policy is OnLost.REPLAY and values["processing.guarantee"] != "exactly_once":
        raise OptionError("on.lost.transaction=replay needs processing.guarantee=exactly_once: set it")
    if policy is OnLost.REPLAY and not stream and values["write.token"] is None:
        raise OptionError("on.lost.transaction=replay needs write.token: give one")
    return policy


def parse(raw: Mapping[str, str], use: Use) -> dict[str, Any]:
    """Every option that applies to `use`, by lower-case name, read or at its default (None: not set)."""
    given = _resolve_aliases({name.lower(): str(value) for name, value in raw.items()})
    for name in given:
        _check_name(name, use)
    _check_fixed(given)
    wanted = {name: option for name, option in _BY_NAME.items() if option.use & use}
    values = {
        name: _read(option, given[name]) if name in given else option.default
        for name, option in wanted.items()
    }
    if values["kafka.bootstrap.servers"] is None:
        raise OptionError("option kafka.bootstrap.servers is missing: give brokers as host:port,host:port")
    return values


def _resolve_aliases(given: dict[str, str]) -> dict[str, str]:
    """One name for options that have several; two names with different values are a contradiction."""
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
    """Refuse what would be ignored without a word: unknown client settings and near misses."""
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


def _nearest(name: str) -> str | None:
    names = [*_BY_NAME, *FIXED, *_NO_EFFECT, *ALIASES]
    cutoff = 0.6 if name.startswith("kafka.") else 0.85
    names = [n for n in names if n not in ("mode", "path")]  # too short to be misspelt alike
    found = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return _BY_NAME[found[0]].name if found and found[0] in _BY_NAME else (found[0] if found else None)


def _check_fixed(given: Mapping[str, str]) -> None:
    for name, allowed in FIXED.items():
        value = given.get(name)
        if value is not None and value.strip().lower() not in allowed:
            raise OptionError(f"option {name} cannot be {value!r}: it is always {allowed[0]}; leave it out")


def _read(option: Option, text: str) -> Any:
    if option.kind in (Kind.COUNT, Kind.MILLIS, Kind.BYTES):
        return _whole_number(option, text)
    if option.kind is Kind.BUFFER and text.strip() == "-1":
        return -1
    return _READERS[option.kind](option, text)


def _whole_number(option: Option, text: str) -> int:
    digits = text.strip()
    if not digits.isdecimal() or not 0 < int(digits) < 2**63:
        raise OptionError(f"option {option.name} cannot be {text!r}: give {option.kind.value}")
    if option.kind is not Kind.COUNT and int(digits) > 2**31 - 1:
        raise OptionError(f"option {option.name} cannot be {text!r}: the largest is {2**31 - 1}")
    return int(digits)


def _time(option: Option, text: str) -> int:
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


_READERS: dict[Kind, Callable[[Option, str], Any]] = {
    Kind.TEXT: _text,
    Kind.BUFFER: _whole_number,
    Kind.BOOL: _bool,
    Kind.CHOICE: _word,
    Kind.NAMES: _names,
    Kind.PATTERN: _pattern,
    Kind.ADDRESSES: lambda option, text: parse_addresses(text),
    Kind.ASSIGNMENT: lambda option, text: offsets.parse_assignment(option.name, text),
    Kind.OFFSETS: lambda option, text: offsets.parse_bound(option.name, text),
    Kind.TIME: lambda option, text: _time(option, text),
    Kind.TIMES: lambda option, text: offsets.parse_times(option.name, text),
    Kind.DURATION: lambda option, text: _duration(option, text),
}


def _check_where_from(values: Mapping[str, Any]) -> None:
    given = [name for name in _WHERE_FROM if values[name.lower()] is not None]
    if not given:
        raise OptionError(f"nothing to read: give one of the options {', '.join(_WHERE_FROM)}")
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(given)} are both given: keep one of them")


def _check_limits(values: Mapping[str, Any]) -> None:
    least, most = values.get("minoffsetspertrigger"), values.get("maxoffsetspertrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most}): lower it")
    starts, ends = (values.get(f"{which}offsetsbytimestamp") for which in ("starting", "ending"))
    won = values.get("startingtimestamp") is not None or values.get("endingtimestamp") is not None
    if starts is None or ends is None or won:
        return
    until = dict(ends)
    for (topic, partition), start in starts:
        end = until.get((topic, partition), start)
        if start > end:
            raise OptionError(
                f"startingOffsetsByTimestamp ({start}) lies after endingOffsetsByTimestamp ({end}) for "
                f"{topic}-{partition}: correct one of them"
            )


def _check_in_flight(values: Mapping[str, Any]) -> None:
    name = "kafka.max.in.flight.requests.per.connection"
    if values[name] > MAX_UNANSWERED:
        raise OptionError(
            f"option {name} cannot be {values[name]}: brokers remember the last {MAX_UNANSWERED} batches of "
            f"a producer, so rows could be doubled or change places; give {MAX_UNANSWERED} at most"
        )


def _at_time(values: Mapping[str, Any], which: str, none_is_latest: bool) -> offsets.AtTime | None:
    """The time at which to start or end, if one is given; that for all partitions wins, as in Spark."""
    one, each = values.get(f"{which}timestamp"), values.get(f"{which}offsetsbytimestamp")
    if one is not None:
        return offsets.AtTime(one, none_is_latest)
    if each is None:
        return None
    _checked(dict(each), f"{which}OffsetsByTimestamp", values)
    return offsets.AtTime(each, none_is_latest)


def _start(values: Mapping[str, Any], stream: bool) -> offsets.Bound:
    timed = _at_time(values, "starting", values["startingoffsetsbytimestampstrategy"] == "latest")
    if timed is not None:
        return timed
    start = values["startingoffsets"]
    if start == offsets.COMMITTED and values["kafka.group.id"] is None:
        raise OptionError("startingOffsets=committed needs the group that has committed: give kafka.group.id")
    if start is None:
        return offsets.LATEST if stream else offsets.EARLIEST
    if not stream and _mentions(start, offsets.LATEST):
        raise OptionError(
            "startingOffsets cannot be latest (-1) in a batch query: nothing would be read; give earliest"
        )
    return _checked(start, "startingOffsets", values)


def _end(values: Mapping[str, Any]) -> offsets.Bound:
    timed = _at_time(values, "ending", none_is_latest=True)
    if timed is not None:
        return timed
    end = values.get("endingoffsets")
    if end is None:
        return offsets.LATEST
    if _mentions(end, offsets.EARLIEST):
        raise OptionError("endingOffsets cannot be earliest (-2): nothing to read; give latest or offsets")
    return _checked(end, "endingOffsets", values)


def _mentions(bound: offsets.Bound, special: int) -> bool:
    if isinstance(bound, dict):
        return special in bound.values()
    return bound == special


def _checked(bound: offsets.Bound, option: str, values: Mapping[str, Any]) -> offsets.Bound:
    """Offsets by partition fit what is read as far as options alone can tell."""
    if not isinstance(bound, dict):
        return bound
    assigned, topics = values["assign"], values["subscribe"]
    if assigned is not None and set(bound) != set(assigned):
        odd = ", ".join(f"{t}-{p}" for t, p in sorted(set(bound) ^ set(assigned)))
        raise OptionError(f"{option} and assign must name the same partitions; they differ in {odd}")
    if topics is not None and {topic for topic, _ in bound} != set(topics):
        odd = ", ".join(sorted({topic for topic, _ in bound} ^ set(topics)))
        raise OptionError(f"{option} and subscribe must name the same topics; they differ in {odd}")
    return bound
