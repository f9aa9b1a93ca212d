"""`eoslog backup`: copies a broker's data directory so that a broker can start with the copy."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import click

from eoslog.broker.log import files
from eoslog.broker.log.backup import ANSWER, DIRECTORY, UNUSED
from eoslog.broker.log.backup import LOCK as WANTED
from eoslog.broker.log.data_dir import DataDirError
from eoslog.broker.log.files import for_each_parallel
from eoslog.broker.log.reserve import RESERVE
from eoslog.broker.ports import OsFileSystem
from eoslog.commands.log_files import Report, whole
from eoslog.commands.log_places import LOCK, DataDirectory, partition_of, size_of, verify_all
from eoslog.commands.output import show_json, shown

# -- what is copied --------------------------------------------------------------------------------
# Which files a backup copies, and how many bytes of each: a data directory as it was at one instant.
#
# A running broker puts these files into `.backup` (see `broker.log.backup`). Without a running broker they
# are all files of the directory, which is locked during the copy.


ANSWER_WITHIN = 60.0
"""Seconds. A broker looks twice a second, and links the files of 10,000 partitions in a few seconds."""
_LOOK_EVERY = 0.05


class NoBackup(Exception):
    """No copy can be made; the text says why, and what to do."""


class SourceFile(NamedTuple):
    """A file to copy."""

    path: str
    name: str  # in the copy, with its directory
    size: int  # bytes of it to copy


class BackupSource(NamedTuple):
    """The files to copy, and the instant they show."""

    directory: str
    now_ms: int
    """The instant; milliseconds since the epoch."""
    files: list[SourceFile]

    @property
    def size(self) -> int:
        """Bytes to copy."""
        return sum(file.size for file in self.files)


@contextmanager
def source(directory: str) -> Iterator[BackupSource]:
    """The files of the data directory. They can be copied within the context.

    Raises NoBackup, OSError.
    """
    if not DataDirectory(directory).ours:
        raise NoBackup(f"{directory} is no data directory of eoslog: it has no {files.LIFE_EPOCH}")
    try:
        lock = OsFileSystem().lock(os.path.join(directory, LOCK))
    except BlockingIOError:
        with _asked(directory) as found:
            yield found
        return
    try:
        yield BackupSource(directory, time.time_ns() // 1_000_000, list(_files(directory, {}, running=False)))
    finally:
        lock.close()


@contextmanager
def _asked(directory: str) -> Iterator[BackupSource]:
    """The files as the running broker provides them."""
    place = os.path.join(directory, DIRECTORY)
    made = tempfile.mkdtemp(prefix=UNUSED, dir=directory)
    lock = OsFileSystem().lock(os.path.join(made, WANTED))
    try:
        try:
            os.rename(made, place)
        except OSError as error:
            shutil.rmtree(made)
            raise NoBackup(
                f"another backup of {directory} is being made ({place}): wait for its end"
            ) from error
        try:
            now_ms, sizes = _answer(place)
            found = list(_files(place, sizes, running=True))
            names = {file.name for file in found}
            for log in (os.path.join(one, each) for one, known in sizes.items() for each in known):
                if log.endswith(files.LOG) and log not in names:
                    raise NoBackup(f"the broker left out {log}, which it writes to")
            yield BackupSource(directory, now_ms, found)
        finally:
            os.rename(place, made)  # from now on the broker finds no request
            shutil.rmtree(made)
    finally:
        lock.close()


def _answer(place: str) -> tuple[int, dict[str, dict[str, int]]]:
    """The instant, and by partition the sizes of the files that are being written to."""
    deadline = time.monotonic() + ANSWER_WITHIN
    while time.monotonic() < deadline:
        try:
            answer = json.loads(whole(os.path.join(place, ANSWER)))
        except FileNotFoundError:
            time.sleep(_LOOK_EVERY)
            continue
        if "error" in answer:
            raise NoBackup(f"the broker says: {answer['error']}")
        return answer["now_ms"], answer["sizes"]
    raise NoBackup(
        f"the broker did not answer within {ANSWER_WITHIN:.0f} s: it hangs, or is older than this command. "
        "Stop it, then try again"
    )


def _files(place: str, sizes: Mapping[str, Mapping[str, int]], *, running: bool) -> Iterator[SourceFile]:
    """The files to copy. `sizes`: by partition, of the files that a broker writes to."""
    for name in sorted(os.listdir(place)):
        path = os.path.join(place, name)
        if not os.path.isdir(path):
            if name not in (LOCK, WANTED, ANSWER, RESERVE):
                yield SourceFile(path, name, os.path.getsize(path))
        elif name in sizes if running else partition_of(name) is not None:
            known = sizes.get(name, {})
            for each in sorted(os.listdir(path)):
                file = os.path.join(path, each)
                yield SourceFile(file, os.path.join(name, each), known.get(each, os.path.getsize(file)))


# -- the copy --------------------------------------------------------------------------------------
# Copies a backup's files. The copy gets its name only when all of it is durable.


_CHUNK = 8 << 20


def copied(source: BackupSource, to: str, progress: Callable[[int], None]) -> None:
    """Copy all files to the directory `to`, which must be empty or not exist.

    `progress` gets the bytes of each part. Raises NoBackup, OSError; then nothing of the copy is left.
    """
    to = os.path.abspath(to)
    _check(source, to)
    above = os.path.dirname(to)
    os.makedirs(above, exist_ok=True)
    _check_room(source, above)
    made = tempfile.mkdtemp(prefix=f"{os.path.basename(to)}.partial-", dir=above)
    try:
        fs, directories = OsFileSystem(), {made}
        for file in source.files:
            directories.add(os.path.dirname(os.path.join(made, file.name)))
        for directory in sorted(directories):
            fs.make_dir(directory)
        for_each_parallel(partial(_copy, made, _one_at_a_time(progress)), source.files)
        for_each_parallel(fs.sync_dir, sorted(directories, reverse=True))
        os.chmod(made, os.stat(source.directory).st_mode)
        os.rename(made, to)
    except BaseException:
        shutil.rmtree(made)
        raise
    fs.sync_dir(above)


def _check(source: BackupSource, to: str) -> None:
    inside = os.path.realpath(source.directory)
    if os.path.commonpath([inside, os.path.realpath(to)]) == inside:
        raise NoBackup(f"{to} is inside the data directory: give a place outside of it")
    if os.path.exists(to) and (not os.path.isdir(to) or os.listdir(to)):
        raise NoBackup(f"{to} exists already: give a new directory, so that no copy is overwritten")


def _check_room(source: BackupSource, directory: str) -> None:
    _, free = OsFileSystem().space(directory)
    if free < source.size:
        raise NoBackup(f"the copy takes {source.size} bytes, and {directory} has room for {free}")


def _one_at_a_time(progress: Callable[[int], None]) -> Callable[[int], None]:
    """The same, for calls from many threads."""
    lock = threading.Lock()

    def called(size: int) -> None:
        with lock:
            progress(size)

    return called


def _copy(made: str, progress: Callable[[int], None], file: SourceFile) -> None:
    target = os.path.join(made, file.name)
    with open(file.path, "rb", buffering=0) as old, open(target, "xb", buffering=0) as new:
        left = file.size
        while left:
            part = old.read(min(_CHUNK, left))
            if not part:
                raise NoBackup(f"{file.path} has {left} bytes less than the broker reported")
            view = memoryview(part)
            while view:
                view = view[new.write(view) :]
            left -= len(part)
            progress(len(part))
        shutil.copymode(file.path, target)
        os.fsync(new.fileno())


# -- the command -----------------------------------------------------------------------------------


@click.command()
@click.argument("data", metavar="DATA", type=click.Path(exists=True, file_okay=False))
@click.argument("to", metavar="TO", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(data: str, to: str, as_json: bool) -> None:
    """Copy the data directory DATA to TO, which must not exist yet, and verify the copy.

    The broker may be running: the copy is what a power failure at one instant would have left, and a broker
    that starts with it continues from there. Exit status 1 if there is no copy, or something wrong in it.
    """
    report = Report()
    try:
        with shown(sizes=True, quiet=as_json) as watch:
            with source(data) as found:
                watch.begin("copying", found.size)
                copied(found, to, watch.advance)
            watch.begin("verifying", size_of([to]))
            report.progress = watch.advance
            verify_all([to], report)
    except (NoBackup, DataDirError, OSError) as error:
        raise click.ClickException(str(error)) from error
    instant = datetime.fromtimestamp(found.now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    if as_json:
        findings = [finding.as_json() for finding in report.findings]
        show_json({"as_of": instant, "bytes": found.size, "verified": report.counts, "findings": findings})
    else:
        for finding in report.findings:
            click.echo(f"{finding.path}, position {finding.position}: {finding.text}")
        counts = report.counts
        click.echo(
            f"{to}: {counts['partitions']} partitions as of {instant}, {found.size} bytes copied; "
            f"{counts['batches']} batches verified, {len(report.findings)} findings"
        )
    if report.findings:
        raise click.exceptions.Exit(1)
