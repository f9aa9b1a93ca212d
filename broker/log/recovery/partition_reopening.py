"""Reads a log back from its files: at a start, and again when a failed disk may work again.

The records of the partition and the states of its producers then come from the files alone.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from eoslog.broker.log.recovery.recovery import KnownLog, RecoveryFinding, load_producers, open_segments
from eoslog.broker.log.segment import files
from eoslog.broker.log.segment.log_settings import LogSettings
from eoslog.broker.log.segment.segment import Segment
from eoslog.broker.ports.ports import FileSystem
from eoslog.broker.rules.producer_state import ProducerStates

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
