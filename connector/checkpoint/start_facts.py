"""What is known when a query starts: of its checkpoint, the sink's last decision, the group and the log.

Pure: the sink's start reads it (start_of_run.py), start_checks.py and its neighbours compare it.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.offsets.group_notes import NotedOffset
from eoslog.connector.offsets.offsets import Offsets, TakenFrom
from eoslog.protocol.topic_partitions import TopicPartition

WORD_STATE = "without-state"
"""The word of start.accepted for a query that begins without the state that the last one has saved; with the
sink's last decision, as StartFacts.last_written."""

WORD_NEW = "new-checkpoint"
"""The word for a query that begins anew where another has been; with the same decision."""

Places = Mapping[TopicPartition, Mapping[str, int]]
"""By partition the offset of each source that reads it, by the source's name."""


class RowsFound(NamedTuple):
    """What the log shows of the batches whose places the checkpoint notes; if it is new, of the sink's last
    one. `newest`: the last batch that the sink got; None: the checkpoint does not say. `batch`: the last one
    with rows that is done, and `lacks`: what of it, or of earlier ones, the log does not have, a text for
    each place. `any`: whether a batch had rows, or may have.
    `followed`: where rows of transactions follow, if the sink knows no later decision. `proven`: the newest
    batch that the sink does not know to be decided, and all of whose rows the log shows to be committed.
    `undecided`: where rows of the sink are visible behind those of its last decision: only decided ones
    become visible, so the cluster has lost their decisions. `unseen`: no topic is known in which rows of
    later batches would be."""

    newest: int | None = None
    batch: int | None = None
    lacks: tuple[str, ...] = ()
    any: bool = True
    followed: tuple[str, ...] = ()
    proven: int | None = None
    undecided: tuple[str, ...] = ()
    unseen: bool = False


class Completed(NamedTuple):
    """The checkpoint's batches that a sink got. `newest`: the newest completed one. `since`: the first that
    the sink got; None: the checkpoint does not say. `rested`: whether the newest is so old that the cluster
    may have forgotten its decision. `rows`: what the log has of them."""

    newest: int | None
    since: int | None
    rested: bool
    rows: RowsFound = RowsFound()


class OtherSink(NamedTuple):
    """What another sink has decided last, and the topics that its rows went to."""

    batch: Batch
    topics: tuple[str, ...] = ()


class StartFacts(NamedTuple):
    """The contents of checkpoint, decision and group when a run of the sink begins.

    `batch`: the batch to write; `ends`: its end offsets in the sources. `begins`: where each source begins
    in it, if it is the first and its ends say that. `completed`: the newest batch in Spark's commit log.
    `decided`: the sink's last decided batch, of this or another query. `ended`: the digest and end offsets
    in the checkpoint of the decided batch, if it is this query's and still kept. `committed`: the group's
    offsets, for the partitions of `ends` and `ended` (empty without `group`). `taken`: the sinks and groups
    whose offsets the source has begun with. `since`: the first batch that was given to this sink, None if
    the checkpoint does not say. `rested`: whether the last completed batch is so old that the cluster may
    have forgotten its decision. `accepted`: the words of start.accepted. `left_state`: the sink's last
    query has saved its state. `followed_by`: which query has decided in this sink since this one did.
    `left`: the plan of the batch that the sink has decided last; None: not recorded. `without_topics`: the
    batch's sources that read no topics. `others`: what other sinks have decided last at whose offsets the
    query may begin. `rows`: what the log shows of the batches whose places the checkpoint notes. `unread`:
    see unread(), with where their log begins. `remade`: topics that were made anew since the last decision.
    `cut`: partitions whose log was cut below where that batch or the group ended, and where it differs.
    `word`: of the sink's last decision, "": none. `went_to`: where the sink's last query has written, if
    this one writes to another topic. `left_out`: partitions that the sink's last query has read and a new
    checkpoint does not, with where it stood in them. `fresh`: partitions that this query reads for the first
    time, if it has made the sink's last decision.
    """

    sink: str
    batch: Batch
    ends: Offsets
    begins: Places
    completed: int | None
    decided: Batch | None
    ended: tuple[str, Offsets] | None
    group: str | None
    committed: Mapping[TopicPartition, NotedOffset]
    taken: Collection[TakenFrom] = ()
    since: int | None = None
    rested: bool = False
    accepted: Collection[str] = ()
    left_state: bool = False
    followed_by: str | None = None
    left: Planned | None = None
    without_topics: Collection[str] = ()
    others: Mapping[str, OtherSink] = MappingProxyType({})
    rows: RowsFound = RowsFound()
    unread: Mapping[TopicPartition, int | None] = MappingProxyType({})
    remade: Collection[str] = ()
    cut: Mapping[TopicPartition, int] = MappingProxyType({})
    word: str = ""
    went_to: str | None = None
    left_out: Mapping[TopicPartition, int] = MappingProxyType({})
    fresh: Collection[TopicPartition] = ()

    def replaces(self, sink: str) -> str:
        """The word of start.accepted for a query that begins at another sink's offsets, and takes its place.
        It is another one for the next new checkpoint: a query without a name has a new id then."""
        of = self.last_written if self.sink != self.batch.query_id else self.batch.query_id[:8]
        return f"offsets-of:{sink}:{of}"

    @property
    def last_written(self) -> str:
        """In the words of start.accepted that let a query begin anew: another one as soon as the query has
        written a batch. The last decision's; without one, the newest batch that the group notes, or 0."""
        notes = ((f.note.batch, f.note.query) for f in self.committed.values() if f.note)
        number, query = max(notes, default=(0, ""))
        return self.word or (f"{query}:{number}" if query else "0")

    def begins_at(self, place: TopicPartition) -> int | None:
        """Where the query begins in a partition: its sources' lowest place. None: they do not say it."""
        return min(self.begins[place].values()) if place in self.begins else None

    @property
    def at_group(self) -> bool:
        """Whether the query begins at the group's offsets."""
        stands = {tp: found.offset for tp, found in self.committed.items()}
        return bool(stands) and all(self.begins_at(tp) == at for tp, at in stands.items())

    @property
    def anew(self) -> Collection[str]:
        """Sources that begin anew in a new checkpoint, whatever the sink has written of them: no group has
        their offsets."""
        return self.without_topics if self.left is not None and self.left.without_topics() else ()

    @property
    def left_at(self) -> Places | None:
        """Where each source ended in the batch that the sink has decided last, or left a partition before
        it, or where its log was cut since; None: not recorded. Topics that were made anew since are left
        out."""
        if self.left is None:
            return None
        ends = self.left.each_left() | self.left.each_end()
        return {
            tp: {name: min(at, self.cut.get(tp, at)) for name, at in each.items()}
            for tp, each in ends.items()
            if tp[0] not in self.remade
        }

    @property
    def done(self) -> Completed:
        """The batches that are completed, and what is known of them."""
        return Completed(self.completed, self.since, self.rested, self.rows)

    @property
    def ours(self) -> int | None:
        """The last batch of this query that the sink has decided."""
        known = self.decided is not None and self.decided.query_id == self.batch.query_id
        return self.decided.batch_id if known and self.decided else None

    @property
    def last(self) -> int:
        """`ours` as a number; -1: none."""
        return -1 if self.ours is None else self.ours

    @property
    def is_new(self) -> bool:
        """Whether the checkpoint is new: no batch is completed in it, and the sink has decided none of it."""
        return self.completed is None and self.batch.batch_id == 0 and self.ours is None


def listed(places: Iterable[tuple[TopicPartition, str]]) -> str:
    """Texts for messages, each with its partition."""
    return "; ".join(f"{topic}-{partition} at {text}" for (topic, partition), text in sorted(places))
