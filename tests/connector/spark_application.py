"""A Spark application of its own for a test: a JVM, its executors and Python processes, in one group of
processes; what its sink noted (spark_probe.py); and ways to kill any of it."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.kit.program import Program

PATIENCE_SECONDS = 240
"""How long a test waits for anything that is bound to happen: a loaded machine needs its time."""


class Application(Program):
    """A module with the arguments. `folder` is the probe's: orders go in, notes come out. `home`: its working
    directory, if not this process's."""

    def __init__(self, folder: Path, module: str, *arguments: object, home: Path | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        super().__init__(
            [sys.executable, "-m", module, *arguments], folder / "log", patience=PATIENCE_SECONDS,
            environment=os.environ | {"EOSLOG_PROBE": str(folder)}, folder=home,
        )  # fmt: skip

    # -- the probe ----------------------------------------------------------------------------

    def order(self, *orders: dict[str, Any]) -> None:
        """What the sink shall do at which place; replaces earlier orders, and forgets earlier notes."""
        for path in (*self.folder.glob("go-*"), *self.folder.glob("notes.jsonl")):
            path.unlink()
        draft = self.folder / "draft"
        draft.write_text(json.dumps(orders))
        draft.rename(self.folder / "orders.json")

    def go(self, place: str) -> None:
        """Let those go on who wait at the place."""
        (self.folder / f"go-{place}").touch()

    def go_alone(self, place: str, pid: int) -> None:
        """Let one process go on that waits there, now or later."""
        (self.folder / f"go-{place}-{pid}").touch()

    def notes(self, at: str, **more: Any) -> list[dict[str, Any]]:
        """The notes made at a place, by the values of their fields."""
        path = self.folder / "notes.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        notes = map(json.loads, lines)
        return [n for n in notes if n["at"] == at and all(n[key] == value for key, value in more.items())]

    def wait_for(self, count: int, at: str, **more: Any) -> list[dict[str, Any]]:
        """At least so many notes."""

        def enough() -> list[dict[str, Any]] | None:
            notes = self.notes(at, **more)
            return notes if len(notes) >= count else None

        found: list[dict[str, Any]] = self.wait_until(f"{count} at {at!r} {more}", enough)
        return found

    def wait_for_others(self, batch: int, partitions: set[int]) -> None:
        """Later attempts have prepared these partitions, after all workers were killed.

        Not only the second ones: they may take an idle worker that is just being killed, too.
        """

        def prepared() -> bool:
            notes = self.notes("prepared", batch=batch)
            return partitions <= {note["partition"] for note in notes if note["attempt"]}

        self.wait_until(f"{partitions} of batch {batch} prepared by later attempts", prepared)

    # -- its processes ------------------------------------------------------------------------

    def task_workers(self) -> list[psutil.Process]:
        """The Python processes that run tasks: forked by a daemon for pyspark.worker."""
        return self._forked(lambda module: module == "pyspark.worker")

    def planners(self) -> list[psutil.Process]:
        """The Python processes that plan, begin and commit for the driver."""
        return self._forked(lambda module: module != "pyspark.worker")

    def _forked(self, wanted: Callable[[str], bool]) -> list[psutil.Process]:
        found = []
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                module, parent = _worker_of(process), process.parent()
                if module and parent is not None and module == _worker_of(parent) and wanted(module):
                    found.append(process)
        return found


def _worker_of(process: psutil.Process) -> str:
    """The module of a daemon, and of what it has forked; a fork of a warm process has it as its name."""
    line = process.cmdline()
    if "eoslog.warm" in line and not process.name().startswith("python"):
        return str(process.name())
    return line[-1] if "pyspark.daemon" in line and "eoslog.spark_python" not in " ".join(line) else ""
