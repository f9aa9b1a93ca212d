"""Reads one Parquet file in pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.audit.table.files import BadTable, rows_at_once

_BUFFER = 1 << 18  # bytes; without one, a whole column of a row group is read at once


@dataclass(frozen=True)
class ParquetFile:
    """A file, and how it tells the table's columns."""

    name: str
    open: Callable[[], Any]
    """Its bytes, as a file that can be read anywhere."""
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """Columns that have one value for all rows, and are not in the file."""
    stored: Mapping[str, str] = field(default_factory=dict)
    """The file's names of columns that are called otherwise in the table."""

    @contextmanager
    def opened(self) -> Iterator[pq.ParquetFile]:
        """The open file. Raises BadTable, OSError."""
        with self.open() as source:
            try:
                file = pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)
            except pa.ArrowInvalid as error:
                raise BadTable(f"{self.name} is no Parquet file: {error}") from error
            with file:
                yield file

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of all rows, in order. Raises BadTable, OSError."""
        names = {name: self.stored.get(name, name) for name in columns if name not in self.constants}
        with self.opened() as file:
            found = file.metadata
            size = sum(found.row_group(n).total_byte_size for n in range(found.num_row_groups))
            at_once = rows_at_once(found.num_rows, size)
            for batch in file.iter_batches(at_once, columns=list(names.values()), use_threads=False):
                arrays = [
                    batch[names[name]] if name in names else pa.repeat(self.constants[name], batch.num_rows)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
