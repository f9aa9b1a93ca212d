"""How many rows an edit makes appear twice or never, counted in the log: by batch headers, not by records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from eoslog.checkpoint.standing import SourcePlace
from eoslog.client.records.fetch import count_rows
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.progress import ProgressListener


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
class Foretold:
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


def foretell(
    cluster: Cluster, moves: Iterable[Stretch], watch: ProgressListener, *, committed: bool
) -> Foretold:
    """Count the rows. Rows that a query stands behind are read twice if it goes back, and never if it goes
    on.

    `committed`: the query reads committed rows alone (kafka.isolation.level). Raises what fetch() raises.
    """
    return Foretold(tuple(_moved(cluster, move, watch, committed) for move in moves))


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
