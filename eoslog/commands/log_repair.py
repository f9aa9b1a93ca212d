"""Repairs files that are derived from the logs: indexes, snapshots, two of the checkpoints.

It never changes a log, so nothing can be lost. Each change is atomic, and durable before the next one.
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
from eoslog.commands.log_report import LogFinding, Report


@contextmanager
def locked(paths: Iterable[str]) -> Iterator[None]:
    """Hold the locks of the paths' data directories, as a broker does.

    Raises DataDirError if a broker is running, or a path is in no data directory of eoslog; OSError.
    """
    with ExitStack() as held:
        for path in sorted({os.path.realpath(data_directory_of(path)) for path in paths}):
            if not DataDirectory(path).ours:
                raise DataDirError(
                    f"{path} is no data directory of eoslog: --repair takes only these, and paths in them. "
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
    """Repair each finding that has a fix. The directories are locked. Raises OSError."""
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


def repair_note(finding: LogFinding) -> str:
    """What --repair does or did about a finding, to print after its text; "" if it cannot be repaired."""
    words = {
        "remove": "--repair removes the file",
        "rewrite": "--repair rewrites the file from the log",
        "removed": "repaired: the file was removed",
        "rewritten": "repaired: the file was rewritten from the log",
    }
    return f" ({words[finding.repair]})" if finding.repair else ""
