"""Groups over real logs and real time: parked requests, timers, restarts, partitions that are away and
return.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from eoslog.broker.coordinator.groups import classic_groups
from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroupState, Join, JoinAnswer
from eoslog.broker.coordinator.groups.committed_offsets import Committer
from eoslog.broker.coordinator.groups.consumer_group_state import ConsumerHeartbeat
from eoslog.broker.handlers import (
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from eoslog.broker.log.upkeep import Upkeep
from eoslog.broker.ports import OsFile
from eoslog.broker.requests import RequestContext
from eoslog.protocol.apis import APIS
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.frames import RequestHeader
from tests.broker.coordinator.groups.groupkit import Shell, beat, join, leave, on_loop, run, sync


async def stable(shell: Shell, *members: str, session: int = 10_000) -> None:
    """Bring group "g" to Stable with these members; the first leads."""
    joins = [shell.groups.join("g", join(new=m, session_timeout_ms=session)) for m in members]
    answers = [await joined for joined in joins]
    assert [answer.error for answer in answers] == [E.NONE] * len(members)
    generation = answers[0].generation
    syncs = [shell.groups.sync("g", sync(member, generation)) for member in members[1:]]
    assignments = {member: member.encode() for member in members}
    syncs.insert(0, shell.groups.sync("g", sync(members[0], generation, assignments=assignments)))
    assert [(await synced).assignment for synced in syncs] == [member.encode() for member in members]


async def until_state(shell: Shell, state: ClassicGroupState) -> None:
    for _ in range(500):
        group = shell.groups.describe("g")
        if group is not None and group.state is state:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not {state} but {shell.groups.describe('g')}")


@on_loop
async def test_members_meet_commit_and_leave(data: Path) -> None:
    shell = Shell(data)
    await stable(shell, "a", "b")
    assert (await shell.groups.heartbeat("g", beat("b"))).error is E.NONE
    who = Committer("g", "a", None, 1)
    assert set((await shell.groups.commit_offsets(who, shell.new(p0=3))).values()) == {E.NONE}
    with pytest.raises(KafkaError) as refused:
        await shell.groups.commit_offsets(replace(who, generation=0), shell.new(p0=1))
    assert refused.value.code is E.ILLEGAL_GENERATION
    with pytest.raises(KafkaError) as refused:
        await shell.groups.commit_offsets(Committer("g"), shell.new(p0=1))
    assert refused.value.code is E.UNKNOWN_MEMBER_ID, "somebody from outside moved a live group"
    left = await shell.groups.leave("g", leave("a", "b"))
    assert [error for _, _, error in left.members] == [E.NONE, E.NONE]
    await until_state(shell, ClassicGroupState.EMPTY)
    assert await shell.offset("g") == 3


@on_loop
async def test_members_outlive_a_crash(data: Path) -> None:
    first = Shell(data)
    await stable(first, "a", "b")
    shell = first.crashed()
    group = shell.groups.describe("g")
    assert group is not None and group.state is ClassicGroupState.STABLE
    assert (await shell.groups.heartbeat("g", beat("a"))).error is E.NONE
    assert (await shell.groups.heartbeat("g", beat("b"))).error is E.NONE
    assert (await shell.groups.sync("g", sync("b"))).assignment == b"b"
    assert (await shell.groups.heartbeat("g", beat("b", 7))).error is E.ILLEGAL_GENERATION


@on_loop
async def test_members_that_do_not_outlive_a_crash_with_the_broker_are_found_out(data: Path) -> None:
    first = Shell(data)
    await stable(first, "a", "b", session=300)
    shell = first.crashed()
    await until_state(shell, ClassicGroupState.STABLE)
    await until_state(shell, ClassicGroupState.EMPTY)
    again = shell.crashed()
    group = again.groups.describe("g")
    assert group is not None and (group.state, group.generation) == (ClassicGroupState.EMPTY, 2)


@on_loop
async def test_a_member_from_before_a_crash_that_was_not_on_record_starts_over(data: Path) -> None:
    first = Shell(data)
    answer = await first.groups.join("g", join(new="a"))
    assert answer.error is E.NONE
    shell = first.crashed()
    assert (await shell.groups.sync("g", sync("a"))).error is E.UNKNOWN_MEMBER_ID
    assert (await shell.groups.join("g", join("a"))).error is E.UNKNOWN_MEMBER_ID
    assert (await shell.groups.join("g", join(new="b"))).error is E.NONE


@on_loop
async def test_assignments_are_told_only_when_they_are_durable(data: Path) -> None:
    shell = Shell(data, flush=False)
    joined = await shell.groups.join("g", join(new="a"))
    synced = shell.groups.sync("g", sync("a", joined.generation, assignments={"a": b"x"}))
    beaten = shell.groups.heartbeat("g", beat("a"))
    await asyncio.sleep(0.05)
    assert not synced.done(), "told before it was on the disk"
    shell.flush.start()
    assert (await synced).assignment == b"x"
    assert (await beaten).error is E.NONE


@on_loop
async def test_an_assignment_that_cannot_be_written_is_refused_and_not_kept(data: Path) -> None:
    shell = Shell(data)
    joined = await shell.groups.join("g", join(new="a"))
    partition = shell.partition()
    append = partition.append

    def fail(*_: object, **__: object) -> None:
        raise KafkaError(E.KAFKA_STORAGE_ERROR, "says the test")

    partition.append = fail  # type: ignore[method-assign,assignment]
    event = sync("a", joined.generation, assignments={"a": b"x"})
    assert (await shell.groups.sync("g", event)).error is E.NOT_COORDINATOR
    group = shell.groups.describe("g")
    assert group is not None and group.state is ClassicGroupState.COMPLETING
    partition.append = append  # type: ignore[method-assign]
    assert (await shell.groups.sync("g", event)).assignment == b"x"


@on_loop
async def test_a_timer_whose_record_cannot_be_written_tries_again(data: Path) -> None:
    shell = Shell(data)
    await stable(shell, "a", session=100)
    partition = shell.partition()
    append, failures = partition.append, []

    def fail(*_: object, **__: object) -> None:
        failures.append(1)
        raise KafkaError(E.KAFKA_STORAGE_ERROR, "says the test")

    pause, classic_groups.RETRY_S = classic_groups.RETRY_S, 0.05
    try:
        partition.append = fail  # type: ignore[method-assign,assignment]
        await asyncio.sleep(0.4)
        assert failures
        partition.append = append  # type: ignore[method-assign]
        await until_state(shell, ClassicGroupState.EMPTY)
    finally:
        classic_groups.RETRY_S = pause


@on_loop
async def test_the_first_rebalance_waits_for_its_delay_in_real_time(data: Path) -> None:
    shell = Shell(data, {"group.initial.rebalance.delay.ms": "200"})
    shell.partition()  # makes the topic, which takes its time
    loop = asyncio.get_running_loop()
    begun = loop.time()
    first = shell.groups.join("g", join(new="a"))
    await asyncio.sleep(0.05)
    second = shell.groups.join("g", join(new="b"))
    answers = [await first, await second]
    assert {answer.generation for answer in answers} == {1}
    assert 0.39 <= loop.time() - begun < 60


@on_loop
async def test_closing_lets_parked_requests_go(data: Path) -> None:
    shell = Shell(data, {"group.initial.rebalance.delay.ms": "60000"})
    parked = shell.groups.join("g", join(new="a"))
    gone = shell.groups.join("g", join(new="b"))
    gone.cancel()
    shell.groups.close()
    assert await parked == JoinAnswer(E.COORDINATOR_NOT_AVAILABLE)


@on_loop
async def test_what_is_listed(data: Path) -> None:
    shell = Shell(data)
    assert shell.groups.list_groups() == []
    assert shell.topics.get("__consumer_offsets") is None, "looking made the topic"
    await stable(shell, "a")
    await shell.commit("offsets-only", p0=1)
    await shell.txn_commit("pending-only", p0=1)
    shell.groups.heartbeat("nobody", beat("x"))
    states = {group.group_id: group.state.value for group in shell.groups.list_groups()}
    assert states == {"g": "Stable", "offsets-only": "Empty", "pending-only": "Empty"}
    assert shell.groups.describe("nobody") is None


# -- a partition that is away --------------------------------------------------------------------
# What clients are told, at every version, of groups whose partition of the log is not available.

Answer = dict[str, Any]
GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
PLACE = [{"partition_index": 0, "committed_offset": 1}]


def topic_error(answer: Answer) -> int:
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def fetch_body(version: int, topic_id: bytes) -> Answer:
    named = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
    one = {"group_id": "g", "topics": [{**named, "partition_indexes": [0]}]}
    return {"groups": [one]} if version >= 8 else one


def fetch_error(version: int, answer: Answer) -> int:
    if version == 1:
        return topic_error(answer)
    code: int = (answer["groups"][0] if version >= 8 else answer)["error_code"]
    return code


def commit_body(version: int, topic_id: bytes) -> Answer:
    return {"group_id": "g", "topics": [{"name": "t", "topic_id": topic_id, "partitions": PLACE}]}


def txn_body(version: int, topic_id: bytes) -> Answer:
    topics = [{"name": "t", "partitions": PLACE}]
    return {"group_id": "g", "transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "topics": topics}


def sync_body(version: int, topic_id: bytes) -> Answer:
    return {"group_id": "g"} | (
        {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    )


def join_body(version: int, topic_id: bytes) -> Answer:
    protocols = [{"name": "range", "metadata": b""}]
    return {
        "group_id": "g",
        "session_timeout_ms": 9000,
        "protocol_type": "consumer",
        "protocols": protocols,
    }


Body = Callable[[int, bytes], Answer]
Read = Callable[[int, Answer], int]
CASES: list[tuple[Any, Body, Read]] = [
    (offset_fetch, fetch_body, fetch_error),
    (offset_commit, commit_body, lambda version, answer: topic_error(answer)),
    (txn_offset_commit, txn_body, lambda version, answer: topic_error(answer)),
    (join_group, join_body, lambda version, answer: answer["error_code"]),
    (sync_group, sync_body, lambda version, answer: answer["error_code"]),
    (heartbeat, lambda *_: {"group_id": "g"}, lambda version, answer: answer["error_code"]),
    (leave_group, lambda *_: {"group_id": "g"}, lambda version, answer: answer["error_code"]),
    (
        describe_groups,
        lambda *_: {"groups": ["g"]},
        lambda version, answer: answer["groups"][0]["error_code"],
    ),
    (list_groups, lambda *_: {}, lambda version, answer: answer["error_code"]),
]


async def call(handler: Any, shell: Shell, version: int, body: Answer) -> Answer:
    """One request through its bytes, its handler, and its answer's bytes."""
    api = APIS[handler.KEY]
    request, _ = api.request.read(version, b"".join(bytes(p) for p in api.request.write(version, body)))
    broker: Any = SimpleNamespace(groups=shell.groups, topics=shell.topics, node_id=1, authorizer=None)
    header = RequestHeader(handler.KEY, version, 1, "client")
    answer = handler.handle(RequestContext(broker, header, "/127.0.0.1", "host", 9), request)
    if not isinstance(answer, dict):
        answer = await answer
    told: dict[str, Any]
    told, _ = api.response.read(version, b"".join(bytes(p) for p in api.response.write(version, answer)))
    return told


@pytest.mark.parametrize(
    ("handler", "body", "read", "version"),
    [
        pytest.param(*case, version, id=f"{case[0].KEY.name}-{version}")
        for case in CASES
        for version in range(APIS[case[0].KEY].min_version, APIS[case[0].KEY].max_version + 1)
    ],
)
def test_a_group_whose_partition_is_offline(
    tmp_path: Path, handler: Any, body: Body, read: Read, version: int
) -> None:
    async def attempt() -> None:
        shell = Shell(tmp_path / "data")
        topic_id = shell.topic()
        shell.partition("g").stay_offline("says the test")
        answer = await call(handler, shell, version, body(version, topic_id))
        assert read(version, answer) == GONE

    run(attempt())


@pytest.mark.parametrize("version", range(1, 11))
def test_a_topic_made_anew_has_none_of_the_old_one_s_offsets(tmp_path: Path, version: int) -> None:
    async def attempt() -> None:
        shell = Shell(tmp_path / "data")
        await shell.commit("g", p0=7)
        shell.topics.delete("t")  # and the deletion of its offsets is cut short by a crash
        topic_id = shell.topic()
        answer = await call(offset_fetch, shell, version, fetch_body(version, topic_id))
        (topic,) = (answer["groups"][0] if version >= 8 else answer)["topics"]
        assert topic["partitions"][0]["committed_offset"] == -1

    run(attempt())


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
def test_a_coordinator_whose_topic_cannot_be_made(tmp_path: Path, version: int) -> None:
    def fail(name: str) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no room for {name}")

    async def attempt() -> None:
        shell = Shell(tmp_path / "data")
        shell.topics.internal = fail  # type: ignore[method-assign,assignment]
        body = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
        answer = await call(find_coordinator, shell, version, body)
        told = answer["coordinators"][0] if version >= 4 else answer
        assert told["error_code"] == GONE
        assert told["node_id"] == -1
        if version >= 1:
            assert "no room" in told["error_message"]

    asyncio.run(attempt())


# -- a partition that returns --------------------------------------------------------------------
# A partition of `__consumer_offsets` that was offline is back: its groups are what it says.


@contextmanager
def failing_disk() -> Iterator[None]:
    """Nothing that is written to `__consumer_offsets` becomes durable."""
    real = OsFile.sync

    def sync(file: OsFile) -> None:
        if "__consumer_offsets" in file.path:
            raise OSError(5, "Input/output error", file.path)
        real(file)

    with patch.object(OsFile, "sync", sync):
        yield


async def come_back(shell: Shell) -> None:
    """As the broker does it."""
    partitions = [p for p in shell.topics.all_partitions() if p.offline is not None]
    assert partitions
    await Upkeep(lambda: partitions, shell.clock).bring_back(shell.groups.read_again)
    assert all(partition.offline is None for partition in partitions)


def joining(client: str) -> Join:
    protocols = (("range", b""),)
    return Join("", None, client, "h", "consumer", protocols, 60_000, 60_000, client, False)


def beating(member: str, epoch: int) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        member, epoch, rebalance_timeout_ms=60_000, topics=frozenset(("t",)), owned=frozenset()
    )


@on_loop
async def test_a_commit_that_was_refused_is_not_told_later(data: Path) -> None:
    shell = Shell(data)
    await shell.commit("g", p0=1)
    await shell.commit("h", p0=5)
    assert shell.partition("g") is not shell.partition("h")
    with failing_disk(), pytest.raises(KafkaError) as refused:
        await shell.commit("g", p0=2)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError) as offline:
        await shell.offset("g")
    assert offline.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await come_back(shell)
    assert (await shell.offset("g"), await shell.offset("h")) == (1, 5)
    await shell.commit("g", p0=3)
    assert await shell.offset("g") == 3
    assert await shell.crashed().offset("g") == 3


@on_loop
async def test_offsets_of_an_open_transaction_are_as_the_log_has_them(data: Path) -> None:
    shell = Shell(data)
    await shell.txn_commit("g", p0=7)
    with failing_disk(), pytest.raises(KafkaError):
        await shell.txn_commit("g", p1=8)
    await come_back(shell)
    assert (await shell.fetch("g", ("t", 0), stable=True))["t", 0].error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    shell.marker("g", True)
    assert (await shell.offset("g", 0), await shell.offset("g", 1)) == (7, -1)


@on_loop
async def test_who_waits_in_a_classic_group_is_sent_to_look_for_it_again(data: Path) -> None:
    shell = Shell(data)
    assert (await shell.groups.join("g", joining("first"))).error is ErrorCode.NONE
    second = shell.groups.join("g", joining("second"))
    await asyncio.sleep(0)
    assert not second.done(), "it waits for the first member"
    assert shell.partition("i") is shell.partition("g")
    with failing_disk(), pytest.raises(KafkaError):
        await shell.commit("i", p0=1)
    assert not second.done()
    await come_back(shell)
    assert (await second).error is ErrorCode.NOT_COORDINATOR
    assert shell.groups.describe("g") is None, "nothing of it was recorded: its first rebalance was under way"
    assert (await shell.groups.join("g", joining("second"))).error is ErrorCode.NONE


@on_loop
async def test_a_consumer_group_is_back_and_its_sessions_run(data: Path) -> None:
    short = {"group.consumer.session.timeout.ms": "400", "group.consumer.min.session.timeout.ms": "1"}
    shell = Shell(data, short | {"group.consumer.heartbeat.interval.ms": "100"})
    shell.topic()
    await shell.groups.consumer_heartbeat("g", beating("m", 0))
    with failing_disk(), pytest.raises(KafkaError):
        await shell.groups.consumer_heartbeat("g", beating("n", 0))
    await come_back(shell)
    group = shell.groups.describe_consumer("g")
    assert group is not None and list(group.members) == ["m"]
    await asyncio.sleep(0.6)
    left = shell.groups.describe_consumer("g")
    assert left is not None and not left.members, "nobody beats any more"
