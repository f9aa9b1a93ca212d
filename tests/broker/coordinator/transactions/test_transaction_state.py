"""Transactional ids as they are kept: records of `__transaction_state`, their partition, the table in
memory.
"""

from __future__ import annotations

from dataclasses import replace
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.broker.coordinator.transactions.transaction_journal import (
    TransactionEntries,
    TransactionEntry,
    decode,
    encode,
    encode_forgotten,
)
from eoslog.broker.coordinator.transactions.transaction_state import (
    NEVER_PERSISTED,
    TV1,
    TV2,
    TransactionMetadata,
    TransactionState,
    complete,
    prepare,
    remembered_epoch,
)
from eoslog.protocol.internal_topics.coordinator_records import java_string_hash, partition_of
from eoslog.protocol.plain_records import Record
from eoslog.protocol.schema import ProtocolError

# -- records -------------------------------------------------------------------------------------
# Records of `__transaction_state`, byte by byte as Kafka's definition of them has it, and there and back.


def test_an_empty_id() -> None:
    known = TransactionMetadata("ab", 7, 60_000, 1234, producer_epoch=3, previous_producer_id=7)
    key, value = encode(known)
    assert key == pack(">hh2s", 0, 2, b"ab")
    tagged = b"\x01" + b"\x00\x08" + pack(">q", 7)  # one tagged field: 0, 8 bytes, the previous producer id
    assert value == pack(">hqhib", 1, 7, 3, 60_000, 0) + b"\x00" + pack(">qq", 1234, -1) + tagged


def test_a_decision_under_tv2_with_a_new_producer_id() -> None:
    known = TransactionMetadata(
        "x", 7, 60_000, 1234, producer_epoch=32767, previous_producer_id=7, next_producer_id=9,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset({("b", 1), ("a", 2), ("b", 0)}), start_ms=1200,
        client_version=TV2,
    )  # fmt: skip
    topics = b"\x03" + b"\x02a\x02" + pack(">i", 2) + b"\x00" + b"\x02b\x03" + pack(">ii", 0, 1) + b"\x00"
    tagged = b"\x03" + b"\x00\x08" + pack(">q", 7) + b"\x01\x08" + pack(">q", 9) + b"\x02\x02" + pack(">h", 2)
    value = pack(">hqhib", 1, 7, 32767, 60_000, 2) + topics + pack(">qq", 1234, 1200) + tagged
    assert encode(known)[1] == value


def test_a_kept_transaction() -> None:
    """KIP-939: the holder is in the tagged fields 1 and 3, the writer where an older broker looks for it."""
    known = TransactionMetadata(
        "x", 7, 2**31 - 1, 1234, producer_epoch=4, previous_producer_id=7, next_producer_id=7,
        next_producer_epoch=6, state=TransactionState.ONGOING,
        partitions=frozenset({("a", 2)}), start_ms=1200,
        client_version=TV2,
    )  # fmt: skip
    topics = b"\x02" + b"\x02a\x02" + pack(">i", 2) + b"\x00"
    tagged = b"\x04" + b"\x00\x08" + pack(">q", 7) + b"\x01\x08" + pack(">q", 7)
    tagged += b"\x02\x02" + pack(">h", 2) + b"\x03\x02" + pack(">h", 6)
    value = pack(">hqhib", 1, 7, 4, 2**31 - 1, 1) + topics + pack(">qq", 1234, 1200) + tagged
    key, encoded = encode(known)
    assert encoded == value
    decoded = decode(Record(0, 0, key, value, []))
    assert decoded == ("x", known)


def test_an_expired_id() -> None:
    assert encode_forgotten("ab") == (pack(">hh2s", 0, 2, b"ab"), None)


def test_a_tv1_client_leaves_no_version() -> None:
    known = TransactionMetadata(
        "x", 7, 1, 2, producer_epoch=0, state=TransactionState.COMPLETE_ABORT, start_ms=2
    )
    assert known.client_version == TV1
    assert encode(known)[1] == pack(">hqhib", 1, 7, 0, 1, 5) + b"\x01" + pack(">qq", 2, 2) + b"\x00"


int64 = st.integers(0, 2**63 - 1)
metadata = st.builds(
    TransactionMetadata,
    st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()),
    int64,
    st.integers(1, 2**31 - 1),
    int64,
    producer_epoch=st.integers(0, 2**15 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_epoch=st.integers(-1, 2**15 - 1),
    state=st.sampled_from(
        [state for state in TransactionState if state not in NEVER_PERSISTED | {TransactionState.EMPTY}]
    ),
    partitions=st.frozensets(st.tuples(st.sampled_from(["a", "b", "long.name"]), st.integers(0, 9))),
    start_ms=st.integers(-1, 2**63 - 1),
    client_version=st.sampled_from([TV1, TV2]),
)


@given(metadata)
def test_there_and_back(known: TransactionMetadata) -> None:
    key, value = encode(known)
    expected = replace(known, last_epoch=remembered_epoch(known.state, known.holder[1], known.client_version))
    assert decode(Record(0, 0, key, value, [])) == (known.transactional_id, expected)
    assert decode(Record(0, 0, key, None, [])) == (known.transactional_id, None)


@pytest.mark.parametrize("state", sorted(NEVER_PERSISTED))
def test_passing_states_are_never_written(state: TransactionState) -> None:
    with pytest.raises(ValueError, match="never persisted"):
        encode(TransactionMetadata("x", 1, 1, 1, producer_epoch=0, state=state))


def test_a_record_without_a_key() -> None:
    with pytest.raises(ProtocolError, match="without a key"):
        decode(Record(0, 0, None, b"", []))


# -- the partition of an id ----------------------------------------------------------------------
# Java's string hash and the partition made from it. The values are those that a JVM gives.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello world", 1794106052),
        ("polygenelubricants", -(2**31)),
        ("q-0.1-0-3-17", -2034552461),
        ("fl\u00fcge-\u2708", -636052529),
        ("\U0001f600", 1772899),  # one character, two UTF-16 units
    ],
)
def test_java_string_hash(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_partition_is_the_absolute_value_not_the_low_bits() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    negative = next(f"id-{i}" for i in range(1000) if java_string_hash(f"id-{i}") < 0)
    assert partition_of(negative, 50) == -java_string_hash(negative) % 50


# -- the table -----------------------------------------------------------------------------------
# The table of transactional ids: who is active, and who owns a producer's transaction.

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
