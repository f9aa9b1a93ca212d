"""The new offsets of a group's reset: the options that name them, and their value for each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import click

from eoslog.client.admin.list_offsets import EARLIEST, LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.protocol.topic_partitions import TopicPartition


@dataclass(frozen=True)
class Target:
    """Exactly one field is set; `timestamp` in ms since 1970."""

    special: int | None = None
    """EARLIEST or LATEST."""
    offset: int | None = None
    shift: int | None = None
    timestamp: int | None = None

    @classmethod
    def parse(
        cls,
        to_earliest: bool,
        to_latest: bool,
        to_offset: int | None,
        shift_by: int | None,
        to_datetime: str | None,
    ) -> Target:
        """Make a target of the command's options. Raises click.UsageError unless exactly one is given."""
        given = [to_earliest, to_latest, to_offset is not None, shift_by is not None, to_datetime is not None]
        if sum(given) != 1:
            raise click.UsageError(
                "give one of --to-earliest, --to-latest, --to-offset, --shift-by, --to-datetime"
            )
        if to_earliest or to_latest:
            return cls(special=EARLIEST if to_earliest else LATEST)
        timestamp = None if to_datetime is None else _milliseconds(to_datetime)
        return cls(offset=to_offset, shift=shift_by, timestamp=timestamp)


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--to-datetime {text}: give a time as 2026-11-21T10:00:00.000+01:00"
        ) from None
    return int(moment.timestamp() * 1000)  # local time if it has no zone


@dataclass(frozen=True)
class OffsetReset:
    """The new offset of a partition; `before` is the committed one, None if there is none."""

    where: TopicPartition
    before: int | None
    offset: int
    note: str = ""


def plan(
    cluster: Cluster,
    target: Target,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, tuple[int, str]],
) -> list[OffsetReset]:
    """The new offsets, each within the partition's range. Raises ClickException for a shift of no offset."""
    if not partitions:
        return []
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST), committed=False)
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST), committed=False)
    found: dict[TopicPartition, int] = {}
    if target.timestamp is not None:
        found = list_offsets(cluster, dict.fromkeys(partitions, target.timestamp), committed=False)
    plans = []
    for where in partitions:
        before = committed[where][0] if where in committed else None
        wanted, note = _wanted(target, where, before, starts[where], ends[where], found)
        offset = min(max(wanted, starts[where]), ends[where])
        if offset != wanted:
            note = f"{wanted} is not in the log, which has {starts[where]} to {ends[where]}"
        plans.append(OffsetReset(where, before, offset, note))
    return plans


def _wanted(
    target: Target,
    where: TopicPartition,
    before: int | None,
    start: int,
    end: int,
    found: Mapping[TopicPartition, int],
) -> tuple[int, str]:
    if target.special is not None:
        return (start if target.special == EARLIEST else end), ""
    if target.offset is not None:
        return target.offset, ""
    if target.shift is not None:
        if before is None:
            raise click.ClickException(f"{where[0]}-{where[1]}: no offset is committed that could be shifted")
        return before + target.shift, ""
    if found[where] < 0:
        return end, "all records are older: to the end"
    return found[where], ""
