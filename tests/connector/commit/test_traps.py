"""The traps of the protocol, one story each. (What a source reads at a control record is the reader's.)"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.abandon import Aborted
from eoslog.connector.commit.decide import SourceOffsets
from eoslog.connector.commit.decision import Stored
from eoslog.connector.commit.faults import (
    BatchRefused,
    CheckpointMismatch,
    CheckpointOlder,
    CommitFault,
    MarkersMissing,
    OutcomeUnknown,
    ParticipantsLost,
    SinkFenced,
    Unfinished,
)
from eoslog.connector.commit.prepare import judge
from eoslog.connector.commit.task_reports import Batch, Decided
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.commit.model_bench import Bench, Crash, decides, finishes

BOTH = pytest.mark.parametrize("tv", [1, 2])


@BOTH
def test_trap_1_a_decided_batch_is_rolled_forward_before_anything_is_aborted(tv: int) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    assert bench.broker.visible() == []
    begun = bench.begin(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]
    assert all(isinstance(report, Decided) for report in bench.prepare_all(begun))


@BOTH
def test_trap_2_the_batch_after_the_decided_one_is_aborted_not_committed(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    bench.prepare_all(bench.begin(1, run=bench.remembered, completed=0))
    assert len(bench.open()) == 2
    bench.begin(1)
    assert bench.open() == () and bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
def test_trap_2_names_of_a_decided_batch_are_not_used_by_the_next(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    decided = set(bench.broker.transactions)
    bench.prepare_all(bench.begin(1, run=bench.remembered, completed=0))
    assert set(bench.open()) and not set(bench.open()) & decided


@BOTH
def test_names_come_again_two_batches_later(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    bench.whole_batch(1, run=bench.remembered, completed=0)
    known = len(bench.broker.transactions)
    for batch_id in range(2, 8):
        bench.whole_batch(batch_id, run=bench.remembered, completed=batch_id - 1)
    assert len(bench.broker.transactions) == known, "transactional ids pile up"


@BOTH
def test_trap_3_a_new_checkpoint_starts_at_0_again_and_is_not_skipped(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    bench.whole_batch(0, query="r")
    assert bench.broker.visible() == ["q0p0", "q0p1", "r0p0", "r0p1"]


@BOTH
def test_trap_27_another_query_used_the_sink_before_a_decided_batch_is_replayed(tv: int) -> None:
    """Killed after the decision, before Spark has noted it; then another query, of more than one batch; then
    the first one comes back."""
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    for batch_id in range(2):
        bench.whole_batch(batch_id, query="r")
    bench.commit(bench.prepare_all(bench.begin(0)), 0)
    bench.whole_batch(1)
    bench.whole_batch(2, query="r")
    expected = [
        f"{query}{b}p{p}" for query, batches in (("q", 2), ("r", 3)) for b in range(batches) for p in (0, 1)
    ]
    assert sorted(bench.broker.visible()) == expected


@BOTH
def test_trap_27_a_checkpoint_set_back_is_noticed_though_another_query_came_after(tv: int) -> None:
    bench = Bench(tv)
    for batch_id in range(2):
        bench.whole_batch(batch_id)
    bench.whole_batch(0, query="r")
    with pytest.raises(CheckpointMismatch):
        bench.begin(1, digest="another")
    with pytest.raises(CheckpointOlder):
        bench.begin(0)


@BOTH
def test_trap_4_commit_never_acquires_and_a_replaced_driver_cannot_decide(tv: int) -> None:
    bench = Bench(tv)
    old = bench.prepare_all(bench.begin(0))
    new = bench.prepare_all(bench.begin(0))
    bench.commands.clear()
    with pytest.raises(SinkFenced, match="another driver owns the sink"):
        bench.commit(old, 0)
    assert not any(isinstance(command, c.Acquire) for command in bench.commands)
    assert len(bench.open()) == 2, "the new driver's tasks are untouched"
    bench.commit(new, 0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
def test_trap_4_a_driver_that_slept_through_a_whole_run_stops_at_its_next_begin(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    old = bench.remembered
    bench.begin(1)
    bench.commands.clear()
    with pytest.raises(SinkFenced):
        bench.begin(1, run=old)
    assert not any(isinstance(command, c.Acquire) for command in bench.commands)


@BOTH
def test_a_planner_process_that_missed_a_batch_is_no_replaced_driver(tv: int) -> None:
    """Spark has a pool of planner processes: what one remembers may be a few batches old."""
    bench = Bench(tv)
    bench.whole_batch(0)
    old = bench.remembered
    bench.whole_batch(1)
    bench.whole_batch(2, run=old)
    assert len(bench.broker.visible()) == 6


@BOTH
def test_trap_5_commit_may_be_called_again(tv: int) -> None:
    bench = Bench(tv)
    reports = bench.whole_batch(0)
    bench.commit(reports, 0)
    bench.commit(reports, 0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
def test_trap_5_a_replayed_batch_passes_its_rows_and_commits_nothing_twice(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    bench.whole_batch(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
def test_trap_6_a_participant_that_timed_out_before_the_decision(tv: int) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.expire(bench.open()[1])
    with pytest.raises(BatchRefused, match=r"batch 0 of query q was not decided.*partition 1") as refusal:
        bench.commit(reports, 0)
    assert "kafka.transaction.timeout.ms" in str(refusal.value)
    assert bench.open() == () and bench.broker.visible() == []
    bench.whole_batch(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
@pytest.mark.parametrize("at", ["commit", "begin"])
def test_trap_6_a_participant_that_timed_out_after_the_decision(tv: int, at: str) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    lost = bench.open()[1]
    bench.broker.expire(lost)
    for _ in range(2):
        with pytest.raises(ParticipantsLost, match=r"batch 0 of query q .*partitions \[1\] are lost") as loss:
            bench.commit(reports, 0) if at == "commit" else bench.begin(0)
        assert lost in str(loss.value)
    assert bench.broker.visible() == ["q0p0"], "what can be saved is saved"


@pytest.mark.parametrize(("left_ms", "fit"), [(9_000, False), (11_000, True)])
def test_trap_6_a_participant_about_to_time_out_is_not_decided(left_ms: int, fit: bool) -> None:
    """By the brokers' clocks: this machine's clock is not asked."""
    bench = Bench()
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.now_ms += 900_000 - left_ms
    if fit:
        bench.commit(reports, 0)
    else:
        with pytest.raises(BatchRefused, match="of its 900000 ms left"):
            bench.commit(reports, 0)


@BOTH
@pytest.mark.parametrize("pauses", [c.StageOffsets, c.Describe])
def test_trap_6_the_time_left_is_reckoned_from_now(tv: int, pauses: type[c.Command[Any]]) -> None:
    """The driver stands still after its own transaction was opened: that transaction's start is long ago."""
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    staged = False

    def pause(command: c.Command[Any]) -> None:
        nonlocal staged
        if isinstance(command, pauses) and staged:
            bench.broker.now_ms += 895_000
        staged = staged or isinstance(command, c.StageOffsets)

    bench.intercept = pause
    source = SourceOffsets("dashboards", {("source", 0): (1, "")})
    with pytest.raises(BatchRefused, match="of its 900000 ms left"):
        bench.commit(reports, 0, source)
    bench.intercept = None
    bench.whole_batch(0)
    assert bench.open() == () and bench.broker.visible() == ["q0p0", "q0p1"]


def test_trap_7_a_repeated_end_under_the_old_epoch_is_no_loss() -> None:
    """EndTxn 5 raises the epoch; the same request again finds CompleteCommit one epoch further."""
    bench = Bench(tv=2)
    reports = bench.prepare_all(bench.begin(0))

    def lose_answers(command: c.Command[Any]) -> Any:
        if finishes(command):
            bench._perform(command)
            assert isinstance(command, c.End)
            return {name: c.Unknown("no answer") for name, _ in command.participants}
        return None

    bench.intercept = lose_answers
    bench.commit(reports, 0)
    bench.intercept = None
    bench.begin(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
def test_trap_8_producer_ids_rotate_and_nothing_is_taken_for_lost(tv: int) -> None:
    bench = Bench(tv, last_epoch=1)
    for batch_id in range(9):
        bench.whole_batch(batch_id, run=getattr(bench, "remembered", None), completed=batch_id - 1 or None)
    assert len(bench.broker.visible()) == 18


@BOTH
def test_trap_9_begin_leaves_nothing_open(tv: int) -> None:
    """Tasks of older runs, lost attempts, and of this run's batch before."""
    bench = Bench(tv)
    for worker in ("a", "b"):
        bench.prepare(bench.begin(0), 0, ["lost"], worker)
    begun = bench.begin(0)
    reports = bench.prepare_all(begun)
    bench.prepare(begun, 1, ["lost too"], "speculative")
    bench.commit(reports, 0)
    assert bench.open() == (), "a lost attempt holds back the readers of a committed batch"
    bench.prepare(begun, 1, ["a zombie"], "zombie")
    bench.begin(1, run=bench.remembered, completed=0)
    assert bench.open() == () and bench.broker.visible() == ["q0p0", "q0p1"]


def test_trap_9_other_sinks_are_left_alone() -> None:
    bench = Bench()
    for name in ("sink-b/1.0/0/w.0", "sink", "sinks/1.0/0/w.0", "sink/what/is.this"):
        bench.broker.produce(name, bench.broker.init(name), 0, ["theirs"])
    bench.begin(0)
    opened = {name for name, txn in bench.broker.transactions.items() if txn.state == "Ongoing"}
    assert opened == {"sink-b/1.0/0/w.0", "sinks/1.0/0/w.0", "sink/what/is.this"}


def test_trap_11_lost_markers_are_written_or_said() -> None:
    """After a recovery the partitions are asked, not the coordinator alone."""
    bench = Bench()
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    participant = reports[1].participant  # type: ignore[union-attr]
    held: list[c.HeldBack] = [c.HeldBack(("out", 1), participant, 0)]
    allowed = False

    def lost_marker(command: c.Command[Any]) -> Any:
        if isinstance(command, c.FindHeld):
            assert command.places == (("out", 0), ("out", 1)) and participant in command.participants
            return tuple(held)
        if isinstance(command, c.WriteMarkers) and not allowed:
            return c.Refused(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "not allowed")
        if isinstance(command, c.WriteMarkers):
            assert command.held == tuple(held)
            held.clear()
        return None

    bench.intercept = lost_marker
    with pytest.raises(MarkersMissing, match=r"out-1 by sink/.*blocked there.*not allowed"):
        bench.begin(0)
    allowed = True
    bench.begin(0)
    assert not held


def test_trap_11_late_markers_are_waited_for_while_their_coordinator_says_so() -> None:
    """Its node has died since it said that it commits: another one has yet to write the markers. Writing
    them from outside needs a right that most have not."""
    bench = Bench()
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    participant = reports[1].participant  # type: ignore[union-attr]
    held, preparing = [c.HeldBack(("out", 1), participant, 0)], 2

    def late(command: c.Command[Any]) -> Any:
        nonlocal preparing
        assert not isinstance(command, c.WriteMarkers)
        if isinstance(command, c.FindHeld):
            return tuple(held)
        if isinstance(command, c.Describe) and command.names == (participant.name,):
            preparing -= 1
            if not preparing:
                held.clear()
            state = "PrepareCommit" if preparing else "CompleteCommit"
            return {participant.name: c.Description(state, participant.identity, 60_000, 0)}
        return None

    bench.intercept = late
    bench.begin(0)
    assert not held


def test_trap_11_offsets_that_never_become_stable_stop_the_query_loudly() -> None:
    """A cluster that says CompleteCommit and has lost the marker keeps the group's offsets pending."""
    bench = Bench()
    bench.intercept = lambda command: c.Unknown("88") if isinstance(command, c.FetchStored) else None
    with pytest.raises(CommitFault, match="last decision of sink sink cannot be read: 88"):
        bench.begin(0)


@BOTH
@pytest.mark.parametrize("applied", [True, False])
def test_trap_12_nothing_is_aborted_while_the_outcome_is_unknown(tv: int, applied: bool) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    away = False

    def lose(command: c.Command[Any]) -> Any:
        nonlocal away
        if decides(command):
            away = True
            if applied:
                bench._perform(command)
            return {"sink": c.Unknown("no answer")}
        return c.Unknown("away") if away else None

    bench.intercept = lose
    with pytest.raises(OutcomeUnknown, match=r"batch 0 .*the outcome is unknown.*Start the query again"):
        bench.commit(reports, 0)
    assert bench.abort(reports, 0) is Aborted.LEFT
    assert len(bench.open()) == 2
    bench.intercept = None
    if applied:
        assert bench.abort(reports, 0) is Aborted.DECIDED
        assert bench.open() == (), "what is decided is carried out"
    bench.whole_batch(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
def test_trap_12_abort_after_a_decided_batch_aborts_nothing(tv: int) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    bench.intercept = lambda command: c.Unknown("away") if finishes(command) else None
    with pytest.raises(Unfinished):
        bench.commit(reports, 0)
    assert bench.abort(reports, 0) is Aborted.DECIDED
    assert len(bench.open()) == 2
    bench.intercept = None
    assert bench.abort(reports, 0) is Aborted.DECIDED
    assert bench.open() == () and bench.broker.visible() == ["q0p0", "q0p1"]
    bench.begin(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
@pytest.mark.parametrize("why", [c.Refused(1, "not now"), c.Unknown("no answer")])
def test_nothing_is_aborted_while_the_end_is_not_marked(tv: int, why: c.Failure) -> None:
    """A process that commits may still work: what it decides must not be aborted."""
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    bench.intercept = lambda command: why if isinstance(command, c.Acquire) else None
    assert bench.abort(reports, 0) is Aborted.LEFT and len(bench.open()) == 2
    bench.commit(reports, 0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
def test_a_replaced_driver_takes_its_own_transactions_with_it(tv: int) -> None:
    """Its tasks ran after the new driver had decided the batch: readers would wait for their time-out."""
    bench = Bench(tv)
    begun = bench.begin(0)
    bench.whole_batch(0)
    late = bench.prepare_all(begun)
    with pytest.raises(SinkFenced):
        bench.commit(late, 0)
    assert bench.abort(late, 0) is Aborted.CLEARED
    assert bench.open() == () and bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
def test_abort_clears_a_failed_batch_and_nobody_elses(tv: int) -> None:
    bench = Bench(tv)
    old = bench.prepare_all(bench.begin(0))
    begun = bench.begin(0)
    reports = bench.prepare_all(begun)
    assert bench.abort([None, None], 0) is Aborted.LEFT
    assert bench.abort(old, 0) is Aborted.CLEARED
    assert len(bench.open()) == 2, "a zombie's abort hits only its own"
    assert bench.abort([None, reports[1]], 0) is Aborted.CLEARED
    assert bench.open() == ()


@BOTH
def test_abort_clears_what_killed_tasks_left_when_begin_is_remembered(tv: int) -> None:
    bench = Bench(tv)
    begun = bench.begin(0)
    bench.prepare_all(begun)
    assert len(bench.open()) == 2
    assert bench.abort([None, None], 0, begun) is Aborted.CLEARED
    assert bench.open() == ()
    begun = bench.begin(0)
    bench.commit(bench.prepare_all(begun), 0)
    assert bench.abort([None, None], 0, begun) is Aborted.DECIDED
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
def test_trap_13_a_partly_refused_decision_is_refused(tv: int) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))

    def refuse_in_part(command: c.Command[Any]) -> Any:
        if isinstance(command, c.StageOffsets):
            bench._perform(replace(command, offsets=dict(list(command.offsets.items())[:1])))
            return c.Refused(int(ErrorCode.OFFSET_METADATA_TOO_LARGE), "metadata too large")
        return None

    bench.intercept = refuse_in_part
    with pytest.raises(BatchRefused, match="metadata too large"):
        bench.commit(reports, 0)
    bench.intercept = None
    stored = bench.broker.fetch("sink")
    assert isinstance(stored, Stored) and stored.chunks == {} and bench.open() == ()


@BOTH
def test_trap_15_participants_of_a_newer_driver_in_the_list_are_left_alone(tv: int) -> None:
    """A newer driver began and its tasks wrote, just before this one lists what is open."""
    bench = Bench(tv)
    bench.whole_batch(0)

    def replace_the_driver(command: c.Command[Any]) -> None:
        if isinstance(command, c.ListOngoing):
            bench.intercept = None
            bench.prepare_all(bench.begin(1))

    bench.intercept = replace_the_driver
    with pytest.raises(SinkFenced):
        bench.begin(1, completed=0)
    assert len(bench.open()) == 2


@BOTH
def test_trap_16_another_drivers_commit_in_between_does_not_look_like_ours(tv: int) -> None:
    """Between the two questions of a driver that goes on, another one takes the sink over and decides."""
    bench = Bench(tv)
    bench.whole_batch(0)
    old, asked = bench.remembered, len(bench.commands)

    def decide_in_between(command: c.Command[Any]) -> None:
        if len(bench.commands) == asked + 3:
            bench.intercept = None
            bench.whole_batch(1)

    bench.intercept = decide_in_between
    with pytest.raises(SinkFenced):
        bench.begin(1, run=old, completed=0)
    assert len(bench.broker.visible()) == 4


@BOTH
@pytest.mark.parametrize("late", ["its commit", "its decision"])
def test_trap_26_what_comes_late_of_the_last_batch_does_not_get_into_the_next_one(tv: int, late: str) -> None:
    """Sent twice, answered once; the other copy comes when the next batch's decision is staged. On
    transaction.version 1 a commit leaves the epoch as it is: raised by nobody, it would be let in."""
    bench = Bench(tv)
    bench.whole_batch(0)
    copies: dict[str, Callable[[c.Command[Any]], bool]]
    copies = {"its commit": decides, "its decision": lambda command: isinstance(command, c.StageOffsets)}
    (copy,) = [command for command in bench.commands if copies[late](command)]
    reports = bench.prepare_all(bench.begin(1, run=bench.remembered, completed=0))
    bench.broker.expire(bench.open()[0])

    def arrive(command: c.Command[Any]) -> None:
        if isinstance(command, c.Describe):
            bench.intercept = None
            bench._perform(copy)

    bench.intercept = arrive
    with pytest.raises(BatchRefused, match="batch 1 of query q was not decided"):
        bench.commit(reports, 1)
    bench.whole_batch(1)
    bench.whole_batch(2, run=bench.remembered, completed=1)
    assert bench.broker.visible() == [f"q{batch}p{partition}" for batch in range(3) for partition in (0, 1)]


@BOTH
def test_trap_26_a_late_decision_does_not_take_the_place_of_the_next_one(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    (copy,) = [command for command in bench.commands if isinstance(command, c.StageOffsets)]
    reports = bench.prepare_all(bench.begin(1, run=bench.remembered, completed=0))

    def arrive(command: c.Command[Any]) -> None:
        if decides(command):
            bench.intercept = None
            bench._perform(copy)

    bench.intercept = arrive
    bench.commit(reports, 1)
    replayed = bench.prepare_all(bench.begin(1))
    assert all(isinstance(report, Decided) for report in replayed), "a decided batch would be written again"


def test_trap_26_the_epoch_is_raised_only_by_who_still_has_it() -> None:
    bench = Bench(tv=1)
    bench.whole_batch(0)

    def take_over(command: c.Command[Any]) -> None:
        if isinstance(command, c.Acquire):
            bench.intercept = None
            bench.broker.init("sink")

    bench.intercept = take_over
    with pytest.raises(SinkFenced):
        bench.begin(1, run=bench.remembered, completed=0)


@BOTH
def test_source_offsets_that_the_cluster_does_not_take_refuse_the_batch(tv: int) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    source = SourceOffsets("dashboards", {("elsewhere", 0): (5, "")})
    bench.intercept = lambda command: (
        c.Refused(3, "UNKNOWN_TOPIC_OR_PARTITION: elsewhere-0")
        if isinstance(command, c.StageOffsets) and command.group == "dashboards"
        else None
    )
    with pytest.raises(BatchRefused, match=r"group dashboards.*elsewhere-0"):
        bench.commit(reports, 0, source)
    assert bench.broker.visible() == [] and bench.open() == ()


@BOTH
def test_a_batch_without_rows_is_decided_with_its_source_offsets(tv: int) -> None:
    bench = Bench(tv)
    begun = bench.begin(0)
    reports = [bench.prepare(begun, partition, []) for partition in range(2)]
    bench.commit(reports, 0, SourceOffsets("dashboards", {("in", 0): (5, "")}))
    assert bench.broker.groups["dashboards"] == {("in", 0): (5, "")}
    assert bench.begin(1, run=bench.remembered).sequence == 1


@pytest.mark.parametrize(("batch_id", "digest"), [(1, "digest 1"), (2, "other offsets")])
def test_a_checkpoint_that_was_set_back_stops_the_query(batch_id: int, digest: str) -> None:
    """Its next batch has a number that is decided, but other rows: neither skip nor write them."""
    bench = Bench()
    for done in range(3):
        bench.whole_batch(done)
    with pytest.raises(CheckpointMismatch, match="restored from an older copy"):
        bench.begin(batch_id, digest=digest)


def test_a_query_that_rested_until_its_ids_expired_goes_on() -> None:
    bench = Bench()
    bench.whole_batch(0)
    bench.broker.transactions.clear()
    bench.begin(1, completed=0)
    bench.broker.transactions.clear()
    bench.begin(1, run=bench.remembered, completed=0)
    bench.broker.transactions.clear()
    with pytest.raises(ParticipantsLost, match="unknown to the broker"):
        bench.begin(0)


def test_reports_that_do_not_belong_together_decide_nothing() -> None:
    bench = Bench()
    older = bench.prepare_all(bench.begin(0))
    newer = bench.prepare_all(bench.begin(0))
    first = newer[0]
    wrong: list[list[Any]] = [
        [],
        [first, None],
        [older[0], newer[1]],
        [first, first],
        [first, Decided(first.stamp, 1)],
    ]
    for reports in wrong:
        with pytest.raises(CommitFault):
            bench.commit(reports, 0)
    with pytest.raises(CommitFault):
        bench.commit(newer, 1)
    assert not any(decides(command) for command in bench.commands)
    assert bench.broker.visible() == []


def test_tasks_of_another_batch_than_begun_are_refused() -> None:

    begun = Bench().begin(3)
    for query_id, batch_id in (("q", 4), ("r", 3)):
        with pytest.raises(CommitFault, match="made ready for batch 3 of query q"):
            judge(begun, query_id, batch_id, 0)


def test_faults_pickle() -> None:
    import pickle

    for kind in CommitFault.__subclasses__():
        assert str(pickle.loads(pickle.dumps(kind("batch 0: why")))) == "batch 0: why"


def test_an_identity_reads_as_in_names() -> None:
    assert f"{ProducerIdentity(7, 3)} {Batch('q', 1)}" == "7.3 batch 1 of query q"


@pytest.mark.parametrize("tv", [1, 2])
def test_a_driver_behind_another_ones_decision_asks_for_nothing_more(tv: int) -> None:
    """Its requests would be refused anyway; sealing would start its participants anew before that."""
    bench = Bench(tv, keeps=True)
    reports = bench.prepare_all(bench.begin(0))
    bench.whole_batch(0, query="another")
    bench.commands.clear()
    with pytest.raises(SinkFenced, match="it has decided batch 0 of query another since"):
        bench.commit(reports, 0)
    assert [type(command) for command in bench.commands] == [c.FetchStored]
