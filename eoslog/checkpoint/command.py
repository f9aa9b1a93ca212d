"""`eoslog checkpoint`: the command line.

Exit status: 0 done, 1 refused, failed or, for `check`, something is wrong, 2 the command line is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import click

from eoslog.checkpoint.backups import check_not_moved, moving_to
from eoslog.checkpoint.carry_out import carry_out, undo
from eoslog.checkpoint.checks import decided_plans, log_cut_at, problems, says, unreadable
from eoslog.checkpoint.compare import Effect, diff
from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.editing import (
    COLUMNS,
    WATCH_SECONDS,
    done,
    editable,
    editing,
    head,
    may_go_on,
    pay_and_carry_out,
    resting,
    shown,
    tell,
    uninterrupted,
)
from eoslog.checkpoint.edits import Edit, cut_behind, set_ends
from eoslog.checkpoint.fork import fork
from eoslog.checkpoint.move_command import move_cluster
from eoslog.checkpoint.rebuild import Lost, rebuilt, without_batches
from eoslog.checkpoint.restore import restore
from eoslog.checkpoint.standing import (
    SourcePlace,
    Standing,
    check_rests,
    leader_epochs,
    named_places,
    places,
    position_of,
    source_name,
    standing,
)
from eoslog.checkpoint.targets import TO_HELP, LogBounds, Target, resolve
from eoslog.client.wire.cluster import Cluster
from eoslog.commands import output
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.noted_left import stood_in
from eoslog.connector.checkpoint.spark_logs import Planned, source_position
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import SourcePosition
from eoslog.connector.offsets.plan import recreated
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.sink.start_of_run import cluster_id
from eoslog.protocol.topic_partitions import TopicPartition


@click.command("restore")
@click.argument("checkpoint")
@click.option("--transactional-id", required=True, metavar="ID", help="transactional.id of the query.")
@click.option("--topic", default="", metavar="TOPIC", help="Option topic of its sink, if it has one.")
@click.option(
    "--decision-topic", default=ANCHOR, metavar="TOPIC", help="decision.topic of the query, if it has one."
)
@cluster_command
def restore_command(
    session: CommandSession, checkpoint: str, transactional_id: str, topic: str, decision_topic: str
) -> None:
    """Write a lost CHECKPOINT again, from the topic of state.topic, into an empty folder.

    A driver that still runs the query is stopped. Then start the query with this checkpoint.
    """
    cluster_id(session.cluster)
    runner = Runner(session.cluster, OWN_TIMEOUT_MS, decisions=decision_topic)
    with output.shown() as watch:
        lost = Lost(Sink(transactional_id), topic, decision_topic)
        restored = restore(session.cluster, runner, lost, checkpoint, _told(watch))
    if session.as_json:
        session.show_json(None if restored is None else restored._asdict())
    elif restored is None:
        session.say(f"sink {transactional_id} has decided nothing: start the query with a new checkpoint")
    else:
        session.say(str(restored))


def _told(watch: output.ProgressListener) -> Callable[[int, int], None]:
    """A function that moves the bar, given how many offsets are read, of how many."""
    before = 0

    def seen(now: int, total: int) -> None:
        nonlocal before
        if not before:
            watch.begin("offsets of the state's topic", total)
        watch.advance(now - before)
        before = now

    return seen


@click.group()
def command() -> None:
    """Show, check and edit Spark's checkpoint of a query: a path, or a URI as s3://bucket/checkpoint.

    Each edit first counts the rows that it makes appear twice or never, and refuses unless you accept them.
    """


@command.command()
@click.argument("checkpoint")
@cluster_command
def show(session: CommandSession, checkpoint: str) -> None:
    """Show where the query stands, and what its next start will do."""
    found = standing(session.cluster, Checkpoint.at(checkpoint))
    known = places(found.newest) if found.newest else {}
    bounds = LogBounds.of_those_there(session.cluster, (place[1:] for place in known), committed=True)
    document = shown(found, bounds, says(session.cluster, found))
    if session.as_json:
        session.show_json(document)
        return
    click.echo("\n".join(head(document)))
    session.show(document["partitions"], COLUMNS)


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


command.add_command(diff)
command.add_command(fork)
command.add_command(move_cluster)
command.add_command(restore_command)


@command.command()
@click.argument("checkpoint")
@click.option("--to", metavar="WHERE", help=TO_HELP)
@click.option("--by", type=click.IntRange(1), metavar="N", help="By so many offsets in every partition.")
@click.option("--to-batch", type=click.IntRange(0), metavar="N", help="To the end of this batch.")
@editing
@cluster_command
def rewind(
    session: CommandSession, checkpoint: str, to: str | None, by: int | None, to_batch: int | None, **how: Any
) -> None:
    """Set the query back: it reads rows again."""
    if sum(one is not None for one in (to, by, to_batch)) != 1:
        raise click.UsageError("give one of --to, --by and --to-batch")
    found = editable(session, checkpoint)
    if to_batch is not None:
        check_not_moved(found.checkpoint, to_batch)
    if found.is_stateful:
        edit = _rewound_with_state(found, to_batch)
    elif to_batch is not None:
        edit = _set(session, found, "rewind", _ends_of(found, to_batch), how)
    else:
        target = Target.parse(to, None if by is None else -by)
        edit = moved(session, found, "rewind", target, how)
    pay_and_carry_out(session, found, edit, how)


@command.command("skip-to")
@click.argument("checkpoint")
@click.option("--to", metavar="WHERE", help=TO_HELP)
@click.option("--by", type=click.IntRange(1), metavar="N", help="By so many offsets in every partition.")
@editing
@cluster_command
def skip_to(session: CommandSession, checkpoint: str, to: str | None, by: int | None, **how: Any) -> None:
    """Set the query forth: it never reads the rows between."""
    target = Target.parse(to, by)
    found = editable(session, checkpoint)
    pay_and_carry_out(session, found, moved(session, found, "skip-to", target, how), how)


@command.command("add-topic")
@click.argument("checkpoint")
@click.argument("topic")
@click.option("--start", default="earliest", show_default=True, metavar="WHERE", help=TO_HELP)
@editing
@cluster_command
def add_topic(session: CommandSession, checkpoint: str, topic: str, start: str, **how: Any) -> None:
    """Have the query read a TOPIC more, from --start on. Then name it in the query's options, too.

    Of a topic that the query, or an earlier one of its sink, has read before, it goes on where that one
    stood. Rows before that come again only if --start gives their offsets.
    """
    target = Target.parse(start, None)
    found = editable(session, checkpoint)
    last = position_of(found)
    if len(last.sources) > 1:
        raise NotEditable(f"the query has {len(last.sources)} sources: add the topic to one by its options")
    if any(place[1] == topic for place in places(last)):
        raise NotEditable(f"the query reads {topic} already: use eoslog checkpoint rewind or skip-to")
    info = session.cluster.describe(topic)
    bounds = _bounds(session, {(0, topic, partition): 0 for partition in info.leaders}, how)
    ids = {} if info.topic_id is None else {topic: info.topic_id}
    given = target.offsets is not None
    stood = _stood(found, [*bounds.first], ids, target.offsets, decided_plans(session.cluster, found))
    begins = {(0, *where): stood.offsets.get(where, at) for where, at in bounds.first.items()}
    new = resolve(session.cluster, target, begins, bounds, back=None)
    _check_there(new if given else begins, bounds, "give its later offsets (--start)")
    _check_uncut(session.cluster, stood, new, "Give offsets up to it (--start)")
    epochs = leader_epochs(session.cluster, new)
    epochs |= {tp: epoch for tp, epoch in stood.epochs.items() if new[0, *tp] == stood.offsets[tp]}
    edit = set_ends(found, "add-topic", {**places(last), **new}, ids, epochs)
    there = {place: max(at, bounds.first[place[1:]]) for place, at in begins.items()}
    pay_and_carry_out(session, found, edit, how, there)


def _stood(
    found: Standing,
    partitions: Collection[TopicPartition],
    ids: Mapping[str, str],
    given: Mapping[TopicPartition, int] | None,
    decided: Collection[Planned],
) -> SourcePosition:
    """Where the query has left partitions that it reads no more, and an earlier query of its sink others.
    `ids`: of their topics. `decided`: plans_decided(). A topic that is not the one that was left is its copy
    if offsets are `given`: there it has stood. Raises NotEditable if none are."""
    position = source_position(position_of(found).sources[0])
    left, back = position.left, position.back_in(partitions, ids)
    anew = sorted(recreated(left.ids, ids).keys() - left.gone)
    if anew and given is not None:
        return SourcePosition({tp: given[tp] for tp in partitions if tp in given}, {}, None, {})
    if anew:
        raise NotEditable(
            f"topic {anew[0]} was deleted and created again since the query has read it. Nothing was "
            "changed. Start the query once with the topic in its options and failOnDataLoss=false: it reads "
            "the new one from its beginning. If it is a copy of that one, on another cluster, give the "
            "offsets in it (--start)"
        )
    sink = None if found.note is None else found.note.sink or found.query_id
    noted = {
        tp: one
        for tp, one in found.noted.items()
        if tp in partitions and tp not in left.offsets and one.note is not None
        if one.note.sink == sink or one.note.query == found.query_id
    }
    offsets = {tp: back.offsets[tp] for tp in partitions if tp in back.offsets}
    gone = {tp for tp in left.offsets if tp[0] in left.gone}
    kept = stood_in(found.checkpoint, {*partitions} - {*offsets} - gone, found.next_batch, ids, decided)
    epochs = {tp: epoch for tp, epoch in back.epochs.items() if tp in offsets}
    return back._replace(
        offsets=offsets | kept | {tp: max(one.offset, kept.get(tp, 0)) for tp, one in noted.items()},
        epochs=epochs | {tp: one.epoch for tp, one in noted.items() if one.epoch >= 0},
    )


@command.command()
@click.argument("checkpoint")
@click.option("--fanout", metavar="NAME", help="The query is this fan-out: a table of it tells the batch.")
@click.option(
    "--table", metavar="TABLE",
    help="With --fanout: delta:PATH, iceberg:CATALOG.NAMESPACE.TABLE (pyiceberg's catalog) or "
    "postgres:SCHEMA.TABLE (libpq's variables name the database: PGHOST, PGDATABASE, ...).",
)  # fmt: skip
@click.option(
    "--transactional-id",
    metavar="ID",
    help="The whole checkpoint is lost: transactional.id of its query; without one, its id.",
)
@click.option(
    "--topic", default="", metavar="TOPIC", help="With it: option topic of the sink, if it has one."
)
@click.option(
    "--decision-topic", default=ANCHOR, metavar="TOPIC", help="With it: decision.topic, if the query has one."
)
@resting
@cluster_command
def rebuild(
    session: CommandSession,
    checkpoint: str,
    fanout: str | None,
    table: str | None,
    transactional_id: str | None,
    topic: str,
    decision_topic: str,
    **how: Any,
) -> None:
    """Write again what the checkpoint has lost of the last decided batch, as its decision says it.

    After a power cut of the driver's machine, for a copy that is older than the sink or, with
    --transactional-id, for a deleted folder. No row is doubled or lost.
    """
    if (fanout is None) != (table is None):
        raise click.UsageError("give both of --fanout and --table, or neither")
    if fanout is not None and transactional_id is not None:
        raise click.UsageError("a fan-out has no transactional.id: leave --transactional-id out")
    at, whole = Checkpoint.at(checkpoint), dict[str, str]()
    if transactional_id is not None:
        whole = without_batches(session.cluster, at, Lost(Sink(transactional_id), topic, decision_topic))
    elif not at.files():
        raise NotEditable(f"checkpoint {checkpoint} is not there: name its query, --transactional-id")
    found = uninterrupted(session, at.changed(whole) if whole else at)
    edit = rebuilt(found, None if fanout is None or table is None else _marked(found, fanout, table))
    files = {f"{log}/{batch}": text for (log, batch), text in sorted(edit.after.items())}
    files = {**whole, **files}
    document = {"edit": edit.kind, "files": list(files)}
    gone = [f"removes {name}" for name, text in files.items() if text is None]
    said = [f"writes {name}" for name, text in files.items() if text is not None] + gone
    if not may_go_on(session, found, Effect(()), document, how, ", ".join(said)):
        return
    for name, text in whole.items():
        at.put(name, text.encode())
    backup = carry_out(session.cluster, replace(found, checkpoint=at), edit)
    tell(session, document | {"done": True, "backup": backup.name}, done(backup))


def _marked(found: Standing, fanout: str, table: str) -> Planned:
    from eoslog.fanout import marked_ends, table_at  # pyarrow takes a while

    planned = marked_ends(table_at(table), fanout, found.query_id)
    if planned is None:
        raise NotEditable(
            f"{table} tells no plan of a batch of the fan-out {fanout}: it has none, an older eoslog has "
            "written it, or its log was cleaned up. Name another of its tables, or bring back the right "
            "checkpoint"
        )
    return planned


@command.command("undo")
@click.argument("checkpoint")
@click.option("--fence", is_flag=True, help="Take the sink from a query that runs: it stops.")
@click.option(
    "--edit-has-ended", is_flag=True,
    help="An edit interrupted on another machine is not at work there any more.",
)  # fmt: skip
@cluster_command
def take_back(session: CommandSession, checkpoint: str, fence: bool, edit_has_ended: bool) -> None:
    """Take the last edit back, also one that was interrupted. Not possible once the query has gone on, or
    another one has taken its place."""
    at = Checkpoint.at(checkpoint)
    found = standing(session.cluster, at, moving_to(at))
    if not fence:
        check_rests(session.cluster, found, WATCH_SECONDS)
    backup = undo(session.cluster, found, has_ended=edit_has_ended)
    said = f"{backup.name} ({backup.kind}) is taken back"
    if backup.cluster is not None and found.sink is not None:
        said += (
            ". Start the query with this checkpoint, on the cluster where it was. Another copy may "
            "stop there until then (TakenOver): its error says how to go on if this one is lost"
        )
    elif backup.cluster is not None and found.may_be_foreach:
        said += (
            ". Start the query with this checkpoint, on the cluster where it was. A df.write of its "
            "foreachBatch may stop there (TakenOver): its error names what accepts that"
        )
    tell(session, {"undone": backup.name, "kind": backup.kind}, said)


def moved(
    session: CommandSession, found: Standing, kind: str, target: Target, how: Mapping[str, Any]
) -> Edit:
    """An edit that sets every partition to its target. Raises NotEditable, KafkaError, EoslogError."""
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
    _check_read(session.cluster, position_of(found), ends)
    return set_ends(found, kind, ends, {}, leader_epochs(session.cluster, ends))


def _check_read(cluster: Cluster, last: Planned, ends: Mapping[SourcePlace, int]) -> None:
    """Check that the log is the one that was read, up to where a partition is set to: the edit names today's
    leader epoch, by which a start does not see that. Raises NotEditable."""
    for number, text in enumerate(last.sources):
        mine = {place: at for place, at in ends.items() if place[0] == number}
        _check_uncut(cluster, source_position(text), mine, "Set it back to it first (rewind --to)")


def _check_uncut(cluster: Cluster, stood: SourcePosition, ends: Mapping[SourcePlace, int], way: str) -> None:
    """Check that no log of a source is cut below where its partitions are set to. Raises NotEditable."""
    by_partition = {place[1:]: at for place, at in ends.items()}
    for (topic, partition), at in log_cut_at(cluster, stood).items():
        if by_partition.get((topic, partition), 0) > at:
            raise NotEditable(
                f"the log of {topic}-{partition} was cut since the query has read it, and others have "
                f"written there from offset {at} on, which it has not read. {way}, or start the query once "
                "with failOnDataLoss=false"
            )


def _bounds(session: CommandSession, at: Mapping[SourcePlace, int], how: Mapping[str, Any]) -> LogBounds:
    partitions = sorted({place[1:] for place in at})
    if not partitions:
        raise NotEditable("the query reads no topic: there is nothing to move")
    return LogBounds.of(session.cluster, partitions, committed=not how["read_uncommitted"])


def _check_there(ends: Mapping[SourcePlace, int], bounds: LogBounds, way: str = "name a later place") -> None:
    gone = [(place[1:], at) for place, at in ends.items() if at < bounds.first[place[1:]]]
    if gone:
        (topic, partition), at = gone[0]
        raise NotEditable(
            f"offset {at} of {topic}-{partition} is not in the log any more, which begins at "
            f"{bounds.first[topic, partition]}: {way}"
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
    now, then = places(last), named_places(earlier)
    return {
        place: min(at, then.get((source_name(last, place[0]), *place[1:]), at)) for place, at in now.items()
    }


def _rewound_with_state(found: Standing, to_batch: int | None) -> Edit:
    if to_batch is None:
        raise NotEditable(
            f"the query keeps state, which is that at the end of batch {position_of(found).batch_id}: it can "
            "only go back to the end of a batch whose state is kept. Give --to-batch"
        )
    return cut_behind(found, "rewind", to_batch)
