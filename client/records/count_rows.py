"""Counts the records of a range of a partition from the headers of its batches; no record is decoded.

Control batches and aborted transactions do not count. A batch that the range cuts is counted by its offsets;
if it was compacted, so that offsets do not tell, that one batch is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.client.records.fetch import FetchedBatches, clip, fetch_batches
from eoslog.client.records.read_committed import Located
from eoslog.client.wire.cluster import Cluster
from eoslog.protocol.records import decode_batches


def count_rows(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    committed: bool,
    topic_id: str | None = None,
) -> Iterator[tuple[int, int]]:
    """How many records with offsets start..end-1 a reader sees: for each answer its records, and the offset
    behind its last visible batch. Raises as fetch()."""
    answers = fetch_batches(cluster, topic, partition, start, end, committed=committed, topic_id=topic_id)
    for answer in answers:
        first = max(answer.position, start)
        rows = sum(_rows(answer, located, first, end) for located in answer.batches)
        yield rows, min(answer.batches[-1][1].next_offset, end) if answer.batches else first


def _rows(answer: FetchedBatches, located: Located, start: int, end: int) -> int:
    """The records of one batch that are in the range."""
    header = located[1]
    if start <= header.base_offset and header.next_offset <= end:
        return header.count
    if header.count == header.last_offset_delta + 1:
        return min(header.next_offset, end) - max(header.base_offset, start)
    return len(clip(decode_batches(answer.records, [located], headers=False), start, end))
