"""The rules of committed offsets: what a marker settles, what a fetch shows, who may commit; and any order
of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroup, ClassicGroupState
from eoslog.broker.coordinator.groups.committed_offsets import (
    NO_TOPIC_ID,
    NOTHING,
    Committed,
    Committer,
    Fetched,
    OffsetStore,
    fetch,
    metadata_fits,
    validate_commit,
)
from eoslog.broker.coordinator.groups.group_records import (
    OffsetRecord,
    decode,
    encode_offset,
    encode_offset_tombstone,
)
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.plain_records import Record
from eoslog.protocol.topic_partitions import TopicPartition
from tests.broker.coordinator.groups.groupkit import ClassicBench

P = ("t", 0)
Q = ("t", 1)


def at(record_offset: int, offset: int = 0, topic_id: bytes = NO_TOPIC_ID) -> Committed:
    return Committed(offset or record_offset * 10, 3, "m", 0, record_offset, topic_id)


def test_a_transactional_offset_shows_when_its_commit_marker_comes() -> None:
    store = OffsetStore()
    store.replay_commit("g", P, at(0), None)
    store.replay_commit("g", P, at(1), 7)
    assert store.get("g", P) == at(0)
    assert fetch(store, "g", P, None, require_stable=False) == Fetched(0, 3, "m")
    assert fetch(store, "g", P, None, require_stable=True) == Fetched(error=E.UNSTABLE_OFFSET_COMMIT)
    store.replay_marker(8, True)
    assert store.unstable("g", P)
    store.replay_marker(7, True)
    assert fetch(store, "g", P, None, require_stable=True) == Fetched(10, 3, "m")


def test_an_abort_drops_what_was_pending() -> None:
    store = OffsetStore()
    store.replay_commit("g", P, at(1), 7)
    store.replay_marker(7, False)
    assert fetch(store, "g", P, None, require_stable=True) == NOTHING
    store.replay_marker(7, True)
    assert store.get("g", P) is None, "a later transaction's marker brought back an aborted offset"
    assert not store.holds("g")


def test_a_plain_commit_during_the_transaction_is_newer_than_its_offset() -> None:
    store = OffsetStore()
    store.replay_commit("g", P, at(1), 7)
    store.replay_commit("g", Q, at(2), 7)
    store.replay_commit("g", P, at(3), None)
    store.replay_marker(7, True)
    assert store.get("g", P) == at(3)
    assert store.get("g", Q) == at(2)


def test_two_transactions_settle_by_their_records_not_by_their_markers() -> None:
    store = OffsetStore()
    store.replay_commit("g", P, at(1), 7)
    store.replay_commit("g", P, at(2), 8)
    store.replay_marker(8, True)
    assert store.unstable("g", P), "the other one is still open"
    store.replay_marker(7, True)
    assert store.get("g", P) == at(2)
    assert not store.unstable("g", P)


def test_a_tombstone_takes_the_pending_offsets_of_its_place_too() -> None:
    store = OffsetStore()
    store.replay_commit("g", P, at(1), None)
    store.replay_commit("g", P, at(2), 7)
    store.replay_commit("g", Q, at(3), 7)
    store.replay_tombstone("g", P)
    store.replay_tombstone("other", P)
    store.replay_marker(7, True)
    assert store.get("g", P) is None
    assert store.get("g", Q) == at(3)
    store.replay_tombstone("g", Q)
    assert not store.holds("g")
    assert store.groups() == set()


def test_all_places_include_those_that_are_only_pending() -> None:
    store = OffsetStore()
    store.replay_commit("g", Q, at(1), None)
    store.replay_commit("g", P, at(2), 7)
    store.replay_commit("h", ("u", 0), at(3), 7)
    assert store.places("g") == [P, Q]
    assert store.of_topic("t") == {("g", P), ("g", Q)}
    assert store.of_topic("u") == {("h", ("u", 0))}
    assert store.groups() == {"g", "h"}


@pytest.mark.parametrize(
    ("committed", "present", "shown"),
    [
        (b"A" * 16, b"A" * 16, True),
        (b"A" * 16, b"B" * 16, False),
        (b"A" * 16, None, True),
        (NO_TOPIC_ID, b"B" * 16, True),
    ],
)
def test_an_offset_of_an_older_topic_of_the_same_name_is_not_shown(
    committed: bytes, present: bytes | None, shown: bool
) -> None:
    store = OffsetStore()
    store.replay_commit("g", P, at(1, topic_id=committed), None)
    assert (fetch(store, "g", P, present, require_stable=True) != NOTHING) == shown


# Who may commit

EMPTY, DEAD = ClassicGroup("g", generation=4), ClassicGroup("g", state=ClassicGroupState.DEAD)
SIMPLE = Committer("g")
ADMIN_WITH_ID = Committer("g", member_id="m")


def committer(member: str = "a", generation: int = 1, instance: str | None = None) -> Committer:
    return Committer("g", member, instance, generation)


@pytest.mark.parametrize(
    ("group", "who", "plain", "transactional"),
    [
        (None, SIMPLE, E.NONE, E.NONE),
        (EMPTY, SIMPLE, E.NONE, E.NONE),
        (EMPTY, ADMIN_WITH_ID, E.NONE, E.NONE),
        (None, committer("", 0), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
        (EMPTY, committer("", 4), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
        (EMPTY, committer("m", 4), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
        (DEAD, SIMPLE, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE),
        (None, Committer(""), E.NONE, E.INVALID_GROUP_ID),
    ],
)
def test_groups_without_members(
    group: ClassicGroup | None, who: Committer, plain: E, transactional: E
) -> None:
    assert validate_commit(group, who, transactional=False) is plain
    assert validate_commit(group, who, transactional=True) is transactional


@pytest.mark.parametrize(
    ("who", "plain", "transactional"),
    [
        (committer(), E.NONE, E.NONE),
        (committer("x"), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
        (committer(""), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
        (committer(generation=0), E.ILLEGAL_GENERATION, E.ILLEGAL_GENERATION),
        (committer(generation=2), E.ILLEGAL_GENERATION, E.ILLEGAL_GENERATION),
        (committer(generation=-1), E.ILLEGAL_GENERATION, E.ILLEGAL_GENERATION),
        (committer(instance="i"), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
        (SIMPLE, E.UNKNOWN_MEMBER_ID, E.NONE),
    ],
)
def test_a_group_with_members(who: Committer, plain: E, transactional: E) -> None:
    group = ClassicBench().stable("a", "b").group
    assert validate_commit(group, who, transactional=False) is plain
    assert validate_commit(group, who, transactional=True) is transactional


def test_a_static_member_s_older_process_is_fenced() -> None:
    group = ClassicBench().stable("a").group
    group.members["a"] = replace(group.members["a"], instance_id="i")
    assert validate_commit(group, committer("old", 1, "i"), transactional=False) is E.FENCED_INSTANCE_ID
    assert validate_commit(group, committer("a", 1, "i"), transactional=False) is E.NONE


@pytest.mark.parametrize(
    ("state", "plain"),
    [(ClassicGroupState.PREPARING, E.NONE), (ClassicGroupState.COMPLETING, E.REBALANCE_IN_PROGRESS)],
)
def test_commits_during_a_rebalance(state: ClassicGroupState, plain: E) -> None:
    group = ClassicBench().stable("a").group
    group.state = state
    assert validate_commit(group, committer(), transactional=False) is plain
    assert validate_commit(group, committer(), transactional=True) is E.NONE


@pytest.mark.parametrize(
    ("metadata", "fits"),
    [
        (None, True),
        ("", True),
        ("x" * 4096, True),
        ("x" * 4097, False),
        ("é" * 4096, True),
        ("\N{GRINNING FACE}" * 2048, True),
        ("\N{GRINNING FACE}" * 2048 + "x", False),
        ("\ud800" * 4096, True),
    ],
)
def test_metadata_is_measured_in_utf16_units(metadata: str | None, fits: bool) -> None:
    assert metadata_fits(metadata, 4096) is fits


# -- any order -----------------------------------------------------------------------------------
# Any order of commits, transactional commits, markers, tombstones: against a model that keeps the log.
#
# The model remembers every record in a list and, asked, reads the list from its start: the committed value of
# a place is that of the newest record (by its offset in the log) that is plain or whose transaction has
# committed, unless a tombstone came after it. Pending values are never seen.

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
