"""The client's side of SASL over Kafka's frames: one function that authenticates a connection.

SaslHandshake chooses the mechanism, SaslAuthenticate carries its messages (KIP-152). The broker may limit the
session's life (KIP-368): the connection is authenticated again before that ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from eoslog.client.wire.security_settings import AwsSettings, KerberosSettings, SaslSettings, TokenSettings
from eoslog.client.wire.tokens import token_for
from eoslog.errors import AuthenticationRefused
from eoslog.protocol.apis import Api
from eoslog.protocol.errors import info
from eoslog.protocol.schema import Given
from eoslog.protocol.scram import HASHES, ClientExchange, ScramError
from eoslog.protocol.typed import SASL_AUTHENTICATE, SASL_HANDSHAKE

if TYPE_CHECKING:
    from eoslog.protocol.typed import SaslAuthenticateResponse


RequestDraft = TypeVar("RequestDraft")
Response = TypeVar("Response")


_CHECK = "check the credentials: a query that starts with the right ones goes on where it was"


def password_of(sasl: SaslSettings) -> str:
    """The password of the moment. Raises AuthenticationRefused if its file cannot be read."""
    if not sasl.password_file:
        return sasl.password
    try:
        with open(sasl.password_file, encoding="utf-8") as file:
            return file.read().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise AuthenticationRefused(
            f"kafka.sasl.password.file: {sasl.password_file} cannot be read: {reason}. It must be on "
            "every machine that runs the driver or tasks"
        ) from error


class Ask(Protocol):
    """Send a request on the connection and wait for its answer."""

    def __call__(self, api: Api[Any, RequestDraft, Response, Any], body: Given[RequestDraft]) -> Response:
        """The answer."""
        ...


def authenticate(ask: Ask, sasl: SaslSettings, host: str) -> int:
    """Authenticate at the broker `host`. Returns the session's life in ms, 0: for ever. Raises
    AuthenticationRefused."""
    answer = ask(SASL_HANDSHAKE, {"mechanism": sasl.mechanism})
    if answer["error_code"]:
        offered = ", ".join(answer["mechanisms"])
        if not offered:
            raise AuthenticationRefused(
                "the broker's listener takes no logins: leave SASL_ out of kafka.security.protocol, or give "
                "the address of a listener that takes some"
            )
        raise AuthenticationRefused(
            f"the broker does not accept kafka.sasl.mechanism={sasl.mechanism}; it offers {offered}: "
            "choose one of these"
        )

    def exchange(token: bytes) -> SaslAuthenticateResponse:
        response = ask(SASL_AUTHENTICATE, {"auth_bytes": token})
        if response["error_code"]:
            name = info(response["error_code"]).name
            raise AuthenticationRefused(
                f"{sasl.mechanism} as {_who(sasl)}: {name}: "
                f"{response['error_message'] or 'no reason given'}; {_CHECK}"
            )
        return response

    if sasl.mechanism in HASHES:
        last = _scram(exchange, sasl)
    elif sasl.mechanism == "PLAIN":
        last = exchange(f"\0{sasl.user}\0{password_of(sasl)}".encode())
    elif sasl.aws is not None:
        last = _signed(exchange, sasl.aws, host)
    elif sasl.tokens is not None:
        last = _bearer(exchange, sasl.tokens, sasl.extensions)
    elif sasl.kerberos is not None:
        last = _tickets(exchange, sasl.kerberos, host)
    else:
        raise ValueError(f"no login for {sasl.mechanism}")
    return last["session_lifetime_ms"]


def _who(sasl: SaslSettings) -> str:
    if sasl.aws is not None:
        return "the AWS credentials"
    return sasl.user or (sasl.tokens.client_id if sasl.tokens is not None else "") or "the token"


def _tickets(
    exchange: Callable[[bytes], SaslAuthenticateResponse], kerberos: KerberosSettings, host: str
) -> SaslAuthenticateResponse:
    from eoslog.client.wire.kerberos import login  # needs an extra

    answers: list[SaslAuthenticateResponse] = []

    def step(token: bytes) -> bytes:
        answers.append(exchange(token))
        return bytes(answers[-1]["auth_bytes"])

    login(step, kerberos, host)
    return answers[-1]


def _scram(
    exchange: Callable[[bytes], SaslAuthenticateResponse], sasl: SaslSettings
) -> SaslAuthenticateResponse:
    client = ClientExchange(
        sasl.mechanism, sasl.user, password_of(sasl), secrets.token_urlsafe(24), delegated=sasl.delegated
    )
    try:
        response = exchange(client.first())
        last = exchange(client.final(bytes(response["auth_bytes"])))
        client.check(bytes(last["auth_bytes"]))
    except ScramError as error:
        raise AuthenticationRefused(f"{sasl.mechanism} as {sasl.user}: {error}; {_CHECK}") from error
    return last


def _signed(
    exchange: Callable[[bytes], SaslAuthenticateResponse], aws: AwsSettings, host: str
) -> SaslAuthenticateResponse:
    """One message, signed with AWS credentials; after a refusal they are looked up again."""
    from eoslog.client.wire import msk_iam  # rarely used

    message = msk_iam.payload(aws, host)
    try:
        last = exchange(message)
        msk_iam.check_accepted(bytes(last["auth_bytes"]))
    except AuthenticationRefused:
        msk_iam.forget(aws)
        raise
    return last


def _bearer(
    exchange: Callable[[bytes], SaslAuthenticateResponse],
    settings: TokenSettings,
    extensions: tuple[tuple[str, str], ...],
) -> SaslAuthenticateResponse:
    """RFC 7628. A refusal comes first as a message; the error comes after that is acknowledged."""
    more = "".join(f"{name}={value}\x01" for name, value in extensions)
    response = exchange(f"n,,\x01auth=Bearer {token_for(settings)}\x01{more}\x01".encode())
    if response["auth_bytes"]:
        exchange(b"\x01")
        said = bytes(response["auth_bytes"]).decode("utf-8", "replace")
        raise AuthenticationRefused(
            f"OAUTHBEARER: the broker refused the token: {said}; check its audience, scope and issuer"
        )
    return response
