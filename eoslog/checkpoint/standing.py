"""Where a query stands: its checkpoint, and beside it the sink's decision and the group's offsets. Says, too,
whether it runs: then its checkpoint is not edited. Only reads.

The query's driver may be on this machine: then it has left a note here that names it. Elsewhere, who holds
the sink shows it: a query that works changes the state of its transactional ids. One that waits for rows does
nothing that could be seen. An edit takes the sink from it: at its next batch it stops with SinkFenced, and
has written nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from eoslog.checkpoint.edit_numbers import LastEdit, NotEditable
from eoslog.client.admin.groups import CommittedOffset, fetch_with_epochs
from eoslog.client.admin.transaction_states import TransactionDescription, describe, list_transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.accepted_differences import to_accept
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink, NotedStarts, abridged
from eoslog.connector.checkpoint.spark_logs import Planned, offsets_of, source_position
from eoslog.connector.commit.begin import KnownStarts, is_anothers
from eoslog.connector.commit.decision import ANCHOR, Decision
from eoslog.connector.commit.finish import ONGOING
from eoslog.connector.commit.task_reports import Batch, Left, Start
from eoslog.connector.commit.token_write import newest_write
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import BatchWrite
from eoslog.connector.offsets.group_notes import NotedOffset, read_note
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.run.run_memory import drivers_of
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner, last_decision
from eoslog.connector.sink.start_of_run import cluster_id
from eoslog.errors import WrongCluster
from eoslog.protocol.topic_partitions import TopicPartition

SourcePlace = tuple[int, str, int]
"""Number of the source in a file of the offset log, topic, partition."""
NamedPlace = tuple[str, str, int]
"""Name of the source (its number, if it has none), topic, partition: the same in every file."""


class NextStart(Enum):
    """What the query's next start will do first."""

    BEGIN = "begin: no batch is planned; it begins at startingOffsets"
    REPLAY = "replay: the newest batch is not decided; it runs again, and its rows are written"
    FINISH = (
        "finish: the newest batch is decided; it runs again, and its rows are dropped, as they are written"
    )
    DECIDE_AGAIN = (
        "decide again: the newest batch is decided, and the cluster has forgotten that; it runs again, and "
        "its rows are dropped"
    )
    GO_ON = "go on: the newest batch is done; a new one is planned"
    RUN_AGAIN = (
        "run again: the newest batch is not noted as done, and whether its rows are written is not known"
    )
    IN_FOREACH = (
        "run again in foreachBatch: a df.write there has written of the batch that comes next; equal rows "
        "are dropped, and a start without foreachBatch stops (SinkChanged)"
    )


@dataclass(frozen=True)
class Standing:
    """A query's checkpoint, its sink and its group, as they are now.

    `note`: the checkpoint's note of the sink; None: no sink of eoslog has got a batch. `decision`: the sink's
    last one. `state`: of the sink's own transactional id. `committed`: all offsets of the group. `last_edit`
    was read before all else. `foreach`: what the query has written last in foreachBatch, if anything; `gone`:
    the cluster says of that that the query has gone on elsewhere.
    """

    checkpoint: Checkpoint
    query_id: str
    cluster_id: str | None
    note: NotedSink | None
    planned: tuple[int, ...]
    completed: int | None
    newest: Planned | None
    decision: Decision | None
    state: TransactionDescription | None
    committed: Mapping[TopicPartition, CommittedOffset]
    last_edit: LastEdit
    foreach: BatchWrite | None = None
    gone: Left | None = None

    @property
    def sink(self) -> Sink | None:
        """The sink that keeps decisions. None: the checkpoint names none."""
        return None if self.note is None or self.note.sink is None else Sink(self.note.sink)

    @property
    def decided(self) -> Batch | None:
        """The last decided batch of this query."""
        return None if self.decision is None else self.decision.last_of(self.query_id)

    @property
    def starts(self) -> KnownStarts:
        """What the checkpoint knows of its query's starts. What the query writes to, only its options say."""
        words = NotedStarts.read(self.checkpoint).words
        place = abridged(self.checkpoint.location)
        return KnownStarts(words, place, (), lambda word: to_accept(word, ()))

    @property
    def is_anothers(self) -> bool:
        """Whether a copy of this checkpoint has made the sink's last decision."""
        return is_anothers(self.decision, Batch(self.query_id, 0), self.starts)

    @property
    def copy_has_left(self) -> bool:
        """Whether a copy of this checkpoint has left the sink for another one, or for none."""
        left = None if self.decision is None else self.decision.left
        return left is not None and left.query_id == self.query_id and left.word not in self.starts.words

    @property
    def next_start(self) -> NextStart:
        """What the next start does, if no check stops it."""
        if self.newest is None:
            return NextStart.BEGIN
        if self.foreach is not None and self.foreach.batch == self.next_batch:
            return NextStart.IN_FOREACH
        if self._is_done:
            return NextStart.GO_ON
        if self.sink is None:
            return NextStart.RUN_AGAIN
        decided = self.decided
        is_decided = decided is not None and decided.batch_id >= self.newest.batch_id
        if is_decided and decided is not None and self.is_anothers:  # whose rows this one has not written
            start = self._start
            parted = None if start is None else start.parted_at(self.starts.words)
            is_next = parted is not None and parted <= self.newest.batch_id
            return NextStart.REPLAY if is_next else NextStart.RUN_AGAIN
        return NextStart.FINISH if is_decided else NextStart.REPLAY

    @property
    def _start(self) -> Start | None:
        """The query's start that has made its last decision, as far as that tells."""
        known = None if self.decision is None else self.decision.of(self.query_id)
        return None if known is None else known.start

    @property
    def place_of_copy(self) -> str | None:
        """Where the copy of this checkpoint is that has made the sink's last decision. None: it has not."""
        return None if self._start is None or not self.is_anothers else self._start.place

    @property
    def _is_done(self) -> bool:
        """Whether the newest batch is noted as done."""
        return self.newest is not None and (-1 if self.completed is None else self.completed) >= (
            self.newest.batch_id
        )

    @property
    def next_batch(self) -> int:
        """The number of the batch that the next start runs first."""
        return 0 if self.newest is None else self.newest.batch_id + self._is_done

    @cached_property
    def last_written(self) -> Planned | None:
        """The newest batch whose rows are certain to be written; after it the query has written nothing, or
        what it has written is not known (RUN_AGAIN, IN_FOREACH). None: there is none, or Spark has removed
        it."""
        if self.newest is None or self._is_done or self.next_start is NextStart.FINISH:
            return self.newest
        return self.checkpoint.planned_if_kept(self.newest.batch_id - 1)

    @property
    def perhaps_written(self) -> Planned | None:
        """A batch that is planned and not done, of a sink that keeps no decisions (at_least_once): nobody
        knows which of its rows are written, and none of them must not come again."""
        without = self.note is not None and self.note.sink is None
        return self.newest if without and self.next_start is NextStart.RUN_AGAIN else None

    @property
    def may_be_foreach(self) -> bool:
        """Whether the query may write in foreachBatch, as far as is known."""
        return self.foreach is not None or self.note is None

    @property
    def is_stateful(self) -> bool:
        """Whether the query keeps state."""
        return bool(self.checkpoint.names("state"))

    @property
    def noted(self) -> dict[TopicPartition, NotedOffset]:
        """The group's offsets, each with the note of the sink that committed it."""
        return {
            tp: NotedOffset(one.offset, read_note(one.metadata), one.leader_epoch)
            for tp, one in self.committed.items()
        }


def standing(cluster: Cluster, checkpoint: Checkpoint, moving_to: str | None = None) -> Standing:
    """Read all of it. `moving_to`: the cluster to which an interrupted edit was to move it, and which has to
    answer then. Raises CheckpointUnreadable, WrongCluster, CommitFault, KafkaError, EoslogError."""
    last_edit = LastEdit.of(checkpoint)
    planned, note = checkpoint.batches("offsets"), NotedSink.read(checkpoint)
    newest = checkpoint.planned(planned[-1]) if planned else None
    completed = checkpoint.newest_completed()
    if completed is not None:
        checkpoint.check_completed(completed)
    now = cluster_id(cluster)
    _check_cluster(now, note, newest, moving_to)
    sink = None if note is None or note.sink is None else Sink(note.sink)
    query_id, decisions = checkpoint.query_id(), ANCHOR if note is None else note.decisions
    foreach, notes = Runner(cluster, OWN_TIMEOUT_MS, decisions=decisions).run(newest_write(query_id))
    return Standing(
        checkpoint=checkpoint,
        query_id=query_id,
        cluster_id=now,
        note=note,
        planned=tuple(planned),
        completed=completed,
        newest=newest,
        decision=None if sink is None or note is None else last_decision(cluster, sink, note.decisions),
        state=None if sink is None else describe(cluster, [sink.coordinator])[sink.coordinator],
        committed={} if note is None else committed_by(cluster, note.group),
        last_edit=last_edit,
        foreach=foreach,
        gone=None if notes is None else notes.left,
    )


def places(planned: Planned) -> dict[SourcePlace, int]:
    """The end offsets of every source that reads topics, each with the number of its source."""
    return {
        (number, topic, partition): at
        for number, text in enumerate(planned.sources)
        for (topic, partition), at in offsets_of(text).items()
    }


def left_places(planned: Planned) -> dict[SourcePlace, int]:
    """Where each source was in partitions that it has read and reads no more."""
    return {
        (number, topic, partition): at
        for number, text in enumerate(planned.sources)
        for (topic, partition), at in source_position(text).left.offsets.items()
    }


def known_places(planned: Planned, like: Planned) -> dict[SourcePlace, int]:
    """Where each source is in all partitions that it has read, those that it has left, too. Sources have the
    numbers that they have in the batch `like`."""
    numbers = {name: number for number, name in enumerate(like.names)} if planned.names else {}
    found = {**left_places(planned), **places(planned)}
    return {
        (numbers.get(source_name(planned, n), n + len(numbers)), topic, partition): at
        for (n, topic, partition), at in found.items()
    }


def named_places(planned: Planned) -> dict[NamedPlace, int]:
    """The same by the names of the sources, which may stand in another order in another batch."""
    return {(source_name(planned, place[0]), *place[1:]): at for place, at in places(planned).items()}


def source_name(planned: Planned, number: int) -> str:
    """The name of a source of a batch."""
    return planned.names[number] if planned.names else str(number)


def lowest(ends: Mapping[SourcePlace, int]) -> Offsets:
    """The end offsets by partition; if several sources read one, the lowest."""
    found: Offsets = {}
    for (_, topic, partition), at in ends.items():
        found[topic, partition] = min(at, found.get((topic, partition), at))
    return found


def _check_cluster(
    now: str | None, note: NotedSink | None, newest: Planned | None, moving_to: str | None
) -> None:
    """Offsets and decisions mean nothing on another cluster than their own."""
    known = {one for one in (note and note.cluster, *(newest.clusters() if newest else ())) if one}
    known = known if moving_to is None else {moving_to}
    if now is not None and known - {now}:
        raise WrongCluster(
            f"the checkpoint is one of the cluster {', '.join(sorted(known - {now}))}, and "
            f"--bootstrap-server leads to the cluster {now}. Give the address of the checkpoint's cluster"
        )


def leader_epochs(cluster: Cluster, places: Iterable[SourcePlace]) -> dict[TopicPartition, int]:
    """Those of the partitions' leaders now. Raises KafkaError."""
    named = sorted({place[1:] for place in places})
    there = cluster.metadata(sorted({topic for topic, _ in named})).topics
    known = {(t, p): there[t].epochs.get(p, -1) for t, p in named if t in there}
    return {tp: epoch for tp, epoch in known.items() if epoch >= 0}


def committed_by(cluster: Cluster, group: str | None) -> Mapping[TopicPartition, CommittedOffset]:
    """All offsets of a group."""
    return {} if group is None else fetch_with_epochs(cluster, group, None, require_stable=False)


def position_of(standing: Standing) -> Planned:
    """The batch at whose end the query stands. Raises NotEditable if there is none."""
    found = standing.last_written
    if found is None:
        raise NotEditable(
            f"checkpoint {standing.checkpoint.location}: no batch of the query is done, so it stands nowhere "
            "yet. Start it once; or, to begin elsewhere, remove the checkpoint and set startingOffsets"
        )
    unknown = standing.next_start in (NextStart.RUN_AGAIN, NextStart.IN_FOREACH)
    if unknown and (copy := standing.place_of_copy) is not None:
        raise NotEditable(
            f"batch {standing.next_batch} is not noted as done, and a copy of the checkpoint has decided "
            f"since: whether all of its rows are written is not known. Is what the copy in {copy} has "
            "written not to be written again? Then stop its query, and fork that folder instead"
        )
    if unknown and standing.perhaps_written is None:
        raise NotEditable(
            f"batch {standing.next_batch} is not noted as done, and the checkpoint names no sink of "
            "eoslog's, or foreachBatch has written: whether all of its rows are written is not known. Start "
            "the query once: it finishes the batch"
        )
    if standing.next_start is NextStart.FINISH and standing.is_stateful:
        raise NotEditable(
            f"batch {found.batch_id} is decided and not noted as done, and the query keeps state: whether "
            "the state of this batch is there only Spark knows. Start the query once: it finishes the batch"
        )
    return found


_LOOK_SECONDS = 0.5
_FENCE = (
    "Stop it first. If it has ended, or is to stop now, give --fence: a query that runs stops at its next "
    "batch, and writes nothing more"
)


def check_rests(cluster: Cluster, standing: Standing, seconds: float) -> None:
    """Watch the query for so long. Raises NotEditable if it runs, KafkaError, EoslogError."""
    drivers = drivers_of(standing.query_id)
    if drivers:
        said = ", ".join(map(str, drivers))
        raise NotEditable(f"a driver of this query lives on this machine (pid {said}). {_FENCE}")
    first, until = _seen(cluster, standing), time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_SECONDS))
        now = _seen(cluster, standing)
        if now.state != first.state or now.open - first.open:  # what only ends may have timed out
            raise NotEditable(
                f"the query runs: its transactions or its checkpoint have just changed. {_FENCE}"
            )


class _Seen(NamedTuple):
    """What a query that works changes: its files, the state of its sink, and its open transactions."""

    state: object
    open: frozenset[str] = frozenset()


def _seen(cluster: Cluster, standing: Standing) -> _Seen:
    files = [standing.checkpoint.batches(log)[-1:] for log in ("offsets", "commits")]
    if standing.sink is None:
        return _Seen(files)
    state = describe(cluster, [standing.sink.coordinator])[standing.sink.coordinator]
    names = {one.transactional_id for one in list_transactions(cluster, standing.sink.prefix, [ONGOING])}
    return _Seen((files, state and state.identity), frozenset(names))
