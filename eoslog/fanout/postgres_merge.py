"""Changes of a staging table, merged into a PostgreSQL table by the rules of `Merge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eoslog.errors import OptionError, SchemaError
from eoslog.fanout.merge import DELETED, Merge
from eoslog.fanout.postgres_columns import Column, quoted

_NEWEST = "__eoslog_newest"
_TEXTS = ("text", "character varying")


class PostgresMerge:
    """A `Merge` as statements. Texts are ordered by their bytes, and not by a language."""

    def __init__(self, merge: Merge, table: str, columns: Sequence[Column], given: Sequence[str]) -> None:
        """`table`: quoted; `columns`: its columns; `given`: those of them that the changes have."""
        self._merge, self._table = merge, table
        kinds = {one.name: one.kind.partition("(")[0] for one in columns}
        self._keys = ", ".join(map(quoted, merge.keys))
        self._columns, self._given = ", ".join(map(quoted, given)), given
        self._ordered = [(quoted(one), ' COLLATE "C"' if kinds[one] in _TEXTS else "") for one in merge.order]

    @staticmethod
    def check_key(connection: Any, merge: Merge, place: str, table: str, oid: int) -> None:
        """Raise SchemaError unless the keys are unique in the table, so that a row has one change, and
        OptionError unless all rows can be seen."""
        (hidden,) = connection.execute("SELECT row_security_active(%s::oid)", [oid]).fetchone()
        if hidden:
            raise OptionError(
                f"{place}: row security may hide rows that a change replaces or deletes. Nothing was "
                "written. Merge as a role that it does not bind (the table's owner, or one with BYPASSRLS)"
            )
        (found,) = connection.execute(
            "SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = %s AND indisunique AND indisvalid "
            "AND indimmediate AND indpred IS NULL AND indexprs IS NULL AND %s::text[] = "
            '(SELECT array_agg(attname::text ORDER BY attname::text COLLATE "C") FROM pg_attribute '
            "WHERE attrelid = indrelid AND attnum = ANY ((indkey::int2[])[0:indnkeyatts - 1])))",
            [oid, sorted(merge.keys)],
        ).fetchone()
        if not found:
            keys = ", ".join(map(quoted, merge.keys))
            raise SchemaError(
                f"{place}: {', '.join(merge.keys)} is no unique key of it. Nothing was written. Name its key "
                f"in keys, or type: ALTER TABLE {table} ADD PRIMARY KEY ({keys});"
            )

    def carry_out(self, connection: Any, its: str, tasks: list[int], place: str) -> None:
        """Merge the changes. `its`: FROM and WHERE of the changes of `tasks`. Raises SchemaError."""
        self._check(connection, its, tasks, place)
        order = ", ".join(f"{one}{how} DESC" for one, how in self._ordered)
        deleted = "false" if self._merge.operation is None else f"{quoted(self._merge.operation)} = ANY(%s)"
        connection.execute(
            f"CREATE TEMPORARY TABLE {_NEWEST} ON COMMIT DROP AS SELECT {self._columns}, {DELETED} FROM "
            f"(SELECT {self._columns}, {deleted} AS {DELETED}, "
            f"rank() OVER (PARTITION BY {self._keys} ORDER BY {order}) AS __eoslog_rank {its}) AS changes "
            "WHERE __eoslog_rank = 1",
            [*([] if self._merge.operation is None else [list(self._merge.deletes)]), tasks],
        )
        self._check_ties(connection, place)
        same = " AND ".join(f"its.{key} = new.{key}" for key in map(quoted, self._merge.keys))
        connection.execute(
            f"DELETE FROM {self._table} AS its USING {_NEWEST} AS new "
            f"WHERE new.{DELETED} AND {same} AND {self._is_newer('new')}"
        )
        changed = ", ".join(
            f"{name} = excluded.{name}"
            for name in map(quoted, (one for one in self._given if one not in self._merge.keys))
        )
        connection.execute(
            f"INSERT INTO {self._table} AS its ({self._columns}) "
            f"SELECT DISTINCT ON ({self._keys}) {self._columns} FROM {_NEWEST} WHERE NOT {DELETED} "
            f"ON CONFLICT ({self._keys}) DO UPDATE SET {changed} WHERE {self._is_newer('excluded')}"
        )

    def lacking(self, connection: Any) -> int:
        """How many of the changes that were carried out the table does not show."""
        same = " AND ".join(f"its.{key} = new.{key}" for key in map(quoted, self._merge.keys))
        (found,) = connection.execute(
            f"SELECT count(*) FROM {_NEWEST} AS new LEFT JOIN {self._table} AS its ON {same} "
            f"WHERE CASE WHEN its.{quoted(self._merge.keys[0])} IS NULL THEN NOT new.{DELETED} "
            f"ELSE {self._is_newer('new')} END"
        ).fetchone()
        return int(found)

    def _is_newer(self, change: str) -> str:
        """Than the row that is there. A row without an order is older than any."""
        sides = (", ".join(f"{side}.{name}{how}" for name, how in self._ordered) for side in (change, "its"))
        return "((" + ") > (".join(sides) + ")) IS NOT FALSE"

    def _check(self, connection: Any, its: str, tasks: list[int], place: str) -> None:
        named = (*self._merge.keys, *self._merge.order)
        counts = ", ".join(f"count(*) FILTER (WHERE {quoted(one)} IS NULL)" for one in named)
        found = connection.execute(f"SELECT {counts} {its}", [tasks]).fetchone()
        nulls = [name for name, count in zip(named, found, strict=True) if count]
        if nulls:
            raise SchemaError(
                f"{place}: {', '.join(nulls)}: null in a batch, and no key or order is null. The batch is "
                "not in the table. Leave such rows out in the target's transform, or send them to a topic"
            )
        if self._merge.operation is None:
            return
        operation, words = quoted(self._merge.operation), [*self._merge.upserts, *self._merge.deletes]
        other = connection.execute(
            f"SELECT DISTINCT {operation} {its} AND ({operation} = ANY(%s)) IS NOT TRUE LIMIT 5",
            [tasks, words],
        ).fetchall()
        if other:
            raise SchemaError(
                f"{place}: {self._merge.operation} says {[word for (word,) in other]}, and merge knows "
                f"{words}. The batch is not in the table. Name the words in upserts and deletes, or leave "
                "such rows out in the target's transform"
            )

    def _check_ties(self, connection: Any, place: str) -> None:
        """Raise SchemaError if two newest changes of a key differ: none of them is the last one."""
        several = f"FROM {_NEWEST} GROUP BY {self._keys} HAVING count(*) > 1"
        if connection.execute(f"SELECT {several} LIMIT 1").fetchone() is None:
            return
        whole = f"ROW({self._columns}, {DELETED})::text"
        tied = connection.execute(
            f"SELECT ROW({self._keys})::text {several} AND min({whole}) <> max({whole}) LIMIT 3"
        ).fetchall()
        if tied:
            raise SchemaError(
                f"{place}: changes of a key differ and have the same {', '.join(self._merge.order)}, so none "
                f"is the last one: {', '.join(key for (key,) in tied)}. The batch is not in the table. Name "
                "a column in order that tells them apart, as the topic's offset"
            )
