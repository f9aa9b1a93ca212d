"""Leader epochs: the number of a broker's run, which is stored with every batch that it writes (KIP-101).

A single broker always leads its partitions, but a run may not continue where the last one ended: the data
directory may be restored from a copy, or a log may lose its tail. A client whose position is in a lost part
asks where the epoch of its last record ends (OffsetForLeaderEpoch). The answer is right, whatever was written
since, if no two runs have the same epoch and later runs have higher ones.

A file in the data directory keeps the last epoch. A directory and its copy do not know of each other's runs:
the clock keeps their epochs apart. An epoch is the number of half seconds since 2025. If the clock is behind
the last run's, chance keeps them apart: it is up to LEAP higher than that one.
A run that has written waits, at an orderly shutdown, until its half second is over.
Brokers that run at the same time on one machine have each other's epochs before them: a run claims its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import randrange

from eoslog.broker.log import files
from eoslog.broker.ports import FileSystem

logger = logging.getLogger(__name__)

TICK_MS = 500
"""Epochs are int32: they last until 2059."""
_BEGIN_MS = 1_735_689_600_000  # 2025-01-01
_WAIT_MS = 4 * TICK_MS
LEAP = 1024
"""Few enough for a broker that is started each minute, on a clock that is never set right."""
UNDEFINED = -1


def next_epoch(
    fs: FileSystem, path: str, now_ms: int, claim: Callable[[int], bool] = lambda epoch: True
) -> int:
    """The epoch of the run that begins now, stored at `path` durably. Raises OSError.

    `claim` says whether no broker that runs now has an epoch; it is this run's then.
    """
    last, now = _last(fs, path), _tick(now_ms)
    epoch = max(last + 1, now)
    if last - now > _WAIT_MS // TICK_MS:
        epoch += randrange(LEAP)
        logger.warning(
            "the clock is %.0f s behind the last start: it was ahead then, or is behind now. Set it right: "
            "until then a copy of this directory may repeat the leader epoch %d",
            (last - now) * TICK_MS / 1000, epoch,
        )  # fmt: skip
    while not claim(epoch):
        epoch += 1
    files.write_whole(fs, path, files.encode_checkpoint([str(epoch)]))
    return epoch


def rest_ms(epoch: int, now_ms: int) -> int:
    """How long the half second of an epoch still lasts; 0 if the clock was set back: do not wait then."""
    rest = _BEGIN_MS + (epoch + 1) * TICK_MS - now_ms
    return rest if 0 < rest <= _WAIT_MS else 0


def begun(fs: FileSystem, path: str, epoch: int, base: int, log_start: int) -> None:
    """Note in a partition's leader-epoch-checkpoint that `epoch` begins at offset `base`.

    The file is for Kafka's tools only: the broker reads epochs from the batches, so it needs no sync. Raises
    OSError.
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
        logger.warning("%s: %s; the epoch of this run is taken from the clock", path, error)
        return UNDEFINED


def _rows(fs: FileSystem, path: str) -> list[tuple[int, int]]:
    """The rows (epoch, first offset); none if a crash has left the file incomplete."""
    if not fs.exists(path):
        return []
    try:
        found = files.decode_checkpoint(files.read_whole(fs, path), path)
        return [(int(epoch), int(start)) for epoch, start in found]
    except ValueError as error:
        logger.warning("%s: %s; it is started again", path, error)
        return []
