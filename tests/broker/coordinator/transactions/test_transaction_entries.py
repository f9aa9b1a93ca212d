"""The table of transactional ids: who is active, and who owns a producer's transaction."""

from __future__ import annotations

from dataclasses import replace

from eoslog.broker.coordinator.transactions.transaction_entries import TransactionEntries, TransactionEntry
from eoslog.broker.coordinator.transactions.transaction_state import (
    TV2,
    TransactionMetadata,
    TransactionState,
    complete,
    prepare,
)

A, B = ("a", 0), ("b", 0)
EMPTY = TransactionMetadata("x", 7, 1000, 1, producer_epoch=32766)
OPEN = replace(EMPTY, state=TransactionState.ONGOING, partitions=frozenset({A}), start_ms=1)


def active(entries: TransactionEntries) -> list[str]:
    return [entry.id for entry in entries.active()]


def test_a_life() -> None:
    """From rest to open, prepared, complete under a new producer id, and forgotten."""
    entries, entry = TransactionEntries(), TransactionEntry("x")
    entries.add(entry)
    assert (entries.get("x"), len(entries), active(entries)) == (entry, 1, [])
    entries.take_over(entry, EMPTY)
    assert (active(entries), entries.owner_of(7, A)) == ([], None)
    entries.take_over(entry, OPEN)
    assert (active(entries), entries.owner_of(7, A)) == (["x"], "x")
    assert entries.owner_of(7, B) is None, "a partition that is not in it"
    assert entries.owner_of(8, A) is None
    prepared = prepare(OPEN, TransactionState.PREPARE_COMMIT, TV2, 2, 9)
    entries.take_over(entry, prepared)
    assert (active(entries), entries.owner_of(7, A)) == (["x"], "x")
    done = complete(prepared, 3)
    assert done.holder == (9, 0)
    entries.take_over(entry, done)
    assert (active(entries), entries.owner_of(7, A), entries.owner_of(9, A)) == ([], None, None)
    entries.forget(entry)
    assert (entries.get("x"), len(entries), list(entries), entry.metadata) == (None, 0, [], None)


def test_a_kept_transaction_belongs_to_its_writer() -> None:
    entries, entry = TransactionEntries(), TransactionEntry("x")
    entries.take_over(entry, replace(OPEN, next_producer_id=9, next_producer_epoch=0))
    assert (entries.owner_of(7, A), entries.owner_of(9, A)) == ("x", None)


def test_who_was_made_anew_is_not_forgotten_with_the_old_one() -> None:
    entries, old, new = TransactionEntries(), TransactionEntry("x"), TransactionEntry("x")
    entries.take_over(old, EMPTY)
    entries.add(new)
    entries.forget(old)
    assert entries.get("x") is new
