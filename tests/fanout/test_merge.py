"""Merge: the newest change of each key, in tables of both formats, whenever the driver is killed."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from eoslog.errors import OptionError, SchemaError
from eoslog.fanout.merge import Merge

CHANGES = Merge(keys=["id"], order=["offset"], operation="op")


def changes(*rows: tuple[int | None, str, int | None, str | None]) -> pa.Table:
    """Rows of id, name, offset, op."""
    kinds = [("id", pa.int64()), ("name", pa.string()), ("offset", pa.int64()), ("op", pa.string())]
    return pa.table(
        [pa.array([one[at] for one in rows], kind) for at, (_, kind) in enumerate(kinds)], pa.schema(kinds)
    )


def newest(*rows: Any, merge: Merge = CHANGES) -> list[tuple[Any, ...]]:
    return [tuple(one.values()) for one in merge.newest("here", changes(*rows)).to_pylist()]


def test_of_a_key_s_changes_the_newest_is_left() -> None:
    given = [(1, "a", 3, "u"), (2, "x", 1, "c"), (1, "b", 2, "c"), (3, "y", 5, "d"), (3, "y", 4, "r")]
    assert newest(*given) == [
        (1, "a", 3, False), (2, "x", 1, False), (3, "y", 5, True),
    ]  # fmt: skip
    assert newest() == []
    assert newest((1, "a", 3, "u"), (1, "a", 3, "u")) == [(1, "a", 3, False)], "it came twice"


def test_keys_and_order_of_several_columns() -> None:
    merge = Merge(keys=["id", "op"], order=["name", "offset"])
    given = [(1, "b", 1, "k"), (1, "a", 9, "k"), (1, "a", 1, "l"), (1, "a", 2, "l")]
    assert newest(*given, merge=merge) == [(1, "b", 1, "k", False), (1, "a", 2, "l", False)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(None, "a", 1, "c")], "id: null"),
        ([(1, "a", None, "c")], "offset: null"),
        ([(1, "a", 1, "t")], r"op says \['t'\]"),
        ([(1, "a", 1, None)], r"op says \[None\]"),
        ([(1, "a", 1, "c"), (1, "b", 1, "c")], "none is the last one.*'id': 1"),
        ([(1, "a", 1, "c"), (1, "a", 1, "c"), (1, "a", 1, "d")], "none is the last one"),
    ],
)
def test_what_no_rule_can_order_stops(rows: list[Any], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        newest(*rows)


def test_changes_that_differ_below_the_newest_are_no_harm() -> None:
    assert newest((1, "a", 1, "c"), (1, "b", 1, "c"), (1, "c", 2, "c")) == [(1, "c", 2, False)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keys": [], "order": ["o"]}, "keys"),
        ({"keys": ["k"], "order": []}, "order"),
        ({"keys": "k", "order": ["o"]}, "list of texts"),
        ({"keys": ["k"], "order": ["o"], "deletes": [None]}, "list of texts"),
        ({"keys": ["k"], "order": ["k"]}, "k twice"),
        ({"keys": ["k"], "order": ["o"], "operation": "o"}, "o twice"),
        ({"keys": ["k"], "order": ["o"], "deletes": ["c"]}, "c twice"),
    ],
)
def test_a_wrong_merge_is_named(given: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Merge(**given)


def spark_schema(**kinds: Any) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return json.dumps({"type": "struct", "fields": fields})


def test_the_table_has_all_columns_but_the_operation() -> None:
    columns = {"id": "long", "name": {"type": "array"}, "offset": "long"}
    assert CHANGES.table_schema("here", spark_schema(**columns, op="string")) == spark_schema(**columns)


@pytest.mark.parametrize(
    "columns",
    [
        {"id": "long", "op": "string"},
        {"id": "long", "offset": "long"},
        {"id": "double", "offset": "long", "op": "string"},
        {"id": "long", "offset": {"type": "array"}, "op": "string"},
        {"id": "long", "offset": "long", "op": "integer"},
    ],
)
def test_columns_that_merge_cannot_use_are_named(columns: Any) -> None:
    with pytest.raises(SchemaError, match="merge wants keys"):
        CHANGES.table_schema("here", spark_schema(**columns))
