"""`eoslog checkpoint move-cluster`: the query goes on on another cluster, which has copies of its topics.

An offset is found again in a copy of its log, where offsets may differ, and proved by the records around it:
those below are the ones that were read, those from it on are the ones to come. Where that cannot be, as in a
log that retention or compaction has emptied, the user says it, and accepts all that the logs do not show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, Self

import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.checkpoint.backups import Backup, all_backups, batch_of
from eoslog.checkpoint.carry_out import Moving, carry_out, state_topic_of
from eoslog.checkpoint.checks import check_log, log_cut_at
from eoslog.checkpoint.compare import Effect, Fate, Moved
from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.editing import editable, editing, may_go_on, tell
from eoslog.checkpoint.edits import set_ends
from eoslog.checkpoint.standing import (
    SourcePlace,
    Standing,
    committed_by,
    leader_epochs,
    left_places,
    places,
    position_of,
)
from eoslog.checkpoint.targets import LogBounds, with_new_partitions
from eoslog.client.admin.topics import list_offsets
from eoslog.client.records.fetch import fetch
from eoslog.client.wire.cluster import Cluster
from eoslog.commands import output
from eoslog.commands.session import CommandSession, client_config, cluster_command
from eoslog.connector.checkpoint.checkpoint_view import CheckpointView
from eoslog.connector.checkpoint.noted_places import NOTED_PLACES, NotedPlaces
from eoslog.connector.checkpoint.noted_sink import NotedSink, NotedStarts
from eoslog.connector.checkpoint.spark_logs import source_position
from eoslog.connector.commit.begin import check_left, has_forgotten
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import TakenOver
from eoslog.connector.commit.leave_sink import fence, has_moved_away
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.token_write import note_moved_away
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import SourcePosition, parse_bound
from eoslog.connector.offsets.plan import recreated
from eoslog.connector.run.places_in_log import followed
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner, last_decision
from eoslog.connector.sink.noted_rows import undecided_behind, visible_since
from eoslog.connector.sink.start_of_run import cluster_id, decided_since, ended_in, noted_left
from eoslog.protocol.topic_partitions import TopicPartition

WINDOW = 100
"""How many records on each side are compared, if there are so many."""
SCANNED = 100_000
"""How many offsets behind the first with the right timestamp are searched."""
_SAME = ["timestamp", "key", "value", "headers"]
_NOTHING = pa.table({
    name: pa.array([], pa.int64() if name in ("timestamp", "count") else pa.binary())
    for name in (*_SAME, "count")
})  # fmt: skip


@dataclass(frozen=True)
class Log:
    """A partition on one of the clusters: where it begins, and where a reader of it ends."""

    cluster: Cluster
    topic: str
    partition: int
    first: int
    end: int
    committed: bool
    oldest: int = -1
    """Records of earlier times (ms since 1970) are not read."""

    def below(self, at: int) -> pa.Table:
        """The last records in front of an offset. Raises what fetch() raises, as all of these."""
        width = WINDOW
        while True:
            start = max(self.first, at - width)
            found = self._table(list(self._read(start, at)))
            if len(found) >= WINDOW or start == self.first:
                return found.slice(max(len(found) - WINDOW, 0))
            width *= 8

    def above(self, at: int) -> pa.Table:
        """The first records from an offset on."""
        found, count = [], 0
        for rows in self._read(at, self.end):
            found.append(rows)
            count += len(rows)
            if count >= WINDOW:
                break
        return self._table(found).slice(0, WINDOW)

    def like(self, record: pa.Table) -> list[int]:
        """The offsets of records with this one's timestamp, key and value."""
        start, found = self.from_time(record["timestamp"][0].as_py()), list[int]()
        for rows in self._read(start, min(start + SCANNED, self.end)):
            same = [_equal(rows[name], record[name][0]) for name in ("timestamp", "key", "value")]
            found += rows["offset"].filter(pc.and_(pc.and_(*same[:2]), same[2])).to_pylist()
        return found

    def from_time(self, time_ms: int) -> int:
        """The first offset of this time or a later one; where there is none, the end."""
        where = (self.topic, self.partition)
        found = list_offsets(self.cluster, {where: time_ms}, committed=False)[where]
        return min(found, self.end) if found >= 0 else self.end

    def where(self, record: pa.Table) -> int:
        """The first offset of a record like this one; where there is none, of its time."""
        return min(self.like(record), default=self.from_time(record["timestamp"][0].as_py()))

    @classmethod
    def of(cls, cluster: Cluster, where: TopicPartition, bounds: LogBounds, committed: bool) -> Log:
        """A partition's log between these bounds; without them it is empty."""
        return cls(cluster, *where, bounds.first.get(where, 0), bounds.end.get(where, 0), committed)

    def parts(self, at: int) -> Iterator[pa.Table]:
        """All records from an offset on."""
        return self._read(at, self.end)

    def _read(self, start: int, end: int) -> Iterator[pa.Table]:
        if end <= start:
            return
        answers = fetch(
            self.cluster, self.topic, self.partition, start, end, committed=self.committed, headers=True
        )
        for rows in answers:
            found = pa.table({name: getattr(rows, name) for name in ("offset", *_SAME)})
            found = (
                found if self.oldest < 0 else found.filter(pc.greater_equal(found["timestamp"], self.oldest))
            )
            if len(found):
                yield found

    def _table(self, found: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(found) if found else pa.table({"offset": pa.array([], pa.int64())})


def found_again(old: Log, new: Log, at: int) -> int:
    """The offset in `new` that is `at` in `old`: it is `at` itself, or is found by the timestamp of a record
    beside it, and no other place is like it. Raises NotEditable if that cannot be proven."""
    below, above = old.below(at), old.above(at)
    candidates = [
        one for one in sorted({at, *_candidates(below, above, new)}) if _fits(below, above, new, one)
    ]
    if len(candidates) == 1:
        return candidates[0]
    why = (
        f"the records at {', '.join(map(str, candidates))} are all like those at {at} of the old cluster"
        if candidates
        else f"there are no records like those at {at} of the old cluster: the copy has not got so far, or "
        "has other timestamps, or one of the logs has lost some to retention or compaction"
    )
    raise NotEditable(
        f"{_name(new)}: {why}. Give the offset with --offsets: the rows are counted that may be there twice "
        "or never then"
    )


def _candidates(below: pa.Table, above: pa.Table, new: Log) -> list[int]:
    if len(below):
        return [at + 1 for at in new.like(below.slice(len(below) - 1))]
    return new.like(above.slice(0, 1)) if len(above) else [new.end]


def _fits(below: pa.Table, above: pa.Table, new: Log, at: int) -> bool:
    """Whether the records around an offset of the new log are these, as far as both logs have them."""
    if not new.first <= at <= new.end:
        return False
    there_below, there_above = new.below(at), new.above(at)
    before, behind = min(len(below), len(there_below)), min(len(above), len(there_above))
    if not before and not behind:
        return not any(map(len, (below, above, there_below, there_above)))
    return _same(below.slice(len(below) - before), there_below.slice(len(there_below) - before)) and _same(
        above.slice(0, behind), there_above.slice(0, behind)
    )


def _same(one: pa.Table, other: pa.Table) -> bool:
    return not len(one) or bool(one.select(_SAME).equals(other.select(_SAME)))


def _equal(column: pa.ChunkedArray, value: pa.Scalar) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(column, value), False) if value.is_valid else pc.is_null(column)


def _name(log: Log) -> str:
    return f"{log.topic}-{log.partition}"


@click.command("move-cluster")
@click.argument("checkpoint")
@click.option("--to-bootstrap-server", metavar="HOST:PORT,...", required=True, help="The new cluster.")
@click.option("--to-command-config", metavar="FILE", help="Properties of Kafka's clients, for it.")
@click.option("--offsets", metavar="JSON",
              help='Where it goes on there, as {"orders":{"0":1200}}; by default it is found.  '
                   "What the logs do not prove has to be accepted.")  # fmt: skip
@click.option("--since", metavar="TIME",
              help="From where on what is read already is compared, as 2026-11-21T10:00:00+01:00.  "
              "[default: all]")  # fmt: skip
@editing
@cluster_command
def move_cluster(
    session: CommandSession,
    checkpoint: str,
    to_bootstrap_server: str,
    to_command_config: str | None,
    offsets: str | None,
    since: str | None,
    **how: Any,
) -> None:
    """Have the query go on on another cluster, which has copies of its topics, perhaps with other offsets.

    The place is the same offset, or is found by timestamps; the records around it have to be the same, or you
    give it, and accept what the logs do not prove. What others have written to the copies below it is lost.
    """
    how["since"] = _time_ms(since)
    found, given = editable(session, checkpoint), _given(offsets)
    check_log(session.cluster, found)
    timeout = session.cluster.config.api_timeout_ms / 1000
    with Cluster(client_config(to_bootstrap_server, to_command_config, timeout, {})) as there:
        new_id = cluster_id(there)
        if new_id is None or new_id == found.cluster_id:
            raise NotEditable(
                f"--to-bootstrap-server leads to the cluster {new_id}, where the query is: no move"
            )
        with output.shown() as watch:
            ends, moved, beside = _mapped(session.cluster, there, found, given, watch, how)
            unread = _unread(session.cluster, there, found, watch, how)
            left, lacking, said, others = _left_out(session.cluster, there, found, given, watch, how)
        effect, at = Effect((*moved, *unread, *lacking)), {**left, **ends}
        ids = {topic: there.describe(topic).topic_id for topic in sorted({place[1] for place in at})}
        known = {topic: number for topic, number in ids.items() if number is not None}
        epochs = leader_epochs(there, at)
        edit = set_ends(found, "move-cluster", ends, known, epochs, cluster=new_id, left=left)
        edit = replace(edit, was=batch_of(found, position_of(found)))  # as the old cluster has decided
        decided = _decided_there(there, found, batch_of(found, edit.end), new_id)
        document = {"edit": edit.kind, "cluster": new_id, "rows": effect.document(), "not_found": said}
        if not may_go_on(session, found, effect, document, how, *beside, *others, *said):
            return
        if decided is not None and decided.left is not None:
            NotedStarts.read(found.checkpoint).learn(found.checkpoint, decided.left.word, edit.end.batch_id)
        _stop(session.cluster, found)
        leave = partial(_leave, session.cluster, there, found, batch_of(found, edit.end))
        moving = Moving(new_id, state_topic_of(found.decision), leave)
        group = None if found.note is None else found.note.group
        stands = replace(found, cluster_id=new_id, decision=decided, committed=committed_by(there, group))
        backup = carry_out(there, stands, edit, moving)
    tell(
        session,
        document | {"done": True, "backup": backup.name},
        f"done; the backup is {backup.name}. Now start the query with the new kafka.bootstrap.servers. What "
        "it has written is not moved by this. To take it back before that: eoslog checkpoint undo, with the "
        "new --bootstrap-server",
    )


def _time_ms(since: str | None) -> int | None:
    try:
        return None if since is None else int(datetime.fromisoformat(since).timestamp() * 1000)
    except ValueError as error:
        raise click.UsageError(f"--since {since}: give a time as 2026-11-21T10:00:00+01:00") from error


def _given(offsets: str | None) -> Mapping[TopicPartition, int]:
    given = {} if offsets is None else parse_bound("--offsets", offsets)
    if not isinstance(given, Mapping) or min(given.values(), default=0) < 0:
        raise click.UsageError('--offsets: give numbers, as {"orders":{"0":1200}}')
    return given


def _mapped(
    old: Cluster,
    new: Cluster,
    found: Standing,
    given: Mapping[TopicPartition, int],
    watch: output.ProgressListener,
    how: Mapping[str, Any],
) -> tuple[dict[SourcePlace, int], list[Moved], list[str]]:
    """Where each place is on the new cluster, the rows that nobody reads then, and lines on them."""
    stands, committed = places(position_of(found)), not how["read_uncommitted"]
    partitions = sorted({place[1:] for place in stands})
    if not partitions:
        raise NotEditable("the query reads no topic: there is nothing to move")
    if unknown := sorted({*given} - {*partitions, *(place[1:] for place in left_places(position_of(found)))}):
        raise NotEditable(f"--offsets: the query does not read {unknown[0][0]}-{unknown[0][1]}")
    bounds = [(one, LogBounds.of(one, partitions, committed=committed)) for one in (old, new)]
    ends, moved, said = dict[SourcePlace, int](), list[Moved](), list[str]()
    for place, at in sorted(stands.items()):
        here, there = (Log.of(one, place[1:], bound, committed) for one, bound in bounds)
        watch.begin(f"comparing {place[1]}-{place[2]}", max(here.end - at, 0))
        ends[place], lost, line = _placed(place, (here, there), at, given.get(place[1:]), watch, how["since"])
        moved += lost
        said += line
    return ends, moved, said


def _unread(
    old: Cluster, new: Cluster, found: Standing, watch: output.ProgressListener, how: Mapping[str, Any]
) -> list[Moved]:
    """What the new cluster lacks of partitions that the query has not read yet: it will begin there at the
    beginning."""
    stands, committed = places(position_of(found)), not how["read_uncommitted"]
    added = {place: at for place, at in with_new_partitions(old, stands).items() if place not in stands}
    partitions, moved = sorted({place[1:] for place in added}), list[Moved]()
    bounds = [(one, LogBounds.of_those_there(one, partitions, committed=committed)) for one in (old, new)]
    for place, at in sorted(added.items()):
        here, there = (Log.of(one, place[1:], bound, committed) for one, bound in bounds)
        watch.begin(f"comparing {_name(here)}", max(here.end - at, 0))
        lost = _missing(here, there, at, there.first, watch)
        moved.append(Moved(*place, at, there.first, lost, Fate.NEVER))
    return moved


def _left_out(
    old: Cluster,
    new: Cluster,
    found: Standing,
    given: Mapping[TopicPartition, int],
    watch: output.ProgressListener,
    how: Mapping[str, Any],
) -> tuple[dict[SourcePlace, int], list[Moved], list[str], list[str]]:
    """The same of places that the query reads no more, and what is said of those that are not found: a start
    that reads them again stops then; and the lines. Raises NotEditable only where `given` is wrong."""
    left, committed = left_places(position_of(found)), not how["read_uncommitted"]
    partitions = sorted({place[1:] for place in left})
    bounds = [(one, LogBounds.of_those_there(one, partitions, committed=committed)) for one in (old, new)]
    other, ends, moved = _others(old, found), dict[SourcePlace, int](), list[Moved]()
    said, beside = list[str](), list[str]()
    for place, at in sorted(left.items()):
        where = place[1:]
        try:
            if any(where not in bound.first for _, bound in bounds):
                raise NotEditable(f"{where[0]}-{where[1]} is not on both clusters")
            here, there = (Log.of(one, where, bound, committed) for one, bound in bounds)
            if place in other or not here.first <= at <= here.end:
                raise NotEditable(
                    f"{_name(here)}: the log on the old cluster is not the one that it has read"
                )
            watch.begin(f"comparing {_name(here)}", max(here.end - at, 0))
            ends[place], lost, line = _placed(place, (here, there), at, given.get(where), watch, how["since"])
        except NotEditable as error:
            if where in given:
                raise
            said.append(f"{where[0]}-{where[1]}, which the query reads no more: {error}")
            continue
        moved += lost
        beside += line
    said += [_NAMED_AGAIN] if said else []
    return ends, moved, said, beside


_NAMED_AGAIN = (
    "if it is to read them again there, its start stops (DataLoss): of a copy give the place then, with "
    "eoslog checkpoint add-topic --start"
)


def _others(old: Cluster, found: Standing) -> set[SourcePlace]:
    """Places that the query reads no more and whose log is not the one that it has read."""
    others = set[SourcePlace]()
    for number, text in enumerate(position_of(found).sources):
        position = source_position(text)
        left = position.left
        there = old.metadata(sorted({topic for topic, _ in left.offsets})).topics if left.offsets else {}
        ids = {topic: info.topic_id for topic, info in there.items() if info.topic_id is not None}
        stood = SourcePosition(dict(left.offsets), dict(left.ids), position.cluster, dict(left.epochs))
        cut = log_cut_at(old, stood)
        others |= {(number, *tp) for tp in left.offsets if tp in cut or tp[0] in recreated(left.ids, ids)}
    return others


def _placed(
    place: SourcePlace,
    logs: tuple[Log, Log],
    at: int,
    given: int | None,
    watch: output.ProgressListener,
    since: int | None,
) -> tuple[int, list[Moved], list[str]]:
    """Where a place is in the copy, the rows that are there twice or never then, and lines on them. `given`:
    what the user says it is; None: it is found. Raises NotEditable."""
    old, new = logs
    if given is not None and not new.first <= given <= new.end:
        raise NotEditable(
            f"{_name(new)}: the records at {given} are not those at {at} of the old cluster: the copy has "
            f"those from {new.first} to {new.end}"
        )
    if given is not None and not _is_proven(old, new, at, given, watch):
        return given, *_stated(place, logs, at, given, watch, since)
    there = found_again(old, new, at) if given is None else given
    lost, line = _moved(place, logs, at, there, watch, since)
    return there, [lost], line


def _is_proven(old: Log, new: Log, at: int, given: int, watch: output.ProgressListener) -> bool:
    """Whether the records around a given offset are those, and none stands on its other side."""
    if not _fits(old.below(at), old.above(at), new, given):
        return False
    found = Sides.of(old, new, at, given, watch)
    return not (found.behind or found.before)


class Sides(NamedTuple):
    """What the logs have on each side of a place, by contents: so many records that were read stand `behind`
    it in the copy, and so many that were not `before` it. `unread`, `read`: those that the copy lacks.
    `below`, `above`: those that the copy alone has on each side."""

    behind: int
    before: int
    unread: int
    read: int
    below: int
    above: int

    @classmethod
    def of(
        cls,
        old: Log,
        new: Log,
        at: int,
        there: int,
        watch: output.ProgressListener,
        since: int | None = None,
    ) -> Self:
        """Compare. `since`: as in _others_below."""
        oldest = -1 if since is None else since
        low, high = _by_content(
            _unequal(replace(old, end=at, oldest=oldest), replace(new, end=there, oldest=oldest), watch),
            _unequal(replace(old, first=at), replace(new, first=there), watch),
        )
        behind = int(np.minimum(_more(low), _more(-high)).sum())
        before = int(np.minimum(_more(high), _more(-low)).sum())
        unread, read, below, above = (int(_more(one).sum()) for one in (high, low, -low, -high))
        return cls(behind, before, unread - before, read - behind, below - before, above - behind)


def _by_content(*sides: pa.Table) -> Iterator[npt.NDArray[np.int64]]:
    """The counts of the same contents on each side."""
    marked = [one.append_column("side", pa.array(np.full(len(one), n))) for n, one in enumerate(sides)]
    found = pa.concat_tables(marked)
    for side in range(len(sides)):
        here = pc.if_else(pc.equal(found["side"], side), found["count"], 0)
        grouped = found.append_column("here", here).group_by([*_SAME], use_threads=False)
        yield grouped.aggregate([("here", "sum")])["here_sum"].to_numpy()


def _more(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.maximum(counts, 0)


def _unequal(old: Log, new: Log, watch: output.ProgressListener) -> pa.Table:
    """How much more often the old log has each of the contents that both have not equally often."""
    watch.begin(f"comparing {_name(new)}", max(old.end - old.first, 0))
    found = _NOTHING
    for mine, others in zip_longest(old.parts(old.first), new.parts(new.first)):
        counted = [_counted(rows, n) for rows, n in ((mine, 1), (others, -1)) if rows is not None]
        found = _summed([found, *counted])
        watch.advance(0 if mine is None else len(mine))
    return found


def _stated(
    place: SourcePlace,
    logs: tuple[Log, Log],
    at: int,
    given: int,
    watch: output.ProgressListener,
    since: int | None,
) -> tuple[list[Moved], list[str]]:
    """What may be there twice or never if the user's word alone says that the place is `given`: whatever the
    logs do not show counts."""
    old, new = logs
    found = Sides.of(old, new, at, given, watch, since)
    told = (
        (found.behind, "that the query has read lie behind it: they are read again"),
        (
            found.above,
            "behind it are not on the old cluster: if the query has read them, they are read again",
        ),
        (found.read, "that the query has read are not in the copy: if they come yet, they are read again"),
        (found.before, "that the query has not read lie below it: they are lost"),
        (found.below, "below it are not on the old cluster: if the query has not read them, they are lost"),
        (found.unread, "that the query has not read are not in the copy: they are lost"),
    )
    twice, never = (sum(count for count, _ in one) for one in (told[:3], told[3:]))
    name = f"{_name(new)}: the records around {given} do not prove that it is {at} of the old cluster"
    lines = [name, *(f"{_name(new)}: {count} records {said}" for count, said in told if count)]
    moved = [Moved(*place, at, given, never, Fate.NEVER)]
    return [Moved(*place, at, given, twice, Fate.TWICE), *moved] if twice else moved, lines


def _moved(
    place: SourcePlace,
    logs: tuple[Log, Log],
    at: int,
    there: int,
    watch: output.ProgressListener,
    since: int | None,
) -> tuple[Moved, list[str]]:
    """What nobody reads if the query goes on at `there`, not at `at`, and a line on it: records that the new
    log lacks from there on, and those that it alone has below."""
    old, new = logs
    lost = _missing(old, new, at, there, watch)
    others = _others_below(replace(old, end=at), replace(new, end=there), watch, since)
    said = f"{_name(new)}: {others} records that the old cluster has not lie below {there}, where it goes on"
    return Moved(*place, at, there, lost + others, Fate.NEVER), [said] if others else []


def _others_below(old: Log, new: Log, watch: output.ProgressListener, since: int | None) -> int:
    """How many records of the new log the old one has not. Retention or compaction may have taken what is
    older than the first record of the old one; `since`: what is older is not asked for."""
    begin, start = old.first, new.first
    if since is not None:
        old, new = replace(old, oldest=since), replace(new, oldest=since)
        begin, start = old.from_time(since), new.from_time(since)
    if old.first == begin > 0:  # retention may have taken some
        first = old.above(begin).slice(0, 1)
        start = new.where(first) if len(first) else new.end
    watch.begin(f"comparing {_name(new)} below {new.end}", max(new.end - start, 0))
    return _missing(new, old, start, begin, watch)


def _missing(old: Log, new: Log, at: int, there: int, watch: output.ProgressListener) -> int:
    """How many records of the old log from `at` on the new one has not from `there` on. Their contents are
    compared, not counted: others may write to the new one already."""
    behind, ahead, lacking = new.parts(there), 0, list[pa.Table]()
    for rows in old.parts(at):
        lacking.append(_counted(rows, 1))
        ahead += len(rows)
        while ahead > 0 and (others := next(behind, None)) is not None:
            lacking.append(_counted(others, -1))
            ahead -= len(others)
        lacking = [_summed(lacking)]
        watch.advance((reached := rows["offset"][-1].as_py() + 1) - at)
        at = reached
    lacking = [_oftener(*lacking)] if lacking else []
    while lacking and len(lacking[0]) and (others := next(behind, None)) is not None:
        lacking = [_oftener(_summed([*lacking, _counted(others, -1)]))]
    return sum(pc.sum(table["count"]).as_py() or 0 for table in lacking)


def _oftener(counted: pa.Table) -> pa.Table:
    """The contents that the old log has more often."""
    return counted.filter(pc.greater(counted["count"], 0))


def _counted(rows: pa.Table, count: int) -> pa.Table:
    """The contents of records, each with this count."""
    contents = rows.select(_SAME[:-1]).append_column("headers", _joined(rows["headers"].combine_chunks()))
    return contents.append_column("count", pa.array(np.full(len(rows), count)))


def _joined(headers: pa.Array) -> pa.Array:
    """The headers of each record as one string: in front of each part of it stands its length."""
    items = headers.flatten()
    parts = [
        text
        for field in (items.field("key").cast(pa.binary()), items.field("value"))
        for text in (pc.fill_null(pc.binary_length(field).cast(pa.string()), "null").cast(pa.binary()), field)
    ]
    each = pc.binary_join_element_wise(*parts, b" ", null_handling="replace", null_replacement=b"")
    ends = np.cumsum(pc.list_value_length(headers).to_numpy(zero_copy_only=False))
    return pc.binary_join(pa.ListArray.from_arrays(np.append(0, ends).astype(np.int32), each), b" ")


def _summed(counted: Sequence[pa.Table]) -> pa.Table:
    """Which contents have a count other than 0 in all of them."""
    grouped = pa.concat_tables(counted).group_by([*_SAME], use_threads=False)
    found = grouped.aggregate([("count", "sum")]).rename_columns([*_SAME, "count"])
    return found.filter(pc.not_equal(found["count"], 0))


_OTHER_NAME = (
    "give the query another transactional.id, run one batch of it where it is, and give the command again"
)


def _decided_there(new: Cluster, found: Standing, to: Batch, new_id: str) -> Decision | None:
    """The sink's last decision on the new cluster. `to`: the batch that is to be the last one there. Raises
    NotEditable unless the checkpoint knows all that its query has written there."""
    sink, note = found.sink, found.note
    if sink is None or note is None:
        return None
    _check_former(new, found, note, new_id)
    there = last_decision(new, sink, note.decisions)
    been = [one for one in all_backups(found.checkpoint) if new_id in (one.cluster, one.came_from)]
    last = None if there is None else there.last_of(found.query_id)
    _check_place(found, sink, there)
    moved_away = has_moved_away(there, sink, found.query_id)  # then it has decided nothing there since
    if last is not None and not moved_away and not _is_known(found, last, to, been):
        raise NotEditable(
            f"on the new cluster the sink {sink.id} has decided {last}, which this checkpoint does not know: "
            "it is an older copy, or another copy has gone on there. Nothing was changed. Go on with the "
            "checkpoint of that batch. If it is lost, remove this one, and write that one again: eoslog "
            f"checkpoint rebuild --transactional-id {sink.id}, with the new --bootstrap-server"
        )
    if why := _forgotten_there(new, found, there, been, note.decisions):
        raise NotEditable(
            f"on the new cluster {why}: it has lost decisions, and the query may write these rows again. "
            "Nothing was changed. If this checkpoint is an older copy, bring the newest one back. If rows "
            f"may be there twice, or others have written them, {_OTHER_NAME}"
        )
    return there


def _check_place(found: Standing, sink: Sink, there: Decision | None) -> None:
    """Raise NotEditable if another query uses the sink on the new cluster, or a copy of the checkpoint has
    left it: the query's start would throw the one out, and stop because of the other."""
    other = None if there is None else there.of_query
    if there is None or other is None:
        return
    if other.batch.query_id != found.query_id and not _knows_as_others(found, other.batch):
        way = f"To go on beside it, {_OTHER_NAME}"
        if there.successor_of(found.query_id) is not None:
            way = "It has taken this one's place: go on with its checkpoint. If rows may be there twice, " + (
                _OTHER_NAME
            )
        raise NotEditable(
            f"on the new cluster the sink {sink.id} is another query's, which would stop: it has decided "
            f"{other.batch}. Nothing was changed. {way}"
        )
    if not has_moved_away(there, sink, found.query_id):
        try:
            check_left(sink, there.left, found.starts)
        except TakenOver as error:
            raise NotEditable(f"the query's start on the new cluster would stop: {error}") from error


def _check_former(new: Cluster, found: Standing, note: NotedSink, new_id: str) -> None:
    """Raise NotEditable if a sink that the query had on the new cluster under another name has decided since
    it was left."""
    for cluster, name, since in note.former:
        is_asked = cluster == new_id and name != note.sink
        last = last_decision(new, Sink(name), note.decisions) if is_asked else None
        if unknown := decided_since(found.checkpoint, last, found.query_id, since):
            raise NotEditable(
                f"the query has had the sink {name} on the new cluster, until batch {since}, and {unknown} "
                "was decided there since by a copy of the checkpoint. Nothing was changed. Go on with that "
                "copy: this one would write its rows again"
            )


def _is_known(found: Standing, last: Batch, to: Batch, been: Sequence[Backup]) -> bool:
    """Whether the checkpoint knows the query's last batch on a cluster: moves have left it there, or this one
    will, or its plan is that. A plan behind `to` was never carried out."""
    kept = found.checkpoint.planned_if_kept(last.batch_id) if last.batch_id <= to.batch_id else None
    known = [to, *([] if kept is None else [batch_of(found, kept)])]
    known += [one for backup in been for one in (backup.was, backup.becomes)]
    return any(last.repeats(one) for one in known)


def _knows_as_others(found: Standing, batch: Batch) -> bool:
    """Whether the old cluster knows a batch of another query, or a later one: this query came after it."""
    known = None if found.decision is None else found.decision.last_of(batch.query_id)
    return known is not None and known.batch_id >= batch.batch_id


def _forgotten_there(
    new: Cluster, found: Standing, there: Decision | None, been: Sequence[Backup], decisions: str
) -> str:
    """What shows that the new cluster has lost decisions of the sink; "": nothing does. `been`: the moves by
    which the query was there."""
    sink = found.sink
    if sink is None:
        return ""
    if behind := undecided_behind(new, sink.id, there):
        return f"rows of the sink {sink.id} are visible behind its last decision there{_some(behind)}"
    if there is not None:
        return ""
    left = [one.places for one in been if one.came_from not in (None, found.cluster_id) and one.places]
    if left:
        then = NotedPlaces.read(found.checkpoint.changed({f"eoslog/{NOTED_PLACES}": left[-1]}))
        rows = tuple(followed(new, then.everywhere, sink.id))
    else:
        topic = None if found.decision is None or found.decision.start is None else found.decision.start.topic
        rows = visible_since(new, found.checkpoint, sink.id, [topic] if topic else [])
    if rows:
        return f"the sink {sink.id} has rows that the checkpoint does not know{_some(rows)}"
    runner = Runner(new, OWN_TIMEOUT_MS, decisions=decisions)
    if not left and runner.run(has_forgotten(sink)):
        return f"the decisions of the sink {sink.id} are forgotten"
    return ""


def _some(said: Sequence[str]) -> str:
    return f" ({'; '.join(said[:5])})"


def _stop(old: Cluster, found: Standing) -> None:
    """Stop the query's driver on the old cluster, and carry out what it has decided."""
    if found.sink is not None and found.note is not None:
        Runner(old, OWN_TIMEOUT_MS, decisions=found.note.decisions).run(fence(found.sink))
        _check_rests(old, found)


def _check_rests(old: Cluster, found: Standing) -> None:
    """Raise NotEditable if the query has decided since it was looked at."""
    if found.sink is None or found.note is None:
        return
    if last_decision(old, found.sink, found.note.decisions) != found.decision:
        raise NotEditable("the query has written a batch just now. Stop it, and give the command again")


def _leave(old: Cluster, new: Cluster, found: Standing, to: Batch) -> None:
    """Note with the last decision on the old cluster, and with what foreachBatch has written there, that the
    query has gone: who does not know it, as a copy of the checkpoint, stops there."""
    view = CheckpointView.of(found.checkpoint)._replace(batch=to._replace(batch_id=to.batch_id + 1))
    if found.may_be_foreach:
        Runner(old, OWN_TIMEOUT_MS).run(note_moved_away(found.query_id, noted_left(view, found.query_id)))
        Runner(new, OWN_TIMEOUT_MS).run(note_moved_away(found.query_id, None))
    if found.sink is None or found.note is None:
        return
    _check_rests(old, found)
    runner, known = Runner(old, OWN_TIMEOUT_MS, decisions=found.note.decisions), found.decision
    made = None if known is None else known.of_query
    if made is None or made.batch.query_id == found.query_id:
        runner.run(fence(found.sink, noted_left(view, found.sink.id), ended_in(found.note, view)))
