"""Writes eoslog's warnings in Spark's Python processes, which have no logging set up.

They go to stderr, which Spark copies to that of its driver or executor, where its own log goes by default.
They have the pattern of Spark's log (`yy/MM/dd HH:mm:ss WARN eoslog: ...`), so that a search of that log
finds them. If the root logger has handlers (the user's, or Spark's with
spark.sql.pyspark.worker.logging.enabled), nothing is written here: those handlers get the warnings.
"""

import logging
import sys
import time

from eoslog.connector.spark.gc_freeze import is_sparks

REPEAT_SECONDS = 3600
"""A process does not repeat the same line within this time: many of them come with each batch."""
_MOST_KEPT = 1000
_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}


class AsSpark(logging.Handler):
    """Writes a record like Spark's default log, once, unless another handler gets it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_Lines())
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record to stderr."""
        if logging.root.handlers:
            return
        try:
            if not self._was_said(record.getMessage()):
                print(self.format(record), file=sys.stderr, flush=True)
        except Exception:  # as logging's own handlers do
            self.handleError(record)

    def _was_said(self, text: str) -> bool:
        now = time.monotonic()
        if now - self._said.get(text, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return True
        if len(self._said) >= _MOST_KEPT:
            self._said.clear()
        self._said[text] = now
        return False


class _Lines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(spark_level)s eoslog: %(message)s", "%y/%m/%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record.spark_level = _LEVELS.get(record.levelname, record.levelname)
        return super().format(record)


def look_as_sparks() -> None:
    """Add the handler. Does nothing in processes that are not Spark's own, or at a second call."""
    log = logging.getLogger("eoslog")
    if is_sparks() and not any(isinstance(handler, AsSpark) for handler in log.handlers):
        log.addHandler(AsSpark())
