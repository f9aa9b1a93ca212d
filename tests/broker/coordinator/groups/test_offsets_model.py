"""Any order of commits, transactional commits, markers, tombstones: against a model that keeps the log.

The model remembers every record in a list and, asked, reads the list from its start: the committed value of
a place is that of the newest record (by its offset in the log) that is plain or whose transaction has
committed, unless a tombstone came after it. Pending values are never seen.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.broker.coordinator.groups.committed_offsets import Committed, OffsetStore, fetch
from eoslog.broker.coordinator.groups.group_records import (
    OffsetRecord,
    decode,
    encode_offset,
    encode_offset_tombstone,
)
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.plain_records import Record
from eoslog.protocol.topic_partitions import TopicPartition

GROUPS = ("g", "h")
PLACES: tuple[TopicPartition, ...] = (("t", 0), ("t", 1), ("u", 0))
PRODUCERS = (1, 2, 3)


class Commit(NamedTuple):
    group: str
    place: TopicPartition
    producer: int | None


class Tombstone(NamedTuple):
    group: str
    place: TopicPartition


class Marker(NamedTuple):
    producer: int
    commit: bool


Entry = Commit | Tombstone | Marker

groups, places = st.sampled_from(GROUPS), st.sampled_from(PLACES)
entries = st.lists(
    st.one_of(
        st.builds(Commit, groups, places, st.one_of(st.none(), st.sampled_from(PRODUCERS))),
        st.builds(Marker, st.sampled_from(PRODUCERS), st.booleans()),
        st.builds(Tombstone, groups, places),
    ),
    max_size=30,
)


def model(log: list[Entry], group: str, place: TopicPartition) -> tuple[int | None, bool]:
    """(record offset of the committed value or None, whether a transaction has one pending)."""
    newest: int | None = None
    pending = False
    for offset, entry in enumerate(log):
        if not isinstance(entry, Commit) or (entry.group, entry.place) != (group, place):
            continue
        if any(isinstance(e, Tombstone) and (e.group, e.place) == (group, place) for e in log[offset:]):
            continue
        if entry.producer is not None:
            markers = (e for e in log[offset:] if isinstance(e, Marker))
            end = next((marker for marker in markers if marker.producer == entry.producer), None)
            if end is None:
                pending = True
                continue
            if not end.commit:
                continue
        newest = offset
    return newest, pending


def value(offset: int) -> Committed:
    return Committed(offset + 1000, offset, f"m{offset}", offset, offset, bytes([offset] * 16))


def replay(log: list[Entry]) -> OffsetStore:
    """Replay through the records' bytes, as after a restart."""
    store = OffsetStore()
    for offset, entry in enumerate(log):
        if isinstance(entry, Marker):
            store.replay_marker(entry.producer, entry.commit)
            continue
        if isinstance(entry, Commit):
            key, data = encode_offset(entry.group, entry.place, value(offset))
        else:
            key, data = encode_offset_tombstone(entry.group, entry.place)
        record = decode(Record(offset, 0, key, data, []))
        assert isinstance(record, OffsetRecord)
        if record.value is None:
            store.replay_tombstone(record.group_id, record.place)
        else:
            assert isinstance(entry, Commit)
            store.replay_commit(record.group_id, record.place, record.value, entry.producer)
    return store


@settings(max_examples=400, deadline=None, derandomize=True)
@given(entries)
def test_the_store_says_what_the_whole_log_says(log: list[Entry]) -> None:
    store = replay(log)
    held = set()
    for group in GROUPS:
        for place in PLACES:
            newest, pending = model(log, group, place)
            expected = None if newest is None else value(newest)
            assert store.get(group, place) == expected
            assert store.unstable(group, place) is pending
            assert (place in store.places(group)) is (newest is not None or pending)
            if newest is not None or pending:
                held.add(group)
            loose = fetch(store, group, place, None, require_stable=False)
            assert loose.offset == (-1 if newest is None else newest + 1000)
            strict = fetch(store, group, place, None, require_stable=True)
            assert strict == loose or (pending and strict.error is ErrorCode.UNSTABLE_OFFSET_COMMIT)
            assert (strict.error is ErrorCode.UNSTABLE_OFFSET_COMMIT) is pending
    assert store.groups() == held
