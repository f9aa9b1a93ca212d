"""What a driver remembers from one micro-batch to the next: its own, once, and nobody else's."""

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from eoslog.connector.commit.faults import BatchRefused
from eoslog.connector.commit.task_reports import Batch, Run
from eoslog.connector.run import run_memory
from eoslog.connector.run.run_memory import Life
from eoslog.connector.spark.pickled_form import FORM
from eoslog.connector.spark.processes import stream_threads, this_process, thread_lives
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.kit.program import until

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


@pytest.mark.parametrize(
    ("remembered", "alive", "options", "life"),
    [
        ((), {7}, "a", Life.GOES_ON),
        ((), {7}, "b", Life.UNCLEAR),
        ((1,), {1}, "a", Life.GOES_ON),
        ((1,), {2}, "a", Life.ENDED),
        ((1,), set(), "a", Life.ENDED),
        ((1, 2), {1, 2, 3}, "a", Life.GOES_ON),
        ((1, 2), {1}, "a", Life.GOES_ON),
        ((1, 2), {1, 3}, "a", Life.UNCLEAR),
        ((1, 2), {3}, "a", Life.ENDED),
    ],
)
def test_threads_tell_whether_a_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, remembered: tuple[int, ...], alive: set[int], options: str, life: Life
) -> None:
    """Each start of a query has a thread of its own; whose it is, is not seen."""
    monkeypatch.setattr(run_memory, "streams_now", lambda: tuple((at, "0") for at in sorted(alive)))
    monkeypatch.setattr(run_memory, "stream_lives", lambda one: one[0] in alive)
    run = replace(RUN, options="a", streams=tuple((at, "0") for at in remembered))
    found, now = run_memory.life_of(run, options)
    assert found is life
    if life is Life.GOES_ON:
        assert {at for at, _ in now.streams} == set(remembered) & alive


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show a thread's name")
def test_spark_s_threads_are_known_by_their_name() -> None:
    """As /proc shows it: cut off after 15 characters."""
    ready, over = threading.Event(), threading.Event()

    def work() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("stream execution thread for")
        ready.set()
        over.wait()

    assert stream_threads(this_process()) == []
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    (found,) = stream_threads(this_process())
    assert thread_lives(this_process(), found)
    assert not thread_lives(this_process(), found._replace(started="another"))
    over.set()
    thread.join()
    until(lambda: stream_threads(this_process()) == [])
    assert not thread_lives(this_process(), found)


def test_what_a_run_has_written_of_a_batch_is_known_to_it_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("a", "b"):
        with run_memory.turn("cluster", "query") as turn:
            assert turn.is_first("run", 7)
            turn.claim("run", 7, place)
    with run_memory.turn("cluster", "query") as turn:
        assert turn.claimed("run", 7) == ["a", "b"]
        assert turn.claimed("run", 8) == turn.claimed("next run", 7) == [] and turn.claimed("", 7) is None
        assert turn.is_first("run", 7) and turn.is_first("next run", 8) and turn.is_first("", 8)
        assert not turn.is_first("run", 8)
        turn.claim("run", 6, "late")
        assert turn.claimed("run", 7) == ["a", "b"], "what a thread has written that has outlived its batch"
        turn.check_newest("run", 7)
        turn.check_newest("next run", 6)
        assert turn.is_late("run", 6) and not turn.is_late("", 6)
        with pytest.raises(BatchRefused, match="is of batch 6, and its query has written batch 7 since"):
            turn.check_newest("run", 6)
    with run_memory.turn("cluster", "another query") as turn:
        assert turn.claimed("run", 7) == []
    with run_memory.turn("cluster", "query") as turn:
        turn.claim("run", 8, "c")
        assert turn.claimed("run", 8) == ["c"] and not turn.is_first("run", 8)
        (kept,) = folder.glob("*/*.claims")
        kept.write_text("{")
        assert turn.claimed("run", 8) == [], "a damaged memory is no memory"
    monkeypatch.setattr(run_memory, "notes_folder", lambda: None)
    with run_memory.turn("cluster", "query") as turn:
        turn.claim("run", 8, "c")
        turn.check_newest("run", 7)
        assert turn.claimed("run", 8) is None and turn.is_first("run", 9)


def test_processes_of_a_driver_have_one_turn_after_another(folder: Path) -> None:
    """Held until the block ends, or the process."""

    def others_turn() -> int:
        (lock,) = folder.glob("*/*.turn")
        tries = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        return subprocess.run([sys.executable, "-c", tries, lock], stderr=subprocess.DEVNULL).returncode

    with run_memory.turn("cluster", "query"):
        assert others_turn() == 1
    assert others_turn() == 0
