"""Errors as Spark gets them: eoslog's message, without the traceback inside of eoslog.

Spark shows the whole traceback of a Python process before the error's message. eoslog's messages say what
failed, where and what to do; the traceback does not help the reader and hides the message. EOSLOG_TRACEBACK=1
in the environment of Spark's driver (and executors) keeps it. From the first such call on, warnings look like
Spark's own (both.py).
"""

import logging
import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from eoslog.connector.spark.logs import look_as_sparks
from eoslog.errors import EoslogError
from eoslog.protocol.errors import KafkaError

logger = logging.getLogger(__name__)

KEPT = "EOSLOG_TRACEBACK"
_WAITS = (
    "Readers may wait for it until the next start, or until its transactions time out. "
    "See exactly-once.md#an-orderly-end-in-mid-batch"
)

P = ParamSpec("P")
T = TypeVar("T")


def plainly(call: Callable[P, T]) -> Callable[P, T]:
    """Wrap what Spark calls: eoslog's errors lose their traceback, and warnings look like Spark's."""

    @wraps(call)
    def called_by_spark(*given: P.args, **named: P.kwargs) -> T:
        look_as_sparks()
        try:
            return call(*given, **named)
        except (EoslogError, KafkaError) as error:
            if os.environ.get(KEPT):
                raise
            raise error.with_traceback(None) from None

    return called_by_spark


def only_warned(call: Callable[P, None]) -> Callable[P, None]:
    """Wrap an abort: eoslog's errors become warnings. Spark calls it when it has an error to show already,
    and shows "Writing job failed." in its place if the abort fails too."""
    aborts = plainly(call)

    @wraps(call)
    def called_by_spark(*given: P.args, **named: P.kwargs) -> None:
        try:
            aborts(*given, **named)
        except (EoslogError, KafkaError) as error:
            kind = type(error).__name__
            logger.warning(
                "what the failed write left open could not be ended: %s: %s. %s", kind, error, _WAITS
            )

    return called_by_spark


def pieces_plainly(pieces: Iterator[T]) -> Iterator[T]:
    """As `plainly`, for an iterator that Spark reads."""
    follow = plainly(lambda: next(pieces, None))
    while (piece := follow()) is not None:
        yield piece
