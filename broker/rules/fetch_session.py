"""Fetch sessions (KIP-227): a client names its partitions once; later requests and answers hold changes only.

Pure; one `FetchSessions` per broker. A request names its session and its epoch in it:

| session epoch | session | what happens |
|---|---|---|
| -1 | none, or one to end | a full fetch without a session |
| 0 | none, or one to end | a full fetch that begins a session, if there is room for one |
| above 0 | known, and this is its next epoch | the session's partitions, with the request's changes |
| above 0 | not known | FETCH_SESSION_ID_NOT_FOUND |
| above 0 | another epoch is next | INVALID_FETCH_SESSION_EPOCH |
| above 0 | topics by id where the session has names, or vice versa | FETCH_SESSION_TOPIC_ID_ERROR |

There is room if fewer than `slots` sessions exist, or one has not been used for `eviction_ms`. In addition,
all sessions together may follow at most `MOST_FOLLOWED` partitions, since a client can name partitions that
do not exist and so take memory for nothing. A session that grows beyond that is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import FetchRequest, FetchRequestPartition, FetchResponsePartitionDraft

TopicKey = str | bytes
"""A topic's name; from version 13 on its id."""
PartitionKey = tuple[TopicKey, int]

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_LAST_EPOCH = 2**31 - 1
MOST_FOLLOWED = 200_000


@dataclass(slots=True)
class Followed:
    """A partition of a session: what the client asked for, and what it was last sent about it."""

    part: FetchRequestPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def news(self, answer: FetchResponsePartitionDraft) -> bool:
        """Whether `answer` is new to the client and must be sent. Remembers it as sent."""
        current = answer["high_watermark"], answer.get("log_start_offset", -1)
        known = self.high_watermark, self.log_start_offset
        self.high_watermark, self.log_start_offset = current
        if answer.get("error_code", 0):
            self.high_watermark = -1  # sent again once the error is over
            return True
        return bool(answer["records"]) or current != known


@dataclass(slots=True)
class FetchSession:
    """The partitions that one client follows, in the order of their next reads."""

    id: int
    by_id: bool
    used_ms: int
    next_epoch: int = 1
    partitions: dict[PartitionKey, Followed] = field(default_factory=dict)

    def take(self, request: FetchRequest) -> None:
        """Add, change and remove partitions as the request says."""
        for place, part in asked(request, self.by_id):
            followed = self.partitions.get(place)
            if followed is None:
                self.partitions[place] = Followed(part)
            else:
                followed.part = part
        for topic in request["forgotten_topics_data"]:
            key = topic["topic_id"] if self.by_id else topic["topic"]
            for index in topic["partitions"]:
                self.partitions.pop((key, index), None)

    def needed(
        self, answers: dict[PartitionKey, FetchResponsePartitionDraft], *, all_of_them: bool
    ) -> dict[PartitionKey, FetchResponsePartitionDraft]:
        """The answers that the client needs. A partition that gave records comes last next time."""
        news: dict[PartitionKey, FetchResponsePartitionDraft] = {}
        for place, answer in answers.items():
            followed = self.partitions.get(place)
            if followed is None:
                continue
            if followed.news(answer) or all_of_them:
                news[place] = answer
            if answer["records"]:
                self.partitions[place] = self.partitions.pop(place)
        return news


@dataclass(frozen=True, slots=True)
class FetchRound:
    """The partitions of one request, in the order to read them, and its session."""

    parts: list[tuple[PartitionKey, FetchRequestPartition]]
    session: FetchSession | None = None
    incremental: bool = False

    def needed(
        self, answers: dict[PartitionKey, FetchResponsePartitionDraft]
    ) -> dict[PartitionKey, FetchResponsePartitionDraft]:
        """The answers that the client needs."""
        if self.session is None:
            return answers
        return self.session.needed(answers, all_of_them=not self.incremental)


class FetchSessions:
    """All sessions, the least recently used first."""

    def __init__(self, slots: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        """`new_id` gives numbers from 1 to 2^31 - 1 that are hard to guess."""
        self._slots, self._eviction_ms, self._new_id = slots, eviction_ms, new_id
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def wanted(self, request: FetchRequest, by_id: bool, now_ms: int) -> FetchRound:
        """The partitions that the request asks for. Raises KafkaError by the table in the module's head."""
        epoch, number = request["session_epoch"], request["session_id"]
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self.end(number)
            session = self._begin(request, by_id, now_ms) if epoch == INITIAL_EPOCH else None
            return FetchRound(list(asked(request, by_id)), session)
        session = self._go_on(number, epoch, by_id, now_ms)
        session.take(request)
        if request["topics"] and self._follow_too_many():
            self.end(number)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        parts = [(place, followed.part) for place, followed in session.partitions.items()]
        if not parts:
            self.end(number)
            return FetchRound([])
        return FetchRound(parts, session, incremental=True)

    def _begin(self, request: FetchRequest, by_id: bool, now_ms: int) -> FetchSession | None:
        if not self._room(now_ms):
            return None
        number = self._new_id()
        while number in self._sessions:
            number = self._new_id()
        session = self._sessions[number] = FetchSession(number, by_id, now_ms)
        session.take(request)
        if self._follow_too_many():
            self.end(number)
            return None
        return session

    def _follow_too_many(self) -> bool:
        return sum(len(session.partitions) for session in self._sessions.values()) > MOST_FOLLOWED

    def end(self, number: int) -> None:
        """Drop the session of this number, if there is one."""
        self._sessions.pop(number, None)

    def _room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms <= self._eviction_ms:
            return False
        del self._sessions[oldest.id]
        return True

    def _go_on(self, number: int, epoch: int, by_id: bool, now_ms: int) -> FetchSession:
        session = self._sessions.get(number)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.next_epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.next_epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        session.used_ms = now_ms
        self._sessions[number] = self._sessions.pop(number)  # now the one used last
        return session


def asked(request: FetchRequest, by_id: bool) -> Iterator[tuple[PartitionKey, FetchRequestPartition]]:
    """The partitions that the request itself names, in its order."""
    for topic in request["topics"]:
        key = topic["topic_id"] if by_id else topic["topic"]
        for part in topic["partitions"]:
            yield (key, part["partition"]), part


# -- reader checks ---------------------------------------------------------------------------------
# What readers say of themselves: the leader epoch that they know (KIP-320), their isolation level (KIP-98).
#
# A client with older or newer metadata than ours is refused. Pure.


_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1


def check_leader_epoch(current: int, known: int) -> None:
    """Compare the epoch that a client knows (-1: none) with the leader's current one.

    Raises KafkaError UNKNOWN_LEADER_EPOCH if the client's is newer, FENCED_LEADER_EPOCH if it is older.
    """
    if known > current:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {known} is newer than {current}")
    if 0 <= known < current:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {known} is over, it is {current} now")


def reads_committed(isolation_level: int) -> bool:
    """Whether a reader sees only what is committed.

    Raises KafkaError UNKNOWN_SERVER_ERROR for a level that does not exist: so Kafka answers.
    """
    if isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"isolation level {isolation_level} is unknown: use 0 or 1"
        )
    return isolation_level == _READ_COMMITTED
