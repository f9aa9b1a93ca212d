"""The model of docs/scale.md: its rules, its counts on the wire, and what the page says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulate import JSON, PAGE, SUBJECTS
from benchmarks.simulation.calibrate import rules_alone
from benchmarks.simulation.model import (
    BEGIN,
    COMMIT,
    SINK,
    TASKS,
    Cost,
    Costs,
    MicroBatch,
    Setting,
    _ends,
    by_node,
    decision_chunks,
    foretell,
    offset_records,
    participants,
    spread,
)
from benchmarks.simulation.query import CLIENT, Counted, Query, counted
from benchmarks.simulation.tables import all_tables, close, filled
from eoslog.connector.commit.seal import TwoPhase
from eoslog.testing import EmbeddedBroker

# -- rules ---------------------------------------------------------------------------------------
# The model's rules, each with costs that let a person reckon the answer.

FREE = Costs(**{field.name: Cost(0.0) for field in fields(Costs)})
ONE = Setting(dict.fromkeys(range(50), 1), at_a_time=4, partitions=1)


def test_a_cost_is_that_of_windows_of_a_hundred() -> None:
    cost = Cost(5, 1)
    assert [cost.of(n) for n in (0, 1, 2, 100, 101, 250)] == [0, 5, 6, 104, 109, 2 * 104 + 54]


def test_ends_go_to_all_nodes_at_once_a_hundred_at_a_time_to_each() -> None:
    ends = replace(FREE, end=Cost(10, 1))
    assert foretell(100, ONE, ends).commit == pytest.approx(10 + 99)
    assert foretell(200, ONE, ends).commit == pytest.approx(2 * (10 + 99))
    three = Setting(spread(50, 3), 4, 1)
    assert foretell(200, three, ends).commit == pytest.approx(10 + 199)


def test_nodes_end_their_transactions_side_by_side() -> None:
    """Of 30 tasks on three nodes the last markers of all nodes come at nearly the same time."""
    marker = replace(FREE, end=Cost(10, 1))
    _, written = _ends(0.0, marker, {1: range(10), 2: range(10, 20), 3: range(20, 30)})
    assert [written[last] for last in (9, 19, 29)] == [10 + 27, 10 + 28, 10 + 29]


def test_readers_see_a_part_from_the_first_transaction_of_a_partition_to_the_last_marker() -> None:
    ends = replace(FREE, end=Cost(10, 1), marker=Cost(2, 0))
    assert foretell(100, ONE, ends).in_part == pytest.approx(99)
    assert foretell(1, ONE, ends).in_part == 0
    first = next(iter(by_node([who.name for who in participants(SINK, 90, 4)], spread(50, 3)).values()))
    assert first[0] == 0, "the first task's node is the first to be asked: else its rows come later"


def test_markers_that_queue_up_are_waited_for_with_pauses_that_double() -> None:
    """They are written at 2, 52, 102; looked for at 0, 1, 3, 7, 15, 31, 63 and 127."""
    slow = replace(FREE, marker=Cost(2, 50))
    told = foretell(3, ONE, slow)
    assert (told.commit, told.in_part) == (127, 100)


def test_a_node_that_ends_all_together_shows_all_at_once_and_syncs_each_partition() -> None:
    together = replace(ONE, together=True)
    costs = replace(FREE, end=Cost(10, 1), sync=Cost(2))
    told = foretell(1, together, costs)
    assert (told.commit, told.in_part) == (10, 0)
    assert foretell(2, together, costs).commit == pytest.approx(11 + 2)


def test_tasks_are_as_fast_as_workers_or_the_shared_machine() -> None:
    assert foretell(10, ONE, replace(FREE, task=Cost(6, 1))).tasks == 18
    assert foretell(10, ONE, replace(FREE, task=Cost(6, 3))).tasks == 6 + 27


def test_the_questions_of_begin_wait_for_the_list_of_transactions() -> None:
    steps = replace(FREE, look=Cost(1), stored=Cost(2), listing=Cost(5), begin=Cost(10))
    assert foretell(1, ONE, steps).begin == 1 + 2 + 5 + 10


def test_each_further_chunk_of_the_decision_is_read() -> None:
    chunks = decision_chunks(SINK, participants(SINK, 1000, 4), "t", 1)
    assert chunks > 3
    assert foretell(1000, ONE, replace(FREE, stored=Cost(0, 1))).begin == chunks - 1


def test_workers_names_are_taken_in_turns_and_differ_by_parity() -> None:
    even, odd = (participants(SINK, 10, 4, parity) for parity in (0, 1))
    assert len({who.name for who in (*even, *odd)}) == 20
    slots = [SINK.slot_of(who.name) for who in even]
    assert [slot.number for slot in slots if slot is not None] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_the_rules_run_to_their_end_on_a_cluster_that_answers_at_once() -> None:
    for sealed in (True, False):
        begin, commit = rules_alone(4, sealed=sealed)
        assert begin.alone > 0 and commit.alone > 0 and commit.each > 0


def test_what_counts_as_foretold() -> None:
    assert close(75, 100) and close(125, 100) and not close(74, 100) and not close(126, 100)
    assert close(2, 5) and not close(1, 5)


# -- counts --------------------------------------------------------------------------------------
# The counts that docs/scale.md is made of, against what clients send and a broker writes.

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


# -- the page ------------------------------------------------------------------------------------
# docs/scale.md says what the model makes of the measured costs, and they foretold what was measured.

FOUND = json.loads(Path(JSON).read_text())


def test_the_page_has_the_tables_that_the_model_makes() -> None:
    page = PAGE.read_text()
    assert page == filled(page, FOUND)


def test_all_three_clusters_were_measured_and_foretold() -> None:
    assert list(FOUND) == list(SUBJECTS)
    for figures in FOUND.values():
        assert list(figures["measured"]) == list(figures["foretold"]) == ["10", "100", "1000"]


def test_larger_clusters_are_reckoned_only_if_all_was_foretold() -> None:
    figures = FOUND["one Kafka node"]
    right = {**figures, "foretold": figures["measured"], "written": figures["to_write"]}
    assert "| 30 | 10,000 |" in all_tables({"one Kafka node": right})["clusters"]
    late = {**right, "measured": {"10": {**right["measured"]["10"], "commit": 1_000.0}}}
    said = all_tables({"one Kafka node": late})["clusters"]
    assert "| 30 |" not in said and "10 tasks: commit took 1000.0 ms" in said
    counted = {**right, "written": [0, 0, 0]}
    assert "tasks wrote [0, 0, 0]" in all_tables({"one Kafka node": counted})["clusters"]


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_costs_foretell_what_the_page_says(name: str) -> None:
    figures = FOUND[name]
    setting = Setting(dict(enumerate(figures["leaders"])), 4, 4, figures["together"])
    costs = Costs.from_json(figures["costs"])
    for tasks, said in figures["foretold"].items():
        told = foretell(int(tasks), setting, costs)
        for figure, value in said.items():
            assert close(getattr(told, figure), value), (tasks, figure)
