"""Changes by key: which columns are the key, which say what is newer, and which rows delete.

A change that is newer than the row with its key takes its place; a delete takes it away. A change that is as
old as the row or older changes nothing, so one that comes twice changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELETED = "__eoslog_deleted"
"""A column of the newest changes: true: the row goes."""
_UNORDERED = ("float", "double", "variant")


class Matched(NamedTuple):
    """Of so many rows those, by their places, whose keys have a change, and whether each is older than it."""

    of: int
    rows: np.ndarray[Any, Any]
    changes: np.ndarray[Any, Any]
    is_older: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Merge:
    """How a place takes changes.

    `keys`: columns that name a row. `order`: columns that say which of two changes of a key is newer, the
    first one first; they stay in the table. `operation`: a column with a word of `upserts` or `deletes`,
    which is not in the table; None: each row is an upsert. Raises OptionError.
    """

    keys: Sequence[str]
    order: Sequence[str]
    operation: str | None = None
    upserts: Sequence[str] = ("c", "u", "r")
    deletes: Sequence[str] = ("d",)

    def __post_init__(self) -> None:
        for name in ("keys", "order", "upserts", "deletes"):
            given = getattr(self, name)
            if isinstance(given, str) or not all(isinstance(one, str) and one for one in given):
                raise OptionError(f"Merge({name}={given!r}): give a list of texts")
            object.__setattr__(self, name, tuple(given))
        names = [*self.keys, *self.order, *([] if self.operation is None else [self.operation])]
        twice = sorted({one for one in names if names.count(one) > 1} | set(self.upserts) & set(self.deletes))
        if not self.keys or not self.order:
            raise OptionError(
                "Merge: name the key's columns in keys, and in order those that say which change is newer"
            )
        if twice:
            raise OptionError(f"Merge: {', '.join(twice)} twice: a column or word has one meaning")

    def table_schema(self, place: str, schema_json: str) -> str:
        """The table's columns for a batch with these, both as Spark's JSON: all but the operation. Raises
        SchemaError."""
        schema = json.loads(schema_json)
        kinds = {one["name"]: one["type"] for one in schema["fields"]}
        missing = [
            one for one in (*self.keys, *self.order, self.operation) if one is not None and one not in kinds
        ]
        unordered = [one for one in (*self.keys, *self.order) if not _is_ordered(kinds.get(one, ""))]
        if missing or unordered or kinds.get(str(self.operation), "string") != "string":
            raise SchemaError(
                f"{place}: merge wants keys {list(self.keys)} and order {list(self.order)} of whole numbers, "
                f"texts, bytes, times or decimals, and operation {self.operation} of texts. The batch has "
                f"{ {name: kinds.get(name) for name in (*self.keys, *self.order, *missing)} }. Nothing was "
                "written. Make them in the target's transform"
            )
        fields = [one for one in schema["fields"] if one["name"] != self.operation]
        return json.dumps({**schema, "fields": fields})

    def changes_of(self, columns: pa.Schema) -> pa.Schema:
        """A batch's columns, from the table's."""
        operation = [] if self.operation is None else [pa.field(self.operation, pa.string())]
        return pa.schema([*columns, *operation])

    def newer(self, new: Callable[[str], str], old: Callable[[str], str]) -> str:
        """Whether a change is newer than the row, in SQL; `new` and `old` name a column of each. A row
        without an order is old."""

        def from_(names: Sequence[str]) -> str:
            name, *rest = names
            tie = f" OR ({new(name)} = {old(name)} AND ({from_(rest)}))" if rest else ""
            return f"{new(name)} > {old(name)} OR {old(name)} IS NULL{tie}"

        return from_(self.order)

    def newest(self, place: str, changes: pa.Table) -> pa.Table:
        """The newest change of each key, with DELETED for the operation.

        Raises SchemaError for nulls in keys and order, for other words than the operation's, and for two
        newest changes of a key that differ: none of them is the last one.
        """
        self._check(place, changes)
        if self.operation is None:
            deleted = pa.array(np.zeros(len(changes), bool))
        else:
            deleted = pc.is_in(changes[self.operation], pa.array(self.deletes, changes[self.operation].type))
            changes = changes.drop_columns([self.operation])
        changes = changes.append_column(DELETED, deleted)
        if not len(changes):
            return changes
        by = [(name, "ascending") for name in (*self.keys, *self.order)]
        changes = changes.take(pc.sort_indices(changes, sort_keys=by)).combine_chunks()
        is_next = _differs(changes.slice(1), changes.slice(0, len(changes) - 1), self.keys)
        last = np.append(np.flatnonzero(is_next), len(changes) - 1)
        self._check_ties(place, changes, last)
        return changes.take(last)

    def matched(self, rows: pa.Table, changes: pa.Table) -> Matched:
        """The rows with keys of changes, of which there is one for each key. A row without an order is
        old."""
        here, there = (
            one.select(list(self.keys)).append_column(at, pa.array(np.arange(len(one))))
            for one, at in ((rows, "__eoslog_row"), (changes, "__eoslog_change"))
        )
        here = here.cast(
            pa.schema([*(there.schema.field(name) for name in self.keys), here.schema.field(-1)])
        )
        joined = here.join(there, list(self.keys), join_type="inner")
        at, by = (joined[name].to_numpy() for name in ("__eoslog_row", "__eoslog_change"))
        old, new = rows.take(pa.array(at)), changes.take(pa.array(by))
        is_older, tied = np.zeros(len(at), bool), np.ones(len(at), bool)
        for name in self.order:
            its = new[name].cast(old[name].type)
            later = pc.fill_null(pc.greater(its, old[name]), True).to_numpy()
            is_older |= tied & later
            tied &= pc.fill_null(pc.equal(its, old[name]), False).to_numpy()
        return Matched(len(rows), at, by, is_older)

    def _check(self, place: str, changes: pa.Table) -> None:
        nulls = [one for one in (*self.keys, *self.order) if changes[one].null_count]
        if nulls:
            raise SchemaError(
                f"{place}: {', '.join(nulls)}: null in a batch, and no key or order is null. The batch is "
                "not in the table. Leave such rows out in the target's transform, or send them to a topic"
            )
        if self.operation is None:
            return
        words = pc.unique(changes[self.operation]).to_pylist()
        other = [one for one in words if one not in (*self.upserts, *self.deletes)]
        if other:
            raise SchemaError(
                f"{place}: {self.operation} says {other[:5]}, and merge knows "
                f"{[*self.upserts, *self.deletes]}. The batch is not in the table. Name the words in upserts "
                "and deletes, or leave such rows out in the target's transform"
            )

    def _check_ties(self, place: str, changes: pa.Table, last: np.ndarray[Any, Any]) -> None:
        """`changes` are sorted; `last`: where each key ends."""
        rows = np.arange(len(changes))
        winner = last[np.searchsorted(last, rows)]
        others = np.flatnonzero(rows != winner)
        tied = others[~_differs(changes.take(others), changes.take(winner[others]), self.order)]
        one, two = changes.take(tied), changes.take(winner[tied])
        if not one.equals(two):
            raise SchemaError(
                f"{place}: changes of a key differ and have the same {', '.join(self.order)}, so none is the "
                f"last one: {one.select([*self.keys, *self.order]).slice(0, 3).to_pylist()}. The batch is "
                "not in the table. Name a column in order that tells them apart, as the topic's offset"
            )


def check_merge(what: str, merge: object) -> None:
    """Raise OptionError unless it is None or a Merge."""
    if merge is not None and not isinstance(merge, Merge):
        raise OptionError(f"{what}: merge={merge!r}: give Merge(keys=[...], order=[...])")


def _is_ordered(kind: Any) -> bool:
    return isinstance(kind, str) and kind not in _UNORDERED


def _differs(one: pa.Table, two: pa.Table, names: Sequence[str]) -> np.ndarray[Any, Any]:
    """In which rows any of the columns differs; none of them has nulls."""
    unequal = [
        pc.not_equal(one[name], two[name]).combine_chunks().to_numpy(zero_copy_only=False) for name in names
    ]
    return np.asarray(reduce(np.logical_or, unequal), bool)


def debezium(columns: str) -> Callable[[DataFrame], DataFrame]:
    """A transform of rows with Debezium's envelope in JSON (with its schema beside, or without) for
    `Merge(keys, order=["offset"], operation="op")`.

    `columns`: those of the source's table, as DDL ("id long, name string"); `op`, `partition` and `offset`
    join them. A delete has the columns of `before`; tombstones are left out. A value that is no such JSON
    fails the batch.
    """

    def flat(rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        envelope = f"before struct<{columns}>, after struct<{columns}>, op string"
        strictly = {"mode": "FAILFAST"}
        text = f.col("value").cast("string")
        found = f.coalesce(
            f.from_json(text, f"payload struct<{envelope}>", strictly)["payload"],
            f.from_json(text, envelope, strictly),
        )
        told = rows.where("value is not null").select(found.alias("told"), "partition", "offset")
        row = f.coalesce("told.after", "told.before").alias("row")
        return told.select(row, "told.op", "partition", "offset").select("row.*", "op", "partition", "offset")

    return flat
