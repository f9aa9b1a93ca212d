"""A login with a delegation token (KIP-48) at Apache Kafka; the token is made by Kafka's own tool."""

import re
import subprocess
from pathlib import Path

import pytest

from eoslog.client.wire.cluster import Cluster
from eoslog.connector.options.source_options import source_options
from eoslog.errors import AuthenticationRefused
from tests.kit.waiting import until
from tests.scenarios.apache_kafka import JARS, ApacheKafka

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
ADMIN = f'{SCRAM} username="admin" password="admin-secret";'
CONFIG = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": ADMIN,
    "delegation.token.secret.key": "secret-of-the-cluster",
}


def topics(bootstrap: str, jaas: str) -> list[str]:
    options = {
        "kafka.bootstrap.servers": bootstrap, "kafka.security.protocol": "SASL_PLAINTEXT", "subscribe": "t",
        "kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.jaas.config": jaas,
    }  # fmt: skip
    with Cluster(source_options(options, stream=False).client) as cluster:
        return sorted(cluster.metadata(None).topics)


def accepted(bootstrap: str, jaas: str) -> bool:
    try:
        topics(bootstrap, jaas)
    except AuthenticationRefused:
        return False
    return True


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_a_login_with_a_delegation_token(tmp_path: Path) -> None:
    properties = tmp_path / "admin.properties"
    properties.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={ADMIN}\n"
    )
    users = ("--add-scram", "SCRAM-SHA-256=[name=admin,password=admin-secret]")
    with ApacheKafka(CONFIG, users) as kafka:
        said = subprocess.run(
            ["java", "-cp", f"{JARS}/*", "org.apache.kafka.tools.DelegationTokenCommand", "--create",
             "--bootstrap-server", kafka.bootstrap, "--command-config", str(properties),
             "--max-life-time-period", "-1"],
            capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        found = re.search(r"^(\S{20,})\s+(\S{40,})\s", said.stdout, re.MULTILINE)
        assert found, said.stdout + said.stderr
        token = f'{SCRAM} username="{found[1]}" password="{found[2]}"'
        until(lambda: accepted(kafka.bootstrap, f'{token} tokenauth="true";'), "the broker knows the token")
        assert topics(kafka.bootstrap, f'{token} tokenauth="true";') == []
        with pytest.raises(AuthenticationRefused, match="SCRAM-SHA-256 as"):
            topics(kafka.bootstrap, f"{token};")
