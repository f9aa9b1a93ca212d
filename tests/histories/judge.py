"""What a history promised, and whether it was kept: rows of lineages, looked at as a read_committed reader.

A lineage is one pipeline in its user's eyes: it goes on over restarts, hand-overs and changed names; a
checkpoint that begins at `earliest` or `latest` begins another one. Rows carry their lineage's name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eoslog.protocol.batch import iter_headers
from eoslog.protocol.records import decode_batches
from tests.histories.sim_cluster import SimCluster
from tests.histories.sim_log import COMMITTED, OPEN, PLAIN, Entry, Log


@dataclass
class Lineage:
    """What is known of it.

    `before`: records that lie before where it began. `tried`: under which guarantees a record was read.
    `done`: records of batches that Spark has noted; `batches`: of those that it has not. `sinks`: ids of the
    sinks that its batches were given to; `names`: each transactional.id and group of theirs. `again`: a query
    was started again although another one had taken its pipeline over. `may_lack`, `may_double`: records for
    which somebody has taken that into account, having been told.
    """

    name: str
    topic: str
    before: set[str] = field(default_factory=set)
    tried: dict[str, set[str]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    batches: dict[int, set[str]] = field(default_factory=dict)
    sinks: set[str] = field(default_factory=set)
    names: set[tuple[str | None, str | None]] = field(default_factory=set)
    may_lack: set[str] = field(default_factory=set)
    may_double: set[str] = field(default_factory=set)
    began: bool = False
    live: bool = True
    again: bool = False


@dataclass(frozen=True)
class Finding:
    """A promise that was broken."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def values(entries: Iterable[Entry]) -> list[str]:
    """The values of records in some batches, in order."""
    data = b"".join(entry.data for entry in entries)
    if not data:
        return []
    found = decode_batches(data, list(iter_headers(data)))
    return [value.decode() for value in found.value.to_pylist()]


def visible(log: Log) -> list[str]:
    """What a read_committed reader gets, up to the last stable offset."""
    return values(e for e in log.ranges(COMMITTED, PLAIN) if e.base < log.stable)


def in_log(
    cluster: SimCluster, topics: str, below: Mapping[str, Mapping[str, int]] | None = None
) -> set[str]:
    """Records that source topics hold; `below`: only those before these offsets."""
    found: set[str] = set()
    for topic in topics.split(","):
        for number, log in enumerate(cluster.topics[topic].logs if topic in cluster.topics else []):
            bound = log.end if below is None else below.get(topic, {}).get(str(number), 0)
            found |= set(values(e for e in log.ranges(PLAIN) if e.base < bound))
    return found


def written(cluster: SimCluster, topics: Iterable[str], *states: str) -> Counter[str]:
    """Rows of sink topics in these states."""
    found: Counter[str] = Counter()
    for topic in topics:
        for log in cluster.topics[topic].logs if topic in cluster.topics else []:
            found.update(values(log.ranges(*(states or (COMMITTED, PLAIN, OPEN)))))
    return found


def seen(cluster: SimCluster, topics: Iterable[str]) -> Counter[str]:
    """What readers get of sink topics."""
    found: Counter[str] = Counter()
    for topic in topics:
        for log in cluster.topics[topic].logs if topic in cluster.topics else []:
            found.update(visible(log))
    return found


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
