"""The driver dies before and after each step of a batch, and starts again: each place has each row once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eoslog.fanout.batch import carry_out
from eoslog.fanout.rules import Batch
from tests.fanout.kit import (
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
