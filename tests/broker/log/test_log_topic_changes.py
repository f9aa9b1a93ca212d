"""Topics that grow, and topics whose configs change: at once, for good, and never by half."""

from __future__ import annotations

from functools import partial

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log.opening.data_dir import DataDirError
from eoslog.broker.topics.topics import OFFSETS_TOPIC, Topics
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.crashkit import code, every_crash, opened
from tests.broker.log.fakefs import FakeFileSystem, Outcome
from tests.broker.log.logkit import NOW, batch


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
    topics.set_configs("t", {"max.message.bytes": "60", "retention.ms": "9"})
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
    assert code(lambda: topics.set_configs("u", {})) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name, value in (("segment.bytes", "5"), ("no.such.config", "1"), ("retention.ms", "soon")):
        with pytest.raises(KafkaError, match=name) as caught:
            topics.set_configs("t", {name: value})
        assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert topics.get("t") is topic
    assert topic.partitions[0].settings.segment_bytes == 5000


def test_the_broker_s_own_topics_stay_compacted(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topics.internal(OFFSETS_TOPIC)
    for configs in ({}, {"cleanup.policy": "delete"}, {"cleanup.policy": "compact,delete"}):
        assert code(partial(topics.set_configs, OFFSETS_TOPIC, configs)) is ErrorCode.INVALID_CONFIG
    topics.set_configs(OFFSETS_TOPIC, {"cleanup.policy": "compact", "segment.bytes": "2048"})
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

    assert every_crash(lambda topics: topics.set_configs("keep", {"retention.ms": "5"}), check) > 2


def test_configs_that_cannot_be_noted_did_not_change(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topic = topics.create("t", 1)
    fs.capacity = 0
    refused = code(lambda: topics.set_configs("t", {"segment.bytes": "5000"}))
    assert refused is ErrorCode.KAFKA_STORAGE_ERROR
    assert topics.get("t") is topic
    assert topic.partitions[0].settings.segment_bytes == 1 << 30


def test_defaults_of_the_broker_reach_the_logs_of_topics_that_are_silent(fs: FakeFileSystem) -> None:
    config = BrokerConfig()
    topics = opened(fs, config)
    silent = topics.create("a", 1).partitions[0]
    says = topics.create("b", 1, {"segment.bytes": "5000"}).partitions[0]
    object.__setattr__(config, "segment_bytes", 9000)
    topics.defaults_changed()
    assert (silent.settings.segment_bytes, says.settings.segment_bytes) == (9000, 5000)


def test_defaults_that_do_not_go_with_a_topic_are_refused(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topics.create("t", 1, {"min.compaction.lag.ms": "100"})
    topics.check_defaults(BrokerConfig(max_compaction_lag_ms=100))
    narrow = BrokerConfig(max_compaction_lag_ms=99)
    assert code(lambda: topics.check_defaults(narrow)) is ErrorCode.INVALID_CONFIG
