"""Queries whose checkpoint is in an object store, under the URI that Spark's users write, killed and resumed:
`make test-object-store`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.connector.executors.cluster import Copy, SparkCluster
from tests.connector.spark_application import PATIENCE_SECONDS
from tests.connector.spark_probe import DECIDED, UNDECIDED
from tests.kit.object_stores import BUCKET, ObjectStore, object_store

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(3 * PATIENCE_SECONDS)]

JARS = Path(__file__).parents[3] / ".peers" / "hadoop-aws-3.5.0"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as started:
        yield started


def cluster_at(store: ObjectStore, folder: Path, **more: str) -> SparkCluster:
    """A Spark with S3A, which is told of the store as its users do it."""
    assert any(JARS.glob("hadoop-aws-*.jar")), f"no S3A in {JARS}: make test-object-store fetches it by Maven"
    settings = {
        "spark__jars": ",".join(map(str, JARS.glob("*.jar"))),
        "spark__hadoop__fs__s3a__endpoint": store.endpoint,
        "spark__hadoop__fs__s3a__path__style__access": "true",
    }
    return SparkCluster(folder, "local[2]", None, **settings | more)


def test_a_killed_query_with_its_checkpoint_under_s3a(
    store: ObjectStore, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Killed right before and right after a batch's decision; each row once."""
    copy = Copy(Kafka(broker.bootstrap), tmp_path)
    command = copy.stream(batches=3) | {"checkpoint": f"s3a://{BUCKET}/{copy.checkpoint.name}"}
    for life, place in enumerate((UNDECIDED, DECIDED)):
        with cluster_at(store, tmp_path / f"life-{life}") as cluster:
            cluster.order({"at": place, "batch": 1, "do": "wait"})
            cluster.tell(command)
            cluster.wait_for(1, place, batch=1)
            cluster.kill()
    with cluster_at(store, tmp_path / "last") as cluster:
        cluster.tell(command)
        assert cluster.answer()["error"] is None, cluster.tail()
    copy.check()
    assert f"{copy.checkpoint.name}/commits/2" in store.names()


def test_keys_that_only_spark_was_told(
    store: ObjectStore, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink says where it looks for them, and nothing is written."""
    keys = {"access.key": "AWS_ACCESS_KEY_ID", "secret.key": "AWS_SECRET_ACCESS_KEY"}
    given = {f"spark__hadoop__fs__s3a__{k.replace('.', '__')}": store.environment[v] for k, v in keys.items()}
    for name in store.environment:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")  # no test asks AWS
    copy = Copy(Kafka(broker.bootstrap), tmp_path)
    with cluster_at(store, tmp_path / "spark", **given) as cluster:
        cluster.tell(copy.stream() | {"checkpoint": f"s3a://{BUCKET}/{copy.checkpoint.name}"})
        error = str(cluster.answer()["error"])
    assert "needs a checkpoint that the driver can read" in error, error
    assert "Spark's options fs.s3a.* do not reach it" in error, error
    assert copy.visible(committed=False) == []
