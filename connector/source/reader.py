"""The source as Spark calls it: a driver plans offsets, tasks read them.

A streaming query has one long-lived Python process on the driver, which has one `StreamReader` and calls all
methods but `read`. Another, short-lived process pickles its own reader for the tasks, where `read` runs. So a
reader has options and plans, but no sockets.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from eoslog.client.wire.cluster import close_shared
from eoslog.client.wire.retry import retrying
from eoslog.connector.checkpoint.cluster_check import check_cluster
from eoslog.connector.offsets import offsets, plan
from eoslog.connector.offsets.offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    NOTHING_LEFT,
    Epochs,
    Offsets,
    SourcePosition,
    TopicIds,
)
from eoslog.connector.offsets.plan import back_to, moved_only
from eoslog.connector.options.source_options import SourceOptions
from eoslog.connector.run.source_ends import SourceEnd
from eoslog.connector.source.held_back import Standstill
from eoslog.connector.source.shadowed import Shadowed
from eoslog.connector.source.small_batches import SmallBatches, hand_over, take_back
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.connector.source.whole_batches import WholeBatches
from eoslog.connector.spark.brought import reduce_with_jar
from eoslog.connector.spark.calls import called
from eoslog.connector.spark.plain_errors import pieces_plainly, plainly
from eoslog.connector.spark.sockets import acknowledging
from eoslog.connector.spark.versions import (
    PUSHES_FILTERS,
    PYSPARK,
    TELLS_STARTS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from eoslog.errors import DataLoss, EoslogError, OptionError, report_loss
from eoslog.errors.pages import see
from eoslog.protocol.topic_partitions import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from eoslog.connector.source.pushed_filters import PushFilters

logger = logging.getLogger(__name__)

StoredOffset = dict[str, dict[str, int]]


class BatchReader(DataSourceReader):
    """`spark.read`: a range of offsets. It is fixed when Spark first plans the DataFrame; a new load() looks
    offsets up again."""

    __reduce_ex__ = reduce_with_jar

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._filters: PushFilters | None = None
        if PUSHES_FILTERS:
            from eoslog.connector.source import pushed_filters

            self._filters = self.__dict__["pushFilters"] = pushed_filters.PushFilters(options.push_down)
        elif options.push_down == "true":
            logger.warning(
                "filter.push.down=true has no effect in PySpark %s: Spark applies every filter itself. "
                "See connector-options.md#by-version-of-pyspark",
                PYSPARK,
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        called()
        self.__dict__.update(state)

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """One task for each partition, or more (minPartitions, maxRecordsPerPartition)."""
        log = SourceTopics(self.options)
        log.cluster.meet()
        start = log.resolve("startingOffsets", self.options.starting)
        if self.options.as_of_batch is not None or self.options.as_of_time is not None:
            from eoslog.connector.source.past_batches import PastBatches  # few reads need it

            end = PastBatches(log).ends(start)
        elif self.options.whole_batches:
            end = WholeBatches(log).await_ends()
        else:
            end = log.resolve("endingOffsets", self.options.ending)
        turned = [tp for tp in end if start[tp] > end[tp]]
        if turned:
            said = "; ".join(f"{t}-{p} from {start[t, p]} to {end[t, p]}" for t, p in turned)
            raise OptionError(f"startingOffsets lies after endingOffsets: {said}; correct one of them")
        if self._filters is not None and self._filters.pushed is not None:
            from eoslog.connector.source.pushed_filters import narrowed  # few reads have filters

            start, end = narrowed(log, self._filters.pushed, start, end)
        return _tasks(self.options, start, end, log.ids) or [plan.Range("", 0, 0, 0)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one task, in offset order."""
        from eoslog.connector.source.read_range import read_range  # a process that plans needs no codec

        assert isinstance(partition, plan.Range)
        return acknowledging(pieces_plainly(read_range(self.options, partition)))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`. Offsets have the form of Spark's Kafka source: the next to read, as JSON."""

    __reduce_ex__ = reduce_with_jar

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._log = SourceTopics(options, lenient=True)
        self._initial: Offsets = {}
        self._began: StoredOffset | None = None
        self._first = False  # until the query's first batch is planned
        self._target: SourcePosition | None = None
        self._latest: Offsets = {}
        self._begins: dict[tuple[TopicPartition, str | None], int] = {}
        self._last_batch: float | None = None  # when a batch was planned, on the monotonic clock
        self._compared = False  # whether this run has compared the checkpoint with the log
        self._same: Epochs = {}  # leader epochs in which positions were found to be in the log
        self._standstill = Standstill()
        self._left_out: set[str] = set()  # topics that do not exist, and were warned of
        self._small = SmallBatches(options)
        self._planned_end = SourceEnd()
        self._shadow = None if options.shadow is None else Shadowed(options, options.shadow, self._log)
        self._whole = WholeBatches(self._log) if options.whole_batches else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        called()
        self.__dict__.update(state)

    @plainly
    def initialOffset(self) -> StoredOffset:
        """Where a query without a checkpointed offset begins (startingOffsets). Spark asks more than once."""
        if self._began is None:
            self._log.cluster.meet()
            cut = None
            if self._shadow is not None and self.options.starting == COMMITTED:
                self._initial, cut = self._shadow.await_cut()
            elif self._whole is not None and self.options.starting == LATEST:
                self._initial = self._whole.await_ends()
            else:
                self._initial = self._log.resolve("startingOffsets", self.options.starting)
            self._first = True
            now, stored = self._now(self._initial), self.options.stored
            left = NOTHING_LEFT if stored is None else stored.back_in(self._initial, now.ids).left
            self._began = offsets.to_json(*now._replace(taken=self._log.taken, shadow=cut, left=left))
        return self._began

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger or minOffsetsPerTrigger, if given."""
        options = self.options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the whole query: the present end of the log."""
        self._log.cluster.meet()
        ends = self._log.latest() if self._whole is None else self._whole.await_ends()
        self._target = self._now(ends)
        if self._shadow is not None:
            self._shadow.fix_end()
        if self.options.committed:
            self._standstill.look(self._log.cluster, self._target.offsets)

    @plainly
    def latestOffset(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> StoredOffset:
        """The end of the next batch."""
        end = self._next_end(start, limit)
        self._planned_end.note(end, start, planned=True)
        return end

    def _next_end(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> StoredOffset:
        """The end of the next batch.

        Spark stores only ends, and asks for the beginning again if the first batch runs again: by then it may
        be a later one, or startingOffsets may have changed, and records would be lost silently. So the first
        end says where the query began. Spark's Kafka source and older versions, which may run the batch
        again, do not read that: if the beginning moves by itself, as `latest` does, the first batch is empty.
        Not so if the query takes another one's place: that one is stopped, and those who read its rows wait.
        """
        position = offsets.position_from_json(start)
        if position.then:  # a restored checkpoint: what is decided is planned as it was
            return offsets.leading_to(position.then[0], position.then[1:])
        if self._began is not None and not self._compared:
            self._log.check_absent()  # a new query cannot have lost a topic: a name must be wrong
        first = self._first and position.began is None and position.offsets == self._initial
        if first and self._reads_nothing_at_first():
            return offsets.to_json(*position._replace(began=position.offsets))
        position = self._on_this_cluster(position, self._log.met_cluster())
        planned = self._end(position.offsets, wait=first)
        if self._shadow is not None and planned is not None:
            planned = self._shadow.end(position, planned)
        if planned is None:
            return offsets.to_json(*offsets.position_from_json(start))
        until = planned
        position = self._on_this_cluster(position, until.cluster)
        end, ids = until.offsets, until.ids
        position = position.back_in(end, ids)
        self._latest = end
        lost = plan.losses(position.offsets, end, (position.ids, ids), self._beginnings(position, until))
        lost = self._reported(lost, self._parted(position, until))
        self._say_absent({**position.offsets, **position.left.offsets})
        left = position.leaving((*lost.dropped, *lost.gone), {topic for topic, _ in lost.gone})
        until = back_to(lost.parted, until)._replace(left=left)
        end = until.offsets
        begin = self._begin((position.offsets, position.ids), (end, ids))
        may_wait = not isinstance(limit, ReadAllAvailable) and not (lost.recreated or lost.parted)
        if may_wait and self._too_few(begin, end):
            return offsets.to_json(*offsets.position_from_json(start))
        self._last_batch = time.monotonic()
        if isinstance(limit, ReadMaxRows):
            until = until._replace(offsets=plan.share(begin, end, limit.max_rows))
        self._small.begin(_tasks(self.options, begin, until.offsets, ids))
        until = moved_only(until, position, lost.parted)
        return offsets.to_json(*(until._replace(began=begin, taken=position.taken) if first else until))

    def _now(self, ends: Offsets) -> SourcePosition:
        """The position at ends that were just looked up."""
        return SourcePosition(ends, self._log.ids, self._log.cluster_id, dict(self._log.epochs))

    def _end(self, position: Offsets, *, wait: bool) -> SourcePosition | None:
        """Where the log ends, or with availableNow the query. None: with read.whole.batches that cannot be
        told now. `wait` until it can be: Spark runs a first batch in any case."""
        if self._target is None:
            if self._whole is None:
                ends = self._log.latest(position)
            elif wait:
                ends = self._whole.await_ends()
            elif (found := self._whole.ends(position)) is not None:
                ends = found
            else:
                return None
            if self.options.committed:
                self._standstill.watch(self._log.cluster, ends)
            return self._now(ends)
        return self._target._replace(offsets=self._reachable(self._target.offsets))

    def _on_this_cluster(self, position: SourcePosition, now: str | None) -> SourcePosition:
        """The position on the cluster that answers.

        If the query has moved there, topic ids and epochs are left out: they belong to the old cluster. A
        topic that did not exist when it was left keeps its id: offsets in one of its name say nothing.

        Raises WrongCluster.
        """
        if not check_cluster(position.cluster, now, self.options.moved_to):
            return position
        left = position.left
        same = {tp: at for tp, at in left.offsets.items() if tp[0] not in left.gone}
        moved = left.moved(same, {}, {}, position.cluster)
        return SourcePosition(position.offsets, {}, now, {}, left=moved)

    def _beginnings(self, position: SourcePosition, until: SourcePosition) -> Offsets:
        """Where the log begins now in the partitions that the query has been reading; read once in a run."""
        if self._compared:
            return {}
        self._compared = True
        recreated = plan.recreated(position.ids, until.ids)
        return self._log.beginnings(
            tp for tp in position.offsets if tp in until.offsets and tp[0] not in recreated
        )

    def _parted(
        self, position: SourcePosition, until: SourcePosition
    ) -> dict[TopicPartition, plan.Divergence]:
        """Partitions whose log below the query's position is no longer the one that was read. A partition is
        looked up only if its leader epoch differs from the position's, and once for each epoch: within an
        epoch a leader only appends.
        """
        recreated, ends, now = plan.recreated(position.ids, until.ids), until.offsets, until.epochs
        changed = {
            tp: epoch
            for tp, epoch in position.epochs.items()
            if tp[0] not in recreated and now.get(tp, epoch) not in (epoch, self._same.get(tp)) and tp in ends
        }
        found = self._log.parted(position.offsets, changed)
        self._same |= {tp: now[tp] for tp in changed if tp not in found}
        return found

    def _say_absent(self, position: Offsets) -> None:
        """Raise UnknownTopic for topics that the options name, that do not exist and that the query has never
        read. With failOnDataLoss=false, warn of each once in a run instead."""
        known = {topic for topic, _ in position}
        for name, error in self._log.absent.items():
            if name in known or name in self._left_out:
                continue
            if self.options.fail_on_data_loss:
                raise error
            logger.warning(f"%s. failOnDataLoss is false: continuing without it. {see('dataloss')}", error)
        self._left_out = set(self._log.absent)

    def _compare_replay(self, begin: SourcePosition, until: SourcePosition) -> SourcePosition:
        """Check that the log still has all of a batch that an earlier run has planned.

        Returns the batch's end; with failOnDataLoss=false, without what the log no longer has. Raises
        DataLoss, WrongCluster.
        """
        until = self._on_this_cluster(until, self._log.met_cluster())
        latest = self._now(self._log.latest(until.offsets))
        read = {tp: at for tp, at in until.offsets.items() if begin.offsets.get(tp, 0) < at}
        first = {tp: begin.offsets[tp] for tp in read if tp in begin.offsets}
        earliest = self._beginnings(until._replace(offsets=first), latest)
        early = plan.losses(first, latest.offsets, earliest=earliest).early
        lost = replace(plan.losses(read, latest.offsets, (until.ids, latest.ids)), early=early)
        lost = self._reported(lost, self._parted(until, latest))
        there = {tp: at for tp, at in until.offsets.items() if tp in latest.offsets}
        there |= {tp: end for tp, (_, end) in lost.back.items()}
        return back_to(lost.parted, until._replace(offsets=there))

    def _check_named(self, begin: SourcePosition, until: SourcePosition) -> None:
        """Check that the options name what an earlier run has planned to read, if it is still there: Spark
        notes the batch as done with it, so it would never be read. Raises DataLoss."""
        moved = (tp for tp, at in until.offsets.items() if begin.offsets.get(tp, 0) < at)
        dropped = sorted(tp for tp in moved if not self.options.selects(tp))
        if not dropped:
            return
        topics, cluster = sorted({topic for topic, _ in dropped}), self._log.cluster
        there = retrying(cluster, "Metadata of planned topics", lambda: cluster.metadata(topics)).topics
        ids = {topic: info.topic_id for topic, info in there.items() if info.topic_id is not None}
        other = plan.recreated(until.ids, ids)
        left = [f"{topic}-{p}" for topic, p in dropped if topic in there and topic not in other]
        if left:
            raise DataLoss(
                f"{', '.join(left)}: an earlier run has planned a batch with their rows, and subscribe, "
                "subscribePattern or assign no longer names them: these rows would never be read. Nothing "
                "was read. Name them until that batch is done, then leave them out"
            )

    def _reported(self, lost: plan.Losses, parted: dict[TopicPartition, plan.Divergence]) -> plan.Losses:
        """All that is lost; raises DataLoss, or warns of it."""
        lost = replace(lost.apart(self.options.selects), parted=parted)
        if lost:
            report_loss(self.options.fail_on_data_loss, str(lost))
        return lost

    def _too_few(self, begin: Offsets, end: Offsets) -> bool:
        """Whether the batch has to wait for minOffsetsPerTrigger. The first batch of a run does not wait."""
        least, delay_ms = self.options.min_offsets, self.options.max_delay_ms
        if least is None or delay_ms is None or self._last_batch is None:
            return False
        if (time.monotonic() - self._last_batch) * 1000 >= delay_ms:
            return False
        return sum(max(end[tp] - begin[tp], 0) for tp in end) < least

    def reportLatestOffset(self) -> StoredOffset | None:
        """The log's end when last looked up, for the query's progress report."""
        return offsets.to_json(self._latest) if self._latest else None

    @plainly
    def partitions(self, start: StoredOffset, end: StoredOffset) -> Sequence[InputPartition]:
        """The tasks of a batch. Partitions that `start` lacks are new and read from their beginning. A first
        batch begins where it was planned to. A small batch is read at once, in this process."""
        take_back(self)
        self._planned_end.note(end, start)
        position, planned = offsets.position_from_json(start), offsets.position_from_json(end)
        self._first = False
        if planned.began is not None and position.began is None and start == self._began:
            position = planned._replace(offsets=planned.began)
        elif self._begins_unknown(start):
            report_loss(self.options.fail_on_data_loss, str(plan.BeginsUnknown(planned.offsets)))
        position = position.back_in(planned.offsets, planned.ids)
        self._check_named(position, planned)
        if not self._compared and position.offsets != planned.offsets:
            planned = self._compare_replay(position, planned)
        begin, until, ids = position.offsets, planned.offsets, planned.ids
        then = (
            position.ids
            if None in (position.cluster, planned.cluster) or position.cluster == planned.cluster
            else {}
        )
        recreated = plan.recreated(then, ids)
        back = {tp: (begin[tp], at) for tp, at in until.items() if begin.get(tp, at) > at}
        lost = plan.Losses((), {tp: at for tp, at in back.items() if tp[0] not in recreated}, recreated)
        if lost:
            report_loss(self.options.fail_on_data_loss, str(lost))
        tasks = _tasks(self.options, self._begin((begin, then), (until, ids)), until, ids)
        found = self._small.read(tasks)
        if found is None:
            return tasks
        hand_over(self, found)
        return [plan.TaskRanges(tuple(tasks))]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one task, in offset order."""
        from eoslog.connector.source.read_range import read_range  # a process that plans needs no codec

        assert isinstance(partition, (plan.Range, plan.TaskRanges))
        ranges = partition.ranges if isinstance(partition, plan.TaskRanges) else (partition,)
        rows = (batch for one in ranges for batch in read_range(self.options, one))
        return acknowledging(pieces_plainly(rows))

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing to do: the sink commits offsets to Kafka together with the rows."""

    def stop(self) -> None:
        """Close this process's connections."""
        self._planned_end.forget()
        self._small.close()
        close_shared(self.options.client)

    def _begins_unknown(self, start: StoredOffset) -> bool:
        """Whether another source has planned a first batch, from a place that cannot be looked up again. Its
        end says no beginning; partitions that were not there then are read from theirs."""
        return start == self._began and bool(self._initial) and self._moved()

    def _reads_nothing_at_first(self) -> bool:
        """Whether the first batch of a new query is empty: its beginning may move, or is where another source
        has ended."""
        return (self._moved() and self.options.taken_over is None) or self.options.stored is not None

    def _moved(self) -> bool:
        """Whether a replayed first batch may have a later beginning than before: see latestOffset."""
        return _moves(self.options.starting)

    def _reachable(self, target: Offsets) -> Offsets:
        """The target, or where the query began if that was looked up later and is further."""
        return {**self._initial, **{tp: max(at, self._initial.get(tp, at)) for tp, at in target.items()}}

    def _begin(self, start: tuple[Offsets, TopicIds], end: tuple[Offsets, TopicIds]) -> Offsets:
        """Where a batch begins. New partitions, including those of topics that were created again, begin at
        offset 0, unless the log has already lost it."""
        known = plan.without(start[0], plan.recreated(start[1], end[1]))
        keys = {tp: (tp, end[1].get(tp[0])) for tp in end[0] if tp not in known}
        unknown = [tp for tp, key in keys.items() if key not in self._begins]
        if unknown:
            found = self._log.ends(unknown, EARLIEST)
            late = "; ".join(f"{t}-{p} begins at {at}" for (t, p), at in found.items() if at > 0)
            if late:
                report_loss(self.options.fail_on_data_loss, f"new partitions do not begin at 0: {late}")
            self._begins.update({keys[tp]: at for tp, at in found.items()})
        return {**known, **{tp: self._begins[key] for tp, key in keys.items()}}


_WRAPS = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class UntoldStreamReader(StreamReader):
    """The same for a PySpark that asks for a batch's end, and does not say where the batch starts.

    An end that it has asked for is the start of the next batch. At a start with a checkpoint it first calls
    `partitions` with the last end that it has planned, as start and as end. So an end that is asked for
    first of all is that of a new query.

    Not so with the trigger availableNow and Spark's setting _WRAPS: then Spark asks before it says where the
    query stands, reads up to that end in one batch, and asks again only for its progress report. So the end
    that was asked for first is compared with the one from where the query stands, before Spark stores it.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        if options.max_offsets is not None:
            logger.warning(
                "maxOffsetsPerTrigger: with availableNow or once, PySpark %s reads one batch in a run, and "
                "this option bounds it. See connector-options.md#by-version-of-pyspark",
                PYSPARK,
            )
        self._stands: StoredOffset | None = None  # where the next batch starts
        self._untold: StoredOffset | None = None  # an end that was planned without knowing that

    @plainly
    def latestOffset(self) -> StoredOffset:  # type: ignore[override]
        """The end of the next batch."""
        start, limit = self._stands, self.getDefaultReadLimit()
        planned = start is not None  # else a batch that an earlier run has planned may end there as well
        if start is None:
            start = self._new_start()
            end = self._untold = self._next_end(start, limit)
        else:  # the first was no end of a whole run, or this one is for a report
            self._free_end()
            end = self._next_end(start, limit)
        self._planned_end.note(end, start, planned=planned)
        self._stands = end
        return end

    @plainly
    def partitions(self, start: StoredOffset, end: StoredOffset) -> Sequence[InputPartition]:
        """The tasks of a batch; none if Spark only says where the query stands."""
        if start == end and self._untold is not None:
            self._compare_untold(start, self._untold)
        elif start == end:
            self._stands = start
        self._untold = None
        return super().partitions(start, end)

    def _new_start(self) -> StoredOffset:
        """Where a new query begins; the end of the log is fixed."""
        try:
            start = self.initialOffset()
            self.prepareForTriggerAvailableNow()
        except EoslogError as error:
            error.add_note(
                f"If the query goes on from a checkpoint, unset {_WRAPS}: with it PySpark {PYSPARK} asks "
                "where a new query would begin"
            )
            raise
        return start

    def _compare_untold(self, start: StoredOffset, end: StoredOffset) -> None:
        """Check that a whole run may end at `end`, now that Spark says where the query stands.

        Raises DataLoss, WrongCluster, OptionError: nothing is stored yet of this run.
        """
        self._initial, self._began, self._first, self._compared = {}, None, False, False  # it is no new query
        wanted = self._next_end(start, ReadAllAvailable())
        self._compared = False  # a batch that runs again is compared as well
        if _place(wanted) != _place(end):
            raise OptionError(
                f"{_WRAPS}: with availableNow, PySpark {PYSPARK} asks for the end before it says where the "
                "query stands, and from there the run ends elsewhere: by maxOffsetsPerTrigger, in a "
                "restored checkpoint, or because topics, partitions or records are gone. Nothing was read. "
                "Unset it: the query then reads one batch in a run, from where it stands"
            )

    def _free_end(self) -> None:
        """Let the next batches end where the log ends then."""
        self._target = None
        if self._shadow is not None:
            self._shadow.free_end()

    def _reads_nothing_at_first(self) -> bool:
        """With availableNow there is no other batch."""
        return False


def _place(end: Mapping[str, Mapping[str, int]]) -> SourcePosition:
    """What an end says, without the log's epochs and where the query began."""
    return offsets.position_from_json(end)._replace(epochs={}, began=None, taken=frozenset())


def stream_reader(options: SourceOptions) -> StreamReader:
    """The reader of a stream for this process's PySpark."""
    return StreamReader(options) if TELLS_STARTS else UntoldStreamReader(options)


def _moves(starting: offsets.Bound) -> bool:
    """Whether the query's beginning may be later when it is looked up again."""
    if isinstance(starting, offsets.AtTime):
        return starting.none_is_latest
    return LATEST in starting.values() if isinstance(starting, dict) else starting in (LATEST, COMMITTED)


def _tasks(options: SourceOptions, start: Offsets, end: Offsets, ids: TopicIds) -> list[plan.Range]:
    return plan.split(plan.ranges(start, end, ids), options.min_partitions, options.max_records)
