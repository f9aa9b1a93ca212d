"""`eoslog groups`: list, describe, reset and delete consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from eoslog.client.admin import groups as calls
from eoslog.client.admin.groups import commit_plain, fetch_committed
from eoslog.client.admin.topics import EARLIEST, LATEST, describe_topics, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.session import CommandSession, cluster_command, partitions_of
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.names_by_sink import is_anchor
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


@click.group()
def command() -> None:
    """Show consumer groups; reset and delete their offsets."""


@command.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only groups in it; repeatable.")
@cluster_command
def list_groups(session: CommandSession, states: tuple[str, ...]) -> None:
    """List all groups."""
    wanted = {state.lower() for state in states}
    rows = [
        {"group": found.group, "state": found.state, "type": found.kind, "protocol": found.protocol}
        for found in calls.list_groups(session.cluster)
        if not wanted or found.state.lower() in wanted
    ]
    session.show(rows, ["group", "state", "type", "protocol"])


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@click.option("--members", is_flag=True, help="Show the members, and what each reads.")
@cluster_command
def describe(session: CommandSession, names: tuple[str, ...], members: bool) -> None:
    """Show groups' offsets and lag, and which member reads what."""
    found = [(calls.describe_group(session.cluster, name), _offsets(session, name)) for name in names]
    for group, offsets in found:
        if group.state == "Dead" and not offsets:
            session.fail(f"there is no group {group.group}")
    if session.as_json:
        session.show_json([_document(group, offsets) for group, offsets in found])
    elif members:
        columns = ["group", "state", "member", "instance", "client", "host", "partitions"]
        session.show([row for group, _ in found for row in _members(group)], columns)
    else:
        columns = ["group", "state", "topic", "partition", "committed", "end", "lag", "member", "host"]
        session.show([row for group, offsets in found for row in _lags(group, offsets)], columns)
    session.end()


def _document(group: calls.DescribedGroup, offsets: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "group": group.group,
        "state": group.state,
        "type": group.kind,
        "assignor": group.assignor,
        "members": [{**row, "group": group.group} for row in _members(group)],
        "offsets": offsets,
    }


def _members(group: calls.DescribedGroup) -> list[dict[str, Any]]:
    return [
        {
            "group": group.group,
            "state": group.state,
            "member": member.member_id,
            "instance": member.instance_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": [f"{topic}-{number}" for topic, number in sorted(member.partitions)],
        }
        for member in group.members
    ]


def _lags(group: calls.DescribedGroup, offsets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each partition that is committed or assigned."""
    owners = {where: member for member in group.members for where in member.partitions}
    rows = {(row["topic"], row["partition"]): dict(row) for row in offsets}
    for topic, number in owners:
        rows.setdefault((topic, number), {"topic": topic, "partition": number})
    for where, row in rows.items():
        owner = owners.get(where)
        row |= {"group": group.group, "state": group.state}
        row |= {"member": owner.member_id if owner else None, "host": owner.host if owner else None}
    return [rows[where] for where in sorted(rows)]


def _offsets(session: CommandSession, group: str) -> list[dict[str, Any]]:
    """The group's committed offsets, each with the partition's end and the lag; both None for a deleted
    topic. Notes of a sink have no lag.
    """
    committed = fetch_committed(session.cluster, group, None, require_stable=False)
    notes = {where for where, (_, said) in committed.items() if is_anchor(group, where[0], said)}
    there = _partitions(session)
    known = [(topic, number) for topic, number in committed if number in there.get(topic, ())]
    ends = list_offsets(session.cluster, dict.fromkeys(known, LATEST), committed=False) if known else {}
    return [
        {
            "topic": where[0],
            "partition": where[1],
            "committed": offset,
            "end": ends.get(where),
            "lag": max(ends[where] - offset, 0) if where in ends and where not in notes else None,
            "metadata": metadata,
        }
        for where, (offset, metadata) in sorted(committed.items())
    ]


def _partitions(session: CommandSession) -> dict[str, list[int]]:
    return {name: list(topic.partitions) for name, topic in describe_topics(session.cluster).items()}


@command.command()
@click.argument("group")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="What to reset; repeatable.")
@click.option("--all-topics", is_flag=True, help="All topics with committed offsets.")
@click.option("--to-earliest", is_flag=True, help="To the first offset that exists.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset.")
@click.option("--shift-by", type=int, help="Forward, or back if negative.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="To the first record of this time or later, as 2026-11-21T10:00:00.000[+01:00].",
)
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--dry-run", is_flag=True, help="Only show what would change; the default.")
@cluster_command
def reset(
    session: CommandSession,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    **where: Any,
) -> None:
    """Set the offsets of a group without members. Without --execute only show the new offsets."""
    target = Target.parse(**where)
    if bool(topics) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")
    if execute and dry_run:
        raise click.UsageError("give either --execute or --dry-run")
    state = calls.describe_group(session.cluster, group).state
    if state not in calls.WITHOUT_MEMBERS:
        raise click.ClickException(f"group {group} has members ({state}): stop them first")
    committed = fetch_committed(session.cluster, group, None, require_stable=True)
    there = _partitions(session)
    if all_topics:
        wanted = [where for where in committed if where[1] in there.get(where[0], ())]
    else:
        wanted = [where for text in topics for where in partitions_of(text, there)]
    planned = plan(session.cluster, target, sorted(set(wanted)), committed)
    if execute and planned:
        commit_plain(session.cluster, group, {p.where: (p.offset, "") for p in planned})
    _show_plan(session, group, planned, execute)


def _show_plan(session: CommandSession, group: str, planned: list[OffsetReset], execute: bool) -> None:
    rows = [
        {"group": group, "topic": p.where[0], "partition": p.where[1], "committed": p.before,
         "new_offset": p.offset, "note": p.note, "executed": execute}
        for p in planned
    ]  # fmt: skip
    session.show(rows, ["group", "topic", "partition", "committed", "new_offset", "note"])
    if not execute:
        click.echo("Nothing was changed: give --execute to change it.", err=True)


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@cluster_command
def delete(session: CommandSession, names: tuple[str, ...]) -> None:
    """Delete groups without members, and their offsets."""
    for name in names:
        try:
            calls.delete_group(session.cluster, name)
            session.say(f"group {name}: deleted")
        except KafkaError as error:
            session.fail(error)


@command.command("delete-offsets")
@click.argument("group")
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="TOPIC[:0,1]",
    help="Delete the offsets of this topic; repeatable.",
)  # fmt: skip
@cluster_command
def delete_offsets(session: CommandSession, group: str, topics: tuple[str, ...]) -> None:
    """Delete a group's offsets of topics that it no longer reads."""
    committed = fetch_committed(session.cluster, group, None, require_stable=False)
    there = _partitions(session)
    for topic, number in committed:
        there.setdefault(topic, []).append(number)  # also of a topic that was deleted
    known = {topic: sorted(set(numbers)) for topic, numbers in there.items()}
    wanted = [where for text in topics for where in partitions_of(text, known)]
    for (topic, number), error in calls.delete_offsets(session.cluster, group, wanted).items():
        if error is None:
            session.say(f"{topic}-{number}: forgotten")
        else:
            session.fail(error)
