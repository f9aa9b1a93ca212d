"""Kerberos logins with a real KDC, on the bundled broker and on Apache Kafka: `make test-kerberos`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.broker.security.gssapi import GssapiExchange, Keys
from eoslog.broker.security.listeners import listeners_of
from eoslog.broker.security.passwords import AuthenticationFailed, SaslStep
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.options.source_options import source_options
from eoslog.errors import AuthenticationRefused
from eoslog.protocol.typed import METADATA
from eoslog.testing import EmbeddedBroker
from tests.broker.security.securitykit import free_ports
from tests.docs.reader import PAGES, blocks_of
from tests.kit.kerberos import (
    ALICE,
    BROKER,
    KRB5,
    MARKS,
    REALM,
    SERVERS,
    Kdc,
    apache,
    bundled,
    jaas_option,
    login_of,
    sasl,
)
from tests.scenarios.apache_kafka import JARS

if TYPE_CHECKING:
    from eoslog.protocol.typed import MetadataRequestDraft

pytestmark = MARKS
JAAS_OPTION = jaas_option("SASL_PLAINTEXT")
LIFE = 12
"""Of the short-lived tickets, in seconds."""


@pytest.fixture(scope="module")
def ours(kdc: Kdc) -> Iterator[int]:
    """The port of a bundled broker's listener."""
    with bundled(kdc) as server:
        yield server.port


@pytest.fixture(scope="module")
def kafka(kdc: Kdc) -> Iterator[int]:
    """The port of Apache Kafka's listener."""
    with apache(kdc) as server:
        yield server.port


def config_of(port: int, jaas: str, **more: str) -> ClientConfig:
    """A client's settings as Spark's users write them."""
    given = {
        "kafka.bootstrap.servers": f"localhost:{port}", "subscribe": "t",
        "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.jaas.config": jaas,
        "kafka.sasl.kerberos.service.name": "kafka", "kafka.request.timeout.ms": "10000",
    }  # fmt: skip
    return source_options(
        given | {f"kafka.{k.replace('__', '.')}": v for k, v in more.items()}, stream=False
    ).client


def topics_of(config: ClientConfig) -> int:
    """Log in and make a request that only alice may: the error code for a new topic."""
    with closing(Cluster(config)) as cluster:
        body: MetadataRequestDraft = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
        answer = cluster.any_broker().call(METADATA, body)
    return int(answer["topics"][0]["error_code"])


UNKNOWN_TOPIC, NOT_ALLOWED = 3, 29


@pytest.mark.parametrize("server", SERVERS)
def test_a_keytab(kdc: Kdc, server: str, request: pytest.FixtureRequest) -> None:
    port = request.getfixturevalue(server)
    kdc.keytab(f"bob@{REALM}")
    for name, code in (("alice", UNKNOWN_TOPIC), ("bob", NOT_ALLOWED)):
        jaas = login_of(str(kdc.folder / f"{name}.keytab"), f"{name}@{REALM}")
        assert topics_of(config_of(port, jaas)) == code, name
        assert topics_of(config_of(port, jaas, sasl__mechanism="GSSAPI")) == code, name


@pytest.mark.parametrize("server", SERVERS)
def test_a_ticket_cache(kdc: Kdc, server: str, request: pytest.FixtureRequest) -> None:
    port = request.getfixturevalue(server)
    cache = kdc.folder / "alice.cache"
    jaas = f'{KRB5} useTicketCache=true ticketCache="{cache}";'
    with pytest.raises(AuthenticationRefused, match="run kinit, or give a keytab"):
        topics_of(config_of(port, jaas))
    kdc.run("kinit", "-c", str(cache), "-k", "-t", str(kdc.folder / "alice.keytab"), ALICE)
    assert topics_of(config_of(port, jaas)) == UNKNOWN_TOPIC
    cache.unlink()


@pytest.mark.kafka
def test_a_java_client_on_ours(kdc: Kdc, ours: int) -> None:
    settings = kdc.folder / "client.properties"
    jaas = login_of(str(kdc.folder / "alice.keytab"), ALICE)
    settings.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name=kafka\nsasl.jaas.config={jaas}\n"
    )
    tool = ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"localhost:{ours}"]
    command = ["--command-config", str(settings), "--create", "--topic", "by-java"]
    java = ["java", "-Xmx256m", f"-Djava.security.krb5.conf={kdc.config}", "-cp", f"{JARS}/*"]
    done = subprocess.run([*java, *tool, *command], capture_output=True, text=True, timeout=100, check=False)
    assert "Created topic by-java." in done.stdout, done.stderr[-3000:]


def test_the_page_s_options(kdc: Kdc) -> None:
    """Those of docs/logins.md and security.md, but for TLS, and for the names of machine, realm and files."""
    pages = [next(page for page in PAGES if page.name == name) for name in ("logins.md", "security.md")]
    blocks = [block for page in pages for block in blocks_of(page)]
    (port,), text = free_ports(1), [block.code for block in blocks if "Krb5LoginModule" in block.code]
    kdc.keytab(f"spark@{REALM}")
    for page_s, here in (
        ("SASL_SSL", "SASL_PLAINTEXT"), ("sasl_ssl", "sasl_plaintext"), ("EXAMPLE.ORG", REALM),
        ("kafka.example.org:9093", f"localhost:{port}"), ("kafka/kafka.example.org", "kafka/localhost"),
        ("/etc/eoslog/kafka.keytab", f"{kdc.folder}/kafka_localhost.keytab"), ("/etc/spark", str(kdc.folder)),
    ):  # fmt: skip
        text = [one.replace(page_s, here) for one in text]
    of_client, of_broker = (dict(line.split("=", 1) for line in one.splitlines()) for one in text)
    given = {"kafka.bootstrap.servers": f"localhost:{port}", "subscribe": "t"} | of_client
    with EmbeddedBroker(config=of_broker):
        assert topics_of(source_options(given, stream=False).client) == UNKNOWN_TOPIC


def test_tickets_of_a_keytab_are_replaced_before_they_end(kdc: Kdc, ours: int) -> None:
    """The KDC may be away at that moment: the old ticket is still good."""
    from eoslog.client.wire.kerberos import credentials

    principal = f"short@{REALM}"
    jaas = login_of(kdc.keytab(principal), principal)
    kdc.run("kadmin.local", "modprinc", "-maxlife", f"{LIFE}sec", principal)
    config = config_of(ours, jaas)
    assert config.security.sasl is not None
    kerberos = config.security.sasl.kerberos
    assert kerberos is not None
    assert topics_of(config) == NOT_ALLOWED
    first, ends = credentials(kerberos).lifetime, time.monotonic() + LIFE
    assert 0 < first <= LIFE
    while credentials(kerberos).lifetime <= ends - time.monotonic() + 1:
        assert time.monotonic() < ends, "the ticket ended, and there is no other"
        time.sleep(0.2)
    assert topics_of(config) == NOT_ALLOWED
    time.sleep(max(0.0, ends - time.monotonic() + 1))
    assert topics_of(config) == NOT_ALLOWED


def test_a_cache_whose_ticket_has_ended(kdc: Kdc, ours: int) -> None:
    cache = kdc.folder / "ended.cache"
    kdc.run("kinit", "-l", "1s", "-c", str(cache), "-k", "-t", str(kdc.folder / "alice.keytab"), ALICE)
    time.sleep(2)
    with pytest.raises(
        AuthenticationRefused, match=r"ticket has expired: renew it \(kinit\), or give a keytab"
    ):
        topics_of(config_of(ours, f'{KRB5} useTicketCache=true ticketCache="{cache}";'))


def test_what_is_wrong_is_said_at_the_first_contact(kdc: Kdc, ours: int) -> None:
    wrong = f"carol@{REALM}"
    old = kdc.keytab(wrong, "old.keytab")
    kdc.keytab(wrong, "new.keytab")  # a new key: the old one is worth nothing
    keytab = str(kdc.folder / "alice.keytab")
    for jaas, service, says in (
        (login_of(old, wrong), "kafka", "the keytab's key is not the KDC's"),
        (login_of(keytab, f"nobody@{REALM}"), "kafka", "nobody@.*the keytab must have this principal"),
        (login_of("/no/such.keytab", ALICE), "kafka", "/no/such.keytab cannot be read"),
        (login_of(keytab, ALICE), "storm", "storm@localhost.*check kafka.sasl.kerberos.service.name"),
    ):
        begun = time.monotonic()
        with pytest.raises(AuthenticationRefused, match=says):
            topics_of(config_of(ours, jaas, sasl__kerberos__service__name=service))
        assert time.monotonic() - begun < 30


def test_a_principal_that_the_kdc_has_no_more(kdc: Kdc, ours: int) -> None:
    gone = f"gone@{REALM}"
    keytab = kdc.keytab(gone)
    kdc.run("kadmin.local", "delprinc", "-force", gone)
    with pytest.raises(AuthenticationRefused, match="check the principal: the KDC does not know it"):
        topics_of(config_of(ours, login_of(keytab, gone)))


def test_a_kdc_that_is_away(kdc: Kdc, ours: int) -> None:
    principal = f"dave@{REALM}"
    jaas = login_of(kdc.keytab(principal), principal)
    kdc.stop()
    try:
        with pytest.raises(AuthenticationRefused, match=r"check the KDCs in krb5\.conf"):
            topics_of(config_of(ours, jaas))
    finally:
        kdc.start()
    assert topics_of(config_of(ours, jaas)) == NOT_ALLOWED


CLIENT = """
import sys
from tests.client.test_kerberos import config_of, topics_of
print(topics_of(config_of(int(sys.argv[1]), sys.argv[2])))
"""


def test_clocks_that_are_apart(kdc: Kdc, ours: int) -> None:
    """The client's is an hour ahead, and krb5.conf forbids to make up for it."""
    kdc.write_config(kdc.port, " kdc_timesync = 0\n")
    try:
        done = subprocess.run(
            ["faketime", "-f", "+3600s", sys.executable, "-c", CLIENT, str(ours),
             login_of(str(kdc.folder / "alice.keytab"), ALICE)],
            env=kdc.environment, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
    finally:
        kdc.write_config(kdc.port)
    assert done.returncode != 0
    assert "AuthenticationRefused" in done.stderr
    assert "synchronize" in done.stderr, done.stderr[-2000:]


def test_an_insisting_broker_and_an_insisting_client(kdc: Kdc, ours: int) -> None:
    """RFC 4752: the one offers integrity alone, the other wants it."""
    import gssapi

    from eoslog.client.wire.kerberos import login

    broker = gssapi.SecurityContext(creds=gssapi.Credentials(
        name=gssapi.Name(BROKER, gssapi.NameType.kerberos_principal), usage="accept",
        store={"keytab": str(kdc.folder / "kafka_localhost.keytab")}), usage="accept")  # fmt: skip
    answers = iter((broker.step, lambda _: broker.wrap(b"\2\0\1\0", False).message))
    sasl = config_of(ours, login_of(str(kdc.folder / "alice.keytab"), ALICE)).security.sasl
    assert sasl is not None
    assert sasl.kerberos is not None
    with pytest.raises(AuthenticationRefused, match="insists on a security layer"):
        login(lambda token: next(answers)(token) or b"", sasl.kerberos, "localhost")


@pytest.mark.parametrize(("choice", "says"), [
    (b"\1\0\0\0", ""), (b"\2\0\0\0", "a security layer"), (b"\1\0\0\0mallory", "another user"),
])  # fmt: skip
def test_what_the_broker_takes_of_a_client(kdc: Kdc, choice: bytes, says: str) -> None:
    import gssapi

    config = BrokerConfig.from_options(sasl(kdc, 1))
    exchange = GssapiExchange(Keys(listeners_of(config)[0], config))
    name = gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service)
    client = gssapi.SecurityContext(
        name=name, usage="initiate", creds=gssapi.Credentials(
            name=gssapi.Name(ALICE, gssapi.NameType.kerberos_principal), usage="initiate",
            store={"client_keytab": str(kdc.folder / "alice.keytab"), "ccache": "MEMORY:choice"}),
        flags=gssapi.RequirementFlag.mutual_authentication,
    )  # fmt: skip

    async def talk() -> SaslStep:
        answer = (await exchange.step(client.step() or b"")).token
        client.step(answer)
        offer = client.unwrap((await exchange.step(b"")).token).message
        assert offer == b"\1\0\0\0"
        return await exchange.step(client.wrap(choice, False).message)

    if says:
        with pytest.raises(AuthenticationFailed, match=says):
            asyncio.run(talk())
    else:
        assert asyncio.run(talk()).user == "alice"


@pytest.mark.parametrize(("change", "says"), [
    ({"sasl.kerberos.service.name": "storm"}, "storm: the principal is kafka/"),
    ({JAAS_OPTION: login_of("/no.keytab", BROKER)}, "cannot be read"),
    ({"sasl.kerberos.principal.to.local.rules": "RULE:x"}, "RULE:x"),
])  # fmt: skip
def test_a_broker_does_not_start_with_what_is_wrong(kdc: Kdc, change: dict[str, str], says: str) -> None:
    config = BrokerConfig.from_options(sasl(kdc, 1) | change)
    with pytest.raises(ConfigError, match=says):
        Keys(listeners_of(config)[0], config)
