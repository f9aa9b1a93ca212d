"""What a driver remembers of a sink from one micro-batch to the next, for all of its processes.

Spark keeps a pool of planner processes: with two queries in an application, the batches of one query begin in
different processes. They share a JVM, so the memory is a small file that belongs to that JVM. To lose it
costs one InitProducerId; to believe another driver's file would break exactly-once. So the JVM is identified
by more than its pid, and the file has a token that only planners of the same driver know. guard.py, which
ends a run, is another process and does not need the token: it acts under the identity in the file.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from eoslog.connector.commit.faults import BatchRefused
from eoslog.connector.commit.task_reports import Batch, Run, Start
from eoslog.connector.spark.pickled_form import FORM
from eoslog.connector.spark.processes import (
    ProcessIdentity,
    driver_process,
    lives,
    stream_threads,
    thread_lives,
)
from eoslog.errors.pages import see
from eoslog.protocol.producer_identity import ProducerIdentity

logger = logging.getLogger(__name__)

_SEE = see("micro-batches-cannot-be-remembered")

_FORGET_SECONDS = 7 * 24 * 3600
"""Files are removed after this long without a batch; their drivers have usually ended."""
_SWEEP_SECONDS = 3600
"""How often a process looks for such files: with thousands of them it takes longer than the rest of begin."""
_swept = -math.inf


def driver_token() -> str:
    """A token of the driver that this planner process belongs to. All planners of a driver that do the same
    work have the same token."""
    secret = os.environ.get("PYTHON_WORKER_FACTORY_SECRET", "")
    return _hash(*map(str, driver_process()), secret)[:16]


def look(*key: str) -> Run | None:
    """The run kept under the key by any process of the driver, for a process that ends the run."""
    path = _path(key)
    try:
        return _run(json.loads(path.read_text())) if path is not None and path.exists() else None
    except (OSError, ValueError, TypeError, KeyError) as error:
        logger.warning(f"the memory of the last micro-batch cannot be read: %s. {_SEE}", error)
        return None


def take(*key: str) -> Run | None:
    """The run kept under the key, which is forgotten: so a begin that fails leaves no memory behind."""
    path = _path(key)
    if path is None or not path.exists():
        return None
    try:
        kept = json.loads(path.read_text())
        path.unlink()
        return _run(kept) if kept["token"] == driver_token() else None
    except (OSError, ValueError, TypeError, KeyError) as error:
        logger.warning(
            f"the memory of the last micro-batch cannot be read, the sink is acquired again: %s. {_SEE}",
            error,
        )
        return None


def keep(run: Run, *key: str) -> None:
    """Keep the run under the key for the driver's next begin."""
    path = _path(key)
    if path is None:
        return
    kept = {"form": FORM, "token": driver_token(), "incarnation": run.incarnation, "identity": run.identity}
    kept |= {"batch": [run.batch.query_id, run.batch.batch_id, run.batch.digest], "driver": driver_process()}
    kept |= {"start": run.start, "options": run.options, "streams": run.streams}
    text = json.dumps(kept)
    try:
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.rename(path)
    except OSError as error:
        logger.warning(
            f"the micro-batch cannot be remembered, the next one acquires the sink again: %s. {_SEE}", error
        )


def stamp(*key: str) -> tuple[int, int] | None:
    """Another value after each keep under the key. None: nothing is kept."""
    path = _path(key)
    try:
        found = path.stat() if path is not None else None
    except FileNotFoundError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns)


def hold(*key: str) -> int | None:
    """Be the one process that watches under the key: an open file, until release or the process's end.
    None: another process does, or nothing can be kept."""
    path = _path(key)
    if path is None:
        return None
    held = os.open(path.with_suffix(".guard"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return None
    return held


def release(held: int, *key: str) -> None:
    """Watch no longer."""
    path = _path(key)
    if path is not None:
        path.with_suffix(".guard").unlink(missing_ok=True)  # before others can hold it
    os.close(held)


class Life(Enum):
    """Whether the run that is remembered is the one that begins a batch now."""

    GOES_ON = "its query runs on"
    ENDED = "its query has ended, and was started again"
    UNCLEAR = "some query of the driver has ended, and some was started since; or the options are others"


def life_of(run: Run, options: str) -> tuple[Life, Run]:
    """Whether a run goes on; and the run as it is to be remembered, if so. `options`: a digest of the sink's.

    Spark runs each start of a query in a thread of its own. While those live that were there at the run's
    start, the run goes on. Without a new one nothing was started.
    """
    gone = [one for one in run.streams if not stream_lives(one)]
    if gone and len(gone) == len(run.streams):
        return Life.ENDED, run
    if gone and {*streams_now()} - {*run.streams}:
        return Life.UNCLEAR, run
    left = replace(run, streams=tuple(one for one in run.streams if one not in gone))
    return (Life.GOES_ON if run.options == options else Life.UNCLEAR), left


def streams_now() -> tuple[tuple[int, str], ...]:
    """The threads that run the driver's streaming queries, as Run has them."""
    return tuple(stream_threads(driver_process()))


def stream_lives(stream: tuple[int, str]) -> bool:
    """Whether a thread of streams_now() is still alive."""
    return thread_lives(driver_process(), ProcessIdentity(*stream))


def drivers_of(query_id: str) -> list[int]:
    """The pids of living drivers on this machine that run the query, as far as this user's drivers tell."""
    folder, found = notes_folder(), set[int]()
    for path in folder.glob("*.run") if folder is not None else ():
        try:
            kept = json.loads(path.read_text())
            driver, query = ProcessIdentity(*kept["driver"]), kept["batch"][0]
        except FileNotFoundError:  # its driver begins a batch just now, or it was swept
            continue
        except (OSError, ValueError, TypeError, KeyError):
            logger.warning("%s does not name a driver: if it belongs to this query, it is not seen", path)
            continue
        if query == query_id and lives(driver):
            found.add(driver.pid)
    return sorted(found)


class Turn:
    """A driver's process has its turn. `claimed`: what the run of a query has written of a batch, or found
    written; None: that is not known."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def claimed(self, run: str, batch: int) -> list[str] | None:
        """What this run has noted of the batch."""
        if self._path is None or not run:
            return None
        kept = self._kept()
        return list(kept["claimed"]) if (kept["run"], kept["batch"]) == (run, batch) else []

    def is_first(self, run: str, batch: int) -> bool:
        """Whether this run may have written nothing of earlier batches."""
        kept = self._kept()
        return not run or kept["run"] != run or kept["since"] >= batch

    def is_late(self, run: str, batch: int) -> bool:
        """Whether the run has written a later batch: a thread has outlived its batch, or it has the
        properties of an earlier one."""
        kept = self._kept()
        return bool(run) and kept["run"] == run and kept["batch"] > batch

    def check_newest(self, run: str, batch: int) -> None:
        """Raise BatchRefused if the write is late."""
        if self.is_late(run, batch):
            raise BatchRefused(
                f"a df.write of foreachBatch is of batch {batch}, and its query has written batch "
                f"{self._kept()['batch']} since. Nothing was written. In a thread? Wait for it before the "
                "function returns, and wrap what it calls in pyspark.inheritable_thread_target anew for each "
                "batch"
            )

    def claim(self, run: str, batch: int, write: str) -> None:
        """Note that the run has written this of the batch, or found it written. A thread that has outlived
        its batch notes nothing."""
        known, before = self.claimed(run, batch), self._kept()
        goes_on = before["run"] == run
        if self._path is not None and known is not None and not (goes_on and before["batch"] > batch):
            kept = {"token": driver_token(), "run": run, "batch": batch, "claimed": [*known, write]}
            kept["since"] = before["since"] if goes_on else batch
            draft = self._path.with_suffix(f".{os.getpid()}")
            try:
                draft.write_text(json.dumps(kept))
                draft.rename(self._path)
            except OSError as error:
                logger.warning(f"a df.write of foreachBatch cannot be remembered: %s. {_SEE}", error)

    def _kept(self) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        try:
            if self._path is not None and self._path.exists():
                kept = json.loads(self._path.read_text())
        except (OSError, ValueError) as error:
            logger.warning(f"the memory of writes in foreachBatch cannot be read: %s. {_SEE}", error)
        nothing = {"run": "", "batch": -1, "since": -1, "claimed": []}
        return nothing | (kept if kept.get("token") == driver_token() else {})


@contextlib.contextmanager
def turn(*key: str) -> Iterator[Turn]:
    """Wait until no other process of the driver has its turn under the key, and have it.

    Parallel writes of a query share a sink: without turns they would fence each other."""
    path = _path(key)
    if path is None:
        yield Turn(None)
        return
    with path.with_suffix(".turn").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # the system gives it back if the process dies
        yield Turn(path.with_suffix(".claims"))


def _run(kept: dict[str, Any]) -> Run:
    if kept["form"] != FORM:
        raise ValueError(f"it has form {kept['form']}, and this version of eoslog reads form {FORM}")
    return Run(
        ProducerIdentity(*kept["incarnation"]),
        ProducerIdentity(*kept["identity"]),
        Batch(*kept["batch"]),
        Start.read(kept["start"]) if kept["start"] is not None else None,
        kept["options"],
        tuple((int(number), str(started)) for number, started in kept["streams"]),
    )


def _hash(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def _path(key: tuple[str, ...]) -> Path | None:
    """The file of the key and the driver, in a folder that only the user can open. None: there is no such
    folder."""
    folder = notes_folder()
    if folder is None:
        return None
    driver = driver_process()
    return folder / f"{_hash(str(driver.pid), driver.started, *key)}.run"


def notes_folder() -> Path | None:
    """The folder for what this driver's processes tell each other. None: there is none, as was warned."""
    global _swept
    folder = Path(tempfile.gettempdir()) / f"eoslog-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            logger.warning(f"%s is open to others: micro-batches are not remembered there. {_SEE}", folder)
            return None
        if time.monotonic() >= _swept + _SWEEP_SECONDS:
            _sweep(folder)
            _swept = time.monotonic()
    except OSError as error:
        logger.warning(f"micro-batches cannot be remembered in %s: %s. {_SEE}", folder, error)
        return None
    return folder


def _sweep(folder: Path) -> None:
    limit = time.time() - _FORGET_SECONDS
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another driver has removed it
                if entry.stat().st_mtime < limit:
                    os.unlink(entry)
