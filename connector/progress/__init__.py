"""Figures of a micro-batch, for logs, dashboards and tests.

Spark's Python data sources (4.3) have no metrics in a query's progress. So the lag is computed from the
offsets in the progress, and the process that commits writes what the sink has written as a line of JSON for
each micro-batch (option progress.log). Spark's Python processes on the driver's machine also tell it to the
program's `eoslog.metrics`, if that listens: a datagram for each micro-batch.
"""

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eoslog.connector.commit.commands import (
    Around,
    AskOngoing,
    AskOpen,
    AwaitMarkers,
    Command,
    End,
    FetchStored,
    FindOpen,
    FindSettled,
    ListOngoing,
    Perform,
    ReadClock,
    SaveState,
    Seal,
    StageOffsets,
)
from eoslog.connector.commit.commands import Describe as DescribeTransactions
from eoslog.connector.commit.task_reports import Decided, Prepared, Report
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets import offsets
from eoslog.connector.spark.processes import ProcessIdentity, driver_process

logger = logging.getLogger("eoslog.progress")
HEAD = "eoslog.progress "
"""The beginning of a line on standard error."""


class SourceLag(NamedTuple):
    """How many offsets the partitions of a source are behind the log's ends."""

    min: int
    max: int
    avg: float


def offsets_behind_latest(progress: Mapping[str, Any]) -> list[SourceLag | None]:
    """How far each source of `query.lastProgress` is behind; None: unknown. Spark's Kafka source calls it
    minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest.

    Markers and aborted records count. On PySpark 4.0 and 4.1 the lag reads 0.
    """
    return [_behind(source["endOffset"], source["latestOffset"]) for source in progress["sources"]]


def _behind(end: Any, latest: Any) -> SourceLag | None:
    reached, there = offsets_of(end), offsets_of(latest)
    if not reached or not there:
        return None
    gaps = [max(there[tp] - at, 0) for tp, at in reached.items() if tp in there]
    return SourceLag(min(gaps), max(gaps), sum(gaps) / len(gaps)) if gaps else None


def offsets_of(reported: Any) -> offsets.Offsets:
    """The offsets in a progress, which are JSON or already a dictionary. Empty: the source has none."""
    try:
        nested = json.loads(reported) if isinstance(reported, str) else reported
    except ValueError:
        return {}
    if not isinstance(nested, dict) or not all(isinstance(parts, dict) for parts in nested.values()):
        return {}  # from another kind of source
    return offsets.from_json({topic: parts for topic, parts in nested.items() if _all_numbers(parts)})


def _all_numbers(parts: Mapping[str, Any]) -> bool:
    return all(isinstance(at, int) and number.isdecimal() for number, at in parts.items())


def timed(spent: dict[str, float], sink: Sink) -> Around:
    """Adds to `spent` the milliseconds that each step takes until its answers are there."""

    def around(perform: Perform, command: Command[Any]) -> Any:
        began = time.monotonic()
        answer = perform(command)
        step = step_of(command, sink)
        spent[step] = spent.get(step, 0.0) + (time.monotonic() - began) * 1000
        return answer

    return around


def step_of(command: Command[Any], sink: Sink) -> str:
    """The step of a commit that a command belongs to, by its name in docs/exactly-once.md."""
    if isinstance(command, End):
        if not command.commit:
            return "abort"
        return "decide" if command.participants[0].name == sink.coordinator else "finish"
    return _STEPS.get(type(command), "other")


_STEPS: dict[type[Command[Any]], str] = {
    FetchStored: "look",
    Seal: "seal",
    SaveState: "save",
    StageOffsets: "stage",
    AskOpen: "verify",
    DescribeTransactions: "verify",
    FindOpen: "verify",
    FindSettled: "verify",
    AskOngoing: "clear",
    ListOngoing: "clear",
    AwaitMarkers: "markers",
    ReadClock: "verify",
}


def address(jvm: ProcessIdentity) -> str:
    """The abstract socket (Linux) on which the program of this JVM listens to its Python processes."""
    return f"\0eoslog-progress-{os.geteuid()}-{jvm.pid}-{jvm.started}"


_socket: socket.socket | None = None
_lost = 0
"""How many messages of this process found the queue full."""


def tell(event: str, **said: Any) -> None:
    """Send a message to `eoslog.metrics` of this application. It waits for nothing and nobody.

    Nobody listens where the program has not called it, on a Connect server, and on systems other than Linux.
    A full queue loses the message; the next one counts it.
    """
    global _socket, _lost
    if sys.platform != "linux":
        return
    message = json.dumps({"event": event, "lost": _lost, **said}).encode()
    try:
        if _socket is None:
            _socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            _socket.setblocking(False)
        _socket.sendto(message, address(driver_process()))
        _lost = 0
    except BlockingIOError:
        _lost += 1
    except OSError:  # nobody listens, or this process may open no socket: a batch is not failed for that
        _lost = 0


def log_progress(said: Mapping[str, Any], *, loud: bool) -> None:
    """Write the figures of a committed micro-batch to the log at INFO and, if `loud`, also to standard error.
    Tell them to `eoslog.metrics`.

    Spark copies the standard error of its Python processes to its own. Their logging cannot be configured
    from outside, and by default they do not log INFO.
    """
    tell("committed", **said)
    line = json.dumps(said)
    logger.info("%s", line)
    if loud:
        print(f"{HEAD}{line}", file=sys.stderr, flush=True)


def figures(
    sink: Sink, reports: Sequence[Report | None], spent: Mapping[str, float], retries: int = 0
) -> dict[str, Any]:
    """Figures of a committed batch: what this run wrote of it (bytes as sent, compressed; the rows of which
    `dead` went to the dead letter topic), its times, and how many requests the commit had to send again."""
    present = [report for report in reports if report is not None]
    prepared = [report for report in present if isinstance(report, Prepared)]
    stamp = present[0].stamp
    return {
        "query": stamp.batch.query_id,
        "batch": stamp.batch.batch_id,
        "sink": sink.id,
        "rows": sum(report.rows for report in prepared),
        "bytes": sum(report.bytes for report in prepared),
        "dead": sum(report.dead for report in prepared),
        "retries": retries,
        "participants": len(prepared),
        "partitions": len({place for report in prepared for place in report.written}),
        "replayed": any(isinstance(report, Decided) for report in present),
        "ms": {step: round(taken, 1) for step, taken in spent.items()},
    }
