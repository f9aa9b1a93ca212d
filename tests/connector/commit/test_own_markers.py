"""The cluster completes the sink's own transaction and loses its marker on a group's partition: it is written
if it is sure how just that transaction ended, and never otherwise."""

from typing import Any

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.abandon import Aborted, end_run
from eoslog.connector.commit.decide import SourceOffsets
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.faults import BatchRefused, MarkersMissing, OutcomeUnknown
from eoslog.connector.commit.marker_proof import prove_last
from eoslog.connector.commit.sink_transaction import LOOKS, is_ended
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.commit.model_bench import Bench, Crash, decides, finishes

BOTH = pytest.mark.parametrize("tv", [1, 2])
USER = "dashboards"
SOURCE = SourceOffsets(USER, {("source", 0): (1, "")})


def _forget(bench: Bench, *groups: str) -> None:
    """The next end of the sink's own transaction loses its markers on these groups' partitions."""
    bench.broker.forget_markers("sink", groups or ("sink",))


def _sent(bench: Bench, kind: type[c.Command[Any]]) -> list[Any]:
    return [command for command in bench.commands if isinstance(command, kind)]


def _decided_and_dead(tv: int = 2) -> Bench:
    """Killed after the decision, whose marker is lost; no participant is committed."""
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    _forget(bench)
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    assert bench.broker.held and bench.broker.visible() == []
    bench.commands.clear()
    return bench


@BOTH
def test_trap_32_a_driver_that_lives_on_writes_the_marker_of_its_decision(tv: int) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    _forget(bench)
    bench.commit(reports, 0)
    assert bench.broker.held
    bench.whole_batch(1, run=bench.remembered, completed=0)
    (written,) = _sent(bench, c.WriteMarkers)
    assert written.commit and len(written.held) == 1
    assert bench.broker.visible() == ["q0p0", "q0p1", "q1p0", "q1p1"]


@BOTH
def test_trap_32_so_it_does_when_a_broker_was_lost_for_the_users_group_too(tv: int) -> None:
    bench = Bench(tv)
    begun = bench.begin(0)
    reports = bench.prepare_all(begun)
    _forget(bench, "sink", USER)
    bench.commit(reports, 0, SOURCE)
    assert set(bench.broker.held) == {"sink", USER}
    bench.run(prove_last(bench.sink, begun.identity))
    assert not bench.broker.held and bench.broker.groups[USER] == SOURCE.offsets


def test_trap_32_a_fresh_start_looks_before_it_acquires_the_sink() -> None:
    bench = _decided_and_dead()
    bench.begin(0)
    kinds = [type(command) for command in bench.commands]
    assert kinds.index(c.WriteMarkers) < kinds.index(c.Acquire)
    assert bench.broker.visible() == ["q0p0", "q0p1"] and not bench.broker.held


def test_trap_32_an_end_looks_before_it_raises_the_epoch_of_the_sink() -> None:
    """So it reads the decision, and carries it out."""
    bench = _decided_and_dead()
    assert bench.run(end_run(bench.sink, bench.remembered)).outcome is Aborted.DECIDED
    assert bench.broker.visible() == ["q0p0", "q0p1"] and not bench.broker.held


def test_trap_32_it_costs_two_requests_where_nothing_is_wrong() -> None:
    bench = Bench()
    bench.whole_batch(0)
    bench.commands.clear()
    bench.begin(1, completed=0)
    assert [type(command) for command in bench.commands[:3]] == [c.Describe, c.FindOwn, c.Acquire]
    bench.commands.clear()
    bench.begin(2, run=bench.remembered, completed=1)
    assert not _sent(bench, c.FindOwn)


@pytest.mark.parametrize("tv", [2])
def test_trap_32_without_the_right_it_is_said_and_the_evidence_stays(tv: int) -> None:
    bench = _decided_and_dead(tv)
    lacking = c.Refused(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "WriteTxnMarkers: not allowed")
    bench.intercept = lambda command: lacking if isinstance(command, c.WriteMarkers) else None
    for _ in range(2):
        with pytest.raises(MarkersMissing, match=r"lacks the right ClusterAction.*COMMIT") as said:
            bench.begin(0)
    for told in ("sink sink", f"{ANCHOR}-0 by 1001.0", "CompleteCommit at 1001.1", "group sink", "operator"):
        assert told in str(said.value)
    assert not _sent(bench, c.Acquire)
    bench.intercept = None
    bench.begin(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@pytest.mark.parametrize("tv", [1])
def test_trap_32_under_version_1_a_fresh_start_cannot_tell_and_says_so(tv: int) -> None:
    bench = _decided_and_dead(tv)
    for _ in range(2):
        with pytest.raises(MarkersMissing, match=r"held open on .*wrong marker would lose rows"):
            bench.begin(0)
    assert not _sent(bench, c.WriteMarkers)


def _withdrawn(tv: int) -> tuple[Bench, ProducerIdentity]:
    """A decision that was withdrawn, and its marker lost; and the sink's identity in that batch."""
    bench = Bench(tv)
    begun = bench.begin(0)
    reports = bench.prepare_all(begun)
    _forget(bench)
    bench.broker.expire(reports[0].participant.name)  # type: ignore[union-attr]
    with pytest.raises(BatchRefused):
        bench.commit(reports, 0)
    assert bench.broker.held
    return bench, begun.identity


def test_trap_32_the_marker_of_a_withdrawn_decision_is_an_abort() -> None:
    bench, identity = _withdrawn(2)
    bench.run(prove_last(bench.sink, identity))
    (written,) = _sent(bench, c.WriteMarkers)
    assert not written.commit and not bench.broker.held
    bench.whole_batch(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


def test_trap_32_a_withdrawn_decision_s_marker_is_not_written_under_version_1() -> None:
    """The withdrawal has raised the epoch, so the state is no longer that of the identity that is held."""
    bench, identity = _withdrawn(1)
    with pytest.raises(MarkersMissing, match="does not say how exactly this transaction ended"):
        bench.run(prove_last(bench.sink, identity))
    assert not _sent(bench, c.WriteMarkers) and bench.broker.held


def _aborted_then_committed(tv: int, *, anew: bool) -> Bench:
    """The sink's transaction is aborted, its marker lost; then one of another group's is committed, under
    the same identity or after the sink was acquired `anew`: CompleteCommit speaks of that one."""
    bench = Bench(tv)
    begun = bench.begin(0)
    broker, sink = bench.broker, "sink"
    broker.stage(sink, begun.identity, sink, {(ANCHOR, 0): (1, "never decided")})
    _forget(bench)
    ended = broker.end(sink, begun.identity, False)
    identity = broker.init(sink) if anew else ended
    assert isinstance(identity, ProducerIdentity)
    broker.stage(sink, identity, "another", {(ANCHOR, 0): (1, "")})
    broker.end(sink, identity, True)
    assert broker.held[sink].identity == begun.identity
    bench.commands.clear()
    return bench


@pytest.mark.parametrize(("tv", "anew"), [(2, True), (2, False), (1, True), (1, False)])
def test_trap_32_a_state_that_speaks_of_another_transaction_is_no_proof(tv: int, anew: bool) -> None:
    bench = _aborted_then_committed(tv, anew=anew)
    with pytest.raises(MarkersMissing, match="does not say how exactly this transaction ended"):
        bench.begin(0)
    assert not _sent(bench, c.WriteMarkers) and not _sent(bench, c.Acquire)


def test_trap_32_a_marker_on_its_way_is_not_written_twice() -> None:
    """It comes right after the first look at the partitions."""
    bench = Bench(late_markers=True)
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    bench.commands.clear()

    def late(command: c.Command[Any]) -> Any:
        if not isinstance(command, c.FindOwn):
            return None
        found = bench.broker.find_own(command.producer_id, wait=False)
        bench.broker.settle_all()
        return found

    bench.intercept = late
    bench.begin(0)
    bench.broker.settle_all()
    assert not _sent(bench, c.WriteMarkers) and bench.broker.visible() == ["q0p0", "q0p1"]


def test_trap_32_what_is_under_way_is_waited_for_no_longer_than_so() -> None:
    """Pending while the coordinator says Ongoing: nobody's marker is lost, and nothing is written."""
    bench = Bench()
    reports = bench.prepare_all(bench.begin(0))

    def lose(command: c.Command[Any]) -> Any:
        if decides(command):
            bench.commands.clear()
            return {"sink": c.Unknown("no answer")}
        return None

    bench.intercept = lose
    with pytest.raises(OutcomeUnknown, match="its decision was sent and the outcome is unknown"):
        bench.commit(reports, 0)
    assert len(_sent(bench, c.FetchStored)) == LOOKS
    assert not _sent(bench, c.WriteMarkers) and not _sent(bench, c.FindOwn)


@pytest.mark.parametrize("state", ["CompleteCommit", "CompleteAbort"])
def test_which_transaction_a_state_speaks_of(state: str) -> None:
    def told(held: tuple[int, int], own: tuple[int, int] | None, version: int) -> bool:
        described = c.Description(state, ProducerIdentity(7, 5), 60_000, 0)
        return is_ended(described, ProducerIdentity(*held), ProducerIdentity(*own) if own else None, version)

    assert [epoch for epoch in range(8) if told((7, epoch), None, 2)] == [4]
    assert not told((8, 4), None, 2) and not told((7, 5), (7, 5), 2)
    assert [epoch for epoch in range(8) if told((7, epoch), (7, 5), 1)] == [5]
    assert not told((7, 5), None, 1) and not told((7, 5), (7, 4), 1) and not told((7, 4), (7, 4), 1)


@BOTH
def test_a_commit_whose_markers_are_on_their_way_costs_no_new_acquisition(tv: int) -> None:
    """Kafka answers EndTxn first: the next begin may find PrepareCommit still."""
    bench = Bench(tv, late_markers=True)
    bench.whole_batch(0)
    bench.commands.clear()
    described = []

    def first_look(command: c.Command[Any]) -> None:
        if isinstance(command, c.Describe):
            described.append(bench.broker.describe(command.names)["sink"])

    bench.intercept = first_look
    bench.begin(1, run=bench.remembered, completed=0)
    assert described[0] is not None and described[0].state == "PrepareCommit"
    assert [command.current is None for command in _sent(bench, c.Acquire)] == [False] * (tv == 1)
    bench.intercept = None
    bench.whole_batch(2, run=bench.remembered, completed=1)
