"""`eoslog checkpoint`: the command line.

Exit status: 0 done, 1 refused, failed or, for `check`, something is wrong, 2 the command line is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from eoslog.checkpoint.backups import Backup, interrupted
from eoslog.checkpoint.carry_out import carry_out, undo
from eoslog.checkpoint.checks import problems, stops, unreadable
from eoslog.checkpoint.edits import Edit, cut_behind, set_ends
from eoslog.checkpoint.foretell import Fate, Foretold, foretell, stretches
from eoslog.checkpoint.report import COLUMNS, foretold_lines, head, shown
from eoslog.checkpoint.running import check_rests
from eoslog.checkpoint.standing import NotEditable, SourcePlace, Standing, places, position_of, standing
from eoslog.checkpoint.targets import TO_HELP, LogBounds, Target, resolve
from eoslog.commands import progress
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.client.wire.cluster import Cluster
from eoslog.connector.offsets.offsets import TopicPartition

WATCH_SECONDS = 2.0


@click.group()
def command() -> None:
    """Show, check and edit Spark's checkpoint of a query: a path, or a URI as s3://bucket/checkpoint.

    Each edit first counts the rows that it makes appear twice or never, and refuses unless you accept them.
    """


def _editing(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every edit."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Only say what would happen."),
        click.option("--fence", is_flag=True, help="Take the sink from a query that runs: it stops."),
        click.option("--watch", type=click.FloatRange(0), default=WATCH_SECONDS, show_default=True,
                     metavar="SECONDS", help="How long to look whether the query runs."),
        click.option("--read-uncommitted", is_flag=True,
                     help="The query reads with kafka.isolation.level=read_uncommitted."),
        click.option("--accept-loss", type=click.IntRange(0), default=0, metavar="N",
                     help="At most so many rows may never appear."),
        click.option("--accept-duplicates", type=click.IntRange(0), default=0, metavar="N",
                     help="At most so many rows may appear twice."),
    ):  # fmt: skip
        function = option(function)
    return function


@command.command()
@click.argument("checkpoint")
@cluster_command
def show(session: CommandSession, checkpoint: str) -> None:
    """Show where the query stands, and what its next start will do."""
    found = standing(session.cluster, Checkpoint.at(checkpoint))
    known = places(found.newest) if found.newest else {}
    document = shown(found, _bounds_if_there(session.cluster, {place[1:] for place in known}))
    if session.as_json:
        session.show_json(document)
        return
    click.echo("\n".join(head(document)))
    session.show(document["partitions"], COLUMNS)


def _bounds_if_there(cluster: Cluster, partitions: set[TopicPartition]) -> LogBounds:
    there = cluster.metadata(sorted({topic for topic, _ in partitions})).topics if partitions else {}
    known = [(t, p) for t, p in sorted(partitions) if t in there and p in there[t].leaders]
    return LogBounds.of(cluster, known, committed=True)


@command.command()
@click.argument("checkpoint")
@cluster_command
def check(session: CommandSession, checkpoint: str) -> None:
    """Find out what would stop the next start, or lose rows. Exit status 1 if there is anything."""
    at = Checkpoint.at(checkpoint)
    try:
        found = problems(session.cluster, standing(session.cluster, at))
    except CheckpointUnreadable as error:
        found = list(dict.fromkeys([*unreadable(at), str(error)]))
    if session.as_json:
        session.show_json({"checkpoint": at.location, "right": not found, "problems": found})
    else:
        click.echo("\n".join(found or ["right: the next start goes on"]))
    if found:
        raise click.exceptions.Exit(1)


@command.command()
@click.argument("checkpoint")
@click.option("--to", metavar="WHERE", help=TO_HELP)
@click.option("--by", type=click.IntRange(1), metavar="N", help="By so many offsets in every partition.")
@click.option("--to-batch", type=click.IntRange(0), metavar="N", help="To the end of this batch.")
@_editing
@cluster_command
def rewind(
    session: CommandSession, checkpoint: str, to: str | None, by: int | None, to_batch: int | None, **how: Any
) -> None:
    """Set the query back: it reads rows again."""
    if sum(one is not None for one in (to, by, to_batch)) != 1:
        raise click.UsageError("give one of --to, --by and --to-batch")
    found = _editable(session, checkpoint)
    if found.is_stateful:
        edit = _rewound_with_state(found, to_batch)
    elif to_batch is not None:
        edit = _set(session, found, "rewind", _ends_of(found, to_batch), how)
    else:
        target = Target.parse(to, None if by is None else -by)
        edit = _moved(session, found, "rewind", target, how)
    _carry_out(session, found, edit, how)


@command.command("skip-to")
@click.argument("checkpoint")
@click.option("--to", metavar="WHERE", help=TO_HELP)
@click.option("--by", type=click.IntRange(1), metavar="N", help="By so many offsets in every partition.")
@_editing
@cluster_command
def skip_to(session: CommandSession, checkpoint: str, to: str | None, by: int | None, **how: Any) -> None:
    """Set the query forth: it never reads the rows between."""
    target = Target.parse(to, by)
    found = _editable(session, checkpoint)
    _carry_out(session, found, _moved(session, found, "skip-to", target, how), how)


@command.command("add-topic")
@click.argument("checkpoint")
@click.argument("topic")
@click.option("--start", default="earliest", show_default=True, metavar="WHERE", help=TO_HELP)
@_editing
@cluster_command
def add_topic(session: CommandSession, checkpoint: str, topic: str, start: str, **how: Any) -> None:
    """Have the query read a TOPIC more, from --start on. Then name it in the query's options, too."""
    target = Target.parse(start, None)
    found = _editable(session, checkpoint)
    last = position_of(found)
    if len(last.sources) > 1:
        raise NotEditable(f"the query has {len(last.sources)} sources: add the topic to one by its options")
    if any(place[1] == topic for place in places(last)):
        raise NotEditable(f"the query reads {topic} already: use eoslog checkpoint rewind or skip-to")
    info = session.cluster.describe(topic)
    bounds = _bounds(session, {(0, topic, partition): 0 for partition in info.leaders}, how)
    begins = {(0, *where): at for where, at in bounds.first.items()}
    new = resolve(session.cluster, target, begins, bounds, back=False)
    ids = {} if info.topic_id is None else {topic: info.topic_id}
    edit = set_ends(found, "add-topic", {**places(last), **new}, ids)
    _carry_out(session, found, edit, how, begins)


@command.command("undo")
@click.argument("checkpoint")
@click.option("--fence", is_flag=True, help="Take the sink from a query that runs: it stops.")
@cluster_command
def take_back(session: CommandSession, checkpoint: str, fence: bool) -> None:
    """Take the last edit back, also one that was interrupted. Not possible once the query has gone on."""
    found = standing(session.cluster, Checkpoint.at(checkpoint))
    if not fence:
        check_rests(session.cluster, found, WATCH_SECONDS)
    backup = undo(session.cluster, found)
    _tell(
        session, {"undone": backup.name, "kind": backup.kind}, f"{backup.name} ({backup.kind}) is taken back"
    )


def _editable(session: CommandSession, checkpoint: str) -> Standing:
    """Where the query stands, if it may be edited. Raises NotEditable."""
    found = standing(session.cluster, Checkpoint.at(checkpoint))
    last = interrupted(found)
    if last is not None:
        raise NotEditable(
            f"the edit {last.name} ({last.kind}) was interrupted. Take it back first: eoslog checkpoint undo"
        )
    position_of(found)
    wrong = stops(found)
    if wrong:
        raise NotEditable(f"the next start would stop, so no edit is safe: {wrong[0]}")
    return found


def _moved(
    session: CommandSession, found: Standing, kind: str, target: Target, how: Mapping[str, Any]
) -> Edit:
    at = places(position_of(found))
    bounds = _bounds(session, at, how)
    return _set(
        session, found, kind, resolve(session.cluster, target, at, bounds, back=kind == "rewind"), how
    )


def _set(
    session: CommandSession,
    found: Standing,
    kind: str,
    ends: Mapping[SourcePlace, int],
    how: Mapping[str, Any],
) -> Edit:
    _check_there(ends, _bounds(session, ends, how))
    return set_ends(found, kind, ends, {})


def _bounds(session: CommandSession, at: Mapping[SourcePlace, int], how: Mapping[str, Any]) -> LogBounds:
    partitions = sorted({place[1:] for place in at})
    if not partitions:
        raise NotEditable("the query reads no topic: there is nothing to move")
    return LogBounds.of(session.cluster, partitions, committed=not how["read_uncommitted"])


def _check_there(ends: Mapping[SourcePlace, int], bounds: LogBounds) -> None:
    gone = [(place[1:], at) for place, at in ends.items() if at < bounds.first[place[1:]]]
    if gone:
        (topic, partition), at = gone[0]
        raise NotEditable(
            f"offset {at} of {topic}-{partition} is not in the log any more, which begins at "
            f"{bounds.first[topic, partition]}: name a later place"
        )


def _ends_of(found: Standing, batch: int) -> dict[SourcePlace, int]:
    """The ends of an earlier batch; partitions that it did not have stay."""
    last = position_of(found)
    earlier = found.checkpoint.planned_if_kept(batch) if batch <= last.batch_id else None
    if earlier is None:
        kept = [number for number in found.planned if number <= last.batch_id]
        raise NotEditable(
            f"--to-batch {batch}: the checkpoint has the ends of batches {kept[0]} to {kept[-1]}"
        )
    now, then = places(last), places(earlier)
    return {place: min(at, then.get(place, at)) for place, at in now.items()}


def _rewound_with_state(found: Standing, to_batch: int | None) -> Edit:
    if to_batch is None:
        raise NotEditable(
            f"the query keeps state, which is that at the end of batch {position_of(found).batch_id}: it can "
            "only go back to the end of a batch whose state is kept. Give --to-batch"
        )
    return cut_behind(found, "rewind", to_batch)


def _carry_out(
    session: CommandSession,
    found: Standing,
    edit: Edit,
    how: Mapping[str, Any],
    begins: Mapping[SourcePlace, int] | None = None,
) -> None:
    """Foretell the edit, and carry it out if its price is accepted. `begins`: where partitions begin that the
    query does not read yet."""
    stands = {**(begins or {}), **places(position_of(found))}
    foretold = _foretell(session, stands, edit.end, how)
    if edit.before == edit.after:
        raise NotEditable("nothing was changed: the query stands there already")
    if not session.as_json:
        click.echo("\n".join(foretold_lines(foretold)))
    document = {"edit": edit.kind, "foretold": foretold.document()}
    if how["dry_run"]:
        _tell(session, document | {"done": False}, "nothing was changed (--dry-run)")
        return
    _check_accepted(session, foretold, document, how)
    if not how["fence"]:
        check_rests(session.cluster, found, how["watch"])
    backup = carry_out(session.cluster, found, edit)
    _tell(session, document | {"done": True, "backup": backup.name}, _done(backup))


def _foretell(
    session: CommandSession, stands: Mapping[SourcePlace, int], end: Planned, how: Mapping[str, Any]
) -> Foretold:
    moves = stretches(stands, places(end))
    with progress.shown() as watch:
        return foretell(session.cluster, moves, watch, committed=not how["read_uncommitted"])


def _check_accepted(
    session: CommandSession, foretold: Foretold, document: dict[str, Any], how: Mapping[str, Any]
) -> None:
    """Refuse unless the user has accepted so many rows."""
    twice, never = foretold.rows(Fate.TWICE), foretold.rows(Fate.NEVER)
    needed = [f"--accept-duplicates {twice}"] if twice > how["accept_duplicates"] else []
    needed += [f"--accept-loss {never}"] if never > how["accept_loss"] else []
    if needed:
        if session.as_json:
            session.show_json(document | {"done": False})
        raise click.ClickException(f"nothing was changed. If that is what you want, give {' '.join(needed)}")


def _done(backup: Backup) -> str:
    return f"done; the backup is {backup.name}. To take it back before the next start: eoslog checkpoint undo"


def _tell(session: CommandSession, document: dict[str, Any], text: str) -> None:
    if session.as_json:
        session.show_json(document)
    else:
        click.echo(text)
