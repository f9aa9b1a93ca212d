"""Copies of a topic in a real Spark with executors of its own, over Kerberos logins, killed and resumed: on
the bundled broker and on Apache Kafka. `make test-kerberos`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.connector.brokers import Kafka
from tests.connector.executors.cluster import LOCAL_CLUSTER, Copy, SparkCluster
from tests.connector.spark_application import PATIENCE_SECONDS
from tests.connector.spark_probe import DECIDED, PREPARED, UNDECIDED
from tests.kit.java_stores import Stores
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
    keys_of,
    login_of,
)

pytestmark = [*MARKS, pytest.mark.spark, pytest.mark.timeout(3 * PATIENCE_SECONDS)]

KEYTAB = "alice.keytab"
RELATIVE = login_of(KEYTAB, ALICE)
"""As one writes it for a keytab that Spark copies: where the driver runs, and where each executor does."""


@pytest.fixture(scope="module")
def ours(kdc: Kdc) -> Iterator[Server]:
    with bundled(kdc) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(kdc: Kdc) -> Iterator[Server]:
    with apache(kdc) as server:
        yield server


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def ours_tls(kdc: Kdc, stores: Stores) -> Iterator[Server]:
    with bundled(kdc, stores) as server:
        yield server


@pytest.fixture(scope="module")
def kafka_tls(kdc: Kdc, stores: Stores) -> Iterator[Server]:
    with apache(kdc, stores) as server:
        yield server


def with_login(command: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """The command, with these options at both ends."""
    ends = {end: command.get(end, {}) | given for end in ("read", "write")}
    return command | ends | {"explain": True, "bootstrap": given["kafka.bootstrap.servers"]}


def killed_and_resumed(
    cluster_of: Callable[[str], SparkCluster], copy: Copy, stream: dict[str, Any]
) -> tuple[list[Path], set[str]]:
    """Run a stream of three batches in three lives: the first two die by SIGKILL, with all of their
    processes, right before and right after a batch's decision.

    Returns the executors' working directories, and the values of KRB5_CONFIG that they had."""
    homes: list[Path] = []
    told: set[str] = set()
    for life, place in enumerate((UNDECIDED, DECIDED)):
        with cluster_of(f"life-{life}") as cluster:
            cluster.order({"at": place, "batch": 1, "do": "wait"})
            cluster.tell(stream)
            cluster.wait_for(1, place, batch=1)
            jvms = {note["jvm"] for note in cluster.notes(PREPARED)}
            assert len(jvms) == 2, "both executors have logged in"
            executors = [psutil.Process(jvm) for jvm in jvms]
            homes += [Path(executor.cwd()) for executor in executors]
            told |= {executor.environ()["KRB5_CONFIG"] for executor in executors}
            cluster.kill()
        seen = copy.visible()  # of a decided batch some: what still lived for a moment may have finished it
        assert len(seen) == len(set(seen)) and len(seen) >= len(copy.rows) // 3
        assert len(seen) == len(copy.rows) // 3 or place == DECIDED
    with cluster_of("last life") as cluster:
        cluster.tell(stream)
        assert cluster.answer()["error"] is None, cluster.tail()
    copy.check()
    written = len(copy.visible(committed=False))
    assert written == len(copy.rows) * 4 // 3, (
        "the undecided batch was written again, the decided one was not"
    )
    return homes, told


@pytest.mark.parametrize("server", SERVERS)
def test_a_copy_with_a_keytab_that_spark_distributes(
    kdc: Kdc, server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every row once; then a batch read and write. No key of the keytab is in what Spark logs or keeps."""
    broker: Server = request.getfixturevalue(server)
    home = tmp_path / "home"
    home.mkdir()
    (home / KEYTAB).write_bytes((kdc.folder / KEYTAB).read_bytes())
    theirs = tmp_path / "krb5.conf"
    theirs.write_text(kdc.config.read_text())
    more = {"spark__executorEnv__KRB5_CONFIG": str(theirs), "spark__log__level": "INFO"}
    copy = Copy(Kafka(broker.plain), tmp_path)
    given = broker.options(RELATIVE)

    def cluster_of(name: str) -> SparkCluster:
        return SparkCluster(tmp_path / name, LOCAL_CLUSTER, home, spark__files=str(home / KEYTAB), **more)

    homes, told = killed_and_resumed(cluster_of, copy, with_login(copy.stream(batches=3), given))
    assert told == {str(theirs)}
    assert all(place != home and (place / KEYTAB).exists() for place in homes)
    batch = Copy(Kafka(broker.plain), tmp_path)
    with cluster_of("batch") as cluster:
        cluster.tell(with_login(batch.write(), given))
        assert cluster.answer()["error"] is None, cluster.tail()
    batch.check()

    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path != home / KEYTAB]
    kept += [path for place in homes for path in place.glob("std*")]
    said = b"".join(path.read_bytes() for path in kept)
    for wanted in (b"batchWatermarkMs", b"== Physical Plan ==", b"INFO MicroBatch", b"INFO Executor"):
        assert wanted in said
    keys = keys_of(kdc, str(home / KEYTAB))
    assert [key for key in keys if key in (home / KEYTAB).read_bytes()], "the search finds a key where it is"
    assert not [key for key in keys if key in said]


@pytest.mark.parametrize("server", SERVERS)
def test_a_copy_over_tls_with_a_ticket_cache(
    kdc: Kdc, server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The cache that KRB5CCNAME names, as `kinit` leaves it; then a batch read and write."""
    broker: Server = request.getfixturevalue(f"{server}_tls")
    assert broker.protocol == "SASL_SSL"
    kdc.run("kinit", "-k", "-t", str(kdc.folder / KEYTAB), ALICE)
    copy, batch = Copy(Kafka(broker.plain), tmp_path), Copy(Kafka(broker.plain), tmp_path)
    given = broker.options(f"{KRB5} useTicketCache=true;")

    def cluster_of(name: str) -> SparkCluster:
        return SparkCluster(tmp_path / name)

    killed_and_resumed(cluster_of, copy, with_login(copy.stream(batches=3), given))
    with cluster_of("batch") as cluster:
        cluster.tell(with_login(batch.write(), given))
        assert cluster.answer()["error"] is None, cluster.tail()
    batch.check()
    tickets = kdc.run("klist")
    assert "kafka/localhost@" in tickets, "the queries' tickets are in that cache"
    kdc.run("kdestroy")


def test_a_keytab_that_the_executors_do_not_have(kdc: Kdc, ours: Server, tmp_path: Path) -> None:
    """Without spark.files: the driver logs in, its tasks say what is missing, and no row is written."""
    copy = Copy(Kafka(ours.plain), tmp_path)
    with SparkCluster(tmp_path / "spark", LOCAL_CLUSTER, kdc.folder) as cluster:
        cluster.tell(with_login(copy.stream(), ours.options(RELATIVE)))
        error = str(cluster.answer()["error"])
    assert f"GSSAPI as alice@{REALM}: the keytab {KEYTAB} cannot be read" in error
    assert copy.visible(committed=False) == []
