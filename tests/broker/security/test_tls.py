"""TLS: the stores that server.properties names, and handshakes that are never finished."""

from __future__ import annotations

import asyncio
import contextlib
import select
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from eoslog.broker.network.server import TlsAcceptor
from eoslog.protocol.apis import ApiKey
from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.broker.broker_clients import Wire, create
from tests.broker.security.securitykit import Pki, free_ports, serial
from tests.kit.java_stores import KEY_WORD, WORD, Stores
from tests.kit.program import until

# -- stores --------------------------------------------------------------------------------------
# The stores that a Kafka broker's server.properties names, JKS and PKCS12, as the bundled broker's own.

KINDS = ("JKS", "PKCS12")
TLS = "listener.name.ssl."


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    assert shutil.which("keytool"), "Java's keytool makes the stores: make setup installs Java"
    return Stores(tmp_path_factory.mktemp("stores"))


def own(stores: Stores, kind: str, prefix: str = "") -> dict[str, str]:
    """The options of a key store and a trust store of this kind, as Kafka has them."""
    options = {
        "ssl.keystore.location": stores.keys[kind], "ssl.keystore.password": WORD,
        "ssl.truststore.location": stores.trust[kind], "ssl.truststore.password": WORD,
    } | ({"ssl.key.password": KEY_WORD} if kind == "JKS" else {})  # fmt: skip
    return {prefix + name: value for name, value in options.items()}


class Site:
    """A broker with a listener for all and one that wants a certificate of the authority."""

    def __init__(self, stores: Stores, config: dict[str, str]) -> None:
        self.stores = stores
        plain, self.port = free_ports(2)
        listeners = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{self.port}"
        self.broker = EmbeddedBroker(
            config={"listeners": listeners, "ssl.client.auth": "required"} | config, log_level="info"
        )

    def serial(self) -> str:
        """Log in with a certificate, and see which one the broker has."""
        context = ssl.create_default_context(cafile=str(self.stores.ca))
        context.load_cert_chain(self.stores.pem("alice"))
        wire = Wire("127.0.0.1", self.port)
        with context.wrap_socket(wire.socket, server_hostname="127.0.0.1") as wire.socket:
            assert wire.call(ApiKey.METADATA, 9, topics=[])["brokers"]
            return serial(wire)

    def refused(self) -> None:
        """Without a certificate nobody is served."""
        wire = Wire("127.0.0.1", self.port)
        context = ssl.create_default_context(cafile=str(self.stores.ca))
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            context.wrap_socket(wire.socket, server_hostname="127.0.0.1") as wire.socket,
        ):
            wire.call(ApiKey.METADATA, 9, topics=[])

    def alter(self, options: dict[str, str]) -> int:
        """IncrementalAlterConfigs of the broker; the error code."""
        configs = [{"name": n, "config_operation": 0, "value": value} for n, value in options.items()]
        resources = [{"resource_type": 4, "resource_name": "1", "configs": configs}]
        with Wire(self.broker.host, self.broker.port) as wire:
            answer = wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
        code: int = answer["responses"][0]["error_code"]
        return code


@pytest.mark.parametrize("said", [None, "JKS", "PKCS12", "pkcs12"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_brokers_own_stores(stores: Stores, kind: str, said: str | None) -> None:
    types = {} if said is None else {"ssl.keystore.type": said, "ssl.truststore.type": said}
    site = Site(stores, own(stores, kind) | types)
    with site.broker:
        assert site.serial()
        site.refused()
        assert not {WORD, KEY_WORD} & set(site.broker.output().replace("'", " ").split())


def test_a_type_of_one_listener_is_what_it_says(stores: Stores) -> None:
    """Its base option's default means: what the file is. An own type does not."""
    pem = {"ssl.keystore.location": stores.pem("broker"), "ssl.truststore.location": str(stores.ca)}
    with Site(stores, pem).broker:
        pass
    with (
        pytest.raises(BrokerFailed, match=r"ssl\.keystore\.type: .*broker\.pem is PEM, not JKS"),
        Site(stores, pem | {TLS + "ssl.keystore.type": "JKS"}).broker,
    ):
        pass


def test_a_renewed_store_is_read_and_a_wrong_one_is_not(stores: Stores, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jks"
    shutil.copy(stores.keys["JKS"], kept)
    site = Site(stores, own(stores, "JKS") | {"ssl.keystore.location": str(kept)})
    with site.broker:
        first = site.serial()
        renewed = Path(stores.key_store("JKS", "renewed")).read_bytes()
        kept.write_bytes(renewed[:-40])
        until(lambda: "the new certificate is not taken" in site.broker.output(), "the error")
        assert "ssl.keystore.password does not open" in site.broker.output()
        assert site.serial() == first
        kept.write_bytes(renewed)
        until(lambda: site.serial() != first, "the renewed certificate")


def test_from_pem_to_a_java_store_while_it_runs(stores: Stores) -> None:
    """KIP-226: a listener's stores with their passwords in one request; a wrong password changes nothing."""
    pem = {"ssl.keystore.location": stores.pem("broker"), "ssl.truststore.location": str(stores.ca)}
    site = Site(stores, pem)
    with site.broker:
        first = site.serial()
        wanted = own(stores, "PKCS12", TLS)
        assert site.alter(wanted | {TLS + "ssl.keystore.password": "open-sesame"}) == 42
        assert site.serial() == first
        assert site.alter(wanted) == 0
        second = site.serial()
        assert second != first
        site.refused()
        site.broker.restart()
        assert site.serial() == second


Wrong = dict[str, Any]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ssl.keystore.password": "open-sesame"}, r"ssl\.keystore\.password does not open"),
        ({"ssl.truststore.password": "open-sesame"}, r"ssl\.truststore\.password does not open"),
        ({"ssl.keystore.password": ""}, r"ssl\.keystore\.password is missing"),
        ({"ssl.keystore.location": ""}, r"ssl\.keystore\.password: name its store in"),
        ({"ssl.truststore.location": ""}, r"ssl\.truststore\.password: name its store in"),
        ({"ssl.key.password": "open-sesame"}, r"ssl\.key\.password"),
        ({"ssl.keystore.type": "PEM"}, r"ssl\.keystore\.type: .* not PEM"),
        ({"ssl.keystore.location": "trust"}, r"ssl\.keystore\.location: .* has no private key"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(stores: Stores, kind: str, options: Wrong, says: str) -> None:
    given = {name: stores.trust[kind] if value == "trust" else value for name, value in options.items()}
    with (
        pytest.raises(BrokerFailed, match=f"listener SSL: {says}") as failed,
        Site(stores, own(stores, kind) | given).broker,
    ):
        pass
    assert "Traceback" not in str(failed.value)
    assert not {WORD, KEY_WORD, "open-sesame"} & set(str(failed.value).replace("'", " ").split())


# -- handshakes without an end -------------------------------------------------------------------
# Connections that never finish their TLS handshake: they count, cost bounded memory, and go.

MOST = 10
MANY = 200


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, int, Pki]]:
    pki, (port,) = Pki(tmp_path), free_ports(1)
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{port}",
        "ssl.keystore.location": str(pki.broker),
        "max.connections": str(MOST),
    }
    with EmbeddedBroker(config=config) as broker:
        yield broker, port, pki


def silent(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), 5) for _ in range(count)]


def still_open(sockets: list[socket.socket]) -> int:
    """How many the broker has not closed, when it has had its time."""
    time.sleep(1)
    ended, _, _ = select.select(sockets, [], [], 0)
    return len(sockets) - len(ended)


def served(port: int, pki: Pki) -> bool:
    """Whether a client gets through its handshake."""
    context = ssl.create_default_context(cafile=str(pki.ca))
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 5) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as made,
        ):
            return made.version() is not None
    except OSError:
        return False


def test_handshakes_that_do_not_come_are_bounded(site: tuple[EmbeddedBroker, int, Pki]) -> None:
    broker, port, pki = site
    assert served(port, pki)
    memory = psutil.Process(broker.pid).memory_info().rss
    held = silent(port, MANY)
    assert still_open(held) <= MOST
    assert psutil.Process(broker.pid).memory_info().rss - memory < MOST * (1 << 20)
    assert not served(port, pki) and "before its TLS handshake" in broker.output()
    for one in held:
        one.close()
    until = time.monotonic() + 20
    while not served(port, pki):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_handshakes_that_fail_leave_no_trace(site: tuple[EmbeddedBroker, int, Pki]) -> None:
    _, port, pki = site
    for _ in range(3 * MOST):
        (one,) = silent(port, 1)
        with contextlib.suppress(OSError):
            one.sendall(b"no TLS at all, and no Kafka either\r\n\r\n")
            one.recv(100)
        one.close()
    assert served(port, pki)


def test_the_other_listener_has_its_places_by_the_same_count(site: tuple[EmbeddedBroker, int, Pki]) -> None:
    broker, port, pki = site
    create(broker.bootstrap, "t")
    until = time.monotonic() + 20
    while not served(port, pki):  # the client that made the topic goes
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_connection_before_its_handshake_is_done_costs_little(tmp_path: Path) -> None:
    pki, (port,) = Pki(tmp_path), free_ports(1)
    config = {"listeners": f"SSL://127.0.0.1:{port}", "ssl.keystore.location": str(pki.broker)}
    with EmbeddedBroker(config=config) as broker:
        assert served(port, pki)
        process = psutil.Process(broker.pid)
        before = process.memory_info().rss
        held = silent(port, MANY)
        until = time.monotonic() + 20
        while process.num_fds() < MANY:
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(0.5)  # the last ones have their buffers now
        each = (process.memory_info().rss - before) / MANY
        assert each < 100 << 10, f"{each:.0f} bytes a connection"
        for one in held:
            one.close()


def test_handshakes_begin_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred that begin in one round of the event loop would hold up all others."""
    begun: list[int] = []

    async def opened() -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=MANY)
        context = Pki(tmp_path)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(context.broker)
        door = TlsAcceptor([listening], lambda: tls, asyncio.Protocol, lambda: None)
        loop, rounds = asyncio.get_running_loop(), [0]

        def next_round() -> None:
            rounds[0] += 1
            loop.call_soon(next_round)

        async def shake_hands(raw: socket.socket, host: str) -> None:
            begun.append(rounds[0])
            raw.close()

        monkeypatch.setattr(door, "_shake_hands", shake_hands)
        clients = silent(listening.getsockname()[1], 50)  # all wait before the door is open
        loop.call_soon(next_round)
        door.open(MANY)
        until = time.monotonic() + 20
        while len(begun) < 50:
            assert time.monotonic() < until
            await asyncio.sleep(0.01)
        door.close()
        for one in clients:
            one.close()

    asyncio.run(opened())
    assert len(set(begun)) == 50, begun
