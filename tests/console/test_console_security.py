"""The console behind the broker's own authentication and access rules, and who it may be open to."""

from __future__ import annotations

import asyncio
import base64
import http.client
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.broker.config.options import OperationsOptions, SecurityOptions
from eoslog.broker.console import login
from eoslog.broker.console.start import _check_exposure, _check_logins, chosen
from eoslog.broker.main import Node, StartError
from eoslog.broker.ports import OsFileSystem
from eoslog.broker.security.listeners import Listener
from eoslog.broker.security.passwords import Credentials
from eoslog.broker.security.sasl import SaslMechanisms
from tests.broker.security.securitykit import (
    ADMIN,
    ALICE,
    ALICE_SECRET,
    SECRET,
    STANDARD,
    Issuer,
    Pki,
    free_ports,
    plain_jaas,
)
from tests.console.console_site import PATIENCE, Answer, Site, create, history, member
from tests.kit.program import until

pytestmark = pytest.mark.timeout(600)  # a broker may take long to start on a busy machine

CAROL, CAROL_SECRET = "carol", "carol:with:colons"
RULES = {
    ALICE: ("READ TOPIC orders", "DESCRIBE GROUP team", "DESCRIBE TRANSACTIONAL_ID orders-job"),
    CAROL: ("DESCRIBE TOPIC secret", "WRITE TRANSACTIONAL_ID secret-job"),
}


class Closed(Site):
    """A broker with TLS, all mechanisms and ACLs; its PLAINTEXT listener is the test's own way in."""

    def __init__(self, directory: Path) -> None:
        self.pki, self.issuer = Pki(directory), Issuer(directory / "jwks.json", "ES256")
        (port,) = free_ports(1)
        users = directory / "users"
        users.write_text(f"{ADMIN}={SECRET}\n")
        super().__init__(**{
            "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:{port}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain_jaas(**{ALICE: ALICE_SECRET}),
            "sasl.users.file": str(users),
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.url,
            "ssl.keystore.location": str(self.pki.broker),
            "connection.failed.authentication.delay.ms": "20",
            "authorizer.class.name": STANDARD,
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
            "console.writable": "true",
        })  # fmt: skip
        self.trusted = ssl.create_default_context(cafile=str(self.pki.ca))

    def fill(self) -> list[Any]:
        """Topics, groups, transactions, users and rules; answers the clients that stay."""
        client = self.client()
        create(client, "orders", "secret")
        kept: list[Any] = [history(client, "orders"), history(client, "secret")]
        kept += [
            member(client, group, topic, 1) for group, topic in (("team", "orders"), ("others", "secret"))
        ]
        admin = AdminClient(client)
        key = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion(CAROL, key, CAROL_SECRET.encode(), b"a salt of 16 byt")
        for done in admin.alter_user_scram_credentials([upsertion]).values():
            done.result(PATIENCE)
        rules = [_acl(user, *rule.split()) for user, given in RULES.items() for rule in given]
        for made in admin.create_acls(rules).values():
            made.result(PATIENCE)
        return kept


def _acl(user: str, operation: str, kind: str, name: str) -> AclBinding:
    return AclBinding(
        ResourceType[kind], name, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation[operation],
        AclPermissionType.ALLOW,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    with Closed(tmp_path_factory.mktemp("closed")) as opened:
        kept = opened.fill()
        yield opened
        for consumer in kept[2:]:
            consumer.close()


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


AS_ADMIN, AS_ALICE, AS_CAROL = basic(ADMIN, SECRET), basic(ALICE, ALICE_SECRET), basic(CAROL, CAROL_SECRET)


def look(site: Site, headers: dict[str, str], what: str, **given: Any) -> Any:
    answer = site.get(f"/api/{what}", headers, **given)
    assert answer.status == 200, answer
    return answer.json


def abort(site: Closed, headers: dict[str, str], row: Any) -> Answer:
    names = ("transactional_id", "producer_id", "epoch", "started_ms")
    return site.post("transactions/abort", {n: row[n] for n in names}, {"X-Eoslog-Console": "1"} | headers)


def test_nobody_gets_in_without_a_name(site: Closed) -> None:
    assert site.address.startswith("https://")
    for path in ("/", "/console.js", "/api/about", "/api/topics", "/api/nothing"):
        answer = site.get(path)
        assert answer.status == 401 and answer.json["error"]
        offered = answer.headers.get_all("WWW-Authenticate", [])
        assert [text.split()[0] for text in offered] == ["Basic", "Bearer"]
    assert site.post("transactions/abort", {}).status == 401


@pytest.mark.parametrize("headers", [
    basic(ALICE, "wrong"), basic("nobody", SECRET), basic(CAROL, ALICE_SECRET), basic(ADMIN, ""),
    basic("", ""),
    {"Authorization": "Basic !"}, {"Authorization": "Basic"}, {"Authorization": "Basic //79"},
    {"Authorization": "Bearer not.a.token"}, {"Authorization": "Negotiate abc"},
    {"Authorization": "Basic " + base64.b64encode(b"alice\0x:y\0z").decode()},
])  # fmt: skip
def test_wrong_names_and_passwords(site: Closed, headers: dict[str, str]) -> None:
    answer = site.get("/api/about", headers)
    assert answer.status == 401 and b"secret" not in answer.body


@pytest.mark.parametrize(("headers", "name"), [(AS_ADMIN, ADMIN), (AS_ALICE, ALICE), (AS_CAROL, CAROL)])
def test_the_users_of_every_source(site: Closed, headers: dict[str, str], name: str) -> None:
    """From the users' file, a JAAS text, and the SCRAM keys that clients manage."""
    for _ in range(2):
        assert look(site, headers, "about")["user"] == f"User:{name}"


def test_tokens(site: Closed) -> None:
    token = {"Authorization": f"Bearer {site.issuer.token(ALICE)}"}
    assert look(site, token, "about")["user"] == f"User:{ALICE}"
    assert site.get("/api/about", {"Authorization": f"Bearer {site.issuer.token(ALICE, -60)}"}).status == 401


def test_one_sees_what_one_may_describe(site: Closed) -> None:
    assert [one["name"] for one in look(site, AS_ALICE, "topics")["topics"]] == ["orders"]
    assert [one["name"] for one in look(site, AS_CAROL, "topics")["topics"]] == ["secret"]
    assert {"orders", "secret"} <= {one["name"] for one in look(site, AS_ADMIN, "topics")["topics"]}
    assert [one["group"] for one in look(site, AS_ALICE, "groups")["groups"]] == ["team"]
    assert look(site, AS_CAROL, "groups")["groups"] == []
    names = [
        one["transactional_id"] for one in look(site, AS_ALICE, "transactions", state="all")["transactions"]
    ]
    assert names == ["orders-job"]
    assert look(site, AS_ALICE, "hanging")["held_back"] == 1
    for path, given in (("partitions", {"topic": "secret"}), ("messages", {"topic": "secret"}), ("rates", {}),
                        ("group", {"group": "others"})):  # fmt: skip
        refused = site.get(f"/api/{path}", AS_ALICE, **given)
        assert refused.status == 403 and "AUTHORIZATION_FAILED" in refused.json["error"], path


def test_records_are_for_those_who_may_read(site: Closed) -> None:
    """Carol may describe the topic, no more."""
    assert look(site, AS_CAROL, "partitions", topic="secret")["partitions"][0]["high_watermark"] == 9
    for level in ("read_committed", "read_uncommitted"):
        for offset in (-1, 0):
            given = {"topic": "secret", "isolation": level, "offset": offset}
            refused = site.get("/api/messages", AS_CAROL, **given)
            assert refused.status == 403 and b"kept" not in refused.body
    assert len(look(site, AS_ALICE, "messages", topic="orders", offset=0)["records"]) == 3


def test_what_concerns_the_whole_broker(site: Closed) -> None:
    for user, rates in ((AS_ALICE, False), (AS_ADMIN, True)):
        assert look(site, user, "about")["rates"] is rates
        assert (look(site, user, "topics", filter="orders")["topics"][0]["bytes"] is not None) is rates
    assert look(site, AS_ADMIN, "rates")["ago"] is not None


def test_aborts_are_for_those_who_may_use_the_id(site: Closed) -> None:
    (row,) = look(site, AS_ALICE, "transactions")["transactions"]
    assert not row["abortable"] and "you may not use" in row["why_not"]
    refused = abort(site, AS_ALICE, row)
    assert refused.status == 403 and "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in refused.json["error"]
    assert look(site, AS_ALICE, "transactions")["transactions"][0]["state"] == "Ongoing"
    (hers,) = look(site, AS_CAROL, "transactions")["transactions"]
    assert (hers["transactional_id"], hers["partitions"], hers["abortable"]) == (
        "secret-job",
        ["secret-0"],
        True,
    )
    assert abort(site, AS_CAROL, row).status == 409, "she does not even see the other one"
    done = abort(site, AS_CAROL, hers)
    assert (done.status, done.json["state"]) == (200, "CompleteAbort")
    place = {"topic": "orders", "partition": 0, "producer_id": row["producer_id"], "start_offset": 6}
    marked = site.post("hanging/abort", place, {"X-Eoslog-Console": "1"} | AS_ALICE)
    assert marked.status == 403 and "CLUSTER_AUTHORIZATION_FAILED" in marked.json["error"]


def test_no_password_in_the_log(site: Closed) -> None:
    said = site.broker.output()
    assert "authentication by" in said, "failures are logged"
    for secret in (SECRET, ALICE_SECRET, CAROL_SECRET, AS_ADMIN["Authorization"].split()[1]):
        assert secret not in said


def test_without_tls_there_is_nothing(site: Closed) -> None:
    place = urlsplit(site.address)
    plain = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        plain.request("GET", "/api/about", headers=AS_ADMIN)
        plain.getresponse()
    plain.close()


def test_certificates_as_names(tmp_path: Path) -> None:
    """A listener that asks for certificates: the console does, too."""
    pki = Pki(tmp_path)
    config = {
        "listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(pki.broker),
        "ssl.client.auth": "required", "ssl.truststore.location": str(pki.ca),
    }  # fmt: skip
    with Site(**config) as site:
        site.trusted = ssl.create_default_context(cafile=str(pki.ca))
        with pytest.raises(OSError):
            site.get("/api/about")
        site.trusted.load_cert_chain(str(pki.client))
        assert site.look("about")["user"].startswith("User:CN=alice,O")
        trustme.CA().cert_pem.write_to_path(str(pki.ca))

        def refused() -> bool:
            try:
                return site.get("/api/about").status == 0
            except OSError:
                return True

        until(refused, "an authority that left the trust store is trusted by the console")


def test_tokens_alone(tmp_path: Path) -> None:
    """No password to ask for: the page itself is open, as it shows nothing; it asks for the token."""
    issuer = Issuer(tmp_path / "jwks.json", "ES256")
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
    }  # fmt: skip
    with Site(**config) as site:
        assert site.get("/").status == site.get("/console.js").status == 200
        refused = site.get("/api/about")
        assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Bearer realm="eoslog console"')
        assert site.get("/api/about", basic(ALICE, ALICE_SECRET)).status == 401
        told = site.get("/api/about", {"Authorization": f"Bearer {issuer.token(ALICE)}"})
        assert told.json["user"] == f"User:{ALICE}"


# How long a password counts


def test_a_password_that_was_changed_counts_no_longer_than_remembered(tmp_path: Path) -> None:
    """What was right is remembered for a while, as SCRAM's sums are slow; the clock is the test's."""
    users, now = tmp_path / "users", [0.0]
    users.write_text("alice=old\n")
    given = SecurityOptions(
        sasl_users_file=str(users), sasl_enabled_mechanisms="SCRAM-SHA-256", failed_authentication_delay_ms=0
    )
    config = BrokerConfig(security=given)
    listener = Listener("SASL_SSL", "SASL_SSL")
    credentials = Credentials(OsFileSystem(), str(tmp_path))
    broker = SimpleNamespace(sasl=SaslMechanisms([listener], config, credentials), credentials=credentials)

    async def run(work: Any) -> Any:
        return await work

    async def known(password: str) -> bool:
        given = basic("alice", password)["Authorization"]
        try:
            return (await door.caller(given, "127.0.0.1", "User:ANONYMOUS")).name == "User:alice"
        except login.NotAuthenticated:
            return False

    async def scenario() -> None:
        assert await known("old") and not await known("new")
        users.unlink()
        users.write_text("alice=new and longer\n")
        now[0] = login.REMEMBERED - 1
        assert await known("old") and await known("new and longer")
        now[0] = login.REMEMBERED + 1
        assert not await known("old") and await known("new and longer")

    inside: Any = SimpleNamespace(broker=broker, run=run)
    door = login.ConsoleLogin(inside, listener, lambda: now[0])
    asyncio.run(scenario())


def test_headers_that_are_no_text_are_refused_without_a_fuss(site: Closed) -> None:
    for given in ("Basic \xff\xfe", "Bearer \xe9", "\xff"):
        assert site.get("/api/about", {"Authorization": given}).status == 401


def test_passwords_cannot_be_tried_one_after_the_other() -> None:
    now, a, b = [0.0], ("host", "alice"), ("host", "bob")
    tries = login.Tries(lambda: now[0])
    for _ in range(login.FREE_TRIES):
        tries.check(a)
        tries.wrong(a)
    with pytest.raises(login.TooManyTries, match="wrong 5 times"):
        tries.check(a)
    tries.check(b)
    now[0] = login.PAUSE
    tries.check(a)
    tries.wrong(a)
    now[0] += login.PAUSE / 2
    with pytest.raises(login.TooManyTries):
        tries.check(a)
    tries.right(a)
    tries.check(a)
    for _ in range(login.FREE_TRIES):
        tries.wrong(a)
    now[0] += login.FORGIVEN
    tries.wrong(b)
    tries.check(a)


def test_who_is_wrong_too_often_is_told_to_wait(site: Closed) -> None:
    tried = [site.get("/api/about", basic("dave", f"wrong {n}")).status for n in range(login.FREE_TRIES + 2)]
    assert tried == [401] * login.FREE_TRIES + [429] * 2
    assert look(site, AS_ALICE, "about")["user"] == f"User:{ALICE}", "others may come in"


# To whom it may be open

SASL_SSL, SASL_PLAIN, PLAIN, SSL = (
    Listener(name, name, "127.0.0.1", port)
    for port, name in enumerate(("SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT", "SSL"), 9092)
)
CERTIFICATES = Listener("SSL", "SSL", own={"ssl.client.auth": "required"})

EXPOSED = [
    ("127.0.0.1", PLAIN, True), ("localhost", PLAIN, True), ("::1", SASL_PLAIN, True),
    ("127.9.9.9", PLAIN, True), ("0.0.0.0", PLAIN, False), ("", PLAIN, False), ("192.168.1.4", SSL, False),
    ("broker.example", PLAIN, False),
    ("0.0.0.0", SASL_PLAIN, False), ("0.0.0.0", SASL_SSL, True), ("192.168.1.4", CERTIFICATES, True),
]  # fmt: skip


@pytest.mark.parametrize(("host", "listener", "fine"), EXPOSED)
def test_beyond_this_machine_only_with_names_and_tls(
    host: str, listener: Listener, fine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig(operations=OperationsOptions(console_listen=f"{host}:80"))
    if fine:
        _check_exposure(host, listener, config)
    else:
        with pytest.raises(ConfigError, match=r"console\.insecure=true"):
            _check_exposure(host, listener, config)
        bold = OperationsOptions(console_listen=f"{host}:80", console_insecure=True)
        _check_exposure(host, listener, BrokerConfig(operations=bold))
    assert bool(caplog.records) is not fine, "what is allowed all the same is warned of"


def test_the_strictest_listener_is_the_consoles() -> None:
    config = BrokerConfig()
    assert chosen([PLAIN, SSL, CERTIFICATES, SASL_PLAIN, SASL_SSL], config) is SASL_SSL
    assert chosen([PLAIN, SASL_PLAIN], config) is SASL_PLAIN
    assert chosen([PLAIN, SSL, CERTIFICATES], config) is CERTIFICATES
    assert chosen([PLAIN, SSL], config) is SSL
    plaintext = OperationsOptions(console_listener="plaintext")
    assert chosen([PLAIN, SASL_SSL], BrokerConfig(operations=plaintext)) is PLAIN
    with pytest.raises(ConfigError, match="must be one of the listeners PLAINTEXT"):
        chosen([PLAIN], BrokerConfig(operations=OperationsOptions(console_listener="other")))


@pytest.mark.parametrize("mechanisms", ["GSSAPI", " GSSAPI, "])
def test_a_listener_of_kerberos_alone_lets_nobody_in(mechanisms: str) -> None:
    """Browsers have no tickets for the console: it says so at the start, not to each who comes."""
    config = BrokerConfig.from_options({"sasl.enabled.mechanisms": mechanisms})
    with pytest.raises(ConfigError, match="listener SASL_SSL has no other logins than Kerberos"):
        _check_logins(SASL_SSL, config)
    both = BrokerConfig.from_options({"sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-256"})
    _check_logins(SASL_SSL, both)
    _check_logins(SSL, config)


def refusal(data: Path, address: str) -> str:
    """Why a broker with a console there does not start."""

    async def start() -> None:
        options = {"log.dirs": str(data), "listen.port": "0", "console.listen": address}
        await Node(BrokerConfig.from_options(options)).start()

    with pytest.raises(StartError) as refused:
        asyncio.run(start())
    return str(refused.value)


def test_what_a_start_is_refused_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal(tmp_path, "0.0.0.0:0")
    assert "the console at 0.0.0.0:0 has no authentication, and is reached from other machines" in said
    assert "must be HOST:PORT" in refusal(tmp_path, "8080")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refusal(tmp_path, f"127.0.0.1:{taken.getsockname()[1]}")
    assert "cannot serve the console at 127.0.0.1" in said and "Address already in use" in said
    monkeypatch.delitem(sys.modules, "eoslog.broker.console.server")
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    said = refusal(tmp_path, "127.0.0.1:0")
    assert said == "console.listen needs aiohttp: pip install 'eoslog[console]'"


def test_nothing_is_imported_that_nobody_asked_for(tmp_path: Path) -> None:
    """A broker without a console is as small and as quick to start as before."""
    code = (
        "import asyncio, sys\n"
        "from eoslog.broker.config import BrokerConfig\n"
        "from eoslog.broker.main import Node\n"
        "async def run():\n"
        f"    options = {{'log.dirs': {str(tmp_path)!r}, 'listen.port': '0'}}\n"
        "    node = Node(BrokerConfig.from_options(options))\n"
        "    await node.start(); await node.finish(); await node.close()\n"
        "asyncio.run(run())\n"
        "print([name for name in sys.modules if name.startswith(('aiohttp', 'eoslog.broker.console'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
