"""Records a second of the vectorised codec, on one core, CRC-32C and headers of batches included.

    python -m benchmarks.codec [--check] [--rounds N] [--codec none|gzip|snappy|lz4|zstd]

Batches are near 900 kB, as the writer makes them, and 16 KiB (about 150 records of 100 bytes), as a JVM
producer leaves them: the latter are decoded as a whole fetch answer of 4 MiB at once. With --check the exit
status is 1 where the best round misses the goals for records of 100 bytes.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eoslog.protocol import compression
from eoslog.protocol.decode import decode_batches
from eoslog.protocol.encode import encode_batches

ENCODE_GOAL, DECODE_GOAL = 3e6, 2e6  # records a second, records of 100 bytes
KEY_SIZE = 10
ANSWER_BYTES = 4 * 1024 * 1024  # of a fetch answer
FIRST_TIME = 1_700_000_000_000


class Case(NamedTuple):
    """Key and value together have `least` to `most` bytes, in batches of up to `batch_bytes`."""

    name: str
    least: int
    most: int
    batch_bytes: int
    judged: bool  # whether the goals hold for it, uncompressed


CASES = [
    Case("100 B, large batches", 100, 100, 900_000, True),
    Case("100 B, 16 KiB batches", 100, 100, 16_384, True),
    Case("60-140 B, large batches", 60, 140, 900_000, True),
    Case("60-140 B, 16 KiB batches", 60, 140, 16_384, True),
    Case("20-300 B, large batches", 20, 300, 900_000, False),
    Case("20-300 B, 16 KiB batches", 20, 300, 16_384, False),
    Case("1,000 B, large batches", 1000, 1000, 900_000, False),
    Case("1,000 B, 16 KiB batches", 1000, 1000, 16_384, False),
]


def column(rng: np.random.Generator, lengths: np.ndarray) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    # Few different bytes, so that compression has something to do.
    data = rng.integers(48, 58, int(offsets[-1]), dtype=np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def seconds(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Best and median of `rounds` runs, after one to warm up."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times), statistics.median(times)


def run(case: Case, codec: int, rounds: int) -> bool:
    """Measure and print one case. Returns whether it met its goals."""
    rng = np.random.default_rng(1)
    count = ANSWER_BYTES // ((case.least + case.most) // 2 + 8)
    keys = column(rng, np.full(count, KEY_SIZE))
    values = column(rng, rng.integers(case.least, case.most + 1, count) - KEY_SIZE)
    times = FIRST_TIME + np.arange(count) // 10

    def encode() -> list[bytes | bytearray | memoryview]:
        batches = encode_batches(keys, values, None, times, codec=codec, max_batch_bytes=case.batch_bytes)
        return [part for batch in batches for part in batch.finish(1, 0, 0, True)]

    answer = b"".join(encode())
    decoded = decode_batches(answer)
    if not (decoded.key.equals(keys) and decoded.value.equals(values)):
        raise SystemExit(f"{case.name}: what was decoded is not what was encoded")
    encoding = [count / time for time in seconds(encode, rounds)]
    decoding = [count / time for time in seconds(lambda: decode_batches(answer), rounds)]
    fine = not case.judged or codec != 0 or (encoding[0] >= ENCODE_GOAL and decoding[0] >= DECODE_GOAL)
    figures = "  ".join(f"{rate / 1e6:6.2f}" for rate in (*encoding, *decoding))
    print(f"{case.name:26} {figures}{'' if fine else '   MISSED'}", flush=True)
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 where a goal is missed")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--codec", choices=compression.CODECS, default="none")
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    print(f"million records a second, one core, codec {options.codec}; goals for 100 B: encode "
          f"{ENCODE_GOAL / 1e6:g}, decode {DECODE_GOAL / 1e6:g}")  # fmt: skip
    print(f"{'':26} encode          decode\n{'':26}   best  median    best  median")
    met = [run(case, compression.CODECS[options.codec], options.rounds) for case in CASES]
    return 1 if options.check and not all(met) else 0


if __name__ == "__main__":
    sys.exit(main())
