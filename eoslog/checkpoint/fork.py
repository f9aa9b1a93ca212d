"""Forks a query: a copy of its checkpoint, which goes on as another query under names of its own.

Nobody may start a copy that is not complete. So its newest batch is a mark first, which neither Spark nor
eoslog can read, and becomes the batch at the very end: after all other files, and after the decision and the
group's offsets of the new names, which are set in one transaction.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from eoslog.checkpoint import carry_out
from eoslog.checkpoint.compare import Effect, Fate, Stretch, effect_of
from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.editing import doubling, editable, may_go_on, tell
from eoslog.checkpoint.standing import NextStart, Standing, places, position_of, standing
from eoslog.checkpoint.targets import LogBounds, with_new_partitions
from eoslog.client.admin.groups import fetch_committed
from eoslog.client.wire.cluster import Cluster
from eoslog.commands import output
from eoslog.commands.output import ProgressListener
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.files import Files, files_at, place_of, without_options
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.leave_sink import fence
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.spark.driver_folder import as_spark_takes
from eoslog.errors import EoslogError

_MARK = b"eoslog checkpoint fork has not finished this copy: remove it"
_OWN = re.compile(r"metadata|eoslog/(sink|starts|take-over|stands)|eoslog/(edit|claim)-.*|(.*/)?\..*")
"""Files that a copy does not take over: those of the query's names, and hidden ones: temporary files, and
checksums that Hadoop does without."""


@dataclass(frozen=True)
class NewQuery:
    """The query that goes on from the copy. `sink`, `group`: its names; None: it has none."""

    location: str
    query_id: str
    sink: str | None
    group: str | None

    @classmethod
    def named(cls, found: Standing, location: str, sink: str | None, group: str | None) -> NewQuery:
        """Its names, as far as they were given. Raises NotEditable if they do not fit the old ones."""
        note, query_id = found.note, str(uuid.uuid4())
        empty = [option for option, name in (("--transactional-id", sink), ("--group", group)) if name == ""]
        if empty:
            raise NotEditable(f"{empty[0]}: the name is empty")
        if found.sink is None and sink is not None:
            raise NotEditable(
                "the checkpoint names no sink that keeps decisions, so there is none to make for a new "
                "transactional.id: leave --transactional-id out"
            )
        given = sink or (query_id if found.sink else None)
        if note is not None and note.sink is not None and note.group == Sink(note.sink).offsets_group:
            group = group or (None if given is None else Sink(given).offsets_group)
        if note is not None and note.group is not None and group is None:
            raise NotEditable(
                f"the query commits its offsets to the group {note.group}: give the new one a group of its "
                "own (--group)"
            )
        return cls(as_spark_takes(location), query_id, given, group)

    @property
    def options(self) -> dict[str, str]:
        """The options of writeStream that it must have."""
        by_default = self.sink is not None and self.group == Sink(self.sink).offsets_group
        given = {"transactional.id": self.sink, "kafka.group.id": None if by_default else self.group}
        own = {name: value for name, value in given.items() if value is not None}
        return {"checkpointLocation": without_options(self.location), **own}


def check_free(cluster: Cluster, found: Standing, new: NewQuery) -> None:
    """Raise NotEditable unless the place and the names of a new query are unused. Raises OSError."""
    here, there = place_of(found.checkpoint.location), place_of(new.location)
    if here.startswith(there) or there.startswith(here):
        raise NotEditable(
            f"{new.location} and {found.checkpoint.location} lie in one another: name a new place"
        )
    if files_at(new.location).walk():
        raise NotEditable(f"{new.location} has files already: name a new place, nothing is overwritten")
    if new.group is not None and new.sink is not None and new.group == Sink(new.sink).group:
        raise NotEditable(
            "--group and --transactional-id have to differ: decisions are in a group of that name"
        )
    groups = {"--transactional-id": new.sink and Sink(new.sink).group, "--group": new.group}
    for option, group in groups.items():
        if group is not None and fetch_committed(cluster, group, None, require_stable=False):
            raise NotEditable(f"{option}: the group {group} has offsets already: give a name that is unused")


def carry_out_fork(cluster: Cluster, found: Standing, new: NewQuery, watch: ProgressListener) -> None:
    """Make the copy. Raises CommitFault, CheckpointUnreadable, NotEditable, KafkaError, EoslogError,
    OSError."""
    end, newest = position_of(found), found.planned[-1]
    old, copy = files_at(found.checkpoint.location), files_at(new.location)
    last = f"offsets/{newest}"
    copy.put("offsets", str(newest), _MARK)
    names = [name for name in old.walk() if not _OWN.fullmatch(name) and name != last]
    texts = {"metadata": json.dumps({"id": new.query_id}).encode(), **_note(found, new, end.batch_id)}
    watch.begin("copying", len(names))
    for name in names:
        _put(copy, name, old.read(name))
        watch.advance(1)
    for name, text in texts.items():
        _put(copy, name, text)
    newest_text = old.read(last)
    _check_rested(cluster, found)
    to = Batch(new.query_id, end.batch_id, end.digest)
    decided = new.sink is not None
    source = carry_out.source_offsets(
        new.group, new.sink or new.query_id, to, end, decided=decided, cluster=found.cluster_id
    )
    sink = None if new.sink is None else Sink(new.sink)
    whole = Checkpoint(copy, new.location).changed({last: newest_text.decode()})
    carry_out.move(
        cluster,
        sink,
        None,
        to,
        source,
        found.completed,
        ANCHOR if found.note is None else found.note.decisions,
        end.ends,
        carry_out.state_saving(cluster, whole, sink, to, carry_out.state_topic_of(found.decision)),
    )
    copy.put("offsets", str(newest), newest_text)


def _note(found: Standing, new: NewQuery, batch: int) -> Mapping[str, bytes]:
    """The note of the copy's sink: it counts as having got the last batch, which it has decided."""
    if found.note is None:
        return {}
    note = NotedSink(new.sink, found.cluster_id, batch, new.group, found.note.decisions)
    return {"eoslog/sink": note.text().encode()}


def _put(files: Files, name: str, data: bytes) -> None:
    folder, _, last = name.rpartition("/")
    files.put(folder, last, data)


def _check_rested(cluster: Cluster, found: Standing) -> None:
    """Raise NotEditable if the query has gone on since it was looked at: files of two moments are no copy."""
    now = standing(cluster, found.checkpoint)
    if (now.planned, now.completed, now.decision) != (found.planned, found.completed, found.decision):
        raise NotEditable(
            "the query has gone on while its checkpoint was copied, so it runs. Stop it, and remove the copy"
        )


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
    with output.shown() as watch:
        effect = _both_write(session, found, watch, how)
        document = {
            "edit": "fork",
            "query": query.query_id,
            "stands_after": end.batch_id,
            "options": query.options,
            "rows": effect.document(),
        }
        later = "and every later row, if both queries go on"
        if not may_go_on(session, found, effect, document, how, later):
            return
        _settle(session, found, how)
        carry_out_fork(session.cluster, found, query, watch)
    tell(session, document | {"done": True}, _done(query, end.batch_id))


def _both_write(
    session: CommandSession, found: Standing, watch: output.ProgressListener, how: dict[str, Any]
) -> Effect:
    """What both queries write from where they stand: the rows that are in the log, and those of partitions
    that the query has not read yet."""
    stands = with_new_partitions(session.cluster, places(position_of(found)))
    committed = not how["read_uncommitted"]
    there = LogBounds.of_those_there(session.cluster, (place[1:] for place in stands), committed=committed)
    moves = [
        Stretch(place, at, there.end[place[1:]])
        for place, at in sorted(stands.items())
        if there.end.get(place[1:], at) > at
    ]
    counted = effect_of(session.cluster, moves, watch, committed=committed).moved
    return Effect(tuple(replace(one, fate=Fate.TWICE) for one in counted))


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
