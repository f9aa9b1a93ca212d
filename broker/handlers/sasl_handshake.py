"""SaslHandshake (key 17, versions 0-1): choose a SASL mechanism (KIP-43).

A mechanism that is not offered gets UNSUPPORTED_SASL_MECHANISM with the ones that are, and the connection
ends. Version 1 goes on with SaslAuthenticate, version 0 with bare tokens. ILLEGAL_SASL_STATE on a listener
without SASL or in the midst of an exchange. A session that lasts is renewed by a handshake anew (KIP-368).

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.requests.context import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponseDraft


KEY = ApiKey.SASL_HANDSHAKE
VERSIONS = (0, 1)


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponseDraft:
    """Begin the exchange."""
    sasl, session = context.broker.sasl, context.session
    if sasl is None:
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}
    try:
        offered = sasl.choose(session, request["mechanism"], raw=context.header.api_version == 0)
    except KafkaError as error:
        return {"error_code": error.code, "mechanisms": sasl.offered(session)}
    return {"mechanisms": offered}
