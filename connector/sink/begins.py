"""The part that both sinks share: what the driver does before tasks can exist."""

import pickle
from abc import abstractmethod
from typing import Any

from eoslog.connector.commit.messages import Begun
from eoslog.connector.errors import EoslogError
from eoslog.connector.options.both import SinkOptions
from eoslog.connector.spark.calls import called
from eoslog.connector.spark.form import FORM, check_form
from eoslog.connector.spark.plainly import plainly
from eoslog.protocol.errors import KafkaError

_FORM = "form"


class BeginsWhenPickled:
    """A writer that begins its batch once, at its first pickling; a writer never pickled begins nothing.

    Spark pickles a writer for the tasks, and twice.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._begun: Begun | None = None
        self._pickled = False

    @abstractmethod
    def _begin(self) -> Begun | None:
        """On the driver: make the sink ready for the tasks."""

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
    """Make it an error of pickling as well, under the name it has.

    PySpark's serializer prints any other and raises "PicklingError: Could not serialize object" in its
    place, so that what happened would stand behind what did not.
    """
    kind = type(error)
    if not issubclass(kind, EoslogError | KafkaError) or issubclass(kind, pickle.PickleError):
        return  # classes of Python's own cannot be changed, and are no sentence of ours
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    error.__class__ = type(kind.__name__, (kind, pickle.PickleError), named)
