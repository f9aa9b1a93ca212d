"""What goes wrong where a micro-batch begins is seen as it is: not behind what PySpark says of pickling."""

import inspect
import pickle
import traceback
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from eoslog import errors
from eoslog.connector.commit import faults
from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.sink.begin_on_driver import BeginsWhenPickled, let_through
from eoslog.errors import EoslogError, RefusedByBroker, WrongCluster
from eoslog.protocol.errors import ErrorCode, KafkaError

OPTIONS = sink_options({"kafka.bootstrap.servers": "nowhere:1", "topic": "t"}, stream=True)
OURS = [
    kind
    for room in (errors, faults)
    for kind in vars(room).values()
    if inspect.isclass(kind) and issubclass(kind, EoslogError | KafkaError)
]


def dumps(value: object) -> None:
    """As PySpark pickles what it sends to a task."""
    CloudPickleSerializer().dumps(value)  # type: ignore[no-untyped-call]


class Fails(BeginsWhenPickled):
    def __init__(self, error: Exception) -> None:
        super().__init__(OPTIONS)
        self.error = error

    def _begin(self) -> Begun | None:
        raise self.error


def made(kind: Any) -> Exception:
    error: Exception = kind(ErrorCode.NOT_CONTROLLER, "why") if issubclass(kind, KafkaError) else kind("why")
    return error


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_of_ours_comes_through_as_it_is(kind: type[Exception], capsys: Any) -> None:
    with pytest.raises(kind) as raised:
        dumps(Fails(made(kind)))
    last, own = traceback.format_exception_only(raised.value)[-1], type(made(kind))
    assert last.startswith(f"{own.__module__}.{own.__qualname__}: ") and "serialize" not in last
    assert str(raised.value) == str(made(kind)) and capsys.readouterr().err == ""


def test_without_that_it_would_stand_behind_the_pickling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eoslog.connector.sink.begin_on_driver.let_through", lambda error: None)
    with pytest.raises(pickle.PicklingError, match="Could not serialize object: WrongCluster: why"):
        dumps(Fails(WrongCluster("why")))


def test_errors_of_pythons_own_stay_what_they_are() -> None:
    error = OSError("disk full")
    let_through(error)
    assert type(error) is OSError


def test_what_an_error_carries_stays() -> None:
    error = RefusedByBroker(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Produce")
    error.add_note("a note")
    let_through(error)
    let_through(error)
    assert isinstance(error, RefusedByBroker) and error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert error.__notes__ == ["a note"] and "the rights Read and Describe" in str(error)
