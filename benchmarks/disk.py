"""What the disk takes by itself: an append and its fdatasync, as a flushed acknowledgement needs them."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.context import Context
from benchmarks.lines import FLUSHED, Figure, Goal, Result, Section

SIZES = {
    1_000: "a small record",
    16_384: "a batch of Java's producer",
    5 * 16_384: "five of them",
    1_000_000: "a batch of librdkafka's",
}
_SYNCS = 300
_PAUSE_SECONDS = 0.0005  # between two: a broker has requests to read


def sync_ms(size: int) -> float:
    """The median of appends of `size` bytes with their syncs to a growing file, beside the brokers' data."""
    data, times = os.urandom(size), []
    with tempfile.TemporaryDirectory(prefix="eoslog-disk-") as directory:
        file = os.open(Path(directory) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for _ in range(_SYNCS):
                started = time.perf_counter()
                os.write(file, data)
                os.fdatasync(file)
                times.append(time.perf_counter() - started)
                time.sleep(_PAUSE_SECONDS)
        finally:
            os.close(file)
    return statistics.median(times) * 1000


def alone(context: Context) -> list[Result]:
    turns = {size: [sync_ms(size) for _ in range(context.sizes.rounds)] for size in SIZES}
    figures = [Figure(f"{size:,} bytes: {SIZES[size]}", turns[size], FLUSHED, "none") for size in SIZES]
    return [Result("disk", "this disk alone: append and fdatasync", "ms", Goal("shown"), figures)]


SECTIONS = [Section("disk", alone)]
