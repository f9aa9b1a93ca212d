"""The protocol's rules, each broken on purpose, for the judges to notice: a patch a rule.

`test_trap_defences.py` says which of them which trap's case must notice.
"""

from dataclasses import replace
from typing import Any

import pytest

from eoslog.connector.commit import (
    begin,
    decide,
    finish,
    marker_proof,
    prepare,
    replay,
    seal,
    sink_transaction,
)
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.decision import Decision, Stored
from tests.connector.commit import model_bench, model_programs
from tests.connector.commit import test_model_sees as sees


def batches_told_by_number_alone(patch: pytest.MonkeyPatch) -> None:
    sees.skipped_by_number_alone(patch)
    patch.setattr(model_bench, "judge", vars(model_programs)["judge"])


def replays_written_again(patch: pytest.MonkeyPatch) -> None:
    sees.decided_batches_written_again(patch)
    patch.setattr(model_bench, "judge", vars(model_programs)["judge"])


def commit_acquires(patch: pytest.MonkeyPatch) -> None:
    def commit(sink: Any, reports: Any, *more: Any) -> c.Rules[None]:
        identity = yield c.Acquire(sink.coordinator)
        own = [replace(report, stamp=replace(report.stamp, identity=identity)) for report in reports]
        yield from decide.commit(sink, own, *more)

    patch.setattr(model_bench, "commit", commit)


def begin_never_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(begin, "_keep", sees.nothing)


def decided_batches_decided_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "_covers", lambda last, batch: False)


def winners_not_verified(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "_verify", sees.nothing)


def no_time_kept_in_hand(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "SAFETY_MS", 0)


def complete_commit_is_no_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finish, "COMMITTED", frozenset({"PrepareCommit"}))


def another_producer_id_is_another_driver(patch: pytest.MonkeyPatch) -> None:
    left_by = begin.left_by

    def strict(run: Any, state: Any, last: Any) -> bool:
        return state.identity.producer_id == run.identity.producer_id and left_by(run, state, last)

    patch.setattr(begin, "left_by", strict)


def any_name_with_the_prefix_is_ours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finish, "_within", lambda slot, only: True)


def partitions_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(marker_proof, "prove", sees.nothing)


def pending_offsets_are_no_offsets(patch: pytest.MonkeyPatch) -> None:
    def fetch_stored(sink: Any, *more: Any, everywhere: bool = False) -> c.Rules[Stored]:
        answer = yield c.FetchStored(sink.group, everywhere)
        return answer if isinstance(answer, Stored) else Stored(4, {})

    patch.setattr(begin, "fetch_stored", fetch_stored)


def abort_does_not_ask(patch: pytest.MonkeyPatch) -> None:
    sees.abort_without_asking(patch)


def part_of_a_decision_is_enough(patch: pytest.MonkeyPatch) -> None:
    def ask(command: c.Command[Any]) -> c.Rules[Any]:
        answer = yield command
        return None if isinstance(command, c.StageOffsets) else answer

    patch.setattr(decide, "ask", ask)


def not_sealed(patch: pytest.MonkeyPatch) -> None:
    def leave(sink: Any, own: Any, decision: Decision, policy: Any) -> c.Rules[Decision]:
        yield from ()
        return decision

    patch.setattr(decide, "_seal", leave)


def decisions_compared_with_their_holders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decision, "unsealed", property(lambda self: self))


def decisions_of_others_taken_for_ours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decision, "__ne__", lambda self, other: False)


def sealed_once_only(patch: pytest.MonkeyPatch) -> None:
    def strict(made: Decision, answers: Any, policy: Any) -> Any:
        found, wrong = seal.seal(made, answers, policy)
        late = [w for w in found.winners if w.holder and w.holder.epoch != w.participant.identity.epoch + 1]
        return found, [*wrong, *map(str, late)]

    patch.setattr(decide, "seal", strict)


def whatever_is_found_is_taken_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seal, "_holder_of", lambda participant, answer: getattr(answer, "holder", None))


def no_answer_is_sealed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "seal", lambda made, answers, policy: (made, []))


def late_seals_not_expected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finish, "_is_held_elsewhere", lambda winner, answer: False)


def only_the_known_holder_is_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        finish, "_may_be_open", lambda state, winner: finish.is_open(state, winner.participant, winner.holder)
    )


def who_does_not_answer_is_taken_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finish, "_is_held_elsewhere", lambda winner, answer: True)


def epoch_not_raised(patch: pytest.MonkeyPatch) -> None:
    def keep(sink: Any, identity: Any, used: bool) -> c.Rules[Any]:
        yield from ()
        return identity

    patch.setattr(begin, "raise_epoch", keep)


def epoch_raised_by_anybody(patch: pytest.MonkeyPatch) -> None:
    def steal(sink: Any, identity: Any, used: bool) -> c.Rules[Any]:
        return (yield c.Acquire(sink.coordinator))

    patch.setattr(begin, "raise_epoch", steal)


def what_is_unknown_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finish, "is_aborted", lambda state, participant: True)


def replayed_before_the_rest_is_finished(patch: pytest.MonkeyPatch) -> None:
    def at_once(loss: Any, last: Any, batch: Any) -> Any:
        loss.unfinished = False
        return replay.to_replay(loss, last, batch)

    patch.setattr(begin, "to_replay", at_once)


def rows_counted_only(patch: pytest.MonkeyPatch) -> None:
    def count(last: Decision, made: Decision, lost: Any) -> None:
        replay.check_replay(last._replace(checksums=()), made, lost)

    patch.setattr(decide, "check_replay", count)


def earlier_queries_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decision, "earlier_than", lambda self, query_id: ())


def late_attempts_do_not_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prepare, "withdraw_if_late", sees.nothing)


def another_ones_transaction_is_as_begun(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prepare, "_is_as_begun", lambda state, *more: state.state == "Ongoing")


def any_state_of_the_producer_id_is_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        sink_transaction,
        "is_ended",
        lambda state, held, *more: held.producer_id == state.identity.producer_id,
    )


def who_owns_the_sink_does_not_matter(patch: pytest.MonkeyPatch) -> None:
    is_ended = sink_transaction.is_ended

    def lax(state: Any, held: Any, mine: Any, version: int) -> bool:
        return is_ended(state, held, held, version)

    patch.setattr(sink_transaction, "is_ended", lax)


def every_marker_is_a_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sink_transaction, "WriteMarkers", lambda held, commit: c.WriteMarkers(held, True))


def partitions_asked_before_the_coordinator(patch: pytest.MonkeyPatch) -> None:
    def close(sink: Any, state: Any, mine: Any) -> c.Rules[Any]:
        held = yield c.FindOwn(sink.coordinator, state.identity.producer_id)
        states = yield c.Describe((sink.coordinator,))
        if held and states[sink.coordinator].state == "CompleteCommit":
            yield c.WriteMarkers(held, True)
        return sink_transaction._Left()

    patch.setattr(sink_transaction, "_close", close)
    patch.setattr(
        sink_transaction, "_COMPLETE", {"CompleteCommit": True, "CompleteAbort": False, "PrepareCommit": True}
    )


def acquired_without_a_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(begin, "write_lost_markers", sees.nothing)
