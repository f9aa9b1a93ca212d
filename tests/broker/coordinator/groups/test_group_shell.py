"""Groups over real logs and real time: parked requests, timers, restarts with the members still there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from eoslog.broker.coordinator.groups import classic_groups
from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroupState, JoinAnswer
from eoslog.broker.coordinator.groups.committed_offsets import Committer
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.errors import KafkaError
from tests.broker.coordinator.groups.group_events import beat, join, leave, sync
from tests.broker.coordinator.groups.group_shell import Shell, on_loop


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
