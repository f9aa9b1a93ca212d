"""Shadows without Spark: which rows are compared, the judge, options that do not fit, and the command."""

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from eoslog.cli import main
from eoslog.connector.checkpoint.shadow_check import check_apart, check_taken
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.offsets.offsets import Offsets, ShadowCut, position_from_json, to_json
from eoslog.connector.options.source_options import source_options
from eoslog.errors import OptionError
from eoslog.shadow.compare import ROW, NoShadow, Step, judge, steps
from tests.connector.brokers import Kafka

# -- which rows ----------------------------------------------------------------------------------
# Which rows of a shadow are compared with which of the running query.

A, B, S = ("totals", 0), ("new", 0), ("orders", 0)


def planned(batch: int, decision: int, ends: tuple[int, int, int], began: int | None = None) -> Planned:
    """Ends of the source, of the running query's rows, and of the shadow's before the batch."""
    cut = ShadowCut("v1/a:b", "group", decision, {A: ends[1]}, {B: ends[2]})
    first: Offsets | None = None if began is None else {S: began}
    return Planned(batch, (json.dumps(to_json({S: ends[0]}, began=first, shadow=cut)),))


def test_a_cut_survives_the_checkpoint() -> None:
    cut = ShadowCut("v1/a:b", "g:1", 7, {A: 5, ("totals", 1): 5}, {B: 0})
    text = json.dumps(to_json({S: 3}, {"orders": "id"}, "cluster", shadow=cut))
    assert position_from_json(json.loads(text)).shadow == cut
    assert Planned(0, (text,)).shadows() == [cut]


def test_a_step_for_each_decision() -> None:
    """A query that began at the group's offsets: its first batch is empty, and says where all begins."""
    batches = [
        planned(0, 3, (10, 100, 0), began=10),
        planned(1, 4, (20, 111, 0)),
        planned(2, 6, (40, 133, 11)),
    ]
    one = Step(1, 1, 3, 4, {A: (100, 111)}, {B: (0, 11)})
    assert steps(batches, None) == [one]
    assert steps(batches, {B: 33}) == [one, Step(2, 2, 4, 6, {A: (111, 133)}, {B: (11, 33)})]


def test_a_query_from_the_beginning() -> None:
    """Its first batch is compared with all that the running query has written; the checkpoint is whole."""
    batches = [planned(0, 3, (10, 100, 0), began=0), planned(1, 4, (20, 111, 99))]
    assert steps(batches, None) == [Step(0, 0, None, 3, {A: (0, 100)}, {B: (0, 99)})]
    assert steps([planned(7, 3, (10, 100, 0)), *batches[1:]], {B: 120}) == [
        Step(1, 1, 3, 4, {A: (100, 111)}, {B: (99, 120)})
    ], "what comes before batch 7 is not known"


def test_batches_that_end_at_the_same_decision_are_one_step() -> None:
    batches = [planned(n, at, (10, 10 * at, n), began=None if n else 0) for n, at in enumerate((1, 1, 2))]
    assert steps(batches, {B: 9}) == [
        Step(0, 1, None, 1, {A: (0, 10)}, {B: (0, 2)}), Step(2, 2, 1, 2, {A: (10, 20)}, {B: (2, 9)})
    ]  # fmt: skip


def test_batches_of_one_number_are_compared_to_the_last_one_s_end() -> None:
    """An earlier version took two decisions of one number for the same: no row between them is left out."""
    batches = [planned(0, 3, (10, 30, 0), began=0), planned(1, 3, (20, 50, 9)), planned(2, 4, (30, 60, 18))]
    assert steps(batches, {B: 27}) == [
        Step(0, 1, None, 3, {A: (0, 50)}, {B: (0, 18)}), Step(2, 2, 3, 4, {A: (50, 60)}, {B: (18, 27)})
    ]  # fmt: skip


def test_no_shadow() -> None:
    with pytest.raises(NoShadow, match=r"batch 4 ends at no decision of another query.*--from-batch"):
        steps([Planned(4, (json.dumps(to_json({S: 1})),))], {})


# -- the judge -----------------------------------------------------------------------------------
# The judge of a shadow's rows, against one that counts row by row.

Row = tuple[bool, int, int]
"""Of the shadow, step, content."""
ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 2)), max_size=40)


def as_rows(drawn: list[Row], spread: int) -> np.ndarray:
    """Contents that differ in either half of their digest; two places each side."""
    rows = np.zeros(len(drawn), ROW)
    for at, (of_shadow, step, content) in enumerate(drawn):
        rows[at] = (content // 2, content % 2, at, 2 * of_shadow + (at * spread) % 2, step)
    return rows


def plainly(drawn: list[Row]) -> dict[str, Counter[int]]:
    """Rows that are late, missing and extra, by step; and extra ones that are alike."""
    names = "late", "missing", "extra", "alike"
    found: dict[str, Counter[int]] = {name: Counter() for name in names}
    for content in range(3):
        left: tuple[list[int], list[int]] = ([], [])
        for step in range(4):
            counts = [drawn.count((side, step, content)) for side in (False, True)]
            for side in range(2):
                left[side].extend([step] * (counts[side] - min(counts)))
        pairs = min(map(len, left))
        found["late"].update(left[0][:pairs])
        found["missing"].update(left[0][pairs:])
        found["extra"].update(left[1][pairs:])
        found["alike"].update(step for step in left[1][pairs:] if pairs or (False, step, content) in drawn)
    return found


@given(ROWS, st.integers(0, 1))
def test_as_row_by_row(drawn: list[Row], spread: int) -> None:
    found, wanted = judge(as_rows(drawn, spread), 2, 4), plainly(drawn)
    for name in ("late", "missing", "extra"):
        assert [wanted[name][step] for step in range(4)] == getattr(found, name).tolist(), name
    assert found.alike == wanted["alike"].total()
    sides = Counter(zip(found.differing["step"].tolist(), found.differing["place"] >= 2, strict=True))
    assert sides == Counter(
        {
            (step, side): n
            for side, name in ((False, "missing"), (True, "extra"))
            for step, n in wanted[name].items()
        }
    )


# -- options -------------------------------------------------------------------------------------
# Options of a shadow that do not fit, and writers that would touch what belongs to the running query.

SHADOW = {"shadow.of": "v1", "shadow.topic": "totals", "shadow.into": "new", "kafka.group.id": "g"}
CUT = ShadowCut("v1", "g", 3, {("totals", 0): 5}, {("new", 0): 5})


def options(**more: str | None) -> object:
    given: dict[str, str | None] = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", **SHADOW}
    given |= {name.replace("__", "."): value for name, value in more.items()}
    return source_options({name: value for name, value in given.items() if value is not None}, stream=True)


@pytest.mark.parametrize("missing", list(SHADOW))
def test_all_of_them_are_needed(missing: str) -> None:
    with pytest.raises(OptionError, match=rf"needs {missing} as well"):
        options(**{missing: None})


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"transactional__id": "v1"}, "transactional.id and shadow.of are both given"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger and shadow.of are both given"),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger and shadow.of are both given"),
        ({"cluster__moved__to": "x"}, "cluster.moved.to and shadow.of are both given"),
        ({"shadow__into": "totals"}, "both 'totals'"),
    ],
)
def test_what_does_not_fit(more: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        options(**more)


@pytest.mark.parametrize(
    ("sink", "group", "topic", "says"),
    [
        ("v1", None, "new", "transactional.id=v1"),
        ("v2", "g", "new", "kafka.group.id=g"),
        ("v2", None, "totals", r"shadow.into \(new\) alone"),
        (None, None, None, r"shadow.into \(new\) alone"),
    ],
)
def test_a_writer_is_kept_apart(sink: str | None, group: str | None, topic: str | None, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        check_apart([CUT], sink, group, topic)


def test_a_shadow_that_has_taken_over_is_none() -> None:
    """It would leave the sink that it has now, and its rows would be in the shadow's topic alone."""
    with pytest.raises(OptionError, match=r"taken that query's place.*transactional.id=v1, kafka.group.id=g"):
        check_apart([CUT], "v2", None, "new", "v1")
    with pytest.raises(OptionError, match="taken that query's place"):
        check_apart([CUT], "v1", "g", "new", "v1")
    check_apart([CUT], "v1", "g", "totals", "v1")  # what that start has planned


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("v2", None, "totals", "v2"), "has not taken that query's place"),
        (("v2", None, None, "v2"), "has not taken that query's place"),
        (("v1", "g", "totals", "v2"), r"eoslog shadow take-over /c\. .* checkpoint rewind /c --to-batch 3"),
        (("v1", None, "new", "v2"), "has not taken"),
        (("v2", "g", "new", "v2"), "has not taken"),
        ((None, None, "totals", None), "has not taken"),
        (("v1", "g", "totals", "v1"), None),  # it has
        (("v2", None, "new", "v2"), None),  # it goes on in its own topic
        (("v2", "other", "third", "v2"), None),
    ],
)
def test_a_shadow_that_is_started_as_a_query(
    given: tuple[str | None, str | None, str | None, str | None], says: str | None
) -> None:
    stops = nullcontext() if says is None else pytest.raises(OptionError, match=says)
    with stops:
        check_taken([CUT], *given, "/c", 4)


def test_a_writer_apart() -> None:
    check_apart([CUT], "v2", "other", "new", "v2")
    check_apart([CUT], "v2", "other", "new")
    check_apart([], "v1", "g", None)


def test_two_sources_would_be_at_different_decisions() -> None:
    with pytest.raises(OptionError, match="several sources"):
        check_apart([CUT, CUT], "v2", None, "new")


# -- eoslog shadow report ------------------------------------------------------------------------
# `eoslog shadow report`: what it cannot compare, it says, with exit status 2.

ORDERS = ("orders", 0)


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
            end = to_json({ORDERS: batch + 1}, began=None if batch else {ORDERS: 0}, shadow=cut)
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
    assert status == 0 and said.splitlines()[-1] == "equal: 10 rows in 1 step", said


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
        place.write_text(f"v1\n{{}}\n{json.dumps(to_json({ORDERS: 1}))}")
    status, said = shadow.report()
    assert status == 2 and "planned without the option shadow.of" in said, said


def test_no_checkpoint(shadow: Shadow, tmp_path: Path) -> None:
    shadow.place = tmp_path / "elsewhere"
    status, said = shadow.report()
    assert status == 2 and str(shadow.place) in said and "Traceback" not in said, said
