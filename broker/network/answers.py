"""From what a handler answered or raised to what its client is told.

What a handler raises ends here: in an answer that says so where the API has a place for it, else in the end
of the connection.
"""

from __future__ import annotations

import logging

from eoslog.broker.network.exchange import encode
from eoslog.broker.network.pieces import joined
from eoslog.broker.requests.context import CloseConnection
from eoslog.protocol.error_places import error_of_all
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.frames import RequestHeader
from eoslog.protocol.schema import Buffer, Message

log = logging.getLogger(__name__)


def fault(header: RequestHeader, peer: str, error: BaseException) -> Message | None:
    """A handler failed: the answer that tells the client; None: the connection has to end."""
    what = f"API key {header.api_key} v{header.api_version} from {peer} ({header.client_id})"
    if isinstance(error, CloseConnection):
        log.info("closing the connection: %s: %s", what, error)
        return None
    log.error("fault while serving %s", what, exc_info=error)
    # Where it cannot be told, parts may have been carried out before the fault: none of them is answered.
    return error_of_all(header.api_key, header.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)


def encoded(header: RequestHeader, peer: str, message: Message) -> list[Buffer] | None:
    """The bytes of an answer; None if it does not fit its schema: the connection has to end."""
    try:
        return encode(header, message)
    except Exception as error:  # whatever a generated writer raises: the client must not wait for ever
        what = "%s: the answer to API key %d does not fit its schema"
        log.error(what, peer, header.api_key, exc_info=error)
        return None


def encoded_in_few(header: RequestHeader, peer: str, message: Message) -> list[Buffer] | None:
    """As `encoded`, small parts in one piece: for a long answer, in a thread."""
    parts = encoded(header, peer, message)
    return None if parts is None else list(joined(parts))
