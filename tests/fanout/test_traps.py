"""Ways to lose or double rows silently: each stops loudly, before anything is written, or is exact."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from eoslog.errors import OptionError, SchemaError
from eoslog.fanout import delta, fanout, iceberg, topic
from eoslog.fanout.batch import carry_out
from eoslog.fanout.rules import Batch, FanoutStopped, check_topic, number_of, other_rows_word
from eoslog.fanout.table import write
from tests.fanout.kit import AT, FakeTopic, ListRows, delta_at, iceberg_at, numbers_in, words

OTHER_COLUMNS = '{"type":"struct","fields":[{"name":"n","type":"string","nullable":true,"metadata":{}}]}'


def rows_of(number: int) -> range:
    return range(10 * number, 10 * number + 10)


def go(
    tables: list[Any],
    place: Any,
    number: int,
    *,
    name: str = "orders",
    query: int = 7,
    rows: Any = None,
    **more: bool,
) -> None:
    given = rows or ListRows(rows_of(number))
    carry_out(Batch(name, query, number), given.through, tables, [place], **more)


def ice(target: Any) -> Any:
    return load_catalog("eoslog", **target.catalog).load_table(target.identifier)


@AT
def test_a_new_checkpoint_under_the_same_name_stops_before_anything_is_written(
    at: Any, tmp_path: Path
) -> None:
    table, place = at(tmp_path), FakeTopic()
    for number in range(2):
        go([table], place, number)
    for number in (0, 1, 2):
        with pytest.raises(FanoutStopped, match="another query"):
            go([table], FakeTopic(), number, query=8)
    assert numbers_in(table) == list(range(20))


@AT
def test_another_query_s_second_table_stops_the_first_from_being_written(at: Any, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    old, new, place = at(tmp_path), delta_at(tmp_path / "new"), FakeTopic()
    go([old], place, 0, query=8)
    with pytest.raises(FanoutStopped, match="another query"):
        go([new, old], place, 0)
    assert numbers_in(new) == []


@AT
def test_a_replay_with_other_rows_stops_before_the_others_get_them(at: Any, tmp_path: Path) -> None:
    table, place = at(tmp_path), FakeTopic()
    batch, first = Batch("orders", 7, 0), ListRows(range(10))
    table.prepare(first, batch)
    write(table, first, batch)  # killed here
    for other in (range(11), range(1, 11)):
        with pytest.raises(FanoutStopped, match='accept_other_rows="0:'):
            go([table], place, 0, rows=ListRows(other))
    assert place.numbers() == []
    go([table], place, 0, rows=ListRows(range(11)), other_rows=True)
    assert (numbers_in(table), place.numbers()) == (list(range(10)), list(range(11)))


@AT
def test_a_topic_that_has_the_batch_is_asked_before_a_table_gets_it(at: Any, tmp_path: Path) -> None:
    """The tables were dropped, or put back to before the batch; the topic has other rows of it."""
    table, place = at(tmp_path), FakeTopic()
    go([], place, 0, rows=ListRows(range(5)))
    with pytest.raises(FanoutStopped, match="TokenReused"):
        go([table], place, 0)
    assert numbers_in(table) == []
    go([table], place, 0, other_rows=True)
    assert (numbers_in(table), place.numbers()) == (list(range(10)), list(range(5)))


def test_the_word_for_other_rows_names_the_query_its_batch_and_its_plan() -> None:
    """One that is left in the code does not hold for a batch of the next checkpoint."""
    told = [json.dumps({"orders": {"0": end}}) for end in (10, 20)]
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n'
    batches = [
        Batch("orders", query, number, head + ends) for query in (7, 8) for number in (3, 4) for ends in told
    ]
    assert len({other_rows_word(one) for one in batches}) == len(batches)
    assert other_rows_word(batches[0]) == other_rows_word(batches[0]._replace(name="others"))


def test_another_query_s_token_stops_the_batch() -> None:
    batch = Batch("orders", number_of("mine"), 3)
    for by in ("mine", "", None):  # an older version has not noted whose foreachBatch it was
        check_topic("topic out", by, batch)
    with pytest.raises(
        FanoutStopped, match=r"topic out: another query .* has written a batch 3 under this name"
    ):
        check_topic("topic out", "another", batch)


def test_expired_snapshots_and_other_writers_are_no_harm(tmp_path: Path) -> None:
    table, place = iceberg_at(tmp_path), FakeTopic()
    for number in range(3):
        go([table], place, number)
        ice(table).append(ice(table).scan(limit=1).to_arrow().slice(0, 0))
        ours = ice(table).snapshots()[-2].snapshot_id
        ice(table).maintenance.expire_snapshots().by_id(ours).commit()
        go([table], place, number)
    assert numbers_in(table) == list(range(30))


@AT
def test_a_table_that_was_created_again_or_joins_late_stops_unless_since_says_so(
    at: Any, tmp_path: Path
) -> None:
    first, late = tmp_path / "first", tmp_path / "late"
    first.mkdir()
    late.mkdir()
    place, old = FakeTopic(), at(first)
    go([old], place, 0)
    with pytest.raises(FanoutStopped, match="the table is gone"):
        go([old, at(late, since=1)], place, 1)
    with pytest.raises(FanoutStopped, match="lacks batch 0") as stopped:
        go([old, at(late)], place, 1)
    assert numbers_in(old) == list(range(10))
    new = at(late, since=words(stopped)[0])
    go([old, new], place, 1)
    go([old, new], place, 1)
    go([old, new], place, 2)
    assert numbers_in(new) == list(range(10, 30)) and numbers_in(old) == place.numbers() == list(range(30))
    with pytest.raises(FanoutStopped, match="older copy"):
        go([old, new], place, 1)


@AT
@pytest.mark.parametrize("number", [0, 1])
def test_another_name_in_mid_batch_stops_and_is_taken_from_the_next_one_on(
    at: Any, number: int, tmp_path: Path
) -> None:
    """Also if `since` says that the table takes part from this batch on."""
    for one in ("a", "b"):
        (tmp_path / one).mkdir()
    first, second, place = at(tmp_path / "a"), at(tmp_path / "b"), FakeTopic()
    for done in range(number):
        go([first, second], place, done)
    batch, rows = Batch("orders", 7, number), ListRows(rows_of(number))
    first.prepare(rows, batch)
    write(first, rows, batch)  # killed here

    def renamed(number: int, since: int | None) -> None:
        tables = [at(tmp_path / one, since=since) for one in ("a", "b")]
        given = ListRows(rows_of(number))
        carry_out(Batch("renamed", 7, number), given.through, tables, [place])

    for since in {None, number or None}:
        with pytest.raises(
            FanoutStopped, match=rf"batch {number} .* under another name.* since={number + 1}"
        ):
            renamed(number, since)
    go([first, second], place, number)
    for _ in range(2):
        renamed(number + 1, number + 1)
    assert numbers_in(first) == numbers_in(second) == place.numbers() == list(range(10 * number + 20))
    with pytest.raises(FanoutStopped, match="under another name"):
        go([at(tmp_path / "a", since=number + 1)], place, number + 1)


@AT
def test_a_batch_that_a_table_has_missed_stops(at: Any, tmp_path: Path) -> None:
    """The table is there, and stands two batches behind, or has no mark of this fan-out."""
    table, place = at(tmp_path), FakeTopic()
    go([table], place, 0)
    with pytest.raises(FanoutStopped, match="ends at batch 0"):
        go([table], place, 2)
    rows = ListRows(rows_of(1))
    with pytest.raises(FanoutStopped, match="none of this fan-out"):
        carry_out(Batch("others", 7, 1), rows.through, [table], [place])
    assert numbers_in(table) == place.numbers() == list(range(10))


@AT
def test_of_two_drivers_with_the_same_batch_one_commits(at: Any, tmp_path: Path) -> None:
    one, zombie, place = at(tmp_path), at(tmp_path), FakeTopic()
    go([one], place, 0)
    batch, rows = Batch("orders", 7, 1), ListRows(rows_of(1))
    for driver in (one, zombie):
        driver.prepare(rows, batch)
    write(one, rows, batch)
    write(zombie, rows, batch)
    assert numbers_in(one) == list(range(20))
    zombie.prepare(rows, batch)
    go([one], place, 2)
    with pytest.raises(FanoutStopped, match="batch 2 already"):
        write(zombie, rows, batch)
    assert numbers_in(one) == list(range(30))


@AT
def test_other_writers_in_between_are_no_harm(at: Any, tmp_path: Path) -> None:
    table, other, place = at(tmp_path), at(tmp_path), FakeTopic()
    go([table], place, 0)
    batch, rows = Batch("orders", 7, 1), ListRows(rows_of(1))
    table.prepare(rows, batch)
    foreign = Batch("another", 9, 0)
    other.prepare(ListRows(range(0)), foreign)
    write(other, ListRows(range(0)), foreign)
    write(table, rows, batch)
    go([table], place, 1)
    assert numbers_in(table) == list(range(20))


@AT
def test_a_commit_whose_answer_is_lost_is_looked_for(at: Any, tmp_path: Path, monkeypatch: Any) -> None:
    table, place, commit = at(tmp_path), FakeTopic(), type(at(tmp_path)).commit

    def lost(self: Any, *given: Any) -> None:
        commit(self, *given)
        raise ConnectionError("no answer")

    monkeypatch.setattr(type(table), "commit", lost)
    go([table], place, 0)
    assert numbers_in(table) == place.numbers() == list(range(10))

    def refused(self: Any, *given: Any) -> None:
        raise ConnectionError("not sent")

    monkeypatch.setattr(type(table), "commit", refused)
    with pytest.raises(ConnectionError, match="not sent"):
        go([table], place, 1)
    assert place.numbers() == list(range(10))


@AT
def test_other_columns_stop_before_any_table_is_written(at: Any, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    first, table, place = delta_at(tmp_path / "first"), at(tmp_path), FakeTopic()
    go([first, table], place, 0)
    with pytest.raises(SchemaError, match="columns"):
        go([table], place, 1, rows=ListRows(rows_of(1), OTHER_COLUMNS))
    assert numbers_in(table) == list(range(10))


@AT
def test_batches_without_rows_count(at: Any, tmp_path: Path) -> None:
    table, place = at(tmp_path), FakeTopic()
    for number in range(3):
        for _ in range(2):
            go([table], place, number, rows=ListRows(rows_of(number) if number == 2 else range(0)))
    assert numbers_in(table) == list(range(20, 30))


def test_partitioned_tables_have_each_row_once(tmp_path: Path) -> None:
    by_kind, place = delta_at(tmp_path, partition_by=["kind"]), FakeTopic()
    table = iceberg_at(tmp_path)
    table.prepare(ListRows(range(10)), Batch("orders", 7, 0))
    with ice(table).update_spec() as spec:
        spec.add_identity("kind")
    for number in range(3):
        go([by_kind, table], place, number)
    assert numbers_in(by_kind) == numbers_in(table) == list(range(30))
    found = DeltaTable(by_kind.uri).to_pyarrow_table(filters=[("kind", "=", "k/1")])
    assert sorted(found.column("n").to_pylist()) == list(range(1, 30, 3))


@pytest.mark.parametrize(
    ("configuration", "column", "said"),
    [
        ({"delta.setTransactionRetentionDuration": "interval 7 days"}, {}, "setTransactionRetentionDuration"),
        ({"delta.constraints.positive": "n >= 0"}, {}, "constraints.positive"),
        ({"delta.columnMapping.mode": "name"}, {}, "columnMapping.mode"),
        ({}, {"delta.generationExpression": "n % 3"}, "kind"),
    ],
)
def test_a_delta_table_with_what_the_fanout_cannot_keep_to_is_refused(
    tmp_path: Path, configuration: dict[str, str], column: dict[str, str], said: str
) -> None:
    table = delta_at(tmp_path)
    go([table], FakeTopic(), 0)
    log = Path(table.uri) / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    (metadata,) = [action["metaData"] for action in actions if "metaData" in action]
    fields = json.loads(metadata["schemaString"])
    fields["fields"][1]["metadata"] |= column
    changed = {**metadata, "schemaString": json.dumps(fields), "configuration": configuration}
    version = DeltaTable(table.uri).version() + 1
    (log / f"{version:020}.json").write_text(json.dumps({"metaData": changed}) + "\n")
    with pytest.raises(OptionError, match=said):
        go([table], FakeTopic(), 1)
    assert DeltaTable(table.uri).version() == version, "nothing was written"


SERVERS = {"kafka.bootstrap.servers": "x:1"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: fanout("", [delta("/t")]), "name"),
        (lambda: fanout("a b", [delta("/t")]), "name"),
        (lambda: fanout("a", []), "no table"),
        (lambda: fanout("a", [topic("t", SERVERS)]), "no table"),
        (lambda: fanout("a", ["/t"]), "not delta"),  # type: ignore[list-item]
        (lambda: fanout("a", [delta("/t"), delta("/t")]), "twice"),
        (lambda: fanout("a", [delta("/t")], accept_other_rows=-1), "accept_other_rows"),
        (lambda: fanout("a", [delta("/t")], accept_other_rows="1"), "accept_other_rows"),
        (lambda: delta("/t", since="3:xyz"), "since"),
        (lambda: delta(""), "path"),
        (lambda: delta("/t", partition_by="day"), "list"),
        (lambda: delta("/t", since=-1), "since"),
        (lambda: iceberg("t", {"type": "sql"}), "namespace.table"),
        (lambda: iceberg("d.t", {}), "catalog"),
        (lambda: topic("", SERVERS), "name a topic"),
        (lambda: topic("t", {}), "kafka.bootstrap.servers"),
        (lambda: topic("t", SERVERS | {"write.token": "1"}), "write.token"),
    ],
)
def test_a_wrong_argument_is_named(wrong: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        wrong()


def test_a_missing_extra_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(OptionError, match=r"install eoslog\[delta\]"):
        delta("/t")


@AT
def test_two_drivers_at_once_commit_a_batch_once(at: Any, tmp_path: Path) -> None:
    go([at(tmp_path)], FakeTopic(), 0)
    for number in range(1, 5):
        batch, rows, barrier = Batch("orders", 7, number), ListRows(rows_of(number)), Barrier(2)

        def drive(batch: Batch = batch, rows: ListRows = rows, barrier: Barrier = barrier) -> None:
            table = at(tmp_path)
            table.prepare(rows, batch)
            barrier.wait(60)
            write(table, rows, batch)

        with ThreadPoolExecutor(2) as drivers:
            for done in [drivers.submit(drive) for _ in range(2)]:
                done.result(100)
    assert numbers_in(at(tmp_path)) == list(range(50))
