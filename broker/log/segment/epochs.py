"""Leader epochs: the number of a broker's life, which is stored with every batch that it writes (KIP-101).

A single broker leads its partitions for ever, but not every life goes on where the last one ended: a data
directory may be put back from a copy, or a log lose its tail. A client that stands in what is gone asks
where the epoch of its last record ends (OffsetForLeaderEpoch) and learns it, whatever was written since:
if no two lives have the same epoch, and later ones have higher ones. Within one line of lives a file keeps
the last one. Lives of two lines, of a directory and of its copy, know nothing of each other: the clock keeps
them apart. An epoch is the number of half seconds since 2025, or one more than the last life's; and a life
that has written ends in order only when its half second is over.
"""

from __future__ import annotations

import logging

from eoslog.broker.log.segment import files
from eoslog.broker.ports.ports import FileSystem

_LOG = logging.getLogger(__name__)

TICK_MS = 500
"""Epochs are int32: they last until 2059."""
_BEGIN_MS = 1_735_689_600_000  # 2025-01-01
_WAIT_MS = 4 * TICK_MS
UNDEFINED = -1


def next_epoch(fs: FileSystem, path: str, now_ms: int) -> int:
    """The epoch of the life that begins now, noted at `path` durably. Raises OSError."""
    epoch = max(_last(fs, path) + 1, _tick(now_ms))
    files.write_whole(fs, path, files.encode_checkpoint([str(epoch)]))
    return epoch


def rest_ms(epoch: int, now_ms: int) -> int:
    """How long the time of an epoch still is; 0 where the clock was set back, for waiting would be no use."""
    rest = _BEGIN_MS + (epoch + 1) * TICK_MS - now_ms
    return rest if 0 < rest <= _WAIT_MS else 0


def begun(fs: FileSystem, path: str, epoch: int, base: int, log_start: int) -> None:
    """Put into a partition's leader-epoch-checkpoint that `epoch` begins at offset `base`.

    For Kafka's tools: here the batches themselves tell their epochs, so it needs no sync. Raises OSError.
    """
    known = _rows(fs, path)
    if known and known[-1] == (epoch, base):
        return
    before = [row for row in known if row[0] < epoch and row[1] < base]
    kept = [row for row in before if row[1] > log_start]
    if len(kept) < len(before):
        kept.insert(0, (before[-len(kept) - 1][0], log_start))
    rows = [f"{number} {start}" for number, start in [*kept, (epoch, base)]]
    files.write_whole(fs, path, files.encode_checkpoint(rows), sync=False, sync_dir=False)


def _tick(now_ms: int) -> int:
    return (now_ms - _BEGIN_MS) // TICK_MS


def _last(fs: FileSystem, path: str) -> int:
    if not fs.exists(path):
        return UNDEFINED
    try:
        return max(int(row[0]) for row in files.decode_checkpoint(files.read_whole(fs, path), path))
    except (files.BadFile, ValueError) as error:
        _LOG.warning("%s: %s; the epoch of this life is that of the clock", path, error)
        return UNDEFINED


def _rows(fs: FileSystem, path: str) -> list[tuple[int, int]]:
    """(epoch, first offset); none where a crash has left nothing whole."""
    if not fs.exists(path):
        return []
    try:
        found = files.decode_checkpoint(files.read_whole(fs, path), path)
        return [(int(epoch), int(start)) for epoch, start in found]
    except ValueError as error:
        _LOG.warning("%s: %s; it is begun anew", path, error)
        return []
