"""Which of a log's oldest segments may be removed: below the log's start, over its size, over its age. Pure.

Only whole segments, from the oldest on, and only records that every reader could see: nothing above the high
watermark or at or above the last stable offset. The latter is stricter than Kafka, which also removes records
of an open transaction: its commit would then show only a part of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eoslog.broker.log.segment.log_settings import LogSettings


class SegmentSpan(NamedTuple):
    """A segment as retention sees it. `end`: the base offset of the next segment, or the log's end."""

    end: int
    size: int
    newest: int  # ms: the largest time of its records, or of its last write if none has a time


def expendable(
    spans: Sequence[SegmentSpan], settings: LogSettings, now_ms: int, log_start: int, stable: int
) -> int:
    """How many of the oldest segments may be removed. The last span is the active segment.

    It is included only if it is not empty; the caller must roll it first.
    """
    gone = 0
    while gone < len(spans) - 1 and spans[gone].end <= log_start:
        gone += 1
    if not settings.deleted:
        return gone
    most = len(spans) if spans[-1].size else len(spans) - 1
    while most > gone and spans[most - 1].end > stable:
        most -= 1
    if settings.retention_bytes >= 0:
        over = sum(span.size for span in spans[gone:]) - settings.retention_bytes
        while gone < most and over >= spans[gone].size:
            over -= spans[gone].size
            gone += 1
    if settings.retention_ms >= 0:
        while gone < most and now_ms - spans[gone].newest > settings.retention_ms:
            gone += 1
    return gone
