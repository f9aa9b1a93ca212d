"""The rules of committed offsets: what a marker settles, what a fetch shows, who may commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
from eoslog.protocol.errors import ErrorCode as E
from tests.broker.coordinator.groups.group_events import ClassicBench

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
