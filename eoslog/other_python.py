"""Whether Spark's Python processes are another Python, one without eoslog.

Spark looks for `format("eoslog")` with the Python that it starts, not with the one that runs the program. In
a virtual environment that is not activated these differ, and Spark says no more than DATA_SOURCE_NOT_FOUND.
So `import eoslog` says it in a program that has imported PySpark, and `eoslog.register` refuses such a
session.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path

from eoslog.connector.spark.processes import python_of_sources

_ASK_SECONDS = 30.0
_LACKS = 3
_ASK = f"""
import importlib.util, sys
sys.exit({_LACKS} if importlib.util.find_spec("pyspark_eoslog") is None else 0)
"""


class OtherPython(UserWarning):
    """Spark starts another Python than that of the program, without eoslog; the message says what to type."""


def warn_if_other() -> None:
    """Warn if Spark would start a Python without eoslog. Returns at once: a thread asks another Python."""
    command, environment = python_of_sources(os.environ), dict(os.environ)
    if not _is_this(command, environment):
        asked = (command, environment)
        threading.Thread(target=_warn, args=asked, name="eoslog-python", daemon=True).start()


def _warn(command: str, environment: Mapping[str, str]) -> None:
    if said := what_it_lacks(command, environment):
        warnings.warn(said, OtherPython, stacklevel=2)


def _is_this(command: str, environment: Mapping[str, str]) -> bool:
    """Whether a command is surely this environment's: a name of its Python, or `eoslog-python`, beside it."""
    found, here = shutil.which(command, path=environment.get("PATH")), Path(sys.executable)
    if found is None or Path(found).parent != here.parent:
        return False
    return Path(found).name == "eoslog-python" or Path(found).resolve() == here.resolve()


def what_it_lacks(command: str, environment: Mapping[str, str]) -> str:
    """What to say of a Python with which Spark cannot find eoslog; "" if it can. Another one is started."""
    if _is_this(command, environment):
        return ""
    found = shutil.which(command, path=environment.get("PATH"))
    if found is None:
        return _said(command, "there is no such command")
    try:
        done = subprocess.run(
            [found, "-c", _ASK], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_ASK_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return _said(found, f"it does not run: {error}")
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    lacks = done.returncode == _LACKS
    return _said(found, "it has no eoslog" if lacks else f"it does not run: {lines[-1] if lines else ''}")


def _said(command: str, wrong: str) -> str:
    here = sys.executable
    return (
        f"a Spark that this program starts runs {command} as its Python, and {wrong}: it would not find "
        f'format("eoslog") (DATA_SOURCE_NOT_FOUND). Activate the environment of {here}, or type '
        f"export PYSPARK_PYTHON={here} PYSPARK_DRIVER_PYTHON={here} and start the program again"
    )
