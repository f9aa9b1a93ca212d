"""The offsets in which rows may pass the filters that Spark pushed down: what is left of a batch's range.

A time becomes an offset by ListOffsets: the first record that is not older. All records before it are older,
whatever their order, as Kafka searches for the first segment, batch and record with such a time. So a lower
bound is safe in every log. Behind it records may be older again, so an upper bound is safe only where the
brokers set the time. They set it by their clocks, and the topic may have had its producers' times earlier:
hence CLOCKS_APART_MS, and a look at the record there.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from eoslog.client.admin.list_offsets import list_offsets, newest
from eoslog.client.admin.topics import topic_configs
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.source.pushed_filters import Pushed
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.errors import EoslogError
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

_SEE = "See troubleshooting.md#a-filter-on-timestamp-is-not-pushed-down"
_TYPE = "message.timestamp.type"
_LOG_APPEND_TIME = 1
_LAST = 2**63 - 1

K = TypeVar("K")
V = TypeVar("V")

CLOCKS_APART_MS = 600_000
"""How far the brokers' clocks may be apart: an upper bound is looked up this much later."""


def narrowed(source: SourceTopics, pushed: Pushed, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
    """The parts of the ranges `start` to `end` that may have rows which pass. Others are left out.

    Look up `end` first: a record that is written after its time was looked up is then behind the range.
    """
    nothing = pushed.offsets.is_empty or pushed.times.is_empty
    chosen = [] if nothing else [tp for tp in end if pushed.chooses(*tp)]
    first, behind = pushed.offsets
    start = {tp: start[tp] if first is None else max(start[tp], first) for tp in chosen}
    end = {tp: end[tp] if behind is None else min(end[tp], behind) for tp in chosen}
    since, until = pushed.times
    if since is not None and since > 0:  # below are ListOffsets' words for the ends
        begins = _begins(source, _not_empty(start, end), since, end)
        start = {tp: max(at, begins.get(tp, at)) for tp, at in start.items()}
    if until is not None and until > 0:
        end = {**end, **_ends(source, _not_empty(start, end), until, end)}
    return start, end


def _not_empty(start: Offsets, end: Offsets) -> list[TopicPartition]:
    return [tp for tp in end if start[tp] < end[tp]]


def _begins(source: SourceTopics, places: list[TopicPartition], since: int, end: Offsets) -> Offsets:
    """Where the first record from `since` on is; the range's end if there is none.

    The answer "none" is not believed alone: Kafka also gives it if that time is only in a segment whose
    records of that time were deleted or compacted away, whatever follows. The partition's largest time has to
    be older, too.
    """
    found = _at(source, places, since)
    none = [tp for tp, at in found.items() if at < 0]
    times = _unless_refused(none, lambda: newest(source.cluster, none))
    older = {tp: end[tp] for tp, at in times.items() if 0 <= at < since}
    return {**{tp: at for tp, at in found.items() if at >= 0}, **older}


def _ends(source: SourceTopics, places: list[TopicPartition], until: int, end: Offsets) -> Offsets:
    """Behind which offset no record is older than `until`, where that can be known."""
    if source.options.times_rise:
        found = _at(source, places, until)
        return {tp: at for tp, at in found.items() if 0 <= at < end[tp]}
    topics = sorted({topic for topic, _ in places})
    types = _unless_refused(places, lambda: topic_configs(source.cluster, topics, [_TYPE]))
    by_brokers = [tp for tp in places if types.get(tp[0], {}).get(_TYPE) == "LogAppendTime"]
    found = _at(source, by_brokers, until + CLOCKS_APART_MS)
    inside = {tp: at for tp, at in found.items() if 0 <= at < end[tp]}
    return {tp: at for tp, at in inside.items() if _is_by_broker(source, tp, at, end[tp])}


def _is_by_broker(source: SourceTopics, place: TopicPartition, first: int, behind: int) -> bool:
    """Whether a broker has set the time of the first record from `first` on, if there is one."""
    from eoslog.client.records.fetch import fetch  # only here a process that plans needs the codec

    records = fetch(
        source.cluster, *place, first, behind, committed=False, topic_id=source.ids.get(place[0]), max_bytes=1
    )
    types = (int(one.timestamp_type[0].as_py()) for one in records)
    found = _unless_refused([place], lambda: {place: next(types, _LOG_APPEND_TIME)})
    return found.get(place) == _LOG_APPEND_TIME


def _at(source: SourceTopics, places: list[TopicPartition], time_ms: int) -> Offsets:
    """The first record from a time on, also in transactions that are open or aborted; -1: none."""
    wanted = dict.fromkeys(places, min(time_ms, _LAST))
    return _unless_refused(places, lambda: list_offsets(source.cluster, wanted, committed=False))


def _unless_refused(places: list[TopicPartition], ask: Callable[[], dict[K, V]]) -> dict[K, V]:
    """What is asked about these places, or nothing: without an answer more is read, and no row is missing."""
    if not places:
        return {}
    try:
        return ask()
    except (EoslogError, KafkaError) as error:
        named = ", ".join(f"{topic}-{partition}" for topic, partition in places)
        logger.warning(
            "%s: a filter on timestamp is not pushed down, all is read: %s. %s", named, error, _SEE
        )
        return {}
