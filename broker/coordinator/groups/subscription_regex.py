"""Subscriptions by regular expression (KIP-848): RE2's dialect, as in Kafka, matched against whole names.

RE2 takes time linear in the text for every expression, so no client can stop the broker with one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from types import ModuleType


def _re2() -> ModuleType:
    import re2  # only a broker that serves needs it: see `load`

    module: ModuleType = re2
    return module


def load() -> None:
    """Import RE2, so that no group has to wait for it later."""
    _re2()


@lru_cache(maxsize=64)
def _compiled(regex: str) -> Any:
    options = _re2().Options()
    options.log_errors = False
    return _re2().compile(regex, options)


def check_regex(regex: str) -> None:
    """Raise KafkaError INVALID_REGULAR_EXPRESSION unless `regex` is one."""
    try:
        _compiled(regex)
    except _re2().error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{regex!r} is not a valid regular expression: {error}"
        ) from error


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The `names` that `regex`, a valid expression, matches."""
    pattern = _compiled(regex)
    return frozenset(name for name in names if pattern.fullmatch(name) is not None)
