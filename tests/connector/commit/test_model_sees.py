"""The judge judged: with any one of these rules broken, some small history must turn out wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eoslog.connector.checkpoint import start_checks
from eoslog.connector.commit import abandon, begin, decide, decision, finish, prepare, seal, sink_transaction
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.faults import BatchRefused
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.errors import ErrorCode
from tests.connector.commit import model_bench, model_programs
from tests.connector.commit.model_broker import ModelBroker
from tests.connector.commit.model_history import Fault, Shape
from tests.connector.commit.model_judge import explore

CRASHES = (Fault.KILL, Fault.TIMEOUT_LOST, Fault.TIMEOUT_DONE)


def nothing(*args: Any, **kwargs: Any) -> c.Rules[None]:
    """A rule left out."""
    yield from ()


def no_roll_forward(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(begin, "finish_late", nothing)


def old_decision_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(begin, "decode", lambda sink, chunks: None)


def leftovers_not_cleared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(begin, "clear", nothing)


def left_overs_cleared_before_the_roll_forward(patch: pytest.MonkeyPatch) -> None:
    def clear_first(last: decision.Decision) -> c.Rules[None]:
        names = (yield c.ListOngoing("sink/")).ongoing
        states = yield c.Describe(names)
        yield c.End(False, tuple(Participant(name, states[name].identity) for name in names))
        yield from finish.finish(last)

    patch.setattr(begin, "finish_late", clear_first)


def parity_ignored(patch: pytest.MonkeyPatch) -> None:
    for module in (prepare, decision, decide):
        patch.setattr(module, "parity", lambda batch_id: 0)


def decided_batches_written_again(patch: pytest.MonkeyPatch) -> None:
    def write(*told: Any) -> Any:
        _, stamp = prepare.judge(*told)
        return prepare.Task.WRITE, stamp

    patch.setattr(model_programs, "judge", write)


def skipped_by_number_alone(patch: pytest.MonkeyPatch) -> None:
    def skip(begun: Any, query_id: str, batch_id: int, *more: Any) -> Any:
        task, stamp = prepare.judge(begun, query_id, batch_id, *more)
        covered = begun.decided is not None and begun.decided.batch_id >= batch_id
        return prepare.Task.PASS_DECIDED if covered else task, stamp

    def covers(last: Any, batch: Any) -> bool:
        return last is not None and last.batch.batch_id >= batch.batch_id

    patch.setattr(model_programs, "judge", skip)
    patch.setattr(decide, "_covers", covers)


def abort_without_asking(patch: pytest.MonkeyPatch) -> None:
    def end_run(sink: Any, run: Any) -> c.Rules[abandon.Ended]:
        yield from finish.clear_run(sink, run.incarnation, ())
        return abandon.Ended(abandon.Aborted.CLEARED)

    patch.setattr(model_programs, "end_run", end_run)
    patch.setattr(model_bench, "end_run", end_run)


def aborted_while_the_outcome_is_unknown(patch: pytest.MonkeyPatch) -> None:
    def find_out(sink: Any, own: Any, decision: Any, *more: Any) -> c.Rules[None]:
        yield c.End(False, decision.participants)
        raise BatchRefused("it did not answer")

    patch.setattr(decide, "_find_out", find_out)


def unknown_outcome_taken_for_decided(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "_find_out", nothing)


def not_owner_and_yet_clearing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finish, "check_owner", lambda sink, owner, state: None)


def decision_asked_before_the_state(patch: pytest.MonkeyPatch) -> None:
    def keep(sink: Any, run: Any) -> c.Rules[Any]:
        stored = yield c.FetchStored(sink.group)
        states = yield c.Describe((sink.coordinator,))
        state = states[sink.coordinator]
        last = decision.decode(sink, stored.chunks)
        if state.identity != run.identity and not begin.left_by(run, state, last):
            raise finish.fenced(sink, "")
        return begin.Owned(run.incarnation, state.identity, stored, False)

    patch.setattr(begin, "_keep", keep)


def losers_asked_for_before_the_decision(patch: pytest.MonkeyPatch) -> None:
    look = sink_transaction.fetch_stored

    def ask_first(sink: Any, *more: Any) -> c.Rules[Any]:
        yield c.AskOngoing(sink.prefix)
        return (yield from look(sink, *more))

    patch.setattr(decide, "fetch_stored", ask_first)
    patch.setattr(decide, "AskOngoing", lambda prefix: c.ReadClock())


def refused_commit_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    def finish_blindly(last: decision.Decision) -> c.Rules[None]:
        yield c.End(True, last.participants)

    patch.setattr(begin, "finish_late", finish_blindly)
    patch.setattr(decide, "finish", finish_blindly)


def sealed_leftovers_not_taken_over(patch: pytest.MonkeyPatch) -> None:
    def refuse(commit: bool, participants: Any) -> c.Rules[Any]:
        yield from ()
        return {p.name: c.Refused(90, "fenced") for p in participants}

    patch.setattr(finish, "end_sealed", refuse)


def holders_not_recorded(patch: pytest.MonkeyPatch) -> None:
    def forget(made: Any, answers: Any, policy: Any) -> Any:
        return made, seal.seal(made, answers, policy)[1]

    patch.setattr(decide, "seal", forget)


def sealed_when_it_is_finished(patch: pytest.MonkeyPatch) -> None:
    def seal_first(last: decision.Decision) -> c.Rules[None]:
        yield from seal.end_sealed(True, last.participants)
        yield from finish.finish(last)

    patch.setattr(begin, "finish_late", seal_first)


def sealed_whatever_the_answer(patch: pytest.MonkeyPatch) -> None:
    def believe(made: Any, answers: Any, policy: Any) -> Any:
        holders = {name: answer.holder for name, answer in answers.items() if isinstance(answer, c.Sealed)}
        return made._replace(
            winners=tuple(w._replace(holder=holders.get(w.participant.name)) for w in made.winners)
        ), []

    patch.setattr(decide, "seal", believe)
    patch.setattr(decide, "_verify", nothing)


def late_attempts_do_not_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_programs, "withdraw_if_late", nothing)


def lost_markers_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(begin, "write_lost_markers", nothing)


def a_lost_marker_is_always_a_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sink_transaction, "WriteMarkers", lambda held, commit: c.WriteMarkers(held, True))


def ends_not_marked(patch: pytest.MonkeyPatch) -> None:
    def ask(command: c.Command[Any]) -> c.Rules[Any]:
        if isinstance(command, c.Acquire):
            return c.Refused(int(ErrorCode.INVALID_PRODUCER_EPOCH), "not asked")
        answer = yield command
        return answer

    patch.setattr(abandon, "ask", ask)


def dying_tasks_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_programs, "clear_again", nothing)


def hand_overs_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_programs, "check_story", lambda story: [])


def successors_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(start_checks, "check_taken_over", lambda *told, **more: None)
    patch.setattr(begin, "_keep", nothing)  # a process that remembers nothing acquires the sink


def lost_decisions_not_missed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(start_checks, "check_completed", lambda *told: None)


def reopened_winners_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    verify: Any = decide._verify
    patch.setattr(
        decide, "_verify", lambda sink, own, made, at, _, *more: verify(sink, own, made, at, None, *more)
    )


def aborts_leave_the_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelBroker, "abort", lambda self, name, identity: self.end(name, identity, False))


RESTORED = Shape(partitions=1, kinds=(Fault.RESTORE,))
STOPPED = Shape(batches=1, partitions=1, kinds=(Fault.END,), keeps=True)
UNASKED = Shape(tv=1, batches=3, partitions=1, struck="task: Produce", verifies=False)
FORGETS = Shape(partitions=1, faults=2, kinds=(Fault.FORGET, Fault.KILL))
BROKEN: list[tuple[Callable[[pytest.MonkeyPatch], None], Shape]] = [
    (no_roll_forward, Shape(kinds=(Fault.WIPE,))),
    (old_decision_not_read, Shape(kinds=CRASHES)),
    (skipped_by_number_alone, Shape(kinds=(Fault.WIPE,))),
    (leftovers_not_cleared, Shape(kinds=CRASHES)),
    (left_overs_cleared_before_the_roll_forward, Shape(kinds=CRASHES)),
    (parity_ignored, Shape(kinds=CRASHES)),
    (hand_overs_not_compared, Shape(kinds=(Fault.HANDOVER,), batches=1, switches=1)),
    (successors_not_looked_for, Shape(kinds=(Fault.HANDOVER,))),
    (lost_decisions_not_missed, RESTORED),
    (reopened_winners_not_looked_at, RESTORED),
    (decided_batches_written_again, Shape(kinds=CRASHES)),
    (abort_without_asking, Shape(kinds=CRASHES)),
    (aborted_while_the_outcome_is_unknown, Shape(kinds=CRASHES)),
    (unknown_outcome_taken_for_decided, Shape(kinds=CRASHES)),
    (not_owner_and_yet_clearing, Shape(kinds=(Fault.SUSPEND,))),
    (decision_asked_before_the_state, Shape(kinds=(Fault.SUSPEND,), batches=3)),
    (losers_asked_for_before_the_decision, Shape(kinds=(Fault.HANG,))),
    (refused_commit_taken_for_done, Shape(kinds=(Fault.EXPIRE,))),
    (late_attempts_do_not_look, Shape(kinds=(Fault.HANG,))),
    (aborts_leave_the_epoch, replace(UNASKED, kinds=(Fault.TIMEOUT_LATE,))),
    (aborts_leave_the_epoch, replace(UNASKED, kinds=(Fault.KILLED_LATE,))),
    (ends_not_marked, STOPPED),
    (ends_not_marked, replace(STOPPED, faults=2, kinds=(Fault.END, Fault.HANG), struck="task: Produce")),
    (dying_tasks_not_waited_for, replace(STOPPED, faults=2, kinds=(Fault.END, Fault.KILL), struck="task")),
    (lost_markers_not_looked_for, FORGETS),
    (a_lost_marker_is_always_a_commit, Shape(faults=2, kinds=(Fault.FORGET, Fault.EXPIRE))),
    (sealed_leftovers_not_taken_over, Shape(kinds=CRASHES, keeps=True)),
    (holders_not_recorded, Shape(kinds=CRASHES, keeps=True)),
    (sealed_when_it_is_finished, Shape(kinds=CRASHES, keeps=True)),
    (sealed_whatever_the_answer, Shape(kinds=(Fault.EXPIRE,), keeps=True)),
]


@pytest.mark.parametrize(("break_rule", "shape"), BROKEN, ids=[rule.__name__ for rule, _ in BROKEN])
def test_a_broken_rule_is_seen(
    break_rule: Callable[[pytest.MonkeyPatch], None], shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    with pytest.raises(AssertionError):
        ends = set(explore(shape).ends)
        assert not shape.keeps or ends == {"whole"}, "lost, if loudly, what was sealed"
