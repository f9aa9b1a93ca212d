"""Options of a read: which topics, from where to where, how much at once. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eoslog.client.wire.config import ClientConfig
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets import offsets
from eoslog.connector.options.parsing import fields_of, parse
from eoslog.connector.options.table import Use
from eoslog.errors import OptionError
from eoslog.protocol.topic_partitions import TopicPartition

_SHADOW = ("shadow.of", "shadow.topic", "shadow.into")
_NOT_OF_A_SHADOW = (
    "transactional.id", "minOffsetsPerTrigger", "maxOffsetsPerTrigger", "cluster.moved.to",
)  # fmt: skip
"""The running query would be stopped by the first. The others have no effect: a batch ends where a decided
batch of the running query does."""
_NOT_OF_WHOLE_BATCHES = (
    "maxOffsetsPerTrigger", "shadow.of", "endingTimestamp", "endingOffsetsByTimestamp"
)  # fmt: skip
"""Each of them says itself where a batch ends."""
_WHERE_FROM = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True)
class ShadowOptions:
    """Which query a stream shadows: its transactional.id and its kafka.group.id; the topic that it writes,
    and the one that this query writes meanwhile."""

    sink: str
    group: str
    topic: str
    into: str


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of a reader; table.py says which fields get a value as it is. Exactly one of subscribe,
    pattern and assign is set. `stored`: if startingOffsets is a line of a checkpoint's offset log, what that
    line says."""

    client: ClientConfig
    subscribe: tuple[str, ...] | None
    pattern: str | None
    assign: tuple[TopicPartition, ...] | None
    starting: offsets.Bound
    stored: offsets.SourcePosition | None
    ending: offsets.Bound
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int | None = None
    min_partitions: int | None
    max_records: int | None
    push_down: str = "false"
    times_rise: bool = False
    headers: bool
    fail_on_data_loss: bool
    moved_to: str | None = None
    committed: bool
    group_id: str | None
    taken_over: str | None
    decision_topic: str = ANCHOR
    end_tries: int
    end_pause_ms: int
    small_offsets: int = 0
    small_bytes: int = 0
    shadow: ShadowOptions | None = None
    whole_batches: tuple[str, ...] | None = None
    as_of_batch: int | None = None
    as_of_time: int | None = None

    def selects(self, place: TopicPartition) -> bool:
        """Whether the source reads this partition, if it exists."""
        if self.assign is not None:
            return place in self.assign
        if self.subscribe is not None:
            return place[0] in self.subscribe
        return re.fullmatch(self.pattern or "", place[0]) is not None


def check_source_options(raw: Mapping[str, str]) -> None:
    """Check a read's options before it is known whether it is a stream. Raises OptionError if they fit
    neither."""
    try:
        source_options(raw, stream=True, quiet=True)
    except OptionError:
        source_options(raw, stream=False, quiet=True)


def source_options(raw: Mapping[str, str], *, stream: bool, quiet: bool = False) -> SourceOptions:
    """The options of a read. Raises OptionError. Warns of options without effect, unless `quiet`."""
    values = parse(raw, Use.READ_STREAM if stream else Use.READ, quiet=quiet)
    _check_where_from(values)
    _check_limits(values)
    _check_whole_batches(values)
    start = values["startingoffsets"]
    stored = start if isinstance(start, offsets.SourcePosition) else None
    values["startingoffsets"] = start if stored is None else stored.offsets
    if start == offsets.COMMITTED and values.get("transactional.id") and values["kafka.group.id"] is None:
        values["kafka.group.id"] = Sink(values["transactional.id"]).offsets_group
    begin = _start(values, stream, () if stored is None else stored.left.offsets)
    values["endingoffsets"] = _end(values)
    return SourceOptions(
        **fields_of(SourceOptions, values),
        client=ClientConfig.from_options(values),
        starting=begin,
        stored=stored if isinstance(begin, dict) else None,
        ending=values["endingoffsets"],
        committed=values["kafka.isolation.level"] == "read_committed",
        taken_over=values.get("transactional.id"),
        shadow=_shadow(values),
    )


def _shadow(values: Mapping[str, Any]) -> ShadowOptions | None:
    given = [name for name in _SHADOW if values.get(name)]
    if not given:
        return None
    needed = [name for name in (*_SHADOW, "kafka.group.id") if not values.get(name)]
    if needed:
        raise OptionError(f"option {given[0]} needs {', '.join(needed)} as well: give all of them")
    odd = [name for name in _NOT_OF_A_SHADOW if values.get(name.lower()) is not None]
    if odd:
        raise OptionError(
            f"options {odd[0]} and shadow.of are both given: leave {odd[0]} out while it shadows"
        )
    if values["shadow.topic"] == values["shadow.into"]:
        raise OptionError(
            f"options shadow.topic and shadow.into are both {values['shadow.into']!r}: let shadow.into name "
            "a topic that this query alone writes"
        )
    sink, topic, into = (values[name] for name in _SHADOW)
    return ShadowOptions(sink, values["kafka.group.id"], topic, into)


def _check_whole_batches(values: Mapping[str, Any]) -> None:
    """Raise OptionError if another option says where batches end, too."""
    past = [name for name in ("as.of.batch", "as.of.time") if values.get(name) is not None]
    if past and (len(past) > 1 or len(values.get("read.whole.batches") or ()) != 1):
        raise OptionError(
            f"option {past[0]} needs one sink, and is one of as.of.batch and as.of.time: give "
            "read.whole.batches the transactional.id of that sink, and one of the two"
        )
    if not values.get("read.whole.batches"):
        return
    odd = [name for name in _NOT_OF_WHOLE_BATCHES if values.get(name.lower()) is not None]
    if values.get("endingoffsets") not in (None, offsets.LATEST):
        odd.append("endingOffsets")
    if odd:
        raise OptionError(
            f"options read.whole.batches and {odd[0]} are both given, and each says where a batch ends: "
            "leave one out"
        )
    if values["kafka.isolation.level"] != "read_committed":
        raise OptionError(
            "read.whole.batches needs kafka.isolation.level=read_committed: other readers meet rows before "
            "they are decided. Leave kafka.isolation.level out"
        )


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


def _at_time(values: Mapping[str, Any], which: str, none_is_latest: bool) -> offsets.AtTime | None:
    """The time at which to start or end, if given. One for all partitions takes precedence, as in Spark."""
    one, each = values.get(f"{which}timestamp"), values.get(f"{which}offsetsbytimestamp")
    if one is not None:
        return offsets.AtTime(one, none_is_latest)
    if each is None:
        return None
    _checked(dict(each), f"{which}OffsetsByTimestamp", values)
    return offsets.AtTime(each, none_is_latest)


def _start(values: Mapping[str, Any], stream: bool, left: Iterable[TopicPartition]) -> offsets.Bound:
    """`left`: what the query had left where it is to begin, and reads again if it is named."""
    timed = _at_time(values, "starting", values["startingoffsetsbytimestampstrategy"] == "latest")
    if timed is not None:
        return timed
    start = values["startingoffsets"]
    if start == offsets.COMMITTED and values["kafka.group.id"] is None:
        raise OptionError(
            "startingOffsets=committed needs the group that has committed: give transactional.id, or "
            "kafka.group.id"
        )
    if start is None:
        return offsets.LATEST if stream else offsets.EARLIEST
    if not stream and _mentions(start, offsets.LATEST):
        raise OptionError(
            "startingOffsets cannot be latest (-1) in a batch query: nothing would be read; give earliest"
        )
    return _checked(start, "startingOffsets", values, left)


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


def _checked(
    bound: offsets.Bound, option: str, values: Mapping[str, Any], left: Iterable[TopicPartition] = ()
) -> offsets.Bound:
    """Check that offsets by partition match what is read, as far as options alone can tell. `left`: what may
    be read as well."""
    if not isinstance(bound, dict):
        return bound
    assigned, topics = values["assign"], values["subscribe"]
    given = {*bound, *(tp for tp in left if tp in (assigned or ()) or tp[0] in (topics or ()))}
    if assigned is not None and given != set(assigned):
        odd = ", ".join(f"{t}-{p}" for t, p in sorted(given ^ set(assigned)))
        raise OptionError(f"{option} and assign must name the same partitions; they differ in {odd}")
    if topics is not None and {topic for topic, _ in given} != set(topics):
        odd = ", ".join(sorted({topic for topic, _ in given} ^ set(topics)))
        raise OptionError(f"{option} and subscribe must name the same topics; they differ in {odd}")
    return bound
