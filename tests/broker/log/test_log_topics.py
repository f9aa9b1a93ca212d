"""Topics: made, deleted, found again, whatever happens in between; and the mark of an orderly end."""

from __future__ import annotations

import logging
from contextlib import suppress
from random import Random

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log.data_dir import DataDir, DataDirError
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.topics.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topics
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.logkit import (
    DATA,
    NOW,
    FakeClock,
    FakeFileSystem,
    Inode,
    Outcome,
    PowerLoss,
    batch,
    code,
    every_crash,
    opened,
    sequenced,
)


@pytest.fixture
def fs() -> FakeFileSystem:
    return FakeFileSystem()


def test_a_topic_is_found_by_name_id_and_partition(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topic = topics.create("flights", 3, {"max.message.bytes": "5000"})
    assert topics.get("flights") is topics.by_id(topic.topic_id) is topic
    assert [p.index for p in topic.partitions] == [0, 1, 2]
    assert {p.topic_id for p in topic.partitions} == {topic.topic_id}
    assert topics.partition("flights", 2) is topic.partitions[2]
    assert topics.partition("flights", 3) is None
    assert topics.partition("flights", -1) is None
    assert topics.partition("other", 0) is None
    assert topics.get("other") is topics.by_id(b"x" * 16) is None
    assert topic.partitions[0].settings.max_message_bytes == 5000
    assert not topic.internal


@pytest.mark.parametrize("clean", [True, False])
def test_topics_ids_configs_and_records_are_there_after_a_restart(fs: FakeFileSystem, clean: bool) -> None:
    topics = opened(fs)
    topic = topics.create("b", 2, {"segment.bytes": "2000"})
    topics.create("a", -1)
    partition = topic.partitions[1]
    partition.append(batch(b"x"), now_ms=NOW)
    partition.durability.flush_now()
    cluster = topics.cluster_id
    if clean:
        topics.close()
    fs.crash(Outcome.NOTHING)
    again = opened(fs)
    assert again.cluster_id == cluster
    assert again.names() == ["a", "b"]
    found = again.get("b")
    assert found is not None
    assert (found.topic_id, found.configs) == (topic.topic_id, {"segment.bytes": "2000"})
    assert [p.log_end_offset for p in found.partitions] == [0, 1]
    assert again.report == []


def test_num_partitions_is_the_default(fs: FakeFileSystem) -> None:
    assert len(opened(fs, num_partitions="4").create("t", -1).partitions) == 4


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a" * 250, "a\n"])
def test_illegal_names(fs: FakeFileSystem, name: str) -> None:
    topics = opened(fs)
    assert code(lambda: topics.create(name, 1)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert fs.list(DATA) == [".life-epoch", ".lock", "meta.properties"]


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b_c-9", "-1", "x-0"])
def test_legal_names(fs: FakeFileSystem, name: str) -> None:
    opened(fs).create(name, 1)
    fs.crash(Outcome.NOTHING)
    assert opened(fs).names() == [name]


def test_what_else_cannot_be_made(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    topics.create("a.b", 1)
    assert code(lambda: topics.create("a.b", 1)) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert code(lambda: topics.create("a_b", 1)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code(lambda: topics.create("c", 0)) is ErrorCode.INVALID_PARTITIONS
    assert code(lambda: topics.create("c", 1, {"segment.bytes": "many"})) is ErrorCode.INVALID_CONFIG
    assert code(lambda: topics.create("c", 1, {"segment.bytes": "3"})) is ErrorCode.INVALID_CONFIG
    assert code(lambda: topics.create("c", 1, {"cleanup.policy": "burn"})) is ErrorCode.INVALID_CONFIG
    assert code(lambda: topics.create("c", 1, {"message.timestamp.type": "x"})) is ErrorCode.INVALID_CONFIG
    assert code(lambda: topics.create("c", 1, {"no.such.config": "1"})) is ErrorCode.INVALID_CONFIG
    assert code(lambda: topics.create(OFFSETS_TOPIC, 1)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert topics.names() == ["a.b"]
    topics.create("c", 1, {"retention.ms": "1000", "cleanup.policy": "compact,delete"})


def test_internal_topics_are_made_on_first_use(fs: FakeFileSystem) -> None:
    topics = opened(fs, offsets_topic_num_partitions="3")
    assert topics.names() == []
    assert len(topics.internal(OFFSETS_TOPIC)) == 3
    assert len(topics.internal(TRANSACTIONS_TOPIC)) == 4
    assert topics.internal(OFFSETS_TOPIC) is topics.internal(OFFSETS_TOPIC)
    topic = topics.get(OFFSETS_TOPIC)
    assert topic is not None
    assert topic.internal
    assert code(lambda: topics.delete(OFFSETS_TOPIC)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    fs.crash(Outcome.NOTHING)
    assert len(opened(fs, offsets_topic_num_partitions="8").internal(OFFSETS_TOPIC)) == 3, (
        "fixed at first use"
    )


def test_a_deleted_topic_is_gone_and_a_new_one_of_its_name_is_another(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    first = topics.create("t", 2)
    first.partitions[0].append(sequenced(1, 0), now_ms=NOW)
    topics.delete("t")
    assert topics.get("t") is topics.by_id(first.topic_id) is None
    assert code(lambda: topics.delete("t")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (
        code(lambda: first.partitions[0].append(batch(b"x"), now_ms=NOW))
        is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert [name for name in fs.list(DATA) if name.startswith("t-")] == []
    second = topics.create("t", 1)
    assert second.topic_id != first.topic_id
    assert second.partitions[0].log_end_offset == 0
    fs.crash(Outcome.NOTHING)
    again = opened(fs).get("t")
    assert again is not None
    assert (again.topic_id, len(again.partitions)) == (second.topic_id, 1)


def test_a_crash_while_a_topic_is_made_leaves_all_of_it_or_nothing() -> None:
    def check(topics: Topics, finished: bool) -> None:
        found = topics.get("new")
        if finished:
            assert found is not None
        assert found is None or [p.offline for p in found.partitions] == [None, None]
        assert topics.names() == sorted(["keep", "other"] + (["new"] if found else []))
        if found is None:
            topics.create("new", 2)

    assert every_crash(lambda topics: topics.create("new", 2), check) > 10


def test_a_crash_while_a_topic_is_deleted_leaves_all_of_it_or_nothing() -> None:
    def check(topics: Topics, finished: bool) -> None:
        found = topics.get("keep")
        if finished:
            assert found is None
        if found is None:
            assert topics.create("keep", 1).partitions[0].log_end_offset == 0
            topics.delete("keep")

    assert every_crash(lambda topics: topics.delete("keep"), check) > 5


def test_a_crash_at_the_very_first_start_does_no_harm() -> None:
    for steps in range(100):
        fs = FakeFileSystem()
        fs.steps_left = steps
        try:
            opened(fs)
        except PowerLoss:
            fs.crash(Outcome.PREFIX, Random(steps))
            opened(fs).create("t", 1)
        else:
            return
    raise AssertionError("the start never ended")


def test_a_crash_while_closing_loses_nothing() -> None:
    for steps in range(200):
        fs = FakeFileSystem()
        topics = opened(fs)
        partition = topics.create("t", 1).partitions[0]
        for sequence in range(6):
            partition.append(sequenced(1, sequence), now_ms=NOW)
        partition.durability.flush_now()
        fs.steps_left = steps
        with suppress(PowerLoss):
            topics.close()
            assert steps > 5
            return
        fs.crash(Outcome.PREFIX, Random(steps))
        again = opened(fs).partition("t", 0)
        assert again is not None
        assert again.log_end_offset == 6
        for sequence in range(1, 6):
            assert again.append(sequenced(1, sequence), now_ms=NOW)[:1] == (sequence,)
    raise AssertionError("the end never came")


@pytest.mark.parametrize("room", range(0, 700, 23))
def test_a_full_disk_while_a_topic_is_made_leaves_nothing(fs: FakeFileSystem, room: int) -> None:
    topics = opened(fs)
    topics.create("keep", 1)
    before = fs.list(DATA)
    fs.capacity = room
    try:
        topics.create("new", 3)
    except KafkaError as error:
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert topics.names() == ["keep"]
        assert [name for name in fs.list(DATA) if not name.endswith(".tmp")] == before
        fs.capacity = None
        topics.create("new", 3)
    fs.capacity = None  # the next start writes its leader epoch, whose digits are chance
    fs.crash(Outcome.NOTHING)
    assert opened(fs).names() == ["keep", "new"]


@pytest.mark.parametrize("outcome", [Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX])
def test_a_topic_whose_registration_was_not_synced_is_not_there_later_by_half(
    fs: FakeFileSystem, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    """The registry is in place when the sync of its directory fails: it must not name what was not made."""
    topics = opened(fs)
    topics.create("kept", 1)
    sync_dir, failed = fs.sync_dir, list[str]()

    def once(path: str) -> None:
        if path == DATA and not failed and topics.names() == ["kept", "t"]:
            failed.append(path)
            raise OSError(28, "No space left on device", path)
        sync_dir(path)

    monkeypatch.setattr(fs, "sync_dir", once)
    assert code(lambda: topics.create("t", 1)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert failed
    assert topics.names() == ["kept"]
    fs.crash(outcome, Random(5))
    again = opened(fs)
    assert again.names() == ["kept"]
    assert again.report == []


def test_a_delete_that_cannot_be_noted_did_not_happen(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    partition = topics.create("t", 1).partitions[0]
    fs.capacity = 0
    assert code(lambda: topics.delete("t")) is ErrorCode.KAFKA_STORAGE_ERROR
    fs.capacity = None
    assert topics.partition("t", 0) is partition
    partition.append(batch(b"x"), now_ms=NOW)


def test_records_without_a_registry_stop_the_start_and_are_kept(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    partition = topics.create("t", 1).partitions[0]
    partition.append(batch(b"x"), now_ms=NOW)
    partition.durability.flush_now()
    fs.crash(Outcome.ALL)
    fs.remove(f"{DATA}/topics.json")
    with pytest.raises(DataDirError, match=r"/var/data/t-0 holds records"):
        opened(fs)
    assert fs.exists(f"{DATA}/t-0/00000000000000000000.log")
    with pytest.raises(DataDirError, match=r"/var/data/t-0 holds records"):
        opened(fs)  # the lock was given back


def test_a_registry_that_makes_no_sense_stops_the_start(fs: FakeFileSystem) -> None:
    opened(fs).create("t", 1)
    fs.crash(Outcome.ALL)
    inode = fs.find(f"{DATA}/topics.json")
    del inode.data[-5:]  # type: ignore[union-attr]
    with pytest.raises(DataDirError, match=r"topics.json cannot be understood"):
        opened(fs)


def test_one_damaged_partition_does_not_stop_the_others(
    fs: FakeFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    topics = opened(fs)
    topic = topics.create("t", 3)
    for partition in topic.partitions:
        for _ in range(3):
            partition.append(batch(b"x" * 50), now_ms=NOW)
        partition.durability.flush_now()
    fs.crash(Outcome.ALL)
    inode = fs.find(f"{DATA}/t-1/00000000000000000000.log")
    inode.data[100] ^= 1  # type: ignore[union-attr]
    with caplog.at_level(logging.ERROR):
        topics = opened(fs)
    assert [p.offline is None for p in topics.get("t").partitions] == [True, False, True]  # type: ignore[union-attr]
    assert len(topics.report) == 1
    assert "t-1/00000000000000000000.log" in str(topics.report[0])
    assert "partition t-1 stays offline" in caplog.text
    topics.close()
    assert opened(fs).partition("t", 1).offline is not None  # type: ignore[union-attr]


def test_a_partition_whose_directory_is_gone_is_offline(fs: FakeFileSystem) -> None:
    opened(fs).create("t", 2)
    fs.crash(Outcome.ALL)
    fs.remove_tree(f"{DATA}/t-1")
    assert opened(fs).partition("t", 1).offline is not None  # type: ignore[union-attr]


def test_recovery_points_are_written_now_and_then_and_never_go_back(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    partition = topics.create("t", 1).partitions[0]
    for _ in range(3):
        partition.append(batch(b"x" * 50), now_ms=NOW)
    partition.durability.flush_now()
    partition.append(batch(b"not synced"), now_ms=NOW)
    topics.tick()
    fs.crash(Outcome.NOTHING)
    inode = fs.find(f"{DATA}/t-0/00000000000000000000.log")
    del inode.data[-10:]  # type: ignore[union-attr]
    for _ in range(2):
        topics = opened(fs)
        assert "up to 3 were safely written" in str(topics.partition("t", 0).offline)  # type: ignore[union-attr]
        topics.tick()
        fs.crash(Outcome.ALL)


def test_idle_producers_are_forgotten(fs: FakeFileSystem) -> None:
    clock = FakeClock()
    topics = Topics.open(fs, DATA, BrokerConfig(), clock, GroupFlush())
    partition = topics.create("t", 1).partitions[0]
    partition.append(sequenced(1, 0), now_ms=clock.now)
    clock.now += 86_400_000
    topics.expire_producers()
    assert partition.producers() == []


def test_a_directory_serves_one_broker(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    with pytest.raises(DataDirError, match=r"data directory /var/data is locked: another broker"):
        opened(fs)
    topics.close()
    opened(fs)


def test_a_directory_of_another_node_is_refused(fs: FakeFileSystem) -> None:
    opened(fs).close()
    with pytest.raises(DataDirError, match=r"node.id=1 .* this broker is node.id=2"):
        opened(fs, node_id="2")
    opened(fs)


def test_a_data_directory_is_durable_whoever_made_it(fs: FakeFileSystem) -> None:
    for directory in ("/made/by/us", "/there"):
        if directory == "/there":
            fs.make_dir(directory)
        topics = Topics.open(fs, directory, BrokerConfig(), FakeClock(), GroupFlush())
        topics.create("t", 1)
        fs.crash(Outcome.NOTHING)
        assert Topics.open(fs, directory, BrokerConfig(), FakeClock(), GroupFlush()).names() == ["t"]


def test_other_people_s_files_are_left_alone(fs: FakeFileSystem) -> None:
    opened(fs).create("t", 1)
    fs.crash(Outcome.ALL)
    for directory in ("photos-2024", "old-delete", "t-0.x-delete", "t-0.backup"):
        fs.make_dir(f"{DATA}/{directory}")
        fs.open(f"{DATA}/{directory}/me.jpg", create=True)
    for file in ("notes-1", "draft.tmp", "x-checkpoint"):
        fs.open(f"{DATA}/{file}", create=True)
    before = fs.list(DATA)
    assert opened(fs).names() == ["t"]
    assert fs.list(DATA) == before
    assert fs.exists(f"{DATA}/photos-2024/me.jpg")


def test_old_records_never_show_up_in_a_new_topic_of_the_name(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    for partition in topics.create("t", 2).partitions:
        partition.append(batch(b"old"), now_ms=NOW)
        partition.durability.flush_now()
    fs.fail_rename = "t-1"
    topics.delete("t")
    assert topics.get("t") is None
    fs.fail_rename = None
    assert code(lambda: topics.create("t", 2)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert fs.exists(f"{DATA}/t-1/00000000000000000000.log"), "not ours to remove any more"
    fs.crash(Outcome.ALL)
    again = opened(fs)
    assert again.names() == []
    assert [p.log_end_offset for p in again.create("t", 2).partitions] == [0, 0]


def test_a_topic_made_anew_inherits_nothing_from_the_deleted_one_of_its_name(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    (partition,) = topics.create("t", 1).partitions
    for _ in range(3):
        partition.append(batch(b"x"), now_ms=NOW)
    partition.durability.flush_now()
    partition.delete_records(2)
    topics.tick()
    topics.delete("t")
    (partition,) = topics.create("t", 1).partitions
    partition.append(batch(b"new"), now_ms=NOW)
    partition.durability.flush_now()
    fs.crash(Outcome.NOTHING)
    found = opened(fs).partition("t", 0)
    assert found is not None
    assert (found.offline, found.log_start_offset, found.log_end_offset) == (None, 0, 1)


def test_a_damaged_log_start_file_stops_the_start(fs: FakeFileSystem) -> None:
    topics = opened(fs)
    (partition,) = topics.create("t", 1).partitions
    partition.append(batch(b"x"), now_ms=NOW)
    partition.durability.flush_now()
    partition.delete_records(1)
    topics.close()
    fs.crash(Outcome.NOTHING)
    inode = fs.find(f"{DATA}/log-start-offset-checkpoint")
    assert isinstance(inode, Inode)
    inode.data[0:1] = b"9"
    with pytest.raises(DataDirError, match="deleted records may be visible again"):
        opened(fs)


# -- the mark of an orderly end ------------------------------------------------------------------
# The mark of an orderly end: it speaks of one end, and of no life after it.


def orderly(fs: FakeFileSystem) -> DataDir:
    return DataDir(fs, "/data", 1, NOW)


def test_a_life_that_has_begun_takes_the_mark_away_durably() -> None:
    """Else the next start after a power loss would believe logs that were in use."""
    fs = FakeFileSystem()
    first = orderly(fs)
    assert not first.clean
    first.mark_clean()
    first.close()
    second = orderly(fs)
    assert second.clean
    fs.crash(Outcome.NOTHING)
    third = orderly(fs)
    assert not third.clean
    third.close()
    assert not orderly(fs).clean, "nor did this one end in order"
