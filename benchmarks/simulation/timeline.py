"""When each step of a micro-batch is done, computed from the costs of single commands. Pure.

The driver waits for one step after the other. It ends transactions at all coordinators at the same time, a
window at each (pipelined.py), and looks at one coordinator after the other. A node carries out a
connection's requests one after the other. It writes the markers of ended transactions by itself, in their
order, while the driver goes on; the driver looks whether all are written, after pauses that double.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil, inf

from benchmarks.simulation.costs import IN_FLIGHT, Cost, Costs
from benchmarks.simulation.placement import by_node, by_partition, decision_chunks, participants
from eoslog.client.admin.transaction_states import FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS
from eoslog.connector.commit.transactional_ids import Sink

SINK = Sink("query")


@dataclass(frozen=True)
class Setting:
    """`leaders`: node of each partition of `__transaction_state`. `partitions`: of the topic written to.
    `together`: a node ends all of its transactions by one request, all visible at once."""

    leaders: Mapping[int, int]
    at_a_time: int
    partitions: int
    together: bool = False


@dataclass(frozen=True)
class Foretold:
    """Milliseconds. `commit`: until readers see all of the batch; `in_part`: how long they see a part."""

    begin: float
    tasks: float
    commit: float
    in_part: float


def foretell(tasks: int, setting: Setting, costs: Costs) -> Foretold:
    """A micro-batch of a running query."""
    nodes = _nodes(tasks, setting, parity=0)
    before = _nodes(tasks, setting, parity=1)
    commit, in_part = _commit(tasks, setting, costs, nodes, before)
    chunks = decision_chunks(SINK, participants(SINK, tasks, setting.at_a_time), "t", setting.partitions)
    stored = costs.stored.window(chunks)
    commit += stored
    return Foretold(
        _begin(tasks, costs, stored), _tasks(tasks, setting.at_a_time, costs.task), commit, in_part
    )


def _nodes(tasks: int, setting: Setting, parity: int) -> dict[int, list[int]]:
    names = [who.name for who in participants(SINK, tasks, setting.at_a_time, parity)]
    return by_node(names, setting.leaders)


def _begin(tasks: int, costs: Costs, stored: float) -> float:
    """The list of transactions is asked for first and read last. Nodes are busy with it, so the questions
    between wait for it."""
    return costs.listing.alone + costs.look.alone + stored + costs.begin.window(tasks)


def _tasks(tasks: int, at_a_time: int, task: Cost) -> float:
    """Either the workers are the limit, or the machine that all share is."""
    return max(ceil(tasks / at_a_time) * task.alone, task.window(tasks))


def _commit(
    tasks: int,
    setting: Setting,
    costs: Costs,
    nodes: Mapping[int, Sequence[int]],
    before: Mapping[int, Sequence[int]],
) -> tuple[float, float]:
    now = costs.commit.window(tasks) + costs.decide.alone
    now += sum(costs.seal.of(len(mine)) for mine in nodes.values())
    names = {node: len(nodes.get(node, ())) + len(before.get(node, ())) for node in {*nodes, *before}}
    now += sum(costs.look.window(count) for count in names.values())
    if setting.together:
        return now + _ended_together(tasks, setting, costs, nodes), 0.0
    now, written = _ends(now, costs, nodes)
    first = min(written[at] for at in range(min(setting.partitions, tasks)))
    now = _look_until(now + tasks * costs.listing.each, costs.look, nodes, written)
    return now, max(written.values()) - first


def _ended_together(tasks: int, setting: Setting, costs: Costs, nodes: Mapping[int, Sequence[int]]) -> float:
    """Each partition of `__transaction_state` and of the topic is synced once for all."""
    names = [who.name for who in participants(SINK, tasks, setting.at_a_time)]
    files = len(by_partition(names, len(setting.leaders))) + min(tasks, setting.partitions)
    return sum(costs.end.window(len(mine)) for mine in nodes.values()) + (files - 2) * costs.sync.alone


def _ends(now: float, costs: Costs, nodes: Mapping[int, Sequence[int]]) -> tuple[float, dict[int, float]]:
    """When the last transaction is ended, and when each one's marker is written."""
    written: dict[int, float] = {}
    last = -inf
    for ended in _rounds(nodes):
        for at, position in enumerate(ended):
            now += costs.end.each if at else costs.end.alone
            last = max(now + costs.marker.alone, last + costs.marker.each)
            written[position] = last
    return now, written


def _rounds(nodes: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
    """What is sent before answers are read; the nodes work side by side, so each round takes from all."""
    for at in range(0, max(map(len, nodes.values())), IN_FLIGHT):
        turns = zip_longest(*(mine[at : at + IN_FLIGHT] for mine in nodes.values()))
        yield [position for turn in turns for position in turn if position is not None]


def _look_until(
    now: float, look: Cost, nodes: Mapping[int, Sequence[int]], written: Mapping[int, float]
) -> float:
    """When the driver has seen that all markers are written."""
    pause = FIRST_LOOK_SECONDS * 1000
    left = {node: list(mine) for node, mine in nodes.items()}
    while True:
        for node, mine in left.items():
            now += look.window(len(mine))
            left[node] = [at for at in mine if written[at] > now]
        left = {node: mine for node, mine in left.items() if mine}
        if not left:
            return now
        now += pause
        pause = min(2 * pause, LAST_LOOK_SECONDS * 1000)
