"""examples/exactly_once.ipynb from top to bottom: make test-examples."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.examples.running import environment
from tests.kit.program import ROOT

pytestmark = pytest.mark.long

CELL_S = 600


@pytest.mark.timeout(CELL_S)
def test_it_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setitem(os.environ, name, value)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.ui.enabled=false pyspark-shell")
    read: Callable[..., Any] = nbformat.read
    notebook = read(ROOT / "examples" / "exactly_once.ipynb", as_version=4)
    NotebookClient(notebook, timeout=CELL_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]
    printed = "".join(one.text for one in outputs if one.output_type == "stream" and one.name == "stdout")
    print(printed)
    assert "exactly_once: 20000 rows, 0 lost, 0 doubled" in printed
    doubled = re.search(r"at_least_once: \d+ rows, 0 lost, (\d+) doubled", printed)
    assert doubled and int(doubled[1]) > 0, "the last batch did not run again"
    assert "right: 20,000 records" in printed
    assert sum("image/png" in one.get("data", {}) for one in outputs) == 2
