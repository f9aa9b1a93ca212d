"""Topics that grow, and topics whose configs change: at once or step by step, for good, and never by half."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.topics import TopicOptions
from eoslog.broker.log.data_dir import DataDirError
from eoslog.broker.topics import partition_creation
from eoslog.broker.topics.topics import OFFSETS_TOPIC, Topics
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.logkit import DATA, NOW, FakeFileSystem, Outcome, batch, code, every_crash, opened


@pytest.fixture
def fs() -> FakeFileSystem:
    return FakeFileSystem()


def count(topics: Topics, name: str) -> int:
    topic = topics.get(name)
    assert topic is not None
    return len(topic.partitions)


def test_a_topic_grows_and_keeps_its_records_and_its_id(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    before = topics.create("t", 1, {"segment.bytes": "5000"})
    before.partitions[0].append(batch(b"x"), now_ms=NOW)
    before.partitions[0].durability.flush_now()
    grown = topics.add_partitions("t", 3)
    assert topics.get("t") is topics.by_id(before.topic_id) is grown
    assert grown.partitions[0] is before.partitions[0]
    assert [p.index for p in grown.partitions] == [0, 1, 2]
    assert grown.partitions[2].settings.segment_bytes == 5000
    grown.partitions[2].append(batch(b"y"), now_ms=NOW)
    grown.partitions[2].durability.flush_now()
    fs.crash(Outcome.NOTHING)
    again = opened(fs).get("t")
    assert again is not None
    assert again.topic_id == before.topic_id
    assert [p.log_end_offset for p in again.partitions] == [1, 0, 1]


def test_what_cannot_grow(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topics.create("t", 2)
    topics.internal(OFFSETS_TOPIC)
    assert code(lambda: topics.add_partitions("u", 2)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for total in (2, 1, 0, -1):
        assert code(partial(topics.add_partitions, "t", total)) is ErrorCode.INVALID_PARTITIONS
    assert code(lambda: topics.add_partitions(OFFSETS_TOPIC, 100)) is ErrorCode.INVALID_PARTITIONS
    assert count(topics, "t") == 2


def test_a_crash_while_a_topic_grows_leaves_all_of_it_or_nothing() -> None:
    def check(topics: Topics, finished: bool) -> None:
        found = count(topics, "keep")
        assert found == 3 if finished else found in (1, 3)
        if found == 1:
            topics.add_partitions("keep", 3)

    assert every_crash(lambda topics: topics.add_partitions("keep", 3), check) > 10


@pytest.mark.parametrize("room", range(0, 700, 23))
def test_a_full_disk_while_a_topic_grows_leaves_it_as_it_was(fs: FakeFileSystem, room: int) -> None:
    topics = opened(fs)
    kept = topics.create("t", 1).partitions[0]
    fs.capacity = room
    try:
        topics.add_partitions("t", 4)
    except KafkaError as error:
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert count(topics, "t") == 1
        fs.capacity = None
        kept.append(batch(b"x"), now_ms=NOW)
        assert count(topics, "t") == 1
        topics.add_partitions("t", 4)
    fs.capacity = None
    fs.crash(Outcome.NOTHING)
    assert count(opened(fs), "t") == 4


def test_records_of_a_partition_the_registry_does_not_know_stop_the_start(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topics.create("t", 1)
    registry = fs.open("/var/data/topics.json").read(100_000, 0)
    partition = topics.add_partitions("t", 2).partitions[1]
    partition.append(batch(b"x"), now_ms=NOW)
    partition.durability.flush_now()
    file = fs.open("/var/data/topics.json")
    file.truncate(0)
    file.write([registry], 0)
    file.sync()
    fs.crash(Outcome.NOTHING)
    with pytest.raises(DataDirError, match="t-1 holds records of a partition"):
        opened(fs)


def test_configs_change_at_once_and_for_good(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    partition = topics.create("t", 1, {"segment.bytes": "5000", "retention.ms": "7"}).partitions[0]
    topics.configs.set("t", {"max.message.bytes": "60", "retention.ms": "9"})
    assert (partition.settings.max_message_bytes, partition.settings.segment_bytes) == (60, 1 << 30)
    assert code(lambda: partition.append(batch(b"x" * 100), now_ms=NOW)) is ErrorCode.MESSAGE_TOO_LARGE
    fs.crash(Outcome.NOTHING)
    again = opened(fs).get("t")
    assert again is not None
    assert again.configs == {"max.message.bytes": "60", "retention.ms": "9"}
    assert again.partitions[0].settings.max_message_bytes == 60


def test_configs_that_cannot_be(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topic = topics.create("t", 1, {"segment.bytes": "5000"})
    assert code(lambda: topics.configs.set("u", {})) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name, value in (("segment.bytes", "5"), ("no.such.config", "1"), ("retention.ms", "soon")):
        with pytest.raises(KafkaError, match=name) as caught:
            topics.configs.set("t", {name: value})
        assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert topics.get("t") is topic
    assert topic.partitions[0].settings.segment_bytes == 5000


def test_the_broker_s_own_topics_stay_compacted(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topics.internal(OFFSETS_TOPIC)
    for configs in ({}, {"cleanup.policy": "delete"}, {"cleanup.policy": "compact,delete"}):
        assert code(partial(topics.configs.set, OFFSETS_TOPIC, configs)) is ErrorCode.INVALID_CONFIG
    topics.configs.set(OFFSETS_TOPIC, {"cleanup.policy": "compact", "segment.bytes": "2048"})
    assert topics.internal(OFFSETS_TOPIC)[0].settings.segment_bytes == 2048


def test_a_crash_while_configs_change_leaves_the_old_or_the_new() -> None:
    def check(topics: Topics, finished: bool) -> None:
        topic = topics.get("keep")
        assert topic is not None
        assert (
            topic.configs == {"retention.ms": "5"}
            if finished
            else topic.configs in ({}, {"retention.ms": "5"})
        )

    assert every_crash(lambda topics: topics.configs.set("keep", {"retention.ms": "5"}), check) > 2


def test_configs_that_cannot_be_noted_did_not_change(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topic = topics.create("t", 1)
    fs.capacity = 0
    refused = code(lambda: topics.configs.set("t", {"segment.bytes": "5000"}))
    assert refused is ErrorCode.KAFKA_STORAGE_ERROR
    assert topics.get("t") is topic
    assert topic.partitions[0].settings.segment_bytes == 1 << 30


def test_defaults_of_the_broker_reach_the_logs_of_topics_that_are_silent(fs: FakeFileSystem) -> None:
    config = BrokerConfig()
    topics = opened(fs, config)
    silent = topics.create("a", 1).partitions[0]
    says = topics.create("b", 1, {"segment.bytes": "5000"}).partitions[0]
    config.follow(BrokerConfig(topics=TopicOptions(segment_bytes=9000)))
    topics.configs.defaults_changed()
    assert (silent.settings.segment_bytes, says.settings.segment_bytes) == (9000, 5000)


def test_defaults_that_do_not_go_with_a_topic_are_refused(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topics.create("t", 1, {"min.compaction.lag.ms": "100"})
    topics.configs.check_defaults(BrokerConfig(topics=TopicOptions(max_compaction_lag_ms=100)))
    narrow = BrokerConfig(topics=TopicOptions(max_compaction_lag_ms=99))
    assert code(lambda: topics.configs.check_defaults(narrow)) is ErrorCode.INVALID_CONFIG


# -- step by step --------------------------------------------------------------------------------
# Topics that are made and enlarged step by step, with others having their turn in between.

STEP = 4
MANY = 3 * STEP


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_creation, "STEP", STEP)


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


@pytest.mark.usefixtures("small_steps")
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


@pytest.mark.usefixtures("small_steps")
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


@pytest.mark.usefixtures("small_steps")
def test_a_topic_that_is_deleted_while_it_grows_is_gone(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topics.create("t", 1)
    grow = topics.add_partitions_gently("t", MANY)
    work = refused(interrupted(grow, 3, lambda: topics.delete("t")))
    assert asyncio.run(work) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (topics.names(), left(fs, "t")) == ([], [])
    topics.create("t", 2)


@pytest.mark.usefixtures("small_steps")
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


@pytest.mark.usefixtures("small_steps")
def test_room_is_taken_from_the_first_step_on(fs: FakeFileSystem) -> None:
    topics = opened(fs, max_partitions=str(MANY + 1))

    def others() -> None:
        topics.create("u", 1)
        assert code(lambda: topics.create("v", 1)) is ErrorCode.POLICY_VIOLATION

    asyncio.run(interrupted(topics.create_gently("t", MANY, {}), 2, others))
    assert topics.names() == ["t", "u"]


@pytest.mark.usefixtures("small_steps")
def test_a_full_disk_in_the_midst_leaves_nothing(fs: FakeFileSystem) -> None:
    topics = opened(fs)

    def fill() -> None:
        fs.capacity = 0

    work = refused(interrupted(topics.create_gently("t", MANY, {}), 2, fill))
    assert asyncio.run(work) is ErrorCode.KAFKA_STORAGE_ERROR
    fs.capacity = None
    assert (topics.names(), left(fs, "t")) == ([], [])
    topics.create("t", 1)


@pytest.mark.usefixtures("small_steps")
def test_what_cannot_be_is_refused_at_once(fs: FakeFileSystem) -> None:
    topics: Topics = opened(fs)
    topics.create("t", 2)
    assert asyncio.run(refused(topics.create_gently("t", 1, {}))) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert asyncio.run(refused(topics.create_gently("a b", 1, {}))) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert asyncio.run(refused(topics.add_partitions_gently("t", 2))) is ErrorCode.INVALID_PARTITIONS
    assert topics.names() == ["t"]
