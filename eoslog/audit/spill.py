"""Compares any number of rows in little memory: stores them on disk by ranges of a key, judges each range.

A range with more rows than fit is split into smaller ranges, so memory does not depend on the number of rows.
Many rows of the same key cannot be split further; they are returned as a file to be read through (`OneKey`).
Within a piece, rows have the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from eoslog.commands.output import ProgressListener

Rows = npt.NDArray[Any]
Verdict = TypeVar("Verdict")

FAN = 256
"""The most files that one Spill keeps open."""
LIMIT = 1 << 16
"""The most rows in memory at a time; work on them takes some 300 bytes each."""


class OneKey:
    """A file with more rows of one key than fit into memory."""

    def __init__(self, path: Path, dtype: np.dtype[np.void], count: int) -> None:
        self.path, self.dtype, self.count = path, dtype, count

    def __len__(self) -> int:
        return self.count

    def pieces(self, size: int, first: int = 0, last: int | None = None) -> Iterator[Rows]:
        """Rows first..last-1 in their order, `size` at a time."""
        end = self.count if last is None else last
        with self.path.open("rb") as file:
            file.seek(first * self.dtype.itemsize)
            for at in range(first, end, size):
                yield np.fromfile(file, self.dtype, min(size, end - at))


class _Bucket:
    """One range's file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: IO[bytes] = path.open("wb")
        self.count = 0
        self.low, self.high = 2**64, -1  # the lowest and highest key in it

    def write(self, rows: Rows, keys: Rows) -> None:
        self.file.write(rows.tobytes())
        self.count += len(rows)
        self.low, self.high = min(self.low, int(keys.min())), max(self.high, int(keys.max()))


class Spill:
    """Rows by the column `key`, an unsigned number from low to high. Add all, then call `ranges` once."""

    def __init__(
        self,
        directory: Path,
        dtype: np.dtype[np.void],
        key: str,
        *,
        low: int = 0,
        high: int = 2**64 - 1,
        expected: int,
        limit: int,
    ) -> None:
        """`expected`: how many rows may come. `limit`: how many fit into memory."""
        self._directory, self._dtype, self._key, self._limit = directory, dtype, key, limit
        directory.mkdir()
        files = min(max(1, -(-2 * expected // limit)), FAN)  # half full, so that few overflow
        self._low = low
        self._shift = min(max(0, (high - low).bit_length() - (files.bit_length() - 1)), 63)
        self._buckets: dict[int, _Bucket] = {}
        self.count = 0

    def add(self, rows: Rows) -> None:
        """Write rows to the files of their ranges. Raises OSError."""
        keys = rows[self._key]
        numbers = ((keys - np.uint64(self._low)) >> np.uint64(self._shift)).astype(np.uint16)
        order = np.argsort(numbers, kind="stable")
        rows, keys, numbers = rows[order], keys[order], numbers[order]
        edges = np.flatnonzero(np.diff(numbers)) + 1
        for first, last in zip([0, *edges.tolist()], [*edges.tolist(), len(rows)], strict=True):
            if first < last:
                self._bucket(int(numbers[first])).write(rows[first:last], keys[first:last])
        self.count += len(rows)

    def ranges(self) -> Iterator[Rows | OneKey]:
        """The rows range by range, in the order of the keys. Each range's file is deleted after it."""
        for bucket in self._buckets.values():
            bucket.file.close()
        for number, bucket in sorted(self._buckets.items()):
            if bucket.count <= self._limit:
                yield np.fromfile(bucket.path, self._dtype)
            elif bucket.low == bucket.high:
                yield OneKey(bucket.path, self._dtype, bucket.count)
            else:
                yield from self._cut(number, bucket)
            bucket.path.unlink(missing_ok=True)
        self._directory.rmdir()

    def _cut(self, number: int, bucket: _Bucket) -> Iterator[Rows | OneKey]:
        inner = Spill(
            self._directory / f"{number}-cut", self._dtype, self._key,
            low=bucket.low, high=bucket.high, expected=bucket.count, limit=self._limit,
        )  # fmt: skip
        for piece in OneKey(bucket.path, self._dtype, bucket.count).pieces(self._limit):
            inner.add(piece)
        bucket.path.unlink()
        yield from inner.ranges()

    def _bucket(self, number: int) -> _Bucket:
        if number not in self._buckets:
            self._buckets[number] = _Bucket(self._directory / str(number))
        return self._buckets[number]


class Comparison(NamedTuple, Generic[Verdict]):
    """How rows are compared: those of one `key`, at most `high`, are judged together. `judge` takes all rows
    of some keys, or of a key that has more rows than fit into memory."""

    dtype: np.dtype[np.void]
    key: str
    judge: Callable[[Rows | OneKey], Iterable[Verdict]]
    high: int = 2**64 - 1


def compared(
    pieces: Iterable[Rows],
    how: Comparison[Verdict],
    directory: Path,
    watch: ProgressListener,
    *,
    expected: int,
    limit: int = LIMIT,
) -> Iterator[Verdict]:
    """The verdicts about all rows of `pieces`, of which `expected` may come. Nothing else uses `directory`.
    Raises OSError (the disk is full), and what `pieces` and `judge` raise."""
    spill = Spill(directory, how.dtype, how.key, high=how.high, expected=expected, limit=limit)
    for piece in pieces:
        spill.add(piece)
    watch.begin("comparing", spill.count)
    for rows in spill.ranges():
        yield from how.judge(rows)
        watch.advance(len(rows))
