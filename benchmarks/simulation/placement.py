"""Which coordinator partition and node each transaction of a micro-batch has, and the decision's size. Pure.

Names, hash and decision are the product's own code.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from eoslog.connector.commit.decision import Decision, encode
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Participant, ParticipantSlot, Sink
from eoslog.connector.commit.winner import Winner
from eoslog.protocol.internal_topics.coordinator_records import partition_of
from eoslog.protocol.producer_identity import ProducerIdentity

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
