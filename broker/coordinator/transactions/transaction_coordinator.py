"""The transaction coordinator: producer ids, the start, and the calls of handlers."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eoslog.broker.coordinator.transactions import transaction as rules
from eoslog.broker.coordinator.transactions.transaction import EndRequest, decided_with, end_txn
from eoslog.broker.coordinator.transactions.transaction_changes import (
    Changes,
    MarkerWriter,
    OnMarker,
    all_of,
    raise_refusal,
)
from eoslog.broker.coordinator.transactions.transaction_journal import (
    TOPIC,
    DescribedTransaction,
    TransactionEntries,
    TransactionEntry,
    TransactionJournal,
)
from eoslog.broker.coordinator.transactions.transaction_state import TV1, TV2, TransactionMetadata
from eoslog.broker.log.files import BadFile, read_whole, write_whole
from eoslog.broker.ports import FileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import NOBODY, ProducerIdentity

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock
    from eoslog.broker.topics.topics import Topics

# -- producer ids ----------------------------------------------------------------------------------
# Producer ids: each is handed out once, ever, also across crashes.
#
# They are taken in blocks. The small file `producer-ids` says where the next block begins. It is synced to
# disk before the first id of a block is used. Ids of a block that are still unused at a crash are skipped.


FILE = "producer-ids"
BLOCK = 1000
"""Ids in a block, as in Kafka."""

_HEAD = "version: 0\nnext_producer_id: "
logger = logging.getLogger(__name__)


class ProducerIds:
    """The supply of producer ids of one data directory."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        """Read the file. Raises BadFile if its content is not valid."""
        self._fs = fs
        self._path = os.path.join(data_dir, FILE)
        self._next = self._end = self._read()

    def take(self) -> int:
        """Return an id that was never used. COORDINATOR_NOT_AVAILABLE if no block can be written to disk."""
        if self._next == self._end:
            self._reserve()
        taken = self._next
        self._next += 1
        return taken

    def above(self, used: int) -> None:
        """Make sure that no id up to `used`, which was found in a log, is handed out.

        The file is ahead of it already, unless the file was lost or an older copy was put back.
        """
        if used < self._next:
            return
        if self._next == self._end:
            logger.warning("%s is behind: id %d is in use already; the next id is above it", self._path, used)
        self._next = self._end = used + 1

    def _reserve(self) -> None:
        end = self._next + BLOCK
        try:
            write_whole(self._fs, self._path, f"{_HEAD}{end}\n".encode())
        except OSError as error:
            logger.error("no producer ids can be reserved: %s: %s", self._path, error)
            text = f"no producer ids can be reserved, {self._path} cannot be written: {error}"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text) from error
        self._end = end

    def _read(self) -> int:
        if not self._fs.exists(self._path):
            return 0
        text = read_whole(self._fs, self._path).decode("ascii", "replace")
        number = text.removeprefix(_HEAD).strip()
        if not text.startswith(_HEAD) or not number.isdigit():
            raise BadFile(f"{self._path} is not valid; remove it: the logs show which ids are in use")
        return int(number)


# -- transaction start -----------------------------------------------------------------------------
# What is known of transactional ids when the broker starts, or a partition is back: what the log says.


def load(entries: TransactionEntries, journal: TransactionJournal, topics: Topics) -> int:
    """Fill `entries` from `__transaction_state`; answers the highest producer id in use, -1 if there is none.

    A producer's transaction that is open on a partition, but that no transactional id knows of,
    is reported: nobody would ever end it. Raises DamagedTransactionLog, KafkaError.
    """
    used = -1
    for transactional_id, metadata in journal.replay():
        if metadata is not None:
            entries.take_over(TransactionEntry(transactional_id), metadata)
            used = max(used, metadata.producer_id, metadata.next_producer_id)
    for partition in topics.all_partitions():
        used = max([used, *(producer.producer_id for producer in partition.producers())])
        _report_orphans(entries, partition)
    return used


def read_again(entries: TransactionEntries, journal: TransactionJournal, partition: Partition) -> None:
    """A partition was offline: its transactional ids, if it keeps any, are what it says now.

    A change on its way has found its own part of the log durable, and knows better. Raises
    DamagedTransactionLog, KafkaError.
    """
    if partition.topic != TOPIC:
        return
    said = dict(journal.read(partition))
    for entry in [entry for entry in entries if journal.keeps(partition, entry.id)]:
        if not entry.busy and said.get(entry.id) is None:
            entries.forget(entry)
    for transactional_id, metadata in said.items():
        entry = entries.get(transactional_id) or TransactionEntry(transactional_id)
        if metadata is not None and not entry.busy:
            entries.take_over(entry, metadata)


def _report_orphans(entries: TransactionEntries, partition: Partition) -> None:
    for producer_id, first in partition.open_transactions():
        if entries.owner_of(producer_id, (partition.topic, partition.index)) is None:
            logger.error(
                "%s-%d: the transaction of producer id %d, open since offset %d, belongs to no "
                "transactional id: readers of committed data stop there. Look at it with "
                "DescribeProducers and end it with WriteTxnMarkers",
                partition.topic, partition.index, producer_id, first,
            )  # fmt: skip


# -- transaction coordinator -----------------------------------------------------------------------
# The transaction coordinator: which producer has a transactional id, its transaction's partitions and end.
#
# The rules are pure (`transaction`, `transaction_state`); `transaction_changes` carries out what they
# decide. Each change of a transactional id takes these steps; until it is done, other changes of the same id
# are refused (CONCURRENT_TRANSACTIONS):
#
#     decide -> record it in `__transaction_state` -> durable -> apply in memory -> answer
#
# The end of a transaction has more steps between applying and answering:
#
#     PrepareX durable -> a marker on every partition -> all of them durable -> readers see all of it at once
#     -> CompleteX appended -> answer
#
# So a client that gets the answer "committed" can read what it committed (Kafka answers after PrepareX). A
# crash leaves either no decision and an open transaction, or a decision that `complete` carries out. The
# answer does not wait until CompleteX is durable: if it is lost, the markers are written once more, which
# changes nothing. Nothing can overtake CompleteX: the id's next change is recorded after it in the same
# log, and waits to be durable.
#
# Ids that were not used for transactional.id.expiration.ms are removed, with tombstones in the log, which is
# compacted.


class Producer(NamedTuple):
    """The producer that asks to end a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


class TransactionCoordinator:
    """Everything about transactional ids and producer ids. Use it from the event loop's thread only."""

    def __init__(self, topics: Topics, clock: Clock, config: BrokerConfig, on_marker: OnMarker) -> None:
        """`on_marker`: see `MarkerWriter`. Raises BadFile for a damaged producer id file."""
        self._topics = topics
        self._clock = clock
        options = config.transactions
        self._limits = rules.TransactionLimits(options.transaction_max_timeout_ms, options.two_phase_commit)
        self._idle_ms = options.transactional_id_expiration_ms
        self._journal = TransactionJournal(topics, clock)
        self._markers = MarkerWriter(topics, clock, on_marker)
        self._entries = TransactionEntries()
        self._changes = Changes(self._entries, self._journal, self._markers, clock)
        self._ids = ProducerIds(topics.fs, topics.data_dir)

    # -- start ---------------------------------------------------------------------------------

    def load(self) -> None:
        """Rebuild all state from the log, see `transaction_start.load`."""
        self._ids.above(load(self._entries, self._journal, self._topics))

    def read_again(self, partition: Partition) -> None:
        """See `transaction_start.read_again`."""
        read_again(self._entries, self._journal, partition)

    async def complete(self) -> None:
        """Finish transactions that were decided before a stop or failure: markers again, then the completion.

        If several were decided together and only the first one's record was written, the records of the
        others are written first. Nothing is completed before, as only the first one's record names them.
        """
        changes = dict(self._decided_unrecorded())
        failures = await self._changes.begin_together(changes) if changes else {}
        for error in failures.values():
            logger.error("%s", error)
        if not failures:
            await self._changes.finish_all(self._entries.active())

    def _decided_unrecorded(self) -> Iterator[tuple[TransactionEntry, TransactionMetadata]]:
        now_ms = self._clock.now_ms()
        prepared = [entry.metadata for entry in self._entries.active() if entry.metadata is not None]
        for first, (name, *held) in [(known, named) for known in prepared for named in known.together]:
            entry = self._entries.get(name)
            if entry is not None and entry.free:
                new_id = self._new_id(entry)
                holder = ProducerIdentity(*held)
                following = decided_with(first, entry.metadata, holder, now_ms, new_producer_id=new_id)
                if following is not None:
                    yield entry, following

    # -- requests ------------------------------------------------------------------------------

    async def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        two_phase: bool = False,
    ) -> ProducerIdentity:
        """Return a producer id and an epoch that fences all older ones. Raises KafkaError.

        `producer_id` and `producer_epoch`: of a producer that continues after an error (KIP-360).
        Without a transactional id each call gives a new producer id. `two_phase`: its transactions never
        time out (KIP-939).
        """
        if transactional_id is None:
            _check_whole(producer_id, producer_epoch)
            return ProducerIdentity(self._ids.take(), 0)
        holder, _ = await self._init(transactional_id, timeout_ms, producer_id, producer_epoch, two_phase)
        return holder

    async def keep_prepared(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        two_phase: bool = False,
    ) -> tuple[ProducerIdentity, ProducerIdentity]:
        """As `init_producer_id`, but an open transaction stays open: it can be committed or aborted later.

        Returns the new producer, and the one that wrote the open transaction, NOBODY if there is none
        (KIP-939).
        """
        return await self._init(transactional_id, timeout_ms, producer_id, producer_epoch, two_phase, True)

    async def _init(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int,
        producer_epoch: int,
        two_phase: bool,
        keep_prepared: bool = False,
    ) -> tuple[ProducerIdentity, ProducerIdentity]:
        _check_whole(producer_id, producer_epoch)
        expected = None if producer_id < 0 else ProducerIdentity(producer_id, producer_epoch)
        entry = self._entries.get(transactional_id) or TransactionEntry(transactional_id)
        entry.check_free()
        decision = rules.init_producer_id(
            entry.metadata,
            rules.InitRequest(transactional_id, timeout_ms, expected, two_phase, keep_prepared),
            self._clock.now_ms(),
            limits=self._limits,
            new_producer_id=self._new_id(entry),
        )
        if decision.following is not None:
            self._entries.add(entry)
        return await self._changes.carry_out(entry, decision), decision.ongoing or NOBODY

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        client_version: int = TV1,
    ) -> None:
        """Add the partitions to the transaction, which is opened if necessary. Raises KafkaError."""
        entry = self._known(transactional_id)
        entry.check_free()
        decision = rules.add_partitions(
            entry.metadata, producer_id, producer_epoch, partitions, self._clock.now_ms(), client_version
        )
        await self._changes.carry_out(entry, decision)

    def check_member(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: tuple[str, int]
    ) -> None:
        """AddPartitionsToTxn with verify_only: raises KafkaError unless the partition is a member."""
        entry = self._known(transactional_id)
        raise_refusal(rules.verify(entry.metadata, producer_id, producer_epoch, partition))

    def verify_partition(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        index: int,
        implicit_add: bool = False,
    ) -> Awaitable[None] | None:
        """Whether a transactional batch may be appended to a partition now.

        None: yes, now, before anything else runs. An awaitable (`implicit_add` only): the partition is
        being added to the transaction; wait, then call again. Raises KafkaError, or its awaitable does:
        TRANSACTION_ABORTABLE if the partition is not in the transaction, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS while the transaction is ending.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "a transactional batch without a transactional id")
        entry = self._known(transactional_id)
        decision = rules.verify(entry.metadata, producer_id, producer_epoch, (topic, index))
        if decision.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            # A producer id whose epochs were used up by fencing is stale, not unknown.
            partition = self._topics.partition(topic, index)
            if partition is not None:
                partition.check_epoch(producer_id, producer_epoch)
        if not implicit_add:
            if decision.error is ErrorCode.NONE and entry.ending:
                raise entry.busy_error()
            raise_refusal(decision)
            return None
        if decision.error is ErrorCode.NONE and not entry.ending:
            return None
        if decision.error in _WORTH_WAITING:
            return self._changes.join(entry, producer_id, producer_epoch, (topic, index))
        raise_refusal(decision)
        return None

    async def end_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool, *, bump: bool
    ) -> ProducerIdentity:
        """Commit or abort; `bump`: by TV2's rules. Returns the next (producer id, epoch). Raises KafkaError.

        CONCURRENT_TRANSACTIONS if the outcome is decided but a marker could not be written yet: the broker
        tries again until it can.
        """
        producer = Producer(transactional_id, producer_id, producer_epoch)
        (outcome,) = await self.end_together([producer], commit, bump=bump)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    async def end_together(
        self, producers: Sequence[Producer], commit: bool, *, bump: bool
    ) -> list[ProducerIdentity | KafkaError]:
        """`end_txn` for several. Returns each outcome. Readers see all that could be ended at one moment."""
        changes: dict[TransactionEntry, TransactionMetadata] = {}
        outcomes = [self._end(producer, commit, bump, changes) for producer in producers]
        failures = await self._changes.begin_together(changes) if changes else {}
        for error in failures.values():
            if not isinstance(error, KafkaError):
                raise error
        failed = {entry.id: error for entry, error in failures.items() if isinstance(error, KafkaError)}
        return [
            outcome if isinstance(outcome, KafkaError) else failed.get(producer.transactional_id, outcome)
            for producer, outcome in zip(producers, outcomes, strict=True)
        ]

    def _end(
        self,
        producer: Producer,
        commit: bool,
        bump: bool,
        changes: dict[TransactionEntry, TransactionMetadata],
    ) -> ProducerIdentity | KafkaError:
        """Add the change, if there is one, to `changes`. Returns the answer if that change succeeds."""
        transactional_id, producer_id, epoch = producer
        request = EndRequest(producer_id, epoch, commit, TV2 if bump else TV1)
        try:
            entry = self._known(transactional_id)
            entry.check_free()
            if entry in changes:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{transactional_id} is named twice")
            decision = end_txn(
                entry.metadata, request, self._clock.now_ms(), new_producer_id=self._new_id(entry)
            )
            raise_refusal(decision)
        except KafkaError as error:
            return error
        if decision.following is not None:
            changes[entry] = decision.following
        return decision.answer or NOBODY

    # -- time ----------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Abort the transactions whose time-out has passed; try again to finish decided ones."""
        now_ms = self._clock.now_ms()
        aborts = []
        for entry in self._entries.active():
            known = entry.metadata
            if known is not None and entry.free and rules.has_expired(known, now_ms):
                text = "%s: the transaction of %d.%d has been open for more than %d ms and is aborted"
                logger.info(text, entry.id, known.producer_id, known.producer_epoch, known.timeout_ms)
                decision = rules.fence(known, now_ms, new_producer_id=self._new_id(entry))
                if decision.following is not None:
                    aborts.append(self._changes.begin(entry, decision.following))
        await all_of(aborts)
        await self.complete()

    async def forget_idle(self) -> None:
        """Remove the ids that were not used for transactional.id.expiration.ms.

        A producer that comes back under such an id gets a new producer id; the old producer id is refused.
        """
        now_ms = self._clock.now_ms()
        idle = [
            entry
            for entry in self._entries
            if entry.free
            and entry.metadata is not None
            and rules.is_idle(entry.metadata, now_ms, self._idle_ms)
        ]
        await self._changes.forget(idle)
        if idle:
            logger.info("%d transactional ids idle for more than %d ms are removed", len(idle), self._idle_ms)

    # -- questions -----------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction | None:
        """The durable state of a transactional id, None if it has none. Raises KafkaError."""
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.describe()

    def list(self) -> list[TransactionMetadata]:
        """The durable state of all transactional ids, in no order. Raises KafkaError."""
        found = (entry.certain() for entry in self._entries)
        return [known for known in found if known is not None]

    def check_plain(self, producer_id: int, epoch: int) -> None:
        """Check a batch that is in no transaction but has a producer id.

        Raises KafkaError INVALID_PRODUCER_EPOCH if that is the producer id of a transactional id, with an
        epoch that was never given out: after it the partition would refuse the real producer's batches, and
        even its markers.
        """
        newest = self._entries.epoch_of(producer_id)
        if newest is not None and epoch > newest:
            text = f"epoch {epoch} of producer id {producer_id} was never given out, the newest is {newest}"
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, text)

    def owner_of(self, producer_id: int, topic: str, index: int) -> str | None:
        """The transactional id whose open or prepared transaction this producer has on the partition."""
        return self._entries.owner_of(producer_id, (topic, index))

    async def write_marker(
        self,
        partition: Partition,
        producer_id: int,
        epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> None:
        """WriteTxnMarkers: end a producer's transaction on one partition from outside. Raises KafkaError.

        INVALID_TXN_STATE for a transaction that the coordinator will end itself: an outcome from outside on
        one of its partitions could differ from that of the others.
        """
        owner = self.owner_of(producer_id, partition.topic, partition.index)
        if owner is not None:
            where = f"{partition.topic}-{partition.index}: the transaction belongs to {owner}"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{where}, end it with EndTxn or InitProducerId")
        await self._markers.mark_one(
            partition, producer_id, epoch, commit, coordinator_epoch, transaction_version
        )

    # -- carrying out --------------------------------------------------------------------------

    def _known(self, transactional_id: str) -> TransactionEntry:
        """Return the entry of an id, an empty one if the id is unknown. Raises KafkaError for an empty id."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        entry = self._entries.get(transactional_id) or TransactionEntry(transactional_id)
        entry.check_certain()
        return entry

    def _new_id(self, entry: TransactionEntry) -> int:
        return self._ids.take() if rules.wants_producer_id(entry.metadata) else -1


_WORTH_WAITING = (ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.CONCURRENT_TRANSACTIONS)


def _check_whole(producer_id: int, producer_epoch: int) -> None:
    """Raises KafkaError for a producer id without an epoch, or the other way round."""
    if (producer_id < 0) != (producer_epoch < 0):
        text = f"producer id {producer_id} and epoch {producer_epoch}: both or none are needed"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
