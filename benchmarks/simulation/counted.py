"""Counts at real brokers: what a batch has sent, and what it has written to the coordinators' topics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from benchmarks.simulation.micro_batch import BEGIN, COMMIT, TASKS
from benchmarks.simulation.query import Query
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.commands import FetchStored, demand

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
Seen = Callable[[], Mapping[str, int]]
"""Requests of each API that the query's client has sent so far."""
_SETTLED_SECONDS = 10.0


class Counted(NamedTuple):
    """What a micro-batch asked for and what was written. `chunks`: of its decision."""

    requests: dict[str, dict[str, int]]
    state_records: int
    offset_records: int
    markers: int
    chunks: int


def counted(query: Query, tasks: int, seen: Seen) -> Counted:
    """Run the query's next batch."""
    with Cluster(replace(query.config, client_id="counts")) as other:
        before = {topic: settled(other, topic) for topic in (STATE, OFFSETS, query.topic)}
        requests, counts = {}, [Counter(seen())]
        begun = query.begin()
        counts.append(Counter(seen()))
        reports = query.tasks(begun, tasks)
        counts.append(Counter(seen()))
        query.commit(reports)
        counts.append(Counter(seen()))
        for phase, was, now in zip((BEGIN, TASKS, COMMIT), counts[:-1], counts[1:], strict=True):
            requests[phase] = dict(now - was)
        wrote = {topic: settled(other, topic) - end for topic, end in before.items()}
    stored = query.runner.run(demand(FetchStored(query.sink.group), "the decision"))
    newest = max(offset for offset, _ in stored.chunks.values())
    chunks = sum(offset == newest for offset, _ in stored.chunks.values())
    rows = sum(report.rows for report in reports)
    return Counted(requests, wrote[STATE], wrote[OFFSETS], wrote[query.topic] - rows, chunks)


def settled(cluster: Cluster, topic: str) -> int:
    """Records that the topic has had, when no more come. Raises TimeoutError."""
    cluster.forget_topic(topic)
    places = {(topic, partition): LATEST for partition in cluster.topic(topic).leaders}
    until, last = time.monotonic() + _SETTLED_SECONDS, -1
    while time.monotonic() < until:
        now = sum(list_offsets(cluster, places, committed=False).values())
        if now == last and now == sum(list_offsets(cluster, places, committed=True).values()):
            return now
        last = now
        time.sleep(0.1)
    raise TimeoutError(f"{topic} still grows after {_SETTLED_SECONDS} s")
