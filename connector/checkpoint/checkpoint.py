"""Spark's checkpoint of a streaming query: the query's id, planned and committed batches; and eoslog's notes.

Layout: `metadata` has {"id": ...}. `offsets/<batch>` has the end offsets of each planned batch, and is
written before its tasks start. `commits/<batch>` is written after the sink's commit has returned. A log file
has a version line; in offsets a line of settings and one line of JSON for each source follow. In version 2,
which is for queries whose sources have names, the JSON comes after `<name>:`. eoslog only reads these files.
Its own notes are files in `eoslog/`, which Spark ignores.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from eoslog.connector.checkpoint.files import Files, files_at
from eoslog.connector.errors import EoslogError
from eoslog.connector.offsets.offsets import (
    Epochs,
    Offsets,
    TakenFrom,
    TopicPartition,
    cluster_from_json,
    epochs_from_json,
    taken_from_json,
)
from eoslog.connector.spark.driver_folder import as_spark_takes

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
    """Named sources were added, removed or renamed under an existing checkpoint."""


@dataclass(frozen=True)
class Planned:
    """A batch in the offset log: its batch id, and the end offsets of each source, as JSON texts.

    `names`: the names of the sources; empty in version 1.
    """

    batch_id: int
    sources: tuple[str, ...]
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, batch_id: int, text: str) -> Self | None:
        """Parse a file of the offset log. None: its format is unknown."""
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
        """A short digest of the source offsets. A replay of the batch has the same one."""
        return hashlib.sha256("\n".join((*self.names, *self.sources)).encode()).hexdigest()[:16]

    def clusters(self) -> set[str]:
        """The ids of the clusters of the sources' offsets, as far as the offsets name them."""
        found = (cluster_from_json(topics) for text in self.sources for topics in [_topics(text)])
        return {cluster for cluster in found if cluster is not None}

    def topic_offsets(self) -> Offsets:
        """End offsets of every source that reads topics. If two sources read the same partition, the lower
        offset counts, so that a query that starts from it misses no record of either."""
        ends: Offsets = {}
        for text in self.sources:
            for place, offset in _topic_offsets(text):
                ends[place] = min(offset, ends.get(place, offset))
        return ends

    def taken(self) -> frozenset[TakenFrom]:
        """Which sinks have committed the offsets at which the sources begin; only in a first batch."""
        return frozenset(one for text in self.sources for one in taken_from_json(_topics(text)))

    def epochs(self) -> Epochs:
        """Leader epochs of the end offsets, as far as the sources name them."""
        ends, epochs = self.topic_offsets(), dict[TopicPartition, int]()
        for text in self.sources:
            known = epochs_from_json(_topics(text))
            epochs |= {tp: known[tp] for tp, at in _topic_offsets(text) if tp in known and ends[tp] == at}
        return epochs


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

    def query_id(self) -> str:
        """The query's id, which stays the same across restarts."""
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
        """When Spark noted a batch as done, in seconds since 1970. None: the file system does not know."""
        with self._reading(f"commits/{batch_id}") as name:
            return self._files.modified(name)

    def noted(self, name: str) -> str | None:
        """One of eoslog's notes. None: there is none."""
        return self._read(f"{_NOTES}/{name}") if self._is_there(f"{_NOTES}/{name}") else None

    def note(self, name: str, text: str) -> None:
        """Write one of eoslog's notes, all of it or nothing."""
        try:
            self._files.put(_NOTES, name, text.encode())
        except OSError as error:
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
        """Raise SourcesChanged unless the batch has the same sources as the batch before.

        A new source's beginning would have to be compared with the sink that committed its group's offsets.
        """
        before = self.planned_if_kept(planned.batch_id - 1) if planned.names else None
        if before is not None and set(before.names) != set(planned.names):
            raise SourcesChanged(
                f"checkpoint {self.location}: batch {planned.batch_id} has the sources "
                f"{sorted(planned.names)}, the batch before had {sorted(before.names)}: eoslog does not "
                "support adding, removing or renaming sources under an existing checkpoint. Nothing was "
                "written. Start with a new checkpoint: with startingOffsets=committed and the former "
                "kafka.group.id and transactional.id in sources and sink; or, if no group was given, with "
                f"each source's line of offsets/{before.batch_id} as its startingOffsets"
            )

    def planned_if_kept(self, batch_id: int) -> Planned | None:
        """A batch of the offset log. None: Spark has removed it (spark.sql.streaming.minBatchesToRetain)."""
        return self.planned(batch_id) if self._is_there(f"offsets/{batch_id}") else None

    def _is_there(self, name: str) -> bool:
        with self._reading(name):
            return self._files.is_there(name)

    def _newest(self, log: str) -> int | None:
        with self._reading(log):
            found = self._files.names(log)
        return max((int(name) for name in found if name.isdecimal()), default=None)

    def _read(self, name: str) -> str:
        with self._reading(name):
            return self._files.read(name).decode()

    @contextmanager
    def _reading(self, name: str) -> Iterator[str]:
        try:
            yield name
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointUnreadable(self.location, f"{name}: {error}") from error


def _topic_offsets(text: str) -> list[tuple[tuple[str, int], int]]:
    """`{"topic": {"0": 17}}` as pairs; empty for the offsets of other kinds of sources."""
    return [
        ((topic, int(p)), offset) for topic, parts in _topics(text).items() for p, offset in parts.items()
    ]


def _topics(text: str) -> dict[str, dict[str, int]]:
    """A source's offsets by topic and partition; empty for other kinds of sources."""
    try:
        topics: Any = json.loads(text)
    except ValueError:  # "-": the source had no offset yet; or another kind of source's own format
        return {}
    if not isinstance(topics, dict) or not all(_is_topic(parts) for parts in topics.values()):
        return {}
    return topics


def _is_topic(parts: Any) -> bool:
    return isinstance(parts, dict) and all(
        number.isdecimal() and isinstance(offset, int) and offset >= 0 for number, offset in parts.items()
    )
