"""Listeners by Kafka's names: how they are read, changed while the broker runs, and told in
docs/security.md.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from eoslog.broker.config import BrokerConfig, ConfigError, option_table
from eoslog.broker.security.listeners import Listener, listeners_of
from eoslog.broker.security.session import distinguished_name, mapped
from eoslog.cli import main
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.reader import StreamReader
from eoslog.errors import AuthenticationRefused
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.broker.admin.test_admin_configs import BROKER, DELETE, SET, change, configs, replace
from tests.broker.broker_clients import Wire
from tests.broker.operations.test_operating import all_match, steps
from tests.broker.security.securitykit import ADMIN, SECRET, STANDARD, Pki, Stores, free_ports, lives, serial
from tests.docs.test_rights import write_stream


def read(**options: str) -> list[Listener]:
    return listeners_of(
        BrokerConfig.from_options({name.replace("_", "."): text for name, text in options.items()})
    )


def test_without_listeners_there_is_the_simple_one() -> None:
    assert read(listen_host="0.0.0.0", listen_port="0") == [Listener(host="0.0.0.0", port=0)]


def test_several_with_names_protocols_and_what_is_advertised() -> None:
    inside, outside = read(
        listeners="INSIDE://:9092, OUTSIDE://[::1]:9093",
        advertised_listeners="OUTSIDE://kafka.example.org:443",
        listener_security_protocol_map="inside:PLAINTEXT,OUTSIDE:SASL_SSL",
    )
    assert (inside.name, inside.protocol, inside.host, inside.port) == ("INSIDE", "PLAINTEXT", "", 9092)
    assert inside.address(("10.0.0.7", 9092)) == ("10.0.0.7", 9092)
    assert (outside.protocol, outside.host, outside.tls, outside.sasl) == ("SASL_SSL", "::1", True, True)
    assert outside.address(("::1", 9093)) == ("kafka.example.org", 443)
    assert str(outside) == "OUTSIDE://[::1]:9093"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"listeners": "127.0.0.1:9092"}, "give NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:99999"}, "give NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "PLAINTEXT is there twice"),
        ({"listeners": "MINE://a:1"}, "says no protocol for listener MINE"),
        ({"listeners": "MINE://a:1", "listener_security_protocol_map": "MINE:TLS"}, "MINE:TLS"),
        ({"advertised_listeners": "PLAINTEXT://a:1"}, "give listeners too"),
        ({"listeners": "SSL://a:1", "advertised_listeners": "PLAINTEXT://a:1"}, "none of the listeners SSL"),
        ({"listeners": "SSL://a:1", "advertised_listeners": "SSL://0.0.0.0:1"}, "must name a host"),
    ],
)
def test_wrong_listeners(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(**options)


SUBJECT = ((("countryName", "DE"),), (("organizationName", 'A, "B"'),), (("commonName", "Alice"),))


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("DEFAULT", r"CN=Alice,O=A\, \"B\",C=DE"),
        ("RULE:^CN=([^,]+),.*$/$1/L", "alice"),
        ("RULE:^CN=([^,]+),.*$/$1@eos/U, DEFAULT", "ALICE@EOS"),
        ("RULE:^OU=.*$/x/, RULE:^CN=(.*?),O=.*,C=(.*)$/$1.$2/", "Alice.DE"),
        ("RULE:^OU=.*$/x/", r"CN=Alice,O=A\, \"B\",C=DE"),
    ],
)
def test_from_certificate_to_user(rules: str, expected: str) -> None:
    assert mapped(distinguished_name(SUBJECT), rules) == expected


@pytest.mark.parametrize("rules", ["RULE:a", "RULE:(/x/", "nonsense", "RULE:a/$2/"])
def test_wrong_mapping_rules(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        mapped("CN=a", rules)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


def tls_broker(pki: Pki, **options: str) -> tuple[EmbeddedBroker, int]:
    (port,) = free_ports(1)
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{port}",
        "ssl.keystore.location": str(pki.broker),
    }
    given = {name.replace("_", "."): text for name, text in options.items()}
    return EmbeddedBroker(config=config | given, log_level="info"), port


def tls_wire(pki: Pki, port: int, *, certificate: bool = False) -> Wire:
    """A raw connection by TLS."""
    context = ssl.create_default_context(cafile=str(pki.ca))
    if certificate:
        context.load_cert_chain(str(pki.client))
    wire = Wire("127.0.0.1", port)
    wire.socket = context.wrap_socket(wire.socket, server_hostname="127.0.0.1")
    return wire


def own_serial(wire: Wire) -> Any:
    assert isinstance(wire.socket, ssl.SSLSocket)
    return (wire.socket.getpeercert() or {})["serialNumber"]


def test_a_stock_client_by_tls_and_large_requests(pki: Pki) -> None:
    broker, port = tls_broker(pki)
    with broker:
        producer = Producer({
            "bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "ssl", "linger.ms": 20,
            "ssl.ca.location": str(pki.ca),
        })  # fmt: skip
        for _ in range(20):
            producer.produce("t", b"x" * 500_000)
        assert producer.flush(20) == 0
        with tls_wire(pki, port) as wire:
            (node,) = wire.call(ApiKey.METADATA, 9, topics=[])["brokers"]
            assert node["port"] == port
            answer = wire.call(
                ApiKey.FETCH, 12, max_wait_ms=100, min_bytes=1, max_bytes=1 << 30,
                topics=[{"topic": "t", "partitions": [{"partition": 0, "partition_max_bytes": 1 << 30}]}],
            )  # fmt: skip
            assert len(answer["responses"][0]["partitions"][0]["records"]) > 9_000_000


def test_a_renewed_certificate_is_taken_without_a_restart(pki: Pki) -> None:
    broker, port = tls_broker(pki)
    with broker:
        with tls_wire(pki, port) as wire:
            before = own_serial(wire)
            pki.renew()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with tls_wire(pki, port) as other:
                    if own_serial(other) != before:
                        break
                time.sleep(0.2)
            else:
                pytest.fail("the old certificate is still shown")
            assert wire.call(ApiKey.METADATA, 9, topics=[])["brokers"], "an open connection goes on"
        text = pki.broker.read_text()
        pki.broker.write_text("garbage")
        deadline = time.monotonic() + 60
        while "the new certificate is not taken" not in broker.output():
            assert time.monotonic() < deadline, broker.output()
            time.sleep(0.1)
        with tls_wire(pki, port) as wire:
            assert wire.call(ApiKey.METADATA, 9, topics=[])["brokers"]
        pki.broker.write_text(text)


def test_a_clients_certificate_says_who_it_is(pki: Pki) -> None:
    broker, port = tls_broker(
        pki, ssl_client_auth="required", ssl_truststore_location=str(pki.ca),
        ssl_principal_mapping_rules="RULE:.*CN=([^,]+).*/$1/L", authorizer_class_name=STANDARD,
        super_users="User:alice",
    )  # fmt: skip
    with broker:
        with pytest.raises((ssl.SSLError, ConnectionError)), tls_wire(pki, port) as wire:
            wire.call(ApiKey.METADATA, 9, topics=[])
        every = {
            "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
            "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
        }  # fmt: skip
        with tls_wire(pki, port, certificate=True) as wire:
            assert wire.call(ApiKey.DESCRIBE_ACLS, 2, **every)["error_code"] == 0
        with Wire(broker.host, broker.port) as wire:
            assert wire.call(ApiKey.DESCRIBE_ACLS, 2, **every)["error_code"] == 31


def test_plain_bytes_at_a_tls_port_do_no_harm(pki: Pki) -> None:
    broker, port = tls_broker(pki)
    with broker:
        for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 1000):
            with socket.create_connection(("127.0.0.1", port), 5) as client:
                client.sendall(data)
        with tls_wire(pki, port) as wire:
            assert wire.call(ApiKey.METADATA, 9, topics=[])["brokers"]
        assert "Traceback" not in broker.output(), broker.output()


def test_certificates_as_texts(pki: Pki) -> None:
    text = pki.broker.read_text()
    split = text.index("-----BEGIN CERTIFICATE")
    key, chain = (part.replace("\n", "\\n") for part in (text[:split], text[split:]))
    broker, port = tls_broker(
        pki, ssl_keystore_location="", ssl_keystore_key=key, ssl_keystore_certificate_chain=chain
    )
    with broker, tls_wire(pki, port) as wire:
        assert wire.call(ApiKey.METADATA, 9, topics=[])["brokers"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ssl_keystore_type": "BCFKS"}, "BCFKS cannot be read, only JKS, PKCS12, PEM"),
        ({"ssl_keystore_type": "PKCS12"}, "is PEM, not PKCS12: correct the type"),
        ({"ssl_keystore_password": "x"}, "is PEM, which has no store password"),
        ({"ssl_keystore_location": "/no/such/file"}, "/no/such/file cannot be read"),
        ({"ssl_keystore_location": ""}, "give a file with the private key"),
        ({"ssl_keystore_location": "{ca}"}, "private key and certificate could not be read"),
        ({"ssl_keystore_location": "{binary}"}, "ssl.keystore.password is missing"),
        ({"ssl_keystore_key": "x"}, "ssl.keystore.key: give it or ssl.keystore.location, not both"),
        ({"ssl_client_auth": "required"}, "needs ssl.truststore.location"),
        ({"ssl_client_auth": "always"}, "ssl.client.auth=always"),
        ({"ssl_enabled_protocols": "SSLv3"}, "ssl.enabled.protocols: SSLv3"),
        ({"ssl_truststore_location": "{text}"}, "is neither PEM, JKS nor PKCS12"),
    ],
)
def test_wrong_tls_options(pki: Pki, tmp_path: Path, options: dict[str, str], said: str) -> None:
    binary = tmp_path / "store.jks"
    binary.write_bytes(b"\xfe\xed\xfe\xed" * 10)
    text = tmp_path / "store.txt"
    text.write_text("no store")
    filled = {name: value.format(ca=pki.ca, binary=binary, text=text) for name, value in options.items()}
    broker, _ = tls_broker(pki, **filled)
    with pytest.raises(BrokerFailed) as failed, broker:
        pass
    assert said in str(failed.value)
    assert "Traceback" not in str(failed.value)


# -- changes (KIP-226) ---------------------------------------------------------------------------
# Key stores, trust stores and limits of a listener, changed while the broker runs (KIP-226).

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


# -- docs/security.md ----------------------------------------------------------------------------
# docs/security.md: its example starts a broker that lets in whom it says, its options are there.

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text()


def test_the_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pki, (port,) = Pki(tmp_path), free_ports(1)
    (tmp_path / "users").write_text("admin=the-first\n")
    text = re.search(r"```properties\n(.*?)```", PAGE, re.DOTALL)[1]  # type: ignore[index]
    text = text.replace("/etc/eoslog", str(tmp_path)).replace("0.0.0.0:9093", f"127.0.0.1:{port}")
    text = text.replace("kafka.example.org:9093", f"localhost:{port}")
    options = dict(line.split("=", 1) for line in text.splitlines())
    client: dict[str, str | int | float | bool] = {
        "bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_SSL", "sasl.username": "admin",
        "sasl.mechanism": "SCRAM-SHA-512", "sasl.password": "the-first", "ssl.ca.location": str(pki.ca),
    }  # fmt: skip
    with EmbeddedBroker(config=options) as broker:
        found = AdminClient(client).list_topics(timeout=10)
        assert [str(node) for node in found.brokers.values()] == [f"localhost:{port}/1"]
        with Wire("127.0.0.1", port) as wire:
            wire.socket.sendall(b"\0" * 100)
            assert wire.socket.recv(1) == b""
        (tmp_path / "admin.properties").write_text(
            f"bootstrap.servers=127.0.0.1:{port}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.username=admin\nsasl.password=the-first\nssl.truststore.location={pki.ca}\n"
        )
        (tmp_path / "alice.password").write_text("the-second\n")
        type_the_commands(PAGE[: PAGE.index(_CHANGING)])
        alice = client | {"sasl.username": "alice", "sasl.password": "the-second"}
        assert set(AdminClient(alice).list_topics(timeout=10).topics) == {"orders"}
        assert "the-first" not in broker.output() and "the-second" not in broker.output()


_CHANGING = "### Changing a password"


class Copying:
    """A query that copies `from` to `to` row by row, without Spark around it; stopped and started again."""

    def __init__(self, port: int, checkpoint: Path, **login: str) -> None:
        client = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT"}
        given = {f"kafka.{name.replace('_', '.')}": value for name, value in (client | login).items()}
        place = {"subscribe": "from", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
        into = {"topic": "to", "transactional.id": "copy", "checkpointLocation": str(checkpoint)}
        self._checkpoint = checkpoint
        self._reader = StreamReader(source_options(given | place, stream=True))
        self._sink = sink_options(given | into, stream=True)

    def batch(self) -> None:
        """The next micro-batch."""
        ends = sorted((self._checkpoint / "offsets").iterdir(), key=lambda path: int(path.name))
        start = json.loads(ends[-1].read_text().splitlines()[-1]) if ends else self._reader.initialOffset()
        end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        tasks = self._reader.partitions(start, end)
        read = [[rows.select(["value"]) for rows in self._reader.read(task)] for task in tasks]
        (self._checkpoint / "offsets" / str(len(ends))).write_text(f"v1\n{{}}\n{json.dumps(end)}")
        write_stream(self._sink, len(ends), read)
        (self._checkpoint / "commits" / str(len(ends))).write_text("v1\n{}")


def test_a_password_is_changed_under_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (port,) = free_ports(1)
    checkpoint = tmp_path / "checkpoint"
    for part in ("offsets", "commits"):
        (checkpoint / part).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    (tmp_path / "users").write_text("admin=the-first\n")
    (tmp_path / "old.password").write_text("old-one")
    (tmp_path / "new.password").write_text("new-one")
    (tmp_path / "admin.properties").write_text(
        f"bootstrap.servers=127.0.0.1:{port}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.username=admin\nsasl.password=the-first\n"
    )
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512", "sasl.users.file": str(tmp_path / "users"),
        "connection.failed.authentication.delay.ms": "10",
    }  # fmt: skip
    before, after = re.findall(r"```console\n.*?```", PAGE.partition(_CHANGING)[2], re.DOTALL)
    with EmbeddedBroker(config=config, faults=True) as broker:

        def run(*arguments: str) -> None:
            done = CliRunner().invoke(main, [*arguments, "--bootstrap-server", broker.bootstrap])
            assert done.exit_code == 0, done.output

        run("users", "add", "alice", "--password-file", "old.password")
        run("topics", "create", "from", "to")
        rows = "".join(f"{row}\n" for row in range(7))
        typed = ["produce", "from", "--bootstrap-server", broker.bootstrap]
        assert CliRunner().invoke(main, typed, input=rows).exit_code == 0
        old = Copying(port, checkpoint, sasl_mechanism="SCRAM-SHA-512", sasl_username="alice",
                      sasl_password="old-one")  # fmt: skip
        old.batch()
        type_the_commands(before)
        broker.faults.cut_connections()
        old.batch()  # it logs in again, with the old one
        new = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice"}
        Copying(port, checkpoint, **new, sasl_password="new-one").batch()
        type_the_commands(after)
        broker.faults.cut_connections()
        with pytest.raises(AuthenticationRefused, match="starts with the right ones goes on where it was"):
            Copying(port, checkpoint, sasl_mechanism="SCRAM-SHA-512", sasl_username="alice",
                    sasl_password="old-one").batch()  # fmt: skip
        file = tmp_path / "alice.password"
        file.write_text("new-one")
        running = Copying(port, checkpoint, **new, sasl_password_file=str(file))
        running.batch()
        (tmp_path / "third.password").write_text("third-one")
        run("users", "add", "alice", "--mechanism", "SCRAM-SHA-256", "--password-file", "third.password")
        running.batch()  # on its open connections
        broker.faults.cut_connections()
        change = threading.Timer(1.0, lambda: file.write_text("third-one\n"))
        change.start()
        running.batch()  # its logins wait for the file
        change.join()
        running.batch()
        read = CliRunner().invoke(
            main, ["consume", "to", "--from-beginning", "--to-end", "--bootstrap-server", broker.bootstrap]
        )
        assert read.output.split() == [str(row) for row in range(7)]
        assert not any(word in broker.output() for word in ("old-one", "new-one", "third-one"))


def type_the_commands(page: str) -> None:
    """Those of a page's console blocks, and compare what they print."""
    typed = [step for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL) for step in steps(block)]
    assert typed
    for command, wanted in typed:
        program, *arguments = shlex.split(command)
        assert program == "eoslog"
        lines = CliRunner().invoke(main, arguments).output.splitlines()
        assert all_match(lines, wanted), f"{command} printed\n" + "\n".join(lines)


def test_the_options_it_names_are_there() -> None:
    named = set(
        re.findall(r"`((?:ssl|sasl|max|queued|connections?|socket|super|authorizer)\.[a-z.]+)[`=]", PAGE)
    )
    assert len(named) > 15
    assert named <= set(option_table())
    config = BrokerConfig()
    assert config.network.queued_max_request_bytes == config.network.queued_max_response_bytes == 256 << 20
    assert config.network.request_max_bytes == 100 << 20
    assert config.network.connections_max_idle_ms == 600_000
    assert config.network.connections_max_stalled_ms == 10_000
    assert config.security.sasl_max_receive_size == 512 << 10


def test_the_page_s_closed_broker_can_be_typed(tmp_path: Path) -> None:
    """Its certificates, server.properties and admin.properties, with this machine's address."""
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    page = page.replace("DNS:kafka.example.org", "IP:127.0.0.1").replace("/etc/eoslog", str(tmp_path))
    keys, server, admin = (
        re.search(rf"```{language}\n({first}.*?)```", page, re.DOTALL)
        for language, first in (("bash", "openssl"), ("properties", "listeners"), ("properties", "bootstrap"))
    )
    assert keys and server and admin
    subprocess.run(["bash", "-e", "-c", keys[1]], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    (tmp_path / "users").write_text(f"{ADMIN}={SECRET}\n")
    (port,) = free_ports(1)
    config = dict(line.split("=", 1) for line in server[1].splitlines())
    config["listeners"] = config["advertised.listeners"] = f"SASL_SSL://127.0.0.1:{port}"
    with EmbeddedBroker(config=config):
        mine = admin[1].replace("kafka.example.org:9093", f"127.0.0.1:{port}").replace('"..."', f'"{SECRET}"')
        (tmp_path / "admin.properties").write_text(mine)
        command = ["topics", "create", "orders", "--command-config", str(tmp_path / "admin.properties")]
        told = CliRunner().invoke(main, command)
        assert told.exit_code == 0 and told.output == "topic orders: made\n", told.output
