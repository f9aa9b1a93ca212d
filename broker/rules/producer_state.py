"""What one partition knows of its producers, and which batches it accepts from them. Pure.

Idempotence (KIP-98, KIP-360): the last five batches of every producer id are remembered, so a batch that is
sent twice is answered with its first offset. Transactions: which are open and since which offset, up to where
all are decided (the last stable offset), and which were aborted.

`check*` decides and changes nothing; `apply*` records what is in the log. The write comes between the two, so
a failed write leaves no trace here. Recovery only applies.

| batch from a client                            | answer                        |
|------------------------------------------------|-------------------------------|
| one of the last five, same epoch               | duplicate: its first offset   |
| the same, of a transaction that has ended      | OUT_OF_ORDER_SEQUENCE_NUMBER  |
| epoch below the known one                      | INVALID_PRODUCER_EPOCH        |
| epoch above the known one, sequence not 0      | OUT_OF_ORDER_SEQUENCE_NUMBER  |
| producer not known                             | taken (see `from_zero`)       |
| the same, after the disk refused its first one | taken if it is that one       |
| not the sequence that follows                  | OUT_OF_ORDER_SEQUENCE_NUMBER  |
| outside of a transaction while one is open     | INVALID_TXN_STATE             |

The second line is stricter than Kafka. When a correct client ends a transaction, every batch of it has been
answered or given up. So what it sends afterwards is new, even with old sequences: after an abort librdkafka
uses the sequences of dropped batches again, at the same epoch. If such a batch were taken for a duplicate,
the rows of the next transaction would be acknowledged and lost. Refused, the client gets a new epoch and
resends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from eoslog.protocol import sequence
from eoslog.protocol.batch import BatchHeader
from eoslog.protocol.errors import ErrorCode, KafkaError

RETAINED = 5  # batches that a producer may have in flight, and so may send again (KIP-98)
MOST_DUE = 1000  # how many producers are remembered whose first batch could not be written
NO_EPOCH = -1
MAX_EPOCH = 2**15 - 1
BUMPS_SINCE = 2  # from this transaction.version on a marker has a higher epoch than its records (KIP-890)


class Written(NamedTuple):
    """A batch that is in the log: its sequences (-1 if it has none) and offsets, both ends inclusive."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int

    def ended(self) -> Written:
        """What remains after its transaction: the last sequence. The batch cannot be repeated any more."""
        return Written(sequence.NO_SEQUENCE, self.last_sequence, self.last_offset + 1, self.last_offset)


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as the transaction index has it; `last_offset` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(slots=True)
class ProducerState:
    """What is known of one producer id on one partition."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = -1  # the broker's clock at its last write, ms
    transaction_start: int = -1  # first offset of its open transaction, -1 if none
    batches: deque[Written] = field(default_factory=lambda: deque(maxlen=RETAINED))

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 if none is known."""
        return self.batches[-1].last_sequence if self.batches else sequence.NO_SEQUENCE


class ProducerStates:
    """All producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerState] = {}
        # producer id -> first offset, in the order in which transactions began: the oldest is first.
        self._open: dict[int, int] = {}
        # (first offset, offset of the marker) of transactions whose marker may not be durable yet
        self._decided: deque[tuple[int, int]] = deque()
        # producer id -> epoch and sequence of the first batch, which the disk refused
        self._due: dict[int, tuple[int, int]] = {}

    # -- batches -------------------------------------------------------------------------------

    def check(
        self, header: BatchHeader, *, coordinator: bool = False, from_zero: bool = False
    ) -> Written | None:
        """Check a batch with a producer id before it is written.

        Returns the earlier batch if this one is a duplicate, else None: write it. With `coordinator` the
        batch is the broker's own, and its sequence is not checked. With `from_zero` an unknown producer must
        begin with sequence 0: under KIP-890 every transaction has its own epoch, so any other sequence means
        that a batch was lost on the way. Raises KafkaError by the table in the module's head.
        """
        state = self._producers.get(header.producer_id)
        if state is None:
            if from_zero and header.base_sequence != 0:
                raise _out_of_order(header, 0)
            epoch, first = self._due.get(header.producer_id, (header.producer_epoch, header.base_sequence))
            if not coordinator and epoch == header.producer_epoch and first != header.base_sequence:
                raise _out_of_order(header, first)
            return None
        epoch = header.producer_epoch
        if not coordinator and epoch == state.epoch:
            last = header.last_sequence
            for batch in state.batches:
                if 0 <= batch.first_sequence == header.base_sequence and batch.last_sequence == last:
                    return batch
        _check_epoch(state, epoch)
        if not coordinator:
            _check_sequence(state, header)
        if state.transaction_start >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {state.producer_id} wrote outside of its transaction, open here since offset "
                f"{state.transaction_start}; end the transaction first",
            )
        return None

    def not_written(self, header: BatchHeader) -> None:
        """Note that a batch which `check` accepted could not be written.

        If it is the first batch of its producer, later ones are already on their way. They must not be
        accepted before it, although an unknown producer's batches are accepted with any sequence.
        """
        pid = header.producer_id
        if pid not in self._producers and header.base_sequence >= 0:
            self._due[pid] = (header.producer_epoch, header.base_sequence)
            if len(self._due) > MOST_DUE:
                del self._due[next(iter(self._due))]

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raises KafkaError INVALID_PRODUCER_EPOCH for an epoch below the known one."""
        state = self._producers.get(producer_id)
        if state is not None:
            _check_epoch(state, epoch)

    def apply(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Record a data batch with a producer id that is in the log at `base_offset`."""
        pid = header.producer_id
        state = self._producers.get(pid)
        if state is None:
            state = self._producers[pid] = ProducerState(pid)
            self._due.pop(pid, None)
        _set_epoch(state, header.producer_epoch)
        state.last_timestamp = now_ms
        if header.base_sequence >= 0:
            last = base_offset + header.last_offset_delta
            state.batches.append(Written(header.base_sequence, header.last_sequence, base_offset, last))
        if header.is_transactional and state.transaction_start < 0:
            state.transaction_start = self._open[pid] = base_offset

    # -- markers -------------------------------------------------------------------------------

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int = 0
    ) -> None:
        """Check the end marker of a transaction before it is written.

        A marker may come twice: after a restart a coordinator does not know which markers it wrote. Where
        every end bumps the epoch (`transaction_version` 2, KIP-1228), a marker at the epoch of the open
        transaction is a late one of the transaction before.
        Raises KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        state = self._producers.get(producer_id)
        if state is None:
            return
        _check_epoch(state, epoch)
        late = transaction_version >= BUMPS_SINCE and epoch == state.epoch and epoch < MAX_EPOCH
        if late and state.transaction_start >= 0:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker for producer {producer_id} epoch {epoch} cannot end what was written at that "
                f"epoch from offset {state.transaction_start} on: it belongs to an earlier transaction",
            )
        if coordinator_epoch < state.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker for producer {producer_id} comes from coordinator epoch {coordinator_epoch}, "
                f"but epoch {state.coordinator_epoch} has written here already",
            )

    def apply_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, commit: bool, offset: int, now_ms: int
    ) -> AbortedTransaction | None:
        """Record an end marker that is in the log at `offset`. Returns its entry of the transaction index."""
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = ProducerState(producer_id)
        _set_epoch(state, epoch)
        state.coordinator_epoch = coordinator_epoch
        state.last_timestamp = now_ms
        if state.batches:
            last = state.batches[-1].ended()
            state.batches.clear()
            state.batches.append(last)
        first, state.transaction_start = state.transaction_start, -1
        if first < 0:
            return None
        del self._open[producer_id]
        self._decided.append((first, offset))
        return (
            None if commit else AbortedTransaction(producer_id, first, offset, self._oldest_open(offset + 1))
        )

    # -- transactions --------------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: int) -> int:
        """The first offset whose outcome is undecided: read_committed readers stop before it.

        A transaction counts as open until its marker is below `high_watermark`; until then a crash could undo
        the decision.
        """
        stable = self._oldest_open(high_watermark)
        if self._decided:
            while self._decided and self._decided[0][1] < high_watermark:
                self._decided.popleft()
            for first, _ in self._decided:
                stable = min(stable, first)
        return min(stable, high_watermark)

    def _oldest_open(self, otherwise: int) -> int:
        for first in self._open.values():
            return first
        return otherwise

    def ongoing(self, producer_id: int) -> int | None:
        """First offset of the producer's open transaction, None if it has none."""
        return self._open.get(producer_id)

    def open_transactions(self) -> list[tuple[int, int]]:
        """(producer id, first offset) of all open transactions, the oldest first."""
        return list(self._open.items())

    # -- the table -----------------------------------------------------------------------------

    def get(self, producer_id: int) -> ProducerState | None:
        """The state of one producer, None if it is not known."""
        return self._producers.get(producer_id)

    def all(self) -> list[ProducerState]:
        """The states of all producers."""
        return list(self._producers.values())

    def load(self, states: Iterable[ProducerState]) -> None:
        """Replace everything by the states of a snapshot."""
        self._producers = {state.producer_id: state for state in states}
        begun = sorted((s.transaction_start, s.producer_id) for s in self.all() if s.transaction_start >= 0)
        self._open = {pid: first for first, pid in begun}
        self._decided.clear()

    def expire(self, now_ms: int, idle_ms: int) -> list[int]:
        """Forget producers without an open transaction that were idle for `idle_ms`; returns their ids."""
        old = [
            state.producer_id
            for state in self._producers.values()
            if state.transaction_start < 0 and now_ms - state.last_timestamp >= idle_ms
        ]
        for pid in old:
            del self._producers[pid]
        return old


def _check_epoch(state: ProducerState, epoch: int) -> None:
    if epoch < state.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {state.producer_id} wrote with epoch {epoch}, but epoch {state.epoch} is known here: "
            f"a newer instance of it, or the coordinator, has taken over",
        )


def _check_sequence(state: ProducerState, header: BatchHeader) -> None:
    new_epoch = header.producer_epoch != state.epoch
    expected = 0 if new_epoch or not state.batches else sequence.next_sequence(state.last_sequence)
    if header.base_sequence != expected:
        raise _out_of_order(header, expected)


def _out_of_order(header: BatchHeader, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence "
        f"{header.base_sequence}, expected {expected}",
    )


def _set_epoch(state: ProducerState, epoch: int) -> None:
    if epoch != state.epoch:
        state.epoch = epoch
        state.batches.clear()
