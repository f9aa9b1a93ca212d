"""The part that both sinks share: what the driver does before tasks can exist."""

from abc import abstractmethod
from typing import Any

from eoslog.connector.calls import called
from eoslog.connector.commit.messages import Begun
from eoslog.connector.form import FORM, check_form
from eoslog.connector.options import SinkOptions

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

    def __getstate__(self) -> dict[str, Any]:
        if not self._pickled:
            called()
            self._begun = self._begin()
            self._pickled = True
        return {**self.__dict__, _FORM: FORM}

    def __setstate__(self, state: dict[str, Any]) -> None:
        called()
        check_form(state.pop(_FORM, None))
        self.__dict__.update(state)
