"""A node of franz-go's kfake, in a process and a directory of its own: neither Kafka nor ours."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

from tests.kit.kafka_nodes import free_port

PROGRAM = Path(__file__).parents[2] / ".peers" / "kfake"
START_SECONDS = 60


class KfakeMissing(RuntimeError):
    """The program is not built; the text says how."""


class Kfake:
    """Runs the program of tests/kfake/main.go. A context manager."""

    def __init__(self, config: Mapping[str, str]) -> None:
        """`config`: broker options; kfake keeps those that it knows. Raises KfakeMissing."""
        if not PROGRAM.exists():
            raise KfakeMissing(f"no {PROGRAM}: make test-connector-kfake builds it, with Go")
        self.host, self.port = "127.0.0.1", free_port()
        self._config = dict(config)
        self._directory = Path(tempfile.mkdtemp(prefix="kfake-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def __enter__(self) -> Self:
        try:
            return self._run()
        except BaseException:
            self.__exit__()
            raise

    def _run(self) -> Self:
        self._log = (self._directory / "out.log").open("ab")
        told = [f"-config={name}={value}" for name, value in self._config.items()]
        command = [str(PROGRAM), f"-port={self.port}", f"-data={self._directory / 'data'}", *told]
        before = self.output().count("ready on")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        until = time.monotonic() + START_SECONDS
        while self.output().count("ready on") == before:
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(self.output()[-3000:])
            time.sleep(0.02)
        return self

    def output(self) -> str:
        """What it has printed."""
        return (self._directory / "out.log").read_text()

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> Self:
        """Start again on the same directory and port; kills it first if it runs."""
        self._end()
        return self._run()

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        if self._log is not None:
            self._log.close()

    def __exit__(self, *exc: object) -> None:
        self._end()
        shutil.rmtree(self._directory, ignore_errors=True)
