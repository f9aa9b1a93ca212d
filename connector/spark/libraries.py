"""The libraries that the connector needs, and what to type if one is missing.

A jar contains only eoslog: numpy and Arrow are those of the machine. Spark starts Python on the driver and on
every executor, so each of them may lack a library. This module imports nothing else of eoslog.
"""

import platform
import re
import sys
from importlib import import_module, util
from typing import NamedTuple


class EnvironmentUnfit(ImportError):
    """This Python lacks a library, or has one that is too old; the message says where, and what to type."""


class Library(NamedTuple):
    """A library at run time: its module, its name for pip, the oldest supported version."""

    module: str
    name: str
    oldest: str

    @property
    def requirement(self) -> str:
        """The requirement in pip's syntax."""
        return f"{self.name}>={self.oldest}"


LIBRARIES = (
    Library("pyarrow", "pyarrow", "17"),
    Library("numpy", "numpy", "1.26"),
    Library("google_crc32c", "google-crc32c", "1.5"),
)
SPARK = Library("pyspark", "pyspark", "4.0")
"""The first version with Arrow writers for sinks in Python."""


def check_libraries() -> None:
    """Raises EnvironmentUnfit if this Python lacks a library. Imports none of them."""
    _refuse({need: "missing" for need in LIBRARIES if util.find_spec(need.module) is None})


def check_versions() -> None:
    """Raises EnvironmentUnfit if this Python lacks a library, or if one, or Spark, is too old."""
    found = {need: _installed(need) for need in (SPARK, *LIBRARIES)}
    _refuse({n: "missing" for n, version in found.items() if version is None})
    old = {n: f"{v}, which is too old" for n, v in found.items() if v and numbers(v) < numbers(n.oldest)}
    _refuse(old)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers at the start of a version, for comparing: 4.2.0.dev3 is (4, 2, 0)."""
    start = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, start[0].split("."))) if start else ()


def _installed(need: Library) -> str | None:
    """The version that this Python would import: None if missing, "" if it has no version. A library that pip
    did not install, such as Spark's own folder on PYTHONPATH, has no metadata of pip."""
    from importlib import metadata  # slow to import, and used only by register()

    if util.find_spec(need.module) is None:
        return None
    try:
        return metadata.version(need.name)
    except metadata.PackageNotFoundError:
        return str(getattr(import_module(need.module), "__version__", ""))


def _refuse(wrong: dict[Library, str]) -> None:
    if not wrong:
        return
    said = "; ".join(f"{need.name} is {what}" for need, what in wrong.items())
    wanted = " ".join(f"'{need.requirement}'" for need in wrong)
    raise EnvironmentUnfit(
        f"eoslog cannot run in {sys.executable} (Python {platform.python_version()}) on {platform.node()}: "
        f"{said}. Type there: {sys.executable} -m pip install {wanted}\n"
        "Spark's driver and every executor need them: a jar brings eoslog alone."
    )
