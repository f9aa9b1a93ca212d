"""How eoslog's warnings look in Spark's Python processes, where nobody has set logging up.

They go to stderr, which Spark leads to that of its driver or executor: where its own log goes by default.
They have its pattern, too (`yy/MM/dd HH:mm:ss WARN eoslog: ...`), so that who searches that log finds them.
Where the root logger has handlers (the user's, or Spark's with spark.sql.pyspark.worker.logging.enabled)
nothing is written here: those get it.
"""

import logging
import sys
import time

from eoslog.connector.spark.longlived import is_sparks

REPEAT_SECONDS = 3600
"""The same sentence is not said again by a process within this time: many of them come with each batch."""
_MOST_KEPT = 1000
_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}


class AsSpark(logging.Handler):
    """Writes a record as Spark's default log does, once, unless somebody else takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_Lines())
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """To stderr."""
        if logging.root.handlers:
            return
        try:
            if not self._was_said(record.getMessage()):
                print(self.format(record), file=sys.stderr, flush=True)
        except Exception:  # logging's own way with what cannot be written
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
    """For where Spark calls in. Does nothing in processes that are not Spark's own, and the second time."""
    log = logging.getLogger("eoslog")
    if is_sparks() and not any(isinstance(handler, AsSpark) for handler in log.handlers):
        log.addHandler(AsSpark())
