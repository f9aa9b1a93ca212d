"""The brokers of a soak, and what can be done to them: the bundled one, or three Apache Kafka nodes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Protocol

from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.kit.kafka_nodes import ThreeNodes
from tests.scenarios.cutting_proxy import CuttingProxy

FEW = {"offsets.topic.num.partitions": "8", "transaction.state.log.num.partitions": "8"}


class Brokers(Protocol):
    """What a round needs of them. Whoever strikes says when the struck one comes back."""

    replicas: int
    seals: bool

    @property
    def bootstrap(self) -> str: ...
    @property
    def ports(self) -> list[int]: ...
    def strike(self, draw: Random) -> str | None:
        """Kill one; what was killed, None if it cannot be done now."""

    def freeze(self, draw: Random) -> str | None:
        """SIGSTOP to one."""

    def fill_disk(self, draw: Random) -> str | None:
        """Only a few bytes more can be written."""

    def come_back(self) -> None:
        """What is dead, frozen or full gets well, and is waited for."""

    def settle(self) -> None:
        """Wait until all are well, once they have come back."""

    def copy(self, to: Path) -> bool:
        """Copy the data directory of a broker that is dead meanwhile; whether that could be done."""

    def restore(self, copy: Path) -> None:
        """The data directory is that of a copy."""

    def close(self) -> None:
        """Stop them all."""


class Bundled:
    """One bundled broker, with faults on demand."""

    replicas, seals = 1, True

    def __init__(self, data: Path) -> None:
        self._broker = EmbeddedBroker(data, config=FEW, faults=True, timeout=120).start()
        self._alive, self._frozen, self._full = True, False, False

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    @property
    def ports(self) -> list[int]:
        return [self._broker.port]

    def strike(self, draw: Random) -> str | None:
        if not self._alive or self._frozen:
            return None
        self._alive = False
        if draw.random() < 0.25:
            self._broker.lose_unsynced("some", draw.randrange(1 << 30))
            return "power lost"
        self._broker.kill()
        return "kill -9"

    def freeze(self, draw: Random) -> str | None:
        if not self._alive or self._frozen:
            return None
        os.kill(self._broker.pid, signal.SIGSTOP)
        self._frozen = True
        return "SIGSTOP"

    def fill_disk(self, draw: Random) -> str | None:
        if not self._alive or self._frozen:
            return None
        self._broker.faults.disk_full(draw.randrange(20_000))
        self._full = True
        return "disk full"

    def come_back(self) -> None:
        if self._frozen:
            os.kill(self._broker.pid, signal.SIGCONT)
            self._frozen = False
        if self._full and self._alive:  # there is room again: its operator starts it anew
            self._broker.kill()
            self._alive = False
        if not self._alive:
            self._broker.start()
        self._alive, self._full = True, False

    def settle(self) -> None:
        """It is as soon as it is up."""

    def copy(self, to: Path) -> bool:
        if not self._alive or self._frozen or self._full:
            return False
        self._broker.kill()
        shutil.copytree(self._broker.data, to)
        self._broker.start()
        return True

    def restore(self, copy: Path) -> None:
        self._broker.kill()
        shutil.rmtree(self._broker.data)
        shutil.copytree(copy, self._broker.data)
        self._broker.start()

    def close(self) -> None:
        with contextlib.suppress(BrokerFailed):  # the soak was interrupted while it was dead
            self.come_back()
            self._broker.stop()


class Nodes:
    """Three Apache Kafka nodes, of which one at a time is dead or frozen."""

    replicas, seals = 3, False

    def __init__(self, jars: Path) -> None:
        self._nodes = ThreeNodes(jars, {"min.insync.replicas": "2"}, controller_apart=True)
        self._nodes.start()
        self._dead: int | None = None
        self._frozen: int | None = None

    @property
    def bootstrap(self) -> str:
        return self._nodes.bootstrap

    @property
    def ports(self) -> list[int]:
        return [int(address.rpartition(":")[2]) for address in self._nodes.bootstrap.split(",")]

    def _healthy(self) -> bool:
        if self._dead is not None or self._frozen is not None:
            return False
        try:
            self._nodes.wait_until_healthy(0)
        except TimeoutError:
            return False
        return True

    def strike(self, draw: Random) -> str | None:
        if not self._healthy():
            return None
        self._dead = draw.choice(self._nodes.nodes)
        self._nodes.kill(self._dead)
        return "kill -9"

    def freeze(self, draw: Random) -> str | None:
        if not self._healthy():
            return None
        self._frozen = draw.choice(self._nodes.nodes)
        os.kill(self._nodes.pid(self._frozen), signal.SIGSTOP)
        return "SIGSTOP"

    def fill_disk(self, draw: Random) -> str | None:
        return None

    def come_back(self) -> None:
        if self._frozen is not None:
            os.kill(self._nodes.pid(self._frozen), signal.SIGCONT)
            self._frozen = None
        if self._dead is not None:
            self._nodes.start_again(self._dead)
            self._dead = None

    def copy(self, to: Path) -> bool:
        return False

    def settle(self) -> None:
        self._nodes.wait_until_healthy(300)

    def restore(self, copy: Path) -> None:
        raise NotImplementedError("three nodes are not restored here")

    def close(self) -> None:
        self.come_back()
        self._nodes.stop()


class Way:
    """The network between one side of a query (its driver, or its tasks) and all brokers: a proxy each."""

    def __init__(self, ports: list[int]) -> None:
        names: dict[int, int] = {}
        self.proxies = [CuttingProxy("127.0.0.1", port, names) for port in ports]

    @property
    def bootstrap(self) -> str:
        return ",".join(proxy.bootstrap for proxy in self.proxies)


@contextlib.contextmanager
def ways(ports: list[int], number: int) -> Iterator[list[Way]]:
    """So many of them."""
    with contextlib.ExitStack() as stack:
        made = [Way(ports) for _ in range(number)]
        for way in made:
            for proxy in way.proxies:
                stack.enter_context(proxy)
        yield made
