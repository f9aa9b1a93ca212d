"""Brokers behind Kerberos logins, and what their clients are given: for tests with a realm (kdc.py)."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import peer_kafka
from eoslog.testing import EmbeddedBroker
from tests.broker.security import kdc as realm
from tests.broker.security.kdc import BROKER, REALM, Kdc
from tests.broker.security.securitykit import free_ports
from tests.kit.java_stores import WORD, Stores
from tests.scenarios.apache_kafka import JARS

MARKS = [
    pytest.mark.kerberos,
    pytest.mark.skipif(
        bool(realm.missing()), reason=f"no Kerberos here, make test-kerberos gets it: {realm.missing()}"
    ),
]
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
ALICE = f"alice@{REALM}"
SERVERS = ("ours", pytest.param("kafka", marks=pytest.mark.kafka))
"""Names of fixtures: the bundled broker, and Apache Kafka."""

_RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice;User:ANONYMOUS",
}
_JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Server:
    """Where a broker listens. `sasl`: for Kerberos, as `protocol`; `plain`: for whoever checks on it."""

    protocol: str
    sasl: str
    plain: str
    ca: str = ""

    @property
    def port(self) -> int:
        return int(self.sasl.rpartition(":")[2])

    def options(self, jaas: str | None, prefix: str = "kafka.") -> dict[str, str]:
        """A client's settings as Spark's users write them; with no prefix, as those of Kafka's tools do."""
        given = {
            "bootstrap.servers": self.sasl, "security.protocol": self.protocol,
            "sasl.kerberos.service.name": "kafka",
        }  # fmt: skip
        given |= {"ssl.truststore.location": self.ca} if self.ca else {}
        given |= {"sasl.jaas.config": jaas} if jaas is not None else {}
        return {f"{prefix}{name}": value for name, value in given.items()}

    def properties(self, path: Path, jaas: str | None) -> str:
        """A file for --command-config with these settings."""
        path.write_text("".join(f"{name}={value}\n" for name, value in self.options(jaas, "").items()))
        return str(path)


def login_of(keytab: str, principal: str) -> str:
    """A JAAS text with a keytab."""
    return f'{KRB5} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}";'


def jaas_option(protocol: str) -> str:
    """The broker's option with its own keytab."""
    return f"listener.name.{protocol.lower()}.gssapi.sasl.jaas.config"


def sasl(kdc: Kdc, port: int, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    """The options of a broker with a listener for Kerberos."""
    return {
        "listeners": f"{protocol}://localhost:{port}",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        jaas_option(protocol): login_of(str(kdc.folder / "kafka_localhost.keytab"), BROKER),
    }


@contextmanager
def bundled(
    kdc: Kdc, stores: Stores | None = None, config: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """The bundled broker, where alice may do everything; with TLS if there are stores. `config`: of its
    options."""
    protocol, ca = _tls(stores)
    (port,) = free_ports(1)
    options = sasl(kdc, port, protocol) | _RIGHTS | dict(config or {})
    options["listeners"] = f"PLAINTEXT://127.0.0.1:0,{options['listeners']}"
    if stores is not None:
        options["ssl.keystore.location"] = stores.pem("broker")
    with EmbeddedBroker(config=options) as broker:
        yield Server(protocol, f"localhost:{port}", broker.bootstrap, ca)


@contextmanager
def apache(
    kdc: Kdc, stores: Stores | None = None, config: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """The same of Apache Kafka."""
    assert any(JARS.glob("kafka-clients-*.jar")), (
        f"no Kafka in {JARS}: make test-kerberos fetches it by Maven"
    )
    protocol, ca = _tls(stores)
    (port,) = free_ports(1)
    node = peer_kafka.ApacheKafka(JARS, {}, (*_JVM, f"-Djava.security.krb5.conf={kdc.config}"))
    mine = sasl(kdc, port, protocol)
    plain = f"PLAINTEXT://127.0.0.1:{node.port},{mine['listeners']}"
    node._settings = mine | _RIGHTS | {
        "listeners": f"{plain},CONTROLLER://127.0.0.1:{node._controller}",
        "advertised.listeners": plain,
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
    } | _keys(stores) | dict(config or {})  # fmt: skip
    with node:
        yield Server(protocol, f"localhost:{port}", node.bootstrap, ca)


def _tls(stores: Stores | None) -> tuple[str, str]:
    return ("SASL_PLAINTEXT", "") if stores is None else ("SASL_SSL", str(stores.ca))


def _keys(stores: Stores | None) -> dict[str, str]:
    if stores is None:
        return {}
    store = {"location": stores.keys["PKCS12"], "type": "PKCS12", "password": WORD}
    return {f"ssl.keystore.{name}": value for name, value in store.items()}


def keys_of(kdc: Kdc, keytab: str) -> list[bytes]:
    """What must not be seen anywhere: a keytab's keys, raw, as hex and as base64."""
    listed = kdc.run("klist", "-K", "-k", keytab)
    raw = [bytes.fromhex(word[3:-1]) for word in listed.split() if word.startswith("(0x")]
    assert raw, listed
    return [form for key in raw for form in (key, key.hex().encode(), base64.b64encode(key))]
