"""What all edits on the command line share: their options, whether the query may be edited, the price, and
what is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import click

from eoslog.checkpoint import carry_out
from eoslog.checkpoint.backups import Backup, interrupted, newest_backup
from eoslog.checkpoint.checks import is_forgotten, stops
from eoslog.checkpoint.compare import Effect, Fate, Stretch, effect_of, stretches
from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.edits import Edit
from eoslog.checkpoint.standing import (
    SourcePlace,
    Standing,
    check_rests,
    known_places,
    left_places,
    named_places,
    places,
    position_of,
    standing,
)
from eoslog.checkpoint.targets import LogBounds
from eoslog.client.wire.cluster import Cluster
from eoslog.commands import output
from eoslog.commands.session import CommandSession
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.commit.faults import RowsGone

COLUMNS = ["source", "topic", "partition", "from", "to", "group", "end", "lag"]


def shown(standing: Standing, bounds: LogBounds, next_start: str) -> dict[str, Any]:
    """All that `show` tells. `next_start`: what the next start will do, or what will stop it. Offsets of the
    newest batch: from its beginning, to its end; `lag`: offsets that the query has yet to read."""
    note, decided, backup = standing.note, standing.decided, newest_backup(standing.checkpoint)
    return {
        "checkpoint": standing.checkpoint.location,
        "query": standing.query_id,
        "cluster": standing.cluster_id,
        "offset_log": None if standing.newest is None else "v2" if standing.newest.names else "v1",
        "planned": standing.newest and standing.newest.batch_id,
        "done": standing.completed,
        "decided": decided and decided.batch_id,
        "transactional_id": note and note.sink,
        "group": note and note.group,
        "coordinator": standing.state and standing.state.state,
        "stateful": standing.is_stateful,
        "next_start": next_start,
        "last_edit": backup and {"name": backup.name, "kind": backup.kind, "state": str(backup.state)},
        "partitions": _partitions(standing, bounds),
    }


def _partitions(standing: Standing, bounds: LogBounds) -> list[dict[str, Any]]:
    if standing.newest is None:
        return []
    before = standing.checkpoint.planned_if_kept(standing.newest.batch_id - 1)
    begins = {} if before is None else named_places(before)
    last = standing.last_written
    stands = {} if last is None else named_places(last)
    return [
        {
            "source": place[0],
            "topic": place[1],
            "partition": place[2],
            "from": begins.get(place),
            "to": at,
            "group": standing.committed[place[1:]].offset if place[1:] in standing.committed else None,
            "end": bounds.end.get(place[1:]),
            "lag": _lag(bounds, place[1:], stands.get(place)),
        }
        for place, at in sorted(named_places(standing.newest).items())
    ]


def _lag(bounds: LogBounds, where: tuple[str, int], stands: int | None) -> int | None:
    return None if stands is None or where not in bounds.end else max(bounds.end[where] - stands, 0)


def head(document: Mapping[str, Any]) -> list[str]:
    """The lines above the table of `show`."""
    sink = document["transactional_id"] or "none that keeps decisions"
    group = document["group"] or "none (no kafka.group.id)"
    lines = [
        f"query {document['query']}, offset log {document['offset_log'] or 'empty'}"
        + (", keeps state" if document["stateful"] else ""),
        f"batches: planned {_number(document['planned'])}, decided {_number(document['decided'])}, "
        f"done {_number(document['done'])}",
        f"sink: {sink} ({document['coordinator'] or 'not known to the cluster'}), group: {group}",
        f"next start: {document['next_start']}",
    ]
    edit = document["last_edit"]
    return [*lines, f"last edit: {edit['name']} ({edit['kind']}), {edit['state']}"] if edit else lines


def _number(value: int | None) -> str:
    return "none" if value is None else str(value)


def effect_lines(effect: Effect) -> list[str]:
    """What an edit does, a line for each partition, and in all."""
    lines = [
        f"{one.topic}-{one.partition}: from {one.before} to {one.after}: {one.rows} rows {one.fate}"
        for one in effect.moved
    ]
    twice, never = effect.rows(Fate.TWICE), effect.rows(Fate.NEVER)
    return [*lines, f"in all: {twice} rows of the source twice, {never} never"]


WATCH_SECONDS = 2.0


def editing(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every edit of a checkpoint."""
    option = click.option("--accept-loss", type=click.IntRange(0), default=0, metavar="N",
                          help="At most so many rows may never appear.")  # fmt: skip
    return option(doubling(function))


def resting(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of an edit of a query that has to rest."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Only say what would happen."),
        click.option("--fence", is_flag=True, help="Take the sink from a query that runs: it stops."),
        click.option("--watch", type=click.FloatRange(0), default=WATCH_SECONDS, show_default=True,
                     metavar="SECONDS", help="How long to look whether the query runs."),
    ):  # fmt: skip
        function = option(function)
    return function


def doubling(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of an edit that makes no row disappear."""
    for option in (
        click.option("--read-uncommitted", is_flag=True,
                     help="The query reads with kafka.isolation.level=read_uncommitted."),
        click.option("--accept-duplicates", type=click.IntRange(0), default=0, metavar="N",
                     help="At most so many rows may appear twice."),
    ):  # fmt: skip
        function = option(function)
    return resting(function)


def editable(session: CommandSession, checkpoint: str, *, forked: bool = False) -> Standing:
    """Where the query stands, if it may be edited, or `forked`. Raises NotEditable."""
    found = uninterrupted(session, checkpoint)
    position_of(found)
    if not forked:
        _check_newest(found)
        _check_not_forgotten(session, found)
    faults = stops(session.cluster, found, forked=forked)
    wrong = [one for one in faults if not one.startswith(RowsGone.__name__)]
    if wrong:
        _check_still(session, found)
        raise NotEditable(f"the next start would stop, so no edit is safe: {wrong[0]}")
    return found


def _check_still(session: CommandSession, found: Standing) -> None:
    """Raise NotEditable if the query has gone on while it was looked at: then what is wrong need not be."""
    now = standing(session.cluster, found.checkpoint)
    if (now.planned, now.completed, now.decision) != (found.planned, found.completed, found.decision):
        raise NotEditable(
            "the query runs: it has written a batch just now. Stop it, and give the command again"
        )


def _check_newest(found: Standing) -> None:
    """Raise NotEditable if the sink has decided a batch that the checkpoint does not have: an edit would move
    that decision, and with it the query whose copy this may be."""
    decided, newest = found.decided, found.newest
    if decided is not None and newest is not None and decided.batch_id > newest.batch_id:
        raise NotEditable(
            f"the sink has decided {decided}, and the checkpoint has batch {newest.batch_id} as its newest: "
            "it is an older copy, or a power cut has taken its last files. Bring the right checkpoint back; "
            "or write them again: eoslog checkpoint rebuild. If this copy is to be a query of its own: "
            "eoslog checkpoint fork"
        )


def _check_not_forgotten(session: CommandSession, found: Standing) -> None:
    """Raise NotEditable if the planned batch is decided and that is forgotten: an edit would count its rows
    as not written."""
    if is_forgotten(session.cluster, found):
        raise NotEditable(
            f"batch {found.next_batch} is decided, and the cluster has forgotten the decision on it. Start "
            "the query once: it decides the batch again"
        )


def uninterrupted(session: CommandSession, checkpoint: str | Checkpoint) -> Standing:
    """Where the query stands, if no edit was interrupted. Raises NotEditable."""
    at = Checkpoint.at(checkpoint) if isinstance(checkpoint, str) else checkpoint
    found = standing(session.cluster, at)
    last = interrupted(found)
    if last is not None:
        raise NotEditable(
            f"the edit {last.name} ({last.kind}) was interrupted. Take it back first: {last.way_back}"
        )
    return found


def pay_and_carry_out(
    session: CommandSession,
    found: Standing,
    edit: Edit,
    how: Mapping[str, Any],
    begins: Mapping[SourcePlace, int] | None = None,
) -> None:
    """Count the rows, and carry the edit out if its price is accepted.

    `begins`: where partitions begin that the query does not read yet."""
    last, committed = position_of(found), not how["read_uncommitted"]
    stands = {**left_places(last), **(begins or {}), **places(last)}
    ends = known_places(edit.end, last)
    read = places(last).keys() & places(edit.end).keys()
    moves = [*_perhaps_again(found, stands, ends), *_of_others(session.cluster, read, stands, ends)]
    moves += stretches({place: stands[place] for place in read}, {place: ends[place] for place in read})
    with output.shown() as watch:
        effect = effect_of(session.cluster, moves, watch, committed=committed)
    if edit.before == edit.after:
        raise NotEditable("nothing was changed: the query stands there already")
    document = {"edit": edit.kind, "rows": effect.document()}
    if not may_go_on(session, found, effect, document, how):
        return
    backup = carry_out.carry_out(session.cluster, found, edit)
    tell(session, document | {"done": True, "backup": backup.name}, done(backup))


def _of_others(
    cluster: Cluster,
    read: Set[SourcePlace],
    stands: Mapping[SourcePlace, int],
    ends: Mapping[SourcePlace, int],
) -> list[Stretch]:
    """The places that move and are not `read` both before and after, as far as the log has them: such a
    topic may be gone. What the query has not read any more after an edit it reads from its beginning."""
    others = sorted(stands.keys() - read)
    there = LogBounds.of_those_there(cluster, (place[1:] for place in others), committed=False)
    moves = []
    for place in others:
        if place[1:] in there.first:
            first, end = there.first[place[1:]], there.end[place[1:]]
            before, after = (min(max(at, first), end) for at in (stands[place], ends.get(place, first)))
            moves += [Stretch(place, before, after)] if before != after else []
    return moves


def _perhaps_again(
    found: Standing, stands: Mapping[SourcePlace, int], ends: Mapping[SourcePlace, int]
) -> list[Stretch]:
    """What may be written of a batch that is not done, and comes again behind both the old and the new
    end."""
    planned = {} if found.perhaps_written is None else places(found.perhaps_written)
    first = {place: max(ends.get(place, 0), stands.get(place, 0)) for place in planned}
    return [Stretch(place, at, first[place]) for place, at in sorted(planned.items()) if at > first[place]]


def may_go_on(
    session: CommandSession,
    found: Standing,
    effect: Effect,
    document: dict[str, Any],
    how: Mapping[str, Any],
    *beside: str,
) -> bool:
    """Say what the edit does to rows, and the lines `beside` it; False if --dry-run asks for no more.
    Raises ClickException if its price is not accepted, NotEditable if the query runs."""
    if not session.as_json:
        click.echo("\n".join([*effect_lines(effect), *beside]))
    if how["dry_run"]:
        tell(session, document | {"done": False}, "nothing was changed (--dry-run)")
        return False
    _check_accepted(session, effect, document, how)
    if not how["fence"]:
        check_rests(session.cluster, found, how["watch"])
    return True


def _check_accepted(
    session: CommandSession, effect: Effect, document: dict[str, Any], how: Mapping[str, Any]
) -> None:
    """Refuse unless the user has accepted so many rows."""
    twice, never = effect.rows(Fate.TWICE), effect.rows(Fate.NEVER)
    needed = [f"--accept-duplicates {twice}"] if twice > how.get("accept_duplicates", 0) else []
    needed += [f"--accept-loss {never}"] if never > how.get("accept_loss", 0) else []
    if needed:
        if session.as_json:
            session.show_json(document | {"done": False})
        raise click.ClickException(f"nothing was changed. If that is what you want, give {' '.join(needed)}")


def done(backup: Backup) -> str:
    """What is said of an edit that is carried out."""
    return f"done; the backup is {backup.name}. To take it back before the next start: eoslog checkpoint undo"


def tell(session: CommandSession, document: dict[str, Any], text: str) -> None:
    """Print the document with --json, else the text."""
    if session.as_json:
        session.show_json(document)
    else:
        click.echo(text)
