"""Collects what a session has, or would have: its settings, and the Pythons that Spark starts.

Spark starts Python by two names. Tasks run `spark.pyspark.python`, else PYSPARK_PYTHON, else python3. The
source of a stream runs the one that `python_of_sources` names.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from eoslog.connector.spark.processes import python_of_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 30.0
_LOOK = """
import importlib.util as find, json, os, platform, sys
from importlib import metadata
sys.path = [entry for entry in sys.path if entry]
def version(name, module):
    try:
        if find.find_spec(module) is None:
            return None
    except ImportError:
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return str(getattr(__import__(module), "__version__", ""))
names = {"pyspark": "pyspark", "eoslog": "eoslog", "pyarrow": "pyarrow", "numpy": "numpy",
         "google-crc32c": "google_crc32c"}
found = {name: version(name, module) for name, module in names.items()}
folder = any(os.path.isfile(os.path.join(entry, "pyspark", "version.py")) for entry in sys.path)
hook = any(os.path.isfile(os.path.join(entry, "eoslog.pth")) for entry in sys.path)
hook = hook and os.environ.get("EOSLOG_WARM") != "0"
found["python"] = platform.python_version()
print(json.dumps({"versions": found, "folder": folder, "hook": hook}))
"""


@dataclass(frozen=True)
class Python:
    """A Python that Spark starts. `wrong`: why it does not run. `has_folder`: its PySpark is not a zip.
    `has_hook`: it asks for a fork of a warm process at its start (packaging/eoslog.pth)."""

    command: str
    purpose: str
    versions: Mapping[str, str | None] = field(default_factory=dict)
    has_folder: bool = True
    has_hook: bool = False
    wrong: str = ""


@dataclass(frozen=True)
class Facts:
    """The facts. `here`: this Python's command. `versions`: its libraries'."""

    settings: Mapping[str, str]
    here: str
    versions: Mapping[str, str | None]
    pythons: tuple[Python, ...]
    java: str | None
    acknowledges_at_once: bool


def of_session(spark: SparkSession) -> Facts:
    """The facts of a running session."""
    return look(dict(spark.sparkContext.getConf().getAll()), os.environ)


def of_defaults(text: str, environment: Mapping[str, str]) -> Facts:
    """The facts of a session that would start with this spark-defaults.conf."""
    return look(parse_defaults(text), environment)


def parse_defaults(text: str) -> dict[str, str]:
    """Names and values in a spark-defaults.conf: separated by blanks, `=` or `:`; `#` begins a comment."""
    found = {}
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        at = min((i for i, letter in enumerate(stripped) if letter in " \t=:"), default=len(stripped))
        found[stripped[:at]] = stripped[at:].lstrip(" \t=:").strip()
    return found


def look(settings: Mapping[str, str], environment: Mapping[str, str]) -> Facts:
    """Start each Python that Spark would start, and ask it for its facts."""
    every = environment.get("PYSPARK_PYTHON", "python3")
    commands = {
        "tasks": settings.get("spark.pyspark.python", every),
        "the sources of streams": python_of_sources(environment),
    }
    purposes: dict[str, list[str]] = {}
    for purpose, command in commands.items():
        purposes.setdefault(command, []).append(purpose)
    me = ask(sys.executable, "this", environment)
    return Facts(
        settings,
        sys.executable,
        me.versions,
        tuple(ask(command, " and ".join(of), environment) for command, of in purposes.items()),
        _java(environment),
        hasattr(socket, "TCP_QUICKACK"),
    )


def ask(command: str, purpose: str, environment: Mapping[str, str]) -> Python:
    """The facts of a Python, asked for in a process of its own."""
    found = shutil.which(command, path=environment.get("PATH"))
    if found is None:
        return Python(command, purpose, wrong="there is no such command")
    try:
        done = subprocess.run(
            [found, "-c", _LOOK], env=dict(environment), capture_output=True, text=True, timeout=_LOOK_SECONDS
        )
        answer = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return Python(command, purpose, wrong=str(error))
    if answer is None:
        last = done.stderr.strip().rpartition("\n")[2]
        return Python(command, purpose, wrong=last or f"exit status {done.returncode}")
    return Python(command, purpose, answer["versions"], answer["folder"], answer["hook"])


def _java(environment: Mapping[str, str]) -> str | None:
    home = environment.get("JAVA_HOME")
    at_home = str(Path(home) / "bin" / "java") if home else "java"
    return shutil.which(at_home, path=environment.get("PATH"))
