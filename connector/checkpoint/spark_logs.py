"""The files of Spark's offset log and commit log, in every format that Spark has. Pure.

A file has a version line, then a line of JSON. In the offset log that line has settings, and a line for each
source follows: its end offsets as JSON, or `-` for none yet. Version 1 names no sources: Spark knows them by
their order. In version 2 the offsets come after `<name>:`, in any order. The name is that of
`readStream.name()`, or the source's number if it has none (`spark.sql.streaming.offsetLog.formatVersion=2`).

In the commit log the JSON has the watermark; in version 2 also `stateUniqueIds`, the files of the state
store; in version 3 also `sinkMetadataMap`, the query's sinks by name, of which exactly one is active.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from eoslog.connector.commit.task_reports import DIGESTS
from eoslog.connector.offsets.offsets import (
    SHADOW,
    Epochs,
    Offsets,
    ShadowCut,
    SourcePosition,
    TakenFrom,
    TopicIds,
    began_from_json,
    cluster_from_json,
    epochs_from_json,
    from_json,
    ids_from_json,
    left_from_json,
    position_from_json,
    shadow_from_json,
    taken_from_json,
    then_from_json,
    to_json,
)
from eoslog.protocol.topic_partitions import TopicPartition

OFFSET_LOG = ("v1", "v2")
COMMIT_LOG = ("v1", "v2", "v3")
VOID = "-"
"""The end of a source that has none yet."""
_ENTRIES = "entries"


class ReadBy(Enum):
    """What says which rows a source reads up to an end."""

    END = "the end"
    ENTRIES = "the entries of the source's own log, in sources/<source>"
    ROWS = "nothing but the rows: they are counted, and compared by their checksum"


READ_BY: Mapping[frozenset[str], ReadBy] = {
    frozenset({"logOffset"}): ReadBy.ENTRIES,  # files: FileStreamSourceOffset
    frozenset({"offset", "timestamp"}): ReadBy.END,  # rate-micro-batch: RatePerMicroBatchStreamOffset
    # Delta: DeltaSourceOffset; Iceberg: StreamingOffset
    frozenset({"sourceVersion", "reservoirId", "reservoirVersion", "index", "isStartingVersion"}): ReadBy.END,
    frozenset({"version", "snapshot_id", "position", "scan_all_files"}): ReadBy.END,
}
"""By the names in a source's end, which its class in the JVM writes. Kafka's and eoslog's ends say it, too.
All others (socket, rate, other Python sources) do not."""


class FormatError(ValueError):
    """A file of a log has an unknown version or is damaged; the message says which and how."""


@dataclass(frozen=True)
class Planned:
    """A batch in the offset log: its batch id, and the end offsets of each source, as JSON texts.

    `names`: the names of the sources; empty in version 1. `times`: the batch's watermark and time, in ms: the
    settings of its file without those of the session. `entries`: what the batch reads of sources whose ends
    do not name it (READ_BY): the lines of the files of their own logs. None: not known, or there are none.
    """

    batch_id: int
    sources: tuple[str, ...]
    names: tuple[str, ...] = ()
    times: Mapping[str, Any] = field(default_factory=dict, compare=False)
    entries: Mapping[str, Sequence[str]] | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, batch_id: int, text: str) -> Self:
        """Parse a file of the offset log. Raises FormatError."""
        version, settings, sources = _lines(text, OFFSET_LOG)
        times = {name: value for name, value in settings.items() if name not in ("conf", _ENTRIES)}
        entries = settings.get(_ENTRIES)
        if version == "v1":
            lines = tuple(_offsets(line) for line in sources)
            return cls(batch_id, lines, times=times, entries=entries)
        if not sources:
            raise FormatError("it is damaged: it has no sources")
        named = [line.partition(":") for line in sources]
        names = tuple(name for name, _, _ in named)
        odd = [line for line, (name, colon, _) in zip(sources, named, strict=True) if not name or not colon]
        if odd:
            raise FormatError(f"it is damaged: the line {odd[0]!r} names no source")
        if len(set(names)) < len(names):
            raise FormatError(f"it is damaged: it has two lines for a source ({', '.join(sorted(names))})")
        return cls(batch_id, tuple(_offsets(end) for _, _, end in named), names, times, entries)

    @property
    def digest(self) -> str:
        """A short digest of what the batch reads. A replay has the same one. Parts are as in Batch."""
        parts = [_digest((*self.names, *self.sources))]
        if self.entries is not None:
            lines = (line for _, found in sorted(self.entries.items()) for line in sorted(found))
            parts.append(_digest(lines))
        return DIGESTS.join(parts)

    @property
    def identifies_rows(self) -> bool:
        """Whether the ends and `entries` say which rows the batch reads, so that a replay reads the same."""
        kinds = [read_by(end) for end in self.sources]
        return ReadBy.ROWS not in kinds and (self.entries is not None or ReadBy.ENTRIES not in kinds)

    def file_logs(self) -> dict[str, int]:
        """The file sources and how far the batch reads their own logs."""
        ends = self.by_name.items()
        return {name: json.loads(end)["logOffset"] for name, end in ends if read_by(end) is ReadBy.ENTRIES}

    @property
    def ends(self) -> str:
        """The batch's file of the offset log without the session's settings: what it takes to plan the batch
        again. parse() reads it."""
        lines = self.sources
        if self.names:
            lines = tuple(f"{name}:{end}" for name, end in zip(self.names, self.sources, strict=True))
        known = {} if self.entries is None else {_ENTRIES: self.entries}
        times = json.dumps({**self.times, **known}, separators=(",", ":"))
        return "\n".join(("v2" if self.names else "v1", times, *lines))

    @property
    def by_name(self) -> dict[str, str]:
        """The end offsets by name, of the sources that have any. A source of version 1 has its number as its
        name, as Spark has it in version 2 for a source without name."""
        names = self.names or tuple(map(str, range(len(self.sources))))
        return {name: end for name, end in zip(names, self.sources, strict=True) if end != VOID}

    def clusters(self) -> set[str]:
        """The ids of the clusters of the sources' offsets, as far as the offsets name them."""
        found = (cluster_from_json(topics) for text in self.sources for topics in [_topics(text)])
        return {cluster for cluster in found if cluster is not None}

    def on_cluster(self, cluster: str | None) -> Self:
        """The same with those sources alone whose offsets name this cluster."""
        kept = (
            text if cluster and cluster_from_json(_topics(text)) == cluster else VOID for text in self.sources
        )
        return type(self)(self.batch_id, tuple(kept), self.names)

    def without_topics(self) -> list[str]:
        """The names of the sources that read something else than topics."""
        return [name for name, end in self.by_name.items() if not offsets_of(end)]

    def topic_offsets(self) -> Offsets:
        """End offsets of every source that reads topics. If two sources read the same partition, the lower
        offset counts, so that a query that starts from it misses no record of either."""
        return _least(map(offsets_of, self.sources))

    def topic_ids(self) -> TopicIds:
        """The ids of the sources' topics, as far as the offsets name them."""
        return {
            topic: number for text in self.sources for topic, number in ids_from_json(_topics(text)).items()
        }

    def apart(self) -> dict[TopicPartition, dict[str, int]]:
        """Those of each_end() that several sources have read to different ends."""
        return {place: ends for place, ends in self.each_end().items() if len({*ends.values()}) > 1}

    def each_end(self) -> dict[TopicPartition, dict[str, int]]:
        """End offsets by partition, and there by the names of the sources that read it."""
        return _by_place((name, offsets_of(text)) for name, text in self.by_name.items())

    def each_left(self) -> dict[TopicPartition, dict[str, int]]:
        """The same of partitions that a source reads no more: where it goes on if it reads them again."""
        return _by_place(
            (name, dict(left_from_json(_topics(text)).offsets)) for name, text in self.by_name.items()
        )

    def left_ids(self) -> TopicIds:
        """The ids of their topics."""
        return {
            topic: number
            for text in self.sources
            for topic, number in left_from_json(_topics(text)).ids.items()
        }

    def each_beginning(self) -> dict[TopicPartition, dict[str, int]]:
        """The same of where the sources began whose first batch this is, as far as they say it."""
        began = {name: beginning_of(text) for name, text in self.by_name.items() if says_beginning(text)}
        return _by_place(began.items())

    def beginnings(self) -> Offsets:
        """Where the sources began whose first batch this is, put together as topic_offsets(). A source that
        does not say it counts with its end."""
        return _least(map(beginning_of, self.sources))

    def taken(self) -> frozenset[TakenFrom]:
        """Which sinks have committed the offsets at which the sources begin; only in a source's first
        batch."""
        return frozenset(one for text in self.sources for one in taken_of(text))

    def shadows(self) -> list[ShadowCut]:
        """The decisions of other queries at which the sources' batches end: a shadow has one or more."""
        found = (shadow_from_json(_topics(text)) for text in self.sources if SHADOW in text)
        return [cut for cut in found if cut is not None]

    def thens(self) -> list[tuple[str, ...]]:
        """For each source the ends of the next batches, if they are decided already."""
        return [then_from_json(_topics(text)) for text in self.sources]

    @property
    def leads_to(self) -> Self:
        """The last of the batches that follow and are decided already; this one if there are none."""
        thens = self.thens()
        ends = tuple(then[-1] if then else text for then, text in zip(thens, self.sources, strict=True))
        return type(self)(self.batch_id + max(map(len, thens), default=0), ends, self.names)

    def epochs(self) -> Epochs:
        """Leader epochs of the end offsets, as far as the sources name them."""
        ends, epochs = self.topic_offsets(), dict[TopicPartition, int]()
        for text in self.sources:
            known = epochs_from_json(_topics(text))
            epochs |= {tp: known[tp] for tp, at in offsets_of(text).items() if tp in known and ends[tp] == at}
        return epochs


def read_by(end: str) -> ReadBy:
    """What says which rows a source reads up to this end."""
    if end == VOID or _topics(end):
        return ReadBy.END
    try:
        found: Any = json.loads(end)
    except ValueError:
        return ReadBy.ROWS
    if found == {}:
        return ReadBy.END
    if not isinstance(found, dict) or end != json.dumps(found, separators=(",", ":")):
        return ReadBy.ROWS  # PySpark writes the ends of a Python source with blanks: their names are its own
    return READ_BY.get(frozenset(found), ReadBy.ROWS)


def entries_of(text: str, number: int) -> list[str]:
    """The lines of a batch in a file of a file source's log. One that is compacted has the lines of all
    batches, the newest last."""
    _, _, lines = text.partition("\n")
    mark, found = re.compile(rf'"batchId":\s*{number}\b'), list[str]()
    for line in reversed(lines.splitlines()):
        if mark.search(line):
            found.append(line)
        elif found:
            break
    return found[::-1]


def paths_of(text: str) -> list[tuple[str, int]]:
    """The files in a file of a file source's log, each with the number of its entry."""
    lines = map(json.loads, text.splitlines()[1:])
    return [(line["path"], line["batchId"]) for line in lines]


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def with_ends(text: str, ends: Sequence[str]) -> str:
    """A file of the offset log with other end offsets, one JSON text for each source, in the file's order."""
    lines = text.splitlines()
    version, sources = lines[0].strip(), lines[2:]
    names = [line.partition(":")[0] + ":" if version != "v1" else "" for line in sources]
    return "\n".join([*lines[:2], *(name + end for name, end in zip(names, ends, strict=True))])


def check_commit(text: str) -> None:
    """Check a file of the commit log. Raises FormatError."""
    version, values, _ = _lines(text, COMMIT_LOG)
    sinks = values.get("sinkMetadataMap") if version == "v3" else None
    if version == "v3":
        known = isinstance(sinks, dict) and all(isinstance(sink, dict) for sink in sinks.values())
        active = [name for name, sink in sinks.items() if sink.get("isActive")] if known and sinks else []
        if len(active) != 1:
            raise FormatError(f"it is damaged: {len(active)} of its sinks are active, and one has to be")


def offsets_of(text: str) -> Offsets:
    """A source's offsets; empty for other kinds of sources than Kafka's."""
    return from_json(_topics(text))


def reading_only(text: str, read: Collection[TopicPartition], rest: Offsets) -> str:
    """A source's offsets for the partitions `read` alone; `rest`: those of them that it does not have. Of its
    other partitions it says where it left them."""
    stood = source_position(text)
    offsets = {tp: at for tp, at in stood.offsets.items() if tp in read} | rest
    if offsets == stood.offsets:
        return text
    left = stood.leaving({tp for tp in stood.offsets if tp not in read}) if is_eoslog(text) else stood.left
    left = left.only({tp for tp in left.offsets if tp not in offsets})
    return json.dumps(to_json(offsets, stood.ids, stood.cluster, stood.epochs, left=left))


def beginning_of(text: str) -> Offsets:
    """Where a source began whose first batch ends here. The end itself if it does not say that: an older
    eoslog or Spark's Kafka source has stored it."""
    return offsets_of(text) | (began_from_json(_topics(text)) or {})


def says_beginning(text: str) -> bool:
    """Whether a source's end says where it began."""
    return began_from_json(_topics(text)) is not None


def taken_of(text: str) -> frozenset[TakenFrom]:
    """Which sinks have committed the offsets at which the source begins; only in its first batch."""
    return taken_from_json(_topics(text))


def source_position(text: str) -> SourcePosition:
    """A source's offsets with the ids that identify their log; empty for other kinds of sources."""
    return position_from_json(_topics(text))


def is_eoslog(text: str) -> bool:
    """Whether eoslog's source has made the offsets: those of Spark's Kafka source name neither topic ids nor
    the cluster."""
    topics = _topics(text)
    return bool(ids_from_json(topics)) or cluster_from_json(topics) is not None


def _by_place(found: Iterable[tuple[str, Offsets]]) -> dict[TopicPartition, dict[str, int]]:
    places: dict[TopicPartition, dict[str, int]] = {}
    for name, place, offset in ((name, *item) for name, one in found for item in one.items()):
        places.setdefault(place, {})[name] = offset
    return places


def _least(found: Iterable[Offsets]) -> Offsets:
    """The offsets of all sources; the lower one if two read the same partition."""
    together: Offsets = {}
    for place, offset in (item for one in found for item in one.items()):
        together[place] = min(offset, together.get(place, offset))
    return together


def _lines(text: str, known: tuple[str, ...]) -> tuple[str, dict[str, Any], list[str]]:
    """The version, the second line's JSON, and the lines after it."""
    version, *lines = text.splitlines() or [""]
    version = version.strip()
    if version not in known:
        later = version[:1] == "v" and version[1:].isdecimal()
        what = "a later Spark has written it: use an eoslog that knows it" if later else "it is damaged"
        raise FormatError(f"its version is {version[:20]!r}, and eoslog knows {', '.join(known)}: {what}")
    if not lines and known is OFFSET_LOG:
        raise FormatError("it is damaged: it ends after its version")
    settings = lines[0].strip() if lines else ""
    if not settings and version == "v1":
        return version, {}, lines[1:]
    try:
        values = json.loads(settings)
    except ValueError as error:
        raise FormatError(f"it is damaged: its settings {settings[:40]!r} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise FormatError(f"it is damaged: its settings are {settings[:40]!r}")
    return version, values, lines[1:]


def _offsets(text: str) -> str:
    """The text, if it is no torn JSON. Raises FormatError."""
    if text.startswith("{"):
        try:
            json.loads(text)
        except ValueError as error:
            raise FormatError(f"it is damaged: the offsets {text[:40]!r} cannot be read: {error}") from error
    return text


def _topics(text: str) -> dict[str, dict[str, int]]:
    """A source's offsets by topic and partition; empty for other kinds of sources."""
    try:
        topics: Any = json.loads(text)
    except ValueError:  # VOID: the source had no offset yet; or another kind of source's own format
        return {}
    if not isinstance(topics, dict) or not all(_is_topic(parts) for parts in topics.values()):
        return {}
    return topics


def _is_topic(parts: Any) -> bool:
    return isinstance(parts, dict) and all(
        number.isdecimal() and isinstance(offset, int) and offset >= 0 for number, offset in parts.items()
    )
