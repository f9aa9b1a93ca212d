"""docs/scale.md says what the model makes of the measured costs, and they foretold what was measured."""

import json
from pathlib import Path

import pytest

from benchmarks.simulate import JSON, PAGE, SUBJECTS
from benchmarks.simulation.costs import Costs
from benchmarks.simulation.judged import close
from benchmarks.simulation.tables import all_tables, filled
from benchmarks.simulation.timeline import Setting, foretell

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
