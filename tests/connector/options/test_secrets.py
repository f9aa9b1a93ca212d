"""Whatever fails, no secret is in what a query says or leaves behind.

Each failure is told with its causes and their tracebacks, as Spark tells it; and with all that is logged.
Queries that go well are in test_security_spark.py and, with a keytab, in test_kerberos_spark.py.
"""

import logging
import re
import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.client.admin import transactions
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.connector import progress
from eoslog.connector.commit import commands as c
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.testing import EmbeddedBroker
from tests.broker.security.securitykit import ADMIN, ALICE, SECRET, STANDARD, Issuer, Pki, plain_jaas
from tests.client.test_msk_iam import MskBroker, sts
from tests.kit.java_stores import KEY_WORD, WORD, Stores

ALICES, WRONG, KEYS = "secret-of-alice-5512", "secret-of-nobody-5513", "secret-of-a-key-5514"
APPS, TOKEN = "secret-of-an-app-5515", "token-of-an-app-5516"
SECRETS = (ALICES, WRONG, KEYS, APPS, TOKEN, SECRET, WORD, KEY_WORD)
ROLE = "arn:aws:iam::123456789012:role/streams"
PATIENCE_SECONDS = 240
TRIES = 10
Given = dict[str, str]


def jaas(module: str = "plain.PlainLoginModule", **options: str) -> str:
    said = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"org.apache.kafka.common.security.{module} required {said};"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Passwords, and topics that only the administrator may touch."""
    login = plain_jaas(**{ALICE: ALICES, ADMIN: SECRET})
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": Issuer(tmp_path_factory.mktemp("jwks") / "keys.json").url,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "authorizer.class.name": STANDARD,
        "super.users": f"User:{ADMIN}",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedBroker(config=config, timeout=PATIENCE_SECONDS) as broker:
        admin = AdminClient(
            {"bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT",
             "sasl.mechanism": "PLAIN", "sasl.username": ADMIN, "sasl.password": SECRET}
        )  # fmt: skip
        for done in admin.create_topics([NewTopic("open", 1), NewTopic("closed", 1)]).values():
            done.result(PATIENCE_SECONDS)
        rule = AclBinding(
            ResourceType.TOPIC, "closed", ResourcePatternType.LITERAL, f"User:{ADMIN}", "*",
            AclOperation.ALL, AclPermissionType.ALLOW,
        )  # fmt: skip
        for done in admin.create_acls([rule]).values():
            done.result(PATIENCE_SECONDS)
        yield broker


@pytest.fixture
def given(guarded: EmbeddedBroker) -> Given:
    return {
        "kafka.bootstrap.servers": guarded.bootstrap,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas(username=ALICE, password=ALICES),
        "topic": "open",
    }


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def no_token() -> str:
    """What a user's own function may raise."""
    raise RuntimeError(f"the vault does not take {TOKEN}")


def wrong_password(given: Given, pki: Pki) -> None:
    write(given | {"kafka.sasl.jaas.config": jaas(username=ALICE, password=WRONG)})


def wrong_password_by_its_own_option(given: Given, pki: Pki) -> None:
    del given["kafka.sasl.jaas.config"]
    write(given | {"kafka.sasl.username": ALICE, "kafka.sasl.password": WRONG})


def mechanism_not_offered(given: Given, pki: Pki) -> None:
    scram = jaas("scram.ScramLoginModule", username=ALICE, password=ALICES)
    write(given | {"kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.jaas.config": scram})


def unreachable(given: Given, pki: Pki) -> None:
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        write(given | {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "kafka.request.timeout.ms": "100"})


def may_not_write(given: Given, pki: Pki) -> None:
    write(given | {"topic": "closed"})


def may_not_read(given: Given, pki: Pki) -> None:
    source = {name: value for name, value in given.items() if name != "topic"}
    with Cluster(source_options(source | {"subscribe": "closed"}, stream=True).client) as cluster:
        cluster.topic("closed")


def misspelt(given: Given, pki: Pki) -> None:
    write(given | {"kafka.sasl.jaas.confg": given.pop("kafka.sasl.jaas.config")})


def jaas_that_is_none(given: Given, pki: Pki) -> None:
    write(
        given | {"kafka.sasl.jaas.config": f"{jaas(username=ALICE, password=ALICES)[:-1]} password {WRONG}"}
    )


def jaas_of_another_mechanism(given: Given, pki: Pki) -> None:
    other = jaas("oauthbearer.OAuthBearerLoginModule", clientId="app", clientSecret=APPS)
    write(given | {"kafka.sasl.jaas.config": other})


def kerberos_with_a_password(given: Given, pki: Pki) -> None:
    write(by_kerberos(given, f'useTicketCache=true password="{ALICES}";'))


def kerberos_text_that_is_none(given: Given, pki: Pki) -> None:
    write(by_kerberos(given, f'useTicketCache=true password="{ALICES}" {WRONG}'))


def by_kerberos(given: Given, login: str) -> Given:
    module = "com.sun.security.auth.module.Krb5LoginModule required"
    named = {"kafka.sasl.mechanism": "GSSAPI", "kafka.sasl.kerberos.service.name": "kafka"}
    return given | named | {"kafka.sasl.jaas.config": f"{module} {login}"}


def secrets_without_their_protocol(given: Given, pki: Pki) -> None:
    write(given | {"kafka.security.protocol": "PLAINTEXT", "kafka.sasl.password": ALICES})


def key_that_cannot_be_read(given: Given, pki: Pki) -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{KEYS}\n-----END PRIVATE KEY-----"
    chain = pki.client.read_text()
    keys = {"kafka.ssl.keystore.key": key, "kafka.ssl.keystore.certificate.chain": chain}
    tls = {"kafka.security.protocol": "SASL_SSL", "kafka.ssl.key.password": KEYS}
    write(given | tls | keys)


def no_tls_there(given: Given, pki: Pki) -> None:
    tls = {"kafka.security.protocol": "SASL_SSL", "kafka.ssl.truststore.location": str(pki.ca)}
    write(given | tls | {"kafka.ssl.key.password": KEYS, "kafka.request.timeout.ms": "2000"})


def token_endpoint_gone(given: Given, pki: Pki) -> None:
    login = jaas("oauthbearer.OAuthBearerLoginModule", clientId="app", clientSecret=APPS)
    url = {"kafka.sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/token"}
    write(given | url | {"kafka.sasl.mechanism": "OAUTHBEARER", "kafka.sasl.jaas.config": login})


def token_callback_fails(given: Given, pki: Pki) -> None:
    del given["kafka.sasl.jaas.config"]
    callback = {"kafka.sasl.oauthbearer.token.callback": f"{__name__}:no_token"}
    write(given | callback | {"kafka.sasl.mechanism": "OAUTHBEARER"})


def assertion_key_that_does_not_open(given: Given, pki: Pki) -> None:
    write(by_assertion(given, pki))


def by_assertion(given: Given, pki: Pki) -> Given:
    """With a wrong passphrase of the key that signs it."""
    key = pki.ca.parent / "key.pem"
    secret = BestAvailableEncryption(KEYS.encode())
    made = ec.generate_private_key(ec.SECP256R1())
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    prefix = "kafka.sasl.oauthbearer."
    left = {name: value for name, value in given.items() if name != "kafka.sasl.jaas.config"}
    assertion = {"private.key.file": str(key), "private.key.passphrase": WRONG, "algorithm": "ES256"}
    options = {f"{prefix}assertion.{name}": value for name, value in assertion.items()}
    url = {f"{prefix}token.endpoint.url": "http://127.0.0.1:9/token"}
    return left | options | url | {"kafka.sasl.mechanism": "OAUTHBEARER"}


def secret_of_kafka_4_at_an_endpoint_that_is_gone(given: Given, pki: Pki) -> None:
    prefix = "kafka.sasl.oauthbearer."
    del given["kafka.sasl.jaas.config"]
    login = {"client.credentials.client.id": "app", "client.credentials.client.secret": APPS}
    options = {f"{prefix}{name}": value for name, value in login.items()}
    url = {f"{prefix}token.endpoint.url": "http://127.0.0.1:9/token"}
    write(given | options | url | {"kafka.sasl.mechanism": "OAUTHBEARER"})


def aws_keys_that_are_refused(given: Given, pki: Pki) -> None:
    """The broker knows another secret of theirs; AWS another session."""
    keys = f'awsRoleArn="{ROLE}" awsRoleAccessKeyId="{ALICE}" awsRoleSecretAccessKey="{ALICES}"'
    module = f'software.amazon.msk.auth.iam.IAMLoginModule required {keys} awsRoleSessionToken="{TOKEN}"'
    with (
        MskBroker({}, "eu-west-1") as broker,
        sts(lambda form: None) as url,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("AWS_ENDPOINT_URL_STS", url)
        login = {
            "kafka.sasl.mechanism": "AWS_MSK_IAM",
            "kafka.sasl.jaas.config": f'{module} awsRegion="eu-west-1";',
        }
        write(given | login | {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}"})


def session_that_is_refused(given: Given, pki: Pki) -> None:
    module = 'software.amazon.msk.auth.iam.IAMLoginModule required awsRegion="eu-west-1";'
    with MskBroker({}, "eu-west-1") as broker, pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "ACCESS_KEY_ID": ALICE,
            "SECRET_ACCESS_KEY": ALICES,
            "SESSION_TOKEN": TOKEN,
        }.items():
            patch.setenv(f"AWS_{name}", value)
        login = {"kafka.sasl.mechanism": "AWS_MSK_IAM", "kafka.sasl.jaas.config": module}
        write(given | login | {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}"})


def token_in_milliseconds() -> tuple[str, float]:
    return TOKEN, 1.7e12


def token_callback_in_milliseconds(given: Given, pki: Pki) -> None:
    del given["kafka.sasl.jaas.config"]
    callback = {"kafka.sasl.oauthbearer.token.callback": f"{__name__}:token_in_milliseconds"}
    write(given | callback | {"kafka.sasl.mechanism": "OAUTHBEARER"})


def batch_refused(given: Given, pki: Pki) -> None:
    """A task's transaction is gone before the decision."""
    write(given, abort_at=1)


def rows_lost(given: Given, pki: Pki) -> None:
    """The same after the decision."""
    write(given | {"two.phase.commit": "false"}, abort_at=2)


def two_phase_commit_not_offered(given: Given, pki: Pki) -> None:
    write(given | {"two.phase.commit": "require", "topic": "closed"})


FAILURES: dict[Callable[[Given, Pki], None], str] = {
    wrong_password: "AuthenticationRefused: .*PLAIN as alice",
    wrong_password_by_its_own_option: "AuthenticationRefused: .*PLAIN as alice",
    mechanism_not_offered: "does not accept kafka.sasl.mechanism=SCRAM-SHA-256",
    unreachable: "no broker reached within 100 ms",
    may_not_write: "TOPIC_AUTHORIZATION_FAILED",
    may_not_read: "TOPIC_AUTHORIZATION_FAILED",
    misspelt: "did you mean kafka.sasl.jaas.config",
    jaas_that_is_none: "kafka.sasl.jaas.config cannot be read",
    jaas_of_another_mechanism: "does not go with",
    kerberos_with_a_password: "has no option password",
    kerberos_text_that_is_none: "kafka.sasl.jaas.config cannot be read",
    secrets_without_their_protocol: "has no effect with kafka.security.protocol=plaintext",
    key_that_cannot_be_read: "kafka.ssl.keystore.certificate.chain or .key cannot be used",
    no_tls_there: "does this port speak TLS",
    token_endpoint_gone: "gave no token for app",
    token_callback_fails: "no_token failed: RuntimeError",
    assertion_key_that_does_not_open: "cannot sign with ES256: ValueError",
    secret_of_kafka_4_at_an_endpoint_that_is_gone: "gave no token for app",
    aws_keys_that_are_refused: "no AWS credentials: AccessDenied",
    session_that_is_refused: "AWS_MSK_IAM as the AWS credentials: .*access key not known",
    token_callback_in_milliseconds: "token_in_milliseconds returned",
    batch_refused: "BatchRefused",
    rows_lost: "ParticipantsLost",
    two_phase_commit_not_offered: "TOPIC_AUTHORIZATION_FAILED|TwoPhase|two.phase",
}


def write(given: Given, abort_at: int = 0) -> None:
    """A batch write, here in this process. `abort_at`: before which commit of its transactions (the sink's
    own, the task's) the task's is aborted by somebody else."""
    options = sink_options(given, stream=False)
    cluster = shared_cluster(options.client)
    commits: list[c.End] = []

    def disturb(command: c.Command[Any]) -> None:
        if isinstance(command, c.End) and command.commit:
            commits.append(command)
        if commits and len(commits) == abort_at:
            transactions.init_producer_id(cluster, report.participant.name, 1000)

    begun = committer.begin_batch(options)
    assert begun is not None and begun.batch is not None
    rows = iter([pa.record_batch({"value": pa.array([b"row"])})])
    report: Any = write_rows(options, begun, Attempt(begun.batch.query_id, 0, 0), rows).report
    if abort_at == 1:
        transactions.init_producer_id(cluster, report.participant.name, 1000)
    runner = Runner(cluster, 60_000, before=disturb if abort_at > 1 else None)
    committer.commit_batch(options, [report], runner)


@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: fail.__name__)
def test_a_failure_tells_no_secret(
    fail: Callable[[Given, Pki], None], given: Given, pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Exception) as raised:  # what it says is looked at below
        fail(given, pki)
    said = "".join(traceback.format_exception(raised.value)) + repr(raised.value) + caplog.text
    assert re.search(FAILURES[fail], said), said
    assert_no_secret_in(said.encode())


def store_that_does_not_open(given: Given, stores: Stores) -> None:
    write(
        given | {"kafka.ssl.keystore.password": WRONG, "kafka.ssl.keystore.location": stores.keys["PKCS12"]}
    )


def key_that_does_not_open(given: Given, stores: Stores) -> None:
    write(with_wrong_key_password(given, stores))


def with_wrong_key_password(given: Given, stores: Stores) -> Given:
    keys = {"kafka.ssl.keystore.location": stores.keys["JKS"], "kafka.ssl.keystore.password": WORD}
    trust = {"kafka.ssl.truststore.location": stores.trust["PKCS12"], "kafka.ssl.truststore.password": WORD}
    return given | keys | trust | {"kafka.ssl.key.password": WRONG, "kafka.security.protocol": "SASL_SSL"}


def store_of_another_type(given: Given, stores: Stores) -> None:
    trust = {"kafka.ssl.truststore.location": str(stores.ca), "kafka.ssl.truststore.password": WORD}
    write(given | trust | {"kafka.ssl.truststore.type": "JKS"})


def trust_that_is_not_there(given: Given, stores: Stores) -> None:
    write(given | {"kafka.ssl.truststore.location": "/nowhere/trust", "kafka.ssl.truststore.password": WORD})


def good_stores_but_no_tls_there(given: Given, stores: Stores) -> None:
    trust = {"kafka.ssl.truststore.location": stores.trust["JKS"], "kafka.ssl.truststore.password": WORD}
    keys = {"kafka.ssl.keystore.location": stores.keys["JKS"], "kafka.ssl.keystore.password": WORD}
    write(given | trust | keys | {"kafka.ssl.key.password": KEY_WORD, "kafka.request.timeout.ms": "2000"})


STORE_FAILURES: dict[Callable[[Given, Stores], None], str] = {
    store_that_does_not_open: "kafka.ssl.keystore.password does not open",
    key_that_does_not_open: "kafka.ssl.key.password does not decrypt",
    store_of_another_type: "is PEM, not JKS",
    trust_that_is_not_there: "kafka.ssl.truststore.location cannot be used",
    good_stores_but_no_tls_there: "does this port speak TLS",
}


@pytest.mark.parametrize("fail", STORE_FAILURES, ids=lambda fail: fail.__name__)
def test_a_store_that_fails_tells_no_secret(
    fail: Callable[[Given, Stores], None], given: Given, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Exception) as raised:  # what it says is looked at below
        fail(given | {"kafka.security.protocol": "SASL_SSL"}, stores)
    said = "".join(traceback.format_exception(raised.value)) + repr(raised.value) + caplog.text
    assert re.search(STORE_FAILURES[fail], said), said
    assert_no_secret_in(said.encode())


def assert_no_secret_in(said: bytes) -> None:
    for secret in SECRETS:
        at = said.find(secret.encode())
        assert at < 0, said[max(at - 300, 0) : at + 300]


def test_the_figures_of_a_batch_tell_no_secret(
    given: Given, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """progress.log: on the standard error, and in the log of whoever listens at INFO."""
    caplog.set_level(logging.DEBUG)
    options = sink_options(given | {"progress.log": "true"}, stream=True)
    begun = committer.begin_batch(options)
    assert begun is not None and begun.batch is not None
    rows = iter([pa.record_batch({"value": pa.array([b"row"])})])
    report: Any = write_rows(options, begun, Attempt(begun.batch.query_id, 0, 0), rows).report
    committer.commit_stream(options, [report], 0)
    line = capfd.readouterr().err
    assert line.startswith(progress.HEAD) and '"rows": 1' in line
    assert '"rows": 1' in caplog.text
    assert_no_secret_in((line + caplog.text + repr(options) + repr(begun) + repr(report)).encode())


@pytest.mark.spark
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_queries_that_fail_leave_no_secret_behind(
    spark: SparkSession,
    given: Given,
    pki: Pki,
    stores: Stores,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Some in a process that works for the driver, one in a task: errors, plans, progress, checkpoints, and
    all that the driver's JVM and the Python workers log at INFO."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    capture.read_global_capture()
    wrong = given | {"kafka.sasl.jaas.config": jaas(username=ALICE, password=WRONG)}
    spark.sparkContext.setLogLevel("INFO")
    try:
        # Together, as most of the time is that in which Spark's Python processes start.
        cases = {
            "password": wrong,
            "topic": given | {"topic": "closed"},
            "assertion": by_assertion(given, pki),
            "store": with_wrong_key_password(given, stores),
        }
        queries = {name: started(spark, options, tmp_path / name) for name, options in cases.items()}
        said = "".join(failed(spark, query, cases[name], tmp_path / name) for name, query in queries.items())
    finally:
        spark.sparkContext.setLogLevel("OFF")
    assert "PLAIN as alice" in said and "TOPIC_AUTHORIZATION_FAILED" in said
    assert "cannot sign with ES256" in said and "kafka.ssl.key.password does not decrypt" in said
    logged = "".join(capture.read_global_capture())
    assert not logged or ("== Physical Plan ==" in logged and " INFO " in logged), (
        "pytest -s shows it instead"
    )
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"batchWatermarkMs" in files
    assert_no_secret_in(said.encode() + logged.encode() + files)


def started(spark: SparkSession, given: Given, folder: Path) -> StreamingQuery:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    rows = rows.selectExpr("cast(value as string) as value")
    given = given | {"checkpointLocation": str(folder)}
    return rows.writeStream.format("eoslog").options(**given).start()


def failed(spark: SparkSession, query: StreamingQuery, given: Given, folder: Path) -> str:
    """All that a query says that fails. Where a new Python process took longer than 10 s to come up, Spark
    has given it up itself: once more."""
    for number in range(TRIES):
        with pytest.raises(StreamingQueryException) as raised:
            query.awaitTermination(PATIENCE_SECONDS)
        if "worker to connect back" in str(raised.value):
            query = started(spark, given, folder / str(number))
            continue
        query.explain(extended=True)
        said = traceback.format_exception(raised.value)
        said += [str(query.exception()), str(query.status), str(query.recentProgress)]
        return "".join(said)
    raise AssertionError("Spark's Python processes do not start")
