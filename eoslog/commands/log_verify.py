"""Checks a log's files against each other: batches, their order, indexes, snapshots, checkpoints.

Reads every byte of every segment once, and changes nothing. A log that was not closed in order may have
indexes that lag behind, which is no finding; one that says something wrong is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from eoslog.broker.log import files, snapshot
from eoslog.broker.log.scan import DamagedBatch, batches
from eoslog.commands.log_files import (
    ReadOnlyFile,
    base_offset,
    offset_entries,
    time_entries,
    transaction_entries,
    whole,
    with_suffix,
)
from eoslog.protocol.batch import ABORT, BatchHeader, CorruptBatch, read_control

Entries = list[tuple[int, int]]


@dataclass(frozen=True)
class Finding:
    """Something wrong, at a byte position of a file; 0 where it is about the whole file."""

    path: str
    position: int
    text: str


@dataclass
class Report:
    """What was looked at, and what was found."""

    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("partitions", "segments", "batches", "bytes"), 0)
    )
    findings: list[Finding] = field(default_factory=list)

    def add(self, path: str, position: int, text: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(path, position, text))


def verify_all(paths: Iterable[str]) -> Report:
    """Verify files, partitions' directories and data directories. Raises OSError."""
    report = Report()
    for path in paths:
        if not os.path.isdir(path):
            _verify_file(path, report)
        elif files.offsets_of(os.listdir(path), files.LOG):
            _Log(path, report).run()
        else:
            _verify_data_dir(path, report)
    return report


def _verify_file(path: str, report: Report) -> None:
    if not path.endswith(files.LOG):
        report.add(path, 0, "verify segments (.log) with their indexes, or directories")
        return
    report.counts["partitions"] += 1
    _Log(os.path.dirname(path) or ".", report).segment(path)


def _verify_data_dir(path: str, report: Report) -> None:
    points = _checkpoint(os.path.join(path, files.RECOVERY_POINTS), report)
    looked_at = 0
    for name in sorted(os.listdir(path)):
        place = os.path.join(path, name)
        if not os.path.isdir(place) or name.endswith(files.DELETED):
            continue
        topic, _, index = name.rpartition("-")
        if not topic or not index.isdigit():
            continue
        looked_at += 1
        end = _Log(place, report).run()
        point = points.get((topic, int(index)), 0)
        if end < point:
            report.add(place, 0, f"the log ends at {end}, but all up to {point} was durable once")
    if not looked_at:
        report.add(path, 0, "no partition's directory is in here")


def _checkpoint(path: str, report: Report) -> dict[tuple[str, int], int]:
    if not os.path.exists(path):
        return {}
    try:
        return files.decode_offsets(whole(path), path)
    except files.BadFile as error:
        report.add(path, 0, str(error))
        return {}


class _Log:
    """One partition's directory, its segments in order."""

    def __init__(self, directory: str, report: Report) -> None:
        self._directory, self._report = directory, report
        self._end = -1  # offset after the last batch so far
        self._open: dict[int, int] = {}  # producer id -> first offset of its open transaction

    def run(self) -> int:
        """Verify all segments and snapshots; answers the offset at which the log ends."""
        names = os.listdir(self._directory)
        self._report.counts["partitions"] += 1
        for base in files.offsets_of(names, files.LOG):
            self.segment(os.path.join(self._directory, files.offset_name(base, files.LOG)))
        for offset in files.offsets_of(names, files.SNAPSHOT):
            self._snapshot(os.path.join(self._directory, files.offset_name(offset, files.SNAPSHOT)))
        return max(self._end, 0)

    def segment(self, path: str) -> None:
        """Verify a segment with its indexes."""
        base = base_offset(path)
        if base < self._end:
            self._report.add(
                path, 0, f"begins at offset {base}, but the segment before it ends at {self._end}"
            )
        self._end = max(self._end, base)
        self._report.counts["segments"] += 1
        checks: list[_OffsetIndex | _TimeIndex] = [
            _OffsetIndex(self._index(path, files.INDEX, offset_entries)),
            _TimeIndex(self._index(path, files.TIME_INDEX, time_entries)),
        ]
        aborted: list[tuple[int, int]] = []
        file = ReadOnlyFile(path)
        try:
            for position, header, data in batches(file, 0, file.size()):
                self._batch(path, position, header)
                aborted += self._transaction(path, position, header, data)
                for check in checks:
                    for text in check.batch(position, header):
                        self._report.add(with_suffix(path, check.suffix), 0, text)
                self._report.counts["bytes"] += header.size
            for check in checks:
                for text in check.rest():
                    self._report.add(with_suffix(path, check.suffix), 0, text)
        except DamagedBatch as damage:
            self._report.add(path, damage.position, damage.reason)
        finally:
            file.close()
        self._transaction_index(path, aborted)

    def _batch(self, path: str, position: int, header: BatchHeader) -> None:
        self._report.counts["batches"] += 1
        if header.base_offset < self._end:
            self._report.add(
                path, position, f"batch of offset {header.base_offset} comes after offset {self._end - 1}"
            )
        if header.count > header.last_offset_delta + 1:
            self._report.add(
                path, position,
                f"batch of offset {header.base_offset} has {header.count} records for "
                f"{header.last_offset_delta + 1} offsets",
            )  # fmt: skip
        self._end = max(self._end, header.next_offset)

    def _transaction(
        self, path: str, position: int, header: BatchHeader, data: memoryview
    ) -> list[tuple[int, int]]:
        """Follow the transactions; answers (producer id, marker's offset) of one that was aborted here."""
        if not header.is_control:
            if header.is_transactional:
                self._open.setdefault(header.producer_id, header.base_offset)
            return []
        try:
            kind = read_control(data, 0, header).type
        except CorruptBatch as error:
            self._report.add(path, position, str(error))
            return []
        began = self._open.pop(header.producer_id, None)
        return [(header.producer_id, header.base_offset)] if kind == ABORT and began is not None else []

    def _index(self, path: str, suffix: str, read: Callable[[str], Iterable[tuple[int, int]]]) -> Entries:
        place = with_suffix(path, suffix)
        if not os.path.exists(place):
            return []
        try:
            return list(read(place))
        except ValueError as error:
            self._report.add(place, 0, str(error))
            return []

    def _transaction_index(self, path: str, aborted: list[tuple[int, int]]) -> None:
        """Each transaction aborted in this segment has its entry: without it readers see aborted records."""
        place = with_suffix(path, files.TXN_INDEX)
        try:
            found = list(transaction_entries(place)) if os.path.exists(place) else []
        except ValueError as error:
            self._report.add(place, 0, str(error))
            return
        listed = {(entry[1], entry[3]) for entry in found}
        for producer_id, offset in sorted(set(aborted) - listed, key=lambda pair: pair[1]):
            text = f"the transaction of producer id {producer_id}, aborted at offset {offset}, is missing"
            self._report.add(place, 0, text)

    def _snapshot(self, path: str) -> None:
        try:
            snapshot.decode(whole(path))
        except snapshot.BadSnapshot as error:
            self._report.add(path, 0, str(error))


class _OffsetIndex:
    """An `.index` beside the batches of its segment: each entry is a batch's position and an offset in it."""

    suffix = files.INDEX

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._next = 0

    def batch(self, position: int, header: BatchHeader) -> Iterator[str]:
        """Compare with the segment's next batch; yields what is wrong."""
        while self._next < len(self._entries) and self._entries[self._next][1] <= position:
            offset, at = self._entries[self._next]
            self._next += 1
            if at != position:
                yield f"offset {offset} is said to be at position {at}, where no batch begins"
            elif not header.base_offset <= offset <= header.last_offset:
                yield (
                    f"offset {offset} is said to be at position {at}, where the batch of offset "
                    f"{header.base_offset} is"
                )

    def rest(self) -> Iterator[str]:
        """What is left when the segment has ended."""
        for offset, at in self._entries[self._next :]:
            yield f"offset {offset} is said to be at position {at}, after the segment's end"


class _TimeIndex:
    """A `.timeindex` beside its segment: each entry is the time and an offset of the batch that has it."""

    suffix = files.TIME_INDEX

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._next = 0

    def batch(self, position: int, header: BatchHeader) -> Iterator[str]:
        """Compare with the segment's next batch; yields what is wrong."""
        while self._next < len(self._entries) and self._entries[self._next][1] <= header.last_offset:
            timestamp, offset = self._entries[self._next]
            self._next += 1
            if timestamp > header.max_timestamp and offset >= header.base_offset:
                yield f"time {timestamp} is said to be at offset {offset}, whose batch is older"

    def rest(self) -> Iterator[str]:
        """What is left when the segment has ended."""
        for timestamp, offset in self._entries[self._next :]:
            yield f"time {timestamp} is said to be at offset {offset}, after the segment's end"
