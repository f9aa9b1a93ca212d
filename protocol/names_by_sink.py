"""Which names eoslog's sinks made, and how many each sink made. Pure.

The connector makes these names (`connector/commit/transactional_ids.py`). Code that shows transactional ids
and groups, such as the broker's console, uses this to separate them from names that people chose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

ANCHOR = "__consumer_offsets"
"""The topic whose partitions have a sink's decision, as offsets of the sink's group: every cluster with
groups has it.
"""

REST = re.compile(r"(\d+)\.(\d+)/([01])/([0-9a-z]+)\.(\d+)", re.ASCII)
"""What follows the sink and a slash in a participant's transactional id."""

DECISION = "eoslog/"
"""With it the metadata of each offset begins that has a decision, or a part of one."""

_GROUPS = ("", "attempts", "finished", "writes")
_IDS = ("", "probe")


@dataclass(frozen=True)
class SinkRemains:
    """What one sink made: transactional ids, how many are `open`, the age of the oldest of these, groups."""

    sink: str
    ids: int
    open: int
    oldest: float | None
    groups: int


def sink_of(name: str) -> str | None:
    """The sink's id, if the transactional id is that of a participant; otherwise None."""
    quoted, _, rest = name.partition("/")
    return _unquoted(quoted) if REST.fullmatch(rest) else None


def sinks_of_ids(names: Collection[str], sinks: Iterable[str] = ()) -> dict[str, str]:
    """Transactional id -> sink, for those that sinks made.

    A driver's own id looks like any other: it is recognized by its participants, or by the known `sinks`.
    """
    found = {name: sink for name in names if (sink := sink_of(name)) is not None}
    known = {*found.values(), *sinks}
    own = {name: sink for name in names if (sink := _named(name, _IDS)) is not None and sink in known}
    return found | own


def sinks_of_groups(groups: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Group -> sink, for those that sinks made; `groups` has the topics in which each group has offsets."""
    decisions = (name for name, topics in groups.items() if set(topics) == {ANCHOR})
    return {name: sink for name in decisions if (sink := _named(name, _GROUPS)) is not None}


def is_anchor(group: str, topic: str, metadata: str) -> bool:
    """Whether a group's offset is a note of a sink: it is no place in the topic, so it has no lag."""
    return metadata.startswith(DECISION) or (topic == ANCHOR and _named(group, _GROUPS) is not None)


def made(
    ids: Mapping[str, str], groups: Mapping[str, str], ages: Mapping[str, float | None]
) -> list[SinkRemains]:
    """One line for each sink, by name: from names with their sinks, and the `ages` of the open ids."""
    all_ids, all_groups = Counter(ids.values()), Counter(groups.values())
    opened: dict[str, list[float | None]] = {}
    for name in ids.keys() & ages.keys():
        opened.setdefault(ids[name], []).append(ages[name])
    return [
        SinkRemains(sink, all_ids[sink], len(found := opened.get(sink, [])), _oldest(found), all_groups[sink])
        for sink in sorted(all_ids | all_groups)
    ]


def _oldest(ages: Iterable[float | None]) -> float | None:
    return max((age for age in ages if age is not None), default=None)


def _named(name: str, endings: Collection[str]) -> str | None:
    """The sink of a name with one of these endings; None if it belongs to no sink."""
    quoted, _, rest = name.partition("/")
    before, _, number = rest.rpartition("/")
    if endings is _GROUPS and number.isdecimal():
        rest = before  # more of what one group has no room for
    return _unquoted(quoted) if rest in endings else None


def _unquoted(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")
