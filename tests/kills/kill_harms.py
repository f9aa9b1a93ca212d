"""Sinks that are broken on purpose, to see the soak's judge object."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from eoslog.connector.commit import commands as c
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink.start_of_run import StartOfRun
from tests.kills import kill_query


def skips_finish() -> None:
    """Commit leaves the first winner of each batch open and says that it is done; the next begin finds it."""
    real = Runner._end

    def end(self: Runner, command: c.End) -> Any:
        first, *rest = command.participants
        if not kill_query.commits() or not command.commit or "/" not in first.name:
            return real(self, command)
        done = real(self, replace(command, participants=tuple(rest))) if rest else {}
        return {first.name: first.identity, **done}

    Runner._end = end  # type: ignore[method-assign]


def writes_replays_again() -> None:
    """Each driver has a sink of its own, so no decision is known; and it dies with its second batch done."""
    suffix, made = f"-{os.getpid()}", kill_query.writer_of

    def writer_of(job: kill_query.Job, bootstrap: str, checkpoint: Path, query: str, batch: int) -> Any:
        named = {"transactional.id": job.options["transactional.id"] + suffix}
        return made(replace(job, options=job.options | named), bootstrap, checkpoint, query, batch)

    kill_query.writer_of = writer_of
    for name in ("before", "after"):  # it would tell: checkpoint and group know better
        setattr(StartOfRun, name, lambda *_: None)
    real = kill_query._log

    def log(path: Path, text: str) -> None:
        mark = path.parents[2] / f"died-{path.parents[1].name}"
        if path.parent.name == "commits" and path.name == "1" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        real(path, text)

    kill_query._log = log


def forgets_rows() -> None:
    """A task leaves out the last row of each of its first pieces."""
    real = kill_query._watched

    def watched(found: Iterator[pa.RecordBatch], steps: Any) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(real(found, steps)):
            yield batch if number else batch.slice(0, len(batch) - 1)

    kill_query._watched = watched


def swaps_rows() -> None:
    """A task gives the second half of each read first."""
    real = kill_query._marked

    def marked(found: Iterator[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
        for batch in real(found, name):
            half = len(batch) // 2
            yield pa.concat_batches([batch.slice(half), batch.slice(0, half)])

    kill_query._marked = marked


HARMS: dict[str, Callable[[], None]] = {
    "skips finish": skips_finish,
    "writes replays again": writes_replays_again,
    "forgets rows": forgets_rows,
    "swaps rows": swaps_rows,
}
