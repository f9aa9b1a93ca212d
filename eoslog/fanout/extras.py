"""The libraries of table formats: extras, looked for where they are needed, on driver and executors."""

import importlib
from types import ModuleType

from eoslog.errors import OptionError


def library(name: str, extra: str) -> ModuleType:
    """Import a library of an extra. Raises OptionError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"{error.name} is missing here: install eoslog[{extra}] for the Python of the driver and of "
            f"every "
            "executor"
        ) from error
