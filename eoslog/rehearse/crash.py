"""What a broker must still know after a crash. The crash itself is the user's command: option --crash."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from eoslog.client.wire.cluster import Cluster
from eoslog.rehearse.load import Load
from eoslog.rehearse.probes import COMMITTED, both, settled, stored_offset
from eoslog.rehearse.rows import DoesNotHold, NotFoundOut
from eoslog.rehearse.work import PARTITIONS, Work

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
