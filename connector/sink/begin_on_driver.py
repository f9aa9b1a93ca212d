"""The part that both sinks share: what the driver does before there can be tasks."""

import pickle
from abc import abstractmethod
from typing import Any

from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.options.sink_options import SinkOptions
from eoslog.connector.spark.brought import reduce_with_jar
from eoslog.connector.spark.calls import called
from eoslog.connector.spark.pickled_form import FORM, check_form
from eoslog.connector.spark.plain_errors import plainly
from eoslog.errors import EoslogError
from eoslog.protocol.errors import KafkaError

_FORM = "form"


class BeginsWhenPickled:
    """A writer that begins its batch when it is first pickled. A writer that is never pickled begins none.

    Spark pickles a writer for the tasks, and does so twice.
    """

    __reduce_ex__ = reduce_with_jar

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._begun: Begun | None = None
        self._pickled = False

    @abstractmethod
    def _begin(self) -> Begun | None:
        """Make the sink ready for the tasks; runs on the driver."""

    @plainly
    def __getstate__(self) -> dict[str, Any]:
        if not self._pickled:
            called()
            try:
                self._begun = self._begin()
            except Exception as error:
                let_through(error)
                raise
            self._pickled = True
        return {**self.__dict__, _FORM: FORM}

    def __setstate__(self, state: dict[str, Any]) -> None:
        called()
        check_form(state.pop(_FORM, None))
        self.__dict__.update(state)


def let_through(error: Exception) -> None:
    """Make the error a PickleError as well, under its own name.

    PySpark's serializer prints any other error and raises "PicklingError: Could not serialize object" in its
    place, so users would first read of a serialization error that did not happen.
    """
    kind = type(error)
    if not issubclass(kind, EoslogError | KafkaError) or issubclass(kind, pickle.PickleError):
        return  # Python's own classes cannot be changed, and their messages are not ours
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    error.__class__ = type(kind.__name__, (kind, pickle.PickleError), named)
