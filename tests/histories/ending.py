"""The end of a history: everybody does what errors tell them, and then it is looked at what there is."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.histories import judge, mishaps, ways_out
from tests.histories.judge import Finding, Lineage
from tests.histories.query import Query, age
from tests.histories.shapes import FILES, SINKS, SOURCES
from tests.histories.whole_reads import read_whole

if TYPE_CHECKING:
    from tests.histories.tables import Table
    from tests.histories.world import World

MINUTES_20 = 1_200.0
"""Longer than any time-out of a transaction."""


def end(world: "World") -> None:
    """Everybody starts their query again as it is now, does what errors say, waits and looks."""
    for query in world.queries.values():
        world.do_stop(query.name)
        mishaps.take_back(world, query.name)
    _check_closed(world, 5.0)
    read_whole(world)
    at_work = {query.servers for query in world.queries.values()}
    for servers in [one for one in world.ground.sites if one in at_work] or [world.servers]:
        world.turn(servers)
        if any(query.reads_files for query in world.queries.values()):
            world.do_produce(FILES, 4)
        for topic, partitions in SOURCES.items():
            readers = [query.servers for query in world.queries.values() if query.lineage.topic == topic]
            if servers in readers and topic not in world.cluster.topics:
                world.cluster.create(topic, partitions)  # who reads nothing else has to have it
            world.do_produce(topic, 4)  # every query gets a batch, in which it can say something
    for lineage, options in world.writes:
        if "write.token" in options and not lineage.done:
            _write(world, lineage, options)
    for name in {options.get("transactional.id") for _, options in world.writes} - {None}:
        world.do_write(None, name, "out", "r3")  # the next write of that name
        if not world.writes[-1][0].done:
            _write(world, *world.writes[-1])
    for lineage in world.lineages:
        lineage.live &= any(q.lineage is lineage and not q.left for q in world.queries.values())
    _give_up(world)
    if not _drain_all(world):
        return
    read_whole(world)
    _give_up(world)  # a pipeline may have taken another name now
    _give_up_names(world)
    world.clock.sleep(MINUTES_20)
    for cluster in world.ground.sites.values():
        cluster.end_strangers()
        for name, _ in cluster.held_open():
            world.findings.append(Finding("open for ever", f"transaction of {plain(name)}"))
    rows = judge.seen(world.cluster, SINKS)
    for lineage, below in world.blind:  # docs/limits.md
        lineage.may_lack |= judge.in_log(world.cluster, lineage.topic, below)
    for lineage in world.lineages:
        world.turn(lineage.servers or world.servers)
        lineage.may_lack |= {u for u in lineage.tried if world.deleted[f"{lineage.name}:{u}"]}
        if not lineage.live:  # nobody starts it again, is told what a restored copy lacks, or ends it
            lacks = world.gone + world.unseen
            lineage.may_lack |= {u for u in lineage.tried if lacks[f"{lineage.name}:{u}"]}
        world.findings += judge.judge(lineage, rows, judge.in_log(world.cluster, lineage.topic))
    for lineage, _ in world.writes:
        _judge_write(world, lineage, rows)
    for table in world.tables.values():
        _judge_table(world, table)
    for lineage in (one for one in world.lineages if one.seconds):
        _judge_second(world, lineage, rows)


def _judge_second(world: "World", lineage: Lineage, rows: Counter[str]) -> None:
    name = f"{lineage.name}+"
    lacks = lineage.may_lack | lineage.second_lacks
    lacks |= {uid for uid in lineage.tried if world.deleted[f"{name}:{uid}"]}
    for found in judge.judge(
        replace(lineage, name=name, may_lack=lacks), rows, judge.in_log(world.cluster, lineage.topic)
    ):
        world.findings.append(Finding(f"second write: {found.kind}", found.what))


def _drain_all(world: "World") -> bool:
    """Whether every query that goes on came to its end. Who sets a table to another state takes rows of
    others from it, who are told with their next batch."""
    for _ in range(4):
        done: set[int] = set()
        for query in reversed(world.queries.values()):
            if id(query.lineage) in done or not query.used or not query.lineage.live or query.left:
                continue
            done.add(id(query.lineage))
            if not _drain(world, query):
                return False
        moved = [table for table in world.tables.values() if table.moved]
        if not moved:
            return True
        for table in moved:
            table.moved = False
        for topic in (*SOURCES, FILES):
            world.do_produce(topic, 2)
    world.findings.append(Finding("no end", "queries set a table to other states again and again"))
    return False


def _judge_table(world: "World", table: "Table") -> None:
    rows = table.rows()
    for lineage in table.lineages:
        mark = f"{lineage.name}:"
        lacks = table.may_lack | (set() if lineage.live else table.gone)
        lack, double = (
            {row.removeprefix(mark) for row in some if row.startswith(mark)}
            for some in (lacks, table.may_double)
        )
        seen_so = replace(lineage, may_lack=lack | lineage.accepted, may_double=double | lineage.accepted)
        for found in judge.judge(seen_so, rows, judge.in_log(world.cluster, lineage.topic)):
            world.findings.append(Finding(f"table: {found.kind}", f"{table.kind}: {found.what}"))


def _write(world: "World", lineage: Lineage, options: dict[str, str]) -> None:
    while (said := world.write(lineage, options)) and ways_out.force(world, said):
        world.ways["CommitFault: force"] += 1


def _give_up(world: "World") -> None:
    """What a query has left open that nobody starts again is ended by force, as exactly-once.md says."""
    gone = [line for line in world.lineages if not line.live]
    kept = {sink for line in world.lineages if line not in gone for sink in line.sinks}
    given_up = {sink for line in gone for sink in line.sinks} - kept
    _terminate(world, given_up)


def _give_up_names(world: "World") -> None:
    """The same of writes with a token whose transactional.id changed before their decision (limits.md), and
    of queries whose checkpoint was given up together with the name."""
    queries = world.queries.values()
    former = {s for q in queries if q.token for s in q.lineage.sinks if not s.startswith(f"{q.writer}:")}
    former |= {sink for q in queries for sink in q.former_sinks if sink not in (None, q.ids[-1])}
    _terminate(world, former)


def _terminate(world: "World", sinks: Collection[str | None]) -> None:
    for cluster in world.ground.sites.values():
        for name in [name for name, _ in cluster.held_open() if name.split("/")[0] in sinks]:
            cluster.terminate(name)


def _judge_write(world: "World", lineage: Lineage, rows: Counter[str]) -> None:
    counts = {uid: rows[f"{lineage.name}:{uid}"] for uid in lineage.tried}
    gone = {u for u in lineage.tried if world.deleted[f"{lineage.name}:{u}"]} | lineage.may_lack
    lost = [uid for uid, count in counts.items() if not count and uid not in gone]
    if lineage.done and lost:
        world.findings.append(
            Finding("lost", f"{len(lost)} of {len(counts)} rows of the write {lineage.name}")
        )
    if max((count for uid, count in counts.items() if uid not in lineage.may_double), default=0) > 1:
        world.findings.append(Finding("doubled", f"rows of the write {lineage.name}"))


def _check_closed(world: "World", seconds: float) -> None:
    """Nothing is open that somebody left who ended in order."""
    world.clock.sleep(seconds)
    sites = world.ground.sites.values()
    for cluster, name, opener in [(one, *held) for one in sites for held in one.held_open()]:
        ended = getattr(opener, "ended", "")
        if cluster.sealed_for_good(name):
            continue  # two-phase commit was switched off since: the next start says so, and what ends it
        if ended in ("stopped", "failed"):
            world.findings.append(Finding(f"open after it {ended}", f"transaction of {plain(name)}"))
            return


def _drain(world: "World", query: Query) -> bool:
    """Until there is nothing left to read. Whether the query came to that."""
    tried: list[str] = []
    for _ in range(ways_out.TRIES):
        for _ in range(60):
            if not world.trigger(query, None):
                break
            run = query.run
            if run is not None and run.between and _is_idle(world, query):
                world.do_stop(query.name)
                return True
        error = query.error
        query.run = None
        if error is None:
            world.findings.append(Finding("no end", f"query {query.name} goes on for ever"))
            return False
        way = ways_out.take(world, query, error, tried)
        if way is None:
            world.findings.append(Finding("no way out", f"{type(error).__name__}: {str(error)[:300]}"))
            return False
        tried.append(way)
        world.ways[f"{type(error).__name__}: {way}"] += 1
    world.findings.append(Finding("no way out", f"{type(query.error).__name__} after {', '.join(tried)}"))
    return False


def _is_idle(world: "World", query: Query) -> bool:
    before = age(query.checkpoint)
    going = world.trigger(query, None)
    return going and age(query.checkpoint) == before


def plain(name: str) -> str:
    """A participant's name without its random part."""
    return re.sub(r"/.*", "/...", re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<id>", name))
