"""From a check to its row: what the client raises says whether a promise is broken, or unknown."""

from __future__ import annotations

from collections.abc import Callable

from eoslog.errors import (
    AuthenticationRefused,
    BrokerUnreachable,
    ConnectionLost,
    EoslogError,
    ProduceFailed,
    RetriesExhausted,
)
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import ProtocolError
from eoslog.rehearse.probes import NotOfferedHere
from eoslog.rehearse.rows import DoesNotHold, NotFoundOut, Row, Verdict

NOT_ALLOWED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_NO_ANSWER = (NotFoundOut, BrokerUnreachable, ConnectionLost, AuthenticationRefused)
REPORTED = (DoesNotHold, NotFoundOut, NotOfferedHere, EoslogError, KafkaError, ProtocolError, CorruptBatch)
"""What a check may raise. Anything else is a fault of the rehearsal."""


def row(name: str, look: Callable[[], str]) -> Row:
    """The row of a check: what it returns holds."""
    try:
        return Row(name, Verdict.HOLDS, look())
    except REPORTED as error:
        return row_of(name, error)


def row_of(name: str, error: Exception) -> Row:
    """The row of a check that raised this."""
    if isinstance(error, DoesNotHold):
        return Row(name, Verdict.FAILS, str(error), error.do)
    if isinstance(error, NotOfferedHere):
        return Row(name, Verdict.NOTE, f"not offered: {error}")
    return Row(name, Verdict.UNKNOWN if _leaves_open(error) else Verdict.FAILS, str(error))


def _leaves_open(error: Exception) -> bool:
    """Whether the cluster did not answer, or a right is missing: then nothing is known about the promise."""
    if isinstance(error, RetriesExhausted):
        cause = error.__cause__
        return not isinstance(cause, KafkaError)
    if isinstance(error, (KafkaError, ProduceFailed)):
        return error.code in NOT_ALLOWED
    return isinstance(error, _NO_ANSWER)
