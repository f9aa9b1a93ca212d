"""A Kerberos realm of a test's own, brokers behind its logins, and what their clients are given."""

from __future__ import annotations

import base64
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from eoslog.testing import EmbeddedBroker
from tests.broker.security.securitykit import free_ports
from tests.kit import kafka_nodes
from tests.kit.java_stores import WORD, Stores
from tests.scenarios.apache_kafka import JARS

# -- the realm -------------------------------------------------------------------------------------
# A Kerberos realm of a test's own: MIT's KDC in a temporary folder, on a free port, without root.


REALM = "EOSLOG.TEST"
BROKER = f"kafka/localhost@{REALM}"
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "faketime")
_SECONDS = 30.0


def missing() -> str:
    """What a realm needs and is not there; empty: nothing."""
    lacking = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if importlib.util.find_spec("gssapi") is None:
        lacking.append("python-gssapi")
    return ", ".join(lacking)


class Kdc:
    """A running KDC. Within the context KRB5_CONFIG names its krb5.conf. `life`: of tickets, in seconds."""

    def __init__(self, life: int = 600) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="eoslog-kdc-"))
        (self.port,) = free_ports(1)
        self.config = self.folder / "krb5.conf"
        self._log = self.folder / "kdc.log"
        self._life = life
        self._process: subprocess.Popen[bytes] | None = None
        self._set: dict[str, str | None] = {}
        self.write_config(self.port)
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {self.folder}/principal\n"
            f"  key_stash_file = {self.folder}/stash\n  acl_file = {self.folder}/acl\n"
            f"  max_life = {life}s\n  max_renewable_life = 0s\n }}\n"
            f"[logging]\n kdc = FILE:{self._log}\n"
        )

    def write_config(self, port: int, more: str = "") -> None:
        """krb5.conf with the KDC at a port."""
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            f" rdns = false\n dns_canonicalize_hostname = false\n ticket_lifetime = {self._life}s\n{more}"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
            f"[domain_realm]\n localhost = {REALM}\n"
        )

    @property
    def environment(self) -> dict[str, str]:
        """For the realm's programs and its clients."""
        return {
            **os.environ, "PATH": _PATH, "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"), "KRB5CCNAME": f"FILE:{self.folder}/cache",
            "KRB5RCACHENAME": f"dfl:{self.folder}/replays", "KRB5RCACHEDIR": str(self.folder),
        }  # fmt: skip

    def run(self, *command: str) -> str:
        """Run one of the realm's programs."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        return done.stdout

    def keytab(self, principal: str, file: str = "") -> str:
        """A keytab with a new key of a principal, which is made if it is not there."""
        path = str(self.folder / (file or principal.replace("/", "_").partition("@")[0] + ".keytab"))
        if principal not in self.run("kadmin.local", "listprincs"):
            self.run("kadmin.local", "addprinc", "+requires_preauth", "-randkey", principal)
        self.run("kadmin.local", "ktadd", "-k", path, principal)
        return path

    def start(self) -> None:
        """Start the KDC; returns when it answers."""
        self._process = subprocess.Popen(
            [str(shutil.which("krb5kdc", path=_PATH)), "-n"], env=self.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, "the KDC does not listen"
                time.sleep(0.05)

    def stop(self) -> None:
        """End the KDC."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(_SECONDS)
            self._process = None

    def __enter__(self) -> Self:
        names = ("KRB5_CONFIG", "KRB5CCNAME", "KRB5RCACHENAME", "KRB5RCACHEDIR")
        self._set = {name: os.environ.get(name) for name in names}
        os.environ.update({name: self.environment[name] for name in names})
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "only for this test")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for name, value in self._set.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(self.folder, ignore_errors=True)


# -- brokers and clients ---------------------------------------------------------------------------
# Brokers behind Kerberos logins, and what their clients are given: for tests with a realm (kdc.py).


MARKS = [
    pytest.mark.kerberos,
    pytest.mark.skipif(bool(missing()), reason=f"no Kerberos here, make test-kerberos gets it: {missing()}"),
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
    node = kafka_nodes.ApacheKafka(JARS, {}, (*_JVM, f"-Djava.security.krb5.conf={kdc.config}"))
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
