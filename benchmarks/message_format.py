"""How many bytes the message format adds: read off what a stock client's batches look like in the log.

The table is that of KIP-98: messages of 50 bytes with keys of 100 bytes. Its draft had a header of 53 bytes
and 7 bytes a record; the released header has 61. The format before it added 34 bytes to every message.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks.scale import Client, create
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import iter_headers
from eoslog.testing import EmbeddedBroker

OLD = 34
DRAFT_HEADER, DRAFT_RECORD = 53, 7


class Overhead(NamedTuple):
    """Bytes that a batch adds to `records` messages; with its payload in `payload`."""

    records: int
    payload: int
    added: int

    @property
    def old(self) -> int:
        """The same in the format before."""
        return OLD * self.records

    @property
    def draft(self) -> int:
        """The same as KIP-98 reckoned."""
        return DRAFT_HEADER + DRAFT_RECORD * self.records

    @property
    def saved(self) -> float:
        """The share of the old format's bytes, payload included, that is saved."""
        return 1 - (self.payload + self.added) / (self.payload + self.old)


def measure(cases: list[tuple[int, int, int]]) -> list[Overhead]:
    """For (records, key size, value size), 0 for no key: one batch each, by confluent-kafka."""
    with EmbeddedBroker() as running:
        client = Client(running)
        found = []
        topics = (f"format-{number}" for number in itertools.count())
        for records, key, value in cases:
            size = None
            while size is None:  # librdkafka may send a part of them first
                topic = next(topics)
                create(client, topic, 1)
                _send(running.bootstrap, topic, records, b"k" * key if key else None, b"v" * value)
                size = _bytes(client, topic, records)
            payload = records * (key + value)
            found.append(Overhead(records, payload, size - payload))
        client.close()
    return found


def _send(bootstrap: str, topic: str, records: int, key: bytes | None, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 500, "log_level": 0})
    for _ in range(records):
        producer.produce(topic, value, key=key, partition=0)
    assert producer.flush(30) == 0


def _bytes(client: Client, topic: str, records: int) -> int | None:
    """Size of the batch of all a topic's records; None if they came in several."""
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    answer = client.call(
        ApiKey.FETCH, 12, replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
        topics=[{"topic": topic, "partitions": [wanted]}], rack_id="",
    )  # fmt: skip
    headers = [header for _, header in iter_headers(answer["responses"][0]["partitions"][0]["records"])]
    assert sum(header.count for header in headers) == records
    return headers[0].size if len(headers) == 1 else None
