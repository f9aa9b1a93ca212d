"""The source as Spark calls it: a driver plans offsets, tasks read them.

Who runs where: a streaming query has one long-lived Python process on the driver, which holds one
`StreamReader` and calls everything but `read`; another, short-lived one pickles a reader of its own for
the tasks, where `read` runs. So a reader holds options and plans, never a socket.
"""

import logging
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from eoslog.connector.checkpoint.which_cluster import check_cluster
from eoslog.connector.client.wire.shared import close_shared
from eoslog.connector.errors import OptionError, report_loss
from eoslog.connector.offsets import offsets, plan
from eoslog.connector.offsets.offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    Epochs,
    Offsets,
    SourcePosition,
    TakenFrom,
    TopicIds,
    TopicPartition,
)
from eoslog.connector.options.both import SourceOptions
from eoslog.connector.source.discover import Log
from eoslog.connector.source.hand_over import hand_over, take_back
from eoslog.connector.source.small_batches import SmallBatches
from eoslog.connector.source.standstill import Standstill
from eoslog.connector.spark.calls import called
from eoslog.connector.spark.plainly import pieces_plainly, plainly
from eoslog.connector.spark.sockets import acknowledging

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

StoredOffset = dict[str, dict[str, int]]


class BatchReader(DataSourceReader):
    """`spark.read`: a range of offsets, fixed when Spark first plans the DataFrame and kept by it; a new
    load() looks again."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def __setstate__(self, state: dict[str, Any]) -> None:
        called()
        self.__dict__.update(state)

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """One task a partition, or more (minPartitions, maxRecordsPerPartition)."""
        log = Log(self.options)
        log.cluster.meet()
        start = log.resolve("startingOffsets", self.options.starting)
        end = log.resolve("endingOffsets", self.options.ending)
        turned = [tp for tp in end if start[tp] > end[tp]]
        if turned:
            said = "; ".join(f"{t}-{p} from {start[t, p]} to {end[t, p]}" for t, p in turned)
            raise OptionError(f"startingOffsets lies after endingOffsets: {said}; correct one of them")
        return _tasks(self.options, start, end, log.ids) or [plan.Range("", 0, 0, 0)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one task, in offset order."""
        from eoslog.connector.source.read_range import read_range  # who plans needs no codec

        assert isinstance(partition, plan.Range)
        return acknowledging(pieces_plainly(read_range(self.options, partition)))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`. Offsets are as Spark's Kafka source has them: the next to read, as JSON."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._log = Log(options, lenient=True)
        self._initial: Offsets = {}
        self._began: StoredOffset | None = None
        self._pin = False
        self._target: SourcePosition | None = None
        self._latest: Offsets = {}
        self._begins: dict[tuple[TopicPartition, str | None], int] = {}
        self._last_batch: float | None = None  # when a batch was planned, on the monotonic clock
        self._compared = False  # the checkpoint with the log: once a run
        self._same: Epochs = {}  # the leader epochs under which positions were found to be in the log
        self._standstill = Standstill()
        self._left_out: set[str] = set()  # topics that are not there, and said to be
        self._small = SmallBatches(options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        called()
        self.__dict__.update(state)

    @plainly
    def initialOffset(self) -> StoredOffset:
        """Where a query without a checkpointed offset begins (startingOffsets). Spark asks more than once."""
        if self._began is None:
            self._log.cluster.meet()
            self._initial = self._log.resolve("startingOffsets", self.options.starting)
            self._pin = _moves(self.options.starting)
            self._began = offsets.to_json(*self._now(self._initial)._replace(taken=self._log.taken))
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
        """Fix the end of the whole query: what is there now."""
        self._log.cluster.meet()
        self._target = self._now(self._log.latest())
        if self.options.committed:
            self._standstill.look(self._log.cluster, self._target.offsets)

    @plainly
    def latestOffset(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> StoredOffset:
        """The end of the next batch.

        Spark stores only ends. A query that began at `latest` and fell over in its first batch would ask
        for the beginning again and get a later one; what arrived in between would be lost silently.
        So such a query's first batch is empty: its end stores where the query began.
        """
        stood = offsets.position_from_json(start)
        if self._began is not None and not self._compared:
            self._log.check_absent()  # a query that has only begun has lost nothing: a name is wrong
        first, self._pin = self._pin, False
        if first and stood.offsets == self._initial:
            return offsets.to_json(*stood)
        stood = self._on_this_cluster(stood, self._log.met_cluster())
        until = self._end(stood.offsets)
        stood = self._on_this_cluster(stood, until.cluster)
        end, ids = until.offsets, until.ids
        self._latest = end
        lost = plan.losses(stood.offsets, end, (stood.ids, ids), self._beginnings(stood, until))
        lost = replace(lost, parted=self._parted(stood, until))
        if lost:
            report_loss(self.options.fail_on_data_loss, str(lost))
        self._say_absent(stood.offsets)
        until = _back_to(lost.parted, until)
        end = until.offsets
        begin = self._begin((stood.offsets, stood.ids), (end, ids))
        if (
            not isinstance(limit, ReadAllAvailable)
            and not (lost.anew or lost.parted)
            and self._too_few(begin, end)
        ):
            return offsets.to_json(*offsets.position_from_json(start))
        self._last_batch = time.monotonic()
        if isinstance(limit, ReadMaxRows):
            until = until._replace(offsets=plan.share(begin, end, limit.max_rows))
        self._small.begin(_tasks(self.options, begin, until.offsets, ids))
        return offsets.to_json(*_moved_only(until, stood, lost.parted))

    def _now(self, ends: Offsets) -> SourcePosition:
        """Ends that were just asked for."""
        return SourcePosition(ends, self._log.ids, self._log.cluster_id, dict(self._log.epochs))

    def _end(self, position: Offsets) -> SourcePosition:
        """Where the log ends, or the query with availableNow."""
        if self._target is None:
            ends = self._log.latest(position)
            if self.options.committed:
                self._standstill.watch(self._log.cluster, ends)
            return self._now(ends)
        return self._target._replace(offsets=self._reachable(self._target.offsets))

    def _on_this_cluster(self, stood: SourcePosition, now: str | None) -> SourcePosition:
        """The same, of the cluster that answers; of a query that has moved, the topics have other ids there.

        Raises WrongCluster.
        """
        moved = check_cluster(stood.cluster, now, self.options.moved_to)
        return SourcePosition(stood.offsets, {}, now, {}) if moved else stood

    def _beginnings(self, stood: SourcePosition, until: SourcePosition) -> Offsets:
        """Where the log begins now, in the partitions that the query has been reading; asked once a run."""
        if self._compared:
            return {}
        self._compared = True
        anew = plan.made_anew(stood.ids, until.ids)
        return self._log.beginnings(tp for tp in stood.offsets if tp in until.offsets and tp[0] not in anew)

    def _parted(self, stood: SourcePosition, until: SourcePosition) -> dict[TopicPartition, plan.Divergence]:
        """Partitions whose log is another one below where the query stands. Only those are asked for whose
        leader epoch is another one than that of the position, once for each: a leader only adds to its log.
        """
        anew, ends, now = plan.made_anew(stood.ids, until.ids), until.offsets, until.epochs
        asked = {
            tp: epoch
            for tp, epoch in stood.epochs.items()
            if tp[0] not in anew and now.get(tp, epoch) not in (epoch, self._same.get(tp)) and tp in ends
        }
        found = self._log.parted(stood.offsets, asked)
        self._same |= {tp: now[tp] for tp in asked if tp not in found}
        return found

    def _say_absent(self, position: Offsets) -> None:
        """Topics that the options name and that were gone before: warned of once a run, with
        failOnDataLoss=false. Raises UnknownTopic."""
        known = {topic for topic, _ in position}
        for name, error in self._log.absent.items():
            if name in known or name in self._left_out:
                continue
            if self.options.fail_on_data_loss:
                raise error
            log.warning(
                "%s. failOnDataLoss is false: going on without it. See troubleshooting.md#dataloss", error
            )
        self._left_out = set(self._log.absent)

    def _compare_replay(self, begin: SourcePosition, until: SourcePosition) -> SourcePosition:
        """A batch that was planned by an earlier run: the log must hold all of it. Returns what it does hold
        of it, with failOnDataLoss=false.

        Raises DataLoss, WrongCluster.
        """
        until = self._on_this_cluster(until, self._log.met_cluster())
        latest = self._now(self._log.latest(until.offsets))
        read = {tp: at for tp, at in until.offsets.items() if begin.offsets.get(tp, 0) < at}
        first = {tp: begin.offsets[tp] for tp in read if tp in begin.offsets}
        earliest = self._beginnings(until._replace(offsets=first), latest)
        early = plan.losses(first, latest.offsets, earliest=earliest).early
        lost = plan.losses(read, latest.offsets, (until.ids, latest.ids))
        lost = replace(lost, early=early, parted=self._parted(until, latest))
        if lost:
            report_loss(self.options.fail_on_data_loss, str(lost))
        there = {tp: at for tp, at in until.offsets.items() if tp in latest.offsets}
        return _back_to(lost.parted, until._replace(offsets=there))

    def _too_few(self, begin: Offsets, end: Offsets) -> bool:
        """Whether minOffsetsPerTrigger lets the batch wait. A query that has just begun does not wait."""
        least, delay_ms = self.options.min_offsets, self.options.max_delay_ms
        if least is None or delay_ms is None or self._last_batch is None:
            return False
        if (time.monotonic() - self._last_batch) * 1000 >= delay_ms:
            return False
        return sum(max(end[tp] - begin[tp], 0) for tp in end) < least

    def reportLatestOffset(self) -> StoredOffset | None:
        """The log's end as last seen, for the query's progress report."""
        return offsets.to_json(self._latest) if self._latest else None

    @plainly
    def partitions(self, start: StoredOffset, end: StoredOffset) -> Sequence[InputPartition]:
        """The tasks of a batch. Partitions that `start` lacks are new and read from their beginning. A small
        batch is read here and now."""
        take_back(self)
        stood, planned = offsets.position_from_json(start), offsets.position_from_json(end)
        self._pin = False  # of a first batch that is replayed: where the query began is stored
        if not self._compared and stood.offsets != planned.offsets:
            planned = self._compare_replay(stood, planned)
        begin, until, ids = stood.offsets, planned.offsets, planned.ids
        then = (
            stood.ids if None in (stood.cluster, planned.cluster) or stood.cluster == planned.cluster else {}
        )
        anew = plan.made_anew(then, ids)
        back = {tp: (begin[tp], at) for tp, at in until.items() if begin.get(tp, at) > at}
        moved = (
            {tp for tp, (at, _) in back.items() if self._initial.get(tp) == at} if self._moved() else set()
        )
        lost = plan.Losses(
            (), {tp: at for tp, at in back.items() if tp not in moved and tp[0] not in anew}, anew
        )
        if lost:
            report_loss(self.options.fail_on_data_loss, str(lost))
        tasks = _tasks(self.options, self._begin((begin, then), (until, ids)), until, ids)
        found = self._small.read(tasks)
        if found is None:
            return tasks
        hand_over(self, found)
        return [plan.Together(tuple(tasks))]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one task, in offset order."""
        from eoslog.connector.source.read_range import read_range  # who plans needs no codec

        assert isinstance(partition, (plan.Range, plan.Together))
        ranges = partition.ranges if isinstance(partition, plan.Together) else (partition,)
        rows = (batch for one in ranges for batch in read_range(self.options, one))
        return acknowledging(pieces_plainly(rows))

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing to do: the sink commits offsets to Kafka together with the rows."""

    def stop(self) -> None:
        """Close this process's connections."""
        self._small.close()
        close_shared(self.options.client)

    def _moved(self) -> bool:
        """Whether the first batch is replayed with a beginning later than the one it had: see latestOffset.
        That batch was empty."""
        return _moves(self.options.starting)

    def _reachable(self, target: Offsets) -> Offsets:
        """The target, or where the query began if that was found out later and is further."""
        return {**self._initial, **{tp: max(at, self._initial.get(tp, at)) for tp, at in target.items()}}

    def _begin(self, start: tuple[Offsets, TopicIds], end: tuple[Offsets, TopicIds]) -> Offsets:
        """Where a batch begins. Partitions that were not there before, those of topics created again among
        them, begin at 0, unless the log has lost that already."""
        known = plan.without(start[0], plan.made_anew(start[1], end[1]))
        keys = {tp: (tp, end[1].get(tp[0])) for tp in end[0] if tp not in known}
        unknown = [tp for tp, key in keys.items() if key not in self._begins]
        if unknown:
            found = self._log.ends(unknown, EARLIEST)
            late = "; ".join(f"{t}-{p} begins at {at}" for (t, p), at in found.items() if at > 0)
            if late:
                report_loss(self.options.fail_on_data_loss, f"new partitions do not begin at 0: {late}")
            self._begins.update({keys[tp]: at for tp, at in found.items()})
        return {**known, **{tp: self._begins[key] for tp, key in keys.items()}}


def _back_to(parted: Mapping[TopicPartition, plan.Divergence], until: SourcePosition) -> SourcePosition:
    """An end no further than to where the log still is the one that was read."""
    told = {tp: found for tp, found in parted.items() if found.offset >= 0}
    ends = {**until.offsets, **{tp: found.offset for tp, found in told.items()}}
    return until._replace(offsets=ends, epochs={**until.epochs, **{tp: f.now for tp, f in told.items()}})


def _moved_only(
    until: SourcePosition, stood: SourcePosition, parted: Container[TopicPartition]
) -> SourcePosition:
    """The end with the epochs that its partitions had where they have not moved, and with what it says of its
    beginning if none has: Spark takes another text for new data. Those of another log have new epochs
    wherever they stand."""
    same = {tp for tp, at in until.offsets.items() if stood.offsets.get(tp) == at and tp not in parted}
    epochs = {tp: epoch for tp, epoch in until.epochs.items() if tp not in same}
    kept = {tp: e for tp, e in stood.epochs.items() if tp in same}
    taken = stood.taken if until.offsets == stood.offsets else frozenset[TakenFrom]()
    return until._replace(epochs={**epochs, **kept}, taken=taken)


def _moves(starting: offsets.Bound) -> bool:
    """Whether a beginning found again may be a later one."""
    if isinstance(starting, offsets.AtTime):
        return starting.none_is_latest
    return LATEST in starting.values() if isinstance(starting, dict) else starting in (LATEST, COMMITTED)


def _tasks(options: SourceOptions, start: Offsets, end: Offsets, ids: TopicIds) -> list[plan.Range]:
    return plan.split(plan.ranges(start, end, ids), options.min_partitions, options.max_records)
