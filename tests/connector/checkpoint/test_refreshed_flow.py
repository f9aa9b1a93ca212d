"""A new checkpoint beside a used one of the same flow of a pipeline: rows would be written again."""

from pathlib import Path

import pytest

from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.refreshed_flow import check_not_refreshed, former_checkpoints
from eoslog.connector.commit.faults import StartsElsewhere


@pytest.mark.parametrize(
    ("location", "formers"),
    [
        ("/s/_checkpoints/t/f/2", ["/s/_checkpoints/t/f/1", "/s/_checkpoints/t/f/0"]),
        ("s3://b/_checkpoints/c/d/t/f/1/", ["s3://b/_checkpoints/c/d/t/f/0"]),
        ("/s/_checkpoints/t/f/0", []),
        ("/s/_checkpoints/1", []),  # no flow's
        ("/checkpoints/t/f/1", []),  # two queries may have numbers
        ("/s/_checkpoints/t/f/new", []),
    ],
)
def test_a_flows_checkpoints_have_numbers(location: str, formers: list[str]) -> None:
    assert former_checkpoints(location) == formers


def _planned(flow: Path, number: int, batches: int) -> Checkpoint:
    offsets = flow / str(number) / "offsets"
    offsets.mkdir(parents=True)
    for batch in range(batches):
        (offsets / str(batch)).write_text("v1\n{}\n-")
    return Checkpoint.at(str(flow / str(number)))


@pytest.mark.parametrize("used", [(1,), (1, 0), (1, 1)])
def test_a_checkpoint_after_a_used_one_is_refused(used: tuple[int, ...], tmp_path: Path) -> None:
    """Also if a refresh between has planned nothing."""
    flow = tmp_path / "_checkpoints" / "t" / "f"
    for number, batches in enumerate(used):
        _planned(flow, number, batches)
    new = _planned(flow, len(used), 1)
    with pytest.raises(StartsElsewhere, match=r"Nothing was written.*start\.accepted"):
        check_not_refreshed(new, {f"new-checkpoint:{len(used) - 1}"})
    assert "continuing" in str(check_not_refreshed(new, {f"new-checkpoint:{len(used)}"}))


@pytest.mark.parametrize("before", [(), (0,)])
def test_the_first_used_one_is_taken(before: tuple[int, ...], tmp_path: Path) -> None:
    flow = tmp_path / "_checkpoints" / "t" / "f"
    for number, batches in enumerate(before):
        _planned(flow, number, batches)
    assert check_not_refreshed(_planned(flow, len(before), 1), ()) is None
