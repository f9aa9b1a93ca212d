"""Backups: of one instant, whatever happens meanwhile; and `eoslog broker backup` and `restore`."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log import backup
from eoslog.broker.log.backup import Backups
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.log.reserve import RESERVE
from eoslog.broker.ports import OsFileSystem
from eoslog.broker.topics.topics import Topics
from eoslog.cli import main
from eoslog.commands.backup import NoBackup, copied, source
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import QUICK, create, read_all
from tests.broker.log.logkit import NOW, FakeClock, sequenced

# -- one instant ---------------------------------------------------------------------------------
# A backup is of one instant, whatever changes from turn to turn of the event loop while it is made.

PARTITIONS = 8
SMALL = {"segment.bytes": "1024", "file.delete.delay.ms": "0"}
WRITER, ABORTED, IDLE = 1, 2, 3  # producer ids


def opened(directory: Path) -> Topics:
    return Topics.open(OsFileSystem(), str(directory), BrokerConfig(), FakeClock(NOW), GroupFlush("os"))


class BusyTopic:
    """A topic in whose partitions the same is written in the same turn; others come and go."""

    def __init__(self, directory: Path) -> None:
        self.topics = opened(directory)
        self.backups = Backups(OsFileSystem(), str(directory), self.topics.all_partitions, FakeClock(NOW))
        self.topic = self.topics.create("t", PARTITIONS, SMALL)
        self.rounds = 0

    def one_round(self) -> None:
        number, self.rounds = self.rounds, self.rounds + 1
        for partition in self.topic.partitions:
            if not number:
                partition.append(sequenced(IDLE, 0), now_ms=NOW)
            partition.append(sequenced(WRITER, number), now_ms=NOW)
            partition.append(sequenced(ABORTED, number, transactional=True), now_ms=NOW)
            partition.append_marker(ABORTED, 0, False, 0, NOW)
        if number % 3 == 2:
            for partition in self.topic.partitions:
                partition.delete_records(partition.log_end_offset - 10)
                partition.retain(NOW)
        name = f"passing-{number // 5}"
        if number % 5 == 0:
            self.topics.create(name, 2, SMALL).partitions[0].append(sequenced(WRITER, 0), now_ms=NOW)
        elif number % 5 == 4:
            self.topics.delete(name)

    async def copy(self, rounds: int, directory: Path, to: Path) -> None:
        """Make a copy after so many rounds, and go on meanwhile."""

        def make() -> None:
            with source(str(directory)) as found:
                copied(found, str(to), lambda size: None)

        self.topics._flush.start()
        for _ in range(rounds):
            self.one_round()
        making = asyncio.create_task(asyncio.to_thread(make))
        while not making.done():
            look = asyncio.create_task(self.backups.look())
            while not look.done():
                await asyncio.sleep(0)
                self.one_round()
            await look
            await asyncio.sleep(0.01)
        await making
        await self.topics._flush.stop()


@pytest.mark.parametrize("rounds", [1, 20])
def test_all_partitions_are_of_the_same_turn(tmp_path: Path, rounds: int) -> None:
    busy = BusyTopic(tmp_path / "data")
    asyncio.run(busy.copy(rounds, tmp_path / "data", tmp_path / "copy"))
    assert busy.rounds > rounds + PARTITIONS, "it was written to meanwhile"
    copy = opened(tmp_path / "copy")
    assert copy.report == []
    topic = copy.get("t")
    assert topic is not None
    (end,) = {partition.log_end_offset for partition in topic.partitions}
    (start,) = {partition.log_start_offset for partition in topic.partitions}
    written = (end - 1) // 3
    assert rounds <= written < busy.rounds and end == 1 + 3 * written
    assert start == max(0, 1 + 3 * (written - written % 3) - 10)
    for partition in topic.partitions:
        states = {state.producer_id: state for state in partition.producers()}
        assert set(states) == {WRITER, ABORTED, IDLE}, "those whose records are deleted are known still"
        assert states[WRITER].batches[-1].last_sequence == written - 1
        markers = [entry.last_offset for one in partition.segments for entry in one.transactions.entries]
        assert markers == list(range(markers[0], end, 3)) and markers[0] <= start + 3, "all that was aborted"
    passing = [name for name in copy.names() if name != "t"]
    assert passing in ([], [f"passing-{(written - 1) // 5}"])
    copy.close()
    busy.topics.close()


def test_a_log_that_the_broker_has_not_given_is_missed(tmp_path: Path) -> None:
    """A copy without it would begin the partition anew."""
    data = tmp_path / "data"
    topics = opened(data)

    def answer() -> None:
        place = data / backup.DIRECTORY
        while not (place / backup.LOCK).exists():
            time.sleep(0.01)
        (place / "t-0").mkdir()
        sizes = {"t-0": {f"{0:020d}.log": 10, f"{0:020d}.txnindex": 0}}
        (place / "answer").write_text(json.dumps({"now_ms": NOW, "sizes": sizes}))
        (place / "answer").rename(place / backup.ANSWER)

    broker = threading.Thread(target=answer)
    broker.start()
    with pytest.raises(NoBackup, match=r"left out t-0/0+\.log"), source(str(data)):
        pass
    broker.join()
    topics.close()


# -- the command ---------------------------------------------------------------------------------
# `eoslog backup`: a copy of a broker at work is one instant of it, whatever goes on meanwhile.
#
# A transaction writes its number to every partition of three topics and commits the next one as the group's
# offset. In a copy all of them agree, or the copy is not of one instant.

TOPICS = ("plain", "rolling", "compacted")
COPIED_PARTITIONS = 3
COMMAND_SMALL = {"segment.bytes": "2000", "file.delete.delay.ms": "0"}
CONFIG = {"log.cleaner.backoff.ms": "50", "log.retention.check.interval.ms": "100"}


def backed_up(data: object, to: object, *more: str) -> Result:
    result = CliRunner().invoke(main, ["backup", str(data), str(to), *more])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(data: object, to: object) -> str:
    result = backed_up(data, to)
    assert result.exit_code == 1, result.output
    return result.stderr


@dataclass(eq=False)
class Work(threading.Thread):
    """Transaction after transaction; each seventh is aborted."""

    bootstrap: str
    begun: int = 0
    ended: int = 0
    on: bool = True
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        try:
            producer = Producer({
                "bootstrap.servers": self.bootstrap, "transactional.id": "work", "linger.ms": 0, **QUICK,
            })  # fmt: skip
            group = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "g", **QUICK})
            producer.init_transactions()
            while self.on:
                self._transaction(producer, group, self.begun + 1)
            group.close()
        except BaseException as error:
            self.failure = error

    def _transaction(self, producer: Producer, group: Consumer, number: int) -> None:
        self.begun = number
        producer.begin_transaction()
        for topic in TOPICS:
            for partition in range(COPIED_PARTITIONS):
                producer.produce(topic, f"{number:050d}", f"key-{number % 10}", partition)
        offset = TopicPartition("plain", 0, number + 1)
        producer.send_offsets_to_transaction([offset], group.consumer_group_metadata())
        if is_aborted(number):
            producer.flush()  # else librdkafka fails the next one: "skipped sequence numbers"
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        self.ended = number


def is_aborted(number: int) -> bool:
    return number % 7 == 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    directory = tmp_path_factory.mktemp("busy") / "data"
    with EmbeddedBroker(directory, config=CONFIG) as started:
        create(started.bootstrap, "plain", COPIED_PARTITIONS)
        create(started.bootstrap, "rolling", COPIED_PARTITIONS, **COMMAND_SMALL)
        compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        create(started.bootstrap, "compacted", COPIED_PARTITIONS, **COMMAND_SMALL, **compact)
        yield started


def test_a_copy_is_one_instant(broker: EmbeddedBroker, tmp_path: Path) -> None:
    work = Work(broker.bootstrap)
    work.start()
    while work.ended < 20 and work.failure is None:
        time.sleep(0.05)
    copies: list[tuple[Path, int, int]] = []
    for number in range(6):
        before = work.ended
        to = tmp_path / f"copy-{number}"
        result = backed_up(broker.data, to, "--json")
        assert result.exit_code == 0, result.output
        copies.append((to, before, work.begun))
        assert json.loads(result.stdout)["findings"] == []
        assert not (to / RESERVE).exists()
    work.on = False
    work.join(60)
    assert work.failure is None
    for to, before, after in copies:
        with EmbeddedBroker(to, config=CONFIG) as restored:
            assert "damage" not in restored.output() and "WARNING" not in restored.output()
            last = agreed(restored.bootstrap)
            # What was being committed may be decided in the copy, and is brought to its end.
            assert last_committed(before) <= last <= after, (before, last, after)
            goes_on(restored.bootstrap)
    assert (broker.data / RESERVE).exists()
    assert len(read_all(broker.bootstrap, "plain")) == COPIED_PARTITIONS * committed_up_to(work.ended)
    assert not (broker.data / backup.DIRECTORY).exists()


def last_committed(number: int) -> int:
    return number - 1 if is_aborted(number) else number


def committed_up_to(number: int) -> int:
    return sum(not is_aborted(one) for one in range(1, number + 1))


def agreed(bootstrap: str) -> int:
    """The last transaction that all partitions and the group know; none has another one."""
    expected: list[int] | None = None
    for topic in TOPICS:
        rows: dict[int, list[int]] = {partition: [] for partition in range(COPIED_PARTITIONS)}
        for message in read_all(bootstrap, topic):
            partition_, value = message.partition(), message.value()
            assert partition_ is not None and value is not None
            rows[partition_].append(int(value))
        for partition, found in rows.items():
            if topic == "compacted":
                assert expected is not None and found[-1] == expected[-1], (topic, partition)
                assert {n % 10: n for n in found} == {n % 10: n for n in expected}, (topic, partition)
                continue
            expected = found if expected is None else expected
            assert found == expected, (topic, partition)
    assert expected is not None
    assert expected == [one for one in range(1, expected[-1] + 1) if not is_aborted(one)]
    # What is open in the copy is aborted: the offset that it would have committed is not asked for before.
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "work", **QUICK}).init_transactions(20)
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", **QUICK})
    (offset,) = group.committed([TopicPartition("plain", 0)], 20)
    group.close()
    assert offset.offset == expected[-1] + 1
    return expected[-1]


def goes_on(bootstrap: str) -> None:
    """The transactional id is there, fenced and used as ever."""
    work = Work(bootstrap, begun=999, ended=999)
    work.start()
    while work.ended < 1003 and work.failure is None:
        time.sleep(0.02)
    work.on = False
    work.join(60)
    assert work.failure is None


def test_a_copy_of_a_broker_that_has_ended(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as stopped:
        for topic in TOPICS:
            create(stopped.bootstrap, topic, COPIED_PARTITIONS)
        work = Work(stopped.bootstrap)
        work.start()
        while work.ended < 8 and work.failure is None:
            time.sleep(0.02)
        work.on = False
        work.join(60)
    result = backed_up(tmp_path / "data", tmp_path / "copy")
    assert result.exit_code == 0, result.output
    assert "0 findings" in result.stdout
    assert (tmp_path / "data" / RESERVE).exists() and not (tmp_path / "copy" / RESERVE).exists()
    killed = tmp_path / "copy" / f"{backup.UNUSED}killed"
    killed.mkdir()
    with EmbeddedBroker(tmp_path / "copy") as restored:
        assert not killed.exists()
        assert "checked" not in restored.output(), "it was copied as it was closed: in order"
        rows = read_all(restored.bootstrap, "plain")
        assert len(rows) == COPIED_PARTITIONS * committed_up_to(work.ended)


# What is refused


def test_places_that_will_not_do(broker: EmbeddedBroker, tmp_path: Path) -> None:
    data = broker.data
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("precious")
    assert "exists already" in refused(data, tmp_path / "there")
    assert "is inside the data directory" in refused(data, data / "copy")
    assert "is no data directory of eoslog" in refused(tmp_path, tmp_path / "copy")
    assert (tmp_path / "there" / "file").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["there"]


def test_a_disk_without_room(broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OsFileSystem, "space", lambda self, path: (1 << 30, 10))
    assert "has room for 10" in refused(broker.data, tmp_path / "copy")
    assert os.listdir(tmp_path) == []
    assert not (broker.data / backup.DIRECTORY).exists()


def test_one_at_a_time_and_who_is_gone_is_no_hindrance(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A second one is refused while the first lives; what a killed one leaves the broker removes."""
    place = broker.data / backup.DIRECTORY
    made = place.with_name("making")
    made.mkdir()
    with (made / backup.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made.rename(place)
        assert "another backup" in refused(broker.data, tmp_path / "copy")
        assert place.exists()
    until = time.monotonic() + 20
    while place.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert backed_up(broker.data, tmp_path / "copy").exit_code == 0


def test_a_partition_that_is_offline(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        create(broker.bootstrap, "t", 1)
        create(broker.bootstrap, "u", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for topic in ("t", "u"):
            producer.produce(topic, b"row")
        producer.flush(10)
        broker.kill()
        log = tmp_path / "data" / "t-0" / f"{0:020d}.log"
        (tmp_path / "data" / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 1\n")
        log.write_bytes(b"")
        broker.restart()
        assert "partition t-0 is offline" in refused(tmp_path / "data", tmp_path / "copy")
        assert os.listdir(tmp_path) == ["data"]


def test_a_broker_that_does_not_answer(tmp_path: Path) -> None:
    """A lock that is held, and nobody who looks."""
    with EmbeddedBroker(tmp_path / "data"):
        pass
    held = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.flock(f, 2); print(1, flush=True);"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", held, tmp_path / "data" / ".lock"], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("eoslog.commands.backup.ANSWER_WITHIN", 0.5)
            assert "did not answer within" in refused(tmp_path / "data", tmp_path / "copy")
        holder.kill()
    assert not (tmp_path / "data" / backup.DIRECTORY).exists()
