"""A query over TLS and SASL: rows arrive once, and the password is in nothing that Spark keeps or shows."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eoslog.testing import EmbeddedBroker
from tests.broker.security.securitykit import ALICE, Pki, plain_jaas
from tests.kit.java_stores import KEY_WORD, WORD, Stores

pytestmark = pytest.mark.spark

PASSWORD = "open-sesame-5512"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def secured(pki: Pki) -> Iterator[EmbeddedBroker]:
    login = plain_jaas(**{ALICE: PASSWORD}).replace("plain.PlainLoginModule", "scram.ScramLoginModule")
    config = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(pki.broker),
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": login,
    }
    with EmbeddedBroker(config=config) as broker:
        yield broker


@pytest.fixture
def given(pki: Pki, secured: EmbeddedBroker) -> dict[str, str]:
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{ALICE}" '
    return {
        "kafka.bootstrap.servers": secured.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": str(pki.ca),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{login}password="{PASSWORD}";',
    }


def test_a_copy_over_sasl_ssl(
    spark: SparkSession,
    given: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    capture.read_global_capture()  # what Spark's processes have said before
    numbers = spark.range(100).selectExpr("cast(id as string) as value")
    numbers.write.format("eoslog").options(**given).option("topic", "numbers").mode("append").save()
    checkpoint = tmp_path / "checkpoint"
    rows = (
        spark.readStream.format("eoslog").options(**given).option("subscribe", "numbers")
        .option("startingOffsets", "earliest").load().select("value")
    )  # fmt: skip
    query = (
        rows.writeStream.format("eoslog").options(**given).option("topic", "copied")
        .option("checkpointLocation", str(checkpoint)).option("progress.log", "true")
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(60)
    copied = spark.read.format("eoslog").options(**given).option("subscribe", "copied").load()
    assert sorted(int(bytes(row.value)) for row in copied.collect()) == list(range(100))
    query.explain(extended=True)
    copied.explain(extended=True)
    kept = [path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()]
    said = "".join(capsys.readouterr()) + str(query.recentProgress) + str(query.status)
    logged = "".join(capture.read_global_capture())
    assert not logged or "eoslog.progress {" in logged, "pytest -s shows it instead"
    said += logged
    assert kept and PASSWORD.encode() not in b"".join(kept)
    assert "numbers" in said and PASSWORD not in said


def test_a_copy_with_stores_of_java(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The driver and the tasks read them."""
    stores = Stores(tmp_path)
    config = {
        "listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": stores.pem("broker"),
        "ssl.truststore.location": str(stores.ca), "ssl.client.auth": "required",
    }  # fmt: skip
    capture = request.config.pluginmanager.getplugin("capturemanager")
    capture.read_global_capture()
    with EmbeddedBroker(config=config) as broker:
        given = {
            "kafka.bootstrap.servers": broker.bootstrap, "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": stores.trust["PKCS12"], "kafka.ssl.truststore.password": WORD,
            "kafka.ssl.keystore.location": stores.keys["JKS"], "kafka.ssl.keystore.password": WORD,
            "kafka.ssl.key.password": KEY_WORD,
        }  # fmt: skip
        numbers = spark.range(20).selectExpr("cast(id as string) as value")
        numbers.write.format("eoslog").options(**given).option("topic", "numbers").mode("append").save()
        rows = spark.read.format("eoslog").options(**given).option("subscribe", "numbers").load()
        assert sorted(int(bytes(row.value)) for row in rows.collect()) == list(range(20))
        rows.explain(extended=True)
    said = "".join(capture.read_global_capture())
    assert WORD not in said and KEY_WORD not in said


def test_a_wrong_password_stops_the_query_and_is_not_shown(
    spark: SparkSession, given: dict[str, str]
) -> None:
    wrong = {name: value.replace(PASSWORD, "wrong-word-77") for name, value in given.items()}
    with pytest.raises(Exception, match=r"SCRAM-SHA-512 as alice.*check the credentials") as raised:
        spark.read.format("eoslog").options(**wrong).option("subscribe", "numbers").load().count()
    assert "wrong-word-77" not in str(raised.value)
