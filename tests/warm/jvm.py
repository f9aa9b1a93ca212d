"""Drives the stand-in for Spark's JVM, and speaks to what it starts as the JVM does."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

_HERE = Path(__file__).parent
_PATH = f"{_HERE.parents[1]}:{_HERE}"
PYTHON = (sys.executable,)
LAUNCHER = (*PYTHON, "-c", "from eoslog.spark_python import main; main()")
"""What the command eoslog-python becomes, with the sources of this checkout."""
SECRET = "open sesame"


class Jvm:
    """A process named java, in whose name Python is started."""

    def __init__(self, folder: Path, **environment: str) -> None:
        java = folder / "java"
        if not java.exists():
            java.symlink_to(os.path.realpath(sys.executable))
        self.log = folder / "log"
        given = {
            "PWD": str(folder),
            "PYTHONPATH": _PATH,
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
            **environment,
        }
        self._process = subprocess.Popen(
            [java, _HERE / "stand_in.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log.open("a"), text=True, cwd=folder,
            env={**os.environ, **given},
        )  # fmt: skip
        self.pid = self._process.pid

    def start(
        self, *arguments: str, python: tuple[str, ...] = LAUNCHER, ignoring: bool = False, **environment: str
    ) -> Started:
        return self.run(arguments, python, environment, ignoring)

    def run(
        self,
        arguments: Sequence[str],
        python: Sequence[str],
        environment: Mapping[str, str],
        ignoring: bool = False,
    ) -> Started:
        return Started(self, self.ask("start", [*python, *arguments], environment, ignoring))

    def daemon(self, worker: str = "pyspark_probe", **environment: str) -> Started:
        return self.run(["-m", "pyspark.daemon", worker], LAUNCHER, environment)

    def ask(self, *command: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def warm(self) -> list[psutil.Process]:
        """Its warm processes, without their forks."""
        found = {}
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = one.cmdline()
                if command[1:3] == ["-m", "eoslog.warm"] and command[-1] == str(self.pid):
                    found[one.pid] = one, one.ppid()
        return [one for one, parent in found.values() if parent not in found]


class Started:
    """What it started, by the process that stands for it."""

    def __init__(self, jvm: Jvm, pid: int) -> None:
        self.jvm, self.pid = jvm, pid

    def worker(self) -> dict[str, Any]:
        """What a worker of this daemon says of itself."""
        port = getattr(self, "_port", None) or struct.unpack("!i", bytes.fromhex(self.read(4)))[0]
        self._port = port
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            stream = connection.makefile("rwb")
            (pid,) = struct.unpack("!i", stream.read(4))
            stream.write(struct.pack("!i", len(SECRET)) + SECRET.encode())
            stream.flush()
            assert stream.read(6)[4:] == b"ok"
            told = json.loads(stream.readline())
        return {**told, "pid": pid}

    def read(self, size: int = 0) -> str:
        return str(self.jvm.ask("read", self.pid, size))

    def end(self) -> int:
        """Ask a daemon to end, as Spark does; its exit status."""
        self.jvm.ask("close", self.pid)
        return self.wait()

    def wait(self) -> int:
        return int(self.jvm.ask("wait", self.pid))


@contextlib.contextmanager
def running(folder: Path, **environment: str) -> Iterator[Jvm]:
    jvm = Jvm(folder, **environment)
    try:
        yield jvm
    finally:
        jvm.kill()


def state(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in ("_", "SHLVL", "LC_CTYPE")}
