"""What docs/objections.md says of producers and transactional ids, where no other test says it."""

import multiprocessing
from dataclasses import replace

import pytest

from eoslog.connector.commit.prepare import participant_name
from eoslog.connector.commit.task_reports import Batch, Stamp
from eoslog.connector.sink import task_writer
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.commit.model_bench import Bench

STAMP = Stamp("s", ProducerIdentity(1, 0), ProducerIdentity(1, 0), 0, 8, Batch("q", 0))
RUNS, BATCHES, TASKS = 5, 12, 2


@pytest.mark.parametrize("tv", [1, 2])
def test_ids_are_bounded_over_many_batches_and_restarts(tv: int) -> None:
    """Two for each task and one for the sink, in every run; nothing for every batch."""
    bench = Bench(tv)
    for run in range(RUNS):
        first = run * BATCHES
        bench.whole_batch(first, completed=first - 1 or None)
        for batch_id in range(first + 1, first + BATCHES):
            bench.whole_batch(batch_id, run=bench.remembered, completed=batch_id - 1)
        assert len(bench.broker.transactions) == 1 + (run + 1) * 2 * TASKS
    assert len(bench.broker.visible()) == RUNS * BATCHES * TASKS


def test_no_two_attempts_have_a_transaction_in_common() -> None:
    """One process: tasks, attempts of them, and the batch after; again only two batches later."""

    def names(batch_id: int) -> list[str]:
        stamp = replace(STAMP, batch=Batch("q", batch_id))
        return [participant_name(stamp, *task_writer._next_slot(stamp)) for _ in range(4)]

    first, second, third = (names(batch_id) for batch_id in range(3))
    assert len({*first, *second}) == 8
    assert third == first


def test_another_process_has_other_names() -> None:
    """Forked ones too, as Spark's Python workers are."""
    mine = {task_writer._next_slot(STAMP)[0]}
    with multiprocessing.get_context("fork").Pool(2) as pool:
        theirs = set(pool.map(_word, range(8), chunksize=4))
    assert not mine & theirs and 1 <= len(theirs) <= 2


def _word(_: int) -> str:
    return task_writer._next_slot(STAMP)[0]
