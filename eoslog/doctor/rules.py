"""Draws conclusions from facts about a session. Pure: each rule is a function of them, and a table lists the
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from eoslog.connector.spark.libraries import LIBRARIES, SPARK, numbers
from eoslog.doctor.facts import Facts

DAEMON, LAUNCHER = "pyspark.daemon", "eoslog-python"
_SET_BOTH = "set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LIGHT = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_LOUD = ("ALL", "TRACE", "DEBUG")


class Weight(IntEnum):
    """How bad it is: queries fail, are slower than necessary, or something is good to know."""

    FAILS = 0
    SLOW = 1
    KNOW = 2


class Finding(NamedTuple):
    """What is wrong, and what to do."""

    weight: Weight
    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.weight.name.lower():5}  {self.what}\n       {self.do}"


def findings_of(facts: Facts) -> list[Finding]:
    """All findings, the worst first."""
    return sorted((found for rule in _RULES for found in rule(facts)), key=lambda found: found.weight)


def _is_off(facts: Facts, name: str) -> bool:
    return facts.settings.get(name, "true").strip().lower() == "false"


def _is_on(facts: Facts, name: str) -> bool:
    return facts.settings.get(name, "false").strip().lower() == "true"


def _python_is_missing(facts: Facts) -> Iterator[Finding]:
    for python in facts.pythons:
        if python.wrong:
            yield Finding(
                Weight.FAILS,
                f"{python.command}, which Spark starts for {python.purpose}, does not run: {python.wrong}",
                f"{_SET_BOTH} to a Python that has eoslog, for instance {facts.here}",
            )


def _python_lacks_libraries(facts: Facts) -> Iterator[Finding]:
    wanted = {need.name: need.oldest for need in (SPARK, *LIBRARIES)} | {"eoslog": ""}
    for python in facts.pythons:
        lacks, types = [], []
        for name, oldest in wanted.items():
            version = python.versions.get(name)
            if python.wrong or (version is not None and numbers(version) >= numbers(oldest)):
                continue
            lacks.append(f"no {name}" if version is None else f"{name} {version}, which is too old")
            types.append(f"'{name}>={oldest}'" if oldest else name)
        if lacks:
            yield Finding(
                Weight.FAILS,
                f"{python.command}, which Spark starts for {python.purpose}, has {', '.join(lacks)}",
                f"type {python.command} -m pip install {' '.join(types)}; or {_SET_BOTH} to {facts.here}",
            )


def _pythons_differ(facts: Facts) -> Iterator[Finding]:
    for name, what in (("python", "Python"), ("eoslog", "eoslog"), ("pyspark", "PySpark")):
        here = facts.versions.get(name)
        for python in facts.pythons:
            there = python.versions.get(name)
            if here is None or there is None or _same(name, here, there):
                continue
            yield Finding(
                Weight.FAILS,
                f"this is {what} {here}, and {python.command}, for {python.purpose}, has {what} {there}",
                f"start both from one environment: {_SET_BOTH}",
            )


def _same(name: str, here: str, there: str) -> bool:
    return numbers(here)[:2] == numbers(there)[:2] if name == "python" else here == there


def _java_is_missing(facts: Facts) -> Iterator[Finding]:
    if facts.java is None:
        yield Finding(Weight.FAILS, "no java was found", "install a JDK 17 or later, or set JAVA_HOME")


def _starts_are_slow(facts: Facts) -> Iterator[Finding]:
    for python in facts.pythons:
        if not (python.wrong or python.has_hook or Path(python.command).name == LAUNCHER):
            yield Finding(
                Weight.SLOW,
                f"{python.command}, for {python.purpose}, imports everything each time Spark starts it",
                f"{_SET_BOTH} to {Path(facts.here).with_name(LAUNCHER)} (docs: Faster starts)",
            )


def _tasks_are_no_forks(facts: Facts) -> Iterator[Finding]:
    module = facts.settings.get("spark.python.daemon.module", DAEMON)
    for found, what in (
        (_is_off(facts, "spark.python.use.daemon"), "spark.python.use.daemon=false"),
        (module != DAEMON, f"spark.python.daemon.module={module}"),
    ):
        if found:
            yield Finding(
                Weight.SLOW,
                f"{what}: Python workers of tasks import everything again",
                "leave the setting out",
            )
    cores = facts.settings.get("spark.task.cpus", "1").strip()
    if cores != "1":
        yield Finding(
            Weight.SLOW,
            f"spark.task.cpus={cores}: NumPy may start threads, so Python workers import everything again",
            "leave the setting out if tasks compute nothing with threads",
        )


def _imports_from_a_zip(facts: Facts) -> Iterator[Finding]:
    for python in facts.pythons:
        version = python.versions.get("pyspark")
        if not python.wrong and version is not None and not python.has_folder:
            yield Finding(
                Weight.SLOW,
                f"{python.command} imports PySpark from Spark's zip, which is compiled at every start",
                f"type {python.command} -m pip install pyspark=={version}",
            )


def _workers_are_not_reused(facts: Facts) -> Iterator[Finding]:
    if _is_off(facts, "spark.python.worker.reuse"):
        yield Finding(
            Weight.SLOW,
            "spark.python.worker.reuse=false: each task starts a Python, and leaves transactional ids behind",
            "leave the setting out",
        )


def _acknowledgements_are_delayed(facts: Facts) -> Iterator[Finding]:
    if facts.acknowledges_at_once or _is_on(facts, "spark.python.unix.domain.socket.enabled"):
        return
    yield Finding(
        Weight.SLOW,
        "this system has no TCP_QUICKACK: a task may wait 40 ms and more for an acknowledgement",
        "set spark.python.unix.domain.socket.enabled=true",
    )


def _logs_are_loud(facts: Facts) -> Iterator[Finding]:
    level = facts.settings.get("spark.log.level", "").upper()
    if level in _LOUD:
        what = f"spark.log.level={level}: Spark writes lines for each task"
        yield Finding(Weight.SLOW, what, "set it to WARN")


def _checkpoint_of_the_session(facts: Facts) -> Iterator[Finding]:
    name = "spark.sql.streaming.checkpointLocation"
    if facts.settings.get(name):
        yield Finding(
            Weight.KNOW,
            f"{name} is set, and does not reach Python data sources",
            'give each writer .option("checkpointLocation", ...), or eoslog refuses to start',
        )


def _checkpoint_starts_processes(facts: Facts) -> Iterator[Finding]:
    if not facts.settings.get(MANAGER):
        yield Finding(
            Weight.KNOW,
            "on a local disk Spark writes each micro-batch's checkpoint with a dozen processes (readlink, "
            "chmod), which takes longer than all the rest of a small one",
            f"if checkpoints are on a local disk, set {MANAGER}={LIGHT} (docs: Faster starts)",
        )


def _speculation(facts: Facts) -> Iterator[Finding]:
    if _is_on(facts, "spark.speculation"):
        yield Finding(
            Weight.KNOW,
            "spark.speculation=true: copies of slow tasks write their rows a second time and are aborted",
            "rows stay exactly once, but work is wasted; switch it off where eoslog writes",
        )


_RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _python_is_missing,
    _python_lacks_libraries,
    _pythons_differ,
    _java_is_missing,
    _starts_are_slow,
    _tasks_are_no_forks,
    _imports_from_a_zip,
    _workers_are_not_reused,
    _acknowledgements_are_delayed,
    _logs_are_loud,
    _checkpoint_of_the_session,
    _checkpoint_starts_processes,
    _speculation,
)
