"""Two checkpoints side by side, and the rows that an edit makes appear twice or never."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import click

from eoslog.checkpoint.backups import Backup, backups_since
from eoslog.checkpoint.edit_numbers import NotEditable, is_name
from eoslog.checkpoint.edits import LogFile
from eoslog.checkpoint.standing import NamedPlace, SourcePlace, named_places, standing
from eoslog.checkpoint.targets import LogBounds
from eoslog.client.records.fetch import count_rows
from eoslog.client.wire.cluster import Cluster
from eoslog.commands import output
from eoslog.commands.output import ProgressListener
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.files import Files, files_at
from eoslog.connector.checkpoint.spark_logs import Planned

# -- effect ------------------------------------------------------------------------------------------
# How many rows an edit makes appear twice or never, counted in the log: by batch headers, not by records.


class Fate(StrEnum):
    """What becomes of rows."""

    TWICE = "twice"
    NEVER = "never"


@dataclass(frozen=True)
class Moved:
    """A partition that an edit moves, and its rows between: offsets are where a source stands."""

    source: int
    topic: str
    partition: int
    before: int
    after: int
    rows: int
    fate: Fate

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**vars(self), "fate": str(self.fate)}


@dataclass(frozen=True)
class Effect:
    """What an edit does to rows of the sources, by partition."""

    moved: tuple[Moved, ...]

    def rows(self, fate: Fate) -> int:
        """All rows of this fate."""
        return sum(one.rows for one in self.moved if one.fate is fate)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "twice": self.rows(Fate.TWICE),
            "never": self.rows(Fate.NEVER),
            "partitions": [one.document() for one in self.moved],
        }


@dataclass(frozen=True)
class Stretch:
    """Offsets from `before` to `after` of one place; `before` is the higher one if the query goes back."""

    place: SourcePlace
    before: int
    after: int

    @property
    def size(self) -> int:
        """How many offsets; there are at most as many rows."""
        return abs(self.after - self.before)


def stretches(before: Mapping[SourcePlace, int], after: Mapping[SourcePlace, int]) -> list[Stretch]:
    """The places that move."""
    return [Stretch(p, before[p], at) for p, at in sorted(after.items()) if before.get(p, at) != at]


def effect_of(
    cluster: Cluster, moves: Iterable[Stretch], watch: ProgressListener, *, committed: bool
) -> Effect:
    """Count the rows. Rows that a query stands behind are read twice if it goes back, and never if it goes
    on.

    `committed`: the query reads committed rows alone (kafka.isolation.level). Raises what fetch() raises.
    """
    return Effect(tuple(_moved(cluster, move, watch, committed) for move in moves))


def _moved(cluster: Cluster, move: Stretch, watch: ProgressListener, committed: bool) -> Moved:
    source, topic, partition = move.place
    first, end = sorted((move.before, move.after))
    watch.begin(f"counting {topic}-{partition}", move.size)
    total, at = 0, first
    for rows, reached in count_rows(cluster, topic, partition, first, end, committed=committed):
        total += rows
        watch.advance(reached - at)
        at = reached
    fate = Fate.TWICE if move.after < move.before else Fate.NEVER
    return Moved(source, topic, partition, move.before, move.after, total, fate)


# -- compare ---------------------------------------------------------------------------------------
# Two checkpoints side by side: which batches they share, where each stands, and the rows between.
#
# One of them may be a checkpoint as it was before an edit: its files, with those of the backup in their
# place.


def before_edit(checkpoint: Checkpoint, name: str) -> tuple[Checkpoint, Backup]:
    """The checkpoint before the edit of this name, whatever edits came after it; and the edit's backup.
    Raises CheckpointUnreadable, NotEditable."""
    backups = backups_since(checkpoint, name)
    moved = [backup.name for backup in backups if backup.has_moved]
    if moved:
        raise NotEditable(f"the offsets before {name} are of another cluster: {moved[0]} has moved the query")
    files: Files = files_at(checkpoint.location)
    for backup in reversed(backups):
        files = _EarlierFiles(files, backup.before)
    return Checkpoint(files, f"{checkpoint.location} before {name}"), backups[0]


class _EarlierFiles:
    """Files, some of which had other texts. Batches behind the first that changed are there only if the
    backup has them: the edit found no others."""

    def __init__(self, files: Files, texts: Mapping[LogFile, str | None]) -> None:
        self._files, self._texts = files, {f"{log}/{batch}": text for (log, batch), text in texts.items()}
        self._least = min(batch for log, batch in texts if log in _LOGS)

    def read(self, name: str) -> bytes:
        """The content of a file. Raises OSError, as all of these."""
        if not self.is_there(name):
            raise FileNotFoundError(f"{name} was not there")
        text = self._texts.get(name)
        return self._files.read(name) if text is None else text.encode()

    def is_there(self, name: str) -> bool:
        """Whether there was such a file."""
        if name in self._texts:
            return self._texts[name] is not None
        return not self._is_later(name) and self._files.is_there(name)

    def modified(self, name: str) -> float | None:
        """When the file was written; it is not known of one that was changed."""
        return None if name in self._texts or self._is_later(name) else self._files.modified(name)

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder."""
        own = [name.removeprefix(f"{folder}/") for name in self._texts if name.startswith(f"{folder}/")]
        found = {*self._files.names(folder), *own}
        return [name for name in found if folder not in _LOGS or self.is_there(f"{folder}/{name}")]

    def walk(self) -> list[str]:
        """The names of all files."""
        found = {*self._files.walk(), *self._texts}
        return sorted(name for name in found if self.is_there(name))

    def put(self, folder: str, name: str, data: bytes, *, durable: bool = True) -> None:
        """What was cannot be changed."""
        raise OSError(f"{folder}/{name} of an earlier checkpoint cannot be written")

    def remove(self, name: str) -> None:
        """What was cannot be changed."""
        raise OSError(f"{name} of an earlier checkpoint cannot be removed")

    def sync(self, names: Iterable[str]) -> None:
        """What was stays as it was."""
        raise OSError(f"{', '.join(names)} of an earlier checkpoint cannot be synced")

    def _is_later(self, name: str) -> bool:
        log, _, batch = name.partition("/")
        return log in _LOGS and batch.isdecimal() and int(batch) > self._least


_LOGS = ("offsets", "commits")


COLUMNS = ["source", "topic", "partition"] + [
    f"{side}_{what}" for side in "ab" for what in ("from", "to", "stands")
]
COLUMNS += ["rows", "ahead"]


@dataclass(frozen=True)
class Side:
    """One of the two. `stands`: the batch at whose end its query stands; None: at none that is kept."""

    checkpoint: Checkpoint
    planned: tuple[int, ...]
    done: int | None
    stands: Planned | None

    @classmethod
    def of(cls, cluster: Cluster, checkpoint: Checkpoint) -> Side:
        """A checkpoint as it is. Raises as standing()."""
        found = standing(cluster, checkpoint)
        return cls(checkpoint, found.planned, found.completed, found.last_written)

    @classmethod
    def before(cls, checkpoint: Checkpoint, edit: str) -> Side:
        """A checkpoint before an edit. Raises CheckpointUnreadable."""
        earlier, backup = before_edit(checkpoint, edit)
        stands = earlier.planned_if_kept(backup.was.batch_id)
        return cls(earlier, tuple(earlier.batches("offsets")), earlier.newest_completed(), stands)

    @property
    def clusters(self) -> list[str]:
        """The clusters that its offsets are noted to be of: none by Spark's own source."""
        return sorted(self.stands.clusters()) if self.stands else []

    @property
    def newest(self) -> Planned | None:
        """The newest batch that is planned."""
        return self.checkpoint.planned(self.planned[-1]) if self.planned else None

    def ends(self, batch: int) -> dict[NamedPlace, int] | None:
        """The end offsets of a batch; None: it is not there."""
        found = self.checkpoint.planned_if_kept(batch)
        return None if found is None else named_places(found)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "checkpoint": self.checkpoint.location,
            "query": self.checkpoint.query_id(),
            "clusters": self.clusters,
            "planned": self.planned[-1] if self.planned else None,
            "done": self.done,
            "stands_after": self.stands and self.stands.batch_id,
        }


def two_sides(cluster: Cluster, a: str, b: str) -> tuple[Side, Side]:
    """`b`: another checkpoint, or the name of a backup of `a`. Raises as standing()."""
    first = Checkpoint.at(a)
    return Side.of(cluster, first), (
        Side.before(first, b) if is_name(b) else Side.of(cluster, Checkpoint.at(b))
    )


def compared(
    cluster: Cluster, a: Side, b: Side, watch: ProgressListener, *, committed: bool
) -> dict[str, Any]:
    """All that `diff` tells. Raises what fetch() raises."""
    partitions = _partitions(cluster, a, b, watch, committed=committed)
    return {
        "a": a.document(),
        "b": b.document(),
        "batches": [_batch(a, b, batch) for batch in sorted({*a.planned, *b.planned})],
        "partitions": partitions,
        "rows_ahead": {
            side: sum(one["rows"] or 0 for one in partitions if one["ahead"] == side) for side in ("a", "b")
        },
        "uncounted": [f"{one['topic']}-{one['partition']}" for one in partitions if one["rows"] is None],
    }


def _batch(a: Side, b: Side, batch: int) -> dict[str, Any]:
    ends = a.ends(batch), b.ends(batch)
    return {"batch": batch, "a": _state(a, batch), "b": _state(b, batch), "same": ends[0] == ends[1]}


def _state(side: Side, batch: int) -> str | None:
    if batch not in side.planned:
        return None
    return "done" if side.done is not None and batch <= side.done else "planned"


def _partitions(
    cluster: Cluster, a: Side, b: Side, watch: ProgressListener, *, committed: bool
) -> list[dict[str, Any]]:
    ranges = [_ranges(side) for side in (a, b)]
    stands = [named_places(side.stands) if side.stands else {} for side in (a, b)]
    places = sorted({*ranges[0], *ranges[1], *stands[0], *stands[1]})
    rows = _rows(cluster, places, stands[0], stands[1], watch, committed)
    found = []
    for place in places:
        of = [{**dict(zip(("from", "to"), one.get(place, (None, None)), strict=True))} for one in ranges]
        at = [one.get(place) for one in stands]
        found.append(
            {
                **dict(zip(("source", "topic", "partition"), place, strict=True)),
                **{f"a_{name}": value for name, value in of[0].items()},
                "a_stands": at[0],
                **{f"b_{name}": value for name, value in of[1].items()},
                "b_stands": at[1],
                "rows": rows[place],
                "ahead": _ahead(*at),
            }
        )
    return found


def _ranges(side: Side) -> dict[NamedPlace, tuple[int | None, int]]:
    """What the newest planned batch reads, from and to."""
    if side.newest is None:
        return {}
    begins = side.ends(side.newest.batch_id - 1) or {}
    return {place: (begins.get(place), at) for place, at in named_places(side.newest).items()}


def _ahead(a: int | None, b: int | None) -> str | None:
    if a is None or b is None or a == b:
        return None
    return "a" if a > b else "b"


def _rows(
    cluster: Cluster,
    places: list[NamedPlace],
    a: Mapping[NamedPlace, int],
    b: Mapping[NamedPlace, int],
    watch: ProgressListener,
    committed: bool,
) -> dict[NamedPlace, int | None]:
    """The rows between the two; None: one of them is not there, or the log does not have them any more."""
    apart = [place for place in places if _ahead(a.get(place), b.get(place))]
    bounds = LogBounds.of_those_there(cluster, (place[1:] for place in apart), committed=committed)
    found: dict[NamedPlace, int | None] = {p: 0 if p in a and a[p] == b.get(p) else None for p in places}
    for number, place in enumerate(apart):
        first, end = sorted((a[place], b[place]))
        if place[1:] in bounds.first and bounds.first[place[1:]] <= first and end <= bounds.end[place[1:]]:
            key: SourcePlace = (number, *place[1:])
            move = Stretch(key, a[place], b[place])
            (counted,) = effect_of(cluster, [move], watch, committed=committed).moved
            found[place] = counted.rows
    return found


def lines(document: Mapping[str, Any]) -> list[str]:
    """The lines around the table of `diff`: above it."""
    said = []
    for name in ("a", "b"):
        side = document[name]
        said.append(
            f"{name}: {side['checkpoint']}: query {side['query']}, planned {_text(side['planned'])}, "
            f"done {_text(side['done'])}, stands at the end of batch {_text(side['stands_after'])}"
        )
    unknown = [name for name in ("a", "b") if not document[name]["clusters"]]
    if unknown:
        said.append(
            f"{' and '.join(unknown)}: the offsets do not say of which cluster they are; they are taken for "
            "those of this one"
        )
    apart = [one for one in document["batches"] if not one["same"]]
    if not apart:
        return [*said, "all batches have the same ends"]
    return [*said, *(f"batch {one['batch']}: {_of(one, 'a')}, {_of(one, 'b')}" for one in apart)]


def end_lines(document: Mapping[str, Any]) -> list[str]:
    """Below it: the rows in all."""
    ahead = document["rows_ahead"]
    total = f"in all: a has read {ahead['a']} rows that b has not, b {ahead['b']} that a has not"
    left = document["uncounted"]
    return [total, *([f"not counted: {', '.join(left)} (one does not read it, or the log has no such rows)"]
                     if left else [])]  # fmt: skip


def _of(batch: Mapping[str, Any], side: str) -> str:
    return f"{side} has it {batch[side]}" if batch[side] else f"{side} does not have it"


def _text(value: int | None) -> str:
    return "none" if value is None else str(value)


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--read-uncommitted", is_flag=True,
              help="The query reads with kafka.isolation.level=read_uncommitted.")  # fmt: skip
@cluster_command
def diff(session: CommandSession, a: str, b: str, read_uncommitted: bool) -> None:
    """Show two checkpoints side by side, and the rows between where their queries stand.

    B is another checkpoint, or a backup of A as edit-0001: A as it was before that edit.
    """
    sides = two_sides(session.cluster, a, b)
    with output.shown() as watch:
        document = compared(session.cluster, *sides, watch, committed=not read_uncommitted)
    if session.as_json:
        session.show_json(document)
        return
    click.echo("\n".join(lines(document)))
    session.show(document["partitions"], COLUMNS)
    click.echo("\n".join(end_lines(document)))
