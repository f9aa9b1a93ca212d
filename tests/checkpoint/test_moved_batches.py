"""No edit goes back to a batch whose ends are of another cluster."""

import json
from pathlib import Path

import pytest

from eoslog.checkpoint.backups import check_not_moved
from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.offsets.offsets import to_json


def _planned(folder: Path, *clusters: str | None) -> Checkpoint:
    """A batch for each: the cluster that its ends name, None: none, as other connectors write them."""
    (folder / "offsets").mkdir()
    for batch, cluster in enumerate(clusters):
        end = json.dumps(to_json({("t", 0): 10 * batch}, cluster=cluster))
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{end}")
    return Checkpoint.at(str(folder))


def test_a_batch_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """The option cluster.moved.to leaves no backup that would tell."""
    moved = _planned(tmp_path, "old", "old", "new", "new")
    for batch in (0, 1):
        with pytest.raises(NotEditable, match=r"of another cluster \(old\).*--to"):
            check_not_moved(moved, batch)
    check_not_moved(moved, 2)


@pytest.mark.parametrize("clusters", [("one", "one"), (None, "one"), ("one", None), (None, None)])
def test_a_cluster_that_is_not_known_is_the_same(clusters: tuple[str | None, ...], tmp_path: Path) -> None:
    check_not_moved(_planned(tmp_path, *clusters), 0)


def test_a_batch_that_is_not_kept_is_refused_elsewhere(tmp_path: Path) -> None:
    check_not_moved(_planned(tmp_path, "one"), 7)
