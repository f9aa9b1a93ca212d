"""Commands over Kerberos logins, by the client properties of --command-config: on the bundled broker and on
Apache Kafka. `make test-kerberos`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
)
from confluent_kafka.admin import ResourceType as Kind

from eoslog.cli import main
from tests.broker.security.securitykit import SECRET, free_ports, plain_jaas
from tests.console.console_site import PATIENCE, Site
from tests.console.test_console_security import basic
from tests.kit.kerberos import (
    ALICE,
    KRB5,
    MARKS,
    REALM,
    SERVERS,
    Kdc,
    Server,
    apache,
    bundled,
    login_of,
    sasl,
)
from tests.rehearse.rehearsing import SWEEPS, document, not_holding

pytestmark = [*MARKS, pytest.mark.timeout(300)]

BOB = f"bob@{REALM}"


@pytest.fixture(scope="module")
def ours(kdc: Kdc) -> Iterator[Server]:
    with bundled(kdc, config=SWEEPS) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(kdc: Kdc) -> Iterator[Server]:
    with apache(kdc) as server:
        yield server


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    started: Server = request.getfixturevalue(request.param)
    return started


def run(file: str, *arguments: str, lines: str = "") -> Result:
    """A command with the file alone: it names the brokers too."""
    return CliRunner().invoke(main, [*arguments, "--command-config", file], input=lines)


def done(file: str, *arguments: str, lines: str = "") -> str:
    result = run(file, *arguments, lines=lines)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_the_commands_and_an_audit(kdc: Kdc, server: Server, tmp_path: Path) -> None:
    file = server.properties(tmp_path / "alice", login_of(str(kdc.folder / "alice.keytab"), ALICE))
    for topic in ("orders", "copied"):
        done(file, "topics", "create", topic, "--partitions", "2")
        done(file, "produce", topic, "--key-separator", ":", lines="a:1\nb:2\nc:3\n")
    assert {"orders", "copied"} <= set(done(file, "topics", "list").split())
    assert sorted(done(file, "consume", "orders", "--from-beginning", "--to-end").split()) == ["1", "2", "3"]
    for command in (("groups", "list"), ("transactions", "list"), ("acls", "list")):
        done(file, *command)
    assert "orders" in done(file, "top", "--once")

    sides = ("audit", "--from", "orders", "--to", "copied")
    assert "right: 3 records are in the target exactly once" in done(file, *sides)
    done(file, "produce", "orders", lines="4\n")
    lost = run(file, *sides)
    assert lost.exit_code == 1 and "lost" in lost.output, lost.output
    wrong = server.properties(tmp_path / "wrong", login_of("/no/such.keytab", ALICE))
    unproven = run(wrong, *sides)
    assert unproven.exit_code == 2
    assert f"GSSAPI as {ALICE}: the keytab /no/such.keytab cannot be read" in unproven.output


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_a_rehearsal(kdc: Kdc, server: Server, tmp_path: Path) -> None:
    file = server.properties(tmp_path / "alice", login_of(str(kdc.folder / "alice.keytab"), ALICE))
    found = document(server.sasl, "--command-config", file)
    assert found["status"] == 0 and not not_holding(found), found
    assert found["killed"][-1] == "after its last command" and not found["left"]


def missing(server: Server, file: str) -> list[str]:
    """The rights that a rehearsal prints as lines of kafka-acls.sh."""
    found: dict[str, Any] = document(server.sasl, "--command-config", file)
    assert found["status"] == 1, found
    return [line for row in found["rows"] for line in row["do"] if line.startswith("kafka-acls.sh")]


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_a_rehearsal_prints_rights_for_the_user_that_brokers_see(
    kdc: Kdc, server: Server, tmp_path: Path
) -> None:
    """Not for the Kerberos principal: a rule of brokers makes a user of it. With a keytab, and with a cache
    whose owner no option names."""
    keytab, cache = kdc.keytab(BOB), tmp_path / "bob.cache"
    kdc.run("kinit", "-c", str(cache), "-k", "-t", keytab, BOB)
    by_keytab = server.properties(tmp_path / "keytab", login_of(keytab, BOB))
    by_cache = server.properties(tmp_path / "cache", f'{KRB5} useTicketCache=true ticketCache="{cache}";')
    for file in (by_keytab, by_cache):
        lines = missing(server, file)
        assert lines and all(" --allow-principal User:bob --" in line for line in lines), lines
    admin = AdminClient({"bootstrap.servers": server.plain})
    whole = [
        (Kind.TOPIC, "*"),
        (Kind.GROUP, "*"),
        (Kind.TRANSACTIONAL_ID, "*"),
        (Kind.BROKER, "kafka-cluster"),
    ]
    rules = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:bob", "*", AclOperation.ALL,
                   AclPermissionType.ALLOW)
        for kind, name in whole
    ]  # fmt: skip
    for made in admin.create_acls(rules).values():
        made.result(PATIENCE)
    assert document(server.sasl, "--command-config", by_cache)["status"] == 0


def test_a_rehearsal_without_a_ticket(kdc: Kdc, ours: Server, tmp_path: Path) -> None:
    file = ours.properties(
        tmp_path / "none", f'{KRB5} useTicketCache=true ticketCache="{tmp_path}/none.cache";'
    )
    found = document(ours.sasl, "--command-config", file, "--timeout", "5")
    assert found["status"] == 2
    assert "run kinit, or give a keytab" in str(found)


def test_the_console_takes_passwords_beside_kerberos(kdc: Kdc) -> None:
    """On a listener whose other clients log in by tickets; the user may be the same."""
    (port,) = free_ports(1)
    config = sasl(kdc, port) | {
        "sasl.enabled.mechanisms": "GSSAPI,PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas(alice=SECRET),
    }
    with Site(**config) as site:
        answer = site.get("/api/about")
        assert answer.status == 401
        assert [text.split()[0] for text in answer.headers.get_all("WWW-Authenticate", [])] == ["Basic"]
        assert site.get("/api/about", basic("alice", SECRET)).status == 200
