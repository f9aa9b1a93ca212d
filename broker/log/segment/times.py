"""Finds a record of a segment by its timestamp."""

from __future__ import annotations

from eoslog.broker.log.segment.scan import headers
from eoslog.broker.log.segment.segment import Segment
from eoslog.protocol.batch import BatchHeader
from eoslog.protocol.plain_records import iter_records


def first_at_or_after(segment: Segment, timestamp: int, start: int, below: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record at or after `timestamp`, from `start` to below `below`."""
    if segment.newest() < timestamp:
        return None
    entry = segment.indexes.times.floor(timestamp)
    found = segment.locate(max(start, segment.base_offset + entry[1] if entry else segment.base_offset))
    if found is None:
        return None
    for position, header in headers(segment.file, found[0], segment.size):
        if header.base_offset >= below:
            return None
        if header.max_timestamp >= timestamp:
            record = _record_from(segment, position, header, timestamp, start)
            if record is not None:
                return record
    return None


def _record_from(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start: int
) -> tuple[int, int] | None:
    data = segment.file.read(header.size, position)
    for record in iter_records(data, 0, header):
        if record.timestamp >= timestamp and record.offset >= start:
            return record.timestamp, record.offset
    return None


def largest(segment: Segment, start: int, below: int) -> tuple[int, int] | None:
    """Like `first_at_or_after`, for the largest timestamp from offset `start` to below `below`."""
    best, offset = segment.indexes.largest
    if not start <= offset < below:
        end = segment.position_of(below)
        inside = (h for _, h in headers(segment.file, 0, end) if h.last_offset >= start and h.count)
        best = max((header.max_timestamp for header in inside), default=-1)
    return first_at_or_after(segment, best, start, below) if best >= 0 else None
