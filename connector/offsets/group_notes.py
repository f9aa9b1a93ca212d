"""Which sink committed a group's source offsets: the note that a sink stores with each of them. Pure."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from eoslog.errors.pages import see
from eoslog.protocol.topic_partitions import TopicPartition

_NOTE_LIMIT = 2048
"""Most characters of a note: offset.metadata.max.bytes is 4096 by default; a character may be two units."""


class Note(NamedTuple):
    """What a sink stores with each source offset that it commits to kafka.group.id: whose it is. `decided`:
    a decision was committed with it; at_least_once has none. `apart`: if several sources of the query have
    read the partition to different ends, each one's name and end; the offset is the lowest. `topic`: where
    the rows went, "": each named its own; None: the decision tells it."""

    sink: str
    query: str
    batch: int
    decided: bool = True
    apart: tuple[tuple[str, int], ...] = ()
    topic: str | None = None

    def text(self) -> str:
        """The note as metadata of a committed offset; "" if it would be too long."""
        fields = {"sink": self.sink, "query": self.query, "batch": self.batch}
        fields |= {} if self.decided else {"decided": False}
        fields |= {"apart": dict(self.apart)} if self.apart else {}
        fields |= {} if self.topic is None else {"topic": self.topic}
        said = json.dumps({"eoslog": 1, **fields}, separators=(",", ":"))
        return said if len(said) <= _NOTE_LIMIT else ""


def read_note(metadata: str) -> Note | None:
    """The note in an offset's metadata; None if no sink committed the offset."""
    try:
        found = json.loads(metadata)
        fields = str(found["sink"]), str(found["query"]), int(found["batch"])
        apart = tuple((str(name), int(end)) for name, end in found.get("apart", {}).items())
        decided, topic = bool(found.get("decided", True)), found.get("topic")
        topic = None if topic is None else str(topic)
        return Note(*fields, decided=decided, apart=apart, topic=topic) if found["eoslog"] else None
    except (ValueError, KeyError, TypeError, AttributeError):  # other clients store their own texts there
        return None


_SEE = see("the-group-was-committed-by-several-sinks")


def check_notes(group: str, notes: Mapping[TopicPartition, Note | None]) -> list[str]:
    """Warnings for a query that begins at a group's offsets: those of several sinks seldom fit together."""
    sinks = sorted({note.sink for note in notes.values() if note})
    strange = sorted(tp for tp, note in notes.items() if note is None)
    if len(sinks) > 1:
        return [
            f"startingOffsets=committed: the offsets of group {group} were committed by several sinks, "
            f"{', '.join(sinks)}. Give each query a kafka.group.id of its own; now each partition is read "
            f"from the offset that was committed last. {_SEE}"
        ]
    if sinks and strange:
        said = ", ".join(f"{topic}-{partition}" for topic, partition in strange)
        return [
            f"startingOffsets=committed: the offsets of group {group} are those of the sink {sinks[0]}, but "
            f"not in {said}, where somebody else has committed (by hand, or a consumer). {_SEE}"
        ]
    return []


class NotedOffset(NamedTuple):
    """The committed offset and note of a partition in the group of kafka.group.id. `epoch`: the leader epoch
    of the record before it; -1: unknown."""

    offset: int
    note: Note | None
    epoch: int = -1
