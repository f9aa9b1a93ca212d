"""Without any of the extras' libraries everything else works: TLS with PEM, passwords, tokens."""

import subprocess
import sys
from pathlib import Path

from eoslog.testing import EmbeddedBroker
from tests.broker.security.securitykit import ALICE, ALICE_SECRET, Issuer, Pki, plain_jaas

LIBRARIES = ("cryptography", "botocore", "jwt", "fastavro", "aiohttp", "prometheus_client")
PROGRAM = """
import sys
for library in {libraries!r}:
    sys.modules[library] = None  # an import of it fails as if it were not installed
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.options.source_options import source_options
for options in {options!r}:
    with Cluster(source_options(options, stream=False).client) as cluster:
        print(sorted(cluster.metadata(None).topics))
"""


def test_logins_without_the_extras(tmp_path: Path) -> None:
    pki, issuer = Pki(tmp_path), Issuer(tmp_path / "keys.json")
    config = {
        "listeners": "SASL_SSL://127.0.0.1:0", "ssl.keystore.location": str(pki.broker),
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain_jaas(**{ALICE: ALICE_SECRET}),
        "ssl.truststore.location": str(pki.ca), "ssl.client.auth": "required",
    }  # fmt: skip
    token = tmp_path / "token"
    token.write_text(issuer.token(seconds=600))
    with EmbeddedBroker(config=config) as broker:
        common = {
            "kafka.bootstrap.servers": broker.bootstrap, "kafka.security.protocol": "SASL_SSL",
            "subscribe": "t",
            "kafka.ssl.truststore.location": str(pki.ca), "kafka.ssl.keystore.location": str(pki.client),
        }  # fmt: skip
        plain = {
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": ALICE,
            "kafka.sasl.password": ALICE_SECRET,
        }
        bearer = {
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
        program = PROGRAM.format(libraries=LIBRARIES, options=[common | plain, common | bearer])
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.stdout == "[]\n[]\n", done.stdout + done.stderr
