"""The steps of an edit and of taking it back, on checkpoints without Spark: what is changed when, and what is
refused in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from eoslog.checkpoint import carry_out, editing
from eoslog.checkpoint.backups import newest_backup
from eoslog.checkpoint.edits import order, order_back
from eoslog.client.admin.group_offsets import fetch_committed
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.plain_checkpoint import decide, group_of, last, lines, plan, run


class Died(Exception):
    """The command's process is dead."""


def test_in_which_order_files_are_changed() -> None:
    """A batch that is planned and not done is gone before the one below it changes; done is noted last."""
    changes = {("commits", 1): "", ("offsets", 1): "", ("commits", 3): None, ("offsets", 3): None}
    changes |= {("offsets", 2): None}
    there = order(changes)
    assert there == [("offsets", 3), ("offsets", 2), ("commits", 3), ("offsets", 1), ("commits", 1)]
    back = order_back(changes)
    assert back == [("commits", 1), ("commits", 3), ("offsets", 1), ("offsets", 2), ("offsets", 3)]


def rewound(broker: EmbeddedBroker, checkpoint: Path) -> Result:
    return run(broker, "rewind", checkpoint, "--by", "5", "--accept-duplicates", "5")


def test_an_edit_moves_decision_and_group_and_undo_moves_them_back(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    before = last(cluster, topic)
    assert rewound(broker, decided).exit_code == 0
    assert last(cluster, topic).batch.digest != before.batch.digest
    assert fetch_committed(cluster, group_of(topic), None)[topic, 0][0] == 15
    assert run(broker, "undo", decided).exit_code == 0
    assert last(cluster, topic).batch == before.batch
    assert fetch_committed(cluster, group_of(topic), None)[topic, 0][0] == 20
    assert run(broker, "check", decided).exit_code == 0


@pytest.mark.parametrize("command", [["rewind", "--by", "5"], ["skip-to", "--by", "5"]])
def test_an_older_copy_is_not_edited(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str, command: list[str]
) -> None:
    """The sink's decision of a batch that the copy does not have would be moved."""
    plan(decided, 2, lines({topic: {"0": 25}}))
    decide(cluster, decided, topic, 2, last(cluster, topic))
    for log in ("offsets", "commits"):
        (decided / log / "2").unlink()
    before = last(cluster, topic)
    more = ["--accept-duplicates", "9", "--accept-loss", "9"]
    said = run(broker, command[0], decided, *command[1:], *more)
    assert said.exit_code == 1 and "the checkpoint has batch 1 as its newest" in said.output
    assert last(cluster, topic) == before
    assert run(broker, "rebuild", decided).exit_code == 0
    assert run(broker, command[0], decided, *command[1:], *more).exit_code == 0


def test_before_the_transaction_nothing_is_changed(
    broker: EmbeddedBroker, decided: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But the backup is there, and says how all was."""

    def died(*given: Any) -> None:
        raise Died

    before = (decided / "offsets" / "1").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(carry_out, "_move", died)
        assert isinstance(rewound(broker, decided).exception, Died)
    assert (decided / "offsets" / "1").read_text() == before
    backup = newest_backup(Checkpoint.at(str(decided)))
    assert backup is not None and backup.is_open and backup.before["offsets", 1] == before
    assert "was interrupted" in run(broker, "check", decided).output
    assert "Take it back first" in rewound(broker, decided).output
    assert run(broker, "undo", decided).exit_code == 0
    assert run(broker, "check", decided).exit_code == 0


def test_a_query_that_goes_on_before_the_files_are_changed_keeps_them(
    broker: EmbeddedBroker, decided: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = carry_out._move

    def goes_on(*given: Any) -> None:
        move(*given)
        (decided / "offsets" / "2").write_text(lines({topic: {"0": 25}}))

    monkeypatch.setattr(carry_out, "_move", goes_on)
    before = (decided / "offsets" / "1").read_text()
    said = rewound(broker, decided)
    assert said.exit_code == 1 and "has gone on while its checkpoint was edited" in said.output
    assert (decided / "offsets" / "1").read_text() == before


def test_a_query_that_has_decided_since_it_was_judged_is_left_alone(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decides(*given: Any) -> None:
        plan(decided, 2, lines({topic: {"0": 25}}))
        decide(cluster, decided, topic, 2, last(cluster, topic))

    monkeypatch.setattr(editing, "check_rests", decides)
    said = rewound(broker, decided)
    assert said.exit_code == 1 and "Nothing was changed" in said.output
    assert last(cluster, topic).batch.batch_id == 2


def test_what_the_query_has_written_since_is_not_taken_back(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    assert rewound(broker, decided).exit_code == 0
    plan(decided, 2, lines({topic: {"0": 25}}))
    decide(cluster, decided, topic, 2, last(cluster, topic))
    said = run(broker, "undo", decided)
    assert said.exit_code == 1 and "the query has gone on since the edit" in said.output
    assert run(broker, "check", decided).exit_code == 0


def test_the_same_of_a_sink_without_decisions(broker: EmbeddedBroker, plain: Path, topic: str) -> None:
    """Its files alone tell."""
    assert rewound(broker, plain).exit_code == 0
    plan(plain, 2, lines({topic: {"0": 25}}))
    said = run(broker, "undo", plain)
    assert said.exit_code == 1 and "the query has gone on since the edit" in said.output


def test_a_batch_that_was_only_planned_since_goes_with_the_edit(
    broker: EmbeddedBroker, decided: Path, topic: str
) -> None:
    assert rewound(broker, decided).exit_code == 0
    (decided / "offsets" / "2").write_text(lines({topic: {"0": 25}}))
    assert run(broker, "undo", decided).exit_code == 0
    assert not (decided / "offsets" / "2").exists()
    assert run(broker, "check", decided).exit_code == 0


@pytest.mark.parametrize(
    ("removed", "says"),
    [
        (["offsets/2"], "offsets/2 is missing between others"),
        (["offsets/3"], "commits/ has batch 3, and offsets/ has batch 2 as its newest"),
        (["commits/2", "commits/3"], "the batches between would be left out"),
    ],
)
def test_files_that_were_deleted_are_found(
    broker: EmbeddedBroker, plain: Path, topic: str, removed: list[str], says: str
) -> None:
    for batch, end in ((2, 25), (3, 30)):
        plan(plain, batch, lines({topic: {"0": end}}))
    assert run(broker, "check", plain).exit_code == 0
    for name in removed:
        (plain / name).unlink()
    said = run(broker, "check", plain)
    assert said.exit_code == 1 and says in said.output
    assert rewound(broker, plain).exit_code == 1


def test_what_the_log_has_lost_is_found(broker: EmbeddedBroker, plain: Path, topic: str) -> None:
    plan(plain, 2, lines({topic: {"0": 31}}))
    said = run(broker, "check", plain, "--json")
    assert said.exit_code == 1 and "DataLoss" in json.loads(said.stdout)["problems"][0]
