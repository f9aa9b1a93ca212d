"""A streaming query in its user's hands: its options, its checkpoint and copies of it, its names so far."""

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.histories.judge import Lineage

if TYPE_CHECKING:
    from tests.histories.ground import Run
    from tests.histories.world import World


@dataclass
class Query:
    """A streaming query as its user has it: options, where its checkpoint is, which run of it lives."""

    world: "World"
    name: str
    source: dict[str, str]
    sink: dict[str, str]
    lineage: Lineage
    told: bool = True
    token: str | None = None
    checkpoint: Path = Path()
    run: "Run | None" = None
    ids: list[str | None] = field(default_factory=list)
    copies: list[Path] = field(default_factory=list)
    aside: list[Path] = field(default_factory=list)
    error: Exception | None = None
    before: dict[str, dict[str, int]] | None = None
    """Where it stood on the checkpoint of before."""
    used: bool = False
    left: bool = False
    """Another query has taken its pipeline over."""

    def set_id(self, value: str | None) -> None:
        """Another transactional.id, from the next start on."""
        self.ids.append(value)
        self.sink.pop("transactional.id", None)
        if value is not None:
            self.sink["transactional.id"] = value
            if "transactional.id" in self.source:
                self.source["transactional.id"] = value

    def new_checkpoint(self, starting: str) -> None:
        """The same pipeline on a checkpoint that is new."""
        if age(self.checkpoint)[0] >= 0:
            self.before = logged(self.checkpoint, age(self.checkpoint)[0])
        self.checkpoint = self.world.folder / uuid.uuid4().hex
        self.source["startingOffsets"] = starting
        self.source.pop("transactional.id", None)
        if starting == "committed":
            self.source["kafka.group.id"] = self.sink["kafka.group.id"]
            if self.ids[-1] is not None:
                self.source["transactional.id"] = self.ids[-1]

    def begin_anew(self, starting: str) -> None:
        """Another lineage, which begins there."""
        if not self.left:
            self.lineage.live = False
        self.left = False
        self.lineage = self.world.lineage(self.name, self.lineage.topic)
        self.new_checkpoint(starting)
        self.before = None

    def bring_back(self) -> bool:
        """The checkpoint that was put aside for an older one; else another copy, if it is newer."""
        others = [q for q in self.world.queries.values() if q.lineage is self.lineage and q is not self]
        newest = max((*self.aside, *(q.checkpoint for q in others)), key=age, default=None)
        if newest is None or age(newest) <= age(self.checkpoint):
            return False
        self.checkpoint = newest
        return True


def age(checkpoint: Path) -> tuple[int, int]:
    """How far a checkpoint has come: its newest completed and planned batch."""

    def last(log: str) -> int:
        folder = checkpoint / log
        return (
            max((int(p.name) for p in folder.iterdir() if p.name.isdecimal()), default=-1)
            if folder.exists()
            else -1
        )

    return last("commits"), last("offsets")


def logged(checkpoint: Path, batch: int) -> dict[str, dict[str, int]]:
    """A batch of the offset log."""
    found: dict[str, dict[str, int]] = json.loads(
        (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]
    )
    return found


def identity(checkpoint: Path) -> str:
    """What Spark knows a checkpoint by."""
    path = checkpoint / "metadata"
    return path.read_text() if path.exists() else ""
