"""A decision that one group has no room for: its other chunks are in groups that follow, all or none."""

from dataclasses import replace
from typing import Any

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit import decision as decisions
from eoslog.connector.commit.decision import Decision, by_group, decode, encode
from eoslog.connector.commit.faults import CommitFault, DecisionDamaged
from eoslog.connector.commit.task_reports import Batch, Prepared, Report
from eoslog.connector.commit.transactional_ids import Participant, ParticipantSlot, Sink
from eoslog.connector.commit.winner import Winner
from eoslog.protocol.names_by_sink import ANCHOR, sinks_of_groups
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition
from tests.connector.commit.model_bench import Bench, Crash, decides, finishes
from tests.connector.commit.model_broker import ModelBroker
from tests.connector.commit.model_history import BY_ITSELF, Choices, Shape
from tests.connector.commit.model_judge import explore, judge
from tests.connector.commit.model_shapes import Case, names, suite
from tests.connector.commit.model_spark import Simulation
from tests.connector.commit.test_model import mostly_zero

ONE_STRIKE = [case for case in suite() if case.name.startswith("3 batches, one strike")]
BOTH = pytest.mark.parametrize("tv", [1, 2])
ROWS = ["q0p0", "q0p1"]
SINK = Sink("sink")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every decision takes several groups, of one partition each."""
    monkeypatch.setattr(decisions, "METADATA_LIMIT", decisions._HEAD_ROOM + 40)
    defaults = ModelBroker.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "anchors", 1)


def groups(bench: Bench) -> list[str]:
    """Those that have chunks of the newest decision."""
    found = bench.broker.groups
    newest = max(offset for chunks in found.values() for offset, _ in chunks.values())
    return sorted(name for name, of in found.items() if any(at == newest for at, _ in of.values()))


def last(bench: Bench) -> Decision | None:
    stored = bench.run(c.look_up("sink"))
    assert not isinstance(stored, (c.Refused, c.Unknown)), stored
    return decode(bench.sink, stored.chunks)


def stages(command: c.Command[Any]) -> bool:
    return isinstance(command, c.StageOffsets)


@BOTH
@pytest.mark.usefixtures("narrow")
def test_a_batch_is_decided_in_all_of_its_groups_at_once(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    assert len(groups(bench)) > 2 and "sink/1" in groups(bench)
    decided = last(bench)
    assert decided is not None and decided.batch.batch_id == 0 and len(decided.winners) == 2
    bench.whole_batch(1, completed=0)
    assert bench.broker.visible() == [*ROWS, "q1p0", "q1p1"] and not bench.open()


@BOTH
@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("chunk", range(4))
def test_a_driver_that_dies_between_two_chunks_has_decided_nothing(tv: int, chunk: int, after: bool) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    before = last(bench)
    reports = bench.prepare_all(bench.begin(1, run=bench.remembered, completed=0))
    seen: list[c.Command[Any]] = []

    def here(command: c.Command[Any]) -> bool:
        seen.extend([command] if stages(command) else [])
        return stages(command) and len(seen) == chunk + 1

    bench.crash_at(here, after=after)
    with pytest.raises(Crash):
        bench.commit(reports, 1)
    begun = bench.begin(1, completed=0)
    assert not begun.is_decided and last(bench) == before
    bench.commit(bench.prepare_all(begun), 1)
    assert bench.broker.visible() == [*ROWS, "q1p0", "q1p1"] and not bench.open()


@BOTH
@pytest.mark.usefixtures("narrow")
def test_a_driver_that_dies_after_the_commit_has_decided_all(tv: int) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(decides, after=True)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    assert bench.begin(0).is_decided
    assert bench.broker.visible() == ROWS and not bench.open()


@pytest.mark.usefixtures("narrow")
def test_a_marker_that_is_missing_in_a_group_that_follows_is_written() -> None:
    bench = Bench()
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.forget_markers("sink", ("sink/2",))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    assert set(bench.broker.held) == {"sink/2"} and bench.broker.visible() == []
    bench.begin(0)
    assert bench.broker.visible() == ROWS and not bench.broker.held


@pytest.mark.usefixtures("narrow")
def test_a_group_that_is_gone_is_no_older_decision() -> None:
    bench = Bench()
    bench.whole_batch(0)
    bench.whole_batch(1, completed=0)
    del bench.broker.groups["sink/1"]
    with pytest.raises(DecisionDamaged):
        bench.begin(2, completed=1)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("answer", [c.Unknown("away"), c.Refused(30, "group sink/1: not allowed")])
def test_a_group_that_cannot_be_read_stops(answer: c.Failure) -> None:
    bench = Bench()
    bench.whole_batch(0)
    bench.intercept = lambda one: answer if one == c.FetchStored("sink/1") else None
    with pytest.raises(CommitFault, match=r"cannot be read: (away|group sink/1: not allowed)"):
        bench.begin(1, completed=0)
    assert isinstance(bench.run(c.look_up("sink")), c.Unknown)


@pytest.mark.usefixtures("narrow")
def test_a_decision_that_is_made_while_one_reads_is_read_whole() -> None:
    """The first group was read, and then another driver decides."""
    bench = Bench()
    bench.whole_batch(0)
    other = Bench()
    other.broker, other.remembered = bench.broker, bench.remembered

    def decides_now(command: c.Command[Any]) -> None:
        if command == c.FetchStored("sink/1"):
            bench.intercept = None
            other.whole_batch(1, run=other.remembered, completed=0)

    bench.intercept = decides_now
    found = last(bench)
    assert found is not None and found.batch.batch_id == 1


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("stale", [0, 1, 50], ids=["older", "of the same number", "later"])
def test_what_a_deleted_sink_has_left_in_its_other_groups_does_not_count(stale: int) -> None:
    """Somebody has deleted the sink's group alone: its decisions begin anew."""
    left = Bench()
    for number in range(stale + 1):
        left.whole_batch(number, query="long ago", completed=number - 1)
    bench = Bench()
    kept = {name: dict(chunks) for name, chunks in left.broker.groups.items() if name != "sink"}
    bench.broker.groups |= {"sink/9": kept["sink/1"]} | kept
    bench.whole_batch(0, query="a query with a longer name, which takes more groups than the other one did")
    bench.whole_batch(1, query="q", completed=0)
    found = last(bench)
    assert found is not None and (found.batch.query_id, found.batch.batch_id) == ("q", 1)


def test_a_short_decision_after_a_large_one_leaves_chunks_that_do_not_count() -> None:
    bench = Bench(anchors=1)
    bench.commit(written_to(bench, 0, [f"topic-{n:050}" for n in range(200)]), 0)
    assert len(groups(bench)) > 2
    bench.whole_batch(1, completed=0)
    assert groups(bench) == ["sink"]
    found = last(bench)
    assert found is not None and found.batch.batch_id == 1
    bench.commands.clear()
    bench.whole_batch(2, completed=1)
    assert not [one for one in bench.commands if one == c.FetchStored("sink/1")], "it costs no request"


def test_more_partitions_for_decisions_change_nothing_for_the_last_one() -> None:
    """decision.topic gets more partitions between two batches: chunks have numbers, wherever they are."""
    bench = Bench(anchors=2)
    topics = [f"topic-{n:050}" for n in range(200)]
    bench.commit(written_to(bench, 0, topics), 0)
    bench.broker.anchors = 3
    found = last(bench)
    assert found is not None and sorted({topic for topic, _ in found.written}) == topics
    bench.commit(written_to(bench, 1, topics, completed=0), 1)
    found = last(bench)
    assert found is not None and found.batch.batch_id == 1


def written_to(bench: Bench, batch_id: int, topics: list[str], **more: Any) -> list[Report]:
    """One task that has written to all of these."""
    begun = bench.begin(batch_id, **more)
    report = bench.prepare(begun, 0, [f"{batch_id}"])
    assert isinstance(report, Prepared)
    return [replace(report, written=tuple((topic, 0) for topic in topics))]


TEN_TIMES: dict[str, list[TopicPartition]] = {
    "616 topics of 45": [(f"{n:045}", 0) for n in range(6_160)],
    "1,186 topics of 20": [(f"{n:020}", 0) for n in range(11_860)],
    "125 topics of 249": [(f"{n:0249}", 0) for n in range(1_250)],
    "6,625 partitions of one": [("out", 2 * n) for n in range(66_250)],
}
"""Ten times what one group of eight partitions has room for: places of which no two are a run."""


@pytest.mark.parametrize("anchors", [1, 8, 50, 1_000])
@pytest.mark.parametrize("written", TEN_TIMES.values(), ids=TEN_TIMES)
def test_ten_times_what_one_group_has_room_for(written: list[TopicPartition], anchors: int) -> None:
    made = Decision(1, Batch("q", 0, "d"), ProducerIdentity(1, 1), (), tuple(written))
    bench = Bench()
    found: dict[int, tuple[int, str]] = {}
    for number, (name, offsets) in enumerate(by_group("sink", encode(made, bench.sink, anchors), anchors)):
        assert name == ("sink" if not number else f"sink/{number}") and len(offsets) <= anchors
        assert all(place[0] == ANCHOR and 0 <= place[1] < anchors for place in offsets)
        found |= {len(found) + at: chunk for at, chunk in enumerate(offsets.values())}
    assert decode(bench.sink, found) == made


@pytest.mark.parametrize("anchors", [1, 50])
def test_forty_thousand_tasks(anchors: int) -> None:
    bench = Bench(anchors=anchors)
    made = decision_of(40_000)
    for name, offsets in by_group("sink", encode(made, bench.sink, anchors), anchors):
        bench.broker.groups[name] = dict(offsets)
    assert len(bench.broker.groups) > 1 and last(bench) == made


def decision_of(winners: int) -> Decision:
    """Of so many tasks, each with rows."""
    run = ProducerIdentity(1_000_000_007, 12)
    names = [SINK.participant(ParticipantSlot(run, 0, f"{n % 9:016x}", n // 9)) for n in range(winners)]
    won = [Winner(n, Participant(name, ProducerIdentity(n, 1))) for n, name in enumerate(names)]
    return Decision(1, Batch("q", 0, "d"), run, tuple(won), (), rows=tuple(range(winners)))


def test_the_partitions_of_a_topic_are_said_as_runs() -> None:
    places = [*(("out", n) for n in range(60_000)), *(("few", n) for n in (3, 5, 6, 9))]
    made = Decision(1, Batch("q", 0, "d"), ProducerIdentity(1, 1), (), tuple(sorted(places)))
    ((_, text),) = encode(made, SINK, anchors=1).values()
    assert '"wrote":{"few":[3,[5,6],9],"out":[[0,59999]]}' in text
    assert decode(SINK, {0: (1, text)}) == made


def test_the_groups_are_known_as_the_sinks() -> None:
    names = {name: [ANCHOR] for name in ("a%2Fb", "a%2Fb/1", "a%2Fb/310", "a%2Fb/x")}
    assert sinks_of_groups(names) == {"a%2Fb": "a/b", "a%2Fb/1": "a/b", "a%2Fb/310": "a/b"}


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("case", ONE_STRIKE, ids=names(ONE_STRIKE))
def test_every_history_with_one_fault(case: Case) -> None:
    """The judge of test_model.py, where each decision takes several groups."""
    found = explore(case.shape)
    print(found)
    assert found.ends.total() > 20


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("seed", range(24))
def test_histories_at_random(seed: int) -> None:
    shape = Shape(
        tv=1 + seed % 2, batches=4, partitions=3, faults=1 + seed % 8, kinds=BY_ITSELF, spread=True,
        twice=seed % 3 == 0, late_markers=seed % 5 < 2, keeps=True if seed % 4 else None,
    )  # fmt: skip
    judge(Simulation(shape, Choices(fallback=mostly_zero(seed))).run())
