"""`eoslog users`: users with passwords (SCRAM), by the standard requests; the password is never shown."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from eoslog.testing import EmbeddedBroker
from tests.broker.operations.run_command import document, failure, ok, run
from tests.broker.security.acl_site import Site
from tests.broker.security.securitykit import ADMIN, free_ports

PASSWORD = "open,sesame=7"


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def broker(port: int) -> Iterator[EmbeddedBroker]:
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


def test_a_user_is_added_listed_and_removed(broker: EmbeddedBroker, port: int, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    add = ("users", "add", "alice", "--password-file", str(file))
    said = ok(broker, *add, "--iterations", "8192")
    assert said == "user alice: SCRAM-SHA-512 with 8192 iterations is set\n"
    assert comes_in(port, "SCRAM-SHA-512", PASSWORD)
    assert not comes_in(port, "SCRAM-SHA-512", "another")
    ok(broker, *add, "--mechanism", "scram-sha-256")
    assert comes_in(port, "SCRAM-SHA-256", PASSWORD)
    rows = [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ]
    assert document(broker, "users", "list") == document(broker, "users", "list", "alice") == rows
    assert "there is no user bob" in failure(broker, "users", "list", "bob")
    said = ok(broker, "users", "remove", "alice", "--mechanism", "SCRAM-SHA-512")
    assert said == "user alice: SCRAM-SHA-512 is removed\n"
    assert document(broker, "users", "list") == rows[:1]
    assert failure(broker, "users", "remove", "alice", "--mechanism", "SCRAM-SHA-512") == (
        "Error: user alice has no password for SCRAM-SHA-512: see eoslog users list for those there are\n"
    )
    ok(broker, "users", "remove", "alice", "--mechanism", "SCRAM-SHA-256")
    assert document(broker, "users", "list") == []


def test_a_password_is_asked_for_twice_and_not_shown(broker: EmbeddedBroker, port: int) -> None:
    result = run(broker, "users", "add", "alice", input=f"{PASSWORD}\n{PASSWORD}\n")
    assert (result.exit_code, PASSWORD in result.output) == (0, False)
    assert comes_in(port, "SCRAM-SHA-512", PASSWORD)
    result = run(broker, "users", "add", "alice", input=f"{PASSWORD}\nanother\n")
    assert (result.exit_code, PASSWORD in result.output) == (1, False)


def test_no_argument_takes_a_password(broker: EmbeddedBroker) -> None:
    result = run(broker, "users", "add", "alice", "--password", PASSWORD)
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
def test_what_makes_no_sense(
    broker: EmbeddedBroker, tmp_path: Path, content: str, options: tuple[str, ...], says: str
) -> None:
    file = tmp_path / "password"
    file.write_text(content)
    result = run(broker, "users", "add", "x", "--password-file", str(file), *options)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
    assert PASSWORD not in result.output


def test_who_may_not_is_told_what_it_takes(tmp_path: Path) -> None:
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
