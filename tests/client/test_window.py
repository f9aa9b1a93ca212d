"""What a producer remembers of its batches, without a broker: sequences, order, and what answers mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.client.records.send_window import BatchVerdict, Outgoing, Unanswered, pack
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.sequence import MAX_SEQUENCE

WHERE = ("t", 0)
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def outgoing(window: Unanswered, partition: int = 0) -> Outgoing:
    where = ("t", partition)
    return Outgoing(where, [], 100, 1, window.enter(where), 0.0)


def begun(window: Unanswered) -> None:
    """The partition knows the producer: more than one batch may be on its way."""
    window.judge(outgoing(window), ErrorCode.NONE)


def test_sequences_go_from_the_highest_back_to_0() -> None:
    """After some two thousand million records of one partition; a higher number has no place in a batch."""
    window = Unanswered()
    assert window.sequence(WHERE, MAX_SEQUENCE - 1) == 0
    assert window.sequence(WHERE, 5) == MAX_SEQUENCE - 1
    assert window.sequence(WHERE, 1) == 3
    assert window.sequence(("t", 1), 7) == 0, "each partition counts for itself"


def test_an_answer_to_a_later_batch_leaves_the_earlier_one_to_be_awaited() -> None:
    """Its connection may be another one, or its answer was lost."""
    window = Unanswered()
    begun(window)
    first, second = outgoing(window), outgoing(window)
    assert window.judge(second, ErrorCode.NONE) is BatchVerdict.DONE
    assert len(window) == 1 and window.oldest(first)
    assert window.judge(first, OUT_OF_ORDER) is BatchVerdict.FAILED
    assert window.judge(first, ErrorCode.NONE) is BatchVerdict.DONE and not len(window)


def test_out_of_order_behind_one_that_was_not_taken_is_sent_again() -> None:
    """Its leader refused the first, and with it all that was under way behind it."""
    window = Unanswered()
    begun(window)
    first, second = outgoing(window), outgoing(window)
    assert window.judge(first, ErrorCode.NOT_LEADER_OR_FOLLOWER) is BatchVerdict.AGAIN
    assert window.judge(second, OUT_OF_ORDER) is BatchVerdict.AGAIN
    assert window.judge(first, OUT_OF_ORDER) is BatchVerdict.FAILED, "nothing is before it: the log has a gap"


def test_written_long_ago_is_written() -> None:
    window = Unanswered()
    assert window.judge(outgoing(window), ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is BatchVerdict.DONE


def test_only_the_first_batch_of_a_partition_leaves_alone() -> None:
    window = Unanswered()
    first, second, elsewhere = outgoing(window), outgoing(window), outgoing(window, 1)
    assert window.may_leave(first) and not window.may_leave(second) and window.may_leave(elsewhere)
    window.judge(first, ErrorCode.NONE)
    assert window.may_leave(second) and window.may_leave(outgoing(window))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 120)), max_size=30))
def test_requests_hold_one_batch_a_partition_and_no_more_than_fits(made: list[tuple[int, int]]) -> None:
    batches = [Outgoing(("t", p), [], size, 1, number, 0.0) for number, (p, size) in enumerate(made)]
    requests = pack(batches, 100)
    assert [batch for request in requests for batch in request] == batches
    for request in requests:
        assert len({batch.where for batch in request}) == len(request)
        assert sum(batch.size for batch in request) <= 100 or len(request) == 1


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_what_will_never_be_taken_fails(code: int) -> None:
    window = Unanswered()
    assert window.judge(outgoing(window), code) is BatchVerdict.FAILED
