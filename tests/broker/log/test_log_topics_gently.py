"""Topics that are made and enlarged step by step, with others having their turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from eoslog.broker.topics import partition_creation
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.crashkit import DATA, code, opened
from tests.broker.log.fakefs import FakeFileSystem, Outcome

STEP = 4
MANY = 3 * STEP


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_creation, "STEP", STEP)


@pytest.fixture
def fs() -> FakeFileSystem:
    return FakeFileSystem()


async def interrupted(work: Awaitable[object], turns: int, between: Callable[[], object]) -> object:
    """Let `work` have so many turns, then do `between`, then let it end; what it answers or raises."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    assert not task.done()
    between()
    return await task


async def refused(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await work
    return caught.value.code


def left(fs: FakeFileSystem, name: str) -> list[str]:
    return [one for one in fs.list(DATA) if one.startswith(f"{name}-") and not one.endswith("-delete")]


def test_a_topic_made_step_by_step_is_there_as_a_whole_or_not_at_all(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    seen: list[bool] = []

    async def run() -> None:
        turns = 0
        task = asyncio.ensure_future(topics.create_gently("t", MANY, {"segment.bytes": "5000"}))
        await asyncio.sleep(0)
        while not task.done():
            seen.append(topics.get("t") is not None)
            assert code(lambda: topics.create("t", 1)) is ErrorCode.TOPIC_ALREADY_EXISTS
            await asyncio.sleep(0)
            turns += 1
        assert turns > 5

    asyncio.run(run())
    assert not any(seen[:-1])
    topic = topics.get("t")
    assert topic is not None
    assert [p.index for p in topic.partitions] == list(range(MANY))
    fs.crash(Outcome.NOTHING)
    again = opened(fs)
    assert len(again.all_partitions()) == MANY
    assert again.report == []


@pytest.mark.parametrize("turns", range(1, 7))
def test_a_cancellation_leaves_nothing(fs: FakeFileSystem, turns: int) -> None:
    topics = opened(fs)
    topics.create("u", 1)

    async def run(work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(run(topics.create_gently("t", MANY, {})))
    asyncio.run(run(topics.add_partitions_gently("u", 1 + MANY)))
    assert topics.names() == ["u"]
    assert (left(fs, "t"), left(fs, "u")) == ([], ["u-0"])
    topics.create("t", 2)
    assert len(topics.add_partitions("u", 3).partitions) == 3


def test_a_topic_that_is_deleted_while_it_grows_is_gone(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topics.create("t", 1)
    grow = topics.add_partitions_gently("t", MANY)
    work = refused(interrupted(grow, 3, lambda: topics.delete("t")))
    assert asyncio.run(work) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (topics.names(), left(fs, "t")) == ([], [])
    topics.create("t", 2)


def test_configs_that_change_meanwhile_reach_the_new_partitions(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topics.create("t", 1)

    def change() -> None:
        topics.configs.set("t", {"segment.bytes": "5000"})
        assert code(lambda: topics.add_partitions("t", 2)) is ErrorCode.INVALID_PARTITIONS

    asyncio.run(interrupted(topics.add_partitions_gently("t", MANY), 3, change))
    topic = topics.get("t")
    assert topic is not None
    assert topic.configs == {"segment.bytes": "5000"}
    assert {p.settings.segment_bytes for p in topic.partitions} == {5000}


def test_room_is_taken_from_the_first_step_on(fs: FakeFileSystem) -> None:
    topics = opened(fs, max_partitions=str(MANY + 1))

    def others() -> None:
        topics.create("u", 1)
        assert code(lambda: topics.create("v", 1)) is ErrorCode.POLICY_VIOLATION

    asyncio.run(interrupted(topics.create_gently("t", MANY, {}), 2, others))
    assert topics.names() == ["t", "u"]


def test_a_full_disk_in_the_midst_leaves_nothing(fs: FakeFileSystem) -> None:
    topics = opened(fs)

    def fill() -> None:
        fs.capacity = 0

    work = refused(interrupted(topics.create_gently("t", MANY, {}), 2, fill))
    assert asyncio.run(work) is ErrorCode.KAFKA_STORAGE_ERROR
    fs.capacity = None
    assert (topics.names(), left(fs, "t")) == ([], [])
    topics.create("t", 1)


def test_what_cannot_be_is_refused_at_once(fs: FakeFileSystem) -> None:
    topics: Topics = opened(fs)
    topics.create("t", 2)
    assert asyncio.run(refused(topics.create_gently("t", 1, {}))) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert asyncio.run(refused(topics.create_gently("a b", 1, {}))) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert asyncio.run(refused(topics.add_partitions_gently("t", 2))) is ErrorCode.INVALID_PARTITIONS
    assert topics.names() == ["t"]
