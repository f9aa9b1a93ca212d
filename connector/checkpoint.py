"""Spark's checkpoint of a streaming query: the query's id, planned and committed batches; and notes of ours.

Layout: `metadata` holds {"id": ...}; `offsets/<batch>` the end offsets of each planned batch, written
before its tasks start; `commits/<batch>` is written after the sink's commit has returned. A log file
is a version line, then in offsets a line of settings and one line of JSON for each source; in version 2, of
queries whose sources have names, that stands behind `<name>:`. All of that is read only; notes of ours are
files in `eoslog/`, which Spark does not look at.
Files are read through pyarrow.fs: local paths and the file systems that Arrow knows by URI.
"""

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from typing import Any, Self

from pyarrow import ArrowException, fs

from eoslog.connector.errors import EoslogError
from eoslog.connector.offsets import (
    Epochs,
    Offsets,
    TakenFrom,
    TopicPartition,
    cluster_from_json,
    epochs_from_json,
    taken_from_json,
)

_NOTES = "eoslog"


class CheckpointUnreadable(EoslogError):
    """The checkpoint cannot be read from this process; the message says where and why."""

    def __init__(self, location: str, why: object) -> None:
        super().__init__(
            f"checkpoint {location}: {why}; give checkpointLocation as a path or URI that Spark's driver and "
            "its Python processes can read"
        )
        self.location, self.why = location, why

    def __reduce__(self) -> tuple[type["CheckpointUnreadable"], tuple[str, str]]:
        return type(self), (self.location, str(self.why))


class SourcesChanged(EoslogError):
    """Named sources were added, removed or renamed under a living checkpoint."""


@dataclass(frozen=True)
class Planned:
    """A batch as the offset log has it: its number, and the end offsets of each source, as JSON texts.

    `names`: of the sources; none in version 1.
    """

    batch_id: int
    sources: tuple[str, ...]
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, batch_id: int, text: str) -> Self | None:
        """A file of the offset log; None: its format is not understood."""
        version, *lines = text.splitlines() or [""]
        sources = lines[1:]
        if version == "v1" and lines:
            return cls(batch_id, tuple(sources))
        if version == "v2" and sources and all(":" in line for line in sources):
            named = [line.split(":", 1) for line in sources]
            return cls(batch_id, tuple(end for _, end in named), tuple(name for name, _ in named))
        return None

    @property
    def digest(self) -> str:
        """Short digest of the source offsets: the same for a replay of the batch."""
        return hashlib.sha256("\n".join((*self.names, *self.sources)).encode()).hexdigest()[:16]

    def clusters(self) -> set[str]:
        """Ids of the clusters that the sources' offsets are of, as far as they tell."""
        found = (cluster_from_json(topics) for text in self.sources for topics in [_topics(text)])
        return {cluster for cluster in found if cluster is not None}

    def topic_offsets(self) -> Offsets:
        """End offsets of every source that reads topics. Where two sources read the same partition, the
        lower one counts, so that nobody who starts from it misses a record of either."""
        ends: Offsets = {}
        for text in self.sources:
            for place, offset in _topic_offsets(text):
                ends[place] = min(offset, ends.get(place, offset))
        return ends

    def taken(self) -> frozenset[TakenFrom]:
        """From whom the sources have taken the offsets at which they begin, in a first batch."""
        return frozenset(one for text in self.sources for one in taken_from_json(_topics(text)))

    def epochs(self) -> Epochs:
        """Leader epochs of those offsets, as far as the sources tell them."""
        ends, epochs = self.topic_offsets(), dict[TopicPartition, int]()
        for text in self.sources:
            known = epochs_from_json(_topics(text))
            epochs |= {tp: known[tp] for tp, at in _topic_offsets(text) if tp in known and ends[tp] == at}
        return epochs


class Checkpoint:
    """One query's checkpoint directory. Every method raises CheckpointUnreadable."""

    def __init__(self, files: fs.FileSystem, root: str, location: str) -> None:
        self._files, self._root, self.location = files, root.rstrip("/"), location

    @classmethod
    def at(cls, location: str) -> Self:
        """The checkpoint at a path or URI; `file:/path`, as Hadoop writes it, is understood."""
        try:
            if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:", location):
                files, root = fs.FileSystem.from_uri(re.sub(r"^file:/+", "file:///", location))
            else:
                files, root = fs.LocalFileSystem(), location
        except (OSError, ValueError, ArrowException) as error:
            raise CheckpointUnreadable(location, error) from error
        return cls(files, root, location)

    def query_id(self) -> str:
        """The id that the query keeps over restarts."""
        text = self._read("metadata")
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnreadable(self.location, f"metadata is {text!r}: {error}") from error

    def newest_planned(self) -> Planned | None:
        """The newest batch of the offset log: the one that is running or about to run."""
        newest = self._newest("offsets")
        return None if newest is None else self.planned(newest)

    def newest_completed(self) -> int | None:
        """The newest batch of the commit log."""
        return self._newest("commits")

    def completed_at(self, batch_id: int) -> float | None:
        """When Spark noted a batch as done, in seconds since 1970; None where the file system does not
        tell."""
        info = self._info(f"commits/{batch_id}")
        return None if info.mtime_ns is None else info.mtime_ns / 1e9

    def noted(self, name: str) -> str | None:
        """A note of ours; None: there is none."""
        return (
            None
            if self._info(f"{_NOTES}/{name}").type is fs.FileType.NotFound
            else self._read(f"{_NOTES}/{name}")
        )

    def note(self, name: str, text: str) -> None:
        """Write a note of ours, all of it or nothing."""
        folder = f"{self._root}/{_NOTES}"
        draft = f"{folder}/.{name}.{uuid.uuid4().hex}"
        try:
            self._files.create_dir(folder)
            with self._files.open_output_stream(draft) as stream:
                stream.write(text.encode())
            self._files.move(draft, f"{folder}/{name}")
        except (OSError, ArrowException) as error:
            raise CheckpointUnreadable(
                self.location, f"{_NOTES}/{name} cannot be written: {error}"
            ) from error

    def planned(self, batch_id: int) -> Planned:
        """A batch of the offset log."""
        text = self._read(f"offsets/{batch_id}")
        planned = Planned.parse(batch_id, text)
        if planned is None:
            raise CheckpointUnreadable(
                self.location,
                f"offsets/{batch_id} begins with {text[:20]!r} and has {len(text.splitlines())} lines: that "
                "is neither version 1 nor 2 of Spark's offset log",
            )
        return planned

    def check_sources(self, planned: Planned) -> None:
        """A batch reads the sources of the batch before. Raises SourcesChanged.

        Where a new source begins would have to be compared with what its group's offsets were committed by.
        """
        before = self.planned_if_kept(planned.batch_id - 1) if planned.names else None
        if before is not None and set(before.names) != set(planned.names):
            raise SourcesChanged(
                f"checkpoint {self.location}: batch {planned.batch_id} has the sources "
                f"{sorted(planned.names)}, the batch before had {sorted(before.names)}: eoslog does not "
                "understand sources that come, go or get other names under a living checkpoint. Nothing was "
                "written. Start with a new checkpoint: with startingOffsets=committed and the kafka.group.id "
                "and transactional.id of before in sources and sink; or, if no group was given, with each "
                f"source's line of offsets/{before.batch_id} as its startingOffsets"
            )

    def planned_if_kept(self, batch_id: int) -> Planned | None:
        """The same; None where Spark has removed it by now (spark.sql.streaming.minBatchesToRetain)."""
        gone = self._info(f"offsets/{batch_id}").type is fs.FileType.NotFound
        return None if gone else self.planned(batch_id)

    def _info(self, name: str) -> fs.FileInfo:
        try:
            (info,) = self._files.get_file_info([f"{self._root}/{name}"])
        except (OSError, ArrowException) as error:
            raise CheckpointUnreadable(self.location, f"{name}: {error}") from error
        return info

    def _newest(self, log: str) -> int | None:
        try:
            found = self._files.get_file_info(fs.FileSelector(f"{self._root}/{log}", allow_not_found=True))
        except (OSError, ArrowException) as error:
            raise CheckpointUnreadable(self.location, f"{log}: {error}") from error
        return max((int(info.base_name) for info in found if info.base_name.isdecimal()), default=None)

    def _read(self, name: str) -> str:
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                return bytes(stream.read()).decode()
        except (OSError, UnicodeDecodeError, ArrowException) as error:
            raise CheckpointUnreadable(self.location, f"{name}: {error}") from error


def _topic_offsets(text: str) -> list[tuple[tuple[str, int], int]]:
    """`{"topic": {"0": 17}}` as pairs; nothing for the offsets of other kinds of sources."""
    return [
        ((topic, int(p)), offset) for topic, parts in _topics(text).items() for p, offset in parts.items()
    ]


def _topics(text: str) -> dict[str, dict[str, int]]:
    """A source's offsets by topic and partition; empty for other kinds of sources."""
    try:
        topics: Any = json.loads(text)
    except ValueError:  # "-": the source had no offset yet; or a source with a notation of its own
        return {}
    if not isinstance(topics, dict) or not all(_is_topic(parts) for parts in topics.values()):
        return {}
    return topics


def _is_topic(parts: Any) -> bool:
    return isinstance(parts, dict) and all(
        number.isdecimal() and isinstance(offset, int) and offset >= 0 for number, offset in parts.items()
    )
