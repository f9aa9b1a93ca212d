"""Changes of transactions, and the markers that end them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from eoslog.broker.coordinator.transactions.transaction import add_partitions
from eoslog.broker.coordinator.transactions.transaction_journal import (
    PendingPartitions,
    TransactionEntries,
    TransactionEntry,
    TransactionJournal,
)
from eoslog.broker.coordinator.transactions.transaction_state import (
    PREPARED,
    TV2,
    TransactionMetadata,
    TransactionResult,
    TransactionState,
    complete,
)
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import NOBODY, ProducerIdentity

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock
    from eoslog.broker.topics.topics import Topics

# -- transaction markers ---------------------------------------------------------------------------
# Writes the markers that end a transaction, on every partition of the transaction.
#
# After a restart they are written again on all partitions, even where the transaction is no longer open: a
# marker raises the producer's epoch on the partition to its own, so that late batches are refused. For
# readers a second marker changes nothing.
#
# Markers become durable partition by partition. A `ReadBarrier` hides what they make visible until all are
# durable, so that no fetch sees a part of it.


COORDINATOR_EPOCH = 0
"""There is only ever one coordinator: the data directory's lock ensures that."""


class ReadBarrier:
    """Hides decided records on several partitions until it is lifted from all of them at once."""

    def __init__(self) -> None:
        self._before: dict[Partition, None] = {}

    def draw(self, partition: Partition | None) -> None:
        """Hide this partition's new records from readers of committed data. None is ignored."""
        if partition is not None:
            partition.hold_back(self)
            self._before[partition] = None

    def lift(self) -> None:
        """Show all of it at once: nothing else runs on the event loop meanwhile."""
        for partition in self._before:
            partition.let_go(self)


OnMarker = Callable[["Partition", int, int, bool], None]

logger = logging.getLogger(__name__)


class MarkerWriter:
    """Writes markers and waits for the disk."""

    def __init__(self, topics: Topics, clock: Clock, on_marker: OnMarker) -> None:
        """`on_marker` is called with (partition, producer id, epoch, commit) after each marker's append."""
        self._topics = topics
        self._clock = clock
        self._on_marker = on_marker

    async def write(
        self, metadata: TransactionMetadata, missing: set[tuple[str, int]], barrier: ReadBarrier
    ) -> None:
        """Write a prepared transaction's markers on all partitions in `missing`; remove those that are done.

        The curtain hides what the markers make visible. A deleted partition needs no marker. Tries all, then
        raises KafkaError if one failed.
        """
        places = sorted(missing)
        for place in places:
            barrier.draw(self._topics.partition(*place))
        results = await asyncio.gather(*(self._mark(metadata, *place) for place in places))
        failed = [error for error in results if error is not None]
        missing.difference_update(
            place for place, error in zip(places, results, strict=True) if error is None
        )
        if failed:
            raise failed[0]

    async def _mark(self, metadata: TransactionMetadata, topic: str, index: int) -> KafkaError | None:
        """Write one marker durably. Returns the error instead of raising it, so that the others continue."""
        commit = metadata.state is TransactionState.PREPARE_COMMIT
        what = f"{'commit' if commit else 'abort'} marker of {metadata.transactional_id} for {topic}-{index}"
        partition = self._topics.partition(topic, index)
        if partition is None:
            logger.warning("%s is not written: the partition has been deleted", what)
            return None
        try:
            await self.mark_one(
                partition,
                metadata.producer_id,
                metadata.producer_epoch,
                commit,
                transaction_version=metadata.client_version,
            )
        except KafkaError as error:
            if self._topics.partition(topic, index) is not partition:
                logger.warning("%s is not written: the partition was deleted meanwhile", what)
                return None
            if _is_superseded(partition, metadata.producer_id, error):
                logger.warning("%s is not written, no transaction is open there: %s", what, error)
                return None
            logger.error("%s cannot be written: %s", what, error)
            return error
        return None

    async def mark_one(
        self,
        partition: Partition,
        producer_id: int,
        epoch: int,
        commit: bool,
        coordinator_epoch: int = COORDINATOR_EPOCH,
        transaction_version: int = 0,
    ) -> None:
        """Write one marker and return when it is durable. Raises KafkaError."""
        now_ms = self._clock.now_ms()
        appended = partition.append_marker(
            producer_id, epoch, commit, coordinator_epoch, now_ms, transaction_version
        )
        self._on_marker(partition, producer_id, epoch, commit)
        await partition.wait_durable(appended.last_offset)


def _is_superseded(partition: Partition, producer_id: int, error: KafkaError) -> bool:
    """Whether the partition has a later epoch of this producer, and no open transaction of it.

    Trying again would never succeed, and would block the transactional id for ever.
    """
    return error.code is ErrorCode.INVALID_PRODUCER_EPOCH and partition.ongoing(producer_id) is None


# -- transaction changes ---------------------------------------------------------------------------
# Carries out what the rules decided about a transactional id, one change at a time for each id.
#
#     record -> durable -> apply in memory, and for the end of a transaction:
#     a marker on every partition -> all durable -> readers see them -> record the completion -> apply that
#
# Changes of several ids can be made together: each step waits for all of them, and a failure of one does not
# affect the others. So readers see all transactions that end together at one moment.
#
# A change is completed even if its client stops waiting. A failed change leaves one of these: nothing has
# happened; the decision is recorded, and the rest is tried again; or the id is refused until the next start
# (see `TransactionEntry.lose`).


T = TypeVar("T")


Failures = dict[TransactionEntry, Exception]
"""The error of each change that failed, where several were made together."""


class Changes:
    """Carries out changes. Use it from the event loop's thread only."""

    def __init__(
        self, entries: TransactionEntries, journal: TransactionJournal, markers: MarkerWriter, clock: Clock
    ) -> None:
        self._entries = entries
        self._journal = journal
        self._markers = markers
        self._clock = clock
        self._tasks: set[asyncio.Task[Any]] = set()

    async def carry_out(self, entry: TransactionEntry, decision: TransactionResult) -> ProducerIdentity:
        """Do what was decided and return the decision's answer, NOBODY if it has none.

        The change is completed even if the caller stops waiting.
        """
        if decision.following is not None:
            await self.begin(entry, decision.following)
        raise_refusal(decision)
        return decision.answer or NOBODY

    def begin(self, entry: TransactionEntry, following: TransactionMetadata) -> Awaitable[None]:
        """Start a change. No other change of this entry may start until it has ended."""
        task = self._spawn(self._apply_one(entry, following))
        entry.begin(task, following.state)
        return asyncio.shield(task)

    def begin_together(self, changes: Mapping[TransactionEntry, TransactionMetadata]) -> Awaitable[Failures]:
        """End open transactions together. Returns those that failed."""
        task = self._spawn(self._apply(_linked(changes)))
        for entry, following in changes.items():
            entry.begin(task, following.state)
        return asyncio.shield(task)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, KafkaError):
            logger.error("a change of a transactional id failed", exc_info=error)

    async def _apply_one(self, entry: TransactionEntry, following: TransactionMetadata) -> None:
        for error in (await self._apply({entry: following})).values():
            raise error

    async def _apply(self, changes: Mapping[TransactionEntry, TransactionMetadata]) -> Failures:
        """Record, wait for the disk, apply, and finish the transactions whose end was decided."""
        try:
            failures = await self._record_all(changes)
            decided = [entry for entry, following in changes.items() if following.state in PREPARED]
            return failures | await self._finish([entry for entry in decided if entry not in failures])
        finally:
            for entry in changes:
                entry.end()

    async def _record_all(self, changes: Mapping[TransactionEntry, TransactionMetadata]) -> Failures:
        """Write the first record, which decides for all (see `_linked`); when durable, write the others."""
        first, *others = changes
        failures = await _failures({first: self._record(first, changes[first])})
        if failures and others:
            text = f"not recorded, as {first.id} could not be: {failures[first]}"
            return failures | dict.fromkeys(others, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text))
        return failures | await _failures({entry: self._record(entry, changes[entry]) for entry in others})

    async def _record(self, entry: TransactionEntry, following: TransactionMetadata) -> None:
        partition, offset = self._journal.append(following)
        try:
            await partition.wait_durable(offset)
        except BaseException as error:
            # The record may or may not be on disk: only the next start can find out.
            entry.lose(f"whether {following.state.text} was recorded is not known ({error})")
            if isinstance(error, KafkaError):
                entry.check_certain()
            raise
        self._entries.take_over(entry, following)

    async def _finish(self, entries: Sequence[TransactionEntry]) -> Failures:
        """From PrepareX to CompleteX. Failures are CONCURRENT_TRANSACTIONS: they are to be tried again."""
        barrier = ReadBarrier()
        try:
            failures = await _failures({entry: self._mark(entry, barrier) for entry in entries})
        finally:
            barrier.lift()
        for entry in entries:
            if entry not in failures:
                try:
                    self._complete(entry)
                except KafkaError as error:
                    failures[entry] = error
        return failures

    async def _mark(self, entry: TransactionEntry, barrier: ReadBarrier) -> None:
        prepared = entry.metadata
        assert prepared is not None
        try:
            await self._markers.write(prepared, entry.unmarked, barrier)
        except KafkaError as error:
            raise _unfinished(prepared, error) from error

    def _complete(self, entry: TransactionEntry) -> None:
        prepared = entry.metadata
        assert prepared is not None
        completed = complete(prepared, self._clock.now_ms())
        try:
            self._journal.append(completed)
        except KafkaError as error:
            raise _unfinished(prepared, error) from error
        self._entries.take_over(entry, completed)

    async def finish_all(self, entries: Iterable[TransactionEntry]) -> None:
        """Finish decided transactions that are not finished. Failures are logged; the next call retries."""
        waiting = [e for e in entries if e.free and e.metadata is not None and e.metadata.state in PREPARED]
        if not waiting:
            return
        task = self._spawn(self._finish_again(waiting))
        for entry in waiting:
            assert entry.metadata is not None
            entry.begin(task, entry.metadata.state)
        for error in (await asyncio.shield(task)).values():
            logger.error("%s", error)

    async def _finish_again(self, entries: Sequence[TransactionEntry]) -> Failures:
        try:
            return await self._finish(entries)
        finally:
            for entry in entries:
                entry.end()

    # -- expiry --------------------------------------------------------------------------------

    async def forget(self, entries: Iterable[TransactionEntry]) -> None:
        """Let ids without a transaction expire: first write the records for it, then remove them from memory.

        Meanwhile they are busy. Failures are logged; the next call tries again.
        """
        idle = {entry.id: entry for entry in entries}
        waiting = []
        for names in self._journal.together(idle) if idle else ():
            group = [idle[name] for name in names]
            task = self._spawn(self._forget(group))
            for entry in group:
                entry.begin(task, TransactionState.DEAD)
            waiting.append(asyncio.shield(task))
        await all_of(waiting)

    async def _forget(self, group: Sequence[TransactionEntry]) -> None:
        try:
            partition, offset = self._journal.append_forgotten([entry.id for entry in group])
            try:
                await partition.wait_durable(offset)
            except BaseException as error:
                for entry in group:
                    entry.lose(f"whether its expiry was recorded is not known ({error})")
                raise
            for entry in group:
                self._entries.forget(entry)
        finally:
            for entry in group:
                entry.end()

    # -- joining by writing (TV2) --------------------------------------------------------------

    def join(
        self, entry: TransactionEntry, producer_id: int, epoch: int, partition: tuple[str, int]
    ) -> Awaitable[None]:
        """Add a partition as soon as the id is free. Partitions asked for until then share one record."""
        joining = entry.joining
        if joining is None or joining.producer != (producer_id, epoch):
            joining = entry.joining = PendingPartitions(ProducerIdentity(producer_id, epoch))
            joining.task = self._spawn(self._run_join(entry, joining))
        joining.partitions.add(partition)
        return asyncio.shield(joining.task)

    async def _run_join(self, entry: TransactionEntry, joining: PendingPartitions) -> None:
        while not entry.free:
            entry.check_certain()
            await asyncio.wait({entry.running})
        if entry.joining is joining:
            entry.joining = None
        decision = add_partitions(
            entry.metadata, *joining.producer, joining.partitions, self._clock.now_ms(), TV2
        )
        raise_refusal(decision)
        if decision.following is not None:
            entry.begin(joining.task, TransactionState.ONGOING)
            await self._apply_one(entry, decision.following)


def raise_refusal(decision: TransactionResult) -> None:
    """Raise the decision's error as a KafkaError, if it has one."""
    if decision.error is not ErrorCode.NONE:
        raise KafkaError(decision.error, decision.reason)


def _linked(
    changes: Mapping[TransactionEntry, TransactionMetadata],
) -> dict[TransactionEntry, TransactionMetadata]:
    """Name the others in the first change: their decision then survives a crash that loses their records."""
    (first, following), *others = changes.items()
    known = [(entry.id, entry.metadata) for entry, _ in others]
    named = tuple((name, *metadata.holder) for name, metadata in known if metadata is not None)
    return {**changes, first: replace(following, together=named)}


def _unfinished(prepared: TransactionMetadata, error: KafkaError) -> KafkaError:
    what = f"{prepared.transactional_id} is decided ({prepared.state.text})"
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{what}, but not all is written yet: {error}")


async def _failures(work: Mapping[TransactionEntry, Coroutine[Any, Any, None]]) -> Failures:
    """Wait for all. Returns the error of each that failed."""
    if len(work) > 1:
        results = await asyncio.gather(*map(_failure, work.values()))
    else:
        results = [await _failure(one) for one in work.values()]  # needs no task of its own
    return {entry: error for entry, error in zip(work, results, strict=True) if error is not None}


async def _failure(work: Coroutine[Any, Any, None]) -> Exception | None:
    try:
        await work
    except Exception as error:
        return error
    return None


async def all_of(work: Sequence[Awaitable[Any]]) -> None:
    """Wait for all. Failures are logged; they will be tried again."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            logger.error("%s", result)
