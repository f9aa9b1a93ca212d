"""A PostgreSQL table, as it is when the audit begins. libpq's environment variables name the database."""

from __future__ import annotations

import io
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from eoslog.audit.table.files import BATCH_BYTES, BadTable, TableFile
from eoslog.fanout.extras import library
from eoslog.fanout.postgres_columns import quoted

_TYPES = {
    "smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64(), "bytea": pa.binary(),
    "text": pa.string(), "character varying": pa.string(), "character": pa.string(),
}  # fmt: skip
"""Types of columns that can hold a part of a record; others are known by their names alone."""


class PostgresTable:
    """SCHEMA.TABLE; without a schema as the server finds it. Raises BadTable."""

    def __init__(self, name: str) -> None:
        self.version = f"postgres:{name}"
        with self._refusals():
            self._connection = _connected()
            weakref.finalize(self, self._connection.close)
            self._table = self._found(name)
            self.schema = pa.schema(list(self._fields()))
            (count,) = self._connection.execute(f"SELECT count(*) FROM {self._table}").fetchone()
        self.files = [TableFile(name, count)]

    def batches(self, number: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As Table says."""
        if not self.files[number].size:
            return
        chosen = ", ".join(quoted(name) for name in columns)
        kinds = {name: self.schema.field(name).type for name in columns}
        shown = {name: pa.string() if pa.types.is_binary(kind) else kind for name, kind in kinds.items()}
        with self._refusals():
            (longest,) = self._connection.execute(
                f"SELECT coalesce(max(octet_length(ROW({chosen})::text)), 0) FROM {self._table}"
            ).fetchone()
            with self._connection.cursor().copy(
                f"COPY (SELECT {chosen} FROM {self._table}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')"
            ) as copy:
                source = pa.PythonFile(io.BufferedReader(_Copied(copy), BATCH_BYTES), "r")
                rows = pacsv.open_csv(
                    source,
                    pacsv.ReadOptions(
                        use_threads=False, block_size=BATCH_BYTES + 2 * longest, column_names=list(columns)
                    ),
                    pacsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
                    pacsv.ConvertOptions(
                        column_types=shown, null_values=[""], strings_can_be_null=True,
                        quoted_strings_can_be_null=False,
                    ),
                )  # fmt: skip
                for batch in rows:
                    yield pa.RecordBatch.from_arrays(
                        [
                            _bytes(column) if pa.types.is_binary(kind) else column
                            for column, kind in zip(batch.columns, kinds.values(), strict=True)
                        ],
                        list(columns),
                    )

    def _found(self, name: str) -> str:
        """Its name, quoted."""
        schema, _, table = name.rpartition(".")
        found = ".".join(quoted(one) for one in (schema, table) if one)
        (there,) = self._connection.execute("SELECT to_regclass(%s) IS NOT NULL", [found]).fetchone()
        if not there:
            raise BadTable(
                f"{self.version}: the database {self._connection.info.dbname} has no such table. PGHOST, "
                "PGDATABASE, PGUSER and PGPASSFILE name the database"
            )
        return found

    def _fields(self) -> Iterator[pa.Field]:
        for name, kind in self._connection.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s::regclass "
            "AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [self._table],
        ).fetchall():
            yield pa.field(name, _TYPES.get(kind, pa.null()))

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Raise BadTable for what the server refuses, or a connection that is lost."""
        try:
            yield
        except (library("psycopg", "postgres").Error, pa.ArrowInvalid) as error:
            raise BadTable(f"{self.version}: PostgreSQL does not show it: {error}") from error


class _Copied(io.RawIOBase):
    """What a COPY sends, as a file."""

    def __init__(self, copy: Any) -> None:
        self._copy, self._rest = copy, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        if not self._rest:
            self._rest = memoryview(self._copy.read())
        size = min(len(into), len(self._rest))
        into[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _connected() -> Any:
    """In a transaction that sees one state of the table, and reads its rows in one order."""
    psycopg = library("psycopg", "postgres")
    connection = psycopg.connect("", client_encoding="UTF8", fallback_application_name="eoslog")
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    connection.execute("SET LOCAL synchronize_seqscans = off")
    return connection


_NIBBLE = np.zeros(256, np.uint8)
_NIBBLE[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def _bytes(column: pa.Array) -> pa.Array:
    """Bytes, from hexadecimal digits behind `\\x`."""
    digits = pa.concat_arrays([pc.utf8_slice_codeunits(column, 2)])
    offsets = np.frombuffer(digits.buffers()[1], np.int32)[: len(digits) + 1]
    raw = _NIBBLE[np.frombuffer(digits.buffers()[2] or b"", np.uint8)[: offsets[-1]]]
    pairs = raw[0::2] << 4 | raw[1::2]
    found = pa.Array.from_buffers(
        pa.binary(), len(digits), [None, pa.py_buffer((offsets // 2).astype(np.int32)), pa.py_buffer(pairs)]
    )
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.binary()))
