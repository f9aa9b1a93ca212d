"""SaslAuthenticate (key 36, versions 0-2): one step of a SASL exchange (KIP-152).

Mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI. A failure is answered with
SASL_AUTHENTICATION_FAILED after connection.failed.authentication.delay.ms, and the connection is closed. From
version 1 the answer has the length of the session (connections.max.reauth.ms, or the token's expiry;
KIP-368). ILLEGAL_SASL_STATE without a handshake before it.

Left out: delegation tokens by SCRAM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import everybody
from eoslog.broker.requests import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import SaslAuthenticateRequest, SaslAuthenticateResponseDraft


KEY = ApiKey.SASL_AUTHENTICATE
VERSIONS = (0, 2)


access = everybody


async def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponseDraft:
    """Process the client's token and return the mechanism's answer."""
    sasl = context.broker.sasl
    try:
        if sasl is None:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "this listener has no SASL")
        step, lifetime_ms = await sasl.step(
            context.session, bytes(request["auth_bytes"]), context.client_host
        )
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message, "auth_bytes": b""}
    return {
        "error_code": 0,
        "error_message": None,
        "auth_bytes": step.token,
        "session_lifetime_ms": lifetime_ms,
    }
