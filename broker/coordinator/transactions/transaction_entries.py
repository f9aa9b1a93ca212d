"""All transactional ids of the broker, and which of them have an unfinished transaction.

Frequent look-ups (time-outs, the owner of a producer id) look only at the ids with an open or prepared
transaction: there may be many thousands of ids at rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.broker.coordinator.transactions.transaction_entry import TransactionEntry
from eoslog.broker.rules.transactions.transaction_state import AT_REST, TransactionMetadata


class TransactionEntries:
    """The table of transactional ids. `active` are those whose transaction is open or prepared."""

    def __init__(self) -> None:
        self._by_id: dict[str, TransactionEntry] = {}
        self._active: dict[str, TransactionEntry] = {}
        # Producer id of each active one's transaction; no two transactional ids ever share one.
        self._owners: dict[int, TransactionEntry] = {}
        self._holders: dict[int, TransactionEntry] = {}  # by producer id, all

    def __iter__(self) -> Iterator[TransactionEntry]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, transactional_id: str) -> TransactionEntry | None:
        """The entry of an id, None if there is none."""
        return self._by_id.get(transactional_id)

    def active(self) -> list[TransactionEntry]:
        """The ids with an open or prepared transaction: a copy, so that changes may start meanwhile."""
        return list(self._active.values())

    def add(self, entry: TransactionEntry) -> None:
        """Set the id's entry. Nothing of it needs to be durable yet."""
        self._by_id[entry.id] = entry

    def take_over(self, entry: TransactionEntry, metadata: TransactionMetadata) -> None:
        """Set the durable state of an id."""
        self._retire(entry)
        entry.take_over(metadata)
        self._by_id[entry.id] = entry
        self._holders[metadata.producer_id] = entry
        if metadata.state not in AT_REST:
            self._active[entry.id] = self._owners[metadata.producer_id] = entry

    def forget(self, entry: TransactionEntry) -> None:
        """Remove an id. A request that still waits for the entry finds it empty."""
        self._retire(entry)
        entry.metadata = None
        if self._by_id.get(entry.id) is entry:
            del self._by_id[entry.id]

    def _retire(self, entry: TransactionEntry) -> None:
        known = entry.metadata
        if known is None:
            return
        self._holders.pop(known.producer_id, None)
        if self._active.pop(entry.id, None) is not None:
            self._owners.pop(known.producer_id, None)

    def epoch_of(self, producer_id: int) -> int | None:
        """The newest epoch of a producer id; None if it belongs to no transactional id."""
        entry = self._holders.get(producer_id)
        return None if entry is None or entry.metadata is None else entry.metadata.producer_epoch

    def owner_of(self, producer_id: int, place: tuple[str, int]) -> str | None:
        """The id whose open or prepared transaction this producer has on the (topic, partition)."""
        entry = self._owners.get(producer_id)
        if entry is None or entry.metadata is None or place not in entry.metadata.partitions:
            return None
        return entry.id
