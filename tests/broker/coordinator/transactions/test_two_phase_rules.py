"""KIP-939's rules, line by line: who may ask, keeping, ending what was kept, its epochs and its time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eoslog.broker.coordinator.transactions import transaction as rules
from eoslog.broker.coordinator.transactions.transaction import EndRequest, end_txn
from eoslog.broker.coordinator.transactions.transaction_state import (
    NO_TIMEOUT_MS,
    TV1,
    TV2,
    TransactionMetadata,
    TransactionResult,
    TransactionState,
    complete,
    remembered_epoch,
)
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.producer_identity import ProducerIdentity

S = TransactionState
NOW, LATER = 1_000_000, 1_000_500
PID, NEW_PID, NEWER_PID, EPOCH = 40, 41, 42, 7
T0 = ("t", 0)
WRITER = (PID, EPOCH)


def at(state: TransactionState, epoch: int = EPOCH, **changes: object) -> TransactionMetadata:
    known = TransactionMetadata(
        "id", PID, 60_000, NOW, producer_epoch=epoch, previous_producer_id=PID, state=state,
        partitions=frozenset({T0}) if state is S.ONGOING else frozenset(), start_ms=NOW, client_version=TV2,
    )  # fmt: skip
    return replace(known, **changes)  # type: ignore[arg-type]


def keep(
    known: TransactionMetadata | None, *, two_phase: bool = False, timeout_ms: int = 50_000,
    expected: ProducerIdentity | None = None, new: int = NEW_PID,
    limits: rules.TransactionLimits | None = None,
) -> TransactionResult:  # fmt: skip
    request = rules.InitRequest("id", timeout_ms, expected, two_phase, keep_prepared=True)
    return rules.init_producer_id(
        known, request, LATER, limits=limits or rules.TransactionLimits(900_000), new_producer_id=new
    )


def kept(known: TransactionMetadata, times: int = 1, **more: int) -> TransactionMetadata:
    for _ in range(times):
        following = keep(known, **more).following  # type: ignore[arg-type]
        assert following is not None
        known = following
    return known


def end(
    known: TransactionMetadata, holder: tuple[int, int], commit: bool = True, version: int = TV2
) -> TransactionResult:
    return end_txn(known, EndRequest(*holder, commit, version), LATER, new_producer_id=NEWER_PID)


def test_switched_off() -> None:
    off = rules.TransactionLimits(900_000, two_phase=False)
    refused = keep(None, two_phase=True, limits=off)
    assert refused.error is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "transaction.two.phase.commit.enable" in refused.reason
    assert keep(None, limits=off).answer == (NEW_PID, 0), "keeping is another matter"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_time_outs(timeout_ms: int) -> None:
    assert keep(at(S.ONGOING), timeout_ms=timeout_ms).error is E.INVALID_TRANSACTION_TIMEOUT
    assert keep(at(S.ONGOING), timeout_ms=timeout_ms, two_phase=True).error is E.NONE


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_where_nothing_is_open_it_is_a_new_user_as_ever(state: TransactionState) -> None:
    decision = keep(at(state))
    assert (decision.answer, decision.ongoing) == ((PID, EPOCH + 1), None)
    assert decision.following is not None
    assert not decision.following.kept
    assert keep(None).answer == (NEW_PID, 0)


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_while_a_transaction_ends_all_wait(state: TransactionState) -> None:
    assert keep(at(state)).error is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("version", [TV1, TV2])
def test_the_transaction_stays_open_under_a_new_holder(version: int) -> None:
    before = at(S.ONGOING, client_version=version)
    for times in (1, 2, 3):
        decision = keep(kept(before, times - 1))
        following = decision.following
        assert (decision.answer, decision.ongoing) == ((PID, EPOCH + times), WRITER)
        assert following is not None
        assert (following.state, following.partitions, following.start_ms) == (
            S.ONGOING,
            frozenset({T0}),
            NOW,
        )
        assert (following.producer_id, following.producer_epoch) == WRITER
        assert following.holder == (PID, EPOCH + times)
        assert (following.client_version, following.last_update_ms) == (version, LATER)


def test_it_never_gets_less_time() -> None:
    assert kept(at(S.ONGOING), timeout_ms=10).timeout_ms == 60_000
    assert kept(at(S.ONGOING), timeout_ms=70_000).timeout_ms == 70_000
    patient = at(S.ONGOING, timeout_ms=NO_TIMEOUT_MS)
    assert kept(patient).timeout_ms == NO_TIMEOUT_MS
    forever = keep(at(S.ONGOING), two_phase=True).following
    assert forever is not None
    assert forever.two_phase
    assert not rules.has_expired(forever, 10**15)
    assert rules.has_expired(kept(at(S.ONGOING), timeout_ms=10), NOW + 60_001)
    assert not rules.has_expired(kept(at(S.ONGOING), timeout_ms=10), NOW + 60_000)


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("expected", [(PID, EPOCH - 1), (PID, EPOCH), (PID, EPOCH + 2), (NEW_PID, EPOCH + 1)])
def test_who_held_it_before_cannot_go_on(expected: tuple[int, int], keeps: bool) -> None:
    known = kept(at(S.ONGOING, last_epoch=EPOCH - 1))
    request = rules.InitRequest("id", 1000, ProducerIdentity(*expected), keep_prepared=keeps)
    decision = rules.init_producer_id(
        known, request, LATER, limits=rules.TransactionLimits(1000), new_producer_id=NEW_PID
    )
    assert (decision.error, decision.following) == (E.PRODUCER_FENCED, None)


def test_the_holder_goes_on_by_its_name() -> None:
    known = kept(at(S.ONGOING))
    assert keep(known, expected=known.holder).answer == (PID, EPOCH + 2)


@pytest.mark.parametrize("writer", [WRITER, (PID, EPOCH + 1), (NEW_PID, 0)])
def test_nobody_writes_in_it(writer: tuple[int, int]) -> None:
    known = kept(at(S.ONGOING))
    error = {WRITER: E.PRODUCER_FENCED, (PID, EPOCH + 1): E.INVALID_TXN_STATE}.get(
        writer, E.INVALID_PRODUCER_ID_MAPPING
    )
    for decision in (
        rules.add_partitions(known, *writer, [T0], LATER, TV2),
        rules.add_partitions(known, *writer, [("t", 1)], LATER, TV1),
        rules.verify(known, *writer, T0),
    ):
        assert (decision.error, decision.following) == (error, None)


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize("writer_version", [TV1, TV2])
def test_the_end(writer_version: int, version: int, times: int, commit: bool) -> None:
    known = kept(at(S.ONGOING, client_version=writer_version), times)
    for stale in range(EPOCH, EPOCH + times):
        refused = end(known, (PID, stale), commit, version)
        assert (refused.error, refused.following) == (E.PRODUCER_FENCED, None)
    holder = (PID, EPOCH + times)
    goes_on = (PID, EPOCH + times + (version == TV2))
    decision = end(known, holder, commit, version)
    prepared = decision.following
    assert decision.answer == goes_on
    assert prepared is not None
    assert prepared.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    assert (prepared.producer_id, prepared.producer_epoch) == (PID, EPOCH + 1), "of the markers"
    assert (prepared.partitions, prepared.start_ms) == (frozenset({T0}), NOW)
    busy = end(prepared, holder, commit, version)
    assert busy.error is E.CONCURRENT_TRANSACTIONS
    assert end(prepared, holder, not commit, version).error is E.INVALID_TXN_STATE
    done = complete(prepared, LATER)
    assert (done.producer_id, done.producer_epoch) == goes_on
    assert not done.kept
    assert (done.next_producer_id, done.next_producer_epoch) == (-1, -1)
    assert end(done, holder, commit, version).answer == goes_on, "a retry"
    assert end(done, holder, not commit, version).error is E.INVALID_TXN_STATE
    assert end(done, WRITER, commit, version).error is E.PRODUCER_FENCED
    if version == TV2:
        for state in (prepared, done):
            assert remembered_epoch(state.state, state.holder[1], TV2) == state.last_epoch == EPOCH + times


def test_keeping_ends_the_retries_of_those_before() -> None:
    """Whose answer to InitProducerId was lost before the transaction was kept has lost the id (KIP-360)."""
    known = kept(at(S.ONGOING, last_epoch=EPOCH - 1))
    prepared = end(known, known.holder, version=TV1).following
    assert prepared is not None
    request = rules.InitRequest("id", 1000, ProducerIdentity(PID, EPOCH - 1))
    decision = rules.init_producer_id(
        complete(prepared, LATER),
        request,
        LATER,
        limits=rules.TransactionLimits(1000),
        new_producer_id=NEW_PID,
    )
    assert decision.error is E.PRODUCER_FENCED


@pytest.mark.parametrize("times", [1, 4])
def test_a_new_user_who_keeps_nothing_aborts_it(times: int) -> None:
    known = kept(at(S.ONGOING), times)
    request = rules.InitRequest("id", 1000)
    decision = rules.init_producer_id(
        known, request, LATER, limits=rules.TransactionLimits(1000), new_producer_id=NEW_PID
    )
    assert decision.error is E.CONCURRENT_TRANSACTIONS
    aborting = decision.following
    assert aborting is not None
    assert (aborting.state, aborting.producer_epoch) == (S.PREPARE_ABORT, EPOCH + 1)
    done = complete(aborting, LATER)
    assert done.holder == (PID, EPOCH + times + 1), "above all who ever held it"
    assert end(done, (PID, EPOCH + times)).error is E.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("writer_epoch", "holder", "after"),
    [
        (32764, (PID, 32765), (PID, 32766)),
        (32765, (PID, 32766), (NEWER_PID, 0)),
        (32766, (NEW_PID, 0), (NEW_PID, 1)),
    ],
)
def test_used_up_epochs(writer_epoch: int, holder: tuple[int, int], after: tuple[int, int]) -> None:
    known = kept(at(S.ONGOING, writer_epoch))
    assert known.holder == holder
    assert known.exhausted == (holder[1] == 32766)
    decision = end(known, holder)
    assert decision.answer == after
    prepared = decision.following
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch) == (PID, writer_epoch + 1)
    assert end(prepared, holder).error is E.CONCURRENT_TRANSACTIONS
    done = complete(prepared, LATER)
    assert done.holder == after
    assert end(done, holder).answer == after, "a retry, under the old producer id where that is used up"
    assert end(done, holder, commit=False).error is E.INVALID_TXN_STATE
    again = rules.init_producer_id(
        done,
        rules.InitRequest("id", 1000, holder),
        LATER,
        limits=rules.TransactionLimits(1000),
        new_producer_id=99,
    )
    assert again.answer == after, "KIP-360: who missed the answer of the end"


def test_epochs_used_up_twice_by_keeping() -> None:
    """The holder's producer id is neither the writer's nor the next one."""
    known = replace(kept(at(S.ONGOING, 32766)), next_producer_epoch=32766)
    assert known.holder == (NEW_PID, 32766)
    decision = end(known, (NEW_PID, 32766))
    assert decision.answer == (NEWER_PID, 0)
    prepared = decision.following
    assert prepared is not None
    for state in (prepared, complete(prepared, LATER)):
        retry = end(state, (NEW_PID, 32766))
        assert retry.error is (E.CONCURRENT_TRANSACTIONS if state is prepared else E.NONE)
        assert end(state, (PID, 32766)).error is E.INVALID_PRODUCER_ID_MAPPING
