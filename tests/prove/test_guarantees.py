"""`eoslog prove` of a query that has not always run with exactly_once: what nobody promises is not wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eoslog.connector.commit.faults import TakenOver
from tests.checkpoint import copy_query
from tests.checkpoint.copy_query import CopyQuery, Killed
from tests.connector.brokers import Kafka
from tests.prove.provekit import run

Given = str
EXACTLY, LEAST, MOST = "exactly_once", "at_least_once", "at_most_once"
_NO_PROMISE = "written with at_least_once, which promises no row once"


class Changing:
    """A query that copies five rows in a batch."""

    def __init__(self, kafka: Kafka, place: Path, patch: pytest.MonkeyPatch) -> None:
        self.kafka, self.place, self.patch, self.rows = kafka, place, patch, 0
        source, target = kafka.topic(), kafka.topic()
        names = {"transactional.id": f"s-{target}", "kafka.group.id": f"g-{target}"}
        self.query = CopyQuery(place / "checkpoint", kafka, source, target, names, patch)

    def puts(self) -> None:
        self.query.puts(self.rows, 5)
        self.rows += 5

    def ran(self, *guarantees: Given) -> None:
        """A batch with each of these."""
        for one in guarantees:
            self.puts()
            assert self.by(one).start()

    def by(self, guarantee: Given) -> CopyQuery:
        return replace(self.query, sink={**self.query.sink, "processing.guarantee": guarantee})

    def killed(self, guarantee: Given) -> None:
        """A batch of which all rows are written; nothing comes after."""
        self.puts()

        def dies(*_given: object) -> None:
            raise Killed

        with self.patch.context() as patch, pytest.raises(Killed):
            patch.setattr(copy_query, "commit_stream", dies)
            self.by(guarantee).start()

    def prove(self, *more: str) -> tuple[int, Any]:
        file = self.place / "proof.jsonl"
        file.unlink(missing_ok=True)
        return run(self.kafka.bootstrap, self.query.sink["transactional.id"], "--out", str(file), *more)


@pytest.fixture
def changing(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Changing:
    return Changing(kafka, tmp_path, monkeypatch)


@pytest.mark.parametrize("more", [(), ("--allow-foreign",)])
def test_batches_of_at_least_once_between_others_are_not_known(changing: Changing, more: Any) -> None:
    """Nor are their rows, which have no transaction. What comes behind them is proven."""
    changing.ran(EXACTLY, LEAST, LEAST, EXACTLY, EXACTLY)
    status, said = changing.prove(*more)
    assert (status, said["verdict"], said["wrong"]) == (2, "unknown", []), said
    assert said["unknown"] == [
        f"batch 3 (decision 5): batches 1 to 2: {_NO_PROMISE}",
        f"{changing.query.target}-0: 10 rows without a transaction, perhaps of batches {_NO_PROMISE}",
    ]
    status, said = changing.prove("--since", "3", *more)
    assert status == 0, said


def test_at_least_once_alone_decides_nothing(changing: Changing) -> None:
    changing.ran(LEAST)
    status, said = changing.prove()
    assert status == 2 and "at_least_once makes none" in said, said


def test_at_least_once_goes_on(changing: Changing) -> None:
    changing.ran(EXACTLY, LEAST, LEAST)
    status, said = changing.prove()
    assert (status, said["wrong"], len(said["unknown"])) == (2, [], 1) and "10 rows" in said["unknown"][0]


def test_rows_of_a_batch_that_at_least_once_did_not_end(changing: Changing) -> None:
    """They are there twice, as exactly_once has run the batch again."""
    changing.ran(EXACTLY)
    changing.killed(LEAST)
    changing.ran(EXACTLY)
    status, said = changing.prove()
    assert (status, said["wrong"], len(said["unknown"])) == (2, [], 1) and "5 rows" in said["unknown"][0]


def test_rows_of_others_before_it_are_wrong(changing: Changing) -> None:
    """The query had no batch of at_least_once yet, or none any more."""
    changing.ran(EXACTLY)
    changing.kafka.put(changing.query.target, [b"early"])
    changing.ran(EXACTLY, LEAST, EXACTLY)
    changing.kafka.put(changing.query.target, [b"late", b"late"])
    changing.ran(EXACTLY)
    status, said = changing.prove()
    assert (status, said["wrong"]) == (1, [f"{changing.query.target}-0: 3 rows without a transaction"]), said


def test_a_sink_that_was_left_for_another_one_and_came_back(changing: Changing) -> None:
    changing.ran(EXACTLY)
    names = changing.query.sink
    changing.query = replace(
        changing.query, sink={**names, "transactional.id": "other-" + names["transactional.id"]}
    )
    changing.ran(EXACTLY)
    changing.query = replace(changing.query, sink=names)
    changing.ran(EXACTLY)
    status, said = changing.prove("--allow-foreign")
    assert (status, said["wrong"]) == (2, []), said
    assert f"batch 1: the sink was left for other-{names['transactional.id']}" in said["unknown"][0], said


def test_a_new_checkpoint_after_at_least_once(changing: Changing) -> None:
    """It begins where the group is, which is behind the last batch that was decided."""
    changing.ran(EXACTLY, LEAST)
    reads = {"startingOffsets": "committed", "kafka.group.id": changing.query.sink["kafka.group.id"]}
    changing.query = replace(changing.query, place=changing.place / "new", reads=reads)
    with pytest.raises(TakenOver, match="it was left for at_least_once") as stopped:
        changing.ran(EXACTLY)
    word = str(stopped.value).rpartition("start.accepted=")[2]
    changing.query = replace(changing.query, sink={**changing.query.sink, "start.accepted": word})
    assert changing.query.start()
    changing.ran(EXACTLY)
    status, said = changing.prove()
    assert (status, said["wrong"]) == (2, []), said
    assert any(f"ranges leave a gap: {_NO_PROMISE}" in one for one in said["unknown"]), said


@pytest.mark.parametrize("again", [None, EXACTLY, MOST])
def test_at_most_once_is_proven_as_what_it_has_decided(changing: Changing, again: Given | None) -> None:
    """`again`: with this a batch runs again that was killed, which at_most_once drops then."""
    changing.ran(MOST, MOST)
    if again is not None:
        changing.killed(MOST)
        changing.ran(again)
    changing.ran(EXACTLY, MOST, EXACTLY)
    status, said = changing.prove()
    assert (status, said["verdict"]) == (0, "proven"), said
