"""What sources tell the sinks of their driver: the ends of their batches, while they live."""

import json
import os
import pickle
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from eoslog.connector.checkpoint.source_changes import canonical
from eoslog.connector.run import source_ends
from eoslog.connector.run.source_ends import SourceEnd, asked_ends
from eoslog.connector.spark.processes import ProcessIdentity, this_process

FIRST, SECOND = {"t": {"0": 5}}, {"t": {"0": 9}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_last_end_of_each_source_is_told() -> None:
    one, other = SourceEnd(), SourceEnd()
    for end in (FIRST, SECOND):
        one.note(end)
        other.note(end)
    assert asked_ends() == Counter({canonical(SECOND): 2})
    other.note(FIRST)
    assert asked_ends() == Counter(map(canonical, (FIRST, SECOND)))


def test_a_source_whose_query_has_ended_is_not_told() -> None:
    source = SourceEnd()
    source.note(FIRST)
    source.forget()
    assert asked_ends() == Counter()
    source.forget()
    source.note(FIRST)
    assert asked_ends() == Counter([canonical(FIRST)])


def test_a_folder_that_was_cleaned_up_is_made_again(folder: Path) -> None:
    source = SourceEnd()
    source.note(FIRST)
    (own,) = folder.iterdir()
    shutil.rmtree(own)
    source.note(SECOND)
    assert asked_ends() == Counter([canonical(SECOND)])


def test_a_source_whose_process_has_died_is_not_told(folder: Path) -> None:
    source = SourceEnd()
    source.note(FIRST)
    (path,) = folder.glob("*/*.source")
    kept = json.loads(path.read_text())
    assert kept["process"] == [*this_process()] == [os.getpid(), this_process().started]
    path.write_text(json.dumps(kept | {"process": [os.getpid(), "before"]}))
    assert asked_ends() == Counter()


def test_another_driver_s_sources_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    SourceEnd().note(FIRST)
    monkeypatch.setattr(source_ends, "driver_process", lambda: ProcessIdentity(1, "another"))
    assert asked_ends() == Counter()


def test_a_copy_for_the_tasks_has_told_nothing() -> None:
    source = SourceEnd()
    source.note(FIRST)
    pickle.loads(pickle.dumps(source)).forget()
    assert asked_ends() == Counter([canonical(FIRST)])


def test_without_a_folder_nothing_is_known(folder: Path) -> None:
    SourceEnd().note(FIRST)
    (own,) = folder.iterdir()
    own.chmod(0o777)
    SourceEnd().note(SECOND)
    assert asked_ends() is None
