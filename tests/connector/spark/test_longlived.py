"""What a process of Spark's keeps for good is set aside when it has imported much, not at every call, and
nowhere else; what is made later is collected."""

import ast
import gc
import inspect
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from eoslog.connector.sink import begin_on_driver, stream_writer, task_writer
from eoslog.connector.source import read_range
from eoslog.connector.spark import gc_freeze


@pytest.fixture(autouse=True)
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


def test_what_is_there_is_set_aside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [is_collected_after_settling() for _ in range(3)] == [False, True, True]
    assert gc.get_freeze_count() > 0
    import_modules(monkeypatch, "few", 19)
    assert is_collected_after_settling()
    import_modules(monkeypatch, "more", 1)
    assert [is_collected_after_settling() for _ in range(3)] == [False, True, True]


def test_a_forked_process_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        gc_freeze.freeze_imports()
    monkeypatch.setattr(os, "getpid", lambda: -2)
    assert not is_collected_after_settling()


def test_rows_of_a_task_are_collected_as_ever() -> None:
    gc_freeze.freeze_imports()
    made = Ring()
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None


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
