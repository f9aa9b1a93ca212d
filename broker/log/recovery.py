"""Opens the log of a partition: finds its segments, its end, and the states of its producers.

After an orderly shutdown the indexes and the last snapshot are trusted. Otherwise every batch from the
segment of the recovery point on is read and its CRC checked:

- a damaged batch with nothing valid after it is a torn tail, a write that a crash interrupted: it is cut off
  and reported;
- a damaged batch with valid ones after it, or below the recovery point, was acknowledged. To cut it off would
  lose it silently, so the partition does not start: `DamagedLog`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from eoslog.broker.log import files, producer_snapshot
from eoslog.broker.log.files import SegmentFiles
from eoslog.broker.log.index import BadIndex
from eoslog.broker.log.leftovers import finish
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.scan import DamagedBatch, batches, headers
from eoslog.broker.log.segment import Segment
from eoslog.broker.ports import File, FileSystem
from eoslog.broker.rules.producer_state import AbortedTransaction, ProducerStates
from eoslog.protocol.batch import (
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    CorruptBatch,
    crc_ok,
    likely_headers,
    read_header,
)
from eoslog.protocol.control import ABORT, COMMIT, read_control

logger = logging.getLogger(__name__)
_SEARCH_CHUNK = 8 << 20
WORTH_SKIPPING = 1 << 20
"""A start after a crash uses a saved index only if that spares it reading at least this many bytes."""


@dataclass(frozen=True)
class RecoveryFinding:
    """One line of the recovery report."""

    path: str
    position: int  # in the file, bytes
    offset: int  # of the first record concerned
    text: str

    def __str__(self) -> str:
        return f"{self.path}, position {self.position}, offset {self.offset}: {self.text}"


class DamagedLog(Exception):
    """The log has lost acknowledged records; it must not be used until an operator has looked at it."""

    def __init__(self, finding: RecoveryFinding) -> None:
        super().__init__(str(finding))
        self.finding = finding


@dataclass
class KnownLog:
    """What is known about a log before it is opened."""

    recovery_point: int = 0  # all offsets below were durable
    clean: bool = False  # closed in order: the log ends at the recovery point; set to False if it does not
    leader_epoch: int = 0  # of this run of the broker


def open_segments(
    fs: FileSystem,
    directory: str,
    settings: LogSettings,
    known: KnownLog,
    log_start: int,
    report: list[RecoveryFinding],
) -> list[Segment]:
    """Open the segments of a log that begins at `log_start`, at least one. Cuts off and reports torn tails.

    Raises DamagedLog, and OSError if the disk fails.
    """
    bases = files.offsets_of(finish(fs, directory), files.LOG)
    interval = settings.index_interval_bytes
    gone = below_start(bases, log_start)
    for base in bases[:gone]:  # a crash came before they were renamed
        SegmentFiles(fs, directory, base).remove()
    bases = bases[gone:]
    if not bases:
        written = max(known.recovery_point, log_start)
        if written > 0:
            reason = f"no segment is left, but offsets up to {written} were written"
            raise DamagedLog(RecoveryFinding(directory, 0, 0, reason + _ADVICE))
        segments = [Segment.create(fs, directory, 0, interval)]
        fs.sync_dir(directory)
        return segments
    if bases[0] > log_start:
        raise DamagedLog(RecoveryFinding(directory, 0, log_start, first_missing(bases[0], log_start)))
    segments = [Segment.open(fs, directory, base, interval) for base in bases]
    known.clean = known.clean and _trusted(segments, known.recovery_point)
    if known.clean:
        return _sealed(segments)
    try:
        segments = _Recovery(fs, directory, segments, known.recovery_point, log_start, report).run()
        if segments[-1].next_offset < log_start:
            return _replace_deleted(fs, directory, segments, log_start, interval)
        return _sealed(segments)
    except BaseException:
        for segment in segments:
            segment.close()
        raise


def below_start(bases: list[int], log_start: int) -> int:
    """How many segments, given their ascending `bases`, lie wholly below the log's start."""
    return max((number for number, base in enumerate(bases) if base <= log_start), default=0)


_ADVICE = (
    ". Acknowledged records are damaged, so this partition stays offline. Restore the file from a copy. Or, "
    "to continue without the damaged records and all later ones, cut the file at this position and remove "
    "the partition's later segments. Then start again"
)


def first_missing(base: int, log_start: int) -> str:
    """The error message for a log that begins at `log_start` but whose first segment begins at `base`."""
    return (
        f"the first segment begins at offset {base}, but the log at {log_start}: offsets {log_start} to "
        f"{base - 1} are missing. This partition stays offline. Restore their segments from a copy. Or, to "
        f"continue without them, set the partition's offset in {files.LOG_STARTS} to {base}. Then start again"
    )


def _sealed(segments: list[Segment]) -> list[Segment]:
    for segment in segments[:-1]:
        segment.seal()
    return segments


def _replace_deleted(
    fs: FileSystem, directory: str, segments: list[Segment], start: int, interval: int
) -> list[Segment]:
    """Replace segments that hold only deleted records: power failed before the later ones were synced.

    Clients have seen offsets up to `start`, so these are not used again.
    """
    new = Segment.create(fs, directory, start, interval)
    fs.sync_dir(directory)
    for segment in segments:
        segment.close()
        segment.remove()
    return [new]


def _trusted(segments: list[Segment], end: int) -> bool:
    """Accept the segments as they were closed. False if they do not fit that: they must be recovered."""
    for segment, after in pairwise(segments):
        segment.next_offset = after.base_offset
    try:
        segments[-1].trust()
    except DamagedBatch as damage:
        logger.warning("log was closed in order, but %s; all of it is checked now", damage)
        return False
    return segments[-1].next_offset == end


class _Recovery:
    """Recovers the segments of one log that may not be whole."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        segments: list[Segment],
        point: int,
        log_start: int,
        report: list[RecoveryFinding],
    ) -> None:
        self._fs, self._directory, self._segments = fs, directory, segments
        self._point, self._report = point, report
        if point <= log_start:  # all that is known to be on the disk is deleted
            self._point = 0
        self._changed = False
        self._replaced: set[int] = set()  # segments that had an index already

    def run(self) -> list[Segment]:
        segments = self._segments
        first = max((i for i, s in enumerate(segments) if s.base_offset <= self._point), default=0)
        for segment, after in pairwise(segments[: first + 1]):
            segment.next_offset = after.base_offset
        index = first
        while index < len(segments):
            end = self._recover(index)
            if index + 1 < len(segments) and segments[index + 1].base_offset != end:
                self._drop_after(index, end)
            index += 1
        last = segments[-1]
        if last.next_offset < self._point:
            reason = f"the log ends here, but offsets up to {self._point} were written"
            raise self._damaged(last, last.size, last.next_offset, reason)
        for number, segment in enumerate(segments[first:], first):
            for file in segment.save_indexes():
                # The indexes of a small last segment are rebuilt after the next crash anyway.
                if segment is not last or segment.size >= WORTH_SKIPPING or number in self._replaced:
                    file.sync()
                file.close()
            if segment.next_offset > self._point or self._changed:
                segment.file.sync()
        if self._changed:
            self._fs.sync_dir(self._directory)
        return segments

    def _recover(self, index: int) -> int:
        """Read one segment. Returns the offset after its last whole batch.

        Compaction leaves gaps between the batches of a segment, but not at its end, nor in the last segment.
        """
        gaps = index + 1 < len(self._segments)
        segment = self._segments[index]
        size = segment.size
        if segment.resume(self._point, WORTH_SKIPPING):
            self._replaced.add(index)
        try:
            for position, header, _ in batches(segment.file, segment.size, size):
                if header.base_offset < segment.next_offset or (
                    header.base_offset > segment.next_offset and not gaps
                ):
                    reason = f"batch of offset {header.base_offset} where {segment.next_offset} must follow"
                    raise DamagedBatch(segment.path, position, reason)
                segment.adopt(header)
        except DamagedBatch as damage:
            self._cut(index, size, damage)
        return segment.next_offset

    def _cut(self, index: int, size: int, damage: DamagedBatch) -> None:
        segment = self._segments[index]
        offset, position = segment.next_offset, segment.size
        if offset < self._point:
            reason = f"{damage.reason}, though offsets up to {self._point} were safely written"
            raise self._damaged(segment, position, offset, reason)
        later = [(segment.file, position, size), *((s.file, 0, s.size) for s in self._segments[index + 1 :])]
        for file, start, end in later:
            found = find_valid(file, start, end, offset)
            if found is not None:
                follows = f"offset {found[1]} is in {file.path} at {found[0]}"
                reason = f"{damage.reason}; but a valid batch of {follows}"
                raise self._damaged(segment, position, offset, reason)
        segment.file.truncate(position)
        self._found(segment, position, offset, f"{damage.reason}: tail of {size - position} bytes cut off")

    def _drop_after(self, index: int, end: int) -> None:
        """Remove the later segments, left by a roll that a crash undid. They must hold no valid batch."""
        for segment in self._segments[index + 1 :]:
            found = find_valid(segment.file, 0, segment.size, end)
            if found is not None:
                reason = f"segment starts at offset {segment.base_offset}, but the one before ends at {end}"
                raise self._damaged(segment, 0, end, reason)
            self._found(segment, 0, segment.base_offset, "segment without a valid batch removed")
            segment.close()
            segment.remove()
        del self._segments[index + 1 :]

    def _found(self, segment: Segment, position: int, offset: int, text: str) -> None:
        finding = RecoveryFinding(segment.path, position, offset, text)
        logger.warning("%s", finding)
        self._report.append(finding)
        self._changed = True

    def _damaged(self, segment: Segment, position: int, offset: int, reason: str) -> DamagedLog:
        return DamagedLog(RecoveryFinding(segment.path, position, offset, reason + _ADVICE))


def find_valid(file: File, position: int, end: int, offset: int) -> tuple[int, int] | None:
    """(position, offset) of the first whole valid batch at `offset` or above after a damaged one, or None."""
    overlap = HEADER_SIZE
    while position < end:
        data = file.read(min(_SEARCH_CHUNK, end - position), position)
        for at in likely_headers(data):
            header = _plausible(data, at, position, end, offset)
            if header is not None and crc_ok(file.read(header.size, position + at), 0, header):
                return position + at, header.base_offset
        if position + len(data) >= end:
            return None
        position += len(data) - overlap
    return None


def _plausible(data: bytes, at: int, start: int, end: int, offset: int) -> BatchHeader | None:
    if len(data) - at < HEADER_SIZE:
        return None
    try:
        header = read_header(data, at)
    except CorruptBatch:  # the bytes only look like a batch: the search continues
        return None
    fits = start + at + header.size <= end and header.count == header.last_offset_delta + 1
    return header if fits and header.base_offset >= offset else None


# -- producers -------------------------------------------------------------------------------------


def load_producers(
    fs: FileSystem, directory: str, segments: list[Segment], now_ms: int, expiration_ms: int
) -> ProducerStates:
    """Rebuild the producer states and transaction indexes from the last good snapshot and the log after it.

    Raises OSError, DamagedBatch.
    """
    end = segments[-1].next_offset
    states, start = _from_snapshot(fs, directory, end)
    try:
        for segment in segments:
            ended = segment.next_offset <= start and segment is not segments[-1]
            segment.transactions.load(start, ended)
    except BadIndex as error:
        logger.warning("%s; the transaction indexes are rebuilt from the whole log", error)
        states, start = ProducerStates(), segments[0].base_offset
        for segment in segments:
            segment.transactions.clear()
    for segment in segments:
        if segment.next_offset > start:
            for aborted in _replay(segment, start, states, now_ms):
                segment.transactions.append(aborted)
            if segment is not segments[-1]:  # the next snapshot comes with a sync of the last one alone
                segment.transactions.sync()
    states.expire(now_ms, expiration_ms)
    return states


def _from_snapshot(fs: FileSystem, directory: str, end: int) -> tuple[ProducerStates, int]:
    """The states in the last snapshot that is whole and not past the log's end, and its offset.

    Later snapshots are removed, durably: one that came back after a power loss, when the log has grown past
    it, would describe batches that a crash has removed.
    """
    states = ProducerStates()
    found, removed = 0, False
    for offset in reversed(files.offsets_of(fs.list(directory), files.SNAPSHOT)):
        path = os.path.join(directory, files.offset_name(offset, files.SNAPSHOT))
        if offset <= end:
            try:
                states.load(producer_snapshot.decode(files.read_whole(fs, path)))
            except producer_snapshot.BadSnapshot as error:
                logger.warning("%s: %s; it is removed and an older one is used", path, error)
            else:
                found = offset
                break
        fs.remove(path)
        removed = True
    if removed:
        fs.sync_dir(directory)
    return states, found


def _replay(
    segment: Segment, start: int, states: ProducerStates, now_ms: int
) -> Iterator[AbortedTransaction]:
    """Apply the batches of a segment from offset `start` on. Yields the entries for its transaction index."""
    found = segment.locate(max(start, segment.base_offset))
    if found is None:
        return
    for position, header in headers(segment.file, found[0], segment.size):
        data = segment.file.read(header.size, position) if header.is_control else b""
        try:
            aborted = replay(states, header, data, now_ms)
        except CorruptBatch as error:
            raise DamagedBatch(segment.path, position, str(error)) from error
        if aborted is not None:
            yield aborted


def replay(
    states: ProducerStates, header: BatchHeader, data: Buffer, now_ms: int
) -> AbortedTransaction | None:
    """Apply the next batch of a log. Returns the new entry of the transaction index, if there is one.

    `data` is the whole batch; it is read only for a control batch. Raises CorruptBatch.
    """
    if header.producer_id < 0:
        return None
    if not header.is_control:
        states.apply(header, header.base_offset, now_ms)
        return None
    if not header.count:  # compacted away
        return None
    control = read_control(data, 0, header)
    if control.type not in (COMMIT, ABORT):
        return None
    return states.apply_marker(
        header.producer_id,
        header.producer_epoch,
        control.coordinator_epoch,
        control.type == COMMIT,
        header.base_offset,
        now_ms,
    )


# -- at a start, and after a disk that failed ------------------------------------------------------
# Reads a log back from its files: at a start, and again when a failed disk may work again.
#
# The records of the partition and the states of its producers then come from the files alone.


PROBE_BYTES = 1 << 16
"""A failed disk is used again only if it has room for this much; with less, the next write would fail too."""
_PROBE = "probe" + files.TEMPORARY  # if a crash leaves this file, the next start removes it


class ReadBack(NamedTuple):
    """The open segments, at least one, all synced, and the producers' states."""

    segments: list[Segment]
    producers: ProducerStates


class Durable(NamedTuple):
    """How many bytes of the last segment, which begins at offset `base`, are known to be on the disk."""

    base: int
    size: int


def read_back(
    fs: FileSystem,
    directory: str,
    settings: LogSettings,
    known: KnownLog,
    log_start: int,
    now_ms: int,
    report: list[RecoveryFinding],
) -> ReadBack:
    """Open the log of a partition. Adds to `report` what was cut off.

    Raises DamagedLog, DamagedBatch, OSError.
    """
    segments = open_segments(fs, directory, settings, known, log_start, report)
    try:
        states = load_producers(fs, directory, segments, now_ms, settings.producer_id_expiration_ms)
    except BaseException:
        for segment in segments:
            segment.close()
        raise
    return ReadBack(segments, states)


def prepare(fs: FileSystem, directory: str, durable: Durable | None) -> None:
    """Prepare to read a log back without a restart: test the disk, and cut off the bytes that no sync covers.

    The kernel may still show such bytes though they are not on the disk, and report their next sync as a
    success. Raises OSError.
    """
    path = os.path.join(directory, _PROBE)
    file = fs.open(path, create=True)
    try:
        if file.write([bytes(PROBE_BYTES)], 0) < PROBE_BYTES:
            raise OSError(f"{path}: no room for {PROBE_BYTES} bytes")
        file.sync()
    finally:
        file.close()
        fs.remove(path)
    if durable is not None:
        _cut(fs, os.path.join(directory, files.offset_name(durable.base, files.LOG)), durable.size)


def _cut(fs: FileSystem, path: str, size: int) -> None:
    file = fs.open(path)
    try:
        if file.size() > size:
            file.truncate(size)
            file.sync()
    finally:
        file.close()
