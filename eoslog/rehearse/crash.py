"""What brokers must still know after a crash, and what transactions that were under way must have become.

A crash shows most of what a broker forgets only within the milliseconds before the next sync of its disk. So
several writers never stop: at each moment something has just been acknowledged.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.errors import EoslogError, ProduceFailed
from eoslog.protocol.errors import KafkaError
from eoslog.rehearse.probes import COMMITTED, both, settled, stored_offset
from eoslog.rehearse.rows import DoesNotHold, NotFoundOut
from eoslog.rehearse.work import PARTITIONS, Work

WRITERS, NAMES = 4, 4
"""How many write at once, and how many transactional ids each has in turn."""
WHEN = "brokers have crashed under load"


@dataclass
class Told:
    """The last that a writer was told of a transactional id. `committed`: of its newest transaction."""

    who: Participant
    committed: bool = False


@dataclass
class Writer(threading.Thread):
    """One transaction after another, each with a row on every partition, until it is told to stop or the
    cluster does not answer any more."""

    work: Work
    number: int
    topic: str
    going: threading.Event
    done: int = 0
    """Transactions whose commit was acknowledged."""
    told: dict[str, Told] = field(default_factory=dict)
    failure: Exception | None = None

    def __post_init__(self) -> None:
        super().__init__(name=f"eoslog-rehearsal-{self.number}", daemon=True)

    __hash__ = threading.Thread.__hash__

    @property
    def group(self) -> str:
        """The consumer group of its offsets."""
        return self.work.names.name(f"load-{self.number}-group")

    def row(self, transaction: int) -> str:
        """What it writes to every partition."""
        return f"{self.number}.{transaction}"

    def run(self) -> None:
        """Write. Ends with `failure`, if the cluster has answered no more."""
        try:
            while self.going.is_set():
                self._transaction()
        except (EoslogError, KafkaError, ProduceFailed) as error:
            self.failure = error

    def _transaction(self) -> None:
        who = self.work.open(f"load-{self.number}-{self.done % NAMES}")
        self.told[who.name] = Told(who)
        for partition in PARTITIONS:
            self.work.write(who, (self.topic, partition), [self.row(self.done)])
        self.work.stage(who, self.group, {self.work.place: (self.done, "")})
        self.work.end(who, commit=True)
        self.told[who.name].committed = True
        self.done += 1


class Load:
    """Writers with connections of their own. `start` before the crash, `check` after it."""

    def __init__(self, work: Work, word: str, connect: Callable[[], Cluster]) -> None:
        self.work, self.topic = work, work.names.name(word)
        self._going = threading.Event()
        self._clusters = [connect() for _ in range(WRITERS)]
        self.writers = [
            Writer(replace(work, cluster=cluster), number, self.topic, self._going)
            for number, cluster in enumerate(self._clusters)
        ]

    def start(self) -> None:
        """Return when every writer has committed. Raises NotFoundOut if one does not come to that."""
        self._going.set()
        for writer in self.writers:
            writer.start()
        deadline = time.monotonic() + self.work.patience_s + WRITERS
        while any(writer.done < NAMES for writer in self.writers):
            if time.monotonic() > deadline or not all(writer.is_alive() for writer in self.writers):
                self.stop()
                raise NotFoundOut(f"no load could be put on the cluster: {self.writers[0].failure}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Let each writer come to the end of what it has begun."""
        self._going.clear()
        for writer in self.writers:
            if writer.is_alive():
                writer.join()
        for cluster in self._clusters:
            cluster.close()

    def check(self) -> int:
        """What was acknowledged must be there, and the rest in whole or not at all. Returns how many commits
        were acknowledged. Raises DoesNotHold."""
        for told in (told for writer in self.writers for told in writer.told.values()):
            if told.committed:
                settled(self.work, told.who.name, COMMITTED)
            again = self.work.open(told.who.name)  # aborts what is open
            if again.identity <= told.who.identity:
                raise DoesNotHold(
                    f"{WHEN}: a new producer got {again.identity}, after {told.who.identity} before"
                )
        self.work.check_readable(self.topic, WHEN)
        found = self.work.rows(self.topic)
        for writer in self.writers:
            self._check(writer, found)
        return sum(writer.done for writer in self.writers)

    def _check(self, writer: Writer, found: Counter[str]) -> None:
        for transaction in range(writer.done):
            if found[writer.row(transaction)] != len(PARTITIONS):
                raise DoesNotHold(
                    f"{WHEN}: of {len(PARTITIONS)} rows of an acknowledged transaction "
                    f"{found[writer.row(transaction)]} can be read"
                )
        last = found[writer.row(writer.done)]  # nobody was told how it ended
        if last not in (0, len(PARTITIONS)):
            raise DoesNotHold(f"{WHEN}: {last} of {len(PARTITIONS)} rows of one transaction can be read")
        wanted = writer.done if last else writer.done - 1
        offset = stored_offset(self.work, writer.group, WHEN)
        if offset is None or offset[0] != wanted:
            seen = "none" if offset is None else offset[0]
            raise DoesNotHold(f"{WHEN}: the committed offset is {seen} instead of {wanted}")


_STANDARD_ERROR = 2  # no pipe: a broker that the command starts may keep it open for ever
BEFORE, OPEN = ["committed 1", "committed 2"], ["open 1", "open 2"]


def look(work: Work, word: str, crash: Callable[[], None], connect: Callable[[], Cluster]) -> str:
    """Crash brokers while one transaction was just committed, another is open, and others are under way.
    Raises DoesNotHold, NotFoundOut."""
    topic, group = work.names.name(word), work.names.name(f"{word}-group")
    left, done = work.open(f"{word}-open"), work.open(f"{word}-committed")
    for partition in PARTITIONS:
        work.write(left, (topic, partition), [f"{row} of {partition}" for row in OPEN])
        work.write(done, (topic, partition), [f"{row} of {partition}" for row in BEFORE])
    work.stage(done, group, {work.place: (9, "noted")})
    work.end(done, commit=True)
    idle = work.open(f"{word}-idle")
    lost = _crash(work, crash, load := Load(work, f"{word}-load", connect))
    settled(work, done.name, COMMITTED)
    if stored_offset(work, group, "its transaction was committed") != (9, "noted"):
        raise DoesNotHold("a committed offset is gone after the crash")
    for partition in PARTITIONS:  # as a producer does whose answers the crash has cut off
        work.write(left, (topic, partition), [f"{row} of {partition}" for row in OPEN])
    work.end(left, commit=True)
    work.check_readable(topic, "brokers have crashed, and every transaction has ended")
    work.check_rows(topic, [*both(BEFORE), *both(OPEN)], "brokers have crashed")
    again = work.open(f"{word}-idle")
    if again.identity <= idle.identity:
        raise DoesNotHold(f"a new producer got {again.identity}, after {idle.identity} before the crash")
    commits = load.check()
    if not lost:
        raise NotFoundOut("the command has ended, and no broker has cut a connection: none has crashed")
    return f"what was acknowledged is there, also {commits} commits under load; retries are written once"


def _crash(work: Work, crash: Callable[[], None], load: Load) -> bool:
    """Crash brokers under load. Returns whether one was lost."""
    load.start()
    try:
        work.cluster.brokers()
        work.cluster.disturbed()  # from now on
        crash()
    finally:
        load.stop()
    return work.cluster.disturbed() or any(writer.failure for writer in load.writers)


def run_command(text: str) -> None:
    """Run the user's command in a shell; its output goes to standard error. Raises NotFoundOut."""
    done = subprocess.run(text, shell=True, stdin=subprocess.DEVNULL, stdout=_STANDARD_ERROR, check=False)
    if done.returncode:
        raise NotFoundOut(f"the command of --crash ended with status {done.returncode}: {text}")
