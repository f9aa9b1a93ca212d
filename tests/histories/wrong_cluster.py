"""What WrongCluster and `eoslog checkpoint move-cluster` tell their reader to do, done."""

import json
from typing import TYPE_CHECKING

from tests.histories import mishaps, moves
from tests.histories.commands import command
from tests.histories.query import age, logged

if TYPE_CHECKING:
    from tests.histories.query import Query
    from tests.histories.world import World


def to_the_other_cluster(world: "World", query: "Query", text: str) -> bool:
    """Whoever was told that a checkpoint is another cluster's moves it by the command, and does what that
    says; every other time by the option, if the offsets are the same there. But for foreachBatch: of its
    tokens the new cluster knows nothing, so an older copy has to be started where they are."""
    at = moves.is_of(query.checkpoint)
    if at is None or at == query.servers:
        return False
    if len(world.told) % 2 and query.token is None and _is_same(world, query, at):
        return _by_the_option(world, query, at)
    said = moves.refused(world, query)
    if not said:
        return True
    if query.bring_back():
        moves.lead(world, query, moves.is_of(query.checkpoint) or query.servers)
        return True
    if "rebuild --transactional-id" in said and mishaps.write_again(world, query):
        return True
    if "give the query another transactional.id" in said and query.token is None:
        return _under_another_name(world, query, at)
    moves.lead(world, query, at)
    return True


def _under_another_name(world: "World", query: "Query", at: str) -> bool:
    """Another transactional.id, a batch of it where the query is, and the command again. Rows may be there
    twice then, as it says."""
    query.lineage.may_double |= set(query.lineage.tried)
    query.set_id(f"{query.name}-moved-{len(query.ids)}")
    moves.lead(world, query, at)
    world.do_produce(query.lineage.topic.partition(",")[0], 2)
    world.trigger(query, None)
    world.do_stop(query.name)
    return not moves.refused(world, query)


def _is_same(world: "World", query: "Query", at: str) -> bool:
    """Whether the topics were copied with their offsets as they are, as far as the query has read them."""
    ends = logged(query.checkpoint, age(query.checkpoint)[1])
    here, there = (world.ground.sites[servers] for servers in (at, query.servers))
    topics = [topic for topic in query.lineage.topic.split(",") if topic in ends]
    known = all(topic in one.topics for topic in topics for one in (here, there))
    return known and all(here.plain(t, ends[t]) == there.plain(t, ends[t]) for t in topics)


def _by_the_option(world: "World", query: "Query", at: str) -> bool:
    """cluster.moved.to, after the last batch is complete on the old cluster, which knows of no later one."""
    servers = query.servers
    world.turn(at)
    shown = command(world, "checkpoint", "show", str(query.checkpoint), "--json")
    world.turn(servers)
    known = json.loads(shown.text) if shown.status == 0 else {"decided": float("inf")}
    if (known["decided"] or -1) > age(query.checkpoint)[1]:
        return query.bring_back()
    if age(query.checkpoint)[0] < age(query.checkpoint)[1]:
        moves.lead(world, query, at)
        world.trigger(query, None)
        world.do_stop(query.name)
        moves.lead(world, query, servers)
        if age(query.checkpoint)[0] < age(query.checkpoint)[1]:
            return False
    there = f"cluster-{servers.partition(':')[0]}"
    query.source["cluster.moved.to"] = there
    query.sink["start.accepted"] = f"cluster:{there}"
    world.ways["moved by the option"] += 1
    return True
