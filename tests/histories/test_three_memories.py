"""However Kafka's three memories of a batch stand, its rows are there once, or the query stops with a word
and its way out is walked: three_memories.txt has the word of each cell and what readers get after it."""

import re
from pathlib import Path

import pytest

from tests.histories import judge, ways_out
from tests.histories.shapes import SINKS
from tests.histories.three_memories import (
    DRIVERS,
    MODES,
    TABLE,
    cells,
    drawn,
    fault,
    play,
    played,
    rows,
    set_back,
)

KEPT = TABLE.read_text().splitlines()


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", MODES)
def test_every_cell_ends_as_the_table_says(name: str, driver: str, tmp_path: Path) -> None:
    kept = [row for row in KEPT if row.startswith(f"{name}, {driver} | ")]
    assert rows(tmp_path, name, driver) == kept


def test_no_cell_is_lost_or_doubled_without_a_word() -> None:
    for row in KEPT:
        _, outcome, _ = row.split(" | ")
        said, _, got = outcome.rpartition(": ")
        assert "!" not in row and "doubles" not in got and (got == "exact" or "(" in said), row


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", MODES)
def test_a_token_whose_rows_are_there_is_not_written_again(name: str, driver: str, tmp_path: Path) -> None:
    """Whatever coordinators and groups remember, if the log has lost nothing."""
    mode = MODES[name]._replace(token=True)
    found = {cell: play(tmp_path / cell, mode, driver, cell) for cell in cells(mode) if cell.endswith("3")}
    assert {cell: said for cell, said in found.items() if not said.endswith("exact")} == {}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", ["tv2", "tv1"])
def test_an_operator_writes_the_markers_that_a_user_may_not_write(
    name: str, driver: str, tmp_path: Path
) -> None:
    """Without ClusterAction the error says where, for whom and how: then a start goes on, and no row is
    lost."""
    mode = MODES[name]._replace(marks=False)
    ends = {cell: play(tmp_path / cell, mode, driver, cell) for cell in cells(mode) if cell[-1] in "12"}
    assert {cell: said for cell, said in ends.items() if not said.endswith("exact")} == {}
    assert {"331", "332"} <= {cell for cell, said in ends.items() if "MarkersMissing (operator_marks" in said}


@pytest.mark.parametrize("cell", ["020", "120", "330"])
@pytest.mark.parametrize("driver", DRIVERS)
def test_rows_that_are_gone_are_written_again_by_a_rewind(
    driver: str, cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way that RowsGone names, to its end."""
    way = (r"set the checkpoint back \(eoslog checkpoint rewind\)", ways_out.set_back)
    monkeypatch.setattr(ways_out, "_WAYS", (way, *ways_out._WAYS))
    assert play(tmp_path, MODES["tv2"], driver, cell).endswith("RowsGone (set_back): exact")


@pytest.mark.parametrize("cell", ["000", "003", "103", "121", "203", "303"])
@pytest.mark.parametrize("name", ["tv2", "tv1"])
def test_who_lives_is_not_told_of_a_driver_that_is_not_there(name: str, cell: str, tmp_path: Path) -> None:
    """Brokers were put back, and a start goes on. What it has to decide again costs no stop."""
    world, _ = played(tmp_path, MODES[name], "living", cell)
    fenced = [text for text in world.told if "SinkFenced" in text]
    assert all("brokers were put back" in text and "another driver" not in text for text in fenced)
    assert not world.findings


@pytest.mark.parametrize("transactions", "03")
def test_rows_behind_a_checkpoint_that_was_put_back_with_the_group(transactions: str, tmp_path: Path) -> None:
    """Only the log has more than both. The newest checkpoint decides them again; the word tells its price."""
    world = set_back(tmp_path / "kept", f"{transactions}3", lost=False)
    assert [text.split(": ")[1] for text in world.told] == ["CheckpointOlder"] and not world.findings
    assert dict(world.ways) == {"CheckpointOlder: right_checkpoint": 1}
    world = set_back(tmp_path / "lost", f"{transactions}3", lost=True)
    (told,) = world.told
    assert told.startswith("A: CheckpointOlder: sink x: batch 1") and world.ways == {
        "CheckpointOlder: option": 1
    }
    assert sum(map(int, re.findall(r"out-\d has (\d+) rows of x/", told))) == 4
    rows = judge.seen(world.cluster, SINKS)
    assert sorted(rows.values()) == [1] * (len(rows) - 4) + [2] * 4


@pytest.mark.parametrize("seed", range(4))
def test_beyond_the_table_every_way_out_is_exact_or_tells_its_price(seed: int, tmp_path: Path) -> None:
    """A stop whose way out, followed to the letter, doubles or loses rows that it has not told of is a fault,
    too."""
    faults = list[str]()
    for number, (name, driver, cell) in enumerate(drawn(seed, 75)):
        world, where = played(tmp_path / str(number), MODES[name], driver, cell)
        if said := fault(world, where):
            told = " > ".join(dict.fromkeys(text.split(": ")[1] for text in world.told)) or "nothing"
            faults.append(f"{name}, {driver}, {cell}: {told} ({', '.join(world.ways)}): {said}")
    assert not faults, "\n".join(faults)
