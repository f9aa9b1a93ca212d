"""Checkpoints of queries that were killed in a real Spark, forked: both go on, and `eoslog audit` counts what
was foretold. make test-checkpoint runs it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eoslog.checkpoint import carry_out
from tests.checkpoint.edited_query import NEXT, ROUNDS, ROWS, STATES, EditedQuery, Stateful, fill
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", [EditedQuery, Stateful])
def test_both_go_on_and_write_twice_what_was_foretold(
    spark: SparkSession, hasty: Kafka, tmp_path: Path, kind: type[EditedQuery], state: str
) -> None:
    """Each from where the query stood; then each every later row. Also if the old one starts first."""
    query = kind(spark, hasty, tmp_path)
    query.bring_to(state)
    if kind is Stateful and NEXT[state] == "finish":
        said = query.command("fork", str(tmp_path / "new"), "--group", "new")
        assert said.exit_code == 1 and "only Spark knows" in said.output
        return
    copy, foretold = query.fork(tmp_path / "new")
    assert foretold > 0
    for one in (query, copy):
        assert one.command("check").exit_code == 0
        assert one.shown()["next_start"].startswith(NEXT[state])
    order = (query, copy) if kind is Stateful else (copy, query)
    assert [one.run() for one in order] == ["", ""]
    assert query.audited() == {"doubled": foretold, "lost": 0}
    fill(query.kafka, query.source, "later")
    assert [one.run() for one in order] == ["", ""]
    assert query.audited() == {"doubled": foretold + ROUNDS * ROWS, "lost": 0}


def test_a_copy_alone_takes_the_place_of_a_query_that_never_comes_back(
    query: EditedQuery, tmp_path: Path
) -> None:
    """What the dead one had decided is there: each row is, once."""
    query.bring_to("decided, no winner finished")
    copy, _ = query.fork(tmp_path / "new")
    shutil.rmtree(query.checkpoint)
    assert copy.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}


class Died(Exception):
    """The command's process is dead."""


@pytest.mark.parametrize("decided", [False, True])
def test_a_copy_that_is_not_complete_does_not_start(
    query: EditedQuery, tmp_path: Path, decided: bool
) -> None:
    query.bring_to("stopped")
    move = carry_out.move

    def died(*given: Any) -> None:
        if decided:
            move(*given)
        raise Died

    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError):
        patch.setattr(carry_out, "move", died)
        query.fork(tmp_path / "new")
    copy = EditedQuery(query.spark, query.kafka, tmp_path / "unused")
    copy.source, copy.topics, copy.target = query.source, query.topics, query.target
    copy.checkpoint, copy.sink, copy.group = tmp_path / "new", f"forked-{query.sink}", f"forked-{query.group}"
    assert "eoslog checkpoint fork has not finished" in copy.run()
    assert query.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}
