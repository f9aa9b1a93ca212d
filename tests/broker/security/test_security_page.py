"""docs/security.md: its example starts a broker that lets in whom it says, its options are there."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from eoslog.broker.config import BrokerConfig, option_table
from eoslog.cli import main
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire
from tests.broker.operations.test_operating_page import all_match, steps
from tests.broker.security.securitykit import Pki, free_ports

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
        type_the_commands()
        alice = client | {"sasl.username": "alice", "sasl.password": "the-second"}
        assert set(AdminClient(alice).list_topics(timeout=10).topics) == {"orders"}
        assert "the-first" not in broker.output() and "the-second" not in broker.output()


def type_the_commands() -> None:
    """Those of the page's console blocks, and compare what they print."""
    typed = [step for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for step in steps(block)]
    assert len(typed) >= 5
    for command, wanted in typed:
        program, *arguments = shlex.split(command)
        assert program == "eoslog"
        lines = CliRunner().invoke(main, arguments).output.splitlines()
        assert all_match(lines, wanted), f"{command} printed\n" + "\n".join(lines)


def test_the_options_it_names_are_there() -> None:
    named = set(
        re.findall(r"`((?:ssl|sasl|max|queued|connections?|socket|super|authorizer)\.[a-z.]+)[`=]", PAGE)
    )
    assert len(named) > 20
    assert named <= set(option_table())
    config = BrokerConfig()
    assert config.queued_max_request_bytes == config.queued_max_response_bytes == 256 << 20
    assert config.request_max_bytes == 100 << 20
    assert config.connections_max_idle_ms == 600_000
    assert config.connections_max_stalled_ms == 10_000
    assert config.sasl_max_receive_size == 512 << 10
