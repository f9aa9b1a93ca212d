"""Which end offsets the sources of a driver have planned or were asked for last.

Source and sink of a query are in different processes. A batch that runs again without one of its sources
looks to the sink like any other, and Spark says nothing. So each source keeps a small file that belongs to
the driver's JVM, as run_memory.py does, and the sink looks for the sources of its batch. A file counts only
while its process lives, and a source removes it when the query ends.

Two queries of one driver cannot be told apart if they read the same partitions up to the same offsets.
"""

import contextlib
import hashlib
import itertools
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eoslog.connector.checkpoint.source_changes import canonical
from eoslog.connector.run.run_memory import notes_folder
from eoslog.connector.spark.processes import ProcessIdentity, driver_process, lives, this_process
from eoslog.errors.pages import see

logger = logging.getLogger(__name__)

_SEE = see("micro-batches-cannot-be-remembered")
_READS, _PAUSE_SECONDS = 20, 0.001
"""How often a sink reads a line that is being written; one write takes some 20 us."""
_numbers = itertools.count()


class SourceEnd:
    """The last end offsets of one source of this process.

    It is noted in each micro-batch, so the file stays open and is written in place: a new file and a rename
    cost milliseconds. A reader that meets a half-written line sees it by the checksum.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._file = -1
        self._planned = ""
        self._noted: dict[str, Any] = {}

    def __reduce__(self) -> tuple[type["SourceEnd"], tuple[()]]:
        return SourceEnd, ()

    def __del__(self) -> None:
        self._close()

    def note(
        self,
        end: Mapping[str, Mapping[str, int]],
        start: Mapping[str, Mapping[str, int]] | None = None,
        *,
        planned: bool = False,
    ) -> None:
        """Keep the end for the driver's sinks, and where Spark has the batch begin. `planned`: this source
        has made the end now; otherwise Spark asks for it, and an earlier run may have planned it."""
        text = canonical(end)
        self._planned = text if planned else self._planned
        kept: dict[str, Any] = {"end": text, **({} if start is None else {"start": canonical(start)})}
        kept["planned"] = text == self._planned
        if kept == self._noted:
            return
        folder = notes_folder()
        if folder is None:
            return
        line = _line(json.dumps({"process": this_process(), **kept}))
        try:
            written = os.pwrite(self._open(folder), line, 0)
        except OSError as error:
            logger.warning(f"the end of a source's batch cannot be kept for the sink: %s. {_SEE}", error)
            return
        if written < len(line):
            logger.warning(
                f"the end of a source's batch cannot be kept for the sink: the disk is full. {_SEE}"
            )
            return
        self._noted = kept

    def _open(self, folder: Path) -> int:
        """The file's descriptor. It is made again after somebody has cleaned up the folder."""
        if self._file >= 0 and os.fstat(self._file).st_nlink > 0:
            return self._file
        self._close()
        path = folder / f"{_prefix()}{os.getpid()}-{next(_numbers)}.source"
        self._file, self._path = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), path
        return self._file

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def forget(self) -> None:
        """The query has ended."""
        self._close()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
        self._path, self._noted, self._planned = None, {}, ""


def asked_ends() -> Counter[str] | None:
    """The ends of all living sources of this driver. None: they cannot be kept, as was warned."""
    notes = _living()
    return None if notes is None else Counter(kept["end"] for kept in notes)


def planned_ends() -> set[str]:
    """The ends that living sources of this driver have planned themselves: no earlier run has, and no other
    source was asked for them. Empty: that is not known."""
    notes = _living() or []
    return {kept["end"] for kept in notes} - {kept["end"] for kept in notes if not kept["planned"]}


def asked_starts() -> dict[str, set[str]]:
    """Where Spark has the batches begin that end there, by their ends. Empty: that is not known."""
    found: dict[str, set[str]] = {}
    for kept in _living() or ():
        if "start" in kept:
            found.setdefault(kept["end"], set()).add(kept["start"])
    return found


def _living() -> list[dict[str, Any]] | None:
    """The notes of all living sources of this driver. None: there can be none, as was warned."""
    folder = notes_folder()
    if folder is None:
        return None
    notes = filter(None, map(_kept, folder.glob(f"{_prefix()}*.source")))
    return [kept for kept in notes if lives(ProcessIdentity(*kept["process"]))]


def _line(text: str) -> bytes:
    """The line of a file: checksum and text. What follows its end is left of a longer line."""
    return f"{_checksum(text)} {text}\n".encode()


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _kept(path: Path) -> dict[str, Any] | None:
    """What a source has noted. None: its query has just ended, or has noted nothing yet."""
    for _ in range(_READS):
        try:
            line = path.read_bytes().partition(b"\n")[0].decode(errors="replace")
        except FileNotFoundError:
            return None
        if not line:
            return None
        checksum, _, text = line.partition(" ")
        if text and checksum == _checksum(text):
            kept: dict[str, Any] = json.loads(text)
            return kept
        time.sleep(_PAUSE_SECONDS)  # it is being written
    logger.warning(f"%s cannot be read: what its source has planned is not known. {_SEE}", path)
    return None


def _prefix() -> str:
    driver = driver_process()
    return hashlib.sha256(f"{driver.pid}\0{driver.started}\0sources".encode()).hexdigest()[:24] + "-"
