"""The rules of transactional ids, line by line: predecessors, InitProducerId, joining, EndTxn, time-outs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eoslog.broker.coordinator.transactions import transaction as rules
from eoslog.broker.coordinator.transactions.transaction import EndRequest, end_txn
from eoslog.broker.coordinator.transactions.transaction_state import (
    NO_TIMEOUT_MS,
    PREDECESSORS,
    STATE_BY_TEXT,
    TV1,
    TV2,
    IllegalTransactionState,
    TransactionMetadata,
    TransactionResult,
    TransactionState,
    complete,
    follow,
    prepare,
    remembered_epoch,
)
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.producer_identity import ProducerIdentity

S = TransactionState
NOW, LATER = 1_000_000, 1_000_500
PID, NEW_PID, EPOCH = 40, 41, 7
MAX_TIMEOUT = 900_000
T0, T1 = ("t", 0), ("t", 1)


def at(state: TransactionState, epoch: int = EPOCH, **changes: object) -> TransactionMetadata:
    """A transactional id in `state` at `epoch`, with what that state implies."""
    open_ = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    known = TransactionMetadata(
        "id", PID, 60_000, NOW, producer_epoch=epoch, previous_producer_id=PID, state=state,
        partitions=frozenset({T0}) if open_ else frozenset(), start_ms=-1 if state is S.EMPTY else NOW,
    )  # fmt: skip
    return replace(known, **changes)  # type: ignore[arg-type]


# Which state may follow which

ALLOWED = """
Empty <- Empty, CompleteCommit, CompleteAbort
Ongoing <- Ongoing, Empty, CompleteCommit, CompleteAbort
PrepareCommit <- Ongoing
PrepareAbort <- Ongoing, PrepareEpochFence, Empty, CompleteCommit, CompleteAbort
CompleteCommit <- PrepareCommit
CompleteAbort <- PrepareAbort
Dead <- Empty, CompleteCommit, CompleteAbort
PrepareEpochFence <- Ongoing
"""


def test_predecessors_are_those_of_the_protocol() -> None:
    lines = [line.split(" <- ") for line in ALLOWED.strip().splitlines()]
    table = {STATE_BY_TEXT[s]: {STATE_BY_TEXT[p] for p in before.split(", ")} for s, before in lines}
    assert table == PREDECESSORS
    assert set(table) == set(TransactionState)


@pytest.mark.parametrize("before", TransactionState)
@pytest.mark.parametrize("after", TransactionState)
def test_follow_refuses_what_the_table_does_not_allow(
    before: TransactionState, after: TransactionState
) -> None:
    if before in PREDECESSORS[after]:
        assert follow(at(before), after).state is after
    else:
        with pytest.raises(IllegalTransactionState, match=f"{after.text} may not follow {before.text}"):
            follow(at(before), after)


def test_numbers_and_names_are_those_of_the_log() -> None:
    names = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
             "PrepareEpochFence"]  # fmt: skip
    assert [state.text for state in sorted(TransactionState)] == names
    assert [int(state) for state in TransactionState] == list(range(8))


# InitProducerId


def init(
    known: TransactionMetadata | None, expected: tuple[int, int] | None = None, **more: int | bool | str
) -> TransactionResult:
    """InitProducerId with a legal time-out, unless said otherwise."""
    fields = {"transactional_id": "id", "timeout_ms": 50_000, **more}
    request = rules.InitRequest(expected=expected, **fields)  # type: ignore[arg-type]
    return rules.init_producer_id(
        known, request, LATER, limits=rules.TransactionLimits(MAX_TIMEOUT), new_producer_id=NEW_PID
    )


def test_an_unknown_id_gets_a_new_producer_at_epoch_0() -> None:
    for expected in (None, (12, 3)):
        decision = init(None, expected)
        assert decision.answer == (NEW_PID, 0)
        assert decision.following is not None
        assert decision.following.state is S.EMPTY
        assert decision.following.timeout_ms == 50_000


@pytest.mark.parametrize("timeout", [0, -1, MAX_TIMEOUT + 1])
def test_time_outs_out_of_range(timeout: int) -> None:
    assert init(None, timeout_ms=timeout) == TransactionResult(
        error=E.INVALID_TRANSACTION_TIMEOUT,
        reason=f"transaction time-out {timeout} ms is not within 1 to {MAX_TIMEOUT} ms",
    )


@pytest.mark.parametrize("timeout", [1, MAX_TIMEOUT])
def test_time_outs_at_the_ends_of_the_range(timeout: int) -> None:
    assert init(None, timeout_ms=timeout).error is E.NONE


def test_two_phase_commit_has_no_time_out() -> None:
    decision = init(None, timeout_ms=-1, two_phase=True)
    assert decision.following is not None
    assert decision.following.timeout_ms == NO_TIMEOUT_MS


def test_an_empty_id_is_refused() -> None:
    assert init(None, transactional_id="").error is E.INVALID_REQUEST


PERSISTED = [state for state in TransactionState if state < S.DEAD]
AT_REST = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


@pytest.mark.parametrize("state", AT_REST)
def test_a_new_user_bumps_the_epoch(state: TransactionState) -> None:
    decision = init(at(state, last_epoch=3))
    assert decision.answer == (PID, EPOCH + 1)
    following = decision.following
    assert following is not None
    assert (following.state, following.last_epoch, following.start_ms) == (S.EMPTY, -1, -1)
    assert (following.timeout_ms, following.last_update_ms) == (50_000, LATER)


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_while_a_transaction_ends_all_wait(state: TransactionState) -> None:
    decision = init(at(state))
    assert (decision.error, decision.following) == (E.CONCURRENT_TRANSACTIONS, None)


@pytest.mark.parametrize(
    ("state", "expected", "answer"),
    [
        # the current epoch: bump
        *[(state, (PID, EPOCH), (PID, EPOCH + 1)) for state in AT_REST],
        # the one before: the answer was lost, the same once more
        *[(state, (PID, EPOCH - 1), (PID, EPOCH)) for state in AT_REST],
        # neither
        *[(state, expected, E.PRODUCER_FENCED)
          for state in (*AT_REST, S.ONGOING, S.PREPARE_ABORT)
          for expected in [(PID, EPOCH - 2), (PID, EPOCH + 1), (PID - 1, EPOCH), (PID - 1, EPOCH - 1)]],
        (S.PREPARE_COMMIT, (PID, EPOCH), E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_ABORT, (PID, EPOCH - 1), E.CONCURRENT_TRANSACTIONS),
        # an outdated epoch never aborts what is open now
        (S.ONGOING, (PID, EPOCH - 1), E.PRODUCER_FENCED),
        (S.ONGOING, (PID, EPOCH), E.CONCURRENT_TRANSACTIONS),
    ],
)  # fmt: skip
def test_going_on_after_an_error(state: TransactionState, expected: tuple[int, int], answer: object) -> None:
    """KIP-360: the producer says what it has."""
    decision = init(at(state, last_epoch=EPOCH - 1), expected)
    assert (decision.answer if decision.error is E.NONE else decision.error) == answer
    if decision.error is E.PRODUCER_FENCED:
        assert decision.following is None
    if decision.error is E.NONE:
        assert decision.following is not None
        again = init(decision.following, expected)
        assert again.answer == decision.answer, "however often it comes"


def test_a_new_user_ends_the_retries_of_the_old_one() -> None:
    first = init(at(S.EMPTY), (PID, EPOCH)).following
    assert first is not None
    second = init(first).following
    assert second is not None
    assert init(second, (PID, EPOCH)).error is E.PRODUCER_FENCED


@pytest.mark.parametrize("epoch", [32766, 32767])
def test_used_up_epochs_make_a_new_producer_id(epoch: int) -> None:
    assert init(at(S.EMPTY, epoch)).answer == (NEW_PID, 0)
    assert init(at(S.EMPTY, 32765)).answer == (PID, 32766)


def test_used_up_epochs_and_a_lost_answer() -> None:
    rotated = init(at(S.COMPLETE_COMMIT, 32766), (PID, 32766))
    assert rotated.answer == (NEW_PID, 0)
    assert rotated.following is not None
    assert rotated.following.previous_producer_id == PID
    assert init(rotated.following, (PID, 32766)).answer == (NEW_PID, 0)
    assert init(rotated.following, (PID, 32765)).error is E.PRODUCER_FENCED
    assert init(rotated.following, (PID - 1, 32766)).error is E.PRODUCER_FENCED
    assert init(at(S.EMPTY, 32766), (PID, 32765)).error is E.PRODUCER_FENCED


@pytest.mark.parametrize("version", [TV1, TV2])
def test_an_open_transaction_is_fenced_and_aborted(version: int) -> None:
    decision = init(at(S.ONGOING, client_version=version))
    aborting = decision.following
    assert decision.error is E.CONCURRENT_TRANSACTIONS
    assert aborting is not None
    assert (aborting.state, aborting.producer_epoch) == (S.PREPARE_ABORT, EPOCH + 1)
    assert aborting.partitions == {T0}
    assert aborting.client_version == TV2
    done = complete(aborting, LATER)
    assert init(done).answer == (PID, EPOCH + 2), "the new user's retry bumps again"
    assert end(done, PID, EPOCH, True, TV1).error is E.PRODUCER_FENCED
    assert end(done, PID, EPOCH, True, TV2).error is E.INVALID_TXN_STATE


@pytest.mark.parametrize("epoch", [32766, 32767])
def test_fencing_with_the_last_epoch_goes_over_to_a_new_producer_id(epoch: int) -> None:
    """32767, which no client is given, cannot be bumped; the end leaves it all the same."""
    decision = init(at(S.ONGOING, epoch))
    aborting = decision.following
    assert aborting is not None
    assert (aborting.producer_id, aborting.producer_epoch, aborting.next_producer_id) == (PID, 32767, NEW_PID)
    done = complete(aborting, LATER)
    assert (done.producer_id, done.producer_epoch, done.next_producer_id) == (NEW_PID, 0, -1)
    assert init(done).answer == (NEW_PID, 1)


def test_when_a_producer_id_is_wanted() -> None:
    assert rules.wants_producer_id(None)
    assert rules.wants_producer_id(at(S.EMPTY, 32766))
    assert not rules.wants_producer_id(at(S.EMPTY, 32765))


# AddPartitionsToTxn


def add(
    known: TransactionMetadata | None, pid: int = PID, epoch: int = EPOCH, *places: tuple[str, int]
) -> TransactionResult:
    return rules.add_partitions(known, pid, epoch, places or (T1,), LATER, TV1)


@pytest.mark.parametrize("state", AT_REST)
def test_the_first_partition_opens_a_transaction(state: TransactionState) -> None:
    following = add(at(state)).following
    assert following is not None
    assert (following.state, following.partitions, following.start_ms) == (S.ONGOING, frozenset({T1}), LATER)


def test_no_partitions_open_a_transaction_too() -> None:
    """As in Kafka; it is ended as any other."""
    following = rules.add_partitions(at(S.EMPTY), PID, EPOCH, [], LATER, TV1).following
    assert following is not None
    assert (following.state, following.partitions, following.start_ms) == (S.ONGOING, frozenset(), LATER)


def test_a_further_partition_keeps_the_start() -> None:
    following = add(at(S.ONGOING)).following
    assert following is not None
    assert (following.state, following.partitions, following.start_ms) == (
        S.ONGOING,
        frozenset({T0, T1}),
        NOW,
    )


def test_known_partitions_change_nothing() -> None:
    assert add(at(S.ONGOING), PID, EPOCH, T0) == TransactionResult()


@pytest.mark.parametrize(
    ("known", "pid", "epoch", "error"),
    [
        (None, PID, EPOCH, E.INVALID_PRODUCER_ID_MAPPING),
        *[(at(state), PID + 1, EPOCH, E.INVALID_PRODUCER_ID_MAPPING) for state in PERSISTED],
        *[(at(state), PID, EPOCH + by, E.PRODUCER_FENCED) for state in PERSISTED for by in (-1, 1)],
        (at(S.PREPARE_COMMIT), PID, EPOCH, E.CONCURRENT_TRANSACTIONS),
        (at(S.PREPARE_ABORT), PID, EPOCH, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_who_may_not_join(known: TransactionMetadata | None, pid: int, epoch: int, error: E) -> None:
    for decision in (add(known, pid, epoch), rules.verify(known, pid, epoch, T0)):
        assert (decision.error, decision.following) == (error, None)
        assert decision.reason


def test_verify() -> None:
    assert rules.verify(at(S.ONGOING), PID, EPOCH, T0) == TransactionResult()
    for state in (S.ONGOING, *AT_REST):
        assert rules.verify(at(state), PID, EPOCH, T1).error is E.TRANSACTION_ABORTABLE


# EndTxn

BUMP, OK = "bump", "OK"
FENCED, INVALID, BUSY, MAPPING = (
    E.PRODUCER_FENCED, E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS, E.INVALID_PRODUCER_ID_MAPPING
)  # fmt: skip

# state: (abort: retry, current), (commit: retry, current)
TV2_LINES = {
    S.EMPTY: ((FENCED, BUMP), (FENCED, INVALID)),
    S.ONGOING: ((FENCED, BUMP), (FENCED, BUMP)),
    S.PREPARE_COMMIT: ((INVALID, FENCED), (BUSY, FENCED)),
    S.PREPARE_ABORT: ((BUSY, FENCED), (INVALID, FENCED)),
    S.COMPLETE_ABORT: ((OK, BUMP), (INVALID, INVALID)),
    S.COMPLETE_COMMIT: ((INVALID, BUMP), (OK, INVALID)),
}
# state: (abort, commit), at the current epoch
TV1_LINES = {
    S.EMPTY: (INVALID, INVALID),
    S.ONGOING: (BUMP, BUMP),
    S.PREPARE_COMMIT: (INVALID, BUSY),
    S.PREPARE_ABORT: (BUSY, INVALID),
    S.COMPLETE_ABORT: (OK, INVALID),
    S.COMPLETE_COMMIT: (INVALID, OK),
}


def end(
    known: TransactionMetadata | None, pid: int, epoch: int, commit: bool, version: int
) -> TransactionResult:
    return end_txn(known, EndRequest(pid, epoch, commit, version), LATER, new_producer_id=NEW_PID)


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("current", [False, True])
@pytest.mark.parametrize("state", TV2_LINES)
def test_tv2(state: TransactionState, current: bool, commit: bool) -> None:
    known = at(state, client_version=TV2)
    expected = TV2_LINES[state][commit][current]
    decision = end(known, PID, EPOCH if current else EPOCH - 1, commit, TV2)
    if expected is OK:
        assert decision == TransactionResult(answer=ProducerIdentity(PID, EPOCH))
    elif expected is BUMP:
        following = decision.following
        assert (decision.error, decision.answer) == (E.NONE, (PID, EPOCH + 1))
        assert following is not None
        assert following.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
        assert (following.producer_epoch, following.last_epoch) == (EPOCH + 1, EPOCH)
        assert following.partitions == known.partitions
        assert following.client_version == TV2
        assert following.start_ms == (NOW if state is S.ONGOING else LATER)
    else:
        assert (decision.error, decision.following) == (expected, None)


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("state", TV1_LINES)
def test_tv1(state: TransactionState, commit: bool) -> None:
    known = at(state)
    expected = TV1_LINES[state][commit]
    decision = end(known, PID, EPOCH, commit, TV1)
    if expected is OK:
        assert decision == TransactionResult(answer=ProducerIdentity(PID, EPOCH))
    elif expected is BUMP:
        following = decision.following
        assert (decision.error, decision.answer) == (E.NONE, (PID, EPOCH)), "no bump under TV1"
        assert following is not None
        assert following.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
        assert (following.producer_epoch, following.client_version) == (EPOCH, TV1)
    else:
        assert (decision.error, decision.following) == (expected, None)


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("state", TV1_LINES)
@pytest.mark.parametrize(
    ("version", "pid", "epoch", "error"),
    [
        (TV1, PID, EPOCH - 1, FENCED),
        (TV1, PID, EPOCH + 1, FENCED),
        (TV2, PID, EPOCH - 2, FENCED),
        (TV2, PID, EPOCH + 1, FENCED),
        (TV1, PID + 1, EPOCH, MAPPING),
        (TV2, PID + 1, EPOCH, MAPPING),
        (TV2, PID + 1, EPOCH - 1, MAPPING),
    ],
)
def test_others_may_not_end_it(
    state: TransactionState, commit: bool, version: int, pid: int, epoch: int, error: E
) -> None:
    decision = end(at(state), pid, epoch, commit, version)
    assert (decision.error, decision.following) == (error, None)


def test_ending_an_unknown_id() -> None:
    assert end(None, PID, EPOCH, True, TV1).error is MAPPING
    assert end(None, PID, EPOCH, True, TV2).error is MAPPING


@pytest.mark.parametrize("commit", [False, True])
def test_the_end_that_uses_up_the_epochs(commit: bool) -> None:
    decision = end(at(S.ONGOING, 32766), PID, 32766, commit, TV2)
    prepared = decision.following
    assert decision.answer == (NEW_PID, 0)
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (PID, 32767, NEW_PID)
    assert end(prepared, PID, 32766, commit, TV2).error is BUSY
    assert end(prepared, PID, 32766, not commit, TV2).error is INVALID
    done = complete(prepared, LATER)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (NEW_PID, 0, PID)
    assert end(done, PID, 32766, commit, TV2) == TransactionResult(answer=ProducerIdentity(NEW_PID, 0)), (
        "a retry with the old id"
    )
    assert end(done, PID, 32766, not commit, TV2).error is INVALID
    assert end(done, PID, 32765, commit, TV2).error is MAPPING


@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize("commit", [False, True])
def test_complete(version: int, commit: bool) -> None:
    prepared = prepare(at(S.ONGOING), S.PREPARE_COMMIT if commit else S.PREPARE_ABORT, version, LATER, -1)
    done = complete(prepared, LATER + 1)
    assert done.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert (done.partitions, done.last_update_ms, done.start_ms) == (frozenset(), LATER + 1, NOW)
    assert (done.producer_id, done.producer_epoch) == (PID, EPOCH + (version == TV2))
    assert done.last_epoch == (EPOCH if version == TV2 else -1)


def test_what_a_record_tells_of_the_last_epoch() -> None:
    """`remembered_epoch` gives what memory had, wherever that can be told from the record."""
    for epoch in (0, EPOCH, 32765, 32766):
        prepared = prepare(at(S.ONGOING, epoch), S.PREPARE_COMMIT, TV2, LATER, NEW_PID)
        for state in (prepared, complete(prepared, LATER)):
            assert remembered_epoch(state.state, state.holder[1], TV2) == state.last_epoch == epoch
    assert remembered_epoch(S.COMPLETE_COMMIT, EPOCH, TV1) == -1
    assert remembered_epoch(S.EMPTY, EPOCH, TV2) == -1


def test_a_fenced_producer_is_not_told_of_the_end_of_its_successor() -> None:
    """Under TV1 the epoch before is another producer's: its commit must not be answered with a success."""
    for state in (S.COMPLETE_COMMIT, S.PREPARE_COMMIT):
        assert end(at(state, client_version=TV1), PID, EPOCH - 1, True, TV2).error is FENCED


# As a real Kafka 4.3.1 node with transaction.version=2 was observed to answer


def test_the_same_end_again_by_another_version() -> None:
    ended = end(at(S.ONGOING), PID, EPOCH, True, TV2).following
    assert ended is not None
    done = complete(ended, LATER)
    assert end(done, PID, EPOCH, True, TV2).answer == (PID, EPOCH + 1)
    assert end(done, PID, EPOCH, True, TV1).error is FENCED
    assert end(done, PID, EPOCH, False, TV2).error is INVALID
    assert end(done, PID, EPOCH + 1, True, TV2).error is INVALID
    assert end(done, PID, EPOCH + 1, True, TV1).answer == (PID, EPOCH + 1)
    aborted = end(done, PID, EPOCH + 1, False, TV2)
    assert aborted.answer == (PID, EPOCH + 2)
    assert aborted.following is not None
    assert complete(aborted.following, LATER).state is S.COMPLETE_ABORT


def test_after_a_time_out() -> None:
    known = at(S.ONGOING, timeout_ms=100)
    assert not rules.has_expired(known, NOW + 100)
    assert rules.has_expired(known, NOW + 101)
    decision = rules.fence(known, NOW + 101, new_producer_id=-1)
    assert decision.following is not None
    done = complete(decision.following, NOW + 101)
    assert (done.state, done.producer_epoch) == (S.COMPLETE_ABORT, EPOCH + 1)
    assert end(done, PID, EPOCH, True, TV2).error is INVALID
    assert end(done, PID, EPOCH, True, TV1).error is FENCED
    assert end(done, PID, EPOCH, False, TV2).answer == (PID, EPOCH + 1)
    assert rules.verify(done, PID, EPOCH, T0).error is FENCED


@pytest.mark.parametrize("state", [state for state in TransactionState if state is not S.ONGOING])
def test_only_open_transactions_time_out(state: TransactionState) -> None:
    assert not rules.has_expired(at(state, timeout_ms=1, start_ms=0), NOW)


def test_two_phase_commit_never_times_out() -> None:
    assert not rules.has_expired(at(S.ONGOING, timeout_ms=NO_TIMEOUT_MS, start_ms=0), 2**53)
