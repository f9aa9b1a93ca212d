"""Repairs what is made of the logs: indexes, snapshots, two of the checkpoints. The logs stay as they are, so
nothing can be lost by it.

Each change is durable before the next, and all or nothing, whatever cuts it short.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from eoslog.broker.log.opening.data_dir import DataDirError
from eoslog.broker.log.segment import files
from eoslog.broker.ports.ports import FileSystem, OsFileSystem
from eoslog.commands.log_places import LOCK, DataDirectory, data_directory_of
from eoslog.commands.log_report import Finding, Report


@contextmanager
def locked(paths: Iterable[str]) -> Iterator[None]:
    """Hold the locks of the data directories that paths are in, as a broker does.

    Raises DataDirError where a broker runs, or for what is no data directory of eoslog; OSError.
    """
    with ExitStack() as held:
        for path in sorted({os.path.realpath(data_directory_of(path)) for path in paths}):
            if not DataDirectory(path).ours:
                raise DataDirError(
                    f"{path} is no data directory of eoslog: --repair repairs these, and what is in them. "
                    "Nothing was changed"
                )
            try:
                held.callback(OsFileSystem().lock(os.path.join(path, LOCK)).close)
            except BlockingIOError:
                raise DataDirError(
                    f"data directory {path} is locked: a broker is running on it. Stop it, then repair. "
                    "Nothing was changed"
                ) from None
        yield


def repair(report: Report) -> None:
    """Repair what can be repaired of what was found. The directories are locked. Raises OSError."""
    fs, done = OsFileSystem(), set[str]()
    for number, finding in enumerate(report.findings):
        if finding.fix is not None:
            if finding.path not in done:
                _fix(fs, finding.path, finding.fix.content)
                done.add(finding.path)
            report.findings[number] = replace(finding, repaired=True)


def _fix(fs: FileSystem, path: str, content: bytes | None) -> None:
    if content is not None:
        files.write_whole(fs, path, content)
    elif fs.exists(path):
        fs.remove(path)
        fs.sync_dir(os.path.dirname(path))


def told(finding: Finding) -> str:
    """What is said of a finding's repair, behind its text; "" if it cannot be repaired."""
    words = {
        "remove": "--repair removes the file",
        "rewrite": "--repair writes the file anew from the log",
        "removed": "repaired: the file was removed",
        "rewritten": "repaired: the file was written anew from the log",
    }
    return f" ({words[finding.repair]})" if finding.repair else ""
