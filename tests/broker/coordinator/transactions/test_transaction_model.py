"""The rules of transactional ids against a dumb model of who holds the id and what became of its transaction.

The model knows no states and no tables: only the (producer id, epoch) that holds the id, the one that it
was before, what is open and who wrote it, and how the last transaction ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eoslog.broker.coordinator.transactions import transaction as rules
from eoslog.broker.coordinator.transactions import transaction_journal
from eoslog.broker.coordinator.transactions.transaction import EndRequest, end_txn
from eoslog.broker.coordinator.transactions.transaction_state import (
    PREPARED,
    TV1,
    TV2,
    TransactionMetadata,
    TransactionResult,
    TransactionState,
    complete,
)
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.plain_records import Record
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition

Token = tuple[int, int]
LAST_EPOCH = 32766
IDLE_MS = 700

versions = st.sampled_from([TV1, TV2])
places = st.sampled_from([("a", 0), ("a", 1), ("b", 0)])


class Transactions(RuleBasedStateMachine):
    """Requests of the holder, of older holders, and of somebody who never held the id; crashes and time."""

    def __init__(self) -> None:
        super().__init__()
        self.known: TransactionMetadata | None = None
        self.now = 1000
        self.ids: Iterator[int] = iter(range(100, 10**9))
        # The model
        self.holder: Token | None = None
        self.before: Token | None = None  # who the holder was before its last bump
        self.open: set[TopicPartition] | None = None
        self.opened_at = 0
        self.touched = 0  # when the id was last changed
        self.writer: Token | None = None  # who wrote what is open
        self.timeout = 500
        self.ending: bool | None = None  # commit?
        self.ended: bool | None = None  # commit? None: nothing since the last InitProducerId
        self.ended_by: Token | None = None  # who may ask for that once more
        self.tokens: list[Token] = [(7, 0)]
        self.outcomes: list[bool] = []

    @initialize(epoch=st.sampled_from([None, 0, LAST_EPOCH - 2, LAST_EPOCH - 1, LAST_EPOCH]))
    def begin(self, epoch: int | None) -> None:
        if epoch is not None:
            self.known = TransactionMetadata(
                "id", 50, 500, self.now, producer_epoch=epoch, previous_producer_id=50
            )
            self.touched = self.now
            self.hold((50, epoch))

    def hold(self, token: Token) -> Token:
        self.holder = token
        if token not in self.tokens:
            self.tokens.append(token)
        return token

    def next(self, new_id: int) -> Token:
        if self.holder is None or self.holder[1] >= LAST_EPOCH:
            return new_id, 0
        return self.holder[0], self.holder[1] + 1

    def take(self, decision: TransactionResult) -> None:
        if decision.following is not None:
            self.known = decision.following
            self.touched = self.now
            self.crash_before_or_after_writing(self.known)

    def crash_before_or_after_writing(self, known: TransactionMetadata) -> None:
        key, value = transaction_journal.encode(known)
        assert transaction_journal.decode(Record(0, 0, key, value, [])) is not None

    @property
    def kept(self) -> bool:
        """Whether what is open was taken over by another than who wrote it (KIP-939)."""
        return self.open is not None and self.writer != self.holder

    def bump_by_end(self, commit: bool, new_id: int, asked: Token) -> None:
        self.ending, self.ended, self.ended_by = commit, None, asked
        self.before = self.holder
        self.holder = self.next(new_id)  # told to nobody before the end is through

    def told(self) -> Token | None:
        """The newest (producer id, epoch) that a client knows of."""
        return self.holder if self.holder in self.tokens else self.before

    def answer(self, decision: TransactionResult) -> object:
        return decision.answer if decision.error is E.NONE else decision.error

    # -- requests

    @rule(data=st.data(), named=st.sampled_from(["nobody", "holder", "somebody"]))
    def init(self, data: st.DataObject, named: str) -> None:
        expected = {"nobody": None, "holder": self.told()}.get(named, data.draw(st.sampled_from(self.tokens)))
        new_id = next(self.ids)
        request = rules.InitRequest("id", 500, expected and ProducerIdentity(*expected))
        decision = rules.init_producer_id(
            self.known, request, self.now, limits=rules.TransactionLimits(1000), new_producer_id=new_id
        )
        if self.holder is None:
            wanted: object = (new_id, 0)
        elif expected not in (None, self.holder) and (expected != self.before or self.open is not None):
            wanted = E.PRODUCER_FENCED
        elif self.ending is not None or self.open is not None:
            wanted = E.CONCURRENT_TRANSACTIONS
        elif expected in (None, self.holder):
            wanted = self.next(new_id)
        else:
            wanted = self.holder
        assert self.answer(decision) == wanted
        if wanted is E.CONCURRENT_TRANSACTIONS and self.open is not None:
            assert self.holder is not None
            self.markers_fence(decision)
            self.open = None
            self.bump_by_end(False, new_id, self.holder)
        elif isinstance(wanted, tuple):
            if wanted != self.holder:
                self.before = expected if self.holder is not None else None
            self.hold(wanted)
            self.timeout = 500
            self.ended = self.ended_by = None
        else:
            assert decision.following is None
        self.take(decision)

    @rule(data=st.data(), two_phase=st.booleans(), named=st.booleans())
    def keep(self, data: st.DataObject, two_phase: bool, named: bool) -> None:
        """InitProducerId that keeps what is open; where nothing is, it does what it always does."""
        expected = data.draw(st.sampled_from(self.tokens)) if named else None
        if self.open is None:
            return self.init(data, "nobody")
        new_id, before = next(self.ids), self.known
        request = rules.InitRequest(
            "id", 800, expected and ProducerIdentity(*expected), two_phase, keep_prepared=True
        )
        decision = rules.init_producer_id(
            before, request, self.now, limits=rules.TransactionLimits(1000), new_producer_id=new_id
        )
        if expected not in (None, self.holder):
            assert (decision.error, decision.following) == (E.PRODUCER_FENCED, None)
            return None
        assert (decision.answer, decision.ongoing) == (self.next(new_id), self.writer)
        self.hold(self.next(new_id))
        self.before = None
        self.timeout = max(self.timeout, 2**31 - 1 if two_phase else 800)
        self.take(decision)
        return None

    @rule(data=st.data(), place=places, version=versions)
    def add(self, data: st.DataObject, place: TopicPartition, version: int) -> None:
        token = data.draw(st.sampled_from(self.tokens))
        decision = rules.add_partitions(self.known, *token, [place], self.now, version)
        if self.kept:
            assert decision.following is None
            assert token != self.holder or decision.error is E.INVALID_TXN_STATE
            assert rules.verify(self.known, *token, place).error is decision.error
            return
        if token == self.holder and self.ending is None:
            assert decision.error is E.NONE
            if self.open is None:
                self.open, self.opened_at, self.ended, self.ended_by = set(), self.now, None, None
                self.writer = token
            self.open.add(place)
            if self.before is not None and self.before[0] != token[0]:
                self.before = None
        else:
            assert decision.error is not E.NONE
            assert decision.following is None
        self.take(decision)
        if token == self.holder and self.ending is None:
            assert rules.verify(self.known, *token, place) == TransactionResult()

    @rule(data=st.data(), commit=st.booleans(), version=versions, mine=st.booleans())
    def end(self, data: st.DataObject, commit: bool, version: int, mine: bool) -> None:
        token = self.told() if mine else None
        token = token or data.draw(st.sampled_from(self.tokens))
        new_id = next(self.ids)
        request = EndRequest(*token, commit, version)
        decision = end_txn(self.known, request, self.now, new_producer_id=new_id)
        answer, holds, kept = self.answer(decision), token == self.holder, self.kept
        if holds and self.ending is None and (self.open is not None or (version == TV2 and not commit)):
            if version == TV2:
                self.bump_by_end(commit, new_id, token)
            else:
                self.ending, self.ended_by = commit, None
            assert answer == self.holder
            if self.open is not None and (kept or version == TV2):
                self.markers_fence(decision)
            self.open = None
        elif self.ended is commit and (token == self.ended_by if version == TV2 else holds):
            assert answer == self.holder
            assert decision.following is None
        else:
            assert isinstance(answer, E)
            assert decision.following is None
            if self.ending is commit and (token == self.ended_by if version == TV2 else holds):
                assert answer is E.CONCURRENT_TRANSACTIONS
        self.take(decision)

    def markers_fence(self, decision: TransactionResult) -> None:
        """They carry the producer id of the records, at a higher epoch than theirs."""
        assert decision.following is not None
        assert self.writer is not None
        marker = (decision.following.producer_id, decision.following.producer_epoch)
        assert marker == (self.writer[0], self.writer[1] + 1)

    # -- time and faults

    @precondition(lambda self: self.ending is not None)
    @rule()
    def markers_written(self) -> None:
        assert self.known is not None
        assert self.ending is not None
        assert self.known.state in PREPARED
        self.known = complete(self.known, self.now)
        self.touched = self.now
        self.outcomes.append(self.ending)
        self.ended, self.ending = self.ending, None
        assert self.holder is not None
        self.hold(self.holder)

    @rule(by=st.sampled_from([1, 200, 600]))
    def time_passes(self, by: int) -> None:
        self.now += by
        if self.known is None:
            return
        assert self.open is None or self.known.timeout_ms == self.timeout
        patient = self.timeout == 2**31 - 1
        expired = self.open is not None and not patient and self.opened_at + self.timeout < self.now
        assert rules.has_expired(self.known, self.now) == expired
        if expired:
            assert self.holder is not None
            new_id = next(self.ids)
            self.take(rules.fence(self.known, self.now, new_producer_id=new_id))
            self.open = None
            self.bump_by_end(False, new_id, self.holder)

    @precondition(lambda self: self.known is not None)
    @rule()
    def forget(self) -> None:
        """Who is at rest for long is forgotten; all who had the id before are strangers then."""
        assert self.known is not None
        idle = self.open is None and self.ending is None and self.touched + IDLE_MS <= self.now
        assert rules.is_idle(self.known, self.now, IDLE_MS) == idle
        if idle:
            self.known = self.holder = self.before = self.ended = self.ended_by = None

    @precondition(lambda self: self.known is not None)
    @rule()
    def restart(self) -> None:
        """What the log does not hold is forgotten: who the holder was before, unless TV2's bump tells."""
        assert self.known is not None
        key, value = transaction_journal.encode(self.known)
        decoded = transaction_journal.decode(Record(0, 0, key, value, []))
        assert decoded is not None
        self.known = decoded[1]
        if self.ended_by is None:
            self.before = None

    @invariant()
    def same_view(self) -> None:
        if self.known is None:
            assert self.holder is None
            return
        known = self.known
        assert (known.state is TransactionState.ONGOING) == (self.open is not None)
        if self.open is not None:
            assert known.partitions == self.open
        if self.ending is not None:
            assert known.state is (
                TransactionState.PREPARE_COMMIT if self.ending else TransactionState.PREPARE_ABORT
            )
            done = complete(known, self.now)
            assert (done.producer_id, done.producer_epoch) == self.holder
        else:
            assert known.holder == self.holder
        if self.open is not None:
            assert (known.producer_id, known.producer_epoch) == self.writer
        assert known.producer_epoch <= LAST_EPOCH or known.state in PREPARED, "the last epoch fences only"


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
