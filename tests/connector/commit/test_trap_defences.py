"""Every trap of docs/exactly-once.md has a case, and the case goes red when the defence is taken out.

Here is the list: trap -> what is broken -> the case that must notice. The cases themselves, with nothing
broken, are in test_traps.py, test_seal_traps.py, test_replay.py, test_late_attempt.py and
test_own_markers.py; what a trap needs of the client or the source is judged in
tests/connector/run/test_trap_defences_outside.py.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.connector.commit import rules_broken as broken
from tests.connector.commit import test_late_attempt as lates
from tests.connector.commit import test_late_rows as late_rows
from tests.connector.commit import test_model_sees as sees
from tests.connector.commit import test_own_markers as owns
from tests.connector.commit import test_replay as replays
from tests.connector.commit import test_seal_traps as sealed
from tests.connector.commit import test_traps as traps
from tests.connector.commit.model_bench import decides

ROOT = Path(__file__).parents[3]
OUTSIDE = {10, 11, 13, 14}
"""Traps of which a defence lies outside of the rules (the others of theirs are here)."""


class Defence(NamedTuple):
    trap: int
    broken: Callable[[pytest.MonkeyPatch], None]
    case: Callable[..., None]
    given: tuple[Any, ...] = (2,)


DEFENCES = [
    Defence(
        1,
        sees.left_overs_cleared_before_the_roll_forward,
        traps.test_trap_1_a_decided_batch_is_rolled_forward_before_anything_is_aborted,
    ),
    Defence(
        1,
        sees.no_roll_forward,
        traps.test_trap_1_a_decided_batch_is_rolled_forward_before_anything_is_aborted,
    ),
    Defence(
        2,
        sees.leftovers_not_cleared,
        traps.test_trap_2_the_batch_after_the_decided_one_is_aborted_not_committed,
    ),
    Defence(2, sees.parity_ignored, traps.test_trap_2_names_of_a_decided_batch_are_not_used_by_the_next),
    Defence(
        3,
        broken.batches_told_by_number_alone,
        traps.test_trap_3_a_new_checkpoint_starts_at_0_again_and_is_not_skipped,
    ),
    Defence(
        4, broken.commit_acquires, traps.test_trap_4_commit_never_acquires_and_a_replaced_driver_cannot_decide
    ),
    Defence(
        4,
        broken.begin_never_goes_on,
        traps.test_trap_4_a_driver_that_slept_through_a_whole_run_stops_at_its_next_begin,
    ),
    Defence(5, broken.decided_batches_decided_again, traps.test_trap_5_commit_may_be_called_again),
    Defence(
        5,
        broken.replays_written_again,
        traps.test_trap_5_a_replayed_batch_passes_its_rows_and_commits_nothing_twice,
    ),
    Defence(
        6, broken.winners_not_verified, traps.test_trap_6_a_participant_that_timed_out_before_the_decision
    ),
    Defence(
        6,
        sees.refused_commit_taken_for_done,
        traps.test_trap_6_a_participant_that_timed_out_after_the_decision,
        (2, "begin"),
    ),
    Defence(
        6,
        broken.no_time_kept_in_hand,
        traps.test_trap_6_a_participant_about_to_time_out_is_not_decided,
        (9_000, False),
    ),
    Defence(
        7,
        broken.complete_commit_is_no_proof,
        traps.test_trap_7_a_repeated_end_under_the_old_epoch_is_no_loss,
        (),
    ),
    Defence(
        8,
        broken.another_producer_id_is_another_driver,
        traps.test_trap_8_producer_ids_rotate_and_nothing_is_taken_for_lost,
    ),
    Defence(9, sees.leftovers_not_cleared, traps.test_trap_9_begin_leaves_nothing_open),
    Defence(9, broken.any_name_with_the_prefix_is_ours, traps.test_trap_9_other_sinks_are_left_alone, ()),
    Defence(11, broken.partitions_not_asked, traps.test_trap_11_lost_markers_are_written_or_said, ()),
    Defence(
        11,
        broken.pending_offsets_are_no_offsets,
        traps.test_trap_11_offsets_that_never_become_stable_stop_the_query_loudly,
        (),
    ),
    Defence(
        12,
        sees.aborted_while_the_outcome_is_unknown,
        traps.test_trap_12_nothing_is_aborted_while_the_outcome_is_unknown,
        (2, True),
    ),
    Defence(12, broken.abort_does_not_ask, traps.test_trap_12_abort_after_a_decided_batch_aborts_nothing),
    Defence(13, broken.part_of_a_decision_is_enough, traps.test_trap_13_a_partly_refused_decision_is_refused),
    Defence(
        15,
        sees.not_owner_and_yet_clearing,
        traps.test_trap_15_participants_of_a_newer_driver_in_the_list_are_left_alone,
    ),
    Defence(
        16,
        sees.decision_asked_before_the_state,
        traps.test_trap_16_another_drivers_commit_in_between_does_not_look_like_ours,
    ),
    Defence(
        17,
        broken.not_sealed,
        sealed.test_trap_17_no_winner_is_lost_to_its_time_out_after_the_decision,
    ),
    Defence(
        17,
        sees.holders_not_recorded,
        sealed.test_trap_17_no_winner_is_lost_to_its_time_out_after_the_decision,
    ),
    Defence(
        18,
        sees.sealed_whatever_the_answer,
        sealed.test_trap_18_the_transaction_that_is_sealed_is_the_one_that_was_prepared,
        (2, False),
    ),
    Defence(
        18,
        sees.sealed_whatever_the_answer,
        sealed.test_trap_18_a_participant_that_timed_out_before_it_was_sealed,
    ),
    Defence(19, sees.sealed_when_it_is_finished, sealed.test_trap_19_what_is_decided_is_not_sealed_again),
    Defence(
        20,
        broken.decisions_compared_with_their_holders,
        sealed.test_trap_20_a_second_commit_knows_its_decision_whoever_holds_it,
    ),
    Defence(
        20,
        broken.decisions_of_others_taken_for_ours,
        sealed.test_trap_20_another_drivers_decision_is_told_apart,
    ),
    Defence(
        21,
        broken.sealed_once_only,
        sealed.test_trap_21_a_commit_that_died_after_sealing_may_be_called_again,
        (2, False),
    ),
    Defence(
        22,
        sees.sealed_leftovers_not_taken_over,
        sealed.test_trap_22_begin_aborts_what_was_sealed_and_not_decided,
        (2, False, decides),
    ),
    Defence(22, sees.sealed_leftovers_not_taken_over, sealed.test_trap_22_so_does_abort, (2, False)),
    Defence(
        22,
        broken.whatever_is_found_is_taken_over,
        sealed.test_trap_22_only_the_transaction_that_was_seen_is_aborted,
    ),
    Defence(
        23,
        broken.no_answer_is_sealed,
        sealed.test_trap_23_a_seal_without_an_answer_refuses_the_batch_and_leaves_nothing_open,
        (2, True),
    ),
    Defence(
        24,
        broken.late_seals_not_expected,
        sealed.test_trap_24_a_seal_that_arrives_late_does_not_stop_the_decision,
        (2, False),
    ),
    Defence(
        24,
        broken.only_the_known_holder_is_looked_for,
        sealed.test_trap_24_a_seal_that_arrives_late_does_not_stop_the_decision,
        (2, True),
    ),
    Defence(
        24,
        broken.who_does_not_answer_is_taken_over,
        sealed.test_trap_24_who_does_not_answer_is_not_taken_over,
    ),
    Defence(
        25,
        broken.no_time_kept_in_hand,
        sealed.test_trap_25_who_is_not_sealed_is_guarded_by_time,
        (9_000, False),
    ),
    Defence(
        26,
        broken.epoch_not_raised,
        traps.test_trap_26_what_comes_late_of_the_last_batch_does_not_get_into_the_next_one,
        (1, "its commit"),
    ),
    Defence(
        26,
        broken.epoch_not_raised,
        traps.test_trap_26_a_late_decision_does_not_take_the_place_of_the_next_one,
        (1,),
    ),
    Defence(
        26,
        broken.epoch_raised_by_anybody,
        traps.test_trap_26_the_epoch_is_raised_only_by_who_still_has_it,
        (),
    ),
    Defence(
        27,
        broken.earlier_queries_forgotten,
        traps.test_trap_27_another_query_used_the_sink_before_a_decided_batch_is_replayed,
        (2,),
    ),
    Defence(
        28,
        broken.what_is_unknown_is_lost,
        replays.test_trap_28_what_is_merely_unknown_is_never_replayed,
        (replays.forget,),
    ),
    Defence(
        29,
        broken.replayed_before_the_rest_is_finished,
        replays.test_trap_29_nothing_is_replayed_while_something_may_still_become_visible,
    ),
    Defence(
        30,
        broken.rows_counted_only,
        replays.test_trap_30_equal_numbers_of_other_rows_are_told_by_their_checksums,
        (),
    ),
    Defence(
        31,
        broken.late_attempts_do_not_look,
        lates.test_trap_31_an_attempt_that_comes_after_the_commit_leaves_nothing_open,
    ),
    Defence(
        31,
        broken.another_ones_transaction_is_as_begun,
        lates.test_trap_31_the_next_batchs_decision_on_its_way_is_not_waited_for,
    ),
    Defence(
        32,
        broken.any_state_of_the_producer_id_is_proof,
        owns.test_trap_32_a_state_that_speaks_of_another_transaction_is_no_proof,
        (2, True),
    ),
    Defence(
        32,
        broken.who_owns_the_sink_does_not_matter,
        owns.test_trap_32_a_state_that_speaks_of_another_transaction_is_no_proof,
        (1, False),
    ),
    Defence(
        32,
        broken.every_marker_is_a_commit,
        owns.test_trap_32_the_marker_of_a_withdrawn_decision_is_an_abort,
        (),
    ),
    Defence(
        32,
        broken.partitions_asked_before_the_coordinator,
        owns.test_trap_32_a_marker_on_its_way_is_not_written_twice,
        (),
    ),
    Defence(
        32,
        broken.acquired_without_a_look,
        owns.test_trap_32_a_fresh_start_looks_before_it_acquires_the_sink,
        (),
    ),
    Defence(
        33,
        sees.ends_not_marked,
        lates.test_trap_33_an_attempt_that_comes_after_the_end_leaves_nothing_open,
        (2, 1),
    ),
    Defence(
        33,
        sees.ends_not_marked,
        lates.test_trap_33_a_commit_that_still_works_cannot_decide_after_the_end,
    ),
    Defence(
        34,
        sees.aborts_leave_the_epoch,
        late_rows.test_trap_34_rows_that_come_after_the_abort_of_their_transaction_are_refused,
        (1,),
    ),
]


def _title(defence: Defence) -> str:
    return f"{defence.trap}-{defence.broken.__name__}-{defence.case.__name__.removeprefix('test_trap_')}"


@pytest.mark.parametrize("defence", DEFENCES, ids=map(_title, DEFENCES))
def test_the_case_goes_red_without_the_defence(
    defence: Defence, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    defence.case(*defence.given)
    defence.broken(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)) as red:
        defence.case(*defence.given)
    assert not isinstance(red.value, (TypeError, AttributeError, NameError)), "the break itself is broken"
    print(f"\ntrap {defence.trap}: {defence.broken.__name__} -> {defence.case.__name__}")


def test_every_trap_of_the_page_is_in_the_list() -> None:
    page = (ROOT / "docs" / "exactly-once.md").read_text()
    section = page.partition("\n## Traps\n")[2].partition("\n## ")[0]
    numbers = {int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)}
    assert numbers == {defence.trap for defence in DEFENCES} | OUTSIDE


def test_a_case_belongs_to_the_trap_it_stands_for() -> None:
    for defence in DEFENCES:
        assert defence.case.__name__.startswith(f"test_trap_{defence.trap}_"), defence
