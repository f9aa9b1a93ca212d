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
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from eoslog.connector.checkpoint.source_changes import canonical
from eoslog.connector.run.run_memory import notes_folder
from eoslog.connector.spark.processes import ProcessIdentity, driver_process, lives, this_process

log = logging.getLogger(__name__)

_SEE = "See troubleshooting.md#micro-batches-cannot-be-remembered"
_numbers = itertools.count()


class SourceEnd:
    """The last end offsets of one source of this process."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._noted = ""

    def __reduce__(self) -> tuple[type["SourceEnd"], tuple[()]]:
        return SourceEnd, ()

    def note(self, end: Mapping[str, Mapping[str, int]]) -> None:
        """Keep the end for the driver's sinks."""
        text = canonical(end)
        if text == self._noted:
            return
        folder = notes_folder()
        if folder is None:
            return
        self._path = self._path or folder / f"{_prefix()}{os.getpid()}-{next(_numbers)}.source"
        try:
            draft = self._path.with_suffix(".draft")
            draft.write_text(json.dumps({"process": this_process(), "end": text}))
            draft.rename(self._path)
        except OSError as error:
            log.warning(f"the end of a source's batch cannot be kept for the sink: %s. {_SEE}", error)
            return
        self._noted = text

    def forget(self) -> None:
        """The query has ended."""
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
        self._path, self._noted = None, ""


def asked_ends() -> Counter[str] | None:
    """The ends of all living sources of this driver. None: they cannot be kept, as was warned."""
    folder = notes_folder()
    if folder is None:
        return None
    found: Counter[str] = Counter()
    for path in folder.glob(f"{_prefix()}*.source"):
        try:
            kept = json.loads(path.read_text())
        except FileNotFoundError:  # its query has just ended
            continue
        if lives(ProcessIdentity(*kept["process"])):
            found[kept["end"]] += 1
    return found


def _prefix() -> str:
    driver = driver_process()
    return hashlib.sha256(f"{driver.pid}\0{driver.started}\0sources".encode()).hexdigest()[:24] + "-"
