"""SaslHandshake (key 17, versions 0-1): choose a SASL mechanism (KIP-43).

A mechanism that is not offered gets UNSUPPORTED_SASL_MECHANISM with the ones that are, and the connection is
closed. After version 1 the client sends SaslAuthenticate, after version 0 bare tokens. ILLEGAL_SASL_STATE on
a listener without SASL or in the middle of an exchange. A new handshake renews a session (KIP-368).

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import everybody
from eoslog.broker.requests import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import SaslHandshakeRequest, SaslHandshakeResponseDraft


KEY = ApiKey.SASL_HANDSHAKE
VERSIONS = (0, 1)


access = everybody


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponseDraft:
    """Start the exchange."""
    sasl, session = context.broker.sasl, context.session
    if sasl is None:
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}
    try:
        offered = sasl.choose(session, request["mechanism"], raw=context.header.api_version == 0)
    except KafkaError as error:
        return {"error_code": error.code, "mechanisms": sasl.offered(session)}
    return {"mechanisms": offered}
