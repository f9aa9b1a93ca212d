"""The rules of compaction: which keys are superseded, which transactions count, what of a batch stays. Pure.

A run first maps each key of the part that is not compacted yet to its last offset, without aborted data. Then
it goes through the log from its start, oldest batch first:

| batch                                    | what stays                                             |
|------------------------------------------|--------------------------------------------------------|
| data of an aborted transaction           | nothing                                                |
| other data                               | records that are the last of their key, or not mapped  |
| - a tombstone among them                 | until the batch's delete horizon has passed            |
| - a record without a key                 | never                                                  |
| end marker, data of its transaction seen | all                                                    |
| end marker, none seen                    | until its delete horizon has passed                    |

The delete horizon (KIP-534) is set the first time that a run keeps a tombstone or meets a marker without
data: delete.retention.ms from then on. A batch that keeps no record is dropped, unless it is the last one of
its producer (its sequence must be known), the last one below the high watermark, or the last one of its
segment: then its header stays. The last of these is not in Kafka: here segments follow each other without a
gap, so that recovery notices a lost segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from eoslog.broker.rules.producer_state import AbortedTransaction
from eoslog.protocol.batch import BatchHeader
from eoslog.protocol.control import ABORT, COMMIT

ENTRY_BYTES = 200
"""Memory that one key of the map takes, about: a digest, an offset, and their place in a table."""


def digest(key: bytes) -> bytes:
    """The 16 bytes that represent a key in the map; enough that no two keys ever share them."""
    return blake2b(key, digest_size=16).digest()


class KeyMap:
    """The last offset of each key, up to `latest`, for as many keys as there is memory for."""

    def __init__(self, memory: int) -> None:
        """`memory` in bytes."""
        self._most = max(1, memory // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        self.latest = -1
        """All records up to this offset are in the map."""

    def add(self, keys: Iterable[bytes | None], offsets: Iterable[int]) -> bool:
        """Add records in the order of the log. False: the map is full, and `latest` is the last one in it."""
        known = self._offsets
        for key, offset in zip(keys, offsets, strict=True):
            if key is not None:
                name = digest(key)
                if len(known) >= self._most and name not in known:
                    return False
                known[name] = offset
            self.latest = offset
        return True

    def superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record of the key is known."""
        return self._offsets.get(digest(key), -1) > offset

    def __len__(self) -> int:
        return len(self._offsets)


class _Open:
    """An aborted transaction whose marker is still to come."""

    def __init__(self, entry: AbortedTransaction) -> None:
        self.entry = entry
        self.seen = False  # whether a batch of its data is in the log

    def reaches(self, header: BatchHeader) -> bool:
        """Whether a batch or marker of its producer is of this transaction: none comes behind its marker."""
        return header.base_offset <= self.entry.last_offset


class TransactionEndings:
    """Knows how each transaction ended, while a run goes through the log in order, from any place on.

    An aborted one reaches up to its marker's offset, whether the run comes by that marker or not.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: the entries of all transaction indexes."""
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, _Open] = {}
        self._committed: set[int] = set()

    def _begin(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborted[entry.producer_id] = _Open(entry)  # the one before has ended

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None or not found.reaches(header):
            self._committed.add(header.producer_id)
            return False
        found.seen = True
        return True

    def end(self, header: BatchHeader, kind: int) -> tuple[bool, AbortedTransaction | None]:
        """Whether no data of its transaction was in the log, and the entry for the new index, if any."""
        self._begin(header.last_offset)
        pid = header.producer_id
        if kind == ABORT:
            found = self._aborted.pop(pid, None)
            if found is None or not found.seen or not found.reaches(header):
                return True, None
            return False, found.entry
        if kind == COMMIT:
            seen = pid in self._committed
            self._committed.discard(pid)
            return not seen, None
        return False, None


class LastBatch(NamedTuple):
    """A producer's last batch: its last offset, or -1 if only a marker of `epoch` is known."""

    offset: int
    epoch: int


class CleaningFacts(NamedTuple):
    """What a run knows about its log. Times in ms."""

    now_ms: int
    delete_retention_ms: int
    high_watermark: int
    producers: dict[int, LastBatch]

    def must_stay(self, header: BatchHeader, last_of_segment: bool) -> bool:
        """Whether the header of this batch must stay even if no record does."""
        if last_of_segment or header.next_offset == self.high_watermark:
            return True
        last = self.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def expired(self, header: BatchHeader) -> bool:
        """Whether the delete horizon of a batch has passed."""
        return header.has_delete_horizon and header.base_timestamp <= self.now_ms

    @property
    def horizon(self) -> int:
        """The delete horizon for a batch that gets one in this run."""
        return self.now_ms + self.delete_retention_ms


def survivors(
    keys: Sequence[bytes | None],
    offsets: Sequence[int],
    is_tombstone: Sequence[bool],
    without_tombstones: bool,
    superseded: Callable[[bytes, int], bool],
    latest: int,
) -> list[bool]:
    """Whether each record of a batch stays."""
    return [
        offset > latest
        or (key is not None and not (tombstone and without_tombstones) and not superseded(key, offset))
        for key, offset, tombstone in zip(keys, offsets, is_tombstone, strict=True)
    ]
