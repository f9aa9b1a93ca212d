"""However Kafka's three memories of a batch stand, its rows are there once, or the query stops with a word
and its way out is walked: three_memories.txt has the word of each cell and what readers get after it."""

from pathlib import Path

import pytest

from tests.histories.three_memories import DRIVERS, MODES, TABLE, drawn, fault, played, rows

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
