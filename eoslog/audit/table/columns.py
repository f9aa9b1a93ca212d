"""Which columns of a table hold which parts of a record, and their values as arrays of known types. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eoslog.audit.table.files import BadTable

PARTS = ("topic", "partition", "offset", "key", "value")
CONTENTS = ("key", "value")
_TYPE = {
    "topic": pa.string(),
    "partition": pa.int64(),
    "offset": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
}


@dataclass(frozen=True)
class Columns:
    """The table's column of each part of a record that it has."""

    names: Mapping[str, str]

    @classmethod
    def of(cls, schema: pa.Schema, given: Mapping[str, str]) -> Columns:
        """The columns that `given` names for each part, else those that are called as the part is.

        An empty name says that the table does not have the part. Raises BadTable for a column that is not
        there, or cannot hold the part.
        """
        for part, name in given.items():
            if part not in PARTS:
                raise BadTable(f"--column {part}={name}: the parts of a record are {', '.join(PARTS)}")
            if name and name not in schema.names:
                raise BadTable(
                    f"--column {part}={name}: the table has no column {name}, but "
                    f"{', '.join(schema.names) or 'none'}"
                )
        names = {part: given.get(part, part) for part in PARTS}
        found = {part: name for part, name in names.items() if name and name in schema.names}
        for part, name in found.items():
            _check(part, name, schema)
        return cls(found)

    @property
    def places(self) -> bool:
        """Whether rows say at which offset their record is. A topic of one partition needs no more."""
        return "offset" in self.names

    @property
    def placed(self) -> tuple[str, ...]:
        """Which of partition and offset the table has."""
        return tuple(part for part in ("partition", "offset") if part in self.names)

    @property
    def contents(self) -> tuple[str, ...]:
        """Which of key and value the table has."""
        return tuple(part for part in CONTENTS if part in self.names)

    def array(self, batch: pa.RecordBatch, part: str) -> pa.Array:
        """The values of a part: strings, 64-bit integers or bytes; 0 for partitions that the table does not
        have. Raises BadTable."""
        if part == "partition" and part not in self.names:
            return pa.array(np.zeros(len(batch), np.int64))
        column = batch.column(self.names[part])
        try:
            return _plain(column).cast(_TYPE[part])
        except pa.ArrowInvalid as error:
            raise BadTable(f"column {self.names[part]} is no {part}: {error}") from error


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _check(part: str, name: str, schema: pa.Schema) -> None:
    if schema.names.count(name) > 1:
        raise BadTable(f"the table has several columns {name}")
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    raw = (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )  # fmt: skip
    fits = {
        "topic": text, "partition": text or pa.types.is_integer(kind), "offset": pa.types.is_integer(kind),
        "key": text or raw, "value": text or raw,
    }  # fmt: skip
    if not fits[part]:
        wanted = {"topic": "a string", "partition": "an integer", "offset": "an integer"}.get(
            part, "bytes or a string"
        )
        raise BadTable(
            f"column {name} has the type {kind}, but a record's {part} is {wanted}: name its column by "
            f"--column {part}=NAME, or leave it out by --column {part}="
        )
