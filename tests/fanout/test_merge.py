"""Merge: the newest change of each key, in tables of both formats, whenever the driver is killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from py4j.protocol import Py4JError
from pyiceberg.types import LongType

from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.errors import OptionError, SchemaError
from eoslog.fanout import batch as fanout_batch
from eoslog.fanout import delta
from eoslog.fanout.batch import carry_out
from eoslog.fanout.merge import Merge
from eoslog.fanout.postgres import PostgresTarget
from eoslog.fanout.rows import HASH, MODULUS
from eoslog.fanout.rules import Batch, Content, FanoutStopped, Gone, Mark, check_order
from eoslog.fanout.table import write
from tests.fanout.kit import AT as EVERYWHERE
from tests.fanout.kit import Calls, Dying, Killed, ListRows, delta_at, postgres_at, rows_in, words
from tests.fanout.test_table_history import AT, clean_up, compacted, restored
from tests.fanout.test_traps import ice

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


# -- tables ----------------------------------------------------------------------------------------

SCHEMA = spark_schema(id="long", name="string", offset="long", op="string")
Change = tuple[int, str, int, str]
BATCHES: list[list[Change]] = [
    [((7 * i + 3 * n) % 20, f"{n}/{i}", 10 * n + i, "d" if (i + n) % 4 == 0 else "u") for i in range(10)]
    for n in range(4)
]
"""Batches of changes of 20 keys, some of which meet a key twice."""


class ChangeRows(ListRows):
    """Changes, in the order of a topic, of two tasks."""

    def __init__(self, given: list[Change], schema_json: str = SCHEMA) -> None:
        super().__init__(range(len(given)), schema_json)
        self.given = given

    def batch(self, numbers: range) -> pa.RecordBatch:
        """The rows of these places."""
        rows = changes(*(self.given[n] for n in numbers))
        hashes = pa.array([hash(("change", *self.given[n])) % MODULUS for n in numbers], pa.int64())
        columns = [one.combine_chunks() for one in rows.columns]
        return pa.RecordBatch.from_arrays([*columns, hashes], [*rows.column_names, HASH])


def merging(at: Any, folder: Path, merge: Merge = CHANGES, **more: Any) -> Any:
    return at(folder, merge=merge, **more)


def put(
    table: Any, number: int, given: list[Change] | None = None, name: str = "orders", **more: bool
) -> None:
    rows, query = ChangeRows(BATCHES[number] if given is None else given), 7 if name == "orders" else 8
    carry_out(Batch(name, query, number), rows.through, [table], [], **more)


def after(*batches: list[Change]) -> list[tuple[Any, ...]]:
    """What the changes lead to: each in its turn."""
    rows: dict[int, tuple[Any, ...]] = {}
    for key, name, offset, op in (change for batch in batches for change in batch):
        rows.pop(key, None)
        if op != "d":
            rows[key] = (key, name, offset)
    return sorted(rows.values())


def held(table: Any) -> list[tuple[Any, ...]]:
    """What a reader sees."""
    return sorted(tuple(one[name] for name in ("id", "name", "offset")) for one in rows_in(table).to_pylist())


def commits(table: Any) -> int:
    return DeltaTable(table.uri).version() if hasattr(table, "uri") else len(ice(table).snapshots())


def add(table: Any, rows: Sequence[tuple[int, str, int | None]]) -> None:
    """Another writer's rows: in the place of those with their keys."""
    given = changes(*((*one, "u") for one in rows)).drop_columns(["op"])
    keys = f"id in ({', '.join(str(one[0]) for one in rows)})"
    if hasattr(table, "uri"):
        DeltaTable(table.uri).delete(keys)
        write_deltalake(table.uri, given, mode="append")
    else:
        ice(table).delete(keys)
        ice(table).append(given)


def others_wrote(table: Any) -> None:
    add(table, [(1000, "theirs", 0)])


def back_to(version: int) -> Callable[[Any], None]:
    """The table as it was after so many batches."""

    def act(table: Any) -> None:
        if hasattr(table, "uri"):
            restored(version)(table)
            return
        snapshot = [one.snapshot_id for one in ice(table).snapshots()][version - 1]
        ice(table).manage_snapshots().set_current_snapshot(snapshot).commit()

    return act


@AT
@pytest.mark.timeout(240)
@pytest.mark.parametrize("at_batch", [0, 1])
def test_killed_before_and_after_each_step_the_newest_changes_are_there(
    at: Any, at_batch: int, tmp_path: Path
) -> None:
    died_at, died = 0, True
    while died:
        folder, died = tmp_path / str(died_at), False
        folder.mkdir()
        for number in range(3):
            calls = Calls(died_at if number == at_batch else None)
            try:
                put(Dying(merging(at, folder), calls), number)
            except Killed:
                died = True
                put(merging(at, folder), number)
            assert held(merging(at, folder)) == after(*BATCHES[: number + 1]), f"killed at {died_at}"
        died_at += died
    assert died_at == 6, "prepare, stage and commit; before and after each"


@AT
def test_a_batch_that_comes_again_changes_nothing(at: Any, tmp_path: Path) -> None:
    table = merging(at, tmp_path)
    for number in range(3):
        put(table, number)
        before = commits(table)
        put(table, number)
        assert commits(table) == before
    with pytest.raises(FanoutStopped, match='accept_other_rows="2:'):
        put(table, 2, BATCHES[3])
    put(table, 2, BATCHES[3], other_rows=True)
    assert held(table) == after(*BATCHES[:3])


@AT
def test_changes_that_come_again_under_another_name_change_nothing(at: Any, tmp_path: Path) -> None:
    """A second query reads the topic from its start. Rows that are deleted at the end have left no order."""
    table = merging(at, tmp_path)
    upserts = [[(key, name, offset, "u") for key, name, offset, _ in batch] for batch in BATCHES]
    for number, batch in enumerate(upserts):
        put(table, number, batch)
    for number, batch in enumerate(upserts):
        put(table, number, batch, name="again")
        assert held(table) == after(*upserts)
    put(table, 4, [(1, "new", 1000, "u")])
    put(table, 4, [(1, "old", 999, "u"), (2, "", 0, "d")], name="again")
    assert held(table) == after(*upserts, [(1, "new", 1000, "u")])


@AT
def test_batches_of_deletes_of_nothing_and_of_no_rows_are_marked(at: Any, tmp_path: Path) -> None:
    table = merging(at, tmp_path)
    given: list[list[Change]] = [
        [(9, "", 0, "d")],
        [],
        [(1, "a", 1, "c")],
        [(1, "b", 1, "u")],
        [(1, "", 2, "d")],
        [],
    ]
    for number, batch in enumerate(given):
        put(table, number, batch)
        before = commits(table)
        put(table, number, batch)
        assert commits(table) == before
        assert held(table) == ([(1, "a", 1)] if number in (2, 3) else [])


@AT
def test_two_drivers_at_once_merge_a_batch_once(at: Any, tmp_path: Path) -> None:
    put(merging(at, tmp_path), 0)
    for number in range(1, 4):
        batch, rows, barrier = Batch("orders", 7, number), ChangeRows(BATCHES[number]), Barrier(2)
        before = commits(merging(at, tmp_path))

        def drive(batch: Batch = batch, rows: ListRows = rows, barrier: Barrier = barrier) -> None:
            table = merging(at, tmp_path)
            table.prepare(rows, batch)
            barrier.wait(60)
            write(table, rows, batch)

        with ThreadPoolExecutor(2) as drivers:
            for done in [drivers.submit(drive) for _ in range(2)]:
                done.result(100)
        assert commits(merging(at, tmp_path)) == before + 1
    assert held(merging(at, tmp_path)) == after(*BATCHES)


@AT
def test_another_writer_s_rows_between_reading_and_committing_are_merged_too(at: Any, tmp_path: Path) -> None:
    table = merging(at, tmp_path)
    put(table, 0)
    commit, newest_keys = table.commit, {key for key, *_ in BATCHES[1]}

    def late(staged: Any, batch: Batch) -> None:
        table.commit = commit
        rows = [(key, "theirs", 5) for key in (*newest_keys, 77)]
        add(table, rows)
        commit(staged, batch)

    table.commit = late
    put(table, 1)
    theirs = [(77, "theirs", 5, "u")]
    assert held(table) == after(
        BATCHES[0], [(key, "theirs", 5, "u") for key in newest_keys], theirs, BATCHES[1]
    )


@AT
def test_a_row_without_an_order_is_old(at: Any, tmp_path: Path) -> None:
    table = merging(at, tmp_path)
    put(table, 0, [])
    add(table, [(1, "theirs", None), (2, "theirs", None)])
    put(table, 1, [(1, "new", 0, "u")])
    assert [one for one in rows_in(table).to_pylist() if one["id"] == 1] == [
        {"id": 1, "name": "new", "offset": 0}
    ]


@AT
@pytest.mark.parametrize("acts", [(), (others_wrote,)], ids=["", "others wrote in between"])
@pytest.mark.parametrize("last", [BATCHES[2], [(key, "", 99, "d") for key in range(20)]], ids=["", "deletes"])
def test_a_table_rolled_back_stops_and_rolled_forward_goes_on(
    at: Any, acts: tuple[Any, ...], last: list[Change], tmp_path: Path
) -> None:
    for again in (2, 3):
        (tmp_path / str(again)).mkdir()
        table = merging(at, tmp_path / str(again))
        for number in range(3):
            put(table, number, last if number == 2 else None)
        for act in (back_to(2), *acts):
            act(table)
        given = last if again == 2 else BATCHES[3]
        with pytest.raises(FanoutStopped, match="no longer has batch 2"):
            put(table, again, given)
        back_to(3)(table)
        put(table, again, given)
        done = [BATCHES[0], BATCHES[1], last, *([BATCHES[3]] if again == 3 else [])]
        assert held(table) == after(*done)


@AT
def test_since_gives_a_batch_again_that_was_taken_back(at: Any, tmp_path: Path) -> None:
    table = merging(at, tmp_path)
    for number in range(3):
        put(table, number)
    back_to(2)(table)
    with pytest.raises(FanoutStopped) as stopped:
        put(table, 2)
    since = merging(at, tmp_path, since=words(stopped)[0])
    for number in (2, 2, 3):
        put(since, number)
    assert held(table) == after(*BATCHES)


@AT
@pytest.mark.parametrize("acts", [(compacted,), (others_wrote, compacted), (others_wrote,)])
def test_what_the_owner_does_to_rows_stops_nothing(at: Any, acts: tuple[Any, ...], tmp_path: Path) -> None:
    table = merging(at, tmp_path)
    for number in range(3):
        put(table, number)
    for act in acts:
        act(table)
    for number in (2, 3):
        put(table, number)
    theirs = [(1000, "theirs", 0)] if others_wrote in acts else []
    assert held(table) == sorted([*after(*BATCHES), *theirs])


def test_a_delta_merge_leaves_no_file_behind_and_each_key_once_in_partitions(tmp_path: Path) -> None:
    """A key goes from one partition to another."""
    table = merging(delta_at, tmp_path, partition_by=["name"])
    for number in range(4):
        put(table, number)
    assert held(table) == after(*BATCHES)
    assert not [one for one in Path(table.uri).glob("*.parquet") if "changes" in one.name]


@AT
def test_columns_of_all_kinds_are_merged(at: Any, tmp_path: Path) -> None:
    """Names with blanks, dots and quotes; keys of several columns; lists, structs and maps."""
    kinds = {
        "Order Id": pa.string(),
        "a.b": pa.timestamp("us", "UTC"),
        "o\"'ff": pa.int64(),
        "list": pa.list_(pa.int64()),
        "struct": pa.struct([("x", pa.int64())]),
        "map": pa.map_(pa.string(), pa.int64()),
    }
    merge = Merge(keys=["Order Id", "a.b"], order=["o\"'ff"])
    table = merging(at, tmp_path, merge)
    columns = [to_spark(kind) for kind in kinds.values()]
    schema = spark_schema(**dict(zip(kinds, columns, strict=True)))

    def row(key: str, at: int, order: int) -> list[Any]:
        return [key, at, order, [order, None], {"x": order}, [("k", order)]]

    given = [[row("a" * 300, 1_000_500, 1), row("b", 7, 2)], [row("a" * 300, 1_000_500, 3), row("c", 7, 4)]]
    for number, rows in enumerate(given):
        put_arrow(table, number, rows, kinds, schema)
    found = {one["Order Id"][0]: one for one in rows_in(table).to_pylist()}
    assert len(rows_in(table)) == 3
    assert {key: (one["o\"'ff"], one["list"], one["struct"]) for key, one in found.items()} == {
        key: (order, [order, None], {"x": order}) for key, order in (("a", 3), ("b", 2), ("c", 4))
    }


def plan(topic_id: str, **ends: int) -> str:
    """A batch's plan: one source of a topic."""
    line = {
        "orders": {number.lstrip("p"): end for number, end in ends.items()},
        f"topic-id:orders:{topic_id}": {},
    }
    return f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{{}}}}\n{json.dumps(line)}'


def plain(**ends: int) -> str:
    """The same of Spark's Kafka source."""
    line = json.dumps({"orders": {number.lstrip("p"): end for number, end in ends.items()}})
    return f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{{}}}}\n{line}'


@EVERYWHERE
@pytest.mark.parametrize(
    ("now", "said"),
    [
        (plan("B", p0=4), "orders is another topic of that name, orders-0 ends at 4, and did at 90"),
        (plan("A", p0=89), "orders-0 ends at 89, and did at 90"),
        (plan("A", p0=95, p1=3), "orders-1 is a new partition"),
        (plan("B", p0=95), "orders is another topic of that name"),
    ],
    ids=["made anew", "cut", "more partitions", "made anew and grown"],
)
def test_offsets_of_two_logs_are_not_compared(at: Any, now: str, said: str, tmp_path: Path) -> None:
    """All changes of a topic that was made anew would be older than the table's rows, and change nothing."""
    kinds = {"id": pa.int64(), "name": pa.string(), "offset": pa.int64(), "op": pa.string()}
    table = merging(at, tmp_path)
    put_arrow(table, 0, [[1, "old", 88, "c"], [2, "old", 89, "c"]], kinds, SCHEMA, plan("A", p0=90))
    put_arrow(table, 1, [], kinds, SCHEMA, plan("A", p0=90))
    for _ in range(2):
        with pytest.raises(
            FanoutStopped, match=f"({said}).* since batch 1, so offsets .*say since="
        ) as stopped:
            put_arrow(table, 2, [[1, "new", 3, "u"]], kinds, SCHEMA, now)
    later = merging(at, tmp_path, with_a_turn(table), since=words(stopped)[0])
    kinds, schema = (
        {**kinds, "turn": pa.int64()},
        spark_schema(id="long", name="string", offset="long", op="string", turn="long"),
    )
    put_arrow(later, 2, [[1, "new", 3, "u", 1]], kinds, schema, now)
    put_arrow(later, 3, [[1, "newest", 4, "u", 1]], kinds, schema, now)
    assert held(later) == [(1, "newest", 4), (2, "old", 89)]


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (plan("B", p0=95), "another topic"),
        (plan("A", p0=89), "ends at 89"),
        (plan("A", p0=95, p1=1), "a new partition"),
        (plan("A", p0=95), None),
    ],
)
def test_a_topic_that_was_left_out_for_a_while_is_compared_when_it_comes_back(
    now: str, said: str | None
) -> None:
    left = plan("A").replace('"orders": {}', '"left-at:orders:90:0": {}, "left-id:orders:A": {}')
    left = left.replace('"topic-id:orders:A": {}', '"other": {"0": 1}')
    mark = Mark(7, 1, Content(0, 0), left)
    with nullcontext() if said is None else pytest.raises(FanoutStopped, match=said):
        check_order("there", mark, Batch("orders", 7, 2, now), None)


@EVERYWHERE
def test_a_query_that_was_set_back_in_its_log_goes_on_with_since(at: Any, tmp_path: Path) -> None:
    """The message's other way: older changes that come again change nothing."""
    kinds = {"id": pa.int64(), "name": pa.string(), "offset": pa.int64(), "op": pa.string()}
    table = merging(at, tmp_path)
    put_arrow(table, 0, [[1, "newest", 89, "c"]], kinds, SCHEMA, plan("A", p0=90))
    with pytest.raises(FanoutStopped, match=r"ends at 80.*set back in the same log") as stopped:
        put_arrow(table, 1, [[1, "older", 79, "u"], [2, "there", 78, "c"]], kinds, SCHEMA, plan("A", p0=80))
    later = merging(at, tmp_path, since=words(stopped)[0])
    put_arrow(later, 1, [[1, "older", 79, "u"], [2, "there", 78, "c"]], kinds, SCHEMA, plan("A", p0=80))
    put_arrow(later, 2, [[1, "newest", 89, "u"]], kinds, SCHEMA, plan("A", p0=90))
    assert held(later) == [(1, "newest", 89), (2, "there", 78)]


NEWLY = [[1, "new", 3, "u"], [2, "gone", 4, "d"], [3, "three", 5, "c"]]
"""Changes of a topic that was made anew: with lower offsets than those that the table has."""


def with_a_turn(table: Any) -> Merge:
    """Have a column put before the offsets, as the message says."""
    if isinstance(table, PostgresTarget):
        with psycopg.connect(table.conninfo) as connection:
            connection.execute(f'ALTER TABLE "{table.name}" ADD COLUMN turn bigint')
    elif hasattr(table, "uri"):
        DeltaTable(table.uri).alter.add_columns([Field("turn", PrimitiveType("long"))])
    else:
        ice(table).update_schema().add_column("turn", LongType()).commit()
    return Merge(["id"], ["turn", "offset"], "op")


def merged(
    table: Any, name: str, query: int, number: int, rows: list[list[Any]], ends: str, begins: str = ""
) -> None:
    """A batch of a fan-out; a row with five values has a turn."""
    turn = {"turn": pa.int64()} if table.merge.order == ("turn", "offset") else {}
    kinds = {"id": pa.int64(), "name": pa.string(), "offset": pa.int64(), "op": pa.string()} | turn
    columns = {"id": "long", "name": "string", "offset": "long", "op": "string"} | dict.fromkeys(turn, "long")
    given = [[*row, 1] if turn else row for row in rows]
    batch = Batch(name, query, number, ends, begins)
    put_arrow(table, number, given, kinds, spark_schema(**columns), batch=batch)


def begun_twice(table: Any, of: str = plan("A", p0=90)) -> None:
    merged(table, "orders", 7, 0, [], of)
    merged(table, "orders", 7, 1, [[1, "old", 88, "c"], [2, "old", 89, "c"]], of)


@EVERYWHERE
@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (plan("A", p0=90), plan("B", p0=6), "orders is another topic of that name"),
        (plan("A", p0=90), plan("B", p0=96), "orders is another topic of that name"),
        (plan("A", p0=90), plan("A", p0=90, p1=6), "orders-1 is a new partition"),
        (plan("A", p0=90), plain(p0=96), r"orders may be another topic of that name \(no id is known\)"),
        (plain(p0=90), plain(p0=6), r"orders may be another topic of that name \(no id is known\)"),
        ("", plan("A", p0=96), None),
    ],
    ids=["made anew", "made anew and grown", "more partitions", "another source", "no ids", "no plan"],
)
def test_a_new_checkpoint_under_a_new_name_begins_with_a_word(
    at: Any, then: str, now: str, said: str | None, tmp_path: Path
) -> None:
    """The new name has no mark, but the table has rows of another log. Both ways out."""
    table = merging(at, tmp_path)
    begun_twice(table, then)
    with pytest.raises(FanoutStopped, match=r"another query.*give the fan-out a new name"):
        merged(table, "orders", 8, 0, NEWLY, now)
    why = (
        "nothing says any more what batch 1 under the name orders of another query has read"
        if said is None
        else f"{said} since batch 1 under the name orders of another query"
    )
    for _ in range(2):
        with pytest.raises(FanoutStopped, match=f"{why}, so offsets .*say since=.*an empty table") as stopped:
            merged(table, "orders2", 8, 0, NEWLY, now)
    assert held(table) == [(1, "old", 88), (2, "old", 89)]
    (tmp_path / "empty").mkdir()
    empty, later = (
        merging(at, tmp_path / "empty"),
        merging(at, tmp_path, with_a_turn(table), since=words(stopped)[0]),
    )
    for one in (empty, later):
        for number in (0, 0, 1):
            merged(one, "orders2", 8, number, NEWLY if number == 0 else [[1, "newer", 6, "u"]], now)
        assert held(one) == [(1, "newer", 6), (3, "three", 5)]


@EVERYWHERE
def test_since_of_a_table_that_joins_is_no_word_for_its_order(at: Any, tmp_path: Path) -> None:
    """A query that runs already takes a table of another one: an empty one is its way out."""
    table = merging(at, tmp_path, since=4)
    merged(merging(at, tmp_path), "orders", 7, 0, [[1, "old", 88, "c"]], plan("A", p0=90))
    with pytest.raises(FanoutStopped, match=r"another topic.*written\. Give the fan-out an empty table$"):
        merged(table, "orders2", 8, 4, NEWLY, plan("B", p0=6))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FanoutStopped, match=r"the table is gone.*lacks batches 0 to 3$") as stopped:
        merged(merging(at, tmp_path / "empty", since=4), "orders2", 8, 4, NEWLY, plan("B", p0=6))
    empty = merging(at, tmp_path / "empty", since=words(stopped)[0])
    for number in (4, 5):
        merged(empty, "orders2", 8, number, NEWLY, plan("B", p0=6))
    assert held(empty) == [(1, "new", 3), (3, "three", 5)]


@EVERYWHERE
@pytest.mark.parametrize("then", [plan("A", p0=90), ""], ids=["", "its plan is not known"])
def test_a_new_name_of_a_query_follows_the_former_one_s_offsets(at: Any, then: str, tmp_path: Path) -> None:
    """Its since is for the name. The way out: the former name once more, with the word."""
    now, table = plan("B", p0=6), merging(at, tmp_path, since=2)
    begun_twice(merging(at, tmp_path), then)
    why = "another topic of that name, .* since" if then else "nothing says any more what"
    with pytest.raises(
        FanoutStopped, match=f"{why} batch 1 under the name orders.*its name orders for this"
    ) as stopped:
        merged(table, "renamed", 7, 2, NEWLY, now)
    assert held(table) == [(1, "old", 88), (2, "old", 89)]
    turn = with_a_turn(table)
    for name, number in (("orders", 2), ("renamed", 3), ("renamed", 4), ("orders", 5)):
        rows = NEWLY if number == 2 else [[1, "newer", number + 4, "u"]]
        since = words(stopped)[0] if number == 2 else number
        merged(merging(at, tmp_path, turn, since=since), name, 7, number, rows, now)
    assert held(table) == [(1, "newer", 9), (3, "three", 5)]
    with pytest.raises(FanoutStopped, match="another topic of that name since batch 5 under the name orders"):
        merged(merging(at, tmp_path, turn, since=6), "renamed", 7, 6, NEWLY, plan("C", p0=6))


@EVERYWHERE
def test_a_name_that_goes_on_beside_another_query_s_is_let_go(at: Any, tmp_path: Path) -> None:
    """Ends of one log say which is newer, however far each query is in it."""
    table = merging(at, tmp_path)
    begun_twice(table)
    merged(table, "again", 8, 0, [[1, "older", 3, "u"], [4, "four", 4, "u"]], plan("A", p0=6))
    merged(table, "again", 8, 1, [[1, "older", 7, "u"]], plan("A", p0=8), plan("A", p0=6))
    merged(table, "orders", 7, 2, [[2, "newer", 90, "u"]], plan("A", p0=91), plan("A", p0=90))
    merged(table, "other", 9, 0, [[5, "five", 0, "u"]], plan("X", p0=1).replace("orders", "others"))
    assert held(table) == [(1, "old", 88), (2, "newer", 90), (4, "four", 4), (5, "five", 0)]


@EVERYWHERE
def test_a_batch_that_goes_on_before_the_former_end_stops(at: Any, tmp_path: Path) -> None:
    """Spark's Kafka source names no ids: on another cluster its offsets are lower, and its end may not be."""
    changes = [[1, "new", 12, "u"], [2, "gone", 13, "d"], [3, "three", 39, "c"]]
    table, now, begins = merging(at, tmp_path), plain(p0=40), plain(p0=12)
    merged(table, "orders", 7, 0, [[1, "old", 20, "c"], [2, "old", 22, "c"]], plain(p0=24))
    with pytest.raises(
        FanoutStopped, match=r"orders-0 goes on at 12, and ended at 24 since batch 0, so "
    ) as stopped:
        merged(table, "orders", 7, 1, changes, now, begins)
    assert held(table) == [(1, "old", 20), (2, "old", 22)]
    later = merging(at, tmp_path, with_a_turn(table), since=words(stopped)[0])
    merged(later, "orders", 7, 1, changes, now, begins)
    merged(later, "orders", 7, 2, [[3, "more", 40, "u"]], plain(p0=41), now)
    assert held(later) == [(1, "new", 12), (3, "more", 40)]


def test_marks_of_a_table_that_was_replaced_are_not_its_own(tmp_path: Path) -> None:
    """An empty table of the same name."""
    table = merging(postgres_at, tmp_path)
    begun_twice(table)
    with psycopg.connect(table.conninfo) as connection:
        connection.execute(f'DROP TABLE "{table.name}"')
    merged(table, "orders2", 8, 0, NEWLY, plan("B", p0=6))
    assert held(table) == [(1, "new", 3), (3, "three", 5)]


@pytest.mark.parametrize("clean", [False, True])
def test_other_names_marks_are_found_behind_a_checkpoint(clean: bool, tmp_path: Path) -> None:
    """Delta's log is cleaned up: a mark stays, and its plan goes."""
    table = merging(delta_at, tmp_path)
    begun_twice(table)
    others_wrote(table)
    if clean:
        clean_up(table)
    else:
        DeltaTable(table.uri).create_checkpoint()
    others_wrote(table)
    table.mark("orders2")
    assert {name: (one.query, one.number) for name, one in table.others("orders2", 8).items()} == {
        "orders": (7, 1)
    }
    with pytest.raises(
        FanoutStopped, match="nothing says any more" if clean else "another topic of that name"
    ):
        merged(table, "orders2", 8, 0, NEWLY, plan("B", p0=6))


@AT
def test_one_since_does_not_say_two_things(at: Any, tmp_path: Path) -> None:
    """The table has lost its last batch, and the topic was made anew: first one, then the other."""
    table = merging(at, tmp_path)
    for number in range(3):
        merged(table, "orders", 7, number, [[number, "old", 80 + number, "c"]], plan("A", p0=90))
    back_to(2)(table)
    for since in (None, 3):
        with pytest.raises(
            FanoutStopped, match=r"another topic.* Also, it no longer has batch 2.*an empty table"
        ):
            merged(merging(at, tmp_path, since=since), "orders", 7, 3, NEWLY, plan("B", p0=6))
    back_to(3)(table)
    with pytest.raises(FanoutStopped, match=r"another topic.*say since=") as stopped:
        merged(table, "orders", 7, 3, NEWLY, plan("B", p0=6))
    later = merging(at, tmp_path, with_a_turn(table), since=words(stopped)[0])
    merged(later, "orders", 7, 3, NEWLY, plan("B", p0=6))
    assert held(later) == [(0, "old", 80), (1, "new", 3), (3, "three", 5)]


def test_a_plan_that_is_not_known_any_more_follows_nothing() -> None:
    """Where the batch is gone as well, that stops."""
    mark, batch = Mark(7, 1, Content(0, 0), ""), Batch("orders", 7, 2, plan("A", p0=90))
    with pytest.raises(FanoutStopped, match=r"batch 1 has read.*since=") as stopped:
        check_order("there", mark, batch, 2)
    check_order("there", mark, batch, words(stopped)[0])
    check_order("there", mark._replace(gone=Gone("lost", "back")), batch, None)
    with pytest.raises(FanoutStopped, match=r"Also, it lacks batches 2 to 3\. Bring back") as stopped:
        check_order("there", mark, batch._replace(number=4), None)
    assert words(stopped) == [], "one since does not say two things"


class SparkLog:
    """What a running query's JVM shows of its offset log."""

    def __init__(self, place: Path, plans: dict[int, Any]) -> None:
        self.place, self.plans, self.text = place, plans, ""

    def __getattr__(self, _: str) -> Any:
        return self

    def __call__(self, *_: Any) -> Any:
        return self

    def get(self, number: Any = None) -> Any:
        if isinstance(number, int) and number not in self.plans:
            raise Py4JError("None.get")
        return self.plans[number] if isinstance(number, int) else self

    def serialize(self, found: Any, _: Any) -> None:
        self.text = found.text

    def toString(self, _: str) -> str:
        return self.text

    def resolvedCheckpointRoot(self) -> str:
        return str(self.place)


@pytest.mark.parametrize(("kept", "begins"), [([0, 1], 1), ([1], 0)])
def test_the_fan_out_knows_where_a_batch_begins(kept: list[int], begins: int, tmp_path: Path) -> None:
    """Of the running query's log: an edit of the checkpoint is in it."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "1").write_text(plain(p0=40))
    ends = {number: SimpleNamespace(text=plain(p0=(12, 40)[number])) for number in kept}
    option = {number: SimpleNamespace(get=lambda one=one: one) for number, one in ends.items()}
    log: Any = SparkLog(tmp_path, option)
    found = fanout_batch._ends(log, "q", 1)
    assert [Planned.parse(1, one).topic_offsets() for one in found if one] == [
        {("orders", 0): 40}, *[{("orders", 0): 12}] * begins,
    ]  # fmt: skip
    assert found[1] or not begins


def put_arrow(
    table: Any,
    number: int,
    rows: list[list[Any]],
    kinds: dict[str, Any],
    schema: str,
    ends: str = "",
    batch: Batch | None = None,
) -> None:
    given = ChangeRows([], schema)
    columns = {
        name: pa.array([row[at] for row in rows], kind) for at, (name, kind) in enumerate(kinds.items())
    }
    columns[HASH] = pa.array(range(len(rows)), pa.int64())
    given.numbers = range(len(rows))
    whole = pa.RecordBatch.from_pydict(columns)
    given.batch = lambda numbers: whole.take(pa.array(numbers, pa.int64()))  # type: ignore[method-assign]
    carry_out(batch or Batch("orders", 7, number, ends), given.through, [table], [])


def to_spark(kind: pa.DataType) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type

    return json.loads(from_arrow_type(kind).json())


def test_another_thing_than_a_merge_is_refused() -> None:
    with pytest.raises(OptionError, match="Merge"):
        delta("/t", merge="id")  # type: ignore[arg-type]
