"""What each step of a login compares, one at a time: with all else right."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any, cast

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.security.listeners import listeners_of
from eoslog.broker.security.mechanism import AuthenticationFailed, PlainExchange
from eoslog.broker.security.oauth import OauthExchange, TokenValidator
from eoslog.broker.security.scram import ScramExchange, credential_of_password
from eoslog.broker.security.tls import ListenerTls
from eoslog.broker.security.users import Passwords
from tests.broker.security.securitykit import ALICE, Issuer, Pki

MECHANISM, PASSWORD = "SCRAM-SHA-256", "a password"


def scram(binding: bytes = b"n,,", nonce: str = "") -> str | None:
    """The user a SCRAM login ends with; its proof is of what it says, right or wrong."""
    known = credential_of_password(MECHANISM, ALICE, PASSWORD)
    exchange = ScramExchange(MECHANISM, lambda user: known)
    bare = f"n={ALICE},r=mine"
    told = asyncio.run(exchange.step(f"n,,{bare}".encode())).token.decode()
    theirs, salt, rounds = (piece[2:] for piece in told.split(",", 2))
    final = f"c={base64.b64encode(binding).decode()},r={nonce or theirs}"
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), base64.b64decode(salt), int(rounds))
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), f"{bare},{told},{final}".encode(), "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    return asyncio.run(exchange.step(f"{final},p={proof}".encode())).user


def test_scram_compares_nonce_and_channel_binding() -> None:
    assert scram() == ALICE
    for wrong in ({"nonce": "another"}, {"binding": b"y,,"}, {"binding": b"p=tls-unique,,"}):
        with pytest.raises(AuthenticationFailed, match="does not belong to the first"):
            scram(**wrong)


class Everybody:
    """Whose passwords fit, whatever they are."""

    def fits(self, user: str, password: str) -> bool:
        return True


def test_plain_takes_no_empty_name_or_password() -> None:
    exchange = PlainExchange(cast(Passwords, Everybody()))
    assert asyncio.run(exchange.step(b"\0alice\0x")).user == "alice"
    for token in (b"\0alice\0", b"\0\0x", b"\0\0"):
        with pytest.raises(AuthenticationFailed, match="empty"):
            asyncio.run(exchange.step(token))


@pytest.mark.parametrize(
    ("claims", "fine"),
    [
        ({"iss": "us"}, True),
        ({"iss": "others"}, False),
        ({}, False),
        ({"iss": "us", "exp": None}, False),
        ({"iss": "us", "exp": 1}, False),
    ],
)
def test_tokens_have_the_issuer_and_an_end(tmp_path: Path, claims: dict[str, Any], fine: bool) -> None:
    issuer = Issuer(tmp_path / "jwks.json", "ES256")
    options = {"sasl.oauthbearer.jwks.endpoint.url": issuer.url, "sasl.oauthbearer.expected.issuer": "us"}
    tokens = TokenValidator(BrokerConfig.from_options(options))
    token = issuer.token(**claims)
    if fine:
        assert asyncio.run(tokens.user_of(token))[0] == ALICE
    else:
        with pytest.raises(AuthenticationFailed):
            asyncio.run(tokens.user_of(token))


def test_a_token_acts_for_nobody_else(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "jwks.json", "ES256")
    tokens = TokenValidator(BrokerConfig.from_options({"sasl.oauthbearer.jwks.endpoint.url": issuer.url}))

    def login(as_whom: str) -> str | None:
        message = f"n,a={as_whom},\x01auth=Bearer {issuer.token()}\x01\x01".encode()
        return asyncio.run(OauthExchange(tokens).step(message)).user

    assert login(ALICE) == ALICE
    with pytest.raises(AuthenticationFailed, match="acting for another"):
        login("admin")


@pytest.mark.parametrize(
    ("protocols", "lowest", "highest"),
    [("", "TLSv1_2", "TLSv1_3"), ("TLSv1.3", "TLSv1_3", "TLSv1_3"), ("TLSv1.2", "TLSv1_2", "TLSv1_2")],
)
def test_versions_of_tls(tmp_path: Path, protocols: str, lowest: str, highest: str) -> None:
    options = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(Pki(tmp_path).broker)}
    config = BrokerConfig.from_options(options | ({"ssl.enabled.protocols": protocols} if protocols else {}))
    (listener,) = listeners_of(config)
    context = ListenerTls(listener, config).context
    assert (context.minimum_version.name, context.maximum_version.name) == (lowest, highest)
