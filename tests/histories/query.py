"""A streaming query in its user's hands: its options, its checkpoint and copies of it, its names so far."""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.checkpoint.spark_logs import source_position
from eoslog.connector.commit.write_token import WRITER
from eoslog.connector.offsets.offsets import EARLIEST
from tests.histories.judge import Lineage, in_log, seen
from tests.histories.offset_log import files_in, offsets_of
from tests.histories.shapes import FILES, SINKS

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
    source_name: str | None = None
    union: bool = False
    """Each of its topics has a source of its own."""
    by_rows: bool = False
    """Its rows name the topic."""
    each: bool = False
    """Its df.write in foreachBatch has no token: its batch says which it is."""
    second: str | None = None
    """The topic of a second df.write in foreachBatch."""
    left_out_second: set[int] = field(default_factory=set)
    """Batches whose second write is left out, since an error told."""
    tables: Sequence[str] = ()
    """Its batches go to these tables, too: it is a fan-out called `token`."""
    since: dict[str, str] = field(default_factory=dict)
    """The word for the batch from which on a table takes part, since an error told."""
    accept: str | None = None
    """The word for the batch that may have other rows, since an error told."""
    former_token: str | None = None
    apart: set[str] = field(default_factory=set)
    """Places that have a fan-out of their own, called `apart_token`: tables, and "topic"."""
    apart_token: str | None = None
    """The fan-out's name of before."""
    ahead: bool = False
    """Small batches are read as soon as their end is known."""
    said: str | None = None
    """startingOffsets from now on, as long as this checkpoint lives."""
    checkpoint: Path = Path()
    run: "Run | None" = None
    at_work: "list[Run]" = field(default_factory=list)
    """Runs in the middle of a trigger; all but the newest stand still."""
    ids: list[str | None] = field(default_factory=list)
    left_out: set[int] = field(default_factory=set)
    """Batches whose df.write of foreachBatch is left out, since an error told."""
    copies: list[Path] = field(default_factory=list)
    aside: list[tuple[Lineage, Path]] = field(default_factory=list)
    error: Exception | None = None
    elsewhere: Path | None = None
    """The checkpoint of which StartsElsewhere has told."""
    before: Path | None = None
    """The checkpoint of before, if batches are completed in it."""
    former: tuple[Path, str] | None = None
    """The newest checkpoint of before that has planned a batch, done or not; and its startingOffsets."""
    former_sinks: set[str | None] = field(default_factory=set)
    """Those that its lost checkpoints name, until it has completed a batch in them again."""
    copy: str | None = None
    """Where brokers stand that were put back to an older copy, as startingOffsets, since an error told."""
    living: bool = False
    """It starts in an application that lives already, if there is one."""
    used: bool = False
    moved_with: int | None = None
    """How many records had been read when it was moved to the other cluster; None: it was not."""
    left: bool = False
    """Another query has taken its pipeline over."""
    unknown: bool = False
    """The cluster has forgotten where it stands."""

    @property
    def reads_files(self) -> bool:
        """Whether its source is Spark's file source."""
        return self.lineage.topic == FILES

    @property
    def servers(self) -> str:
        """The cluster that it is started on."""
        return self.sink["kafka.bootstrap.servers"]

    @property
    def names(self) -> tuple[str | None, str | None]:
        """Its transactional.id and kafka.group.id."""
        return self.ids[-1], self.sink.get("kafka.group.id")

    @property
    def topic_option(self) -> str:
        """The option topic of the sink; "": it has none."""
        return "" if self.by_rows else self.sink["topic"]

    @property
    def has_group(self) -> bool:
        """Whether startingOffsets=committed has a group: one that is given, or that of its transactional.id,
        to which exactly_once commits."""
        exact = self.sink.get("processing.guarantee", "exactly_once") == "exactly_once"
        by_default = self.ids[-1] is not None and exact and not self.reads_files
        return self.sink.get("kafka.group.id") is not None or by_default

    @property
    def writer(self) -> str:
        """How the names of its tokens' sinks begin."""
        return self.ids[-1] or WRITER

    def means_second(self, text: str) -> bool:
        """Whether an error is about its second write."""
        said = rf"(topic |:){self.second}\b|write\.token={re.escape(str(self.token))}\+-"
        return self.second is not None and re.search(said, text) is not None

    def set_id(self, value: str | None) -> None:
        """Another transactional.id, from the next start on."""
        self.ids.append(value)
        self.sink.pop("transactional.id", None)
        if value is not None:
            self.sink["transactional.id"] = value
            if "transactional.id" in self.source:
                self.source["transactional.id"] = value

    def not_told_from_copies(self) -> None:
        """Its checkpoint is lost, and its rows name the topic: copies that were tried out look like it
        (docs/limits.md)."""
        copies = [one for one in self.world.lineages if one.name.startswith(f"{self.lineage.name}-tried")]
        self.lineage.may_lack |= {uid for one in copies for uid in one.tried if self.by_rows}

    def new_checkpoint(self, starting: str) -> None:
        """The same pipeline on a checkpoint that is new."""
        self.not_told_from_copies()
        self.before = self.newest
        if age(self.checkpoint)[1] >= 0:
            self.former = self.checkpoint, self.source["startingOffsets"]
        self.former_sinks.add(self._noted_sink)
        self.checkpoint = self.world.folder / uuid.uuid4().hex
        self.source["startingOffsets"], self.said = starting, None
        self.source.pop("transactional.id", None)
        if starting == "committed" and not self.reads_files:
            assert self.has_group, "nobody begins at the offsets of no group"
            group = self.sink.get("kafka.group.id")
            self.source.pop("kafka.group.id", None)
            if group is not None:
                self.source["kafka.group.id"] = group
            if self.ids[-1] is not None:
                self.source["transactional.id"] = self.ids[-1]

    @property
    def newest(self) -> Path | None:
        """Its checkpoint; that of before, if this one has completed nothing."""
        return self.checkpoint if age(self.checkpoint)[0] >= 0 else self.before

    def begin_anew(self, starting: str) -> None:
        """Another lineage, which begins there."""
        if not self.left:
            self.lineage.live = False
        self.left, self.copy = False, None
        self.lineage = self.world.lineage(self.name, self.lineage.topic)
        self.new_checkpoint(starting)
        self.before = self.former = None
        self.former_sinks.clear()

    @property
    def _noted_sink(self) -> str | None:
        """The sink that the checkpoint names."""
        note = NotedSink.read(Checkpoint.at(str(self.checkpoint))) if self.checkpoint.exists() else None
        return None if note is None else note.sink

    def stood(self) -> str | None:
        """Where it stood on the checkpoint of before, as startingOffsets: its line; None: that is not
        known. Topics created again and partitions that are new begin at their beginning."""
        mark = f"{self.lineage.name}:"
        if not self.reads_files and not any(row.startswith(mark) for row in seen(self.world.cluster, SINKS)):
            # Brokers know of none of its batches, and nobody has read one.
            return json.dumps({topic: self._left_out(topic) for topic in self.lineage.topic.split(",")})
        done = -1 if self.before is None else age(self.before)[0]
        there, kept = (-1, -1) if self.before is None else self.world.put_back.get(self.before, (-1, -1))
        done = kept if done == there else done  # brokers do not know of more
        if self.before is None or done < 0 or self.reads_files:
            return None
        before = logged(self.before, done)
        cluster, given = self.world.cluster, dict[str, dict[str, int]]()
        for topic in self.lineage.topic.split(","):
            if topic not in cluster.topics:
                given[topic] = before.get(topic, {"0": EARLIEST})
                continue
            same = f"topic-id:{topic}:{cluster.id_of(topic)}" in before
            known = before.get(topic, {}) if same else {}
            numbers = map(str, range(cluster.partitions(topic)))
            given[topic] = {number: known.get(number, EARLIEST) for number in numbers}
            if same:
                given |= {k: {} for k in before if k.split(":")[1:2] == [topic]}
        return json.dumps(given)

    def _left_out(self, topic: str) -> dict[str, int]:
        """Where the records end that lay before where it began, as far as they are there."""
        cluster, begins = self.world.cluster, dict[str, int]()
        for number in map(str, range(cluster.partitions(topic)) if topic in cluster.topics else ()):
            at, rows = 0, cluster.plain(topic, {number: 1})
            while len(rows) > at and set(rows) <= self.lineage.before:
                at, rows = at + 1, cluster.plain(topic, {number: at + 2})
            begins[number] = at or EARLIEST
        return begins or {"0": EARLIEST}

    def line(self, batch: int) -> str | None:
        """What the checkpoint has for a batch."""
        path = self.checkpoint / "offsets" / str(batch)
        if path.exists() and self.union:
            return json.dumps(offsets_of(path.read_text()))
        return path.read_text().splitlines()[-1] if path.exists() else None

    def behind(self, batch: int) -> set[str]:
        """The records that lie before the end of a batch of its checkpoint."""
        ends = logged(self.checkpoint, batch)
        if not self.reads_files:
            for (topic, partition), at in source_position(json.dumps(ends)).left.offsets.items():
                ends.setdefault(topic, {}).setdefault(
                    str(partition), at
                )  # where it goes on if it is named again
            return in_log(self.world.cluster_of(ends), self.lineage.topic, ends)
        last: int = ends["logOffset"]  # type: ignore[assignment]
        entries = [self.checkpoint / "sources" / "0" / str(at) for at in range(last + 1)]
        return {name for entry in entries for name in files_in(entry)}

    def bring_back(self) -> bool:
        """The newest copy of the checkpoint, wherever in the pipeline it is; whether there is another one."""
        queries = self.world.queries.values()
        known = [*((q.lineage, q.checkpoint) for q in queries), *(one for q in queries for one in q.aside)]
        found = [path for lineage, path in known if lineage is self.lineage]
        copies = [path for path in found if identity(path) == identity(self.checkpoint)]
        newest = max((path for path in copies if path != self.checkpoint), key=age, default=None)
        if newest is None or age(newest) < age(self.checkpoint):
            return False
        self.checkpoint = newest
        return True


def age(checkpoint: Path) -> tuple[int, int]:
    """How far a checkpoint has come: its newest completed and planned batch."""

    return newest_in(checkpoint / "commits"), newest_in(checkpoint / "offsets")


def newest_in(log: Path) -> int:
    """The newest batch of a log; -1: it has none."""
    names = (path.name for path in log.iterdir()) if log.exists() else ()
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def logged(checkpoint: Path, batch: int) -> dict[str, dict[str, int]]:
    """A batch of the offset log."""
    return offsets_of((checkpoint / "offsets" / str(batch)).read_text())


def identity(checkpoint: Path) -> str:
    """What Spark knows a checkpoint by."""
    path = checkpoint / "metadata"
    return path.read_text() if path.exists() else ""
