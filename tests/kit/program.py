"""A program that a test starts, watches and kills, with all that it starts in turn."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

ROOT = Path(__file__).parents[2]
"""Of the repository."""


def plain_python() -> dict[str, str]:
    """The environment of an application whose Spark starts Python as it comes, and not `eoslog-python`."""
    paths = (str(ROOT), os.environ.get("PYTHONPATH"))
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def kill(process: psutil.Process) -> bool:
    """SIGKILL; whether it was still there."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
        return True
    return False


class Program:
    """Runs a command as a session of its own. Its output is in `log`, whose end is shown when it fails.

    `patience`: seconds within which anything happens that is bound to, on a loaded machine.
    """

    def __init__(
        self,
        command: Sequence[object],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        patience: float = 240.0,
    ) -> None:
        self.log, self.patience = log, patience
        with log.open("ab") as out:
            self.process = psutil.Popen(
                [*map(str, command)], start_new_session=True, env=environment, cwd=folder,
                stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    @property
    def ended(self) -> int | None:
        """Its exit status; None while it runs. By poll(), not is_running(): a process that has ended and was
        not waited for still "runs"."""
        status: int | None = self.process.poll()
        return status

    def family(self) -> list[psutil.Process]:
        """It and all that it has started; a stopped process too."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self.process, *self.process.children(recursive=True)]
        return []

    def kill(self) -> list[psutil.Process]:
        """SIGKILL to all of it: the driver, the JVMs, the Python workers. Who that was."""
        family = self.family()
        with contextlib.suppress(ProcessLookupError):  # it came to its end
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in family:  # Python daemons have process groups of their own
            kill(process)
        self.process.wait()
        return family

    def tell(self, command: Mapping[str, Any]) -> None:
        """A line of JSON to its standard input. Who waits for one that dies just now finds out."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()

    def wait_until(self, what: str, condition: Callable[[], Any]) -> Any:
        """The condition's answer, once it is true. A program that has ended cannot make it true."""
        deadline = time.monotonic() + self.patience
        while not (found := condition()):
            ended = self.ended
            assert ended is None or condition(), f"{what}: the program ended with {ended}\n{self.tail()}"
            assert time.monotonic() < deadline, f"{what}: not within {self.patience} s\n{self.tail()}"
            time.sleep(0.02)
        return found

    def end(self) -> int:
        """Its exit status, once it has come to its end."""
        try:
            return int(self.process.wait(self.patience))
        except psutil.TimeoutExpired:
            raise AssertionError(f"no end within {self.patience} s\n{self.tail()}") from None

    def tail(self, size: int = 6000) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-size:]


# -- waiting ---------------------------------------------------------------------------------------
# Waiting for what others bring about.


def until(condition: Callable[[], Any], what: str = "it", seconds: float = 60.0) -> Any:
    """What the condition answers, once it is true. Raises AssertionError if it is not in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.01)
    return found
