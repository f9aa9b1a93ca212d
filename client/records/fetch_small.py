"""Reads several small ranges at once: one Fetch for each leader, and further ones for what is missing.

For a micro-batch of a few rows, for which tasks would cost more than reading. Anything unexpected is left to
fetch.py, which handles every failure.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from eoslog.client.records.fetch import Gaps, clip, visible
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import Address
from eoslog.client.wire.connection import BrokerConnection
from eoslog.errors import EoslogError
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.decode import DecodedRecords, PayloadTooLarge, decode_batches
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.topic_partitions import by_topic
from eoslog.protocol.typed import FETCH

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        FetchRequestDraft,
        FetchRequestPartitionDraft,
        FetchResponse,
        FetchResponsePartition,
    )


logger = logging.getLogger(__name__)

_BY_ID = 13
"""Fetch names topics by their ids: no record of another topic with the same name is read (KIP-516)."""
_ROUNDS = 4
"""Most answers for one range: its end may be inside of a batch, and a batch may not fit into an answer."""


class OffsetRange(Protocol):
    """The offsets start..end-1 of a partition."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None


class Found(NamedTuple):
    """The records read of a range."""

    wanted: OffsetRange
    records: list[DecodedRecords]


class _NotSmall(Exception):
    """An answer was not as expected; the message says how."""


def fetch_small(
    cluster: Cluster, ranges: Sequence[OffsetRange], *, committed: bool, headers: bool, max_bytes: int
) -> list[Found] | None:
    """All records of the ranges, in order. None: fetch() has to read each range.

    `max_bytes`: the limit of all answers together, and of their records when unpacked.
    """
    try:
        return _Batch(cluster, ranges, committed, headers, max_bytes).read()
    except (_NotSmall, EoslogError, KafkaError, CorruptBatch, PayloadTooLarge) as error:
        logger.debug("a small batch is read by tasks: %s", error)
        return None


class _Batch:
    """The ranges, and how far each one has been read."""

    def __init__(
        self, cluster: Cluster, ranges: Sequence[OffsetRange], committed: bool, headers: bool, max_bytes: int
    ) -> None:
        self._cluster, self._committed, self._headers = cluster, committed, headers
        self._left = self._max_bytes = max_bytes
        self._ranges = {(one.topic, one.partition): one for one in ranges}
        self._ids = {one.topic: _id_of(one) for one in ranges}
        self._topics = {topic_id: topic for topic, topic_id in self._ids.items()}
        self._position = {place: one.start for place, one in self._ranges.items()}
        self._found: dict[tuple[str, int], list[DecodedRecords]] = {place: [] for place in self._ranges}

    def read(self) -> list[Found]:
        for _ in range(_ROUNDS):
            missing = [place for place, one in self._ranges.items() if self._position[place] < one.end]
            if not missing:
                return [Found(one, self._found[place]) for place, one in self._ranges.items()]
            before = dict(self._position)
            for answer in self._ask(missing):
                for topic_id, part in _parts(answer):
                    self._take(topic_id, part)
            if self._position == before:
                raise _NotSmall("nothing came")
        raise _NotSmall(f"{_ROUNDS} answers were not enough")

    def _ask(self, missing: Iterable[tuple[str, int]]) -> Iterator[FetchResponse]:
        leaders: dict[Address, list[tuple[str, int]]] = {}
        for place in missing:
            leaders.setdefault(self._cluster.leader_address(*place), []).append(place)
        asked: list[BrokerConnection] = []
        for places in leaders.values():
            connection = self._cluster.leader(*places[0])
            version = connection.pick(ApiKey.FETCH, max_version=_BY_ID)
            if version < _BY_ID:
                raise _NotSmall("the broker does not know topics by their ids")
            connection.ask(FETCH, self._body(places), version)
            asked.append(connection)
        for connection in asked:
            yield connection.answer(FETCH)

    def _body(self, places: Sequence[tuple[str, int]]) -> FetchRequestDraft:
        most = max(self._left // len(places), 1)
        rows: Iterator[tuple[str, int, FetchRequestPartitionDraft]] = (
            (
                topic,
                number,
                {
                    "partition": number,
                    "fetch_offset": self._position[topic, number],
                    "partition_max_bytes": most,
                },
            )
            for topic, number in places
        )
        config = self._cluster.config
        return {
            "replica_id": -1,
            "max_wait_ms": min(config.fetch_max_wait_ms, config.request_timeout_ms // 2),
            "min_bytes": 1,
            "max_bytes": self._left,
            "isolation_level": int(self._committed),
            "topics": [
                {"topic": topic, "topic_id": self._ids[topic], "partitions": parts}
                for topic, parts in by_topic(rows)
            ],
            "rack_id": "",
        }

    def _take(self, topic_id: bytes, part: FetchResponsePartition) -> None:
        place = self._topics.get(topic_id, ""), part["partition_index"]
        if place not in self._ranges or part["error_code"]:
            raise _NotSmall(f"{place}: error {part['error_code']}")
        records, position, end = part["records"] or b"", self._position[place], self._ranges[place].end
        self._left -= len(records)
        if self._left < 0:
            raise _NotSmall(f"more than {self._max_bytes} bytes")
        aborted = [(a["producer_id"], a["first_offset"]) for a in part["aborted_transactions"] or ()]
        seen = visible(records, position, end, aborted if self._committed else None)
        if seen.missing is not None and not Gaps(self._cluster, *place).are_explained():
            raise _NotSmall(f"offsets {seen.missing} are missing")
        if seen.batches:
            decoded = decode_batches(
                records, seen.batches, headers=self._headers, max_payload=self._max_bytes
            )
            if len(rows := clip(decoded, position, end)):
                self._found[place].append(rows)
        self._position[place] = max(position, seen.next_offset)


def _id_of(wanted: OffsetRange) -> bytes:
    if wanted.topic_id is None:
        raise _NotSmall(f"the id of topic {wanted.topic} is not known")
    return urlsafe_b64decode(wanted.topic_id + "==")


def _parts(answer: FetchResponse) -> Iterator[tuple[bytes, FetchResponsePartition]]:
    if answer["error_code"]:
        raise _NotSmall(f"error {answer['error_code']}")
    for found in answer["responses"]:
        for part in found["partitions"]:
            yield found["topic_id"], part
