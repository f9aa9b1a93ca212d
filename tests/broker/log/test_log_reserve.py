"""A broker on a disk with 0 bytes free: it starts, serves reads, and an operator can make room."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress
from random import Random

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.core.config_store import ConfigStore
from eoslog.broker.log.reserve import FOR_ENDS, READY_BYTES, RESERVE, RESERVE_BYTES, Reserve
from eoslog.broker.log.upkeep import Upkeep
from eoslog.broker.main import StartError, _open
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.logkit import (
    DATA,
    NOW,
    FakeClock,
    FakeFileSystem,
    Outcome,
    PowerLoss,
    batch,
    code,
    opened,
    sequenced,
    stored,
    used,
)

SMALL = {"segment.bytes": "1024"}
OURS = f"{DATA}/{RESERVE}"


def bring(fs: FakeFileSystem) -> Topics:
    """A start, up to where clients are served."""
    topics = opened(fs)
    topics.reserve.fill()
    return topics


def full(fs: FakeFileSystem) -> None:
    """The disk has no byte left, whoever has them."""
    fs.volume = used(fs.root)


def filled(records: int = 12) -> tuple[FakeFileSystem, Topics]:
    """A full disk: a topic of many segments, another one, and a transaction that is open."""
    fs = FakeFileSystem()
    topics = bring(fs)
    for name in ("t", "other"):
        topics.create(name, 1, SMALL)
    for number in range(records):
        write(topics, batch(b"%04d" % number * 75, timestamp=NOW + number))
    topics.tick()
    full(fs)
    return fs, topics


def write(topics: Topics, data: bytes) -> int:
    partition = topics.partition("t", 0)
    assert partition is not None
    base = partition.append(data, now_ms=NOW).base_offset
    partition.durability.flush_now()
    return base


def retain(topics: Topics) -> None:
    """What a broker does each ten seconds on a full disk."""
    fs = topics.fs
    upkeep = Upkeep(topics.all_partitions, FakeClock(), lambda: fs.space(DATA)[1], topics.reserve)
    asyncio.run(upkeep.remove_files())


def bounds(topics: Topics) -> tuple[int, int]:
    partition = topics.partition("t", 0)
    assert partition is not None and partition.offline is None, partition and partition.offline
    return partition.log_start_offset, partition.log_end_offset


# -- the reserve -------------------------------------------------------------------------------------


def test_it_is_made_whole_only_where_that_leaves_as_much_room() -> None:
    fs = FakeFileSystem()
    fs.make_dir(DATA)
    fs.volume = 2 * RESERVE_BYTES - 1
    reserve = Reserve(fs, DATA)
    reserve.fill()
    assert reserve.size == 0 and not fs.exists(OURS)
    fs.volume += 1
    reserve.fill()
    assert reserve.size == RESERVE_BYTES and fs.free() == RESERVE_BYTES


def test_what_is_done_with_it_takes_no_more_than_it_needs() -> None:
    fs, topics = filled(2)
    reserve = topics.reserve
    spent: list[int] = []

    def spend() -> int:
        file = fs.open(f"{DATA}/spent", create=True)
        assert file.write([bytes(1000)], 0) == 1000
        spent.append(fs.free())
        return 7

    assert reserve.lend(spend) == 7
    assert spent == [RESERVE_BYTES - 1000]
    assert (reserve.size, fs.free()) == (RESERVE_BYTES - 1000, 0)
    fs.remove(f"{DATA}/spent")
    assert fs.free() == 1000
    fs.volume = used(fs.root) + 2 * RESERVE_BYTES
    reserve.fill()
    assert reserve.size == RESERVE_BYTES


def test_a_part_of_it_is_kept() -> None:
    fs, topics = filled(2)
    assert topics.reserve.lend(lambda: some(fs), FOR_ENDS) == RESERVE_BYTES - FOR_ENDS


def some(fs: FakeFileSystem) -> int:
    if not fs.free():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return fs.free()


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "no"), OSError(errno.EMFILE, "no"), OSError("no")])
def test_it_is_for_a_full_disk_alone(failure: OSError) -> None:
    _, topics = filled(2)
    tried: list[int] = []

    def fail() -> None:
        tried.append(1)
        raise failure

    with pytest.raises(OSError, match="no"):
        topics.reserve.lend(fail)
    assert tried == [1] and topics.reserve.size == RESERVE_BYTES


def test_who_removes_it_changes_nothing_but_that() -> None:
    fs, topics = filled(2)
    fs.remove(OURS)
    full(fs)
    assert code(lambda: topics.configs.set("t", SMALL | {"retention.bytes": "0"})) is (
        ErrorCode.KAFKA_STORAGE_ERROR
    )
    fs.volume = None
    topics.reserve.fill()
    assert topics.reserve.size == RESERVE_BYTES


# -- what an operator does on a full disk ------------------------------------------------------------


def test_no_client_writes_into_the_reserve() -> None:
    _, topics = filled()
    assert code(lambda: write(topics, batch(bytes(10)))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert topics.reserve.size == RESERVE_BYTES


def test_a_shorter_retention_is_taken_and_makes_room() -> None:
    fs, topics = filled()
    topics.configs.set("t", SMALL | {"retention.bytes": "0"})
    retain(topics)
    assert bounds(topics) == (12, 12)
    assert fs.free() > 3000
    assert write(topics, batch(b"next")) == 12


def test_one_partition_s_room_is_enough_for_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of a thousand would empty and fill the reserve."""
    fs = FakeFileSystem()
    topics = bring(fs)
    for partition in topics.create("many", 5, SMALL | {"retention.bytes": "2000"}).partitions:
        for number in range(20):
            partition.append(batch(b"%04d" % number * 75, timestamp=NOW + number), now_ms=NOW)
        partition.durability.flush_now()
    full(fs)
    lent: list[int] = []
    release = Reserve._release

    def counted(reserve: Reserve, keep: int = 0) -> bool:
        lent.append(keep)
        return release(reserve, keep)

    monkeypatch.setattr(Reserve, "_release", counted)
    monkeypatch.setattr(fs, "check_name", lambda _: None)  # most disks have room for a name
    retain(topics)
    assert all(partition.log_start_offset for partition in topics.all_partitions())
    assert lent == [0]


def test_a_topic_can_be_deleted() -> None:
    fs, topics = filled()
    topics.delete("t")
    assert fs.free() > 3000
    assert topics.reserve.size == RESERVE_BYTES
    fs.crash()
    assert bring(fs).names() == ["other"]


def test_records_can_be_deleted() -> None:
    fs, topics = filled()
    partition = topics.partition("t", 0)
    assert partition is not None
    assert partition.delete_records(8) == 8
    retain(topics)
    assert fs.free() > 2000
    assert bounds(topics) == (8, 12)


def test_the_broker_s_options_can_be_set() -> None:
    fs, topics = filled()
    store = ConfigStore(fs, DATA)
    store.reserve = topics.reserve
    store.put("broker", "", {"log.retention.bytes": "0"})
    assert ConfigStore(fs, DATA).get("broker", "") == {"log.retention.bytes": "0"}


def test_a_transaction_ends_so_that_its_segments_can_go() -> None:
    fs, topics = filled(2)
    fs.volume = None
    write(topics, sequenced(1, 0, transactional=True))
    for number in range(6):
        write(topics, batch(b"%04d" % number * 75))
    full(fs)
    partition = topics.partition("t", 0)
    assert partition is not None
    partition.append_marker(1, 0, False, 0, NOW)
    partition.durability.flush_now()
    assert partition.offline is None and topics.reserve.size > RESERVE_BYTES - 1000
    topics.configs.set("t", SMALL | {"retention.bytes": "0"})
    retain(topics)
    assert bounds(topics) == (10, 10)


def test_ends_of_transactions_leave_a_part_to_who_makes_room() -> None:
    fs, topics = filled(2)
    fs.volume = None
    write(topics, sequenced(1, 0, transactional=True))
    fs.open(OURS).truncate(FOR_ENDS)
    full(fs)
    partition = topics.partition("t", 0)
    assert partition is not None
    assert code(lambda: partition.append_marker(1, 0, False, 0, NOW)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.offline is None
    topics.configs.set("t", SMALL | {"retention.bytes": "0"})


def test_an_orderly_end_is_one_on_a_full_disk_too() -> None:
    fs, topics = filled()
    topics.close()
    assert fs.free() == 0
    again = bring(fs)
    assert again._dir.clean and bounds(again) == (0, 12)


def test_what_a_refused_change_says_is_so(caplog: pytest.LogCaptureFixture) -> None:
    """Without a reserve: the change is refused, and no log says that the next start may have it."""
    fs, topics = filled(2)
    fs.remove(OURS)
    full(fs)
    with pytest.raises(KafkaError, match="the configs of topic t are unchanged"):
        topics.configs.set("t", SMALL | {"retention.bytes": "0"})
    assert "may take effect" not in caplog.text
    fs.volume = None
    fs.crash(Outcome.ALL)
    topic = bring(fs).get("t")
    assert topic is not None and topic.configs == SMALL


# -- crashes on a full disk --------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_start_on_a_full_disk_has_all_that_was_acknowledged(outcome: Outcome) -> None:
    fs, topics = filled()
    partition = topics.partition("t", 0)
    assert partition is not None
    before = stored(partition)
    fs.crash(outcome, Random(1))
    full(fs)
    for _ in range(3):  # the next starts find what this one has left of it
        again = bring(fs)
        partition = again.partition("t", 0)
        assert partition is not None and partition.offline is None, partition and partition.offline
        assert stored(partition) == before
        assert again.report == []
        fs.crash(Outcome.ALL)
    again = bring(fs)
    again.configs.set("t", SMALL | {"retention.bytes": "0"})
    retain(again)
    assert bounds(again) == (12, 12)
    assert write(again, batch(b"next")) == 12


def shorten(topics: Topics) -> None:
    topics.configs.set("t", SMALL | {"retention.bytes": "1000"})
    retain(topics)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_crash_at_any_step_of_retention_on_a_full_disk(outcome: Outcome) -> None:
    """Nothing is lost but what retention allows, no record comes back, and the rest makes room as well."""
    steps, finished = 0, False
    while not finished:
        fs, topics = filled()
        fs.steps_left = steps
        start = 0
        try:
            shorten(topics)
            finished = True
        except PowerLoss:
            pass
        partition = topics.partition("t", 0)
        assert partition is not None
        start = partition.log_start_offset
        fs.crash(outcome, Random(steps))
        fs.volume = max(used(fs.root), fs.volume or 0)
        again = bring(fs)
        begin, end = bounds(again)
        assert end == 12 and begin >= start, steps
        found = again.partition("t", 0)
        assert found is not None
        assert [offset for offset, _ in stored(found)] == list(range(begin, 12)), steps
        shorten(again)
        assert bounds(again)[0] >= 8
        assert fs.free() > 0
        steps += 1
    assert steps > 10


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_crash_at_any_step_of_a_start_on_a_full_disk(outcome: Outcome) -> None:
    steps, finished = 0, False
    while not finished:
        fs, _ = filled()
        fs.crash(Outcome.ALL)
        full(fs)
        fs.steps_left = steps
        with suppress(PowerLoss):
            bring(fs)
            finished = True
        fs.crash(outcome, Random(steps))
        fs.volume = max(used(fs.root), fs.volume or 0)
        again = bring(fs)
        assert bounds(again) == (0, 12), steps
        shorten(again)
        assert bounds(again)[0] >= 8
        steps += 1
    assert steps > 3


def test_a_start_without_a_reserve_says_what_helps() -> None:
    """As with a directory of an earlier version; and with that much room it starts."""
    fs, _ = filled()
    fs.remove(OURS)
    fs.crash(Outcome.ALL)
    full(fs)
    assert fs.volume is not None
    for _ in range(2):
        with pytest.raises(StartError, match="grow its volume or free 1 MiB of other files there"):
            _open(BrokerConfig.from_options({"log.dirs": DATA}), fs)
    fs.volume += RESERVE_BYTES
    again = bring(fs)
    assert bounds(again) == (0, 12)
    shorten(again)
    assert bounds(again)[0] >= 8


def test_the_start_says_that_it_uses_the_reserve(caplog: pytest.LogCaptureFixture) -> None:
    fs, _ = filled()
    fs.crash(Outcome.ALL)
    bring(fs)
    assert f"only 0 bytes of the disk are free: this start or end may use the {RESERVE_BYTES} bytes" in (
        caplog.text
    )
    caplog.clear()
    fs.crash(Outcome.ALL)
    fs.volume = used(fs.root) + READY_BYTES
    bring(fs)
    assert RESERVE not in caplog.text
