"""How long readers of committed rows saw only a part of a batch: from the times in its markers, so that
nobody has to watch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from benchmarks.simulation.counted import settled
from benchmarks.starts import PARTITIONS
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import BatchHeader, iter_headers
from eoslog.protocol.typed import FETCH

if TYPE_CHECKING:
    from eoslog.protocol.typed import FetchRequestDraft

_BY_NAME = 12
_MOST_BYTES = 50 << 20


def ends(cluster: Cluster, topic: str) -> dict[int, int]:
    """Where each partition ends, when all transactions on it are over."""
    settled(cluster, topic)
    places = {(topic, n): LATEST for n in range(PARTITIONS)}
    return {n: end for (_, n), end in list_offsets(cluster, places, committed=False).items()}


def in_part_ms(cluster: Cluster, topic: str, since: dict[int, int]) -> float:
    """Of the transactions behind these offsets. A partition's readers see nothing before the end of the
    transaction that wrote to it first."""
    until = ends(cluster, topic)
    shown, last = [], 0
    for partition, start in since.items():
        if until[partition] == start:
            continue
        headers = list(_headers(cluster, topic, partition, start, until[partition]))
        markers = {h.producer_id: h.max_timestamp for h in headers if h.is_control}
        shown.append(markers[headers[0].producer_id])
        last = max(last, *markers.values())
    return float(last - min(shown))


def _headers(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> Iterable[BatchHeader]:
    while start < end:
        body: FetchRequestDraft = {
            "replica_id": -1,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": _MOST_BYTES,
            "isolation_level": 0,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": partition, "fetch_offset": start, "partition_max_bytes": _MOST_BYTES}
                    ],
                }
            ],
        }
        connection = cluster.leader(topic, partition)
        version = connection.pick(ApiKey.FETCH, max_version=_BY_NAME)
        found = connection.call(FETCH, body, version=version)["responses"][0]["partitions"][0]
        assert not found["error_code"], found["error_code"]
        for _, header in iter_headers(found["records"] or b""):
            if header.base_offset >= start:
                yield header
                start = header.next_offset
