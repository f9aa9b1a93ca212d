"""Trap 34: rows that reach a partition's leader when their transaction has been aborted."""

import pytest

from eoslog.connector.commit.prepare import participant_name, stamp_of
from eoslog.connector.commit.task_reports import Report
from tests.connector.commit.model_bench import Bench


def _written_by_others(bench: Bench, batch_id: int) -> list[Report]:
    begun = bench.begin(batch_id, run=getattr(bench, "remembered", None))
    return [bench.prepare(begun, 0, [f"batch {batch_id}"], worker="another")]


@pytest.mark.parametrize("tv", [1, 2])
def test_trap_34_rows_that_come_after_the_abort_of_their_transaction_are_refused(tv: int) -> None:
    """A leader that does not ask the coordinator knows no more than the epoch of the last marker. The process
    lives on, and uses the name again two batches later."""
    bench = Bench(tv, verifies=False)
    broker, begun = bench.broker, bench.begin(0)
    name = participant_name(stamp_of(begun), "w", 0)
    identity = broker.init(name)
    broker.add_partitions(name, identity)
    assert broker.produce(name, identity, 0, ["in time"]) is None
    bench.give_up(name, identity)
    assert broker.produce(name, identity, 1, ["late"]) is not None and not broker.stray()
    bench.commit([bench.prepare(begun, 0, ["batch 0"], worker="another")], 0)
    bench.commit(_written_by_others(bench, 1), 1)
    third = bench.begin(2, run=bench.remembered, completed=1)
    assert participant_name(stamp_of(third), "w", 0) == name
    bench.commit([bench.prepare(third, 0, ["batch 2"], worker="w")], 2)
    assert broker.visible() == ["batch 0", "batch 1", "batch 2"]
