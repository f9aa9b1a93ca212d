"""Connections that never finish their TLS handshake: they count, cost bounded memory, and go."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from eoslog.broker.network.tls_acceptor import TlsAcceptor
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import create
from tests.broker.security.securitykit import Pki, free_ports

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
