"""What is judged at the end of a round: each query's rows by a stock client, and what is left open."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, TopicPartition

from eoslog.client.admin.transaction_states import describe, list_transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from tests.kills.kill_query import MARK, Job
from tests.soaks.copy_audit import Verdict, audit, end_of
from tests.soaks.copy_rows import Row

OPEN_SECONDS = 5.0
"""After the last orderly end, what a sink may have open for so long."""


def unmarked(name: str) -> Callable[[Row], Row]:
    """A row as its source had it: without the header of the query that has to have written it. A row of
    another query, or of none, stays as it is: damaged."""
    mark = (MARK, name.encode())

    def strip(found: Row) -> Row:
        return found._replace(headers=found.headers[:-1]) if found.headers[-1:] == (mark,) else found

    return strip


def verdict_of(job: Job, bootstrap: str, rows: int, partitions: int) -> Verdict:
    """Read the job's target whole and compare it with the rows that the source was given."""
    group = (job.group, job.source) if job.has_group else None
    found = audit(bootstrap, job.target, rows, partitions, group, unmarked(job.name))
    if job.kind == "spark-dedup":
        found.reordered = 0  # its rows went through a shuffle
    return found


def left_open(bootstrap: str, sinks: Sequence[str]) -> dict[str, float]:
    """Transactions of these sinks that are open still, five seconds after their ends: how long each was open
    at the end, in seconds; below 0, it was opened since."""
    ended = time.monotonic()
    while (found := _open(bootstrap, sinks)) and time.monotonic() < ended + OPEN_SECONDS:
        time.sleep(0.2)
    return {name: round(age - (time.monotonic() - ended), 1) for name, age in found.items()}


def _open(bootstrap: str, sinks: Sequence[str]) -> dict[str, float]:
    """What is open, and for how many seconds."""
    with Cluster(ClientConfig(parse_addresses(bootstrap), client_id="auditor")) as cluster:
        listed = [each for sink in sinks for each in list_transactions(cluster, sink, ["Ongoing"])]
        found = describe(cluster, [each.transactional_id for each in listed]) if listed else {}
    return {
        name: time.time() - state.start_ms / 1000
        for name, state in found.items()
        if state is not None and state.state == "Ongoing"
    }


def ends_of(bootstrap: str, topic: str, partitions: int) -> dict[str, int]:
    """Where each partition ends for readers of committed data, as Spark's offsets name it."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "auditor", "log_level": 0})
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found = {str(at.partition): end_of(reader, at) for at in places}
    reader.close()
    return found
