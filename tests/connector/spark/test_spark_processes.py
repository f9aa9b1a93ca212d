"""Spark's Python processes: who started which, what they inherit, and their sockets."""

from __future__ import annotations

import ast
import gc
import inspect
import json
import os
import pickle
import pickletools
import socket
import statistics
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.offsets import plan
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.sink import begin_on_driver, stream_writer, task_writer
from eoslog.connector.sink.begin_on_driver import BeginsWhenPickled
from eoslog.connector.sink.task_message import Attempt, TaskMessage, check_forms
from eoslog.connector.source import read_range
from eoslog.connector.source.reader import BatchReader, StreamReader
from eoslog.connector.spark import brought, calls, gc_freeze, sockets
from eoslog.connector.spark.libraries import EnvironmentUnfit
from eoslog.connector.spark.pickled_form import FORM
from eoslog.connector.spark.sockets import acknowledge, acknowledging

# -- processes -------------------------------------------------------------------------------------
# Spark's processes: what travels between them, what can be loaded, what they keep.


# -- two versions of eoslog ----------------------------------------------------------------------
# What travels between Spark's processes has a version: two versions of eoslog in one application stop,
# loudly.


class Writer(begin_on_driver.BeginsWhenPickled):
    """One that needs no broker."""

    def _begin(self) -> Begun | None:
        return None


def sent(monkeypatch: pytest.MonkeyPatch, form: int) -> bytes:
    """A writer as a driver of this form pickles it."""
    with monkeypatch.context() as older:
        older.setattr(begin_on_driver, "FORM", form)
        options: Any = None
        return pickle.dumps(Writer(options))


def test_a_writer_of_another_version_is_refused_in_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(pickle.loads(sent(monkeypatch, FORM)), Writer)
    for form in (FORM - 1, FORM + 1):
        with pytest.raises(
            EnvironmentUnfit, match=f"form {FORM}, and one of form {form} came.*Install the same"
        ):
            pickle.loads(sent(monkeypatch, form))


def test_a_writer_of_a_version_without_forms_is_refused() -> None:
    with pytest.raises(EnvironmentUnfit, match="one of form None came"):
        Writer.__new__(Writer).__setstate__({"_options": None, "_begun": None, "_pickled": True})


def test_a_report_of_another_version_is_refused_on_the_driver() -> None:
    older = TaskMessage.__new__(TaskMessage)
    vars(older)["report"] = None
    for message in (TaskMessage(FORM + 1, None), older):
        with pytest.raises(EnvironmentUnfit, match="different versions of eoslog"):
            check_forms([TaskMessage(FORM, None), message])
    check_forms([TaskMessage(FORM, None), None])


# -- an eoslog that came in a jar ----------------------------------------------------------------
# What Spark pickles of an eoslog that came in a jar can be loaded where eoslog is not yet importable.

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}


class BroughtWriter(BeginsWhenPickled):
    """One that needs no broker."""

    def _begin(self) -> Begun | None:
        return None


def as_sent() -> dict[str, Any]:
    """One object of each kind that Spark sends to another process."""
    nothing: Any = None
    return {
        "source": EoslogDataSource(OPTIONS),
        "batch reader": BatchReader(source_options(OPTIONS, stream=False)),
        "stream reader": StreamReader(source_options(OPTIONS, stream=True)),
        "writer": BroughtWriter(nothing),
    }


@pytest.mark.parametrize("kind", as_sent())
def test_the_jar_is_on_the_path_before_anything_is_imported(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jar = tmp_path / "e.jar"
    monkeypatch.setattr(brought, "home_archive", lambda: jar)
    monkeypatch.setattr(sys, "path", list(sys.path))
    value = as_sent()[kind]
    pickled = pickle.dumps(value)
    steps = [(op.name, str(arg)) for op, arg, _ in pickletools.genops(pickled)]
    named = next(at for at, (_, arg) in enumerate(steps) if arg.startswith(("eoslog", "tests")))
    path = next(at for at, (_, arg) in enumerate(steps) if repr(str(jar)) in arg)
    assert path < named and "REDUCE" in {op for op, _ in steps[path:named]}
    loaded = pickle.loads(pickled)
    assert type(loaded) is type(value) and vars(loaded).keys() == vars(value).keys()
    assert str(jar) in sys.path


def test_on_an_executor_the_jar_is_found_where_spark_has_put_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Below the folder where a task works, in one of the session's; the driver's path is not there."""
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "e.jar").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(brought, "home_archive", lambda: Path("/of the driver/e.jar"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    pickle.loads(pickle.dumps(as_sent()["source"]))
    assert str(tmp_path / "session" / "e.jar") in sys.path


@pytest.mark.parametrize("kind", as_sent())
def test_installed_by_pip_a_pickle_names_no_path(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value, before = as_sent()[kind], list(sys.path)
    pickled = pickle.dumps(value)
    assert b"worker_util" not in pickled
    assert type(pickle.loads(pickled)) is type(value)
    assert sys.path == before


# -- what they keep ------------------------------------------------------------------------------
# What a process of Spark's keeps for good is set aside when it has imported much, not at every call, and
# nowhere else; what is made later is collected.


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gc_freeze, "_seen", (-1, 0))
    monkeypatch.setattr(gc_freeze, "is_sparks", lambda: True)
    gc.unfreeze()
    yield
    gc.unfreeze()


class Ring:
    """An object that only the cycle collector can free."""

    def __init__(self) -> None:
        self.itself = self


def is_collected_after_settling() -> bool:
    ring = Ring()
    gone = weakref.ref(ring)
    gc_freeze.freeze_imports()
    del ring
    gc.collect()
    return gone() is None


def import_modules(monkeypatch: pytest.MonkeyPatch, word: str, count: int) -> None:
    for number in range(count):
        name = f"{word}_{number}"
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


@pytest.mark.usefixtures("fresh")
def test_what_is_there_is_set_aside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [is_collected_after_settling() for _ in range(3)] == [False, True, True]
    assert gc.get_freeze_count() > 0
    import_modules(monkeypatch, "few", 19)
    assert is_collected_after_settling()
    import_modules(monkeypatch, "more", 1)
    assert [is_collected_after_settling() for _ in range(3)] == [False, True, True]


@pytest.mark.usefixtures("fresh")
def test_a_forked_process_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        gc_freeze.freeze_imports()
    monkeypatch.setattr(os, "getpid", lambda: -2)
    assert not is_collected_after_settling()


@pytest.mark.usefixtures("fresh")
def test_rows_of_a_task_are_collected_as_ever() -> None:
    gc_freeze.freeze_imports()
    made = Ring()
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None


@pytest.mark.usefixtures("fresh")
def test_nothing_grows_batch_after_batch() -> None:
    """Each batch leaves garbage behind, some of it before we are called."""
    left, frozen = [], []
    for _ in range(50):
        ring = Ring()
        left.append(weakref.ref(ring))
        del ring
        gc_freeze.freeze_imports()
        frozen.append(gc.get_freeze_count())
        gc.collect()
    # less, where somebody lets go of what was set aside
    assert frozen == sorted(frozen, reverse=True), "once, and then no more"
    assert [one() is None for one in left[1:]] == [True] * 49


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("started_as", "settles"),
    [
        ("pyspark.daemon", True),
        ("pyspark.worker", True),
        ("pyspark.sql.worker.write_into_data_source", True),
        ("pyspark.sql.streaming.python_streaming_source_runner", True),
        ("ipykernel_launcher", False),
        ("pytest.__main__", False),
        ("pyspark_jobs.nightly", False),
        (None, False),  # python job.py, spark-submit job.py, an interactive shell
    ],
)
def test_only_processes_that_spark_starts_for_itself(
    monkeypatch: pytest.MonkeyPatch, started_as: str | None, settles: bool
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(gc_freeze, "_seen", (-1, 0))
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(started_as, None) if started_as else None
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert is_collected_after_settling() is not settles


@pytest.mark.usefixtures("fresh")
def test_a_program_of_the_user_s_keeps_its_collector() -> None:
    """In a process of its own, as it is; and in a fork of it."""
    program = """
import gc, json, os
from eoslog.connector.spark import gc_freeze
gc_freeze.freeze_imports()
read, write = os.pipe()
if os.fork() == 0:
    gc_freeze.freeze_imports()
    os.write(write, b"%d" % gc.get_freeze_count())
    os._exit(0)
print(json.dumps([gc.get_freeze_count(), int(os.read(read, 20))]))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == [0, 0]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    "calls_in",
    [
        read_range.read_range,
        task_writer.write_rows,
        stream_writer.StreamWriter.commit,
        begin_on_driver.BeginsWhenPickled.__getstate__,
    ],
    ids=lambda function: function.__qualname__,
)
def test_where_spark_calls_in_imports_are_frozen_first(calls_in: Callable[..., object]) -> None:
    """Before anything of the task's own is made: rows, connections, errors."""
    (function,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(calls_in))).body
    assert isinstance(function, ast.FunctionDef)
    body = function.body[1:] if ast.get_docstring(function) else function.body
    first = body[0].body[0] if isinstance(body[0], ast.If) else body[0]
    assert ast.unparse(first) == "called()"


# -- sockets ---------------------------------------------------------------------------------------
# Delayed acknowledgements: a sender like Spark's waits 40 ms for them, and not for ours.


STALL_SECONDS = 0.035
"""Linux delays an acknowledgement by 40 ms."""
ROUNDS = 12


class Pair:
    """A connection as between a JVM and its Python process."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.jvm = socket.create_connection(server.getsockname())
            self.ours, _ = server.accept()
        for _ in range(20):  # no longer new: acknowledgements ride on answers
            self.jvm.sendall(b"ask")
            self.ours.recv(3)
            self.ours.sendall(b"answer")
            self.jvm.recv(6)

    def pieces(self) -> Iterator[bytes]:
        """What comes after a first small piece, in two more. Each waits until the one before is
        acknowledged."""
        for _ in range(3):
            self.jvm.sendall(b"x" * 10)
        for _ in range(3):
            yield self.ours.recv(10)

    def close(self) -> None:
        self.jvm.close()
        self.ours.close()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(sockets, "is_sparks", lambda: True)
    monkeypatch.setattr(sockets, "_sockets", sockets._Sockets(-1, ()))
    made = Pair()
    yield made
    made.close()


def seconds(pair: Pair, *, ours: bool) -> float:
    """The median of some rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        pieces = pair.pieces()
        assert list(acknowledging(pieces) if ours else pieces) == [b"x" * 10] * 3
        pair.ours.sendall(b"done")
        pair.jvm.recv(4)
        found.append(time.monotonic() - began)
    return statistics.median(found)


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK is Linux's")
def test_the_next_piece_comes_at_once(pair: Pair) -> None:
    assert seconds(pair, ours=False) > STALL_SECONDS, "this machine acknowledges at once by itself"
    assert seconds(pair, ours=True) < STALL_SECONDS / 2


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK is Linux's")
def test_our_own_small_pieces_go_at_once(pair: Pair) -> None:
    acknowledge()
    assert pair.ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK is Linux's")
def test_a_fork_looks_for_its_own_connections(pair: Pair) -> None:
    acknowledge()
    before = sockets._sockets
    child = os.fork()
    if not child:
        acknowledge()
        os._exit(0 if sockets._sockets.process == os.getpid() != before.process else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK is Linux's")
def test_what_is_closed_or_no_connection_is_passed_over(pair: Pair) -> None:
    acknowledge()
    pair.ours.close()
    acknowledge()
    with open(os.devnull) as other:  # the number comes again, for something else
        acknowledge()
        assert other.read() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK is Linux's")
def test_tasks_acknowledge_before_they_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """When what to run has come, before each piece of rows, and at their end."""
    told: list[str] = []
    monkeypatch.setattr(calls, "acknowledge", lambda: told.append("called"))
    monkeypatch.setattr(sockets, "acknowledge", lambda: told.append("piece"))
    given = {"kafka.bootstrap.servers": "nowhere:9092", "subscribe": "t"}
    for made, stream in ((BatchReader, False), (StreamReader, True)):
        told.clear()
        read = pickle.loads(pickle.dumps(made(source_options(given, stream=stream))))
        assert told == ["called"]
        assert list(read.read(plan.Range("t", 0, 5, 5))) == []
        assert told == ["called", "piece", "called"]
    told.clear()
    to = {"kafka.bootstrap.servers": "nowhere:9092", "topic": "t", "processing.guarantee": "at_least_once"}
    rows = iter([pa.record_batch({"value": pa.array([], pa.binary())})] * 3)
    task_writer.write_rows(sink_options(to, stream=False), None, Attempt("q", 0, 0), rows)
    assert told == ["called", *["piece"] * 4]


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK is Linux's")
def test_nothing_is_touched_in_a_process_that_is_not_sparks(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "is_sparks", lambda: False)
    calls.called()
    assert sockets._sockets.process == -1
    assert not pair.ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
