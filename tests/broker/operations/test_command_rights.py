"""`eoslog acls` and `eoslog users`: rights and passwords by the standard requests."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from eoslog.cli import main
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import document, failure, ok, run
from tests.broker.security.securitykit import ADMIN, Site, free_ports

# -- acls list, add, remove ----------------------------------------------------------------------
# `eoslog acls list, add, remove`: by the standard requests, on a broker with ACLs on.

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


# -- acls suggest --------------------------------------------------------------------------------
# `eoslog acls suggest`: the rights of a query, by its options; what it prints can be typed.

COPY = (
    "--source", "subscribe=orders", "--sink", "topic=orders_copy", "--sink", "transactional.id=to/copy",
    "--sink", "two.phase.commit=require",
)  # fmt: skip


def suggest(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["acls", "suggest", *arguments])


def test_the_rights_of_a_query_as_a_table() -> None:
    result = suggest(*COPY)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["RESOURCE", "PATTERN", "NAME", "OPERATIONS", "WHY"]
    assert [line.split()[:4] for line in lines[1:] if " optional: " in line] == [
        ["topic", "literal", "__transaction_state", "describe"],
        ["topic", "literal", "orders_copy", "read"],
        ["group", "prefixed", "to%2Fcopy/", "read"],
        ["group", "prefixed", "eoslog-write:", "read"],
    ]
    assert [line.split()[:4] for line in lines[1:] if " optional: " not in line] == [
        ["topic", "literal", "orders", "read"],
        ["topic", "literal", "orders_copy", "write"],
        ["transactional-id", "literal", "to%2Fcopy", "write"],
        ["transactional-id", "prefixed", "to%2Fcopy/", "write,two-phase-commit"],
        ["group", "literal", "to%2Fcopy", "read"],
        ["topic", "literal", "__consumer_offsets", "read"],
        ["group", "literal", "to%2Fcopy/offsets", "read"],
    ]


def test_another_topic_for_decisions_needs_the_right_instead() -> None:
    lines = suggest(*COPY, "--sink", "decision.topic=decisions").stdout.splitlines()
    assert ["topic", "literal", "decisions", "read"] in [line.split()[:4] for line in lines]
    assert "__consumer_offsets" not in "".join(lines)


def test_as_a_document() -> None:
    found = json.loads(suggest("--json", *COPY[:-2], "--sink", "kafka.group.id=g").stdout)
    assert found["rights"][0] == {
        "resource": "topic", "pattern": "literal", "name": "orders", "operations": ["read"],
        "optional": False, "why": "the source",
    }  # fmt: skip
    assert "group" in {right["resource"] for right in found["rights"]}
    (sealing,) = [right for right in found["rights"] if "two.phase.commit=auto" in right["why"]]
    assert sealing["optional"] and sealing["operations"] == ["two-phase-commit"]
    assert not found["notes"]


def test_what_options_cannot_tell_is_a_note_on_standard_error() -> None:
    result = suggest("--sink", "transactional.id=copy")
    assert result.stderr.startswith("Note: each row names its topic")


def test_commands_that_can_be_typed() -> None:
    result = suggest("--principal", "User:alice", "--as", "commands", *COPY)
    commands = result.stdout.splitlines()
    assert commands[0] == "eoslog acls add --principal User:alice --operation read --topic orders"
    assert commands[3] == (
        "eoslog acls add --principal User:alice --operation write --operation two-phase-commit "
        "--transactional-id to%2Fcopy/ --prefixed"
    )
    with Site(**{"super.users": f"User:{ADMIN};User:ANONYMOUS"}) as site:
        for command in (line for line in commands if not line.startswith("# optional: ")):
            program, *arguments = shlex.split(command)
            assert (program, run(site.broker, *arguments).exit_code) == ("eoslog", 0)
        rows = document(site.broker, "acls", "list", "--principal", "User:alice")
    wanted = json.loads(suggest("--json", *COPY).stdout)["rights"]
    assert sorted((r["resource"], r["pattern"], r["name"], r["operation"]) for r in rows) == sorted(
        (r["resource"], r["pattern"], r["name"], operation) for r in wanted for operation in r["operations"]
    )


def test_lines_for_kafka_s_own_tool() -> None:
    broker = ("--sink", "kafka.bootstrap.servers=kafka.example.org:9093")
    result = suggest("--principal", "User:alice smith", "--as", "kafka", *COPY, *broker)
    start = (
        "kafka-acls.sh --bootstrap-server kafka.example.org:9093 --add --allow-principal 'User:alice smith' "
    )
    lines = result.stdout.splitlines()
    assert lines[0] == start + "--operation Read --topic orders"
    assert lines[3] == (
        start + "--operation Write --operation TwoPhaseCommit --transactional-id to%2Fcopy/ "
        "--resource-pattern-type prefixed"
    )
    pattern = suggest("--principal", "User:a", "--as", "kafka", "--source", "subscribePattern=.*")
    assert pattern.stdout.rstrip().endswith("--topic '*'")


def test_the_rights_of_all_queries_of_a_prefix(tmp_path: Path) -> None:
    """Topics that begin so may be somebody else's: the rights on them stay literal, the optional ones too."""
    query = (
        "--source",
        "subscribe=etl-in",
        "--sink",
        "topic=etl-copies",
        "--sink",
        "transactional.id=etl-orders",
    )
    found = json.loads(suggest("--json", "--prefix", "etl-", *query).stdout)["rights"]
    named = {(r["resource"], r["name"], r["pattern"]): r["operations"] for r in found if not r["optional"]}
    assert named == {
        ("topic", "etl-in", "literal"): ["read"], ("topic", "etl-copies", "literal"): ["write"],
        ("transactional-id", "etl-", "prefixed"): ["write"], ("group", "etl-", "prefixed"): ["read"],
        ("topic", "__consumer_offsets", "literal"): ["read"],
    }  # fmt: skip
    assert all(right["pattern"] == "literal" for right in found if right["resource"] == "topic")
    alike = suggest(
        "--json", "--prefix", "etl-", *(word.replace("etl-orders", "etl-other") for word in query)
    )
    assert json.loads(alike.stdout)["rights"] == found, "the second query needs no further ones"
    wrong = suggest("--prefix", "elt-", *query)
    assert wrong.exit_code == 2 and "begins so" in wrong.stderr


@pytest.mark.parametrize("form", ["commands", "kafka"])
def test_the_commands_log_in_as_the_administrator(form: str) -> None:
    result = suggest("--principal", "User:a", "--as", form, "--command-config", "admin.properties", *COPY)
    lines = [line for line in result.stdout.splitlines() if not line.startswith("#")]
    assert lines and all(" --command-config admin.properties " in line for line in lines)


def test_a_batch_has_its_own_options_and_rights() -> None:
    write = ("--sink", "topic=t", "--sink", "write.token=job-1")
    assert json.loads(suggest("--batch", "--json", *write).stdout)["rights"][1]["name"] == "eoslog-write:"
    assert suggest("--json", *write).exit_code == 2  # a stream has no such option


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give --source or --sink"),
        (("--source", "subscribe"), "give NAME=VALUE"),
        (("--source", "subscrib=orders"), "subscribe"),
        (("--source", "startingOffsets=earliest"), "nothing to read"),
        (("--sink", "topic=t"), "give transactional.id"),
        (("--source", "subscribe=t", "--as", "kafka"), "--principal"),
        (("--source", "subscribe=t", "--as", "kafka", "--json", "--principal", "User:a"), "either"),
        (("--source", "subscribe=t", "--principal", "a"), "give TYPE:NAME"),
    ],
)
def test_suggestions_that_make_no_sense(arguments: tuple[str, ...], says: str) -> None:
    result = suggest(*arguments)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr


def test_a_secret_is_not_shown() -> None:
    secret = "open-sesame"
    given = ("--source", "subscribe=t", "--source", f"kafka.sasl.password={secret}")
    result = suggest("--principal", "User:a", "--as", "kafka", *given)
    assert result.exit_code == 2 and secret not in result.output


# -- users ---------------------------------------------------------------------------------------
# `eoslog users`: users with passwords (SCRAM), by the standard requests; the password is never shown.

PASSWORD = "open,sesame=7"


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def users_broker(port: int) -> Iterator[EmbeddedBroker]:
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    with EmbeddedBroker(config=config, log_level="info") as started:
        yield started
        assert PASSWORD not in started.output()


def comes_in(port: int, mechanism: str, password: str) -> bool:
    """Whether alice does."""
    client: dict[str, str | int | float | bool] = {
        "bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password,
    }  # fmt: skip
    try:
        return bool(AdminClient(client).list_topics(timeout=4).brokers)
    except KafkaException:
        return False


def test_a_user_is_added_listed_and_removed(users_broker: EmbeddedBroker, port: int, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    add = ("users", "add", "alice", "--password-file", str(file))
    said = ok(users_broker, *add, "--iterations", "8192")
    assert said == "user alice: SCRAM-SHA-512 with 8192 iterations is set\n"
    assert comes_in(port, "SCRAM-SHA-512", PASSWORD)
    assert not comes_in(port, "SCRAM-SHA-512", "another")
    ok(users_broker, *add, "--mechanism", "scram-sha-256")
    assert comes_in(port, "SCRAM-SHA-256", PASSWORD)
    rows = [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ]
    assert document(users_broker, "users", "list") == document(users_broker, "users", "list", "alice") == rows
    assert "there is no user bob" in failure(users_broker, "users", "list", "bob")
    said = ok(users_broker, "users", "remove", "alice", "--mechanism", "SCRAM-SHA-512")
    assert said == "user alice: SCRAM-SHA-512 is removed\n"
    assert document(users_broker, "users", "list") == rows[:1]
    assert failure(users_broker, "users", "remove", "alice", "--mechanism", "SCRAM-SHA-512") == (
        "Error: user alice has no password for SCRAM-SHA-512: see eoslog users list for those there are\n"
    )
    ok(users_broker, "users", "remove", "alice", "--mechanism", "SCRAM-SHA-256")
    assert document(users_broker, "users", "list") == []


def test_a_password_is_asked_for_twice_and_not_shown(users_broker: EmbeddedBroker, port: int) -> None:
    result = run(users_broker, "users", "add", "alice", input=f"{PASSWORD}\n{PASSWORD}\n")
    assert (result.exit_code, PASSWORD in result.output) == (0, False)
    assert comes_in(port, "SCRAM-SHA-512", PASSWORD)
    result = run(users_broker, "users", "add", "alice", input=f"{PASSWORD}\nanother\n")
    assert (result.exit_code, PASSWORD in result.output) == (1, False)


def test_no_argument_takes_a_password(users_broker: EmbeddedBroker) -> None:
    result = run(users_broker, "users", "add", "alice", "--password", PASSWORD)
    assert (result.exit_code, PASSWORD in result.output) == (2, False)


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        ("", (), "is empty"),
        ("two\nlines\n", (), "one line"),
        (PASSWORD, ("--iterations", "4095"), "4096<=x<=16384"),
        (PASSWORD, ("--mechanism", "PLAIN"), "scram-sha-256"),
    ],
)
def test_users_that_make_no_sense(
    users_broker: EmbeddedBroker, tmp_path: Path, content: str, options: tuple[str, ...], says: str
) -> None:
    file = tmp_path / "password"
    file.write_text(content)
    result = run(users_broker, "users", "add", "x", "--password-file", str(file), *options)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
    assert PASSWORD not in result.output


def test_who_may_not_see_users_is_told_what_it_takes(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    with Site(**{"super.users": f"User:{ADMIN}"}) as site:
        words = (
            (("list",), "Describe"),
            (("add", "x", "--password-file", str(file)), "Alter"),
            (("remove", "x", "--mechanism", "SCRAM-SHA-256"), "Alter"),
        )
        for arguments, needs in words:
            assert failure(site.broker, "users", *arguments) == (
                f"Error: users need the right {needs} on the cluster, which this user does not have\n"
            )
