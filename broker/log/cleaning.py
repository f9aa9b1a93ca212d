"""A run of compaction, in a thread: opens batches, and rewrites segments without superseded records."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from eoslog.broker.log.compaction import CleaningPlan, KeyMap, SealedSegment, TransactionEndings, survivors
from eoslog.broker.log.durability import sync_and_close
from eoslog.broker.log.index import INT32_MAX
from eoslog.broker.log.leftovers import give_up
from eoslog.broker.log.scan import batches
from eoslog.broker.log.segment import Segment
from eoslog.broker.ports import Buffer, FileSystem
from eoslog.protocol import compression
from eoslog.protocol.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    length_with,
    seal,
)
from eoslog.protocol.control import read_control
from eoslog.protocol.layout import Span, lay_out, open_sections
from eoslog.protocol.plain_records import read_varint, write_varint

# -- opened batch ----------------------------------------------------------------------------------
# Opens record batches for compaction, many at once: keys, offsets and the position of each record.
#
# A batch that loses records is rewritten from the bytes of those that stay: their offsets and times are
# relative to the batch's base offset and base timestamp, which do not change. Only a new delete horizon
# changes the times (KIP-534: the base timestamp then is the horizon).


@dataclass(frozen=True)
class OpenedBatch:
    """A data batch with its records. `spans`: where each record lies in `section`, which is decompressed."""

    header: BatchHeader
    raw: memoryview  # the whole batch as it is stored
    section: memoryview
    keys: list[bytes | None]
    offsets: list[int]
    tombstones: list[bool]
    timestamps: list[int]
    spans: list[tuple[int, int]]


def open_batches(found: Sequence[tuple[BatchHeader, memoryview]]) -> Iterator[OpenedBatch]:
    """Open data batches, each whole and with at least one record. Raises CorruptBatch."""
    if not found:
        return
    parts: list[Buffer] = []
    plain: list[tuple[int, BatchHeader]] = []
    size = 0
    for header, data in found:
        section = _section(header, data)
        attributes = header.attributes & ~CODEC_MASK
        length = length_with(len(section))
        plain.append((size, header._replace(attributes=attributes, length=length)))
        parts += [bytes(HEADER_SIZE), section]
        size += HEADER_SIZE + len(section)
    buffer = b"".join(parts)
    records = lay_out(open_sections(buffer, plain, False, len(buffer)))
    stops, offsets, times = records.stops.tolist(), records.offsets().tolist(), records.times().tolist()
    keys, tombstones = _keys(buffer, records.key), (records.value.lengths < 0).tolist()
    view, row = memoryview(buffer), 0
    for (header, data), (at, whole) in zip(found, plain, strict=True):
        begin, end = at + HEADER_SIZE, at + whole.size
        rows = slice(row, row + header.count)
        mine = [stop - begin for stop in stops[rows]]
        spans = list(zip([0, *mine[:-1]], mine, strict=True))
        yield OpenedBatch(
            header, data, view[begin:end], keys[rows], offsets[rows], tombstones[rows], times[rows], spans
        )
        row += header.count


def _keys(buffer: bytes, span: Span) -> list[bytes | None]:
    places = zip(span.begins.tolist(), span.ends.tolist(), span.lengths.tolist(), strict=True)
    return [buffer[begin:end] if length >= 0 else None for begin, end, length in places]


def _section(header: BatchHeader, data: memoryview) -> Buffer:
    section = data[HEADER_SIZE:]
    if not header.codec:
        return section
    try:
        return compression.decompress(header.codec, section)
    except compression.CompressionError as error:
        raise CorruptBatch(f"batch of offset {header.base_offset}: {error}", header.base_offset) from error


def rewritten(batch: OpenedBatch, stays: Sequence[bool], horizon: int | None) -> list[Buffer]:
    """The batch with only the records that stay, at least one. `horizon`: a new delete horizon, ms."""
    header = batch.header
    rows = [row for row, kept in enumerate(stays) if kept]
    pieces: list[Buffer] = [batch.section[slice(*batch.spans[row])] for row in rows]
    changes: dict[str, int] = {"count": len(rows)}
    if horizon is not None:
        pieces = [_moved(bytes(piece), header.base_timestamp - horizon) for piece in pieces]
        changes |= {"base_timestamp": horizon, "attributes": header.attributes | DELETE_HORIZON}
    if not header.log_append_time:
        changes["max_timestamp"] = max(batch.timestamps[row] for row in rows)
    section: list[Buffer] = [compression.compress(header.codec, pieces)] if header.codec else pieces
    return [seal(section, header._replace(**changes)), *section]


def marked(header: BatchHeader, raw: memoryview, horizon: int) -> list[Buffer]:
    """A control batch with a new delete horizon. Its one record is not compressed."""
    section: list[Buffer] = [_moved(bytes(raw[HEADER_SIZE:]), header.base_timestamp - horizon)]
    attributes = header.attributes | DELETE_HORIZON
    return [seal(section, header._replace(base_timestamp=horizon, attributes=attributes)), *section]


def emptied(header: BatchHeader) -> list[Buffer]:
    """The batch without records: its offsets, producer and sequences."""
    attributes = header.attributes & ~CODEC_MASK & ~DELETE_HORIZON
    return [seal([], header._replace(count=0, attributes=attributes, base_timestamp=header.max_timestamp))]


def _moved(record: bytes, later: int) -> bytes:
    """The record with its time made relative to a base timestamp that lies `later` ms before its old one."""
    _, at = read_varint(record, 0)
    delta, behind = read_varint(record, at + 1)
    body = record[at : at + 1] + write_varint(delta + later) + record[behind:]
    return write_varint(len(body)) + body


# -- cleaning run ----------------------------------------------------------------------------------
# One compaction run over one log: the part that runs in a thread.
#
# It works on a plan (`CleaningPlan`) that was made on the event loop. It reads sealed segments, which are
# not written to any more, through its own open files, and writes `.cleaned` segments beside them. Files in
# use are not touched. The event loop then puts each `.cleaned` segment into the log (`Compacting`), group
# by group, the oldest first, each durable before the next.
#
# Memory: the map of keys (log.cleaner.dedupe.buffer.size), and the records of `CHUNK` bytes of batches, or of
# one batch if it is larger.


CHUNK = 1 << 20

Batch = tuple[BatchHeader, memoryview]


class CleaningStopped(Exception):
    """The run was stopped before it was done."""


class SegmentTooLarge(ValueError):
    """A compacted segment would exceed the largest size of a segment."""


class CleaningRun:
    """The thread's part. Works at most about half of the time, to leave the rest to the event loop."""

    def __init__(
        self, fs: FileSystem, plan: CleaningPlan, memory: int, stop: threading.Event | None = None
    ) -> None:
        """`memory`: bytes of the key map. With `stop` the run pauses at times, and ends when it is set."""
        self._fs, self._plan, self._stop = fs, plan, stop
        self._keys = KeyMap(memory)
        self._decisions = TransactionEndings(plan.aborted)
        self._last_pause = time.monotonic()

    def _pause(self) -> None:
        """Wait as long as the work since the last pause took. Raises Stopped."""
        if self._stop is not None:
            if self._stop.wait(min(time.monotonic() - self._last_pause, 0.1)):
                raise CleaningStopped
            self._last_pause = time.monotonic()

    def _chunks(self, source: SealedSegment) -> Iterator[list[Batch]]:
        """The batches of a segment, CRC checked, about `CHUNK` bytes at a time."""
        file = self._fs.open(source.path)
        try:
            chunk: list[Batch] = []
            size = 0
            for _, header, data in batches(file, 0, source.size):
                if size + header.size > CHUNK and chunk:
                    yield chunk
                    self._pause()
                    chunk, size = [], 0
                chunk.append((header, data))
                size += header.size
            if chunk:
                yield chunk
                self._pause()
        finally:
            file.close()

    # -- the map -------------------------------------------------------------------------------

    def map(self) -> int:
        """Map the keys of the dirty part. Returns the offset up to which the log will be compacted.

        Raises Stopped, DamagedBatch, CorruptBatch, OSError.
        """
        plan = self._plan
        decisions = TransactionEndings(plan.aborted)
        self._keys.latest = plan.first_dirty - 1
        for source in plan.sources:
            if source.next_offset <= plan.first_dirty:
                continue
            for chunk in self._chunks(source):
                for batch in open_batches(list(self._counting(chunk, decisions))):
                    if not self._add(batch):
                        return self._keys.latest + 1
            self._keys.latest = source.next_offset - 1
        return plan.end

    def _counting(self, chunk: list[Batch], decisions: TransactionEndings) -> Iterator[Batch]:
        """The batches whose records count: data that is not aborted."""
        for header, data in chunk:
            if header.is_control:
                if header.count:
                    decisions.end(header, read_control(data, 0, header).type)
            elif not decisions.is_aborted(header) and header.count:
                yield header, data

    def _add(self, batch: OpenedBatch) -> bool:
        first = self._plan.first_dirty
        keys, offsets = batch.keys, batch.offsets
        if offsets[0] < first:
            old = sum(offset < first for offset in offsets)
            keys, offsets = keys[old:], offsets[old:]
        return self._keys.add(keys, offsets)

    # -- a group -------------------------------------------------------------------------------

    def clean(self, group: list[SealedSegment]) -> Segment | None:
        """Write what stays of a group's segments as one `.cleaned` segment. None if nothing changes.

        The content of the new segment's files is durable, their names are not yet: see `leftovers`.
        Raises Stopped, TooLarge, DamagedBatch, CorruptBatch, OSError.
        """
        plan = self._plan
        base = group[0].segment.base_offset
        new = Segment.create(self._fs, plan.directory, base, plan.interval, cleaned=True)
        try:
            changed = len(group) > 1
            for source in group:
                for chunk in self._chunks(source):
                    last = group[-1].next_offset
                    for header, old, parts in self._remaining(chunk, last, new):
                        changed |= parts is not old
                        if parts is not None:
                            self._write(new, header, parts)
            if changed:
                self._make_durable(new)
                return new
        except BaseException:
            self._give_up(new)
            raise
        self._give_up(new)
        return None

    def _give_up(self, new: Segment) -> None:
        new.close()
        with suppress(OSError):  # the next try, or the next start, removes the rest
            give_up(self._fs, self._plan.directory, new.base_offset)

    def _write(self, new: Segment, header: BatchHeader, parts: list[Buffer]) -> None:
        size = sum(map(len, parts))
        if new.size + size > INT32_MAX:
            raise SegmentTooLarge(f"{new.path} would get more than {INT32_MAX} bytes")
        new.append(parts, header._replace(length=length_with(size - HEADER_SIZE)))

    def _make_durable(self, new: Segment) -> None:
        new.file.sync()
        for file in new.save_indexes():
            sync_and_close(file)()
        new.transactions.sync()

    def _remaining(
        self, chunk: list[Batch], end: int, new: Segment
    ) -> Iterator[tuple[BatchHeader, list[Buffer], list[Buffer] | None]]:
        """Each batch as it was, and what of it stays: the same list if all does, None if nothing does."""
        facts = self._plan.facts
        verdicts: list[str | None] = []
        for header, data in chunk:  # in order: `_decisions` follows the transactions
            verdicts.append(self._of_batch(header, data, new))
        opened = open_batches(
            [batch for batch, verdict in zip(chunk, verdicts, strict=True) if verdict == "records"]
        )
        for (header, data), verdict in zip(chunk, verdicts, strict=True):
            old: list[Buffer] = [data]
            last = header.next_offset == end
            if verdict == "records":
                yield self._of_records(next(opened), old, last)
            elif verdict == "marker":
                yield header, old, marked(header, data, facts.horizon)
            elif verdict == "all":
                yield header, old, old
            elif not facts.must_stay(header, last):
                yield header, old, None
            elif header.is_control or not header.count:
                yield header, old, old  # a marker that must stay stays whole
            else:
                yield header._replace(count=0), old, emptied(header)

    def _of_batch(self, header: BatchHeader, data: memoryview, new: Segment) -> str | None:
        """ "records": decide for each; "marker": keep it, with a horizon; "all": keep it; None: drop it."""
        if not header.is_control:
            aborted = self._decisions.is_aborted(header)
            return None if aborted or not header.count else "records"
        if not header.count:
            return None
        unused, entry = self._decisions.end(header, read_control(data, 0, header).type)
        if entry is not None:
            new.transactions.append(entry)
        if not unused:
            return "all"
        if not header.has_delete_horizon:
            return "marker"
        return None if self._plan.facts.expired(header) else "all"

    def _of_records(
        self, batch: OpenedBatch, old: list[Buffer], last: bool
    ) -> tuple[BatchHeader, list[Buffer], list[Buffer] | None]:
        facts, header = self._plan.facts, batch.header
        stays = survivors(
            batch.keys,
            batch.offsets,
            batch.tombstones,
            facts.expired(header),
            self._keys.superseded,
            self._keys.latest,
        )
        if not any(stays):
            if facts.must_stay(header, last):
                return header._replace(count=0), old, emptied(header)
            return header, old, None
        found = any(kept and dead for kept, dead in zip(stays, batch.tombstones, strict=True))
        horizon = facts.horizon if found and not header.has_delete_horizon else None
        if all(stays) and horizon is None:
            return header, old, old
        parts = rewritten(batch, stays, horizon)
        times = [time for time, kept in zip(batch.timestamps, stays, strict=True) if kept]
        top = header.max_timestamp if header.log_append_time else max(times)
        return header._replace(count=sum(stays), max_timestamp=top), old, parts
