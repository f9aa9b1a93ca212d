"""What sources tell the sinks of their driver: the ends of their batches, while they live."""

import json
import os
import pickle
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from eoslog.connector.checkpoint.source_changes import canonical
from eoslog.connector.run import source_ends
from eoslog.connector.run.source_ends import SourceEnd, asked_ends, planned_ends
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


def test_an_end_is_planned_here_if_no_source_was_asked_for_it_first() -> None:
    one, other = SourceEnd(), SourceEnd()
    one.note(FIRST)  # a batch of an earlier run
    assert planned_ends() == set()
    one.note(SECOND, FIRST, planned=True)
    one.note(SECOND, FIRST)  # Spark asks for what was planned
    assert planned_ends() == {canonical(SECOND)}
    other.note(SECOND, FIRST)  # of a copy of the query's checkpoint
    assert planned_ends() == set()
    other.forget()
    assert planned_ends() == {canonical(SECOND)}
    one.forget()
    one.note(SECOND)
    assert planned_ends() == set()


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


def test_a_shorter_end_after_a_longer_one_is_read_alone() -> None:
    source = SourceEnd()
    source.note({"a-long-name": {"0": 123456789}})
    source.note(FIRST)
    assert asked_ends() == Counter([canonical(FIRST)])


def test_a_line_is_read_again_while_it_is_being_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SourceEnd()
    source.note(FIRST)
    (path,) = folder.glob("*/*.source")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"5", b"7"))
    monkeypatch.setattr(time, "sleep", lambda _: path.write_bytes(whole))
    assert asked_ends() == Counter([canonical(FIRST)])


def test_a_line_that_never_becomes_whole_is_warned_of(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = SourceEnd()
    source.note(FIRST)
    (path,) = folder.glob("*/*.source")
    path.write_bytes(path.read_bytes()[:-4])
    assert asked_ends() == Counter()
    assert f"{path} cannot be read" in caplog.text


def test_a_source_that_has_noted_nothing_yet_is_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = SourceEnd()
    source.note(FIRST)
    (path,) = folder.glob("*/*.source")
    path.write_bytes(b"")
    assert asked_ends() == Counter()
    assert not caplog.records


def test_a_full_disk_is_warned_of_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = SourceEnd()
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", lambda *_: 3)
        source.note(FIRST)
    assert "the disk is full" in caplog.text
    source.note(FIRST)
    assert asked_ends() == Counter([canonical(FIRST)])


def open_files(folder: Path) -> int:
    """How many files of the folder this process has open."""
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.realpath(link).startswith(str(folder)) for link in links)


def test_a_source_keeps_one_file_open(folder: Path) -> None:
    source = SourceEnd()
    for at in range(50):
        source.note({"t": {"0": at}})
    assert open_files(folder) == 1
    source.forget()
    assert open_files(folder) == 0


def test_a_source_that_is_dropped_leaves_no_file_open(folder: Path) -> None:
    for _ in range(5):
        SourceEnd().note(FIRST)
    assert open_files(folder) == 0


def test_a_source_whose_process_has_died_is_not_told(folder: Path) -> None:
    source = SourceEnd()
    source.note(FIRST)
    (path,) = folder.glob("*/*.source")
    kept = json.loads(path.read_text().partition(" ")[2])
    assert kept["process"] == [*this_process()] == [os.getpid(), this_process().started]
    path.write_bytes(source_ends._line(json.dumps(kept | {"process": [os.getpid(), "before"]})))
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
