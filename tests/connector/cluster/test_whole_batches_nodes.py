"""Whole batches of 64 tasks on three nodes, while writers and nodes are killed: never a part is read.

The same reader without the option meets parts of most batches.
"""

import threading
import time
from contextlib import suppress
from random import Random
from statistics import quantiles

import pytest
from confluent_kafka.admin import NewTopic

from benchmarks.peer_cluster import ThreeNodes
from eoslog.connector.commit.commands import Command, End
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.connector.source.whole_batches import WholeBatches
from eoslog.errors import EoslogError
from tests.connector.brokers import Kafka
from tests.connector.source.test_whole_batches import Writer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1200)]

TASKS = 64
BATCHES = 24


class Killed(Exception):
    """The writer dies here."""


class Reader(threading.Thread):
    """Looks for ends as fast as it can; keeps each that is new, and when it was met."""

    def __init__(self, look: object) -> None:
        super().__init__()
        self._look, self.over = look, threading.Event()
        self.met: list[tuple[float, Offsets]] = []

    def run(self) -> None:
        while not self.over.is_set():
            with suppress(EoslogError):  # a node is down: it is tried again
                found = self._look()  # type: ignore[operator]
                if found is not None and (not self.met or self.met[-1][1] != found):
                    self.met.append((time.monotonic(), found))


def batches(writer: Writer, random: Random, nodes: ThreeNodes) -> int:
    """Write all batches. A third is killed after some of its transactions have ended, and tried again; in
    every eighth a node dies, and comes back. How many were killed."""
    killed = 0

    def dies_at(ends: int) -> object:
        left = ends

        def after(command: Command[object] | None) -> None:
            nonlocal left
            left -= isinstance(command, End) and command.commit
            if left < 0:
                raise Killed

        return after

    for number in range(BATCHES):
        victim = random.choice(sorted(nodes.alive)) if number % 8 == 5 else None
        if victim is not None:
            nodes.kill(victim)
        dies = random.randrange(TASKS) if random.random() < 1 / 3 else None
        while True:
            try:
                more = {} if dies is None else {"after": dies_at(dies)}
                writer.batch(number, range(TASKS), **more)  # type: ignore[arg-type]
                break
            except Killed:
                killed, dies = killed + 1, None
                time.sleep(random.random())
            except CommitFault:
                time.sleep(0.5)
        if victim is not None:
            nodes.start_again(victim)
    return killed


def test_no_part_is_read(nodes: ThreeNodes) -> None:
    kafka, seed = Kafka(nodes.bootstrap), int(time.time())
    topics = [f"{name}-{seed}" for name in ("orders", "lines")]
    for future in kafka.admin.create_topics([NewTopic(topic, TASKS, 3) for topic in topics]).values():
        future.result(60)
    writer = Writer(nodes.bootstrap, topics)
    log = SourceTopics(writer.options())
    whole, plain = Reader(WholeBatches(log).ends), Reader(SourceTopics(writer.options()).latest)
    for reader in (whole, plain):
        reader.start()
    with writer.cluster:
        try:
            killed = batches(writer, Random(seed), nodes)
            last = WholeBatches(SourceTopics(writer.options())).await_ends()
        finally:
            for reader in (whole, plain):
                reader.over.set()
                reader.join(120)
        assert all(row.offset < last[row.where] for row in writer.rows)
        parts = [number for _, ends in plain.met for number in writer.parts(ends)]
        assert parts, "who reads without the option meets parts"
        assert [number for _, ends in whole.met for number in writer.parts(ends)] == []
        waits = [met(whole, writer, number) - met(plain, writer, number) for number in range(BATCHES)]
    print(
        f"seed {seed}: {BATCHES} batches of {TASKS} tasks, {killed} writers killed; {len(set(parts))} "
        f"batches met in parts without the option ({len(parts)} looks of {len(plain.met)}), 0 with it "
        f"({len(whole.met)} looks); whole {1000 * quantiles(waits, n=2)[0]:.0f} ms later (median), "
        f"{1000 * max(waits):.0f} ms at most"
    )


def met(reader: Reader, writer: Writer, number: int) -> float:
    """When a reader met the last row of a batch first."""
    rows = [row for row in writer.rows if row.batch == number]
    return next(at for at, ends in reader.met if all(row.offset < ends[row.where] for row in rows))
