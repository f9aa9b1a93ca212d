"""Errors that reach Spark: eoslog's sentence, without the traceback inside of eoslog.

Spark shows the whole traceback of a Python process before the error's sentence. Our errors say what failed,
where and what to do; the traceback does not help the reader and hides the sentence. EOSLOG_TRACEBACK=1 in the
environment of Spark's driver (and executors) keeps it. Warnings look as Spark's own from the first such call
on (logs.py).
"""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from eoslog.connector.errors import EoslogError
from eoslog.connector.spark.logs import look_as_sparks
from eoslog.protocol.errors import KafkaError

KEPT = "EOSLOG_TRACEBACK"

P = ParamSpec("P")
T = TypeVar("T")


def plainly(call: Callable[P, T]) -> Callable[P, T]:
    """For what Spark calls: errors of eoslog's come without their way through eoslog, warnings as Spark's."""

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


def pieces_plainly(pieces: Iterator[T]) -> Iterator[T]:
    """The same for what Spark takes piece by piece."""
    follow = plainly(lambda: next(pieces, None))
    while (piece := follow()) is not None:
        yield piece
