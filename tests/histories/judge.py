"""What a history promised, and whether it was kept: rows of lineages, looked at as a read_committed reader.

A lineage is one pipeline in its user's eyes: it goes on over restarts, hand-overs and changed names; a
checkpoint that begins at `earliest` or `latest` begins another one. Rows carry their lineage's name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.histories.ground import Cluster


@dataclass
class Lineage:
    """What is known of it.

    `before`: records that lie before where it began. `tried`: under which guarantees a record was read.
    `done`: records of batches that Spark has noted; `noted`: of each, by its query; `batches`: of those that
    it has not. `sinks`: ids of the sinks that its batches were given to; `topics`: those of their rows;
    `names`: each transactional.id and group of theirs; `groups`: those
    of batches that are done; `queries`: Spark's ids of its queries. `again`: a query was started again
    although another one had taken its pipeline over. `accepted`: records that its source may have lost, or
    may give again. `seconds`: each row is written a second time, marked with a plus; `second_lacks`: records
    whose second row the brokers have lost. `sparked`: Spark's own connector has done a batch of it.
    `servers`: the cluster on which it was started last.
    `may_lack`, `may_double`: records for which somebody has taken that into account, having been told.
    """

    name: str
    topic: str
    servers: str = ""
    before: set[str] = field(default_factory=set)
    tried: dict[str, set[str]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    noted: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    batches: dict[int, set[str]] = field(default_factory=dict)
    sinks: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    names: set[tuple[str | None, str | None]] = field(default_factory=set)
    groups: set[str | None] = field(default_factory=set)
    unnoted: set[str] = field(default_factory=set)
    queries: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    second_lacks: set[str] = field(default_factory=set)
    seconds: bool = False
    sparked: bool = False
    may_lack: set[str] = field(default_factory=set)
    may_double: set[str] = field(default_factory=set)
    began: bool = False
    live: bool = True
    again: bool = False

    @property
    def has_decided(self) -> bool:
        """Whether its batches have left more than notes in a group, as those of at_least_once do."""
        return any(self.tried.get(uid, set()) - {"at_least_once"} for uid in self.done)


@dataclass(frozen=True)
class Finding:
    """A promise that was broken."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def in_log(cluster: "Cluster", topics: str, below: Mapping[str, Mapping[str, int]] | None = None) -> set[str]:
    """Records that source topics hold; `below`: only those before these offsets."""
    found: set[str] = set()
    for topic in topics.split(","):
        if topic in cluster.topics:
            found.update(cluster.plain(topic, None if below is None else below.get(topic, {})))
    return found


def written(cluster: "Cluster", topics: Iterable[str]) -> Counter[str]:
    """Rows of sink topics that are committed or may still be."""
    return Counter(row for topic in topics if topic in cluster.topics for row in cluster.written(topic))


def seen(cluster: "Cluster", topics: Iterable[str]) -> Counter[str]:
    """What readers get of sink topics."""
    return Counter(row for topic in topics if topic in cluster.topics for row in cluster.seen(topic))


def judge(lineage: Lineage, rows: Counter[str], source: set[str]) -> list[Finding]:
    """Each record once, as far as it was promised. `source`: records that are there."""
    counts = {uid: rows.get(f"{lineage.name}:{uid}", 0) for uid in source | set(lineage.tried)}
    findings, old = [], ", the old query started again" if lineage.again else ""
    wanted = (source - lineage.before) if lineage.live and lineage.began else lineage.done & source
    lost = {
        uid
        for uid in wanted - lineage.may_lack
        if not counts[uid] and "at_most_once" not in lineage.tried.get(uid, ())
    }
    double = {
        uid
        for uid, count in counts.items()
        if count > 1 and uid not in lineage.may_double and "at_least_once" not in lineage.tried.get(uid, ())
    }
    if lost:
        some = ", ".join(sorted(lost)[:4])
        findings.append(
            Finding(f"lost{old}", f"{len(lost)} of {len(wanted)} records of {lineage.name} ({some})")
        )
    if double:
        some = ", ".join(sorted(double)[:4])
        findings.append(Finding(f"doubled{old}", f"{len(double)} records of {lineage.name} ({some})"))
    return findings
