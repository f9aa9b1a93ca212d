"""Costs on a cluster whose nodes have machines of their own, reckoned from those of one node here. Pure.

What is assumed, and cannot be measured on one machine: a round trip takes as long between any two machines;
an append waits for its followers for one round trip and one bare request (a follower's fetch waits at the
leader, is answered, and its next fetch acknowledges); a node's CPU is as fast as this one's, and its cores
share the work.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.simulation.costs import Cost, Costs


@dataclass(frozen=True)
class Network:
    """`round_trip`: ms. `cores`: of each node."""

    nodes: int
    round_trip: float = 0.5
    cores: int = 4


def apart(one: Costs, network: Network) -> Costs:
    """A task waits for InitProducerId, Produce and DescribeTransactions; Produce for its leader's question to
    the coordinator; and for three appends. TxnOffsetCommit does as Produce. A marker's way is a round trip
    between nodes, its own append, and that of CompleteCommit. Nodes share the ends and their markers."""
    trip = network.round_trip
    append = trip + one.look.alone
    task = Cost(one.task.alone + 4 * trip + 3 * append, one.task_cpu.each / (network.nodes * network.cores))
    return Costs(
        task=task,
        look=_later(one.look, trip),
        stored=_later(one.stored, trip),
        listing=_later(one.listing, trip),
        decide=_later(one.decide, 3 * trip + 3 * append),
        seal=one.seal,
        end=Cost(one.end.alone + trip + append, (one.end.each + append) / network.nodes),
        sync=one.sync,
        marker=Cost(one.marker.alone + trip + 2 * append, one.marker.each / network.nodes),
        begin=one.begin,
        commit=one.commit,
        task_cpu=one.task_cpu,
        end_cpu=one.end_cpu,
    )


def _later(cost: Cost, ms: float) -> Cost:
    return Cost(cost.alone + ms, cost.each)
