"""Each step of a login: what it compares, SCRAM without a hint who is known, names of Kerberos principals."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any, cast

import pytest

from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.broker.config.options import SecurityOptions
from eoslog.broker.log.files import write_whole
from eoslog.broker.ports import OsFileSystem
from eoslog.broker.security import passwords
from eoslog.broker.security.gssapi import local_name, parse_rules
from eoslog.broker.security.listeners import Listener, listeners_of
from eoslog.broker.security.oauth import OauthExchange, TokenValidator
from eoslog.broker.security.passwords import (
    AuthenticationFailed,
    Credentials,
    Passwords,
    PlainExchange,
    ScramExchange,
    credential_of_password,
)
from eoslog.broker.security.sasl import SaslMechanisms
from eoslog.broker.security.session import ClientSession
from eoslog.broker.security.tls import ListenerTls
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.scram import ClientExchange, salted_password
from tests.broker.security.securitykit import ALICE, Issuer, Pki

# -- one step at a time --------------------------------------------------------------------------
# What each step of a login compares, one at a time: with all else right.

MECHANISM, PASSWORD = "SCRAM-SHA-256", "a password"


def scram_exchange(binding: bytes = b"n,,", nonce: str = "") -> str | None:
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
    assert scram_exchange() == ALICE
    for wrong in ({"nonce": "another"}, {"binding": b"y,,"}, {"binding": b"p=tls-unique,,"}):
        with pytest.raises(AuthenticationFailed, match="does not belong to the first"):
            scram_exchange(**wrong)


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


# -- SCRAM ---------------------------------------------------------------------------------------
# SCRAM for users whom the configuration names: nobody learns who is known, and a try costs no sums.

LISTENER = Listener("SASL_SSL", "SASL_SSL")
SCRAM_256 = "SCRAM-SHA-256"


class Site:
    """The mechanisms of a broker, and how many sums it has done since."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._users = folder / "users"
        self.know(alice="secret", bob="another")
        given = SecurityOptions(
            sasl_users_file=str(self._users),
            sasl_enabled_mechanisms=SCRAM_256,
            failed_authentication_delay_ms=0,
        )
        config = BrokerConfig(security=given)
        self.sasl = SaslMechanisms([LISTENER], config, Credentials(OsFileSystem(), str(folder)))
        self.sums = 0
        real = salted_password

        def counted(*given: object) -> bytes:
            self.sums += 1
            return real(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(passwords, "salted_password", counted)

    def know(self, **users: str) -> None:
        lines = "".join(f"{name}={password}\n" for name, password in users.items())
        write_whole(OsFileSystem(), str(self._users), lines.encode())

    def begun(self, user: str) -> tuple[ClientSession, ClientExchange, bytes]:
        """A session that has been sent the first message; what was answered."""
        session, client = ClientSession(LISTENER), ClientExchange(SCRAM_256, user, "", "nonce")
        self.sasl.choose(session, SCRAM_256, raw=False)
        step, _ = asyncio.run(self.sasl.step(session, client.first(), "here"))
        return session, client, step.token

    def salt(self, user: str) -> str:
        """Salt and iterations, as the first answer has them."""
        return self.begun(user)[2].decode().partition(",")[2]

    def lets_in(self, user: str, password: str) -> bool:
        session, client = ClientSession(LISTENER), ClientExchange(SCRAM_256, user, password, "nonce")
        self.sasl.choose(session, SCRAM_256, raw=False)

        async def exchange() -> None:
            step, _ = await self.sasl.step(session, client.first(), "here")
            await self.sasl.step(session, client.final(step.token), "here")

        try:
            asyncio.run(exchange())
        except KafkaError:
            return False
        return session.principal == f"User:{user}"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_known_and_unknown_users_have_a_salt_that_stays(site: Site) -> None:
    salts = {user: site.salt(user) for user in ("alice", "bob", "mallory", "nobody")}
    assert len(set(salts.values())) == len(salts)
    assert {user: site.salt(user) for user in salts} == salts
    assert len({(len(salt), salt.rpartition(",")[2]) for salt in salts.values()}) == 1, "of one form"


def test_a_try_costs_no_sums(site: Site) -> None:
    assert site.lets_in("alice", "secret") and site.lets_in("bob", "another")
    assert not site.lets_in("alice", "another") and not site.lets_in("mallory", "secret")
    assert site.sums == 0


def test_changed_passwords_count_at_once_and_are_reckoned_once(site: Site) -> None:
    site.know(alice="changed", bob="another", carol="new")
    assert site.lets_in("alice", "changed") and not site.lets_in("alice", "secret")
    assert site.lets_in("carol", "new") and site.lets_in("bob", "another")
    assert site.sums == 2, "bob's is as it was"
    site.know(bob="another")
    assert not site.lets_in("alice", "changed") and site.sums == 2


# -- Kerberos principals -------------------------------------------------------------------------
# From Kerberos principals to users: Kafka's rules, case by case.

REALM = "A.ORG"


@pytest.mark.parametrize(("rules", "principal", "user"), [
    ("DEFAULT", "alice@A.ORG", "alice"),
    ("DEFAULT", "kafka/host.a.org@A.ORG", "kafka"),
    ("DEFAULT", "alice@B.ORG", None),
    ("DEFAULT", "alice", None),
    ("DEFAULT", "a/b/c@A.ORG", None),
    ("RULE:[1:$1@$0](.*@B.ORG)s/@.*//,DEFAULT", "alice@B.ORG", "alice"),
    ("RULE:[1:$1@$0](.*@B.ORG)s/@.*//,DEFAULT", "alice@A.ORG", "alice"),
    ("RULE:[1:$1@$0](.*@B.ORG)s/@.*//,DEFAULT", "alice@C.ORG", None),
    ("RULE:[2:$1_$2]", "kafka/h1@C.ORG", "kafka_h1"),
    ("RULE:[2:$1_$2]", "kafka@C.ORG", None),
    ("RULE:[1:$1]s/a/x/", "banana@A.ORG", "bxnana"),
    ("RULE:[1:$1]s/a/x/g", "banana@A.ORG", "bxnxnx"),
    ("RULE:[1:$1]s/(b)(a)/$2$1/", "banana@A.ORG", "abnana"),
    ("RULE:[1:$1]/L", "ALICE@A.ORG", "alice"),
    ("RULE:[1:$1]/U", "alice@A.ORG", "ALICE"),
    ("RULE:[1:$1@$0]", "alice@A.ORG", None),
    ("", "alice@A.ORG", None),
    ("RULE:[1:$1](),DEFAULT", "alice@A.ORG", "alice"),
    ("RULE:[1:$1]s//x/", "alice@A.ORG", "xalice"),
])  # fmt: skip
def test_a_principal_s_user(rules: str, principal: str, user: str | None) -> None:
    assert local_name(principal, rules, REALM) == user


@pytest.mark.parametrize(
    "rules", ["default", "RULE:[1:$2]", "RULE:1:$1", "RULE:[1:$1](()", "RULE:[1:$1]s/(//"]
)
def test_rules_that_are_none(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        parse_rules(rules)
