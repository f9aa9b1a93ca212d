"""`eoslog shadow report`: what it cannot compare, it says, with exit status 2."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition

from eoslog.cli import main
from eoslog.connector.offsets.offsets import ShadowCut, to_json
from tests.connector.stock_kafka import Kafka

S = ("orders", 0)


class Shadow:
    """Two topics of one partition with the same rows, ten in each batch, and a checkpoint made by hand.
    `wrong`: a row that differs."""

    def __init__(self, kafka: Kafka, place: Path, batches: int = 3, wrong: int = -1) -> None:
        self.kafka, self.place = kafka, place
        self.topic, self.into = kafka.topic(), kafka.topic()
        for batch in range(batches):
            rows = [b"%d" % number for number in range(10 * batch, 10 * batch + 10)]
            kafka.put(self.topic, rows)
            kafka.put(self.into, [b"-" + row if row == b"%d" % wrong else row for row in rows])
        for folder in ("offsets", "commits"):
            (place / folder).mkdir(parents=True)
        (place / "metadata").write_text('{"id":"made-by-hand"}')
        for batch in range(batches):
            ends = {(self.topic, 0): 10 * batch + 10}, {(self.into, 0): 10 * batch}
            cut = ShadowCut("v1", "g", batch + 1, *ends)
            end = to_json({S: batch + 1}, began=None if batch else {S: 0}, shadow=cut)
            (place / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
            (place / "commits" / str(batch)).write_text("v1\n{}")

    def report(self, *more: str) -> tuple[int, str]:
        command = ["shadow", "report", str(self.place), "--bootstrap-server", self.kafka.bootstrap, *more]
        done = CliRunner().invoke(main, command)
        return done.exit_code, done.output


@pytest.fixture
def shadow(kafka: Kafka, tmp_path: Path) -> Shadow:
    return Shadow(kafka, tmp_path / "checkpoint")


def test_equal(shadow: Shadow) -> None:
    status, said = shadow.report("--json")
    report: Any = json.loads(said)
    assert status == 0 and report["equal"] and report["counts"]["running"] == 30
    assert [step["shadow"] for step in report["steps"]] == [10, 10, 10]
    status, said = shadow.report("--from-batch", "2")
    assert status == 0 and said.splitlines()[-1] == "equal: 10 rows in 1 steps", said


def test_a_row_that_comes_after_the_last_batch_differs(shadow: Shadow) -> None:
    """By the key there is no difference: all keys are null."""
    shadow.kafka.put(shadow.into, [b"more"])
    status, said = shadow.report()
    assert status == 1 and "batch 2: only the shadow wrote" in said and "DIFFERENT from batch 2 on" in said
    (shadow.place / "commits" / "2").unlink()
    assert shadow.report()[0] == 0, "the last batch is not done, so it is not compared"


def test_rows_that_are_gone(shadow: Shadow) -> None:
    gone = TopicPartition(shadow.topic, 0, 12)
    shadow.kafka.admin.delete_records([gone])[gone].result(30)
    status, said = shadow.report()
    assert status == 2 and "begins at 12, and the first batch to compare has rows from 0 on" in said
    assert "--from-batch" in said
    assert shadow.report("--from-batch", "2")[0] == 0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--key", "--all-headers"), "give either --key or --all-headers"),
        (("--from-batch", "9"), "has no batch to compare yet"),
        (("--from-batch", "-1"), "-1 is not in the range"),
        (("--temp-dir", "/nowhere"), "does not exist"),
    ],
)
def test_wrong_options(shadow: Shadow, more: tuple[str, ...], says: str) -> None:
    status, said = shadow.report(*more)
    assert status == 2 and says in said, said


def test_it_is_no_shadow(shadow: Shadow) -> None:
    for place in (shadow.place / "offsets").iterdir():
        place.write_text(f"v1\n{{}}\n{json.dumps(to_json({S: 1}))}")
    status, said = shadow.report()
    assert status == 2 and "not the checkpoint of a query with the option shadow.of" in said, said


def test_no_checkpoint(shadow: Shadow, tmp_path: Path) -> None:
    shadow.place = tmp_path / "elsewhere"
    status, said = shadow.report()
    assert status == 2 and str(shadow.place) in said and "Traceback" not in said, said
