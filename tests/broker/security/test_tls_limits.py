"""Connections that never finish their TLS handshake: they count, cost bounded memory, and go."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from broker_clients import create
from securitykit import Pki, free_ports

from eoslog.testing import EmbeddedBroker

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
