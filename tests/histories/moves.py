"""A second cluster, to which a mirror copies topics, and queries that go on there: `eoslog checkpoint
move-cluster`.

What a query has written counts where it was written: a mirror's copies of it are no rows of the query.
Whoever gives the command accepts what it says that the mirror lacks, and no more.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from eoslog.protocol.encode import encode_batches
from tests.histories import judge
from tests.histories.commands import Kill, paid
from tests.histories.judge import Finding
from tests.histories.query import age, identity
from tests.histories.shapes import FILES, SAVED, SINKS, SOURCES
from tests.histories.sim_cluster import SimCluster, values
from tests.histories.sim_log import COMMITTED, PLAIN, Entry, Log

if TYPE_CHECKING:
    from tests.histories.query import Query
    from tests.histories.world import World


# -- the mirror -------------------------------------------------------------------------------------


def mirror(world: "World", late: int, shift: int, mixes: bool = False) -> None:
    """All topics are copied from the cluster that people look at to the other one, but for the last `late`
    batches of each partition. `shift`: where the copies of source topics begin, if they are new. `mixes`:
    copies go on among records that others have written there."""
    old = world.cluster
    if not isinstance(old, SimCluster):
        return
    for new in old.beside:
        for name in [name for name, topic in old.topics.items() if not topic.internal and name != FILES]:
            others = name in SOURCES and name in new.topics and _written_there_alone(old, new, name)
            if mixes or not others:
                _copy(old, new, name, late, shift if name in SOURCES else 0)


def _written_there_alone(old: SimCluster, new: SimCluster, name: str) -> bool:
    copied = {entry.copy_of for log in old.topics[name].logs for entry in log.entries}
    own = [entry for log in new.topics[name].logs for entry in log.written_here(PLAIN)]
    return any((new.topics[name].id, entry.data) not in copied for entry in own)


def _copy(old: SimCluster, new: SimCluster, name: str, late: int, shift: int) -> None:
    if name not in new.topics:
        new.create(name, old.partitions(name))
        for log in new.topics[name].logs:
            log.start = log.end = shift
    while new.partitions(name) < old.partitions(name):
        new.add_partition(name)
    for here, there in zip(old.topics[name].logs, new.topics[name].logs, strict=False):
        entries = here.ranges(COMMITTED, PLAIN) if name != SAVED else []
        held = [one for one in entries if here.start <= one.base and one.next <= here.stable]
        copied = {one.copy_of for one in there.entries}
        for entry in held[: max(len(held) - late, 0)]:
            source = old.topics[name].id, entry.data
            if entry.copy_of is None and not entry.compacted and source not in copied:
                _append(there, entry)
                there.entries[-1].copy_of = source


def _append(log: Log, entry: Entry) -> None:
    """A batch of a producer without transactions, with the time of what it is a copy of."""
    column = pa.array([value.encode() for value in values([entry])])
    (batch,) = encode_batches(None, column, None, entry.ms, codec=0, max_batch_bytes=1 << 20)
    log.append(b"".join(bytes(part) for part in batch.finish()), entry.ms)


def look_elsewhere(world: "World") -> None:
    """People look at the other cluster: what they do next they do there."""
    world.turn(_other(world, world.servers))


def _other(world: "World", servers: str) -> str:
    return next((one for one in world.ground.sites if one != servers), servers)


# -- the move ---------------------------------------------------------------------------------------


def move(world: "World", name: str, kill: Kill | None = None) -> None:
    """`eoslog checkpoint move-cluster` to the other cluster, and kafka.bootstrap.servers with it. `kill`: at
    which of its steps it is killed."""
    query = world.queries.get(name)
    if query is not None and query.checkpoint.exists() and not query.left:
        world.do_stop(name)
        refused(world, query, kill)


def give_up(world: "World", name: str) -> None:
    """The move did not please: the copy of before is put back, and the query goes on where it was. Nothing
    was read on the new cluster."""
    query = world.queries.get(name)
    if query is None or query.moved_with is None or query.moved_with != len(query.lineage.tried):
        return
    if query.copies and (to := is_of(query.copies[-1])) not in (None, query.servers):
        world.do_restore(name)
        lead(world, query, str(to))
        query.moved_with = None


def move_former(world: "World", name: str) -> None:
    """The wrong one of two copies is moved: one that was put aside, of the other cluster. Who is refused goes
    on with the right one."""
    query = world.queries.get(name)
    if query is None or query.left:
        return
    copies = [path for line, path in query.aside if line is query.lineage]
    wrong = next((path for path in reversed(copies) if is_of(path) not in (None, query.servers)), None)
    if wrong is None or identity(wrong) != identity(query.checkpoint):
        return
    world.do_stop(name)
    right, servers, query.checkpoint = query.checkpoint, query.servers, wrong
    if refused(world, query):
        query.checkpoint = right
        lead(world, query, servers)
    else:
        query.aside = [one for one in query.aside if one[1] != wrong] + [(query.lineage, right)]


def refused(world: "World", query: "Query", kill: Kill | None = None) -> str:
    """What the command says that refuses; "": the query is moved."""
    at = is_of(query.checkpoint) or query.servers
    to = _other(world, at)
    world.turn(at)
    words = ["--to-bootstrap-server", to, "--watch", "0", *(["--fence"] if query.at_work else [])]
    said, price = paid(world, "checkpoint", "move-cluster", str(query.checkpoint), *words, kill=kill)
    if said.status != 0:
        world.turn(query.servers)
        world.ways["not moved"] += 1
        return said.text or "killed"
    world.ways["moved"] += 1
    stops = set(re.findall(r"(\S+)-\d+, which the query reads no more", said.text))
    _account(world, query, to, price.get("--accept-loss", 0), stops)
    lead(world, query, to)
    query.moved_with = len(query.lineage.tried)
    return ""


def _account(world: "World", query: "Query", to: str, told: int, stops: set[str]) -> None:
    """Accept what nobody reads now, as far as it was told: what the mirror lacks, and what others have
    written to the copies below the query's place. `stops`: topics at which a start stops."""
    lineage = query.lineage
    there, here = judge.written(world.cluster, SINKS), judge.in_log(world.cluster, lineage.topic)
    world.turn(to)
    found, below = judge.in_log(world.cluster, lineage.topic), query.behind(age(query.checkpoint)[1])
    lacks = ((here - found) | below) - lineage.before - lineage.may_lack
    lacks -= {uid for uid in lineage.tried if there[f"{lineage.name}:{uid}"]}
    lacks = {uid for uid in lacks if uid.partition("/")[0] not in stops}
    if told < len(lacks):
        world.findings.append(Finding("counted wrong", f"never {told}, and the mirror lacks {len(lacks)}"))
    if told:
        lineage.may_lack |= lacks


def lead(world: "World", query: "Query", to: str) -> None:
    """The query's kafka.bootstrap.servers."""
    query.source["kafka.bootstrap.servers"] = query.sink["kafka.bootstrap.servers"] = to
    world.turn(to)


def is_of(checkpoint: Path) -> str | None:
    """The cluster of which a checkpoint's offsets are; None: it has none."""
    newest = age(checkpoint)[1]
    if newest < 0:
        return None
    told = re.findall(r'"cluster-id:cluster-(\w+)"', (checkpoint / "offsets" / str(newest)).read_text())
    return f"{told[0]}:9092" if told else None
