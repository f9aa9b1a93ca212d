"""Key stores, trust stores and limits of a listener, changed while the broker runs (KIP-226)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.broker.admin.test_admin_configs import BROKER, DELETE, SET, change, configs, replace
from tests.broker.broker_clients import Wire
from tests.broker.security.securitykit import free_ports
from tests.broker.security.stores import Stores, lives, serial

LISTENER = "listener.name.ssl."
KEY, TRUST = LISTENER + "ssl.keystore.location", LISTENER + "ssl.truststore.location"
MOST, RATE = LISTENER + "max.connections", LISTENER + "max.connection.creation.rate"


class Site:
    """A broker with TLS, and an admin's connection beside it."""

    def __init__(self, directory: Path) -> None:
        self.stores = Stores(directory)
        (self.port,) = free_ports(1)
        config = {
            "listeners": f"PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{self.port}",
            KEY: self.stores("broker"),
            TRUST: self.stores("first"),
            LISTENER + "ssl.client.auth": "required",
        }
        self.broker = EmbeddedBroker(config=config, log_level="info")

    def alter(
        self, *changes: tuple[str, int, str | None], name: str = "1", validate: bool = False
    ) -> ErrorCode:
        with Wire(self.broker.host, self.broker.port) as wire:
            return change(wire, BROKER, name, *changes, validate_only=validate)

    def told(self, option: str) -> tuple[object, object]:
        """Value and source."""
        with Wire(self.broker.host, self.broker.port) as wire:
            found = configs(wire, BROKER, "1")[option]
        return found["value"], found["config_source"]

    def serial(self) -> str:
        """The number of the certificate that a new connection is shown."""
        with self.stores.connection(self.port) as wire:
            return serial(wire)

    def lets_in(self, user: str = "alice") -> bool:
        return self.stores.lets_in(self.port, user)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    with made.broker:
        yield made


def test_a_key_store_changes_and_survives_a_kill(site: Site) -> None:
    new = site.stores("renewed")
    with site.stores.connection(site.port) as old:
        before = serial(old)
        assert site.alter((KEY, SET, new), validate=True) == 0
        assert site.serial() == before and site.told(KEY) == (site.stores("broker"), 4)
        assert site.alter((KEY, SET, new)) == 0
        after = site.serial()
        assert after != before and lives(old)
    assert site.told(KEY) == (new, 2)
    site.broker.kill()
    site.broker.start()
    assert site.serial() == after and site.told(KEY) == (new, 2)
    with Wire(site.broker.host, site.broker.port) as wire:
        assert replace(wire, BROKER, "1") == 0
    assert site.serial() == before


@pytest.mark.parametrize("bad", ["garbage", "mixed", "missing"])
def test_a_bad_store_is_refused_and_changes_nothing(site: Site, bad: str) -> None:
    before = site.serial()
    assert site.alter((KEY, SET, site.stores(bad)), (MOST, SET, "5")) == ErrorCode.INVALID_REQUEST
    if bad != "mixed":  # to a trust store a key beside the certificates is nothing
        assert site.alter((TRUST, SET, site.stores(bad))) == ErrorCode.INVALID_REQUEST
    assert site.alter((KEY, SET, site.stores("renewed")), name="") == ErrorCode.INVALID_REQUEST
    assert site.serial() == before and not site.lets_in("bob")
    assert (site.told(KEY), site.told(TRUST)) == ((site.stores("broker"), 4), (site.stores("first"), 4))
    assert site.alter(("log.retention.ms", SET, "5")) == 0


def test_an_authority_that_is_removed_is_trusted_no_more(site: Site) -> None:
    client = site.stores.client("bob")
    assert site.alter((TRUST, SET, site.stores("both"))) == 0
    with site.stores.connection(site.port, context=client) as old:
        session = old.socket.session  # type: ignore[attr-defined]
        with site.stores.connection(site.port, context=client, session=session) as again:
            assert again.socket.session_reused  # type: ignore[attr-defined]
        assert site.alter((TRUST, SET, site.stores("first"))) == 0
        assert site.lets_in("alice") and not site.lets_in("bob") and lives(old)
        with pytest.raises(OSError):
            site.stores.connection(site.port, context=client, session=session)


def test_an_authority_that_leaves_the_file_is_trusted_no_more(site: Site) -> None:
    site.stores.put("kept", "first")
    site.stores.put("first", "both")
    until = time.monotonic() + 60
    while not site.lets_in("bob"):
        assert time.monotonic() < until
    site.stores.put("first", "kept")
    while site.lets_in("bob"):
        assert time.monotonic() < until
    assert site.lets_in("alice")


def test_a_listener_has_limits_of_its_own(site: Site) -> None:
    for name in ("1", ""):
        with site.stores.connection(site.port) as first:
            assert site.alter((MOST, SET, "1"), name=name) == 0
            assert not site.lets_in() and lives(first)
            assert f"1 connections ({MOST})" in site.broker.output()
            assert "before its TLS handshake" in site.broker.output()
            assert site.alter(("log.retention.ms", SET, "5")) == 0, "the other listener has its places"
            assert site.alter((MOST, SET, "2"), name=name) == 0
            assert site.lets_in()
            assert site.alter((MOST, DELETE, None), name=name) == 0


def test_a_listener_has_a_pace_of_its_own(site: Site) -> None:
    assert site.alter((RATE, SET, "1")) == 0
    begun = time.monotonic()
    for _ in range(3):
        assert site.lets_in()
    assert time.monotonic() - begun > 0.9
    assert site.alter((RATE, DELETE, None)) == 0


def test_a_store_that_is_gone_at_the_next_start_stops_it_and_is_named(site: Site) -> None:
    assert site.alter((KEY, SET, site.stores("renewed"))) == 0
    site.broker.stop()
    Path(site.stores("renewed")).rename(site.stores("away"))
    with pytest.raises(BrokerFailed) as failed:
        site.broker.start()
    assert "renewed.pem cannot be read" in str(failed.value)
    assert f"configs.json: {KEY})" in str(failed.value)
    Path(site.stores("away")).rename(site.stores("renewed"))
    site.broker.start()
    assert site.lets_in()


def test_what_is_told_of_a_listener_s_options(site: Site) -> None:
    secret = {f"ssl.{name}" for name in ("keystore.key", "keystore.certificate.chain", "key.password")}
    assert site.alter((LISTENER + "ssl.key.password", SET, "a-secret"), (RATE, SET, "70")) == 0
    with Wire(site.broker.host, site.broker.port) as wire:
        found = configs(wire, BROKER, "1", include_synonyms=True)
    assert secret | {"ssl.truststore.certificates"} <= {
        name for name, one in found.items() if one["is_sensitive"] and one["value"] is None
    }
    assert (site.broker.data / "configs.json").stat().st_mode & 0o777 == 0o600
    password = found[LISTENER + "ssl.key.password"]
    assert (password["value"], password["is_sensitive"], password["config_type"]) == (None, True, 9)
    assert {one["value"] for one in password["synonyms"]} == {None}
    assert (found[RATE]["value"], found[RATE]["read_only"], found[RATE]["config_type"]) == ("70", True, 3)
    assert [(one["name"], one["source"]) for one in found[RATE]["synonyms"]] == [
        (RATE, 2), ("max.connection.creation.rate", 5)
    ]  # fmt: skip
    assert found["max.connection.creation.rate"]["value"] == "2147483647"


def test_options_of_a_listener_that_is_gone_do_no_harm(tmp_path: Path) -> None:
    option = "listener.name.extra.max.connections"
    with (
        EmbeddedBroker(
            config={
                "listeners": "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
            },
            data=tmp_path,
        ) as broker,
        Wire(broker.host, broker.port) as wire,
    ):
        assert change(wire, BROKER, "1", (option, SET, "5")) == 0
    with (
        EmbeddedBroker(data=tmp_path, log_level="info") as broker,
        Wire(broker.host, broker.port) as wire,
    ):
        assert "that listener is gone" in broker.output()
        assert wire.call(ApiKey.API_VERSIONS, 0)["error_code"] == 0
        assert configs(wire, BROKER, "1")[option]["is_sensitive"]
        assert change(wire, BROKER, "1", ("log.retention.ms", SET, "5")) == 0
        assert change(wire, BROKER, "1", (option, DELETE, None)) == 0
        assert option not in configs(wire, BROKER, "1")
