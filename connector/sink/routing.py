"""Finds each row's topic and partition, and makes batches of records by partition.

All rows of an Arrow batch are handled at once. One stable sort by destination keeps the order of rows that go
to the same partition.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import SchemaError
from eoslog.protocol.columns import stable_order
from eoslog.protocol.encode import EncodedBatch, encode_batches
from eoslog.protocol.partitioner import NO_PARTITION, murmur2_partition

Ints = npt.NDArray[np.int64]

TOGETHER = 4 << 20
"""Arrow batches of up to this many bytes are encoded for all destinations at once, which takes a third less
time with small rows. With large rows, the copy that this needs costs more than it saves."""


class Destination(NamedTuple):
    """Records for one partition."""

    topic: str
    partition: int
    batch: EncodedBatch


class Router:
    """Turns Arrow batches into record batches with their destination. One for each task.

    `partitions_of` returns a topic's number of partitions. `seed` varies the first partition of rows without
    a key.
    """

    def __init__(
        self,
        partitions_of: Callable[[str], int],
        *,
        topic: str | None,
        codec: int,
        max_batch_bytes: int,
        seed: int = 0,
    ) -> None:
        self._partitions_of, self._topic = partitions_of, topic
        self._codec, self._max_batch_bytes, self._turn = codec, max_batch_bytes, seed

    def route(self, rows: pa.RecordBatch) -> Iterator[Destination]:
        """Record batches of all rows, in the order of the rows within each partition.

        Raises SchemaError for a row without a topic, or with a partition that its topic does not have.
        """
        topics, topic_of = self._topics(rows)
        partition_of = self._partitions(rows, topics, topic_of)
        if not len(rows):
            return
        columns = [column_of(rows, name) for name in ("key", "value", "headers")]
        order, begins = _sorted(topic_of, partition_of)
        small = rows.nbytes <= TOGETHER
        for part in [order] if small else np.split(order, begins):
            taken = columns if not begins else [_take(column, part) for column in columns]
            row = 0
            for batch in self._encode(begins if small else [], *taken):
                first = part[row]
                yield Destination(topics[topic_of[first]], int(partition_of[first]), batch)
                row += batch.count

    def _encode(
        self, begins: list[int], key: pa.Array | None, value: pa.Array | None, headers: pa.Array | None
    ) -> list[EncodedBatch]:
        return encode_batches(
            key, value, headers, int(time.time() * 1000),
            codec=self._codec, max_batch_bytes=self._max_batch_bytes, groups=begins,
        )  # fmt: skip

    def _topics(self, rows: pa.RecordBatch) -> tuple[list[str], Ints]:
        """Names of the topics, and for each row its index among them. The option overrides the column."""
        if self._topic is not None:
            return [self._topic], np.zeros(len(rows), np.int64)
        column = rows.column("topic")
        if column.null_count:
            raise SchemaError(
                f"{column.null_count} of {len(rows)} rows have null in the column 'topic', and the option "
                "topic is not given: fill the column or give the option"
            )
        coded = pc.dictionary_encode(column)
        return coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    def _partitions(self, rows: pa.RecordBatch, topics: list[str], topic_of: Ints) -> Ints:
        """Each row's partition: from its column partition, else its key's hash, else the next one in turn."""
        counts = np.array([self._partitions_of(topic) for topic in topics], np.int64)
        given = column_of(rows, "partition")
        key = column_of(rows, "key")
        if given is None and key is not None and len(topics) == 1 and not key.null_count:
            return murmur2_partition(key, int(counts[0])).astype(np.int64)
        found = np.full(len(rows), NO_PARTITION, np.int64)
        if given is not None:
            found[:] = pc.fill_null(given, NO_PARTITION).to_numpy(zero_copy_only=False)
            self._check_given(given, found, topics, counts, topic_of)
        if key is not None and key.null_count < len(key):
            for number in range(len(topics)):
                mine = np.flatnonzero((topic_of == number) & (found == NO_PARTITION))
                keys = key if len(mine) == len(rows) else _take(key, mine)
                found[mine] = murmur2_partition(keys, int(counts[number]))
        left = found == NO_PARTITION
        if left.any():
            found[left] = self._turn % counts[topic_of[left]]
            self._turn += 1
        return found

    def _check_given(
        self, given: pa.Array, found: Ints, topics: list[str], counts: Ints, topic_of: Ints
    ) -> None:
        wrong = np.flatnonzero(
            given.is_valid().to_numpy(zero_copy_only=False) & ((found < 0) | (found >= counts[topic_of]))
        )
        if len(wrong):
            topic = int(topic_of[wrong[0]])
            raise SchemaError(
                f"{len(wrong)} rows name a partition that does not exist, first {found[wrong[0]]} of topic "
                f"{topics[topic]!r}, which has {counts[topic]}: correct the column 'partition', or leave "
                "it null"
            )


def column_of(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column by its name, or None."""
    index = rows.schema.get_field_index(name)
    return None if index < 0 else rows.column(index)


def _take(column: pa.Array | None, indices: Ints) -> pa.Array | None:
    return None if column is None else column.take(pa.array(indices))


def _sorted(topic_of: Ints, partition_of: Ints) -> tuple[Ints, list[int]]:
    """Row numbers sorted by destination, ascending within each; and the index at which each destination
    begins, except the first."""
    place = topic_of * (int(partition_of.max()) + 1) + partition_of
    order = stable_order(place)
    return order, (np.flatnonzero(np.diff(place[order])) + 1).tolist()
