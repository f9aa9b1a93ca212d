"""Topics filled quickly: rows made and written as columns, and the same rows hurt in one place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.client.admin import transactions
from eoslog.client.admin.list_offsets import LATEST, list_offsets
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.encode import encode_batches

Numbers = npt.NDArray[np.int64]

PARTITIONS = 4
_BATCH_BYTES = 200_000
_TRANSACTION_MS = 60_000
_PATIENCE_S = 60.0

HURTS = ("nothing", "lost", "doubled", "swapped")
"""What may be wrong with a copy."""


def hurt(how: str, numbers: Numbers) -> Numbers:
    """The rows of one partition, by number, as the copy has them."""
    middle = len(numbers) // 2
    if how == "lost":
        return np.delete(numbers, middle)
    if how == "doubled":
        return np.insert(numbers, middle + 7, numbers[middle])
    if how == "swapped":
        swapped = numbers.copy()
        swapped[[middle, middle + 1]] = swapped[[middle + 1, middle]]
        return swapped
    return numbers


def rows(numbers: Numbers, value_bytes: int) -> tuple[pa.Array, pa.Array]:
    """Keys and values that follow from the rows' numbers; values differ in their first bytes only."""
    texts = pc.cast(pa.array(numbers), pa.string())
    keys = pc.binary_join_element_wise("key-", pc.utf8_lpad(texts, 9, "0"), "")
    return keys, pc.utf8_rpad(pc.binary_join_element_wise("value ", texts, ""), value_bytes, ".")


@contextmanager
def cluster_at(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(ClientConfig(parse_addresses(bootstrap), api_timeout_ms=120_000)) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, partitions: int = PARTITIONS) -> None:
    wanted = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    body = {"topics": [wanted], "timeout_ms": 60_000, "validate_only": False}
    (made,) = cluster.any_broker().call(APIS[ApiKey.CREATE_TOPICS], body)["topics"]
    assert made["error_code"] == 0, made


def fill(
    cluster: Cluster, topic: str, parts: list[Numbers], value_bytes: int = 100, *, codec: int = 0
) -> None:
    """Write rows to the topic's partitions in a transaction, behind one that wrote others and was aborted."""
    now_ms = int(time.time() * 1000)  # older records would fall to retention
    for commit, chosen in ((False, [part[:50] for part in parts]), (True, parts)):
        name = f"fill-{topic}"
        identity = transactions.init_producer_id(cluster, name, _TRANSACTION_MS)
        with Producer(cluster, identity=identity, transactional_id=name) as producer:
            for partition, numbers in enumerate(chosen):
                keys, values = rows(numbers, value_bytes)
                batches = encode_batches(
                    keys, values, None, now_ms, codec=codec, max_batch_bytes=_BATCH_BYTES
                )
                for batch in batches:
                    producer.send(topic, partition, batch)
            producer.flush()
        transactions.end_txn(cluster, name, identity, commit)
    wait_until_seen(cluster, topic, len(parts))


def wait_until_seen(cluster: Cluster, topic: str, partitions: int) -> None:
    """Wait until no transaction hides anything: Kafka answers EndTxn before the markers are written."""
    where = [(topic, partition) for partition in range(partitions)]
    end = time.monotonic() + _PATIENCE_S
    while list_offsets(cluster, dict.fromkeys(where, LATEST), committed=True) != list_offsets(
        cluster, dict.fromkeys(where, LATEST), committed=False
    ):
        assert time.monotonic() < end, f"a transaction on {topic} does not end"
        time.sleep(0.02)


def split(count: int, partitions: int = PARTITIONS) -> list[Numbers]:
    """Row numbers of each partition."""
    return [np.arange(first, count, partitions) for first in range(partitions)]
