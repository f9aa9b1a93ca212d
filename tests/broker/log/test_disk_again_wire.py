"""A disk that was full has room again, file descriptors that ran out are free again: a real broker goes on by
itself, all its partitions are back, and what was acknowledged is there once."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import create, read_all
from tests.kit.waiting import until

BACK_SECONDS = 20
"""A look each 5 s, and what clients wait between two tries."""
DISK_BYTES = 48 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system can be mounted by root only: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def watched(data: Path) -> Iterator[tuple[EmbeddedBroker, Callable[[], int]]]:
    """A broker, and how many of its partitions are offline."""
    pages = {"metrics.listen": "127.0.0.1:0", "num.partitions": "1"}

    def offline() -> int:
        (url,) = re.findall(r"metrics at (\S+)", broker.output())
        with urlopen(url, timeout=10) as page:
            lines = page.read().decode().splitlines()
        (line,) = [line for line in lines if line.startswith("eoslog_partitions_offline ")]
        return int(float(line.split()[1]))

    with EmbeddedBroker(data, config=pages, log_level="info") as broker:
        yield broker, offline


class Copier:
    """One transaction after the other, each with a record and a group's offset; what became of each."""

    def __init__(self, broker: EmbeddedBroker, topic: str, name: str) -> None:
        self.topic, self.name, self.bootstrap = topic, name, broker.bootstrap
        self.committed: list[int] = []
        self.unknown: list[int] = []
        self._producer: Producer | None = None
        self._group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})

    def _made(self) -> Producer:
        if self._producer is None:
            limits = {"transaction.timeout.ms": 4000, "message.timeout.ms": 3000}
            producer = Producer(
                {"bootstrap.servers": self.bootstrap, "transactional.id": self.name, **limits}
            )
            producer.init_transactions(4)
            self._producer = producer
        return self._producer

    def begin(self, number: int) -> None:
        """A transaction with all its parts, open."""
        producer = self._made()
        producer.begin_transaction()
        producer.produce(self.topic, b"%s-%d" % (self.name.encode(), number))
        offsets = [TopicPartition(self.topic, 0, number)]
        producer.send_offsets_to_transaction(offsets, self._group.consumer_group_metadata(), 3)
        assert not producer.flush(3)

    def abort(self) -> bool:
        """Whether it was aborted, as far as the client knows."""
        try:
            self._made().abort_transaction(3)
        except KafkaException:
            self._drop()
            return False
        return True

    def one(self, number: int) -> bool:
        """Whether it was committed, as far as the client knows."""
        committing = False
        try:
            self.begin(number)
            committing = True
            self._made().commit_transaction(3)
        except (KafkaException, AssertionError) as error:
            requires_abort = isinstance(error, KafkaException) and error.args[0].txn_requires_abort()
            if committing and not requires_abort:
                self.unknown.append(number)
            self._drop()
            return False
        self.committed.append(number)
        return True

    def _drop(self) -> None:
        """The next one fences it, which ends what it left open."""
        self._producer = None

    def offset(self) -> int:
        (found,) = self._group.committed([TopicPartition(self.topic, 0)], 10)
        return int(found.offset)

    def close(self) -> None:
        self._group.close()


@pytest.mark.timeout(300)
def test_a_disk_that_was_full_has_room_again(disk: Path, topic: str) -> None:
    """A marker still fits into the log, what the index of aborted transactions needs does not: offline."""
    with watched(disk / "data") as (broker, offline), ExitStack() as stack:
        create(broker.bootstrap, topic)
        copiers = [Copier(broker, topic, f"copier-{number}") for number in range(3)]
        for copier in copiers:
            stack.callback(copier.close)
            assert copier.one(1)
            copier.begin(2)
        fill(disk)
        ends = [copier.abort() for copier in copiers]
        assert not all(ends) and offline(), "the disk was full"
        assert not all([copier.one(3) for copier in copiers])
        os.unlink(disk / "ballast")
        until(lambda: not offline(), "no partition is offline", BACK_SECONDS)
        for copier in copiers:
            until(partial(copier.one, 100), "who waited goes on", 40)
            assert copier.one(101)
        seen = [(message.value() or b"").decode() for message in read_all(broker.bootstrap, topic)]
        assert len(seen) == len(set(seen)), "none twice"
        for copier in copiers:
            mine = {int(value.rpartition("-")[2]) for value in seen if value.startswith(copier.name + "-")}
            assert set(copier.committed) <= mine <= {*copier.committed, *copier.unknown}
            assert copier.offset() == 101


def fill(disk: Path) -> None:
    """A file takes all that is left."""
    with open(disk / "ballast", "wb", buffering=0) as ballast:
        for chunk in (bytes(1 << 20), bytes(4096)):
            with suppress(OSError):
                while True:
                    ballast.write(chunk)


@pytest.mark.timeout(120)
def test_file_descriptors_are_free_again(tmp_path: Path, topic: str) -> None:
    """The marker is written, the index of aborted transactions cannot be opened: offline."""
    with watched(tmp_path / "data") as (broker, offline):
        create(broker.bootstrap, topic)
        copier = Copier(broker, topic, "copier")
        assert copier.one(1)
        copier.begin(2)
        usual = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (10, usual[1]))
        assert not copier.abort()
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, usual)
        assert offline()
        until(lambda: not offline(), "no partition is offline", BACK_SECONDS)
        until(lambda: copier.one(100), seconds=40)
        seen = [message.value() for message in read_all(broker.bootstrap, topic)]
        assert seen == [b"copier-1", b"copier-100"] and copier.offset() == 100
        copier.close()
