"""A Spark application that runs what lines of JSON on its standard input tell it: queries, by number.

How each ended goes to a file, a line each: {"id": its number, "said": null or the error's text}. `Queries` is
the application's side; `Answers` is that of whoever has started it (as a `Program`).
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

READY = "ready"
"""A file of the application's folder: its session is up."""


def session(master: str, name: str, log_level: str, settings: Mapping[str, str]) -> SparkSession:
    """A small session of the application's own."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name)
    small: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = builder.config(map=small | dict(settings)).getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    return spark


def lines() -> Iterator[dict[str, Any]]:
    """What the application is told, until its standard input ends."""
    for line in sys.stdin:
        yield json.loads(line)


class Queries:
    """What runs in the application, by number."""

    def __init__(self, folder: Path) -> None:
        self._path = answers_of(folder)
        self._running: dict[int, StreamingQuery] = {}
        self._lock = threading.Lock()
        (folder / READY).touch()

    def start(self, number: int, begin: Callable[[], StreamingQuery]) -> None:
        """Start a query here, where the session is active, and wait for its end elsewhere."""
        try:
            query = self._running[number] = begin()
        except Exception as error:  # whatever it is: whoever has told it judges
            self._say(number, error)
        else:
            self.run(number, query.awaitTermination)

    def run(self, number: int, work: Callable[[], object]) -> None:
        """Do something that takes long beside the rest, and tell how it ended."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._say(number, error)
            else:
                self._say(number, None)

        _beside(guarded)

    def stop(self, number: int, otherwise: Callable[[], object] = lambda: None) -> None:
        """Stop a query; `otherwise`, if there is none of the number."""
        query = self._running.get(number)
        _beside(otherwise if query is None else query.stop)

    def _say(self, number: int, error: Exception | None) -> None:
        said = None if error is None else f"{type(error).__name__}: {error}"
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps({"id": number, "said": said}) + "\n")


def _beside(work: Callable[[], object]) -> None:
    threading.Thread(target=work, daemon=True).start()


def answers_of(folder: Path) -> Path:
    """Where an application writes how things ended."""
    return folder / "answers.jsonl"


class Answers:
    """How things ended that applications were told to do."""

    def __init__(self, folder: Path) -> None:
        self._path, self._read = answers_of(folder), 0
        self._said: dict[int, str | None] = {}

    def of(self, number: int) -> tuple[str | None] | None:
        """How it ended (None in it: well), once it has."""
        if self._path.exists():
            whole = self._path.read_text()
            end = whole.rfind("\n") + 1
            for line in whole[self._read : end].splitlines():
                found = json.loads(line)
                self._said[found["id"]] = found["said"]
            self._read = max(end, self._read)
        return (self._said[number],) if number in self._said else None
