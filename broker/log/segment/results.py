"""The name of a partition, and the results of its methods."""

from __future__ import annotations

from typing import NamedTuple

from eoslog.broker.ports.ports import Buffer


class Appended(NamedTuple):
    """Where a batch lies. `log_append_time` is -1 unless the topic stamps records with the broker's time."""

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int


class ReadResult(NamedTuple):
    """Batches as stored. The first may begin below the requested offset, the last may be cut."""

    records: Buffer
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None  # (producer id, first offset); None unless `committed` was given


class PartitionPlace(NamedTuple):
    """The identity of a partition, and its directory."""

    topic: str
    number: int
    topic_id: bytes
    directory: str


class Unchecked(NamedTuple):
    """The part of a segment that must still be checked: `size` bytes of a file, with the offsets from `base`
    up to, not including, `end`. `end` None: the segment is written to, and ends where the file ended. `gaps`:
    compaction may have left gaps."""

    path: str
    size: int
    base: int
    end: int | None
    gaps: bool
