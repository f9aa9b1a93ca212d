"""A shadow takes the place of the query that it shadows, with its own checkpoint and its state.

It has to have read what the running query has decided, no more and no less. Then all rows that the running
query has written are the shadow's too. The shadow may have written more: an aggregation's windows that the
running query would have closed in its next batch. These rows are written to the running query's topic, in the
transaction of a decision that makes the shadow's last batch the last one of the running query's sink. From
then on the old version's checkpoint is refused, and the shadow's is that of the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eoslog.audit.bounds import AuditedRange
from eoslog.audit.read import records_of
from eoslog.audit.spill import Rows
from eoslog.checkpoint import carry_out
from eoslog.checkpoint.standing import NextStart, Standing
from eoslog.client.admin.groups import fetch_committed
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.noted_sink import NOTED_SINK, NotedSink
from eoslog.connector.checkpoint.shadow_check import ANEW, ends_at, forgotten, is_later, of_before
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.move_decision import move_decision
from eoslog.connector.commit.places import placed_by, told_by
from eoslog.connector.commit.saved_state import Saved, TaskContents, Written
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.offsets.offsets import ShadowCut
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner, last_decision
from eoslog.connector.saved.save import CheckpointSaving
from eoslog.connector.sink.shadow_sink import note_taken
from eoslog.errors import EoslogError
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.shadow.compare import Counts, ShadowComparison, Step, cut_of, elsewhere, planned_without_cut

LEAST_STEPS = 10
"""A row may come in another step than the running query's, so at least so many are compared."""
MOST_LEFT = 1_000_000
"""Rows that the shadow alone has written: they are written in one short transaction."""
_MAX_BATCH_BYTES = 900_000
"""Topics take a little more than a megabyte by default (max.message.bytes)."""


class NoTakeOver(EoslogError):
    """The shadow cannot take over now; nothing was changed. The message says why, and what to do."""


class TakeOverPoint(NamedTuple):
    """Where both versions stand: the shadow's last batch and its plan, the decision at which it ends, the
    running query's last one, and the topic of those."""

    batch: Batch
    planned: Planned
    cut: ShadowCut
    seen: Decision | None
    decisions: str

    @property
    def is_taken(self) -> bool:
        """Whether the shadow has taken over in this batch already."""
        made = None if self.seen is None else self.seen.of_query
        return made is not None and self.batch.repeats(made.batch)

    def becomes(self, cluster: str | None) -> NotedSink:
        """What the checkpoint notes of its sink when the shadow has taken over. `cluster`: its id."""
        return NotedSink(self.cut.sink, cluster, self.batch.batch_id, self.cut.group, self.decisions)


def take_over_point(cluster: Cluster, shadow: Standing, decisions: str) -> TakeOverPoint:
    """Compare where both stand. `decisions`: the topic of the running query's decisions. Raises NoTakeOver,
    NoShadow."""
    if (taken := taken_place(cluster, shadow, decisions)) is not None:
        return taken
    newest, is_done = shadow.newest, shadow.next_start is NextStart.GO_ON
    if _unwritten(shadow) is not None:
        newest, is_done = shadow.last_written, True
    if newest is None or not is_done:
        raise NoTakeOver(
            f"the shadow has {'no batch' if newest is None else f'not done batch {newest.batch_id}'} yet. "
            "Nothing was changed. Start it once more, and stop it between two batches"
        )
    cut = cut_of(newest)
    seen = last_decision(cluster, Sink(cut.sink), decisions)
    batch = Batch(shadow.query_id, newest.batch_id, newest.digest)
    place = TakeOverPoint(batch, newest, cut, seen, decisions)
    if seen is None:
        raise NoTakeOver(no_decision(cut.sink, decisions))
    if not stands_at(cluster, place, seen):
        raise NoTakeOver(
            f"the running query has decided {seen.batch}, {seen.sequence - cut.sequence} batches after the "
            f"one at which the shadow's batch {newest.batch_id} ends. Nothing was changed. Stop the running "
            "query, let the shadow run until eoslog shadow report says that it is not behind, and stop it"
        )
    return place


def stands_at(cluster: Cluster, place: TakeOverPoint, seen: Decision) -> bool:
    """Whether the shadow's batch ends at the running query's last decision; else it is behind. Raises
    NoTakeOver if neither is so: the cluster has forgotten where the shadow stands, or the query was set
    back; and if that query has gone on elsewhere, where it would write the shadow's next rows, too."""
    _check_stayed(place.cut.sink, seen)
    cut, committed = place.cut, dict[TopicPartition, int]()
    if cut.decided is None:
        found = fetch_committed(cluster, cut.group, sorted(place.planned.topic_offsets()))
        committed = {tp: at for tp, (at, _) in found.items() if at >= 0}
    if ends_at(cut, place.planned.topic_offsets(), seen, committed):
        return True
    if not is_later(cut, seen):
        raise NoTakeOver(f"{forgotten(cut.sink, seen)}. Begin its shadow anew, {ANEW}")
    return False


def _check_stayed(sink: str, seen: Decision) -> None:
    """Raise NoTakeOver if the running query has left its sink."""
    left = seen.left
    if left is None:
        return
    to, anew = (
        "with processing.guarantee=at_least_once, where it decides nothing",
        "start it with exactly_once",
    )
    if left.sink == sink:
        to, anew = "on another cluster", "begin its shadow anew there, with a new checkpoint"
    elif left.sink:
        to = f"with transactional.id={left.sink}"
        anew = f"start the shadow with shadow.of={left.sink}"
    raise NoTakeOver(
        f"the query with transactional.id={sink} has gone on {to} since batch {left.batch_id}, and would "
        f"write the shadow's next rows, too. Nothing was changed. To shadow it, {anew}; if it is to go on "
        "here, start it once: its start says how"
    )


def no_decision(sink: str, decisions: str) -> str:
    """What to say if the running query's sink has none."""
    return (
        f"sink {sink} has no decision on {decisions}. Nothing was changed. If the running query has the "
        "option decision.topic, give that with --decision-topic. Else the cluster has forgotten its "
        "decisions, as after a week without use: start the running query once, and begin the shadow anew, "
        f"{ANEW}"
    )


def taken_place(cluster: Cluster, shadow: Standing, decisions: str) -> TakeOverPoint | None:
    """Where the shadow has taken over with the last decision of the other query's sink, which its checkpoint
    may not have noted: who carried it out has died, or it is a copy of before. None: that is the other
    query's. Raises NoTakeOver if the shadow has gone on since, or if there is no decision."""
    cut, newest = _newest_cut(shadow), shadow.newest
    if cut is None or newest is None:
        return None
    seen = last_decision(cluster, Sink(cut.sink), decisions)
    made = seen and seen.of_query
    planned = None if made is None else shadow.checkpoint.planned_if_kept(made.batch.batch_id)
    own = None if planned is None else Batch(shadow.query_id, planned.batch_id, planned.digest)
    is_here = made is not None and own is not None and own.repeats(made.batch)
    is_noted = shadow.sink == Sink(cut.sink)
    as_shadow = planned is not None and any(not one.over for one in planned.shadows())
    goes_on = as_shadow and (newest == planned or not newest.shadows())
    if planned and own and is_here and (goes_on or not is_noted):
        return TakeOverPoint(own, planned, cut, seen, decisions)
    if is_noted:
        raise NoTakeOver(
            "the shadow has taken over, and its checkpoint is noted to be that of "
            f"transactional.id={cut.sink}. Nothing was changed. Start it as the new version: without "
            f"shadow.of, and with transactional.id={cut.sink}"
        )
    if seen is None:
        raise NoTakeOver(no_decision(cut.sink, decisions))
    if made is not None and made.batch.query_id == shadow.query_id:
        topics = ", ".join(sorted({topic for topic, _ in cut.written}))
        raise NoTakeOver(
            f"bring the query's newest checkpoint back: {of_before(cut.sink, topics, made.batch)}"
        )
    return None


def _newest_cut(shadow: Standing) -> ShadowCut | None:
    """Of the newest batch that was planned with shadow.of: the last one, or the one before."""
    newest = shadow.newest
    before = None if newest is None else shadow.checkpoint.planned_if_kept(newest.batch_id - 1)
    for planned in (newest, before):
        if planned is not None and len(planned.shadows()) == 1:
            return planned.shadows()[0]
    return None


def check_topic(place: TakeOverPoint, steps: Sequence[Step]) -> None:
    """Raise NoTakeOver if the running query has written to another topic than the one that is compared."""
    others = elsewhere(() if place.seen is None else place.seen.topics, steps)
    if others:
        said = ", ".join(f"{topic} (last in decision {decision})" for topic, decision in others)
        own = ", ".join(sorted({topic for topic, _ in place.cut.written}))
        raise NoTakeOver(
            f"the running query has written to {said}, and {own} alone is compared: rows would be missing, "
            "or there twice. Nothing was changed. Compare later steps alone, once there are "
            f"{LEAST_STEPS} of them (--from-batch); or begin the shadow anew, {ANEW}, and "
            "with the topic that the running query writes now as shadow.topic"
        )


def _unwritten(shadow: Standing) -> int | None:
    """A batch that a start without shadow.of has planned, and that is not decided. It was stopped."""
    newest = shadow.newest
    if newest is None or shadow.next_start is not NextStart.REPLAY or not planned_without_cut(newest):
        return None
    return newest.batch_id


def check_steps(steps: Sequence[Step]) -> None:
    """Raise NoTakeOver if too few steps were compared."""
    if steps[0].after is not None and len(steps) < LEAST_STEPS:
        raise NoTakeOver(
            f"{len(steps)} steps were compared, and at least {LEAST_STEPS} have to be, or all: give an "
            "earlier --from-batch, or let both run for longer"
        )


def check_equal(steps: Sequence[Step], found: ShadowComparison, *, by_key: bool) -> None:
    """Raise NoTakeOver unless all rows that both have to have are there: only in the last step may the shadow
    have written more. `by_key`: rows were compared by their keys."""
    check_steps(steps)
    missing = int(found.missing.sum())
    if missing:
        raise NoTakeOver(
            f"{missing:,} rows were written by the running query alone, first in batch "
            f"{steps[int(np.flatnonzero(found.missing)[0])].first}, and the shadow would write them again. "
            f"Nothing was changed. {see_report(steps, found.missing)}"
        )
    early = found.extra[:-1]
    earlier = int(early.sum())
    if earlier:
        raise NoTakeOver(
            f"{earlier:,} rows were written by the shadow alone, first in batch "
            f"{steps[int(np.flatnonzero(found.extra)[0])].first}, before the last step: the versions differ. "
            f"Nothing was changed. {see_report(steps, early)}"
        )
    if by_key and found.alike:
        raise NoTakeOver(
            f"{found.alike:,} rows that the shadow alone has written in its last step have keys of rows that "
            "the running query has written with it: which of them it has not written cannot be told by the "
            "key. Nothing was changed. Let the running query run until it has written all, with nothing more "
            "to read; or give each window's rows a key of their own in both versions"
        )
    if found.extra[-1] > MOST_LEFT:
        raise NoTakeOver(
            f"{found.extra[-1]:,} rows were written by the shadow alone in its last step, and at most "
            f"{MOST_LEFT:,} can be added to those of the running query. Nothing was changed. Let the running "
            "query run until it has written them, with nothing more to read"
        )


def see_report(steps: Sequence[Step], differ: Counts) -> str:
    """What to do if rows of some steps differ. Only exactly_once writes each of them once."""
    behind = steps[int(np.flatnonzero(differ)[-1])].last + 1
    return (
        "See eoslog shadow report; if one of both did not run with exactly_once then, later batches may be "
        f"compared alone: --from-batch {behind}"
    )


@dataclass(frozen=True)
class LeftRows:
    """Rows of the shadow that the running query has not written: `rows`, of `places`. They go to the same
    partitions of `topic`."""

    cluster: Cluster
    rows: Rows
    places: Sequence[AuditedRange]
    topic: str

    def write(self, own: Participant, last: Saved | None, contents: TaskContents) -> Written:
        """Copy them in the sink's own transaction. Raises ProduceFailed, KafkaError."""
        with Producer(self.cluster, identity=own.identity, transactional_id=own.name) as producer:
            for number in np.unique(self.rows["place"]):
                offsets = np.sort(self.rows["offset"][self.rows["place"] == number])
                self._copy(producer, self.places[int(number)], offsets)
            producer.flush()
            rows = told_by(own.identity, producer.first_rows, producer.last_sequence)
            places = placed_by(own.identity, producer.last_rows, producer.topic_ids)
            return Written(None, rows, places)

    def _copy(self, producer: Producer, place: AuditedRange, offsets: Rows) -> None:
        within = AuditedRange(place.topic, None, place.partition, int(offsets[0]), int(offsets[-1]) + 1)
        for records in records_of(self.cluster, within, committed=True, headers=True):
            wanted = pa.array(np.isin(records.offset.to_numpy(), offsets))
            key, value, headers, times = (
                None if column is None else column.filter(wanted)
                for column in (records.key, records.value, records.headers, records.timestamp)
            )
            for batch in encode_batches(
                key, value, headers, times, codec=0, max_batch_bytes=_MAX_BATCH_BYTES
            ):
                producer.send(self.topic, place.partition, batch)


class Addition(NamedTuple):
    """What is written in the transaction of the take-over: rows that are left, and the state that the query
    has from then on, if its state was saved before."""

    rows: LeftRows | None
    state: CheckpointSaving | None

    @property
    def topic(self) -> str:
        """Where the state is saved; else that of the rows."""
        found = self.state or self.rows
        return "" if found is None else found.topic

    def write(self, own: Participant, last: Saved | None, contents: TaskContents) -> Written:
        """Write both. Raises CheckpointUnreadable, ProduceFailed, KafkaError."""
        rows = Written(None) if self.rows is None else self.rows.write(own, last, contents)
        if self.state is None:
            return rows
        state = self.state.write(own, last, contents)
        return Written(state.saved, (*rows.rows, *state.rows), rows.places)


def left_rows(cluster: Cluster, found: ShadowComparison, cut: ShadowCut) -> LeftRows | None:
    """What the shadow has written and the running query has not; None: nothing. Raises NoTakeOver."""
    if not len(found.differing):
        return None
    written, own = (sorted(places) for places in (cut.written, cut.own))
    if [p for _, p in written] != [p for _, p in own]:
        raise NoTakeOver(
            f"the shadow has written {len(found.differing):,} rows that the running query has not, of "
            f"windows that close next. Its topic {own[0][0]} has {len(own)} partitions and {written[0][0]} "
            f"has {len(written)}, so their places are not known. Nothing was changed. Let the running query "
            "close them, with nothing more to read; or give a shadow a topic of as many partitions"
        )
    return LeftRows(cluster, found.differing, found.places, written[0][0])


def check_settled(cluster: Cluster, cut: ShadowCut) -> None:
    """Raise NoTakeOver if rows of the shadow's topic cannot be read yet."""
    ends = [
        list_offsets(cluster, dict.fromkeys(cut.own, LATEST), committed=committed)
        for committed in (True, False)
    ]
    held: list[TopicPartition] = [tp for tp, at in ends[0].items() if at < ends[1][tp]]
    if held:
        topic, p = held[0]
        raise NoTakeOver(
            f"a transaction is open in {topic}-{p}, so not all rows of the shadow can be read. Nothing was "
            "changed. Wait until it has ended: see eoslog transactions list"
        )


def addition(
    cluster: Cluster, shadow: Standing, place: TakeOverPoint, rows: LeftRows | None
) -> Addition | None:
    """What is written in the transaction of the take-over. None: nothing. Raises NotEditable, KafkaError."""
    after = shadow.checkpoint.changed({f"eoslog/{NOTED_SINK}": place.becomes(shadow.cluster_id).text()})
    topic = carry_out.state_topic_of(place.seen)
    state = carry_out.state_saving(cluster, after, Sink(place.cut.sink), place.batch, topic)
    return None if rows is None and state is None else Addition(rows, state)


def carry_out_take_over(
    cluster: Cluster, shadow: Standing, place: TakeOverPoint, rows: LeftRows | None
) -> None:
    """Take over. It may be interrupted and repeated. Raises CommitFault, KafkaError, EoslogError."""
    shadow.checkpoint.sync_completed()  # the shadow's own sink knows of its batches, this one does not
    decision = place.seen
    if not place.is_taken:
        if (unwritten := _unwritten(shadow)) is not None:
            shadow.checkpoint.change("offsets", unwritten, None)
        added = addition(cluster, shadow, place, rows)
        decision = decide_take_over(cluster, shadow, place, added)
    note_taken(shadow.checkpoint, place.becomes(shadow.cluster_id), decision)


def decide_take_over(
    cluster: Cluster, shadow: Standing, place: TakeOverPoint, added: Addition | None
) -> Decision:
    """Make the shadow's last batch the last one of the running query's sink. Raises CommitFault, KafkaError,
    EoslogError."""
    cut, batch, planned = place.cut, place.batch, place.planned
    source = carry_out.source_offsets(
        cut.group, cut.sink, batch, planned, decided=True, cluster=shadow.cluster_id
    )
    rules = move_decision(Sink(cut.sink), place.seen, batch, source, shadow.completed, added, planned.ends)
    return Runner(cluster, OWN_TIMEOUT_MS, decisions=place.decisions).run(rules)
