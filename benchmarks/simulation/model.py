"""A micro-batch of many tasks on a cluster: what it asks, what is written for it, how long each step takes.
Pure.

Times are computed from what single commands cost, measured apart from any micro-batch (calibrate.py).
Names, their hash and the decision are the product's own code.

The batch is one of a running query, its third or later: names, coordinators and leaders are known, and the
batch before it has as many tasks. A task writes a transaction of its own.

The driver waits for one step after the other. It ends transactions at all coordinators at the same time, a
window at each (pipelined.py), and looks at one coordinator after the other. A node carries out a
connection's requests one after the other. It writes the markers of ended transactions by itself, in their
order, while the driver goes on; the driver looks whether all are written, after pauses that double.

Of nodes with machines of their own it is assumed, and cannot be measured on one machine: a round trip takes
as long between any two machines; an append waits for its followers for one round trip and one bare request
(a follower's fetch waits at the leader, is answered, and its next fetch acknowledges); a node's CPU is as
fast as this one's, and its cores share the work.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import zip_longest
from math import ceil, inf

from eoslog.client.admin.transaction_states import FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS
from eoslog.connector.commit.decision import Decision, encode
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Participant, ParticipantSlot, Sink
from eoslog.connector.commit.winner import Winner
from eoslog.protocol.internal_topics.coordinator_records import partition_of
from eoslog.protocol.producer_identity import ProducerIdentity

# -- costs -----------------------------------------------------------------------------------------

IN_FLIGHT = 100
"""client/wire/pipelined.py"""


@dataclass(frozen=True)
class Cost:
    """Milliseconds: `alone`, and of each further one that is sent together with it."""

    alone: float
    each: float = 0.0

    def of(self, count: int) -> float:
        """So many, a window of requests at a time."""
        full, rest = divmod(count, IN_FLIGHT)
        return full * self.window(IN_FLIGHT) + self.window(rest)

    def window(self, count: int) -> float:
        """So many, sent together."""
        return self.alone + (count - 1) * self.each if count else 0.0


@dataclass(frozen=True)
class Costs:
    """`task`: opened, written, seen; `each` while workers run side by side. `look`: DescribeTransactions of a
    name, and of each further name. `stored`: the decision is read, and each further chunk of it. `listing`:
    ListTransactions on all nodes, and each transaction listed. `decide`: TxnOffsetCommit and EndTxn of the
    driver's own. `seal`: of a node's participants. `end`: of participants, and each further one at any node.
    `sync`: each further partition that an end of all together writes to. `marker`: from EndTxn's answer to
    CompleteCommit, and each further one, at any node, while they queue up. `begin`,
    `commit`: the driver's rules alone, for one task and for each further one. `task_cpu`: CPU of
    all nodes for a task.
    """

    task: Cost
    look: Cost
    stored: Cost
    listing: Cost
    decide: Cost
    seal: Cost
    end: Cost
    sync: Cost
    marker: Cost
    begin: Cost
    commit: Cost
    task_cpu: Cost

    def as_json(self) -> dict[str, list[float]]:
        """By name."""
        return {
            name: [round(cost["alone"], 4), round(cost["each"], 5)] for name, cost in asdict(self).items()
        }

    @classmethod
    def from_json(cls, found: Mapping[str, list[float]]) -> Costs:
        """What `as_json` gave."""
        return cls(**{field.name: Cost(*found[field.name]) for field in fields(cls)})


# -- names, and the size of a decision -------------------------------------------------------------

_RUN = ProducerIdentity(1_000_000, 1_000)
_MANY = 10**9
"""A run of this size would have no limit: only the number of chunks is wanted."""


def participants(sink: Sink, tasks: int, at_a_time: int, parity: int = 0, seed: int = 1) -> list[Participant]:
    """The tasks' transactions, by Spark partition: workers take turns, each has a random word."""
    words = random.Random(seed)
    workers = [f"{words.getrandbits(64):016x}" for _ in range(min(tasks, at_a_time))]
    slots = [
        ParticipantSlot(_RUN, parity, workers[n % len(workers)], n // len(workers)) for n in range(tasks)
    ]
    return [
        Participant(sink.participant(slot), ProducerIdentity(_RUN.producer_id + 1 + n, _RUN.epoch))
        for n, slot in enumerate(slots)
    ]


def by_partition(names: Sequence[str], partitions: int) -> Counter[int]:
    """How many of the names each partition of `__transaction_state` has."""
    return Counter(partition_of(name, partitions) for name in names)


def by_node(names: Sequence[str], leaders: Mapping[int, int]) -> dict[int, list[int]]:
    """Positions in `names` by coordinating node, as the driver takes them up. `leaders`: of each partition of
    `__transaction_state`."""
    nodes: dict[int, list[int]] = {}
    for at, name in enumerate(names):
        nodes.setdefault(leaders[partition_of(name, len(leaders))], []).append(at)
    return nodes


def spread(partitions: int, nodes: int) -> dict[int, int]:
    """Leaders as a new cluster has them: in turns."""
    return {partition: partition % nodes for partition in range(partitions)}


def decision_chunks(sink: Sink, transactions: Sequence[Participant], topic: str, partitions: int) -> int:
    """Partitions of `__consumer_offsets` that the decision of the batch takes; each task wrote 1,000 rows."""
    winners = tuple(Winner(n, who) for n, who in enumerate(transactions))
    written = tuple((topic, n) for n in range(partitions))
    batch = Batch("00000000-0000-0000-0000-000000000000", 1_000, "0" * 16)
    rows = (1_000,) * len(winners)
    return len(encode(Decision(1_000, batch, _RUN, winners, written, rows), sink, _MANY))


# -- counts ----------------------------------------------------------------------------------------

TV2 = 2
BEGIN, TASKS, COMMIT = "begin", "tasks", "commit"
Requests = Mapping[str, int]
"""How many of each API."""


@dataclass(frozen=True)
class MicroBatch:
    """`at_a_time`: tasks that run side by side. `leaders`: nodes that lead the partitions a task writes to,
    `written`: those partitions. `coordinators`: nodes that coordinate a task of this batch, `asked`: nodes
    that the driver asks about the transactions of this batch, of the one before and of its own. `sealed`:
    the cluster offers two-phase commit and the query uses it. `together`: a coordinator ends all of its
    transactions by one request (the bundled broker). `groups`: 2 with kafka.group.id. `looks`: how often
    the driver looks whether all markers are written.
    """

    tasks: int
    at_a_time: int = 1
    nodes: int = 1
    coordinators: int = 1
    asked: int = 1
    leaders: int = 1
    written: int = 1
    transaction_version: int = TV2
    sealed: bool = False
    together: bool = False
    groups: int = 1
    looks: int = 1

    def requests(self) -> dict[str, Requests]:
        """What clients send, by phase."""
        old = self.transaction_version < TV2
        listing = Counter(Metadata=2 * self.nodes, ListTransactions=self.nodes)
        begin = listing + Counter(DescribeTransactions=1, OffsetFetch=1, InitProducerId=int(old))
        tasks = Counter(
            InitProducerId=self.tasks,
            AddPartitionsToTxn=self.tasks * old,
            Produce=self.tasks * self.leaders,
            DescribeTransactions=self.tasks,
        )
        commit = listing + Counter(
            OffsetFetch=1,
            InitProducerId=self.tasks * self.sealed,
            AddOffsetsToTxn=self.groups * old,
            TxnOffsetCommit=self.groups,
            DescribeTransactions=self.asked + (0 if self.together else self.looks * self.coordinators),
            EndTxn=1 + (self.coordinators if self.together else self.tasks),
        )
        return {BEGIN: begin, TASKS: +tasks, COMMIT: commit}

    @property
    def state_records(self) -> int:
        """Records in `__transaction_state`. Of a task: Empty, Ongoing by each leader that asks for it (one
        with transaction.version 1: the client asks), sealed, PrepareCommit, CompleteCommit. Of the driver:
        Ongoing for each group, PrepareCommit, CompleteCommit, and Empty with transaction.version 1."""
        old = self.transaction_version < TV2
        task = 1 + (1 if old else self.leaders) + self.sealed + 2
        return self.tasks * task + self.groups + 2 + old

    @property
    def markers(self) -> int:
        """Control records in the topics that are written to."""
        return self.tasks * self.written

    def connections(self, drivers: int = 2) -> int:
        """Open connections to the cluster, when its processes have met all nodes. A worker has one to each
        node for requests and one to each that leads a partition it writes to; of the driver's two processes,
        begin and commit, each has one to each node for requests and one for the list of transactions."""
        return self.at_a_time * 2 * self.nodes + drivers * 2 * self.nodes


def offset_records(chunks: int, source_partitions: int = 0) -> int:
    """Records in `__consumer_offsets`: the decision and its marker; and with kafka.group.id the source's
    offsets and their marker, if that group is on another partition."""
    return chunks + 1 + (source_partitions + 1 if source_partitions else 0)


# -- times -----------------------------------------------------------------------------------------

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


# -- nodes with machines of their own --------------------------------------------------------------


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
    )


def _later(cost: Cost, ms: float) -> Cost:
    return Cost(cost.alone + ms, cost.each)
