"""The processes of the demo besides the broker: publisher, Spark application, and how to kill them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_SECONDS = 60
SAMPLE_SECONDS = 0.02
"""How long a worker is watched to see whether it works; idle ones wait for their next task."""
CATCH_SECONDS = 3.0
HOLD_SECONDS = 1.5


class Child:
    """A Python module run as a process of its own, its output kept in a log file."""

    def __init__(self, module: str, *args: str, log: Path) -> None:
        self.command = [sys.executable, "-m", module, *args]
        self.log = log
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts (or starts again) the process; its log is appended to."""
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": str(Path(sys.executable).with_name("eoslog-python")),
            "SPARK_CONF_DIR": str(ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self.starts += 1

    @property
    def exit_status(self) -> int | None:
        """None while the process runs."""
        return self.process.poll() if self.process else None

    def family(self) -> list[psutil.Process]:
        """The process and everything below it that still lives."""
        if self.process is None or self.process.poll() is not None:
            return []
        try:
            head = psutil.Process(self.process.pid)
            return [head, *head.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> int:
        """SIGKILL to the process and everything below it; returns how many processes that were."""
        family = self.family()
        for process in family:
            send_kill(process)
        if self.process is not None:
            self.process.wait()
        return len(family)

    def stop(self) -> int:
        """SIGTERM, then waits; returns the exit status. A process that does not end is killed."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def lines(self, pattern: str) -> int:
        """How many lines of the log match."""
        if not self.log.exists():
            return 0
        return len(re.findall(pattern, self.log.read_text(errors="replace"), re.MULTILINE))

    def tail(self, lines: int = 15) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def send_kill(process: psutil.Process) -> bool:
    """SIGKILL; False if the process was gone already."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def kill_worker_at_work(application: Child, port: int) -> int | None:
    """SIGKILL to a Python worker in the middle of a task; its pid, or None if none was caught at work.

    Spark forks the tasks' workers from a daemon that is named `pyspark.worker`, or whose command line ends so
    (docs/starts.md); planners and the sinks' commit processes have daemons of their own and are left alone. A
    task is over in a fraction of a second, so the worker is halted first: then its task, or the next one it
    is given, cannot end before the kill.
    """
    workers = [worker for worker in _workers(application) if _talks_to(worker, port)]
    seconds = {worker: _cpu_seconds(worker) for worker in workers}
    deadline = time.monotonic() + CATCH_SECONDS
    while workers and time.monotonic() < deadline:
        time.sleep(SAMPLE_SECONDS)
        for worker in workers:
            before, seconds[worker] = seconds[worker], _cpu_seconds(worker)
            if seconds[worker] > before and _halt(worker):
                time.sleep(HOLD_SECONDS)
                return worker.pid if send_kill(worker) else None
    return None


def _halt(process: psutil.Process) -> bool:
    try:
        process.suspend()
    except psutil.NoSuchProcess:
        return False
    return True


def _workers(application: Child) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in application.family():
        try:
            plain = process.cmdline()[-3:] == ["-m", "pyspark.daemon", "pyspark.worker"]
            if process.name() == "pyspark.worker" or (plain and "-c" not in process.cmdline()):
                found += process.children()
        except psutil.NoSuchProcess:
            continue
    return found


def _talks_to(process: psutil.Process, port: int) -> bool:
    try:
        return any(c.raddr and c.raddr.port == port for c in process.net_connections("tcp"))
    except psutil.NoSuchProcess:
        return False


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        seconds: float = sum(process.cpu_times()[:2])
        return seconds
    except psutil.NoSuchProcess:
        return 0.0
