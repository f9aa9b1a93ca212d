"""SCRAM for users whom the configuration names: nobody learns who is known, and a try costs no sums."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.security import SecurityOptions
from eoslog.broker.log.segment.files import write_whole
from eoslog.broker.ports.ports import OsFileSystem
from eoslog.broker.security import scram
from eoslog.broker.security.credentials import Credentials
from eoslog.broker.security.listeners import Listener
from eoslog.broker.security.sasl import SaslMechanisms
from eoslog.broker.security.session import ClientSession
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.scram import ClientExchange, salted_password

LISTENER = Listener("SASL_SSL", "SASL_SSL")
MECHANISM = "SCRAM-SHA-256"


class Site:
    """The mechanisms of a broker, and how many sums it has done since."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._users = folder / "users"
        self.know(alice="secret", bob="another")
        given = SecurityOptions(
            sasl_users_file=str(self._users),
            sasl_enabled_mechanisms=MECHANISM,
            failed_authentication_delay_ms=0,
        )
        config = BrokerConfig(security=given)
        self.sasl = SaslMechanisms([LISTENER], config, Credentials(OsFileSystem(), str(folder)))
        self.sums = 0
        real = salted_password

        def counted(*given: object) -> bytes:
            self.sums += 1
            return real(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(scram, "salted_password", counted)

    def know(self, **users: str) -> None:
        lines = "".join(f"{name}={password}\n" for name, password in users.items())
        write_whole(OsFileSystem(), str(self._users), lines.encode())

    def begun(self, user: str) -> tuple[ClientSession, ClientExchange, bytes]:
        """A session that has been sent the first message; what was answered."""
        session, client = ClientSession(LISTENER), ClientExchange(MECHANISM, user, "", "nonce")
        self.sasl.choose(session, MECHANISM, raw=False)
        step, _ = asyncio.run(self.sasl.step(session, client.first(), "here"))
        return session, client, step.token

    def salt(self, user: str) -> str:
        """Salt and iterations, as the first answer has them."""
        return self.begun(user)[2].decode().partition(",")[2]

    def lets_in(self, user: str, password: str) -> bool:
        session, client = ClientSession(LISTENER), ClientExchange(MECHANISM, user, password, "nonce")
        self.sasl.choose(session, MECHANISM, raw=False)

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
