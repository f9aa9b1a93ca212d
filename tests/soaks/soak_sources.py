"""`make soak-sources`: what people do to a query whose sources have names, at random, in a real Spark.

Sources are added, removed, renamed, put back and exchanged under a living checkpoint; batches fail and run
again, also when Spark has not noted them; checkpoints are lost or set back. After each run that ends well,
every row that it owes is there, and no row is there twice. A run that stops leads on by its own advice.

    python -m tests.soaks.soak_sources [--minutes 10] [--seed 1] [--first 17 --histories 1]
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import SparkSession

from eoslog.connector.checkpoint.checkpoint import Checkpoint
from tests.connector.brokers import Kafka, start_broker
from tests.connector.checkpoint.test_named_sources_spark import EVOLUTION, FORMAT, Union, forget, newest
from tests.spark_session import set_environment, small_session

TOPICS = ("orders", "returns", "refunds")
NAMES = ("a", "b", "c", "d")
MOST_RUNS = 12
FAILED = "no such row"
"""What the error of a batch says that was to fail."""
_ERROR = re.compile(r"eoslog\.[\w.]+\.(\w+): ")
_REMOVE = re.compile(r"Remove offsets/(\d+)|remove offsets/(\d+)")


class Found(Exception):
    """A row is lost or doubled."""


@dataclass
class History:
    """One query and what is done to it. `names`: the topics that it reads, each with its source's name.
    `good`: those of the last run that ended well. `unowed`: rows that its user has chosen not to read."""

    random: Random
    union: Union
    folder: Path
    names: dict[str, str]
    has_group: bool
    checkpoint: Path = Path()
    good: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    unowed: set[bytes] = field(default_factory=set)
    copy: Path | None = None
    told: list[str] = field(default_factory=list)
    stops: Counter[str] = field(default_factory=Counter)
    ran: int = 0
    stopped: str = ""

    def play(self) -> None:
        """Raises Found."""
        self.checkpoint = self.folder / "0"
        for number in range(self.random.randint(5, MOST_RUNS)):
            for topic in TOPICS:
                if self.random.random() < 0.7:
                    self._put(topic, self.random.randint(1, 12))
            if number:
                self._changed()
            starting = {topic: self._starting(topic) for topic in self.names}
            self._go(starting, fails=self.random.random() < 0.2)
            if self.random.random() < 0.25 and (self.checkpoint / "commits").exists():
                self._forget_done()

    def _put(self, topic: str, count: int) -> None:
        rows = [f"{topic} {len(self.union.made) + number}".encode() for number in range(count)]
        self.union.kafka.put(self.union.topics[topic], rows)
        self.union.made += rows

    def _changed(self) -> None:
        """What people do between two runs; often nothing."""
        draw, topic = self.random.random(), self.random.choice(list(self.names))
        if FAILED in self.stopped:  # the batch runs again, and with what sources?
            draw *= 0.4
        free = [name for name in NAMES if name not in self.names.values()]
        others = [one for one in TOPICS if one not in self.names]
        if draw < 0.2:
            self.names[topic] = self.random.choice(free)
        elif draw < 0.35 and len(self.names) > 1:
            del self.names[topic]
        elif draw < 0.55 and others:
            self.names[self.random.choice(others)] = self.random.choice(free)
        elif draw < 0.62 and len(self.names) > 1:
            other = self.random.choice([one for one in self.names if one != topic])
            self.names[topic], self.names[other] = self.names[other], self.names[topic]
        elif draw < 0.67 and self.has_group:
            self.checkpoint = self.folder / str(len(self.told) + 1)
        elif draw < 0.72 and self.checkpoint.exists():
            self.copy = self.folder / f"copy-{len(self.told)}"
            shutil.copytree(self.checkpoint, self.copy)
        elif draw < 0.77 and self.copy is not None:
            self.checkpoint, self.copy = self.copy, None

    def _starting(self, topic: str) -> str:
        if topic in self.read and self.has_group and self.random.random() < 0.7:
            return "committed"
        return self.random.choice(("earliest", "earliest", "latest"))

    def _forget_done(self) -> None:
        """As if the driver had died before Spark noted the batch as done."""
        done = [int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal()]
        if done and max(done) == newest(self.checkpoint / "offsets"):
            forget(self.checkpoint, "commits", max(done))
            self.told.append(f"batch {max(done)} is not noted as done")

    def _go(self, starting: dict[str, str], *, fails: bool) -> None:
        """Run, and if it stops follow its advice, or go back to what ran before."""
        if self._run(starting, fails=fails) or fails:
            return
        message = self.stopped
        batch = _REMOVE.search(message)
        wanted = dict(self.names)
        if batch is not None and self.random.random() < 0.6:
            forget(self.checkpoint, "offsets", int(batch[1] or batch[2]))
            self.told.append(f"removed offsets/{batch[1] or batch[2]}")
            if self._run(self._advised(starting), fails=False):
                return
        if self.good:
            self.names = dict(self.good)
            if not self._run(self._advised(dict.fromkeys(self.names, "earliest")), fails=False):
                self.names = wanted

    def _advised(self, starting: dict[str, str]) -> dict[str, str]:
        """Where errors say that sources are to start: where the former ones of their topics ended."""
        found = dict(starting)
        for topic in self.read & starting.keys():
            at = self.union.topics[topic]
            found[topic] = "committed" if self.has_group else _line(self.checkpoint, at) or starting[topic]
        return found

    def _run(self, starting: dict[str, str], *, fails: bool) -> bool:
        """Whether it ended well. Raises Found."""
        for topic in self.names:
            if topic not in self.read and starting[topic] == "latest":
                self.unowed.update(row for row in self.union.made if row.startswith(topic.encode()))
        said = ", ".join(f"{topic} as {name} from {starting[topic]}" for topic, name in self.names.items())
        self.told.append(f"run in {self.checkpoint.name}: {said}{', fails' if fails else ''}")
        self.ran += 1
        try:
            self.union.run(self.checkpoint, dict(self.names), starting, fails)
        except StreamingQueryException as error:
            self.stopped = str(error)
            match = _ERROR.search(self.stopped)
            kind = match[1] if match else self.stopped.partition("terminated with exception")[2][:150]
            kind = FAILED if FAILED in self.stopped else kind
            self.stops[kind] += 1
            said = self.stopped[match.start(1) if match else 0 :].partition("\n")[0]
            self.told.append(f"  stopped: {said if match else kind}")
            self._judge(owed=False)
            return False
        self.stopped, self.good, self.read = "", dict(self.names), self.read | self.names.keys()
        self._judge(owed=True)
        return True

    def _judge(self, *, owed: bool) -> None:
        """Raises Found."""
        copied = Counter(self.union.copied())
        doubled = sorted(row for row, count in copied.items() if count > 1)
        if doubled:
            raise Found(f"{len(doubled)} rows are doubled, such as {doubled[:3]}")
        owes = {row for row in self.union.made if row.split()[0].decode() in self.names} - self.unowed
        lost = sorted(owes - copied.keys())
        if owed and lost:
            raise Found(f"{len(lost)} rows are lost, such as {lost[:3]}")


def _line(checkpoint: Path, topic: str) -> str | None:
    """The newest line of the offset log whose source reads the topic. None: there is none."""
    found = Checkpoint.at(str(checkpoint))
    for batch in reversed(found.batches("offsets")):
        for line in found.planned(batch).by_name.values():
            if topic in json.loads(line):
                return line
    return None


def one(spark: SparkSession, kafka: Kafka, random: Random) -> tuple[History, str | None]:
    """A history, and what it has found."""
    has_group = random.random() < 0.6
    union = Union(spark, kafka, *TOPICS, has_group=has_group)
    first = random.sample(TOPICS, random.choice((1, 2, 2)))
    with tempfile.TemporaryDirectory() as folder:
        names = dict(zip(first, random.sample(NAMES, len(first)), strict=True))
        history = History(random, union, Path(folder), names, has_group)
        try:
            history.play()
        except Found as found:
            return history, str(found)
    return history, None


def main() -> None:
    """Play histories until the time is over. Exits with 1 if one has lost or doubled rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first history")
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--tell", action="store_true", help="tell each history")
    given = parser.parse_args()
    until, played, runs, stops, broken = time.monotonic() + given.minutes * 60, 0, 0, Counter[str](), 0
    set_environment()
    with small_session() as spark, start_broker({}) as broker:
        spark.conf.set(EVOLUTION, "true")
        spark.conf.set(FORMAT, "2")
        kafka = Kafka(broker.bootstrap)
        for number in range(given.first, given.first + given.histories):
            if time.monotonic() >= until:
                break
            history, found = one(spark, kafka, Random(f"{given.seed} {number}"))
            played, runs, stops = played + 1, runs + history.ran, stops + history.stops
            if found or given.tell:
                print(f"history {number}: {found or 'right'}", *history.told, sep="\n  ", flush=True)
            broken += found is not None
    listed = ", ".join(f"{kind} {count}" for kind, count in stops.most_common())
    print(f"{played} histories, {runs} runs, {broken} with lost or doubled rows. Stopped: {listed}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
