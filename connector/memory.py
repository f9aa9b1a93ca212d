"""What a driver remembers of a sink from one micro-batch to the next, whichever process asks.

Spark keeps a pool of planner processes: with two queries in an application, a query's batches begin
now in one of them, now in another. They share a parent (Spark's Python daemon, or its JVM), and the
memory lies in a small file that belongs to this parent. Losing it costs an InitProducerId, no more;
believing another driver's would cost exactness, so the parent is named by more than its pid.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import tempfile
import time
from pathlib import Path

from eoslog.connector.commit.messages import Batch, Run
from eoslog.connector.commit.names import Identity

log = logging.getLogger(__name__)

_FORGET_SECONDS = 7 * 24 * 3600
"""Files of drivers that ended are removed after this long without a batch."""
_SWEEP_SECONDS = 3600
"""How often a process looks for such files: thousands of them take longer than all the rest of a begin."""
_swept = -math.inf


def driver_token() -> str:
    """Names the driver that this planner process belongs to; the same for all planners of one driver."""
    parent = os.getppid()
    try:
        # Field 22 is the start time; the fields after the command's closing bracket begin with the 3rd.
        started = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = ""  # not Linux: the secret below tells two drivers of one pid apart
    secret = os.environ.get("PYTHON_WORKER_FACTORY_SECRET", "")
    return hashlib.sha256(f"{parent} {started} {secret}".encode()).hexdigest()[:16]


def take(*key: str) -> Run | None:
    """What was kept under the key, and forgets it: a begin that fails leaves no memory behind."""
    path = _path(key)
    if path is None or not path.exists():
        return None
    try:
        kept = json.loads(path.read_text())
        path.unlink()
        return Run(Identity(*kept["incarnation"]), Identity(*kept["identity"]), Batch(*kept["batch"]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("the memory of the last micro-batch cannot be read; the sink is acquired anew: %s", error)
        return None


def keep(run: Run, *key: str) -> None:
    """Keeps the run under the key for the driver's next begin."""
    path = _path(key)
    if path is None:
        return
    batch = [run.batch.query_id, run.batch.batch_id, run.batch.digest]
    text = json.dumps({"incarnation": run.incarnation, "identity": run.identity, "batch": batch})
    try:
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.rename(path)
    except OSError as error:
        log.warning("the micro-batch cannot be remembered; the next one acquires the sink anew: %s", error)


def _path(key: tuple[str, ...]) -> Path | None:
    """The key's file in a folder of the user's own; None if there can be none."""
    global _swept
    folder = Path(tempfile.gettempdir()) / f"eoslog-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            log.warning("%s is open to others: micro-batches are not remembered there", folder)
            return None
        if time.monotonic() >= _swept + _SWEEP_SECONDS:
            _sweep(folder)
            _swept = time.monotonic()
    except OSError as error:
        log.warning("micro-batches cannot be remembered in %s: %s", folder, error)
        return None
    name = hashlib.sha256("\0".join((driver_token(), *key)).encode()).hexdigest()
    return folder / f"{name}.run"


def _sweep(folder: Path) -> None:
    limit = time.time() - _FORGET_SECONDS
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another driver sweeps too
                if entry.stat().st_mtime < limit:
                    os.unlink(entry)
