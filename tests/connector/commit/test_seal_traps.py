"""The traps of sealing (KIP-939), one story each: on a cluster that keeps prepared transactions."""

from collections.abc import Callable
from typing import Any, TypeGuard

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.abandon import Aborted
from eoslog.connector.commit.decide import SourceOffsets
from eoslog.connector.commit.decision import decode
from eoslog.connector.commit.faults import (
    BatchRefused,
    CommitFault,
    ParticipantsLost,
    SinkFenced,
    Unfinished,
)
from eoslog.connector.commit.seal import TwoPhase
from eoslog.protocol.errors import ErrorCode
from tests.connector.commit.model_bench import Bench, Crash, decides, finishes
from tests.connector.commit.model_broker import TIMEOUT_MS

BOTH = pytest.mark.parametrize("tv", [1, 2])
TOLD = pytest.mark.parametrize("tells_holder", [False, True])
ROWS = ["q0p0", "q0p1"]
LOST = [
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
]
SOURCE = SourceOffsets("dashboards", {("source", 0): (1, "")})


def seals(command: c.Command[Any]) -> TypeGuard[c.Seal]:
    return isinstance(command, c.Seal)


def stages(command: c.Command[Any]) -> bool:
    return isinstance(command, c.StageOffsets)


def stages_source(command: c.Command[Any]) -> bool:
    """The sink's own transaction is open by then."""
    return isinstance(command, c.StageOffsets) and command.of_source


def verifies(command: c.Command[Any]) -> bool:
    """The sink's own transaction is looked at, with those of the tasks."""
    return isinstance(command, c.Describe) and "sink" in command.names and len(command.names) > 1


def crash(bench: Bench, stop: Any, *, after: bool = False) -> list[Any]:
    """Batch 0 is prepared, and the driver dies in its commit."""
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(stop, after=after)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    return reports


def expire_all(bench: Bench) -> None:
    for name in bench.broker.mortal("sink/"):
        bench.broker.expire(name)


@BOTH
def test_trap_17_no_winner_is_lost_to_its_time_out_after_the_decision(tv: int) -> None:
    bench = Bench(tv, keeps=True)
    crash(bench, finishes)
    expire_all(bench)
    assert len(bench.open()) == 2
    bench.begin(0)
    assert bench.broker.visible() == ROWS and bench.open() == ()


@BOTH
def test_trap_17_without_sealing_it_is_lost_loudly(tv: int) -> None:
    for bench in (Bench(tv, TwoPhase.NEVER, keeps=True), Bench(tv)):
        crash(bench, finishes)
        expire_all(bench)
        with pytest.raises(ParticipantsLost):
            bench.begin(0)


@BOTH
def test_participants_may_time_out_until_they_are_sealed(tv: int) -> None:
    """A query that is abandoned before its decision holds readers back no longer than that."""
    bench = Bench(tv, keeps=True)
    crash(bench, seals)
    expire_all(bench)
    assert bench.open() == ()


@BOTH
@TOLD
def test_trap_18_the_transaction_that_is_sealed_is_the_one_that_was_prepared(
    tv: int, tells_holder: bool
) -> None:
    """Somebody else has opened another one under the name: its rows must not be decided."""
    bench = Bench(tv, keeps=True, tells_holder=tells_holder)
    reports = bench.prepare_all(bench.begin(0))
    name = reports[1].participant.name  # type: ignore[union-attr]
    bench.broker.produce(name, bench.broker.init(name), 0, ["another's"])
    with pytest.raises(BatchRefused, match=r"partition 1: .* is open as .*, not as"):
        bench.commit(reports, 0)
    assert bench.broker.visible() == [] and not any(map(decides, bench.commands))


@BOTH
def test_trap_18_a_participant_that_timed_out_before_it_was_sealed(tv: int) -> None:
    bench = Bench(tv, keeps=True)
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.expire(bench.open()[0])
    with pytest.raises(BatchRefused, match=r"partition 0: .* is no longer open"):
        bench.commit(reports, 0)
    assert bench.open() == () and bench.broker.visible() == []
    bench.whole_batch(0)
    assert bench.broker.visible() == ROWS


@pytest.mark.parametrize("keeps", [True, False])
@BOTH
def test_a_driver_that_has_lost_its_sink_is_told_that_not_of_time_outs(tv: int, keeps: bool) -> None:
    """The new one's begin ends what the old one's tasks have open, before the old one comes to commit."""
    bench = Bench(tv, keeps=keeps)
    old = bench.prepare_all(bench.begin(0))
    begun = bench.begin(0)
    with pytest.raises(SinkFenced, match="another driver owns the sink"):
        bench.commit(old, 0)
    bench.commit(bench.prepare_all(begun), 0)
    assert bench.broker.visible() == ROWS


COMMIT_STEPS = pytest.mark.parametrize("step", [stages_source, verifies, decides])
"""Before which request of the old driver's commit it happens."""


def comes_before(
    bench: Bench, step: Callable[[c.Command[Any]], bool], *happenings: Callable[[], object]
) -> None:
    """The first happening comes right before this request, the others one by one before the next ones."""
    due = list(happenings)

    def intercept(command: c.Command[Any]) -> None:
        if due and (len(due) < len(happenings) or step(command)):
            due.pop(0)()

    bench.intercept = intercept


@BOTH
@COMMIT_STEPS
@pytest.mark.parametrize("got_to", ["abort", "acquire", "begin", "decide"])
def test_a_driver_that_loses_its_sink_within_its_commit_is_told_so(tv: int, step: Any, got_to: str) -> None:
    """A new one's InitProducerId aborts what the sink has open, as a time-out does, and only then it gets an
    identity; EndTxn says INVALID_TXN_STATE in between."""
    bench, new = Bench(tv), Bench(tv)
    old = bench.prepare_all(bench.begin(0))
    new.broker = bench.broker
    steps: dict[str, Callable[[], object]] = {
        "abort": lambda: bench.broker.begin_init("sink"),
        "acquire": lambda: bench.broker.init("sink"),
        "begin": lambda: new.begin(0),
        "decide": lambda: new.whole_batch(0),
    }
    happen = ["abort"] if got_to == "abort" else ["abort", got_to]
    comes_before(bench, step, *(steps[name] for name in happen))
    with pytest.raises(SinkFenced, match="another driver owns the sink"):
        bench.commit(old, 0, SOURCE)
    assert bench.broker.visible() == (ROWS if got_to == "decide" else [])


@BOTH
@COMMIT_STEPS
def test_a_sink_that_timed_out_within_its_commit_is_told_so(tv: int, step: Any) -> None:
    """Nobody else is there: whoever restarts the query does right."""
    bench = Bench(tv)
    old = bench.prepare_all(bench.begin(0))

    def time_out() -> None:
        bench.broker.now_ms += TIMEOUT_MS
        bench.broker.expire("sink")

    comes_before(bench, step, time_out)
    with pytest.raises(BatchRefused, match=r"timed out after 900000 ms.*start the query again"):
        bench.commit(old, 0, SOURCE)
    bench.intercept = None
    bench.whole_batch(0)
    assert bench.broker.visible() == ROWS and bench.open() == ()


@BOTH
@COMMIT_STEPS
def test_a_sink_that_timed_out_and_is_another_ones_by_now_is_told_that(tv: int, step: Any) -> None:
    bench, new = Bench(tv), Bench(tv)
    old = bench.prepare_all(bench.begin(0))
    new.broker = bench.broker

    def time_out() -> None:
        bench.broker.now_ms += TIMEOUT_MS
        bench.broker.expire("sink")
        new.begin(0)

    comes_before(bench, step, time_out)
    with pytest.raises(SinkFenced, match="another driver owns the sink"):
        bench.commit(old, 0, SOURCE)


def abort_under_its_own_epoch(bench: Bench) -> None:
    vars(bench.broker.transactions["sink"]).update(state="CompleteAbort", offsets={})


@BOTH
@COMMIT_STEPS
@pytest.mark.parametrize("open_ms", [0, TIMEOUT_MS])
def test_a_sink_that_is_ours_still_is_not_called_another_ones(tv: int, step: Any, open_ms: int) -> None:
    """Its transaction was aborted under its own epoch, or a request was refused for some other reason."""
    bench = Bench(tv)
    old = bench.prepare_all(bench.begin(0))

    def refuse(command: c.Command[Any]) -> Any:
        if not step(command):
            return None
        bench.broker.now_ms += open_ms
        if not stages_source(command):
            abort_under_its_own_epoch(bench)
        return None if isinstance(command, c.Describe) else c.Refused(35, "UNSUPPORTED_VERSION")

    bench.intercept = refuse
    with pytest.raises(BatchRefused, match=r"CompleteAbort|UNSUPPORTED_VERSION") as caught:
        bench.commit(old, 0, SOURCE)
    assert "timed out" not in str(caught.value) and "another driver" not in str(caught.value)


@BOTH
@pytest.mark.parametrize("step", [stages_source, decides])
@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, *LOST])
def test_a_sink_that_cannot_be_asked_for_its_owner_is_told_the_refusal(
    tv: int, step: Any, code: ErrorCode
) -> None:
    """Some refusals say by themselves that somebody else has it."""
    bench = Bench(tv)
    old = bench.prepare_all(bench.begin(0))
    refused = False

    def refuse(command: c.Command[Any]) -> Any:
        nonlocal refused
        if refused and isinstance(command, c.Describe):
            return c.Unknown("timed out")
        if decides(command):
            abort_under_its_own_epoch(bench)
        refused = refused or step(command)
        return c.Refused(int(code), code.name) if step(command) else None

    bench.intercept = refuse
    with pytest.raises(SinkFenced if code in LOST else BatchRefused, match=code.name):
        bench.commit(old, 0, SOURCE)


@BOTH
def test_who_owns_the_sink_cannot_be_asked_and_the_batch_is_refused_all_the_same(tv: int) -> None:
    bench = Bench(tv, keeps=True)
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.expire(bench.open()[0])
    asks = [c.Unknown("timed out")]
    bench.intercept = lambda command: asks.pop() if isinstance(command, c.Describe) and asks else None
    with pytest.raises(BatchRefused, match=r"partition 0: .* is no longer open"):
        bench.commit(reports, 0)
    assert not asks and bench.open() == () and bench.broker.visible() == []


@BOTH
def test_trap_19_what_is_decided_is_not_sealed_again(tv: int) -> None:
    """Sealing a committed transaction starts anew, and the proof that it is committed is gone."""
    bench = Bench(tv, keeps=True)
    reports = bench.whole_batch(0)
    bench.commands.clear()
    bench.commit(reports, 0)
    bench.begin(0)
    assert not any(map(seals, bench.commands))
    bench.begin(0)
    assert bench.broker.visible() == ROWS


@BOTH
def test_trap_20_a_second_commit_knows_its_decision_whoever_holds_it(tv: int) -> None:
    bench = Bench(tv, keeps=True)
    reports = crash(bench, finishes)
    stored = decode(bench.sink, bench.broker.fetch("sink").chunks)  # type: ignore[union-attr]
    assert stored is not None and all(winner.holder for winner in stored.winners)
    bench.commit(reports, 0)
    assert bench.broker.visible() == ROWS


@BOTH
def test_trap_20_another_drivers_decision_is_told_apart(tv: int) -> None:
    bench = Bench(tv, keeps=True)
    old = bench.prepare_all(bench.begin(0))
    bench.whole_batch(0)
    with pytest.raises(SinkFenced):
        bench.commit(old, 0)
    assert bench.broker.visible() == ROWS


@BOTH
@TOLD
def test_trap_21_a_commit_that_died_after_sealing_may_be_called_again(tv: int, tells_holder: bool) -> None:
    bench = Bench(tv, keeps=True, tells_holder=tells_holder)
    reports = crash(bench, seals, after=True)
    bench.commit(reports, 0)
    assert bench.broker.visible() == ROWS and bench.open() == ()


@BOTH
@TOLD
@pytest.mark.parametrize("stop", [stages, decides])
def test_trap_22_begin_aborts_what_was_sealed_and_not_decided(tv: int, tells_holder: bool, stop: Any) -> None:
    """No time-out does, and readers are held back until then."""
    bench = Bench(tv, keeps=True, tells_holder=tells_holder)
    crash(bench, stop)
    expire_all(bench)
    assert len(bench.open()) == 2
    bench.begin(0)
    assert bench.open() == () and bench.broker.visible() == []


@BOTH
@TOLD
def test_trap_22_so_does_abort(tv: int, tells_holder: bool) -> None:
    bench = Bench(tv, keeps=True, tells_holder=tells_holder)
    reports = crash(bench, stages)
    assert bench.abort(reports, 0) is Aborted.CLEARED
    assert bench.open() == ()


@BOTH
def test_trap_22_only_the_transaction_that_was_seen_is_aborted(tv: int) -> None:
    """Between the look and the take-over it ended and another one was opened under its name."""
    bench = Bench(tv, keeps=True)
    reports = crash(bench, stages)
    name = reports[0].participant.name

    def reopen(command: c.Command[Any]) -> None:
        if isinstance(command, c.Seal):
            bench.intercept = None
            bench.broker.produce(name, bench.broker.init(name), 0, ["a later one's"])

    bench.intercept = reopen
    assert bench.abort(reports, 0) is Aborted.CLEARED
    assert bench.open() == (name,)


@BOTH
@pytest.mark.parametrize("applied", [True, False])
def test_trap_23_a_seal_without_an_answer_refuses_the_batch_and_leaves_nothing_open(
    tv: int, applied: bool
) -> None:
    bench = Bench(tv, keeps=True)
    reports = bench.prepare_all(bench.begin(0))

    def lose(command: c.Command[Any]) -> Any:
        if not isinstance(command, c.Seal):
            return None
        bench.intercept = None
        if applied:
            bench._perform(command)
        return {name: c.Unknown("no answer") for name, _ in command.participants}

    bench.intercept = lose
    with pytest.raises(BatchRefused, match=r"could not be kept open: no answer"):
        bench.commit(reports, 0)
    assert bench.open() == () and not any(map(decides, bench.commands))
    bench.whole_batch(0)
    assert bench.broker.visible() == ROWS


@BOTH
@TOLD
def test_trap_24_a_seal_that_arrives_late_does_not_stop_the_decision(tv: int, tells_holder: bool) -> None:
    """Sent twice, answered once, and the first copy comes to the broker after the decision."""
    bench = Bench(tv, keeps=True, tells_holder=tells_holder)
    crash(bench, finishes)
    for name in bench.open():
        bench.broker.keep(name)
    bench.begin(0)
    assert bench.broker.visible() == ROWS and bench.open() == ()


@BOTH
@pytest.mark.parametrize("why", [c.Refused(1, "busy"), c.Unknown("busy")])
def test_trap_24_one_that_cannot_be_taken_over_is_not_finished(tv: int, why: c.Failure) -> None:
    bench = Bench(tv, keeps=True, tells_holder=False)
    crash(bench, finishes)
    for name in bench.open():
        bench.broker.keep(name)
    bench.intercept = lambda command: {p.name: why for p in command.participants} if seals(command) else None
    with pytest.raises(Unfinished, match=r"2 of its transactions could not be committed yet: .*busy"):
        bench.begin(0)
    bench.intercept = None
    bench.begin(0)
    assert bench.broker.visible() == ROWS and bench.open() == ()


@BOTH
def test_trap_24_who_does_not_answer_is_not_taken_over(tv: int) -> None:
    """Its commit may be under way: sealing it after that would hide that it is committed."""
    bench = Bench(tv, keeps=True)
    reports = bench.prepare_all(bench.begin(0))

    def lose(command: c.Command[Any]) -> Any:
        if finishes(command) and isinstance(command, c.End):
            return {name: c.Unknown("no answer") for name, _ in command.participants}
        return None

    bench.intercept = lose
    with pytest.raises(Unfinished):
        bench.commit(reports, 0)
    assert [type(x) for x in bench.commands].count(c.Seal) == 1
    bench.intercept = None
    bench.begin(0)
    assert bench.broker.visible() == ROWS


@pytest.mark.parametrize(("left_ms", "fit"), [(9_000, False), (11_000, True)])
def test_trap_25_who_is_not_sealed_is_guarded_by_time(left_ms: int, fit: bool) -> None:
    """A cluster in the middle of an upgrade: one coordinator offers it, the other does not."""
    bench = Bench(keeps=True)
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.now_ms += 900_000 - left_ms
    other = reports[1].participant.name  # type: ignore[union-attr]

    def half(command: c.Command[Any]) -> Any:
        if isinstance(command, c.Seal):
            return {
                name: c.NotOffered("version 5") if name == other else bench.broker.keep(name)
                for name, _ in command.participants
            }
        return None

    bench.intercept = half
    if fit:
        bench.commit(reports, 0)
        assert bench.broker.visible() == ROWS
    else:
        with pytest.raises(BatchRefused, match=r"partition 1: .* of its 900000 ms left"):
            bench.commit(reports, 0)
        assert bench.open() == ()


def test_a_sealed_participant_has_all_the_time() -> None:
    bench = Bench(keeps=True)
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.now_ms += 899_999
    bench.commit(reports, 0)
    assert bench.broker.visible() == ROWS


def test_required_and_not_offered_is_said_before_anything_is_written() -> None:
    bench = Bench(two_phase=TwoPhase.REQUIRE)
    with pytest.raises(CommitFault, match=r"two\.phase\.commit=require.*does not offer it"):
        bench.begin(0)
    bench.broker.keeps = True
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.keeps = False
    with pytest.raises(BatchRefused, match=r"two\.phase\.commit=require"):
        bench.commit(reports, 0)
    bench.broker.keeps = True
    bench.whole_batch(0)
    assert bench.broker.visible() == ROWS


def test_switched_off_by_the_option_nobody_asks() -> None:
    bench = Bench(two_phase=TwoPhase.NEVER, keeps=True)
    bench.whole_batch(0)
    assert not any(map(seals, bench.commands))


def test_what_an_earlier_run_sealed_is_cleared_by_one_that_does_not_seal() -> None:
    bench = Bench(keeps=True)
    crash(bench, stages)
    bench.two_phase = TwoPhase.NEVER
    bench.whole_batch(0)
    assert bench.broker.visible() == ROWS and bench.open() == ()


@BOTH
def test_markers_are_looked_for_under_the_identity_that_wrote(tv: int) -> None:
    """Partitions know no holder."""
    bench = Bench(tv, keeps=True)
    reports = crash(bench, finishes)
    bench.begin(0)
    (asked,) = [command for command in bench.commands if isinstance(command, c.FindHeld)]
    assert set(asked.participants) == {report.participant for report in reports}


@BOTH
def test_holders_rotate_with_the_producer_id(tv: int) -> None:
    bench = Bench(tv, keeps=True, last_epoch=1)
    for batch_id in range(6):
        bench.whole_batch(batch_id, run=getattr(bench, "remembered", None), completed=batch_id - 1 or None)
    assert len(bench.broker.visible()) == 12
