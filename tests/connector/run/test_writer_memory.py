"""What a driver remembers from one micro-batch to the next: its own, once, and nobody else's."""

import json
import math
import os
import tempfile
import time
from pathlib import Path

import pytest

from eoslog.connector.commit.task_reports import Batch, Run
from eoslog.connector.run import run_memory
from eoslog.connector.spark.pickled_form import FORM
from eoslog.protocol.producer_identity import ProducerIdentity

RUN = Run(ProducerIdentity(7, 0), ProducerIdentity(7, 3), Batch("query", 4, "digest"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_is_kept_is_taken_once() -> None:
    run_memory.keep(RUN, "cluster", "sink", "query")
    assert run_memory.take("cluster", "sink", "other query") is None
    assert run_memory.take("cluster", "sink", "query") == RUN
    assert run_memory.take("cluster", "sink", "query") is None


def test_names_that_run_together_are_kept_apart() -> None:
    run_memory.keep(RUN, "cluster", "sink-1", "0")
    assert run_memory.take("cluster", "sink-", "10") is None


def test_another_driver_remembers_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run_memory.keep(RUN, "key")
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "another driver's")
    assert run_memory.take("key") is None


def test_a_damaged_memory_is_no_memory(folder: Path) -> None:
    run_memory.keep(RUN, "key")
    (kept,) = folder.glob("*/*.run")
    kept.write_text("{")
    assert run_memory.take("key") is None


def test_a_folder_open_to_others_is_not_used(folder: Path) -> None:
    run_memory.keep(RUN, "key")
    (own,) = folder.iterdir()
    own.chmod(0o777)
    assert run_memory.take("key") is None


def test_files_of_drivers_that_ended_are_looked_for_once_an_hour(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_memory, "_swept", -math.inf)
    run_memory.keep(RUN, "key")
    (own,) = folder.iterdir()
    old, week_ago = own / "old.run", time.time() - 8 * 24 * 3600
    young = own / "of_another_driver.run"
    young.touch()

    def leave() -> None:
        old.touch()
        os.utime(old, (week_ago, week_ago))

    leave()
    run_memory.keep(RUN, "key")
    assert old.exists()
    monkeypatch.setattr(run_memory, "_swept", time.monotonic() - 3601)
    run_memory.keep(RUN, "key")
    assert not old.exists() and young.exists()
    assert run_memory.take("key") == RUN


@pytest.mark.parametrize("form", [None, 1, FORM + 1])
def test_what_another_version_has_kept_is_forgotten(folder: Path, form: int | None) -> None:
    """The sink is acquired anew then, as after the first start."""
    run_memory.keep(RUN, "key")
    (kept,) = folder.glob("*/*.run")
    told = json.loads(kept.read_text())
    kept.write_text(
        json.dumps(told | {"form": form} if form else {k: v for k, v in told.items() if k != "form"})
    )
    assert run_memory.take("key") is None
    run_memory.keep(RUN, "key")
    assert run_memory.take("key") == RUN
