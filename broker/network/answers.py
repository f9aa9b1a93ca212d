"""Turns what a handler returned or raised into the answer for its client.

An error that a handler raises becomes an error answer, if the API has a field for it. Otherwise the
connection is closed.
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
    """The answer after a handler has failed; None: the connection must be closed."""
    what = f"API key {header.api_key} v{header.api_version} from {peer} ({header.client_id})"
    if isinstance(error, CloseConnection):
        log.info("closing the connection: %s: %s", what, error)
        return None
    log.error("fault while serving %s", what, exc_info=error)
    # If the API has no field for it, parts that were done before the fault are not answered either.
    return error_of_all(header.api_key, header.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)


def encoded(header: RequestHeader, peer: str, message: Message) -> list[Buffer] | None:
    """The bytes of an answer; None if it does not fit its schema: the connection must be closed."""
    try:
        return encode(header, message)
    except Exception as error:  # of any kind, from a generated writer: the client must not wait for ever
        what = "%s: the answer to API key %d does not fit its schema"
        log.error(what, peer, header.api_key, exc_info=error)
        return None


def encoded_in_few(header: RequestHeader, peer: str, message: Message) -> list[Buffer] | None:
    """Like `encoded`, with small parts joined: for a long answer, in a thread."""
    parts = encoded(header, peer, message)
    return None if parts is None else list(joined(parts))
