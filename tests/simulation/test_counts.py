"""The counts that docs/scale.md is made of, against what clients send and a broker writes."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulation.counted import Counted, counted
from benchmarks.simulation.micro_batch import BEGIN, COMMIT, TASKS, MicroBatch, offset_records
from benchmarks.simulation.query import CLIENT, Query
from eoslog.connector.commit.seal import TwoPhase
from eoslog.testing import EmbeddedBroker

APIS = (
    *("Metadata", "ListTransactions", "DescribeTransactions", "OffsetFetch", "InitProducerId", "Produce"),
    *("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(faults=True, config={"offsets.topic.num.partitions": "50"}) as broker:
        yield broker


def third_batch(broker: EmbeddedBroker, tasks: int, written: int, two_phase: TwoPhase) -> Counted:
    """What the third micro-batch of a query asks and writes. The broker counts: it delays by 0 s, and says
    how often."""
    broker.faults.disarm()
    counts = {api: broker.faults.delay_request(0.0, api, times=0, client_id=CLIENT) for api in APIS}
    with Query(broker.bootstrap, f"counted-{tasks}-{written}-{two_phase.value}", written, two_phase) as query:
        for _ in range(2):
            query.micro_batch(tasks)
        return counted(query, tasks, lambda: {api: fault.happened for api, fault in counts.items()})


@pytest.mark.parametrize("two_phase", [TwoPhase.AUTO, TwoPhase.NEVER])
@pytest.mark.parametrize(("tasks", "written"), [(1, 1), (7, 1), (7, 3), (120, 1)])
def test_requests_and_writes_of_a_batch_on_the_bundled_broker(
    broker: EmbeddedBroker, tasks: int, written: int, two_phase: TwoPhase
) -> None:
    found = third_batch(broker, tasks, written, two_phase)
    foretold = MicroBatch(tasks, written=written, sealed=two_phase is TwoPhase.AUTO, together=True)
    assert found.requests == foretold.requests()
    assert found.state_records == foretold.state_records
    assert found.markers == foretold.markers
    assert found.offset_records == offset_records(found.chunks)


def test_connections_of_a_driver_and_a_worker_to_a_node() -> None:
    with EmbeddedBroker() as broker, Query(broker.bootstrap, "connected") as query:
        for _ in range(3):
            query.micro_batch(5)
        lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
        theirs = f":{broker.port:04X}"
        connected = [line for line in lines if line[2].endswith(theirs) and line[3] == "01"]
        assert len(connected) == MicroBatch(5).connections(drivers=1)


@pytest.mark.parametrize("nodes", [1, 3])
def test_what_transaction_version_1_adds(nodes: int) -> None:
    """AddPartitionsToTxn of each task, AddOffsetsToTxn of the driver, InitProducerId in begin."""
    new = MicroBatch(10, nodes=nodes, coordinators=nodes, asked=nodes)
    old = MicroBatch(10, nodes=nodes, coordinators=nodes, asked=nodes, transaction_version=1)
    more: dict[str, Counter[str]] = {
        phase: Counter(old.requests()[phase]) - Counter(new.requests()[phase])
        for phase in (BEGIN, TASKS, COMMIT)
    }
    expected: dict[str, Any] = {
        BEGIN: {"InitProducerId": 1},
        TASKS: {"AddPartitionsToTxn": 10},
        COMMIT: {"AddOffsetsToTxn": 1},
    }
    assert more == expected
    assert old.state_records == new.state_records + 1
