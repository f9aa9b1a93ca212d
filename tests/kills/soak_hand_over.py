"""`make soak-hand-over`: one query after the other takes over from a living one, under load.

    python -m tests.kills.soak_hand_over [--hand-overs 50] [--kills] [--seed N]

A hand-over is a new checkpoint that begins where the group stands. The old driver lives on until it finds
that it is fenced; three in ten are killed. With --kills drivers and tasks are killed besides. A reader of
committed rows looks on, and may not wait for longer than a batch takes. In the end a stock client reads all
rows, and nothing may be open.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kills.kill_brokers import Bundled
from tests.kills.kill_feed import Feed, ends_of, left_open, verdict_of
from tests.kills.kill_posts import Post, Tally
from tests.kills.kill_query import Job, Running
from tests.kills.kill_round import LOOK, PARTITIONS, TARGET_PARTITIONS, TIMEOUTS, said
from tests.kills.kill_steps import victims

SLACK_SECONDS = 0.25
"""By how much a reader's wait may be longer: a batch is noted some time after its rows can be read."""
PATIENCE_SECONDS = 180.0


class Gaps:
    """The longest time from one event to the next."""

    def __init__(self) -> None:
        self._last: float | None = None
        self.longest = 0.0

    def event(self) -> None:
        """It happens now."""
        now = time.monotonic()
        if self._last is not None:
            self.longest = max(self.longest, now - self._last)
        self._last = now


class Onlooker:
    """A thread that reads committed rows of a topic as they come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.gaps, self._over = Gaps(), threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "fetch.wait.max.ms": 50, "log_level": 0,
        })  # fmt: skip
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            found = self._consumer.poll(0.05)
            if found is not None and found.error() is None:
                self.gaps.event()
        self._consumer.close()

    def end(self) -> float:
        """Stop; the longest wait, in seconds."""
        self._over.set()
        self._thread.join()
        return self.gaps.longest


class Soak:
    """A query that is handed over, and what is seen of it."""

    def __init__(self, brokers: Bundled, folder: Path, seed: int, harm: str = "") -> None:
        self.draw, self.tally, self.brokers = Random(seed), Tally(), brokers
        options = {**TIMEOUTS, "transactional.id": f"over-{seed}", "kafka.max.request.size": "4000"}
        way, name = (brokers.bootstrap, brokers.bootstrap), f"over-{seed}"
        names = f"{name}-source", f"{name}-target", f"{name}-group"
        self.job = Job(name, "stream", *names, way, folder, options, harm)
        self.job.steps.mkdir(parents=True)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
        topics = [NewTopic(names[0], PARTITIONS, 1), NewTopic(names[1], TARGET_PARTITIONS, 1)]
        for made in admin.create_topics(topics).values():
            made.result(60)
        self.feed = Feed(brokers.bootstrap, names[0], PARTITIONS, 300.0)
        self.post = Post(self.job, Random(seed), self.tally, Running, clocks=(0.0,))
        self.batches, self._noted = Gaps(), 0

    def run(self, hand_overs: int, *, kills: bool) -> tuple[str, list[str]]:
        """A line of figures, and what is wrong."""
        self.feed.start()
        try:
            self.until(lambda: self.post.has_noted)
            onlooker = Onlooker(self.brokers.bootstrap, self.job.target)
            for _ in range(hand_overs):
                self.let_pass(self.draw.uniform(0.3, 2))
                if kills and self.draw.random() < 0.6:
                    self.kill_one()
                self.post.hand_over(stop=self.draw.random() < 0.3)
                self.until(lambda: self.post.has_noted or self.post.running is None)
            self.let_pass(2)
            waited = onlooker.end()
            rows = self.feed.end()
            ends = ends_of(self.brokers.bootstrap, self.job.source, PARTITIONS)
            self.until(lambda: self.post.at_end(ends))
            self.post.stop(signal.SIGTERM)
            self.until(lambda: self.post.over)
            return self._judge(rows, waited, hand_overs)
        finally:
            self.end()

    def end(self) -> None:
        """Leave no process behind."""
        self.post.wanted(False)
        self.post.kill()
        for victim in victims(self.job.steps):
            victim.kill()

    def _judge(self, rows: int, waited: float, hand_overs: int) -> tuple[str, list[str]]:
        verdict = verdict_of(self.job, self.brokers.bootstrap, rows, PARTITIONS)
        is_open = left_open(self.brokers.bootstrap, [self.job.name])
        wrong = [] if verdict.right else [said(verdict)]
        wrong += [f"open: {is_open}"] if is_open else []
        if waited > self.batches.longest + SLACK_SECONDS:
            wrong.append("a reader has waited for longer than a micro-batch")
        line = (
            f"{hand_overs} hand-overs, {self.tally.killed} kills, {self.tally.lives} lives, "
            f"{self.post.batches()} batches; {said(verdict)}; longest wait of a reader {waited:.2f} s, "
            f"longest time of a batch {self.batches.longest:.2f} s; stops {dict(self.tally.stops)}"
        )
        return line, wrong

    def kill_one(self) -> None:
        """A driver or a task."""
        found = victims(self.job.steps)
        if found:
            victim = self.draw.choice(found)
            if step := victim.kill():
                self.tally.kills[victim.kind, step] += 1
            self.let_pass(self.draw.uniform(0, 0.5))

    def look(self) -> None:
        """Start the driver again if it has died, and see whether a batch was noted."""
        self.post.look()
        if (now := self.post.batches()) != self._noted:
            self._noted = now
            self.batches.event()
        time.sleep(LOOK)

    def let_pass(self, seconds: float) -> None:
        """Let time go by."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for it. Raises AssertionError."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"no batch for {PATIENCE_SECONDS} s: {dict(self.tally.stops)}"
            self.look()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hand-overs", type=int, default=50)
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-hand-over-") as place:
        brokers = Bundled(Path(place) / "broker")
        try:
            soak = Soak(brokers, Path(place) / "query", options.seed)
            line, wrong = soak.run(options.hand_overs, kills=options.kills)
        finally:
            brokers.close()
    print(line)
    if wrong:
        sys.exit("WRONG: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
