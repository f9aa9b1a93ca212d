"""A Spark application of its own for a test: a JVM, its executors and Python processes, in one group of
processes; what its sink noted (spark_probe.py); and ways to kill any of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil

PATIENCE_SECONDS = 240
"""How long a test waits for anything that is bound to happen: a loaded machine needs its time."""


class Application:
    """Runs a module with the arguments. Its output is in `log`, shown when it fails.

    `folder` is the probe's: orders go in, notes come out.
    """

    def __init__(self, folder: Path, module: str, *arguments: object) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.log = folder, folder / "log"
        with self.log.open("ab") as log:
            self.process = psutil.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"EOSLOG_PROBE": str(folder)},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all of it: the driver, the JVMs, the Python workers."""
        everybody = self._everybody()
        with contextlib.suppress(ProcessLookupError):  # it came to its end
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in everybody:  # Python daemons have process groups of their own
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    def wait_until(self, what: str, condition: Callable[[], Any]) -> Any:
        """The condition's answer, once it is true. An application that has ended cannot make it true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            # poll(), not is_running(): a process that has ended and was not waited for still "runs".
            ended = self.process.poll()
            assert ended is None or condition(), f"{what}: the application ended with {ended}\n{self.tail()}"
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS} s\n{self.tail()}"
            time.sleep(0.02)
        return found

    def end(self) -> int:
        """Its exit code."""
        try:
            return int(self.process.wait(PATIENCE_SECONDS))
        except psutil.TimeoutExpired:
            raise AssertionError(f"no end within {PATIENCE_SECONDS} s\n{self.tail()}") from None

    def tail(self, size: int = 3000) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-size:]

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
        for process in self._everybody():
            with contextlib.suppress(psutil.NoSuchProcess):
                module, parent = _worker_of(process), process.parent()
                if module and parent is not None and module == _worker_of(parent) and wanted(module):
                    found.append(process)
        return found

    def _everybody(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            found: list[psutil.Process] = self.process.children(recursive=True)
            return found
        return []


def _worker_of(process: psutil.Process) -> str:
    """The module of a daemon, and of what it has forked; a fork of a warm process has it as its name."""
    line = process.cmdline()
    if "eoslog.warm" in line and not process.name().startswith("python"):
        return str(process.name())
    return line[-1] if "pyspark.daemon" in line and "eoslog.spark_python" not in " ".join(line) else ""
