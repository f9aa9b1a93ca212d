"""docs/security.md: its example starts a broker that lets in whom it says, its options are there."""

import re
from pathlib import Path

from broker_clients import Wire
from confluent_kafka.admin import AdminClient
from securitykit import Pki, free_ports

from eoslog.broker.config import BrokerConfig, option_table
from eoslog.testing import EmbeddedBroker

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text()


def test_the_example_works(tmp_path: Path) -> None:
    pki, (port,) = Pki(tmp_path), free_ports(1)
    (tmp_path / "users").write_text("admin=the-first\n")
    text = re.search(r"```properties\n(.*?)```", PAGE, re.DOTALL)[1]  # type: ignore[index]
    text = text.replace("/etc/eoslog", str(tmp_path)).replace("0.0.0.0:9093", f"127.0.0.1:{port}")
    text = text.replace("kafka.example.org:9093", f"localhost:{port}")
    options = dict(line.split("=", 1) for line in text.splitlines())
    client = {
        "bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_SSL", "sasl.username": "admin",
        "sasl.mechanism": "SCRAM-SHA-512", "sasl.password": "the-first", "ssl.ca.location": str(pki.ca),
    }  # fmt: skip
    with EmbeddedBroker(config=options) as broker:
        found = AdminClient(client).list_topics(timeout=10)
        assert [str(node) for node in found.brokers.values()] == [f"localhost:{port}/1"]
        with Wire("127.0.0.1", port) as wire:
            wire.socket.sendall(b"\0" * 100)
            assert wire.socket.recv(1) == b""
        assert "the-first" not in broker.output()


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
