"""Fetch sessions (KIP-227): the rules against a client that asks for everything, and by the wire."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.broker.rules.fetch_session import MOST_FOLLOWED, FetchSessions, PartitionKey
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.plain_records import encode_records
from eoslog.protocol.schema import Message
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create

if TYPE_CHECKING:
    from eoslog.protocol.typed import FetchRequest, FetchResponsePartitionDraft

SLOTS, EVICTION_MS = 2, 1000


def sessions() -> FetchSessions:
    return FetchSessions(SLOTS, EVICTION_MS, itertools.count(1).__next__)


def request(
    *places: PartitionKey,
    session: int = 0,
    epoch: int = 0,
    forget: tuple[PartitionKey, ...] = (),
    offset: int = 0,
) -> FetchRequest:
    def topics(of: tuple[PartitionKey, ...], part: Any) -> list[Message]:
        return [{"topic": t, "topic_id": t, "partitions": [part(index)]} for t, index in of]

    message: Message = {  # the fields that the rules look at
        "session_id": session,
        "session_epoch": epoch,
        "topics": topics(places, lambda index: {"partition": index, "fetch_offset": offset}),
        "forgotten_topics_data": topics(forget, lambda index: index),
    }
    return cast("FetchRequest", message)


def answer(
    high_watermark: int = 0, records: bytes = b"", start: int = 0, error: int = 0
) -> FetchResponsePartitionDraft:
    return {
        "high_watermark": high_watermark,
        "log_start_offset": start,
        "records": records,
        "error_code": error,
    }


A, B, C = ("t", 0), ("t", 1), ("u", 0)


def code(room: FetchSessions, *args: Any, by_id: bool = False, now: int = 0, **how: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        room.wanted(request(*args, **how), by_id, now)
    return raised.value.code


def test_the_table_of_epochs() -> None:
    room = sessions()
    assert room.wanted(request(A, epoch=-1), False, 0).session is None
    first = room.wanted(request(A, B), False, 0)
    assert first.session is not None and first.session.id == 1 and not first.incremental
    assert code(room, session=9, epoch=1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code(room, session=1, epoch=2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code(room, session=1, epoch=1, by_id=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    again = room.wanted(request(session=1, epoch=1), False, 0)
    assert again.incremental and [place for place, _ in again.parts] == [A, B]
    assert code(room, session=1, epoch=1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert room.wanted(request(A, session=1, epoch=-1), False, 0).session is None
    assert code(room, session=1, epoch=2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "ended by its client"


def test_a_refused_request_changes_nothing() -> None:
    room = sessions()
    room.wanted(request(A), False, 0)
    assert code(room, B, session=1, epoch=5) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert [place for place, _ in room.wanted(request(session=1, epoch=1), False, 0).parts] == [A]


def test_a_new_session_in_place_of_the_old_one() -> None:
    room = sessions()
    room.wanted(request(A), False, 0)
    again = room.wanted(request(B, session=1, epoch=0), False, 0)
    assert again.session is not None and again.session.id == 2 and len(room) == 1


def test_the_epoch_wraps_to_1() -> None:
    room = sessions()
    session = room.wanted(request(A), False, 0).session
    assert session is not None
    session.next_epoch = 2**31 - 1
    room.wanted(request(session=1, epoch=2**31 - 1), False, 0)
    assert session.next_epoch == 1


def test_slots_and_eviction() -> None:
    room = sessions()
    for now in (0, 10):
        assert room.wanted(request(A), False, now).session
    assert room.wanted(request(A), False, EVICTION_MS).session is None, "none is idle for long enough"
    room.wanted(request(session=1, epoch=1), False, EVICTION_MS)
    late = room.wanted(request(A), False, EVICTION_MS + 11).session
    assert late is not None and late.id == 3
    assert code(room, session=2, epoch=1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "2 was idle, 1 was not"
    assert len(room) == SLOTS


def test_no_slots_no_sessions() -> None:
    room = FetchSessions(0, EVICTION_MS, itertools.count(1).__next__)
    assert room.wanted(request(A), False, 0).session is None


def test_forgetting_all_ends_the_session() -> None:
    room = sessions()
    room.wanted(request(A), False, 0)
    last = room.wanted(request(session=1, epoch=1, forget=(A,)), False, 0)
    assert last.session is None and last.parts == [] and len(room) == 0


def test_only_news_are_told_and_an_error_until_it_is_over() -> None:
    room = sessions()
    first = room.wanted(request(A, B), False, 0)
    assert set(first.needed({A: answer(), B: answer()})) == {A, B}, "a whole fetch is answered whole"

    def needed(epoch: int, **answers: FetchResponsePartitionDraft) -> set[PartitionKey]:
        wanted = room.wanted(request(session=1, epoch=epoch), False, 0)
        return set(wanted.needed({A: answers.get("a", answer()), B: answers.get("b", answer())}))

    assert needed(1) == set()
    assert needed(2, a=answer(5)) == {A}
    assert needed(3, a=answer(5), b=answer(start=1)) == {B}
    assert needed(4, a=answer(5, error=3), b=answer(start=1)) == {A}
    assert needed(5, a=answer(5, error=3), b=answer(start=1)) == {A}
    assert needed(6, a=answer(5), b=answer(start=1)) == {A}, "the error is over"
    assert needed(7, a=answer(5), b=answer(start=1)) == set()
    assert needed(8, a=answer(5, records=b"r"), b=answer(start=1)) == {A}


def test_who_gave_records_is_read_last_next_time() -> None:
    room = sessions()
    room.wanted(request(A, B, C), False, 0).needed({A: answer(1, b"r"), B: answer(), C: answer()})
    assert [place for place, _ in room.wanted(request(session=1, epoch=1), False, 0).parts] == [B, C, A]


places = st.sampled_from([A, B, C])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("log"), places, st.integers(1, 3)),
        st.tuples(st.just("trim"), places, st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.lists(places, max_size=3), st.lists(places, max_size=2)),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(steps)
def test_the_client_of_a_session_knows_what_a_whole_fetch_would_tell(script: list[Any]) -> None:
    room, logs = sessions(), dict[PartitionKey, list[int]]((place, [0, 0]) for place in (A, B, C))
    followed: dict[PartitionKey, FetchResponsePartitionDraft] = {A: {}}
    first = room.wanted(request(A), False, 0)
    assert first.session is not None
    followed.update(first.needed({A: answer()}))
    epoch = 1
    for what, *args in script:
        if what == "log":
            logs[args[0]][0] += args[1]
        elif what == "trim":
            logs[args[0]][1] += args[1]
        else:
            added, forgotten = args
            forgotten = tuple(place for place in forgotten if place not in added)
            if not (set(followed) | set(added)) - set(forgotten):
                continue
            wanted = room.wanted(request(*added, session=1, epoch=epoch, forget=forgotten), False, 0)
            epoch += 1
            followed |= {place: followed.get(place, {}) for place in added}
            followed = {place: known for place, known in followed.items() if place not in forgotten}
            assert {place for place, _ in wanted.parts} == set(followed)
            now = {place: answer(logs[place][0], start=logs[place][1]) for place in followed}
            followed |= wanted.needed(dict(now))
            assert followed == now


def partitions(found: Message) -> dict[int, Message]:
    return {part["partition_index"]: part for topic in found["responses"] for part in topic["partitions"]}


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_by_the_wire(wire: Wire, version: int) -> None:
    topic = f"sessions-{version}"
    wanted = {"name": topic, "num_partitions": 3, "replication_factor": 1}
    (made,) = wire.call(ApiKey.CREATE_TOPICS, 7, topics=[wanted])["topics"]
    names = {"topic": topic, "topic_id": made["topic_id"]}

    def fetch(session: int, epoch: int, *parts: tuple[int, int], wait: int = 0, **how: Any) -> Message:
        asked = [{"partition": p, "fetch_offset": at, "partition_max_bytes": 1 << 20} for p, at in parts]
        topics = [{**names, "partitions": asked}] if asked else []
        return wire.call(
            ApiKey.FETCH, version, max_wait_ms=wait, min_bytes=1, max_bytes=1 << 20,
            session_id=session, session_epoch=epoch, topics=topics, **how,
        )  # fmt: skip

    def put(index: int, value: bytes) -> None:
        records = encode_records([(None, value)], int(time.time() * 1000))
        data = {"name": topic, "partition_data": [{"index": index, "records": records}]}
        wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[data])

    put(0, b"zero")
    first = fetch(0, 0, (0, 0), (1, 0), (2, 0))
    session = first["session_id"]
    assert session > 0 and sorted(partitions(first)) == [0, 1, 2] and partitions(first)[0]["records"]
    moved_on = fetch(session, 1, (0, 1))
    assert (moved_on["error_code"], moved_on["session_id"], partitions(moved_on)) == (0, session, {})
    put(1, b"one")
    news = partitions(fetch(session, 2))
    assert list(news) == [1] and b"one" in bytes(news[1]["records"]) and news[1]["high_watermark"] == 1
    forgotten = [{**names, "partitions": [2]}]
    put(2, b"two")
    assert list(partitions(fetch(session, 3, (1, 1), forgotten_topics_data=forgotten))) == []
    assert fetch(session, 3)["error_code"] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    started = time.monotonic()
    assert partitions(fetch(session, 4, wait=200)) == {} and time.monotonic() - started >= 0.19
    assert fetch(session, -1, (2, 0))["session_id"] == 0
    assert fetch(session, 5)["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def many(name: str, count: int, session: int = 0, epoch: int = 0) -> FetchRequest:
    parts = [{"partition": number, "fetch_offset": 0} for number in range(count)]
    message: Message = {
        "session_id": session, "session_epoch": epoch, "forgotten_topics_data": [],
        "topics": [{"topic": name, "topic_id": name, "partitions": parts}],
    }  # fmt: skip
    return cast("FetchRequest", message)


def test_sessions_do_not_follow_more_than_memory_can_bear() -> None:
    """What they follow need not be there: a client that means harm could name any number."""
    room = FetchSessions(10, EVICTION_MS, itertools.count(1).__next__)
    half = room.wanted(many("a", MOST_FOLLOWED // 2), False, 0).session
    assert half is not None
    assert room.wanted(many("b", MOST_FOLLOWED // 2 + 1), False, 0).session is None  # served without one
    assert len(room) == 1
    grown = many("b", MOST_FOLLOWED // 2 + 1, half.id, 1)
    with pytest.raises(KafkaError) as raised:
        room.wanted(grown, False, 0)
    assert raised.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(room) == 0
    assert room.wanted(many("b", MOST_FOLLOWED), False, 0).session is not None


def test_a_fetch_of_very_many_partitions_is_answered_without_a_session() -> None:
    """And it ends the session that it names: the client begins anew with a whole fetch."""
    with EmbeddedBroker() as broker, Wire(broker.host, broker.port) as wire:
        create(broker.bootstrap, "t", 1)
        begun = wire.call(ApiKey.FETCH, 12, max_wait_ms=0, **many("t", 1))
        number = begun["session_id"]
        assert number
        needed = wire.call(ApiKey.FETCH, 12, max_wait_ms=0, **many("t", 20_000, number, 1))
        assert needed["session_id"] == 0
        codes = [part["error_code"] for part in needed["responses"][0]["partitions"]]
        assert codes == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 19_999
        gone = wire.call(ApiKey.FETCH, 12, max_wait_ms=0, **many("t", 1, number, 2))
        assert gone["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
