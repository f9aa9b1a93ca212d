"""The bundled broker and Apache Kafka with the same listeners, certificates and users, for an admin who asks
both about `sasl.*`, `ssl.*` and `listener.name.*` (KIP-226)."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire
from tests.broker.security.securitykit import free_ports, plain_jaas
from tests.broker.security.stores import Stores
from tests.scenarios.apache_kafka import ApacheKafka

BROKER = 4
OWN, EVERY = "1", ""
"""The names of the broker's resource: this one, and the default of all."""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
SOURCES = {1: "topic", 2: "broker", 3: "every broker", 4: "start", 5: "default"}

Change = tuple[str, int, str | None]


def settings(stores: Stores) -> dict[str, str]:
    """The options of both at the start, beside the listeners."""
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas(carol="carol-password"),
        "listener.name.ssl.ssl.keystore.type": "PEM",
        "listener.name.ssl.ssl.keystore.location": stores("broker"),
        "listener.name.ssl.ssl.truststore.type": "PEM",
        "listener.name.ssl.ssl.truststore.location": stores("first"),
        "listener.name.ssl.ssl.client.auth": "required",
    }


class ThreeListeners(ApacheKafka):
    """Apache Kafka with listeners PLAINTEXT, SSL and SASL_PLAINTEXT."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({})
        self.ssl_port, self.sasl_port = free_ports(2)
        listeners = addresses(self.port, self.ssl_port, self.sasl_port)
        self._settings |= options | {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
        }


def addresses(plain: int, tls: int, sasl: int) -> str:
    return f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls},SASL_PLAINTEXT://127.0.0.1:{sasl}"


@dataclass
class Subject:
    """One of the two brokers."""

    name: str
    port: int
    ssl_port: int
    stores: Stores
    restart: Callable[[], object]
    _marks: Iterator[int] = field(default_factory=lambda: itertools.count(1_000_000))

    def admin(self) -> Wire:
        return Wire("127.0.0.1", self.port, 30)

    def alter(self, resource: str, *changes: Change, validate_only: bool = False) -> str:
        """IncrementalAlterConfigs; the error's name. What was changed is in effect on return."""
        configs = [
            {"name": n, "config_operation": operation, "value": value} for n, operation, value in changes
        ]
        return self._altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resource, configs, validate_only)

    def replace(self, resource: str, options: dict[str, str]) -> str:
        """AlterConfigs; the error's name."""
        configs = [{"name": n, "value": value} for n, value in options.items()]
        return self._altered(ApiKey.ALTER_CONFIGS, 2, resource, configs, False)

    def _altered(self, key: ApiKey, version: int, resource: str, configs: object, validate_only: bool) -> str:
        wanted = {"resource_type": BROKER, "resource_name": resource, "configs": configs}
        with self.admin() as wire:
            (answer,) = wire.call(key, version, resources=[wanted], validate_only=validate_only)["responses"]
            if self.name == "kafka" and answer["error_code"] == 0 and not validate_only:
                self._settle(wire)
                self._settle(wire)  # a second one comes only when all of the first is done
        return ErrorCode(answer["error_code"]).name

    def _settle(self, wire: Wire) -> None:
        """Kafka answers before a change is in effect: wait until a later one is."""
        name, value = "log.cleaner.min.compaction.lag.ms", str(next(self._marks))
        config = {"name": name, "config_operation": SET, "value": value}
        wanted = {"resource_type": BROKER, "resource_name": EVERY, "configs": [config]}
        wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[wanted], validate_only=False)
        deadline = time.monotonic() + 30
        while self.described(EVERY, [name], wire).get(name, {}).get("value") != value:
            assert time.monotonic() < deadline, "a change does not come into effect"
            time.sleep(0.02)

    def described(
        self, resource: str, names: list[str] | None = None, wire: Wire | None = None
    ) -> dict[str, dict[str, Any]]:
        """DescribeConfigs with synonyms; a missing option is not there."""
        wanted = {"resource_type": BROKER, "resource_name": resource, "configuration_keys": names}
        with self.admin() if wire is None else contextlib.nullcontext(wire) as asked:
            (found,) = asked.call(
                ApiKey.DESCRIBE_CONFIGS,
                4,
                resources=[wanted],
                include_synonyms=True,
                include_documentation=False,
            )["results"]
        assert found["error_code"] == 0, found
        return {one["name"]: one for one in found["configs"]}

    def tls(self, user: str = "alice") -> Wire:
        """A new connection by TLS that has been served a request. OSError if it is not."""
        return self.stores.connection(self.ssl_port, user)

    def lets_in(self, user: str = "alice") -> bool:
        """Whether a new connection of this user is served."""
        return self.stores.lets_in(self.ssl_port, user)


@contextlib.contextmanager
def both(directory: Path) -> Iterator[tuple[Subject, Subject]]:
    """Apache Kafka and the bundled broker, with files of the same names in folders of their own."""
    folders = [directory / name for name in ("kafka", "eoslog")]
    for folder in folders:
        folder.mkdir()
    theirs, ours = map(Stores, folders)
    plain, tls, sasl = free_ports(3)
    config = settings(ours) | {"listeners": addresses(plain, tls, sasl)}
    with ThreeListeners(settings(theirs)) as kafka, EmbeddedBroker(config=config, log_level="info") as eoslog:
        yield (
            Subject("kafka", kafka.port, kafka.ssl_port, theirs, kafka.restart),
            Subject("eoslog", plain, tls, ours, eoslog.restart),
        )
