"""What a partition is called and what it answers."""

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
    """Batches as stored; the first may begin below the offset asked for, the last may be cut."""

    records: Buffer
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None  # (producer id, first offset); None unless `committed` was asked


class Place(NamedTuple):
    """Which partition this is, and where."""

    topic: str
    number: int
    topic_id: bytes
    directory: str


class Unchecked(NamedTuple):
    """What is to be read of a segment: a file up to a size, which holds the offsets from `base` to below
    `end`; None: the segment is written to, and its end is where the file ended. `gaps`: compaction may have
    left some."""

    path: str
    size: int
    base: int
    end: int | None
    gaps: bool
