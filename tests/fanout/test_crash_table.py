"""Fan-outs that are killed at each step, audited; and the plan of a batch that is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.utils.config import Config

from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.fanout import marked_ends
from eoslog.fanout.batch import carry_out
from eoslog.fanout.rules import Batch, FanoutStopped, number_of
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import run
from tests.fanout.kit import (
    AT,
    Calls,
    Dying,
    FakeTopic,
    Killed,
    ListRows,
    delta_at,
    iceberg_at,
    numbers_in,
    wrong,
)
from tests.fanout.soak_fanout import PARTITIONS, judge, wanted
from tests.fanout.test_table_history import AT as AT_FILES
from tests.fanout.test_table_history import clean_up, other_rows, replaced

ROWS, A_BATCH = range(30), 10
Life = Callable[[int, list[Any], Any], None]


def by_rules(number: int, tables: list[Any], topic: Any) -> None:
    rows = ListRows(ROWS[number * A_BATCH : (number + 1) * A_BATCH])
    carry_out(Batch("orders", 7, number), rows.through, tables, [topic])


def plainly(number: int, tables: list[Any], topic: Any) -> None:
    """As people write it: append to each table, with no look at what is there."""
    rows, batch = ListRows(ROWS[number * A_BATCH : (number + 1) * A_BATCH]), Batch("orders", 7, number)
    for table in tables:
        table.target.prepare(rows, batch._replace(number=0))
        table.commit(table.stage(rows, batch), batch)
    topic.write(rows, batch, other_rows=True)


def lives(folder: Path, dies_at: int, life: Life) -> tuple[bool, list[dict[str, int]]]:
    """Batches 0 to 2; the driver dies once in batch 1. Whether it died, and what is wrong in each place."""
    folder.mkdir()
    tables, topic, died = [delta_at(folder), iceberg_at(folder)], FakeTopic(), False
    for number in range(3):
        calls = Calls(dies_at if number == 1 else None)
        try:
            life(number, [Dying(one, calls) for one in tables], Dying(topic, calls))
        except Killed:
            died = True
            life(number, [Dying(one, Calls()) for one in tables], topic)
    return died, [wrong(found, ROWS) for found in (*map(numbers_in, tables), topic.numbers())]


@pytest.mark.timeout(240)
def test_killed_before_and_after_each_step_each_row_is_there_once(tmp_path: Path) -> None:
    died_at, at = 0, 0
    while True:
        died, found = lives(tmp_path / str(at), at, by_rules)
        assert found == [{}, {}, {}], f"killed at {at}"
        if not died:
            break
        died_at, at = died_at + 1, at + 1
    assert died_at == 14, "prepare, stage and commit of two tables, the topic's write; before and after each"


def test_plain_writers_double(tmp_path: Path) -> None:
    """The judge is judged: killed after the first table's commit."""
    died, found = lives(tmp_path / "plain", 3, plainly)
    assert died and found[0] == {"doubled": A_BATCH}, found


# -- the soak's judge ----------------------------------------------------------------------------
# The judge of `make soak-fanout` is judged: each kind of hurt place has to be counted.

RIGHT = [(partition, offset) for partition in range(PARTITIONS) for offset in range(50)]


@pytest.mark.parametrize(
    ("found", "counted"),
    [
        (RIGHT, (0, 0, 0)),
        (RIGHT[:-3], (3, 0, 0)),
        ([*RIGHT, *RIGHT[:7]], (0, 7, 0)),
        ([*RIGHT, *RIGHT[:7], *RIGHT[:2]], (0, 9, 0)),
        ([*RIGHT, (0, 50)], (0, 0, 1)),
        ([*RIGHT[1:], RIGHT[5]], (1, 1, 0)),
    ],
)
def test_a_hurt_place_is_counted(found: list[tuple[int, int]], counted: tuple[int, int, int]) -> None:
    assert judge(Counter(found), wanted(50 * PARTITIONS, newest=False)) == counted


def test_of_changes_the_newest_of_each_key_is_wanted_unless_it_deletes() -> None:
    """499 keys in each partition: offsets 501 to 999 are the newest, and 503, 513, ... delete."""
    found = wanted(1000 * PARTITIONS, newest=True)
    assert found == {(p, o) for p in range(PARTITIONS) for o in range(501, 1000) if o % 10 != 3}


# -- a lost plan ---------------------------------------------------------------------------------
# A checkpoint that has lost a batch's plan: tables' marks have it, and a stop says what each way costs.

QUERY = "1b6f-the-query"


def files(*paths: str) -> str:
    """An entry of the offset log with the files that the batch reads, as a mark has it."""
    lines = [json.dumps({"path": path, "timestamp": 1, "batchId": 1}) for path in paths]
    return Planned(1, ('{"logOffset":1}',), entries={"sources/0/1": lines}).ends


def plan(*ends: int | str | None, topic: str = "orders") -> str:
    """An entry of the offset log with one source for each end: an offset of partition 0, or another text."""
    lines = [
        one if isinstance(one, str) else json.dumps({topic: {"0": one}}) for one in ends if one is not None
    ]
    return "\n".join(["v1", '{"batchWatermarkMs":0,"batchTimestampMs":1}', *lines])


def go(table: Any, number: int, ends: str, rows: range, topic: Any = None, **more: bool) -> None:
    batch = Batch("orders", number_of(QUERY), number, ends)
    carry_out(batch, ListRows(rows).through, [table], [topic or FakeTopic()], **more)


@AT_FILES
def test_a_table_s_mark_tells_the_plan_of_its_last_batch(at: Any, tmp_path: Path) -> None:
    table = at(tmp_path)
    assert marked_ends_after(table, 0, plan(10)) == Planned.parse(0, plan(10))
    assert marked_ends_after(table, 1, plan(20, "2026-01")) == Planned.parse(1, plan(20, "2026-01"))
    for act in (other_rows, replaced):
        act(table)
        assert marked_ends(table, "orders", QUERY) == Planned.parse(1, plan(20, "2026-01"))
    with pytest.raises(FanoutStopped, match="another query's"):
        marked_ends(table, "orders", "another")
    assert marked_ends(table, "bills", QUERY) is None


def marked_ends_after(table: Any, number: int, ends: str) -> Planned | None:
    go(table, number, ends, range(10 * number, 10 * number + 10))
    found = marked_ends(table, "orders", QUERY)
    assert found is None or found.ends == ends, "with the batch's times"
    return found


@AT
def test_a_mark_without_a_plan_tells_none(at: Any, tmp_path: Path) -> None:
    """Of an earlier version, of a Spark that does not show plans, or of a log that was cleaned up."""
    table = at(tmp_path)
    assert marked_ends_after(table, 0, "") is None
    assert marked_ends_after(table, 1, plan(20)) is not None
    if hasattr(table, "uri"):
        other_rows(table)
        clean_up(table)
        assert marked_ends(table, "orders", QUERY) is None
        go(table, 2, plan(30), range(20, 30))


CASES = {
    "more rows came": (
        plan(20), plan(40), range(10, 40),
        ["eoslog checkpoint rebuild", r"20 offsets \(orders-0 from 20 to 39\) are missing"],
    ),
    "fewer rows": (
        plan(20), plan(15), range(10, 15),
        ["eoslog checkpoint rebuild", r"5 offsets \(orders-0 from 15 to 19\) come again"],
    ),
    "both": (
        plan(20, 7), plan(15, 9), range(10, 17),
        ["5 offsets .* come again", "2 offsets .* are missing"],
    ),
    "another kind of source": (plan("3"), plan("5"), range(10, 11), ["it ended at 3, now 5"]),
    "more files": (
        files("a"), files("a", "b", "c"), range(10, 30),
        ["eoslog checkpoint rebuild", r"2 files \(b, c\) are missing"],
    ),
    "other files": (
        files("a"), files("b"), range(10, 21),
        [r"1 files \(b\) are missing", r"1 files \(a\) come again"],
    ),
    "a source whose end says nothing": (
        plan("3"), plan("3"), range(11, 21), ["does not repeat .*, or its checkpoint was changed"],
    ),
    "the same plan": (plan(20), plan(20), range(11, 21), [r"beside the stream\). Start once"]),
    "no plan then": ("", plan(20), range(11, 21), ["does not repeat .*, or its checkpoint was changed"]),
    "no plan now": (plan(20), "", range(11, 21), ["does not repeat .*, or its checkpoint was changed"]),
}  # fmt: skip


@AT
@pytest.mark.parametrize(("then", "now", "rows", "said"), CASES.values(), ids=CASES)
def test_other_rows_of_a_batch_stop_and_say_what_each_way_costs(
    at: Any, then: str, now: str, rows: range, said: list[str], tmp_path: Path
) -> None:
    table, topic = at(tmp_path), FakeTopic()
    go(table, 0, plan(10), range(10), topic)
    go(table, 1, then, range(10, 20), topic)
    with pytest.raises(FanoutStopped) as stopped:
        go(table, 1, now, rows, topic)
    for one in [*said, 'accept_other_rows="1:']:
        assert stopped.match(one)
    go(table, 1, then, range(10, 20), topic)  # what the rebuilt plan leads to
    go(table, 1, now, rows, topic, other_rows=True)
    assert numbers_in(table) == topic.numbers() == list(range(20))


def test_many_partitions_are_counted_and_not_all_named(tmp_path: Path) -> None:
    table = delta_at(tmp_path)
    then, now = (plan(json.dumps({"orders": dict.fromkeys(map(str, range(30)), end)})) for end in (10, 12))
    go(table, 0, then, range(10))
    with pytest.raises(FanoutStopped, match=r"60 offsets \(.*orders-4 from 10 to 11, 25 more partitions\)"):
        go(table, 0, now, range(20))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 0 and 1 are done."""
    found = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (found / folder).mkdir(parents=True)
    (found / "metadata").write_text(json.dumps({"id": QUERY}))
    for number in range(2):
        noted(found, number, plan(10 * number + 10))
    return found


def noted(checkpoint: Path, number: int, ends: str | None) -> None:
    """Have a batch planned and done; None: not any more."""
    for log, text in (("offsets", ends), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
        if ends is None:
            (checkpoint / log / str(number)).unlink()
        else:
            (checkpoint / log / str(number)).write_text(str(text))


def named(table: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the command line calls it."""
    if hasattr(table, "uri"):
        return f"delta:{table.uri}"
    if hasattr(table, "conninfo"):
        said = conninfo_to_dict(table.conninfo)
        variables = {
            "HOST": "host",
            "PORT": "port",
            "USER": "user",
            "DATABASE": "dbname",
            "PASSFILE": "passfile",
        }
        for variable, key in variables.items():
            monkeypatch.setenv(f"PG{variable}", str(said[key]))
        return f"postgres:{table.schema}.{table.name}"
    for name, value in table.catalog.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__EOSLOG__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return f"iceberg:eoslog.{table.identifier}"


@AT
@pytest.mark.parametrize("planned_anew", [False, True])
@pytest.mark.parametrize("end", [int, str], ids=["a topic", "a source whose end says nothing"])
def test_rebuild_writes_the_plan_of_the_table_s_mark(
    at: Any,
    end: type,
    planned_anew: bool,
    checkpoint: Path,
    broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    table = at(tmp_path)
    for number in range(2):
        go(table, number, plan(end(10 * number + 10)), range(10 * number, 10 * number + 10))
        noted(checkpoint, number, plan(end(10 * number + 10)))
    before = (checkpoint / "offsets" / "1").read_text()
    noted(checkpoint, 1, None)
    if planned_anew:
        (checkpoint / "offsets" / "1").write_text(plan(end(35)))
    line = ["--fanout", "orders", "--table", named(table, monkeypatch)]
    done = run(broker, "rebuild", checkpoint, *line)
    assert done.exit_code == 0, done.output
    assert (checkpoint / "offsets" / "1").read_text().splitlines()[2:] == before.splitlines()[2:]
    assert not (checkpoint / "commits" / "1").exists(), "the next start runs the batch again"
    assert "has the plan of batch 1" in run(broker, "rebuild", checkpoint, *line).output
    undone = run(broker, "undo", checkpoint)
    assert undone.exit_code == 0, undone.output
    assert (checkpoint / "offsets" / "1").exists() == planned_anew


def test_rebuild_refuses_what_a_table_does_not_tell(
    checkpoint: Path, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    table = delta_at(tmp_path)

    def said(*changed: str) -> str:
        done = run(
            broker,
            "rebuild",
            checkpoint,
            *(changed or ("--fanout", "orders", "--table", f"delta:{table.uri}")),
        )
        assert done.exit_code != 0
        return done.output

    assert "the table is gone" in said()
    go(table, 0, "", range(10))
    assert "tells no plan" in said()
    go(table, 1, plan('{"logOffset":1}'), range(10, 20))
    assert "a log of its own" in said()
    go(table, 2, plan(30), range(20, 30))
    noted(checkpoint, 1, None)
    assert "has lost batch 1 as well" in said()
    for half in (["--fanout", "orders"], ["--table", f"delta:{table.uri}"]):
        assert "give both" in said(*half)
    assert "names no table" in said("--fanout", "orders", "--table", "orders")
    assert "--fanout NAME --table TABLE" in said("--dry-run")
