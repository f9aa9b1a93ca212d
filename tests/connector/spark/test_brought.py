"""What Spark pickles of an eoslog that came in a jar can be loaded where eoslog is not yet importable."""

import pickle
import pickletools
import sys
from pathlib import Path
from typing import Any

import pytest

from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.options.source_options import source_options
from eoslog.connector.sink.begin_on_driver import BeginsWhenPickled
from eoslog.connector.source.reader import BatchReader, StreamReader
from eoslog.connector.spark import brought

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}


class Writer(BeginsWhenPickled):
    """One that needs no broker."""

    def _begin(self) -> Begun | None:
        return None


def sent() -> dict[str, Any]:
    """One object of each kind that Spark sends to another process."""
    nothing: Any = None
    return {
        "source": EoslogDataSource(OPTIONS),
        "batch reader": BatchReader(source_options(OPTIONS, stream=False)),
        "stream reader": StreamReader(source_options(OPTIONS, stream=True)),
        "writer": Writer(nothing),
    }


@pytest.mark.parametrize("kind", sent())
def test_the_jar_is_on_the_path_before_anything_is_imported(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jar = tmp_path / "e.jar"
    monkeypatch.setattr(brought, "home_archive", lambda: jar)
    monkeypatch.setattr(sys, "path", list(sys.path))
    value = sent()[kind]
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
    pickle.loads(pickle.dumps(sent()["source"]))
    assert str(tmp_path / "session" / "e.jar") in sys.path


@pytest.mark.parametrize("kind", sent())
def test_installed_by_pip_a_pickle_names_no_path(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value, before = sent()[kind], list(sys.path)
    pickled = pickle.dumps(value)
    assert b"worker_util" not in pickled
    assert type(pickle.loads(pickled)) is type(value)
    assert sys.path == before
