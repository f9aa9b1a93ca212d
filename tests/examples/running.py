"""Running an example as its page says, in a process of its own, and killing it at a named request.

Commands are taken from docs/examples.md; only addresses are changed, and options for small data added.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.testing import Fault
from tests.kit.program import ROOT, plain_python

PAGE = ROOT / "docs" / "examples.md"
PATIENCE_S = 600.0
"""For a whole run of a script, on a machine with much else to do."""


class Row(NamedTuple):
    """A committed record."""

    partition: int
    key: str | None
    value: str
    headers: dict[str, str]


def commands() -> list[list[str]]:
    """Every command of the page that runs a file of examples/, as words."""
    lines = re.findall(r"(?m)^python .*$", PAGE.read_text().replace("\\\n", " "))
    return [shlex.split(line) for line in lines]


def command_of(script: str, changes: Mapping[str, str]) -> list[str]:
    """The page's command for a script, with words changed, ready to be started."""
    (found,) = (words for words in commands() if words[1] == f"examples/{script}")
    return [sys.executable, str(ROOT / found[1]), *(changes.get(word, word) for word in found[2:])]


def environment() -> dict[str, str]:
    return plain_python() | {"PYTHONUNBUFFERED": "1"}


class Script:
    """An example at work in a folder, as a process group of its own."""

    def __init__(self, place: Path, command: list[str], **more: str) -> None:
        self._errors = place / f"{uuid.uuid4().hex}.errors"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=place, env=environment() | more, stdout=subprocess.PIPE, stderr=errors,
                text=True, start_new_session=True,
            )  # fmt: skip

    def ended(self) -> str:
        """What it printed; raises AssertionError if it failed."""
        printed, status = self.outcome()
        assert status == 0, f"{self.process.args!r} ended with {status}:\n{printed}\n{self.errors()}"
        return printed

    def outcome(self) -> tuple[str, int]:
        try:
            printed, _ = self.process.communicate(timeout=PATIENCE_S)
        finally:
            self.kill()
        return printed, self.process.returncode

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """SIGKILL to it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_when(self, fault: Fault) -> None:
        """Kill it when the fault has happened; a script that ends before is an error."""
        deadline = time.monotonic() + PATIENCE_S
        while not fault.happened:
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.errors()}"
            assert time.monotonic() < deadline, f"{fault} has not happened:\n{self.errors()}"
            time.sleep(0.01)
        self.kill()


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def put(
    bootstrap: str,
    topic: str,
    rows: Iterable[tuple[str | bytes | None, str | bytes | None]],
    timestamp: int = 0,
    headers: list[tuple[str, str | bytes | None]] | None = None,
) -> None:
    """Write key and value pairs, spread by key as Java's clients do."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "partitioner": "murmur2_random"}
    )
    for key, value in rows:
        producer.produce(topic, value, key, timestamp=timestamp, headers=headers)
    assert producer.flush(60) == 0


def committed(bootstrap: str, topic: str) -> list[Row]:
    """What a reader of committed records sees, partition after partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": str(uuid.uuid4()), "enable.partition.eof": True,
            "isolation.level": "read_committed", "enable.auto.commit": False,
        }
    )  # fmt: skip
    waiting = set(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in waiting])
    rows = []
    while waiting:
        message = consumer.poll(60)
        assert message is not None, f"{topic}: readers are held back at partitions {sorted(waiting)}"
        partition, error = message.partition(), message.error()
        assert partition is not None
        if error is None:
            key, value = message.key(), message.value()
            assert value is not None, f"{topic}: a record without a value"
            found = dict(message.headers() or ()).items()
            headers = {header: content.decode() for header, content in found if isinstance(content, bytes)}
            rows.append(
                Row(partition, None if key is None else key.decode(), value.decode("latin-1"), headers)
            )
        else:
            assert error.name() == "_PARTITION_EOF", error
            waiting.discard(partition)
    consumer.close()
    return sorted(rows, key=lambda row: row.partition)


def sums(rows: Iterable[Row]) -> Counter[str | None]:
    """Key -> sum of the values."""
    total: Counter[str | None] = Counter()
    for row in rows:
        total[row.key] += int(row.value)
    return total
