"""`eoslog acls list, add, remove`: by the standard requests, on a broker with ACLs on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eoslog.cli import main
from eoslog.testing import EmbeddedBroker
from tests.broker.operations.run_command import document, failure, ok, run
from tests.broker.security.acl_site import Site
from tests.broker.security.securitykit import ADMIN

ALICE = ("--principal", "User:alice")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site(**{"super.users": f"User:{ADMIN};User:ANONYMOUS"}) as made:
        yield made


@pytest.fixture
def broker(site: Site) -> Iterator[EmbeddedBroker]:
    yield site.broker
    site.forget()


def as_user(site: Site, user: str, tmp_path: Path, *arguments: str) -> Result:
    """What a command says to a user with a password."""
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers=127.0.0.1:{site.port}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username={user}\nsasl.password={user}-password\n"
    )
    return CliRunner().invoke(main, [*arguments, "--command-config", str(file), "--timeout", "20"])


def test_rules_are_added_listed_and_removed(broker: EmbeddedBroker) -> None:
    assert document(broker, "acls", "list") == []
    said = ok(broker, "acls", "add", *ALICE, "--operation", "read", "--operation", "describe-configs",
              "--topic", "orders")  # fmt: skip
    assert said == (
        "topic orders (literal): User:alice is allowed read from *: added\n"
        "topic orders (literal): User:alice is allowed describe-configs from *: added\n"
    )
    rows = document(broker, "acls", "list")
    assert rows == [
        {"resource": "topic", "pattern": "literal", "name": "orders", "principal": "User:alice", "host": "*",
         "permission": "allow", "operation": operation}
        for operation in ("read", "describe-configs")
    ]  # fmt: skip
    assert ok(broker, "acls", "list").splitlines()[0].split() == [
        "RESOURCE", "PATTERN", "NAME", "PRINCIPAL", "HOST", "PERMISSION", "OPERATION"
    ]  # fmt: skip
    said = ok(broker, "acls", "remove", *ALICE, "--operation", "read", "--topic", "orders")
    assert said == "topic orders (literal): User:alice is allowed read from *: removed\n"
    assert [row["operation"] for row in document(broker, "acls", "list")] == ["describe-configs"]
    assert "no rule matches" in failure(broker, "acls", "remove", *ALICE, "--operation", "read", "--topic",
                                        "orders")  # fmt: skip


def test_every_resource_and_pattern(broker: EmbeddedBroker) -> None:
    ok(broker, "acls", "add", *ALICE, "--operation", "Write", "--transactional-id", "copy/", "--prefixed")
    ok(broker, "acls", "add", *ALICE, "--operation", "describe", "--group", "*", "--topic", "a")
    ok(broker, "acls", "add", *ALICE, "--operation", "ClusterAction", "--cluster", "--host", "10.0.0.1")
    ok(broker, "acls", "add", "--principal", "User:bob", "--deny", "--operation", "all", "--topic", "*")
    rows = [tuple(row.values()) for row in document(broker, "acls", "list")]
    assert rows == [
        ("topic", "literal", "*", "User:bob", "*", "deny", "all"),
        ("topic", "literal", "a", "User:alice", "*", "allow", "describe"),
        ("group", "literal", "*", "User:alice", "*", "allow", "describe"),
        ("cluster", "literal", "kafka-cluster", "User:alice", "10.0.0.1", "allow", "cluster-action"),
        ("transactional-id", "prefixed", "copy/", "User:alice", "*", "allow", "write"),
    ]


def names(broker: EmbeddedBroker, *filters: str) -> list[tuple[str, str]]:
    return [(row["name"], row["pattern"]) for row in document(broker, "acls", "list", *filters)]


def test_a_list_is_filtered_by_what_is_given(broker: EmbeddedBroker) -> None:
    add = ("acls", "add", *ALICE, "--operation", "read")
    ok(broker, *add, "--topic", "orders", "--topic", "*")
    ok(broker, *add, "--topic", "ord", "--prefixed")
    ok(
        broker,
        "acls",
        "add",
        "--principal",
        "User:bob",
        "--deny",
        "--operation",
        "write",
        "--topic",
        "orders",
    )
    assert names(broker, "--topic", "orders") == [("orders", "literal")] * 2
    assert names(broker, "--topic", "orders", *ALICE) == [("orders", "literal")]
    assert names(broker, "--topic", "ord", "--prefixed") == [("ord", "prefixed")]
    assert names(broker, "--prefixed") == [("ord", "prefixed")]
    assert names(broker, "--deny") == names(broker, "--operation", "write") == [("orders", "literal")]
    assert names(broker, "--group", "orders") == names(broker, "--host", "10.1.1.1") == []
    about = names(broker, "--topic", "orders", "--matching", *ALICE)
    assert about == [("*", "literal"), ("ord", "prefixed"), ("orders", "literal")]


def test_a_denial_is_removed_only_as_one(broker: EmbeddedBroker) -> None:
    denial = (*ALICE, "--operation", "read", "--topic", "orders")
    ok(broker, "acls", "add", "--deny", *denial)
    assert "no rule matches" in failure(broker, "acls", "remove", *denial)
    rows = document(broker, "acls", "remove", "--deny", *denial)
    assert [row["permission"] for row in rows] == ["deny"]
    assert document(broker, "acls", "list") == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add", *ALICE, "--operation", "read"), "say what the rule is of"),
        (("add", *ALICE, "--topic", "t"), "--operation"),
        (("add", "--operation", "read", "--topic", "t"), "--principal"),
        (("add", "--principal", "alice", "--operation", "read", "--topic", "t"), "give TYPE:NAME"),
        (("add", *ALICE, "--operation", "raed", "--topic", "t"), "read, write"),
        (("add", *ALICE, "--operation", "write", "--group", "g"), "a group knows read, delete, describe"),
        (("add", *ALICE, "--operation", "alter", "--cluster", "--prefixed"), "the cluster has one name"),
        (("remove",), "say which rules"),
    ],
)
def test_what_makes_no_sense(broker: EmbeddedBroker, arguments: tuple[str, ...], says: str) -> None:
    result = run(broker, "acls", *arguments)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr


def test_who_may_not_is_told_what_it_takes(site: Site, tmp_path: Path) -> None:
    change = (*ALICE, "--operation", "read", "--topic", "orders")
    for arguments, needs in (
        (("list",), "Describe"),
        (("add", *change), "Alter"),
        (("remove", *change), "Alter"),
    ):
        result = as_user(site, "carol", tmp_path, "acls", *arguments)
        assert result.exit_code == 1
        assert result.stderr == (
            f"Error: access rules need the right {needs} on the cluster, which this user does not have\n"
        )


def test_rules_that_are_switched_off() -> None:
    with EmbeddedBroker() as plain:
        for arguments in (
            ("list",),
            ("add", *ALICE, "--operation", "read", "--topic", "t"),
            ("remove", *ALICE),
        ):
            assert failure(plain, "acls", *arguments) == (
                "Error: this cluster has no access rules: they are switched on by authorizer.class.name at "
                "the brokers, see security.md\n"
            )
