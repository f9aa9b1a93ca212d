"""`eoslog checkpoint fork`: the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from eoslog.checkpoint.editing import doubling, editable, may_go_on, tell
from eoslog.checkpoint.foretell import Fate, Foretold, Stretch, foretell
from eoslog.checkpoint.fork import NewQuery, carry_out_fork, check_free
from eoslog.checkpoint.standing import NextStart, SourcePlace, Standing, places, position_of
from eoslog.checkpoint.targets import LogBounds
from eoslog.commands import progress
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.connector.commit.leave_sink import fence
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.errors import EoslogError


@click.command()
@click.argument("checkpoint")
@click.argument("new")
@click.option("--transactional-id", metavar="ID",
              help="transactional.id of the new query.  [default: its query id]")  # fmt: skip
@click.option("--group", metavar="GROUP", help="kafka.group.id of the new query.")
@doubling
@cluster_command
def fork(
    session: CommandSession,
    checkpoint: str,
    new: str,
    transactional_id: str | None,
    group: str | None,
    **how: Any,
) -> None:
    """Make a copy NEW of a checkpoint, from which another query goes on under names of its own.

    Both then write what comes. The rows that are in the log now have to be accepted with --accept-duplicates.
    """
    found = editable(session, checkpoint, forked=True)
    query = NewQuery.named(found, new, transactional_id, group)
    try:
        check_free(session.cluster, found, query)
        _fork(session, found, query, how)
    except OSError as error:
        raise EoslogError(f"{query.location} cannot be written, or {checkpoint} not read: {error}") from error


def _fork(session: CommandSession, found: Standing, query: NewQuery, how: dict[str, Any]) -> None:
    end = position_of(found)
    with progress.shown() as watch:
        foretold = _both_write(session, found, watch, how)
        document = {
            "edit": "fork",
            "query": query.query_id,
            "stands_after": end.batch_id,
            "options": query.options,
            "foretold": foretold.document(),
        }
        later = "and every later row, if both queries go on"
        if not may_go_on(session, found, foretold, document, how, later):
            return
        _settle(session, found, how)
        carry_out_fork(session.cluster, found, query, watch)
    tell(session, document | {"done": True}, _done(query, end.batch_id))


def _both_write(
    session: CommandSession, found: Standing, watch: progress.ProgressListener, how: dict[str, Any]
) -> Foretold:
    """What both queries write from where they stand: the rows that are in the log, and those of partitions
    that the query has not read yet."""
    stands = _with_new_partitions(session, places(position_of(found)))
    committed = not how["read_uncommitted"]
    there = LogBounds.of_those_there(session.cluster, (place[1:] for place in stands), committed=committed)
    moves = [
        Stretch(place, at, there.end[place[1:]])
        for place, at in sorted(stands.items())
        if there.end.get(place[1:], at) > at
    ]
    counted = foretell(session.cluster, moves, watch, committed=committed).moved
    return Foretold(tuple(replace(one, fate=Fate.TWICE) for one in counted))


def _with_new_partitions(
    session: CommandSession, stands: Mapping[SourcePlace, int]
) -> Mapping[SourcePlace, int]:
    """Where the query stands; in partitions that its topics have got since, at their beginning."""
    reads = sorted({place[:2] for place in stands})
    there = session.cluster.metadata(sorted({topic for _, topic in reads})).topics if reads else {}
    new = [
        (source, topic, partition)
        for source, topic in reads
        if topic in there
        for partition in there[topic].leaders
        if (source, topic, partition) not in stands
    ]
    first = LogBounds.of(session.cluster, sorted({place[1:] for place in new}), committed=False).first
    return {**stands, **{place: first[place[1:]] for place in new}}


def _settle(session: CommandSession, found: Standing, how: dict[str, Any]) -> None:
    """Carry out what is decided: the copy drops the rows of such a batch, so they have to be there even if
    the old query never starts again. With --fence its driver is stopped."""
    if found.sink is None or found.note is None:
        return
    if how["fence"] or found.next_start is NextStart.FINISH:
        Runner(session.cluster, OWN_TIMEOUT_MS, decisions=found.note.decisions).run(fence(found.sink))


def _done(query: NewQuery, batch: int) -> str:
    options = "\n".join(f"  {name}={value}" for name, value in query.options.items())
    return (
        f"done; query {query.query_id} goes on after batch {batch}. Its writeStream has to have\n{options}\n"
        f"To undo it before its first start: remove {query.location}"
    )
