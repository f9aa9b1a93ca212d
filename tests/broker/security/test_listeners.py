"""Listeners by Kafka's names: how they are read, TLS, certificates of clients, what is told to whom."""

import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.broker.security.listeners import Listener, listeners_of
from eoslog.broker.security.principals import distinguished_name, mapped
from eoslog.protocol.apis import ApiKey
from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.broker.broker_clients import Wire
from tests.broker.security.securitykit import STANDARD, Pki, free_ports


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


def serial(wire: Wire) -> Any:
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
            before = serial(wire)
            pki.renew()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with tls_wire(pki, port) as other:
                    if serial(other) != before:
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
