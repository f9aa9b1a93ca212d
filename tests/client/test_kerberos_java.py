"""The table of JAAS texts in docs/evidence.md beside Kafka's Java client, with a real KDC: who logs in, and
who is refused. `make test-kerberos`."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoslog.client.wire.security_settings import KerberosSettings
from tests.client.test_kerberos_forms import FORMS, ME, MODULE
from tests.kit.kerberos import ALICE, MARKS, Kdc, Server, bundled
from tests.scenarios.apache_kafka import JARS

pytestmark = [*MARKS, pytest.mark.kafka, pytest.mark.timeout(300)]

JAVA_TAKES = {
    f'useTicketCache=true principle="{ME}"': "it passes over options that it does not know",
    'useTicketCache=true password="..."': "the same",
    "useTicketCache=true renewTGT=true": "it renews tickets",
}
"""What Java's module takes and eoslog refuses, and why it does."""
JAVA_REFUSES = ("useTicketCache=true storeKey=true doNotPrompt=true",)
"""What eoslog takes: it has no effect."""
REALM_S_OWN = "spark/host@REALM"


@pytest.fixture(scope="module")
def ours(kdc: Kdc) -> Iterator[Server]:
    with bundled(kdc) as server:
        yield server


def here(form: str, kdc: Kdc, cache: Path) -> str:
    """The row's text, with a principal and files that there are."""
    keytab = str(kdc.folder / "alice.keytab")
    real = {
        REALM_S_OWN: ALICE, ME: ALICE, '"/k"': f'"{keytab}"', "file:/k": f"file:{keytab}",
        "spark.keytab": "alice.keytab", "/c": str(cache),
    }  # fmt: skip
    for page_s, name in real.items():
        form = form.replace(page_s, name)
    return f"{MODULE} required {form};"


@pytest.mark.parametrize("form", FORMS)
def test_java_takes_what_eoslog_takes(kdc: Kdc, ours: Server, form: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for where in (["-c", str(cache)], []):
        kdc.run("kinit", *where, "-k", "-t", str(kdc.folder / "alice.keytab"), ALICE)
    file = ours.properties(tmp_path / "client.properties", here(form, kdc, cache))
    with open(file, "a") as more:
        more.write(
            "default.api.timeout.ms=10000\nrequest.timeout.ms=10000\n"
        )  # how long Java waits for a login
    tool = ["org.apache.kafka.tools.TopicCommand", "--list", "--bootstrap-server", ours.sasl]
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Djava.security.krb5.conf={kdc.config}"]
    done = subprocess.run(
        [*java, "-cp", f"{JARS}/*", *tool, "--command-config", file],
        env=kdc.environment, cwd=kdc.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    taken = (isinstance(FORMS[form], KerberosSettings) and form not in JAVA_REFUSES) or form in JAVA_TAKES
    assert (done.returncode == 0) is taken, (done.stdout + done.stderr)[-3000:]
