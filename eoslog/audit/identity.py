"""What makes two records the same: their key, values of headers, or their content. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from eoslog.audit.digest import Digester, Words
from eoslog.audit.table.files import BadTable
from eoslog.protocol.decode import DecodedRecords
from eoslog.protocol.varints import Ints

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Identity:
    """Which parts of a record are compared. A record that lacks `key` or one of `headers` has none."""

    key: bool = False
    headers: tuple[str, ...] = ()
    content: bool = False
    """Key and value, either of which may be null."""
    all_headers: bool = False
    """With `content`: all headers too, in their order."""
    value: bool = False
    """The value alone, which may be null: of a table that has no keys."""

    @property
    def needs_headers(self) -> bool:
        """Whether headers must be decoded."""
        return bool(self.headers) or self.all_headers

    @property
    def contents(self) -> tuple[str, ...]:
        """Which of key and value are compared."""
        compared = {"key": self.key or self.content, "value": self.content or self.value}
        return tuple(part for part, wanted in compared.items() if wanted)

    def __str__(self) -> str:
        if self.content:
            return "content (key, value, headers)" if self.all_headers else "content (key, value)"
        if self.value:
            return "value"
        return " and ".join([*(["key"] if self.key else []), *(f"header {name}" for name in self.headers)])

    def digests(self, digester: Digester, records: DecodedRecords) -> tuple[Words, Bools]:
        """The digest of each record's identity, and which records have one."""
        parts, there = self._contents(digester, {"key": records.key, "value": records.value})
        for name in self.headers:
            values, found = header_values(records.headers, name)
            parts.append(digester.strings(values))
            there &= found
        if self.all_headers:
            parts.append(_headers(digester, records.headers))
        return _one(digester, parts), there

    def of_contents(self, digester: Digester, columns: Mapping[str, pa.Array]) -> tuple[Words, Bools]:
        """The same of rows that have `key` and `value` alone, as far as they are compared."""
        parts, there = self._contents(digester, columns)
        return _one(digester, parts), there

    def _contents(self, digester: Digester, columns: Mapping[str, pa.Array]) -> tuple[list[Words], Bools]:
        parts = [digester.strings(columns[part]) for part in self.contents]
        there = _valid(columns["key"]) if self.key else np.ones(len(next(iter(columns.values()))), np.bool_)
        return parts, there


def _one(digester: Digester, parts: list[Words]) -> Words:
    return parts[0] if len(parts) == 1 else digester.together(parts)


@dataclass(frozen=True)
class Deletes:
    """Which records delete their key: those without a value, and those whose JSON says one of `words` in
    `field`, at its top or in `payload`. Without a field: those without a value alone."""

    field: str = ""
    words: tuple[str, ...] = ()

    def of(self, values: pa.Array) -> Bools:
        """For each value. Raises BadTable for a value that is no JSON object."""
        deletes = ~_valid(values)
        texts = values.drop_null()
        if not self.field or not len(texts):
            return deletes
        told = pa.field(self.field, pa.string())
        schema = pa.schema([told, pa.field("payload", pa.struct([told]))])
        lines = pc.binary_join(pa.array([texts], pa.list_(pa.binary())), b"\n")[0].as_buffer()
        try:
            found = pajson.read_json(
                pa.BufferReader(lines),
                pajson.ReadOptions(use_threads=False, block_size=max(lines.size, 1)),
                pajson.ParseOptions(schema, newlines_in_values=True, unexpected_field_behavior="ignore"),
            )
        except pa.ArrowInvalid as error:
            raise BadTable(
                f"--deletes {self.field}=...: a value of the topic is no such JSON: {error}"
            ) from error
        if len(found) != len(texts):
            raise BadTable(f"--deletes {self.field}=...: a value of the topic is not one JSON object")
        said = pc.coalesce(found[self.field], pc.struct_field(found["payload"], self.field))
        words = pa.array(self.words, pa.string())
        deletes[~deletes] = pc.is_in(said.combine_chunks(), words).to_numpy(zero_copy_only=False)
        return deletes


def header_values(headers: pa.Array, name: str) -> tuple[pa.Array, Bools]:
    """The value of each record's last header of this name, and which records have one."""
    counts, items = _flat(headers)
    rows = np.arange(len(counts)).repeat(counts)
    chosen = np.flatnonzero(pc.equal(pc.struct_field(items, "key"), name).to_numpy(zero_copy_only=False))
    at = np.full(len(counts), -1)
    at[rows[chosen]] = chosen  # the last one wins
    found = at >= 0
    return pc.struct_field(items, "value").take(pa.array(at, mask=~found)), found


def _headers(digester: Digester, headers: pa.Array) -> Words:
    counts, items = _flat(headers)
    keys = digester.strings(pc.struct_field(items, "key").cast(pa.binary()))
    values = digester.strings(pc.struct_field(items, "value"))
    return digester.lists(np.concatenate([keys, values], axis=1), counts)


def _flat(headers: pa.Array) -> tuple[Ints, pa.Array]:
    """The number of headers of each record, and all headers."""
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts, pc.list_flatten(headers)


def _valid(column: pa.Array) -> Bools:
    valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return valid
