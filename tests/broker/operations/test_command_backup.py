"""`eoslog backup`: a copy of a broker at work is one instant of it, whatever goes on meanwhile.

A transaction writes its number to every partition of three topics and commits the next one as the group's
offset. In a copy all of them agree, or the copy is not of one instant.
"""

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

from eoslog.broker.log.upkeep import backup
from eoslog.broker.ports.ports import OsFileSystem
from eoslog.cli import main
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import QUICK, create, read_all

TOPICS = ("plain", "rolling", "compacted")
PARTITIONS = 3
SMALL = {"segment.bytes": "2000", "file.delete.delay.ms": "0"}
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
            for partition in range(PARTITIONS):
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
        create(started.bootstrap, "plain", PARTITIONS)
        create(started.bootstrap, "rolling", PARTITIONS, **SMALL)
        compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        create(started.bootstrap, "compacted", PARTITIONS, **SMALL, **compact)
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
    assert len(read_all(broker.bootstrap, "plain")) == PARTITIONS * committed_up_to(work.ended)
    assert not (broker.data / backup.DIRECTORY).exists()


def last_committed(number: int) -> int:
    return number - 1 if is_aborted(number) else number


def committed_up_to(number: int) -> int:
    return sum(not is_aborted(one) for one in range(1, number + 1))


def agreed(bootstrap: str) -> int:
    """The last transaction that all partitions and the group know; none has another one."""
    expected: list[int] | None = None
    for topic in TOPICS:
        rows: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
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
            create(stopped.bootstrap, topic, PARTITIONS)
        work = Work(stopped.bootstrap)
        work.start()
        while work.ended < 8 and work.failure is None:
            time.sleep(0.02)
        work.on = False
        work.join(60)
    result = backed_up(tmp_path / "data", tmp_path / "copy")
    assert result.exit_code == 0, result.output
    assert "0 findings" in result.stdout
    killed = tmp_path / "copy" / f"{backup.UNUSED}killed"
    killed.mkdir()
    with EmbeddedBroker(tmp_path / "copy") as restored:
        assert not killed.exists()
        assert "checked" not in restored.output(), "it was copied as it was closed: in order"
        rows = read_all(restored.bootstrap, "plain")
        assert len(rows) == PARTITIONS * committed_up_to(work.ended)


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
            patch.setattr("eoslog.commands.backup_source.ANSWER_WITHIN", 0.5)
            assert "did not answer within" in refused(tmp_path / "data", tmp_path / "copy")
        holder.kill()
    assert not (tmp_path / "data" / backup.DIRECTORY).exists()
