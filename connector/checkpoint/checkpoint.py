"""Spark's checkpoint of a streaming query: the query's id, planned and committed batches; and eoslog's notes.

Layout: `metadata` has {"id": ...}. `offsets/<batch>` has the end offsets of each planned batch, and is
written before its tasks start. `commits/<batch>` is written after the sink's commit has returned.
spark_logs.py has their formats. A query only reads them; `eoslog checkpoint` may change them. Notes of
eoslog's own are in `eoslog/`, which Spark ignores.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from eoslog.connector.checkpoint.files import ChangedFiles, Files, files_at
from eoslog.connector.checkpoint.spark_logs import FormatError, Planned, check_commit, entries_of, paths_of
from eoslog.connector.spark.driver_folder import as_spark_takes
from eoslog.errors import EoslogError

NOTES = "eoslog"
"""The folder of eoslog's notes."""
_GIVE = "give checkpointLocation as a path or URI that Spark's driver and its Python processes can read"
RESTORE = "if the file is damaged, restore it from a copy of the checkpoint"
"""What to do about a file that cannot be understood."""


class CheckpointUnreadable(EoslogError):
    """The checkpoint cannot be read from this process; the message says where and why."""

    def __init__(self, location: str, why: object, advice: str = _GIVE) -> None:
        super().__init__(f"checkpoint {location}: {why}; {advice}")
        self.location, self.why, self.advice = location, why, advice

    def __reduce__(self) -> tuple[type["CheckpointUnreadable"], tuple[str, str, str]]:
        return type(self), (self.location, str(self.why), self.advice)


class Checkpoint:
    """One query's checkpoint directory. Every method raises CheckpointUnreadable."""

    def __init__(self, files: Files, location: str) -> None:
        self._files, self.location = files, location

    @classmethod
    def at(cls, location: str) -> Self:
        """The checkpoint at a path or URI. Hadoop's form `file:/path` is supported."""
        location = as_spark_takes(location)
        try:
            return cls(files_at(location), location)
        except OSError as error:
            raise CheckpointUnreadable(location, error) from error

    def changed(self, changes: Mapping[str, str | None]) -> Self:
        """The checkpoint as it will be when these files have these texts; None: a file goes."""
        data = {name: None if text is None else text.encode() for name, text in changes.items()}
        return type(self)(ChangedFiles(self._files, data), self.location)

    def query_id(self) -> str:
        """The query's id, which stays the same across restarts."""
        try:
            text = self._read("metadata")
        except CheckpointUnreadable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise CheckpointUnreadable(
                    self.location, "no query has a checkpoint here (no metadata)"
                ) from error
            raise
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnreadable(self.location, f"metadata is {text!r}: {error}", RESTORE) from error

    def newest_planned(self) -> Planned | None:
        """The newest batch of the offset log: the one that is running or about to run."""
        newest = self._newest("offsets")
        return None if newest is None else self.planned(newest)

    def newest_completed(self) -> int | None:
        """The newest batch of the commit log."""
        return self._newest("commits")

    def completed_at(self, batch_id: int) -> float | None:
        """When Spark noted a batch as done, in seconds since 1970; if that note is lost, when it planned the
        next one. None: the file system does not know."""
        is_noted = self.has_completed(batch_id)
        with self._reading(f"commits/{batch_id}" if is_noted else f"offsets/{batch_id + 1}") as name:
            return self._files.modified(name)

    def noted(self, name: str) -> str | None:
        """One of eoslog's notes. None: there is none."""
        return self._read(f"{NOTES}/{name}") if self._is_there(f"{NOTES}/{name}") else None

    def note(self, name: str, text: str, *, durable: bool = True) -> None:
        """Write one of eoslog's notes, all of it or nothing. `durable`: it outlives a power cut."""
        try:
            self._files.put(NOTES, name, text.encode(), durable=durable)
        except OSError as error:
            raise CheckpointUnreadable(self.location, f"{NOTES}/{name} cannot be written: {error}") from error

    def forget(self, name: str) -> None:
        """Remove one of eoslog's notes, if it is there."""
        try:
            self._files.remove(f"{NOTES}/{name}")
        except OSError as error:
            raise CheckpointUnreadable(self.location, f"{NOTES}/{name} cannot be removed: {error}") from error

    def notes(self) -> list[str]:
        """The names of eoslog's notes, in order."""
        with self._reading(NOTES):
            return sorted(self._files.names(NOTES))

    def batches(self, log: str) -> list[int]:
        """The batches of a log, `offsets` or `commits`, in order."""
        with self._reading(log):
            return sorted(int(name) for name in self._files.names(log) if name.isdecimal())

    def names(self, folder: str) -> list[str]:
        """The names of all files and folders in a folder; empty if there is no such folder."""
        with self._reading(folder):
            return self._files.names(folder)

    def text(self, name: str) -> str | None:
        """A file's text. None: there is no such file."""
        return self._read(name) if self._is_there(name) else None

    def files(self) -> list[str]:
        """The names of all files, those in folders too, in order."""
        with self._reading("."):
            return self._files.walk()

    def content(self, name: str) -> bytes:
        """A file's content."""
        with self._reading(name):
            return self._files.read(name)

    def put(self, name: str, data: bytes) -> None:
        """Write a file, all of it or nothing."""
        folder, _, file = name.rpartition("/")
        try:
            self._files.put(folder, file, data)
        except OSError as error:
            raise CheckpointUnreadable(self.location, f"{name} cannot be written: {error}") from error

    def change(self, log: str, batch_id: int, text: str | None) -> None:
        """Write a batch of a log, all of it or nothing; None removes it. Hadoop's checksum of the file, which
        is on local disks alone, is removed first: Spark reads a file without one."""
        name = f"{log}/{batch_id}"
        try:
            self._files.remove(f"{log}/.{batch_id}.crc")
            if text is None:
                self._files.remove(name)
            else:
                self._files.put(log, str(batch_id), text.encode())
        except OSError as error:
            raise CheckpointUnreadable(self.location, f"{name} cannot be changed: {error}") from error

    def sync_planned(self, batch_id: int) -> None:
        """Have what Spark has written of a batch's plan outlive a power cut of the driver's machine: its
        entry in the offset log, the newest ones of the sources' logs, and, with batch 0, the query's id.

        Spark only hands these files to the operating system. A plan that is lost after its decision would be
        made anew, with other rows.
        """
        names = [f"offsets/{batch_id}", *(["metadata"] if batch_id == 0 else [])]
        with self._reading(names[0]):
            self._files.sync([*names, *self._newest_of_sources()])

    def sync_completed(self) -> None:
        """Have Spark's newest note that a batch is done outlive a power cut of the driver's machine."""
        newest = [f"commits/{batch}" for batch in self.batches("commits")[-1:]]
        with self._reading("commits"):
            self._files.sync(newest)

    def _newest_of_sources(self) -> Iterator[str]:
        """The newest entry of each source's log, `sources/<source>/<number>`, which may be `.compact`."""
        for source in self._files.names("sources"):
            entries = [n for n in self._files.names(f"sources/{source}") if n.partition(".")[0].isdecimal()]
            if entries:
                newest = max(entries, key=lambda name: int(name.partition(".")[0]))
                yield f"sources/{source}/{newest}"

    def planned(self, batch_id: int) -> Planned:
        """A batch of the offset log, with what it reads of file sources' own logs."""
        planned = self._parsed(batch_id)
        logs = planned.file_logs()
        if not logs or (batch_id > 0 and not self._is_there(f"offsets/{batch_id - 1}")):
            return planned
        before = self._parsed(batch_id - 1).file_logs() if batch_id > 0 else {}
        found = {
            f"sources/{name}/{at}": lines
            for name, end in logs.items()
            for at, lines in self._entries(name, before.get(name, -1) + 1, end)
        }
        return replace(planned, entries=found)

    def _parsed(self, batch_id: int) -> Planned:
        with self._parsing(f"offsets/{batch_id}") as text:
            return Planned.parse(batch_id, text)

    def _entries(self, source: str, first: int, last: int) -> Iterator[tuple[int, list[str]]]:
        """The lines of a file source's log, by its batches. A compacted file has those of all before it, too.
        What is missing is left out: Spark does not run the batch then."""
        folder = f"sources/{source}"
        names = self.names(folder) if first <= last else []
        compact = sorted(int(n.removesuffix(".compact")) for n in names if n.endswith(".compact"))
        for at in range(first, last + 1):
            files = [str(at)] if str(at) in names else [f"{n}.compact" for n in compact if n >= at]
            if files:
                yield at, entries_of(self._read(f"{folder}/{files[0]}"), at)

    def files_read(self, source: str, last: int, first: int = 0) -> set[str]:
        """The files in a file source's log, from its entry `first` to its entry `last`."""
        names = self.names(f"sources/{source}")
        compact = max((int(n.removesuffix(".compact")) for n in names if n.endswith(".compact")), default=-1)
        wanted = [f"{compact}.compact"] if compact >= first else []
        later = range(max(first, compact + 1), last + 1)
        wanted += [str(number) for number in later if str(number) in names]
        return {
            path
            for name in wanted
            for path, number in paths_of(self._read(f"sources/{source}/{name}"))
            if first <= number <= last
        }

    def check_completed(self, batch_id: int) -> None:
        """Check that a batch of the commit log has a known format."""
        with self._parsing(f"commits/{batch_id}") as text:
            check_commit(text)

    def planned_if_kept(self, batch_id: int) -> Planned | None:
        """A batch of the offset log. None: Spark has removed it (spark.sql.streaming.minBatchesToRetain)."""
        return self.planned(batch_id) if self._is_there(f"offsets/{batch_id}") else None

    def has_completed(self, batch_id: int) -> bool:
        """Whether Spark has noted a batch as done. Raises CheckpointUnreadable."""
        return self._is_there(f"commits/{batch_id}")

    def _is_there(self, name: str) -> bool:
        with self._reading(name):
            return self._files.is_there(name)

    def _newest(self, log: str) -> int | None:
        return max(self.batches(log), default=None)

    def _read(self, name: str) -> str:
        with self._reading(name):
            return self._files.read(name).decode()

    @contextmanager
    def _parsing(self, name: str) -> Iterator[str]:
        text = self._read(name)
        try:
            yield text
        except FormatError as error:
            raise CheckpointUnreadable(self.location, f"{name}: {error}", RESTORE) from error

    @contextmanager
    def _reading(self, name: str) -> Iterator[str]:
        try:
            yield name
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointUnreadable(self.location, f"{name}: {error}") from error
