"""What the broker writes to standard error: lines of text, or a JSON object a line.

Every module uses Python's `logging`. What operators may want to count or search for is also given as fields:
`log.info("topic %s made", name, extra={"topic": name})`. Text lines have the message alone; JSON lines have
the message and the fields. Values of secret options are never logged.

Messages contain text from clients: names, addresses, bad input. A message is always one line of bounded
length, whatever that text is.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterable

logger = logging.getLogger(__name__)

CAUSED_BY_CLIENTS = (
    "eoslog.broker.network.connection",
    "eoslog.broker.network.server",
    "eoslog.broker.security",
)
LINES, WINDOW_S = 50, 10.0

LONGEST = 4000
"""Characters of a message."""

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def begin(level: str, form: str) -> None:
    """Write lines of at least `level` ("info", ...) to standard error, as `form`: "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(BoundedLines())
    handler.setFormatter(JsonLines() if form == "json" else TextLines(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def ignored(warnings: Iterable[str]) -> None:
    """Log each option that was ignored, a line each."""
    for line in warnings:
        logger.warning("%s", line)


class BoundedLines(logging.Filter):
    """Bounds the number of log lines that clients can cause, so that they cannot fill the disk.

    Of each kind (logger and unformatted message) `LINES` pass in `WINDOW_S` seconds. The first line after
    that says how many were dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[tuple[str, object], list[float]] = {}  # begin of the window, passed, held back

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter.filter`."""
        if not record.name.startswith(CAUSED_BY_CLIENTS):
            return True
        known = self._passed.setdefault((record.name, record.msg), [record.created, 0, 0])
        if record.created - known[0] > WINDOW_S:
            if known[2]:
                record.msg = f"{record.getMessage()} (and {known[2]:.0f} lines like this before it)"
                record.args = ()
            known[:] = [record.created, 0, 0]
        known[1] += 1
        known[2] += known[1] > LINES
        return known[1] <= LINES


class TextLines(logging.Formatter):
    """A line of text; the traceback of an exception follows on lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.formatMessage`."""
        record.message = _FORGES.sub(_escaped, _bounded(record.message))
        return super().formatMessage(record)


_FORGES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that end a line or change how a terminal shows it."""


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


def _bounded(message: str) -> str:
    left_out = len(message) - LONGEST
    return message if left_out <= 0 else f"{message[:LONGEST]}... ({left_out} characters more)"


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC, ms), level, logger, message, the fields given, an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        import json

        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _bounded(record.getMessage()),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes of every record. All others were given as `extra`."""
