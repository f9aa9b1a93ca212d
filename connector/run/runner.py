"""Runs the commit protocol's rules over the Kafka client: turns each command into a call, and each failure
into an answer.

There are no rules here.
"""

import logging
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from eoslog.client.admin import groups as group_offsets
from eoslog.client.admin import transaction_states, transactions
from eoslog.client.admin.transaction_states import PendingListing
from eoslog.client.wire.cluster import Cluster, TopicInfo
from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.retry import retrying
from eoslog.connector.commit.commands import (
    Acquire,
    Around,
    AskOngoing,
    AskOpen,
    AwaitMarkers,
    Command,
    CommitOffsets,
    Describe,
    Description,
    End,
    Failure,
    FetchStored,
    FindBehind,
    FindHeld,
    FindOpen,
    FindOwn,
    FindSettled,
    FindTopics,
    GroupExists,
    HeldBack,
    Listed,
    ListOngoing,
    LookAt,
    NotOffered,
    Offsets,
    ReadClock,
    Refused,
    Rules,
    SaveState,
    Seal,
    Sealed,
    Staged,
    StageOffsets,
    TransactionVersion,
    Unknown,
    WriteMarkers,
    run_rules,
)
from eoslog.connector.commit.decision import ANCHOR, Decision, Stored, topics_with_chunks
from eoslog.connector.commit.finish import DUE, ONGOING
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.places import PartitionState
from eoslog.connector.commit.saved_state import Written
from eoslog.connector.commit.sink_transaction import LOOKS
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run import markers
from eoslog.connector.run.places_in_log import followed, look_at, topic_ids
from eoslog.errors import (
    BrokerUnreachable,
    ConnectionLost,
    EoslogError,
    ProduceFailed,
    RetriesExhausted,
    UnsupportedByBroker,
)
from eoslog.errors.pages import see
from eoslog.protocol import errors
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
Observer = Callable[[Command[Any]], None]
OWN_TIMEOUT_MS = 60_000
"""Time-out of the sink's own transaction, which is open only for a few requests. While a crashed driver's is
open, a query that starts from the committed source offsets cannot read them."""
_NO_ANSWER = (RetriesExhausted, ConnectionLost, BrokerUnreachable)
_NOT_OFFERED = (UnsupportedByBroker, errors.TransactionalIdAuthorizationFailed, errors.UnsupportedVersion)
"""Two-phase commit is switched off, or this client may not use it, or the broker does not implement it."""
_WAITED_FOR = (ONGOING, *DUE)
"""States of transactions that hold back readers of committed data."""
_MARKS = 1000
"""The last three digits of the time-out of the sink's own id mark its topic of decisions, 1 to 999. A group
does not show offsets on topics that a user may not describe, so a decision on such a topic looks as if there
were none. The state of the id stays visible, and is kept as long as decisions are. 0: an older version's.
The seconds before them are even if the sink had decided when it was acquired: a group that has expired does
not show that either. An older version's may be even, too."""
_TWO_PHASE_RIGHT = "TwoPhaseCommit"
"""A refusal of this right is remembered; a probe, at the start of a query that requires it, always asks."""


class Runner:
    """Carries out commands on one cluster. `timeout_ms` is the transaction time-out of the sink's own id.

    `decisions`: the topic that keeps them (option decision.topic); the rules call it ANCHOR.
    `before` and `after` are called around each command, so that a test can see every step or crash the
    process there. Then each transaction of an End or a Seal gets its own command, one after another. Without
    them all these requests are sent together.
    """

    def __init__(
        self,
        cluster: Cluster,
        timeout_ms: int,
        *,
        decisions: str = ANCHOR,
        before: Observer | None = None,
        after: Observer | None = None,
    ) -> None:
        self._cluster, self._timeout_ms, self._decisions = cluster, timeout_ms, decisions
        self._before, self._after = before, after
        self._asked: PendingListing | None = None
        self._looked: markers.PendingLook | None = None
        self._fetched: group_offsets.PendingFetch | None = None
        self._perform: dict[type[Command[Any]], Callable[[Any], Any]] = {
            Acquire: self._acquire,
            FetchStored: self._fetch_stored,
            GroupExists: lambda c: group_offsets.describe_group(cluster, c.group).state != "Dead",
            StageOffsets: self._stage_offsets,
            SaveState: _save_state,
            CommitOffsets: lambda c: group_offsets.commit_plain(cluster, c.group, self._placed(c.offsets)),
            End: self._end,
            Seal: self._seal,
            AskOngoing: self._ask_ongoing,
            ListOngoing: self._list_ongoing,
            Describe: self._describe,
            AwaitMarkers: lambda c: transaction_states.await_markers(cluster, c.names),
            FindHeld: lambda c: markers.find_held(cluster, c.places, c.participants),
            FindOwn: self._find_own,
            AskOpen: self._ask_open,
            FindOpen: self._find_open,
            FindSettled: self._find_settled,
            WriteMarkers: lambda c: markers.write_markers(cluster, c.held, commit=c.commit),
            LookAt: lambda c: look_at(cluster, c.places),
            FindBehind: lambda c: tuple(followed(cluster, c.places, c.sink, c.since)),
            FindTopics: lambda c: topic_ids(cluster, c.names),
            TransactionVersion: lambda c: cluster.transaction_version(),
            ReadClock: lambda c: round(_clock() * 1000),
        }

    @property
    def acquainted(self) -> bool:
        """Whether this process has been connected to the cluster before."""
        return self._cluster.reached

    @property
    def retries(self) -> int:
        """How many requests of this process had to be sent again."""
        return self._cluster.retries

    def disturbed(self) -> bool:
        """Whether this process has seen a broker lost or a coordinator moved since the last call."""
        return self._cluster.disturbed()

    def run(self, rules: Rules[T], *around: Around) -> T:
        """Run the rules to their end: see run_rules()."""
        return run_rules(rules, self._do, *around)

    def _do(self, command: Command[Any]) -> Any:
        watched = self._before or self._after
        if watched and isinstance(command, (End, Seal)) and len(command.participants) > 1:
            singles = [replace(command, participants=(one,)) for one in command.participants]
            return {name: answer for single in singles for name, answer in self._do(single).items()}
        if self._before:
            self._before(command)
        answer = _answered(self._perform[type(command)], command)
        if self._after:
            self._after(command)
        return answer

    def _acquire(self, command: Acquire) -> ProducerIdentity:
        timeout_ms = _marked(self._timeout_ms, self._decisions, used=command.used)
        return transactions.init_producer_id(self._cluster, command.name, timeout_ms, command.current)

    def _fetch_stored(self, command: FetchStored) -> Stored | Refused:
        topic = self._decisions
        if topic == ANCHOR and self._cluster.remembered(ANCHOR) is None:
            # The first look-up of a group makes the broker create the anchor topic if it does not exist.
            wanted = [(ANCHOR, 0)]
            group_offsets.fetch_committed(self._cluster, command.group, wanted, require_stable=False)
        anchors = len(self._topic(topic).leaders)
        wanted = [(topic, number) for number in range(anchors)]
        pending_ms = self._cluster.config.api_timeout_ms / LOOKS
        try:
            found = group_offsets.fetch_committed(
                self._cluster, command.group, wanted, require_stable=command.stable, pending_ms=pending_ms
            )
        except group_offsets.StillPending as pending:
            return Refused(int(ErrorCode.UNSTABLE_OFFSET_COMMIT), str(pending))
        elsewhere = self._elsewhere(command.group) if command.everywhere else ()
        return Stored(anchors, {number: stored for (_, number), stored in found.items()}, elsewhere)

    def _elsewhere(self, group: str) -> tuple[str, ...]:
        found = group_offsets.fetch_committed(self._cluster, group, None, require_stable=False)
        return tuple(sorted(topics_with_chunks(found) - {self._decisions}))

    def _placed(self, offsets: Offsets) -> Offsets:
        """These offsets of a sink's group, on the topic that keeps decisions here."""
        return {(self._decisions, number): offset for (_, number), offset in offsets.items()}

    def _find_own(self, command: FindOwn) -> tuple[HeldBack, ...]:
        if self._decisions != ANCHOR and not self._sees_own():
            return ()  # then offsets that stay pending stop the query
        anchors = self._topic(ANCHOR).leaders
        return markers.find_open(self._cluster, ANCHOR, anchors, command.name, command.producer_id)

    def _sees_own(self) -> bool:
        """Whether the cluster shows the topic where the sink's own transaction is."""
        return ANCHOR in self._cluster.metadata([ANCHOR]).topics

    def _topic(self, name: str) -> TopicInfo:
        return retrying(self._cluster, f"Metadata of {name}", lambda: self._cluster.topic(name))

    def _stage_offsets(self, command: StageOffsets) -> None:
        name, identity = command.sink

        def commit(offsets: Offsets) -> None:
            transactions.commit_offsets(self._cluster, name, identity, command.group, offsets, command.epochs)

        if command.of_source:
            commit_known(self._cluster, command.group, command.offsets, commit)
        else:
            commit(self._placed(command.offsets))

    def _end(self, command: End) -> dict[str, ProducerIdentity | Failure]:
        found = transactions.end_txns(self._cluster, dict(command.participants), command.commit)
        return {
            name: _failure(answer) if isinstance(answer, Exception) else answer
            for name, answer in found.items()
        }

    def _seal(self, command: Seal) -> dict[str, Sealed | NotOffered | Failure]:
        names = [participant.name for participant in command.participants]
        probes = all(participant.identity.producer_id < 0 for participant in command.participants)
        if not (probes or self._cluster.may_ask(_TWO_PHASE_RIGHT)):
            return dict.fromkeys(names, NotOffered("the right TwoPhaseCommit was refused before"))
        found = transactions.keep_prepared(self._cluster, names, self._timeout_ms)
        refused = [isinstance(one, errors.TransactionalIdAuthorizationFailed) for one in found.values()]
        self._cluster.note_right(_TWO_PHASE_RIGHT, has=not any(refused))
        kept = {name: _sealed(answer) for name, answer in found.items()}
        refusal = next((answer for answer in kept.values() if isinstance(answer, NotOffered)), None)
        if refusal is not None:
            _say_once(self._cluster.config, refusal)
        return kept

    def _ask_ongoing(self, command: AskOngoing) -> None:
        self._forget_asked()
        self._asked = PendingListing.ahead(self._cluster, command.prefix, _WAITED_FOR)

    def _forget_asked(self) -> None:
        if self._asked is not None:
            self._asked.drop()
        self._asked = None

    def _list_ongoing(self, command: ListOngoing) -> Listed:
        if not command.asked:
            self._forget_asked()
        asked, self._asked = self._asked, None
        states = _WAITED_FOR
        found = transaction_states.list_transactions(self._cluster, command.prefix, states, ahead=asked)
        opened, due = (
            tuple(one.transactional_id for one in found if (one.state == ONGOING) is is_open)
            for is_open in (True, False)
        )
        return Listed(opened, due)

    def _ask_open(self, command: AskOpen) -> None:
        for asked in (self._looked, self._fetched):
            if asked is not None:
                asked.drop()
        self._looked = markers.PendingLook.ahead(self._cluster, command.places)
        self._fetched = group_offsets.PendingFetch.ahead(self._cluster, self._staged(command.staged))

    def _find_open(self, command: FindOpen) -> Mapping[TopicPartition, PartitionState]:
        looked, self._looked = self._looked, None
        return markers.look_at_partitions(self._cluster, command.places, ahead=looked, late=command.late)

    def _staged(self, staged: Staged) -> group_offsets.Staged:
        """Where the offsets are: decisions are on the topic that keeps them here."""
        return [
            (group, [(self._decisions if topic == ANCHOR else topic, number) for topic, number in places])
            for group, places in staged
        ]

    def _find_settled(self, command: FindSettled) -> tuple[str, ...]:
        ahead, self._fetched = self._fetched, None
        staged = self._staged(command.staged)
        found = group_offsets.settled_groups(self._cluster, staged, ahead=ahead)
        places = dict(staged)
        return tuple(  # of topics that the cluster does not have nothing was staged
            group for group in found if group_offsets.gone(self._cluster, places[group]) != {*places[group]}
        )

    def _describe(self, command: Describe) -> dict[str, Description | None]:
        found = transaction_states.describe(self._cluster, command.names)
        return {name: self._description(state) if state else None for name, state in found.items()}

    def _description(self, state: transaction_states.TransactionDescription) -> Description:
        marks = _marks_another(state.timeout_ms, self._decisions), _marks_use(state.timeout_ms)
        where = tuple(state.partitions)
        return Description(state.state, state.identity, state.timeout_ms, state.start_ms, where, *marks)


def commit_known(cluster: Cluster, group: str, offsets: Offsets, commit: Callable[[Offsets], None]) -> None:
    """Commit a group's source offsets. Partitions that the cluster does not have are left out with a warning.
    Raises what `commit` raises."""
    try:
        commit(offsets)
    except errors.UnknownTopicOrPartition:
        gone = group_offsets.gone(cluster, offsets)
        if not gone:
            raise
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(gone))
        logger.warning(
            "group %s: the source offsets of %s are left out of the commit: the cluster does not have these "
            "partitions any more, and takes no offset for them. "
            f"{see('source-offsets-are-left-out-of-a-commit')}",
            group,
            names,
        )
        there = {place: offset for place, offset in offsets.items() if place not in gone}
        if there:
            commit(there)


def _answered(perform: Callable[[Any], Any], command: Any) -> Any:
    """The command's result, or its failure in the form that the rules expect."""
    try:
        return perform(command)
    except (KafkaError, *_NO_ANSWER) as error:
        return _failure(error)


def _failure(error: Exception) -> Failure:
    """The failure in the form that the rules expect. Raises the error if it is of another kind."""
    if isinstance(error, KafkaError):
        return Refused(int(error.code), str(error))
    if isinstance(error, _NO_ANSWER):
        return Unknown(str(error))
    raise error


def _save_state(command: SaveState) -> Written | Refused:
    try:
        return command.saving.write(command.sink, command.last, command.contents)
    except ProduceFailed as error:
        return Refused(error.code, str(error))


def _sealed(
    answer: transactions.AcquiredTransaction | EoslogError | KafkaError,
) -> Sealed | NotOffered | Failure:
    if isinstance(answer, transactions.AcquiredTransaction):
        return Sealed(answer.holder, answer.wrote)
    if isinstance(answer, _NOT_OFFERED):
        return NotOffered(str(answer))
    return _failure(answer)


_said: set[ClientConfig] = set()


def _say_once(config: ClientConfig, why: NotOffered) -> None:
    if config not in _said:
        _said.add(config)
        logger.info(
            "no two-phase commit here, transactions end by kafka.transaction.timeout.ms "
            "(option two.phase.commit): %s",
            why,
        )


def _marked(timeout_ms: int, topic: str, *, used: bool) -> int:
    """A time-out of at most `timeout_ms` with the marks of this topic and of use. One below two seconds has
    none, and one below three no mark of use."""
    if timeout_ms < 2 * _MARKS:
        return min(timeout_ms, _MARKS)
    seconds = timeout_ms // _MARKS - 1
    if seconds > 1 and (seconds % 2 == 0) != used:
        seconds -= 1
    return seconds * _MARKS + _mark(topic)


def _marks_another(timeout_ms: int, topic: str) -> bool:
    """Whether this time-out has the mark of another topic."""
    return timeout_ms > _MARKS and timeout_ms % _MARKS not in (0, _mark(topic))


def _marks_use(timeout_ms: int) -> bool:
    """Whether this time-out says that the sink had decided when it was acquired."""
    return timeout_ms >= 2 * _MARKS and timeout_ms // _MARKS % 2 == 0


def _mark(topic: str) -> int:
    return 1 + zlib.crc32(topic.encode()) % (_MARKS - 1)


def _clock() -> float:
    """Seconds by a clock that also runs while the machine sleeps, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def last_decision(cluster: Cluster, sink: Sink, topic: str | None = None) -> Decision | None:
    """The sink's last decision, without waiting for one that a dead driver has left on its way: an edit ends
    that one first, and then looks again. `topic`: where it is kept; None: wherever that is. Raises
    CommitFault, KafkaError, EoslogError."""
    kept = topics_with_chunks(group_offsets.fetch_committed(cluster, sink.group, None, require_stable=False))
    at = min(kept, default=None) if topic is None else topic
    if at is None or at not in kept:
        return None
    return Runner(cluster, OWN_TIMEOUT_MS, decisions=at).run(observed_decision(sink, stable=False))
