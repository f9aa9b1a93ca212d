"""make demo: a year of flights through a pipeline that is killed three times, and the audit after it.

Starts a broker, a publisher and a Spark application; kills the broker, the whole Spark application and
one task's Python worker, each in the middle of a micro-batch that has written something already; starts
again what it killed; and lets an auditor that shares no code with the connector give the verdict.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.live import Live

from eoslog.testing import EmbeddedBroker
from examples.flights.audit import Verdict
from examples.flights.data import flights
from examples.flights.stage import ROOT, Child, kill_worker_at_work
from examples.flights.view import closing, live
from examples.flights.watch import Watch

PARTITIONS = {"flights": 4, "flights_late": 3, "flights_other": 3, "carrier_counts": 1}
LOOK_SECONDS = 0.1
LIMIT_SECONDS = 600
"""A demo that is not through by then has failed."""
CATCH_SECONDS = 2
"""A due kill waits so long for a batch in the middle, then the demo looks at everything again."""
WORKER_TRY_SECONDS = 2
FAILURES_WHILE_RESTARTING = 5
KILLS_BESIDE = 3  # how often a kill may miss the middle of a batch


@dataclass
class Kill:
    """One entry of the kill plan: at which share of the flights, and what it does."""

    share: float
    name: str
    strike: Callable[[], bool]
    done: bool = False


@dataclass
class Demo:
    """The running demo: its processes, what it has killed, and what it tells the viewer."""

    args: argparse.Namespace
    total: int
    broker: EmbeddedBroker
    publisher: Child
    application: Child
    watch: Watch
    console: Console
    started: float = field(default_factory=time.monotonic)
    events: list[str] = field(default_factory=list)
    peak_bytes: int = 0
    worker_tried_at: float = 0.0
    worker_losses_before: int | None = None
    kills_beside: int = 0

    @property
    def seconds(self) -> float:
        """Since the start of the demo."""
        return time.monotonic() - self.started

    def say(self, event: str) -> None:
        """Adds a line to the live view (and to the output where there is no terminal)."""
        self.events.append(f"{self.seconds:6.1f} s  {event}")
        if not self.console.is_terminal:
            self.console.print(self.events[-1])

    def kill_broker(self) -> bool:
        """SIGKILL to the broker, and a new one on the same folder and port."""
        self.broker.kill()
        self.say(f"killed the broker in batch {self.watch.batch('route')}")
        self.broker.restart()
        self.say("broker is back")
        return True

    def kill_application(self) -> bool:
        """SIGKILL to the driver with all its processes, and a new one on the same checkpoints; true if that
        was in mid-batch."""
        count = self.application.kill()
        self.say(f"killed the Spark application ({count} processes) in batch {self.watch.batch('route')}")
        self.watch.look()
        hit = self.watch.written_in_flight() > 0
        self.kills_beside += not hit
        self.application.start()
        self.say("Spark application is starting from its checkpoints")
        if not hit:
            self.say("its batch had just ended: another one will be hit in the middle")
        return hit or self.kills_beside > KILLS_BESIDE

    def kill_worker(self) -> bool:
        """SIGKILL to a task's Python worker; true once Spark says that a task was lost by it."""
        losses = self.application.lines(r"Lost task")
        if self.worker_losses_before is None:
            self.worker_losses_before = losses
        if losses > self.worker_losses_before:
            self.say("Spark has lost the task and tries it again")
            return True
        if time.monotonic() - self.worker_tried_at > WORKER_TRY_SECONDS:
            pid = kill_worker_at_work(self.application, self.broker.port)
            self.worker_tried_at = time.monotonic()
            if pid is not None:
                self.say(f"killed a Python worker (pid {pid}) in batch {self.watch.batch('route')}")
        return False

    def measure(self) -> None:
        """Keeps the highest sum of resident memory over all processes of the demo."""
        resident = 0
        for process in psutil.Process().children(recursive=True):
            try:
                resident += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.peak_bytes = max(self.peak_bytes, resident)

    def step(self, plan: list[Kill]) -> bool:
        """One look at everything, and the next kill if it is due; true when all flights are through."""
        progress = self.watch.look()
        due = next((kill for kill in plan if not kill.done), None)
        share = progress.consumed.get("route", 0) / self.total
        pending = due is not None and due.name == "worker" and self.worker_losses_before is not None
        if due and (pending or (share >= due.share and self.watch.caught_writing(CATCH_SECONDS))):
            due.done = due.strike()
        if self.application.exit_status is not None:
            self.revive()
        if self.publisher.exit_status not in (None, 0):
            raise RuntimeError(f"the publisher failed:\n{self.publisher.tail()}")
        everything = all(done >= self.total for done in progress.consumed.values())
        return everything and bool(progress.consumed) and self.publisher.exit_status == 0

    def revive(self) -> None:
        """A failed application is started again, as a supervisor would do, a bounded number of times."""
        if self.application.starts > FAILURES_WHILE_RESTARTING:
            raise RuntimeError(f"the Spark application keeps failing:\n{self.application.tail()}")
        self.say(f"Spark application ended with {self.application.exit_status}; starting it again")
        self.application.start()


def prepare(args: argparse.Namespace, broker: EmbeddedBroker, console: Console) -> Demo:
    """The topics on the broker, and the other processes, not started yet."""
    checkpoints = args.data / "checkpoints"
    checkpoints.mkdir(parents=True)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(t, n, 1) for t, n in PARTITIONS.items()]).values():
        future.result(30)
    total = sum(1 for _ in flights()) if args.limit is None else args.limit
    publish = ["--bootstrap", broker.bootstrap, "--rate", str(args.rate), "--limit", str(total)]
    run = ["--bootstrap", broker.bootstrap, "--checkpoints", str(checkpoints), "--guarantee", args.guarantee]
    run += ["--rows-per-batch", str(args.rows_per_batch)]
    return Demo(
        args,
        total,
        broker,
        Child("examples.flights.publish", *publish, log=args.data / "publisher.log"),
        Child("examples.flights.pipeline", *run, log=args.data / "spark.log"),
        Watch(broker.bootstrap, PARTITIONS, checkpoints),
        console,
    )


def perform(demo: Demo) -> int:
    """Runs the pipeline with its kills until every flight is through; returns the number of kills."""
    plan = [
        Kill(0.15, "broker", demo.kill_broker),
        Kill(0.40, "driver", demo.kill_application),
        Kill(0.65, "worker", demo.kill_worker),
    ]
    demo.application.start()
    demo.publisher.start()
    measured = 0.0

    def picture() -> object:
        return live(demo.watch, demo.total, demo.args.guarantee, demo.events, demo.seconds)

    with Live(console=demo.console, refresh_per_second=4, transient=True) as view:
        while not demo.step(plan):
            if demo.seconds > LIMIT_SECONDS:
                raise TimeoutError(f"not through after {LIMIT_SECONDS} s:\n{demo.application.tail()}")
            if demo.console.is_terminal:
                view.update(picture())  # type: ignore[arg-type]
            if demo.seconds - measured > 1:
                demo.measure()
                measured = demo.seconds
            time.sleep(LOOK_SECONDS)
    demo.say("all flights are through; stopping the application")
    for kill in plan:
        if not kill.done:
            demo.say(f"never caught the {kill.name} in the middle of a batch: no verdict on that kill")
    demo.application.stop()
    return sum(kill.done for kill in plan)


def judged(demo: Demo) -> Verdict:
    """The verdict of the auditor, a process of its own."""
    command = [sys.executable, "-m", "examples.flights.audit", "--bootstrap", demo.broker.bootstrap]
    command += ["--limit", str(demo.total)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise RuntimeError(f"the auditor failed:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    found.pop("holds")
    return Verdict(**found)


def main(console: Console) -> int:
    """Command line of the demo, which prints to this console."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guarantee", default="exactly_once")
    parser.add_argument("--data", type=Path, default=Path(".demo"))
    parser.add_argument("--rate", type=int, default=6000, help="flights published a second")
    parser.add_argument("--rows-per-batch", type=int, default=20_000, help="limit of a micro-batch")
    parser.add_argument("--limit", type=int, default=None, help="only the first so many flights")
    parser.add_argument(
        "--expect-duplicates", action="store_true", help="exit 0 if flights were doubled and none was lost"
    )
    args = parser.parse_args()
    args.data = args.data.resolve()
    # So that the processes below end with this one, however it is ended.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    shutil.rmtree(args.data, ignore_errors=True)
    with EmbeddedBroker(args.data / "broker") as broker:
        demo = prepare(args, broker, console)
        try:
            kills = perform(demo)
            verdict = judged(demo)
        finally:
            for child in (demo.application, demo.publisher):
                child.kill()
    for event in demo.events if console.is_terminal else []:
        console.print(event)
    console.print(closing(verdict, kills, demo.seconds, demo.peak_bytes, args.guarantee))
    if args.expect_duplicates:
        return 0 if verdict.doubled and not verdict.lost else 1
    return 0 if verdict.holds and kills == 3 else 1


if __name__ == "__main__":
    sys.exit(main(Console()))
