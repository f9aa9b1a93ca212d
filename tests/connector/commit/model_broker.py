"""A cluster in memory, as far as the commit protocol can tell it from a real one."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eoslog.connector.commit.commands import Description, HeldBack, NotOffered, Offsets, Refused, Sealed
from eoslog.connector.commit.decision import ANCHOR, METADATA_LIMIT, Stored
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity

# -- transactional ids ---------------------------------------------------------------------------
# Transactional ids as the model cluster keeps them, and what it answers when it refuses.

TIMEOUT_MS = 900_000
NEVER_MS = 2**31 - 1  # as a transaction is described that does not time out


def refused(code: ErrorCode) -> Refused:
    return Refused(int(code), code.name)


FENCED = refused(ErrorCode.PRODUCER_FENCED)
STALE_EPOCH = refused(ErrorCode.INVALID_PRODUCER_EPOCH)
UNSTABLE = refused(ErrorCode.UNSTABLE_OFFSET_COMMIT)
WRONG_STATE = refused(ErrorCode.INVALID_TXN_STATE)
UNMAPPED = refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@dataclass
class Transaction:
    """One transactional id. `rows` are kept with their place in the log, by identity and sequence number."""

    identity: ProducerIdentity
    state: str = "Empty"
    start_ms: int = -1
    timeout_ms: int = TIMEOUT_MS
    used: bool = False  # as its last InitProducerId said
    previous: ProducerIdentity | None = None  # before a rotation of the producer id
    raised: ProducerIdentity | None = None  # whose request to go on raised it to the present identity
    holder: ProducerIdentity | None = None  # of a transaction that was kept (KIP-939); `identity` wrote it
    rows: dict[tuple[ProducerIdentity, int], tuple[int, str]] = field(default_factory=dict)
    sequences: set[tuple[ProducerIdentity, int]] = field(default_factory=set)  # as partitions remember them
    offsets: dict[str, dict[tuple[str, int], tuple[int, str]]] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)  # added by a request of their own

    wrote: ProducerIdentity | None = None  # of a transaction that was ended: under what it was open
    loses: frozenset[str] = frozenset()  # groups whose marker the node forgets that ends it next

    @property
    def current(self) -> ProducerIdentity:
        """Whom requests must come from."""
        return self.holder or self.identity


@dataclass
class Open:
    """A transaction that has ended and is held open on a group's partition, its marker being lost."""

    name: str
    identity: ProducerIdentity
    committed: bool
    offsets: dict[tuple[str, int], tuple[int, str]]


def bumped(identity: ProducerIdentity) -> ProducerIdentity:
    """Its next epoch."""
    return ProducerIdentity(identity.producer_id, identity.epoch + 1)


def complete(commit: bool) -> str:
    """The state of a transaction that has ended so."""
    return "CompleteCommit" if commit else "CompleteAbort"


# -- the cluster ---------------------------------------------------------------------------------
# Transactional ids with Kafka's states under transaction.version 1 and 2 (KIP-890), committed and pending
# group offsets, and what a read_committed reader sees. Every method is one request, applied at once. A
# request that a client would try again until it passes (CONCURRENT_TRANSACTIONS, UNSTABLE_OFFSET_COMMIT) is
# answered as after the wait.


class ModelBroker:
    """`tv`: transaction.version. `last_epoch`: the highest epoch a client gets before the id rotates.

    `late_markers`: EndTxn leaves Prepare* behind until somebody has to wait for more. `keeps`: two-phase
    commit is offered. `tells_holder`: a kept transaction is described by its holder, not by its writer.
    `verifies` False: leaders do not ask the coordinator (Kafka before 3.6), so they take any batch whose
    epoch is not outdated there. Rows and offsets that nothing has added to the transaction wait for its next
    marker.
    """

    def __init__(
        self,
        tv: int = 2,
        *,
        anchors: int = 4,
        last_epoch: int = 32_766,
        late_markers: bool = False,
        keeps: bool = False,
        tells_holder: bool = False,
        verifies: bool = True,
    ) -> None:
        self.verifies = verifies
        self.leaders: dict[tuple[str, str], ProducerIdentity] = {}
        """By name and group ("": where its rows are): of the last batch or marker there."""
        self.keeps, self.tells_holder = keeps, tells_holder
        self.tv, self.anchors, self.last_epoch, self.late_markers = tv, anchors, last_epoch, late_markers
        self.now_ms = 1_000_000
        self.transactions: dict[str, Transaction] = {}
        self.groups: dict[str, dict[tuple[str, int], tuple[int, str]]] = {}
        self.held: dict[str, Open] = {}  # by group: each has a partition of its own here
        self._places: dict[str, int] = {}
        self.log_end = 0
        self._committed: list[tuple[int, str]] = []
        self._next_producer = 1000

    # -- requests -----------------------------------------------------------------------------

    def begin_init(self, name: str) -> None:
        """InitProducerId, up to where it waits: what is open is aborted, and nobody has an identity yet."""
        txn = self.transactions.get(name)
        if txn is not None and txn.state == "Ongoing":
            self._fence(txn)

    def init(self, name: str, *, used: bool = False) -> ProducerIdentity:
        self.begin_init(name)
        txn = self.transactions.get(name)
        if txn is None:
            self.transactions[name] = Transaction(self._new_identity(), used=used)
            return self.transactions[name].identity
        self._settle(txn)
        txn.previous = txn.raised = None
        txn.identity, txn.timeout_ms, txn.used = self._next(txn.identity), TIMEOUT_MS, used
        txn.state, txn.start_ms = "Empty", -1
        return txn.identity

    def go_on(
        self, name: str, current: ProducerIdentity, *, used: bool = False
    ) -> ProducerIdentity | Refused:
        """InitProducerId by who names the identity that it has (KIP-360)."""
        txn = self.transactions.get(name)
        if txn is None:
            return UNMAPPED
        if txn.raised == current and txn.state == "Empty":
            return txn.identity
        if txn.state == "Ongoing" and (
            txn.current == current or (txn.current[0] == current[0] and not txn.holder)
        ):
            self._fence(txn)  # Kafka compares the epochs only when nothing is open
            return FENCED
        if txn.current != current:
            return FENCED
        self.init(name, used=used)
        txn.raised = current
        return txn.identity

    def keep(self, name: str) -> Sealed | NotOffered:
        """InitProducerId 6 with enable2Pc and keepPreparedTxn."""
        if not self.keeps:
            return NotOffered("two-phase commit is switched off")
        txn = self.transactions.get(name)
        wrote = txn.identity if txn is not None and txn.state == "Ongoing" else None
        if txn is None or wrote is None:
            identity = self.init(name)
            self.transactions[name].timeout_ms = NEVER_MS
            return Sealed(identity, None)
        txn.holder, txn.timeout_ms = self._next(txn.current), NEVER_MS
        return Sealed(txn.holder, wrote)

    def produce(
        self, name: str, identity: ProducerIdentity, sequence: int, rows: Iterable[str]
    ) -> Refused | None:
        written = self.transactions[name].sequences if name in self.transactions else set()
        new = [(at, row) for at, row in enumerate(rows, sequence) if (identity, at) not in written]
        problem = self._take(name, identity, "") if new else None
        if problem is None:
            for at, row in new:
                written.add((identity, at))
                self.transactions[name].rows[identity, at] = (self.log_end, row)
                self.log_end += 1
        return problem

    def add_partitions(self, name: str, identity: ProducerIdentity) -> Refused | None:
        """AddPartitionsToTxn, a request of its own where `produce` does not do it."""
        return self._enter(name, identity)

    def add_offsets(self, name: str, identity: ProducerIdentity, group: str) -> Refused | None:
        """AddOffsetsToTxn, a request of its own where `stage` does not do it."""
        problem = self._enter(name, identity)
        if problem is None:
            self.transactions[name].groups.add(group)
        return problem

    def stage(self, name: str, identity: ProducerIdentity, group: str, offsets: Offsets) -> Refused | None:
        problem = self._take(name, identity, group)
        if problem is not None:
            return problem
        too_long = {where for where, stored in offsets.items() if len(stored[1]) > METADATA_LIMIT}
        kept = {where: stored for where, stored in offsets.items() if where not in too_long}
        self.transactions[name].offsets.setdefault(group, {}).update(kept)
        return refused(ErrorCode.OFFSET_METADATA_TOO_LARGE) if too_long else None

    def end(self, name: str, identity: ProducerIdentity, commit: bool) -> ProducerIdentity | Refused:
        txn = self.transactions.get(name)
        if txn is None:
            return UNMAPPED
        if txn.state.startswith("Prepare"):
            self._settle(txn)
        return self._end_2(txn, identity, commit) if self.tv >= 2 else self._end_1(txn, identity, commit)

    def aborts_by_epoch(self, name: str, identity: ProducerIdentity, commit: bool) -> bool:
        """Whether a client that wants this end asks for `abort`, by the state that it is told."""
        state = self._describe(self.transactions.get(name))
        seen = state is not None and (state.state, state.identity) == ("Ongoing", identity)
        return seen and not commit and self.tv < 2

    def abort(self, name: str, identity: ProducerIdentity) -> ProducerIdentity | Refused:
        """InitProducerId by who has the id: what is open is aborted under the next epoch."""
        answer = self.go_on(name, identity)
        txn = self.transactions.get(name)
        aborted = txn is not None and (txn.state, txn.identity) == ("CompleteAbort", bumped(identity))
        return bumped(identity) if aborted else answer

    def commit_offsets(self, group: str, offsets: Offsets) -> None:
        self.groups.setdefault(group, {}).update(offsets)

    def fetch(self, group: str, *, stable: bool = True) -> Stored | Refused:
        """Stable offsets of the anchor topic's partitions, each asked by its number; or the last ones."""
        if not stable:
            return self._held_by(group)
        if group in self.held:
            return UNSTABLE
        for txn in self.transactions.values():
            if group in txn.offsets and txn.state == "Ongoing":
                return UNSTABLE
            if group in txn.offsets:
                self._settle(txn)
            if group in txn.offsets:
                return UNSTABLE  # until a marker comes
        return self._held_by(group)

    def settled(self, groups: Iterable[str]) -> tuple[str, ...]:
        """Those of the groups that have no pending offsets."""
        return tuple(group for group in groups if self.fetch(group) != UNSTABLE)

    def _held_by(self, group: str) -> Stored:
        held = self.groups.get(group, {})
        return Stored(self.anchors, {p: stored for (topic, p), stored in held.items() if topic == ANCHOR})

    def find_own(self, producer_id: int, *, wait: bool = True) -> tuple[HeldBack, ...]:
        """DescribeProducers of the groups' partitions, when all markers that are on their way are there."""
        if wait:
            self.settle_all()
        where = {group: (o.name, o.identity) for group, o in self.held.items()}
        for name, txn in self.transactions.items():
            known = {group: self.leaders.get((name, group)) for group in txn.offsets}
            where |= {group: (name, known[group] or txn.wrote or txn.identity) for group in txn.offsets}
        return tuple(
            HeldBack((ANCHOR, self._place_of(group)), Participant(*who), 0)
            for group, who in where.items()
            if who[1].producer_id == producer_id
        )

    def write_markers(self, held: Iterable[HeldBack], commit: bool) -> None:
        """By somebody with the right to: the broker believes them, and the judge looks whether it is true."""
        for (topic, number), (name, identity), _ in held:
            if topic != ANCHOR:  # of a participant: a story's own
                continue
            (group,) = (group for group, place in self._places.items() if place == number)
            if self.leaders.get((name, group)) == identity and group in self.stray_groups():
                taken = self.transactions[name].offsets.pop(group)
                self.commit_offsets(group, taken if commit else {})
                continue
            found = self.held.get(group)
            assert found is not None and (found.name, found.identity) == (name, identity), (
                f"a marker for {name} {identity}, which is not open there or has yet to be ended"
            )
            assert found.committed == commit, "a marker that contradicts how it was ended"
            self._release(group, commit)

    def forget_markers(self, name: str, groups: Iterable[str]) -> None:
        """The node that ends this transaction next dies right after its answer, these markers unwritten."""
        self.transactions[name].loses = frozenset(groups)

    def ongoing(self, prefix: str) -> tuple[str, ...]:
        return tuple(n for n, t in self.transactions.items() if t.state == "Ongoing" and n.startswith(prefix))

    def describe(self, names: Iterable[str]) -> Mapping[str, Description | None]:
        return {name: self._describe(self.transactions.get(name)) for name in names}

    @property
    def rows_committed(self) -> tuple[tuple[int, str], ...]:
        """With their places in the log."""
        return tuple(self._committed)

    def visible(self) -> list[str]:
        """What a read_committed reader gets, in the order of the log."""
        return [row for _, row in sorted(self._committed)]

    # -- copies -------------------------------------------------------------------------------

    def copied(self) -> dict[str, object]:
        """All that its disks hold; of clocks and settings nothing."""
        kept = (
            "transactions", "groups", "held", "_places", "log_end", "_committed", "_next_producer", "leaders",
        )  # fmt: skip
        return copy.deepcopy({name: getattr(self, name) for name in kept})

    def restore(self, older: dict[str, object]) -> None:
        """Start on a copy."""
        vars(self).update(copy.deepcopy(older))

    # -- what happens by itself ---------------------------------------------------------------

    def mortal(self, prefix: str) -> tuple[str, ...]:
        """Open transactions that may time out."""
        return tuple(n for n in self.ongoing(prefix) if self.transactions[n].timeout_ms != NEVER_MS)

    def expire(self, name: str) -> None:
        """The transaction's time-out: aborted under a bumped epoch."""
        assert name in self.mortal("")
        self._fence(self.transactions[name])

    def find_held(self) -> tuple[HeldBack, ...]:
        """DescribeProducers of all partitions, when every marker is written: none is held."""
        self.settle_all()
        return ()

    def settle_all(self) -> None:
        """Every marker is written."""
        for txn in self.transactions.values():
            self._settle(txn)

    def stray(self) -> list[str]:
        """Rows that hold readers back although no coordinator knows of an open transaction."""
        return [row for t in self.transactions.values() if t.state != "Ongoing" for _, row in t.rows.values()]

    def stray_groups(self) -> set[str]:
        """Groups whose offsets stay pending although no coordinator knows of an open transaction."""
        return {group for t in self.transactions.values() if t.state != "Ongoing" for group in t.offsets}

    # -- inside -------------------------------------------------------------------------------

    def _take(self, name: str, identity: ProducerIdentity, group: str) -> Refused | None:
        """What the leader of a group's or of the rows' partition says to a batch."""
        if self.verifies:
            return self._enter(name, identity)
        known = self.leaders.get((name, group), identity)
        if known.producer_id == identity.producer_id and identity.epoch < known.epoch:
            return STALE_EPOCH
        self.leaders[name, group] = identity
        return None

    def _fence(self, txn: Transaction) -> None:
        txn.wrote = txn.current if txn.loses else None
        txn.state, txn.identity, txn.holder = "PrepareAbort", bumped(txn.current), None
        self._settle(txn)

    def _next(self, identity: ProducerIdentity) -> ProducerIdentity:
        return self._new_identity() if identity.epoch >= self.last_epoch else bumped(identity)

    def _enter(self, name: str, identity: ProducerIdentity) -> Refused | None:
        """Records or offsets join the transaction, which is opened by the first of them."""
        txn = self.transactions.get(name)
        if txn is None or txn.current.producer_id != identity.producer_id:
            return UNMAPPED
        if txn.current != identity:
            return STALE_EPOCH
        if txn.holder is not None:
            return WRONG_STATE
        self._settle(txn)
        if txn.state != "Ongoing":
            txn.state, txn.start_ms = "Ongoing", self.now_ms
        return None

    def _end_1(
        self, txn: Transaction, identity: ProducerIdentity, commit: bool
    ) -> ProducerIdentity | Refused:
        if txn.current.producer_id != identity.producer_id:
            return UNMAPPED
        if txn.current != identity:
            return FENCED
        if txn.state == "Ongoing":
            return self._prepare(txn, commit)
        return identity if txn.state == complete(commit) else WRONG_STATE

    def _end_2(
        self, txn: Transaction, identity: ProducerIdentity, commit: bool
    ) -> ProducerIdentity | Refused:
        """A retry is told by the old epoch; the current one means a next transaction, empty so far."""
        overflowed = txn.previous == identity and txn.identity.epoch == 0
        if txn.current.producer_id != identity.producer_id and not overflowed:
            return UNMAPPED
        ended = txn.state.startswith("Complete")
        retry = ended and (overflowed or txn.identity == bumped(identity))
        if not retry and txn.current != identity:
            return FENCED
        if txn.state == "Ongoing":
            return self._prepare(txn, commit)
        if retry:
            return txn.identity if txn.state == complete(commit) else WRONG_STATE
        return WRONG_STATE if commit else self._prepare(txn, commit)

    def _prepare(self, txn: Transaction, commit: bool) -> ProducerIdentity:
        txn.state = "PrepareCommit" if commit else "PrepareAbort"
        txn.identity, txn.holder = txn.current, None
        txn.wrote = txn.identity
        if self.tv >= 2:
            old, txn.identity = txn.identity, bumped(txn.identity)
            if old.epoch >= self.last_epoch:
                txn.previous, txn.identity = old, self._new_identity()
        if not self.late_markers:
            self._settle(txn)
        return txn.identity

    def _settle(self, txn: Transaction) -> None:
        if not txn.state.startswith("Prepare"):
            return
        committed = txn.state == "PrepareCommit"
        marker = txn.identity if txn.state == "PrepareAbort" else txn.wrote or txn.identity
        ended = {key: row for key, row in txn.rows.items() if self.verifies or key[0][0] == marker[0]}
        if committed:
            self._committed.extend(ended.values())
        marked = txn.offsets if self.verifies else {g: txn.offsets.get(g, {}) for g in txn.groups}
        if not self.verifies:
            name = next(name for name, t in self.transactions.items() if t is txn)
            self.leaders |= {(name, place): marker for place in ("", *marked)}
        for group, offsets in marked.items():
            if group in self.held:  # of the same producer id: one marker ends all that is open of it
                self._release(group, committed)
            if group in txn.loses and txn.wrote is not None:
                name = next(name for name, t in self.transactions.items() if t is txn)
                self.held[group] = Open(name, txn.wrote, committed, offsets)
            elif committed:
                self.commit_offsets(group, offsets)
        txn.loses, txn.wrote = frozenset(), None
        txn.state = txn.state.replace("Prepare", "Complete")
        txn.rows = {key: row for key, row in txn.rows.items() if key not in ended}
        txn.offsets = {group: offsets for group, offsets in txn.offsets.items() if group not in marked}
        txn.groups = set()

    def _place_of(self, group: str) -> int:
        return self._places.setdefault(group, len(self._places))

    def _release(self, group: str, commit: bool) -> None:
        found = self.held.pop(group)
        if commit:
            self.commit_offsets(group, found.offsets)

    def _describe(self, txn: Transaction | None) -> Description | None:
        if txn is None:
            return None
        told = txn.current if self.tells_holder else txn.identity
        return Description(txn.state, told, txn.timeout_ms, txn.start_ms, used=txn.used)

    def _new_identity(self) -> ProducerIdentity:
        self._next_producer += 1
        return ProducerIdentity(self._next_producer, 0)
