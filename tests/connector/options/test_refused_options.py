"""Client settings that cannot be heeded are refused by name; each option of Kafka's has one answer."""

import re
import subprocess
from pathlib import Path

import pytest

from eoslog.connector.options.ignored_and_refused import FIXED, FORBIDDEN, NO_EFFECT
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.options.table import ALIASES, SPARKS_OPTIONS, TABLE
from eoslog.errors import OptionError
from tests.scenarios.apache_kafka import JARS, check

BROKERS = {"kafka.bootstrap.servers": "one:9092"}

REFUSED: dict[str, tuple[str, str]] = {
    "kafka.auto.offset.reset": ("the checkpoint says where to continue", "use the option startingOffsets"),
    "kafka.key.deserializer": ("keys are always binary", "cast or decode them in the DataFrame"),
    "kafka.value.deserializer": ("values are always binary", "cast or decode them in the DataFrame"),
    "kafka.key.serializer": ("keys are written as given", "encode them in the DataFrame"),
    "kafka.value.serializer": ("values are written as given", "encode them in the DataFrame"),
    "kafka.interceptor.classes": ("Java classes and cannot run here", "leave it out"),
    "kafka.partitioner.class": ("a Java class, which cannot run here", "give a column named partition"),
    "kafka.transactional.id": ("each task has its own id", "use the option transactional.id"),
    "kafka.transaction.two.phase.commit.enable": (
        "whether the brokers have it",
        "the option two.phase.commit",
    ),
    "databricks.serviceCredential": ("the JVM of that Spark alone", "kafka.sasl.mechanism=AWS_MSK_IAM"),
    "kafka.topic": ("not a setting of Kafka's clients", "use the option topic instead"),
    "kafka.metric.reporters": ("a Java class, which cannot run here", "leave it out"),
    "kafka.config.providers": ("cannot be looked up by Java classes", "give them as options"),
    "kafka.ssl.engine.factory.class": ("a Java class, which cannot run here", "leave it out"),
    "kafka.ssl.cipher.suites": ("its suites have other names", "give kafka.ssl.enabled.protocols"),
    "kafka.sasl.login.class": (
        "a Java class",
        "give kafka.sasl.oauthbearer.token.callback as module:function",
    ),
}
"""Name: why, and what to do."""

OTHERWISE = {
    "kafka.sasl.client.callback.handler.class": (
        "com.example.Handler",
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    ),
    "kafka.acks": ("0", "all"),
    "kafka.enable.auto.commit": ("true", "false"),
    "kafka.check.crcs": ("false", "true"),
    "kafka.partitioner.ignore.keys": ("true", "false"),
    "kafka.exclude.internal.topics": ("false", "true"),
    "kafka.sasl.oauthbearer.jwt.validator.class": (
        "com.example.Validator",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
    "kafka.sasl.login.callback.handler.class": (
        "com.example.Handler",
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    ),
}
"""Name: a value that is refused, and the one that it always has."""


def said_to(options: dict[str, str], what: str) -> str:
    with pytest.raises(OptionError) as raised:
        if what == "write":
            sink_options({**BROKERS, "topic": "t", **options}, stream=True)
        else:
            source_options({**BROKERS, "subscribe": "t", **options}, stream=what == "stream")
    return str(raised.value)


@pytest.mark.parametrize("what", ["stream", "batch", "write"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_name_says_which_why_and_what_to_do(name: str, what: str) -> None:
    why, instead = REFUSED[name]
    for spelt in (name, name.upper()):
        said = said_to({spelt: "secret-of-somebody"}, what)
        assert said.startswith(f"option {name} is not supported: "), said
        assert why in said and instead in said
        assert said.index(why) < said.index(instead)
        assert "secret-of-somebody" not in said


@pytest.mark.parametrize("what", ["stream", "batch", "write"])
@pytest.mark.parametrize("name", OTHERWISE)
def test_a_setting_that_is_what_it_is_says_so(name: str, what: str) -> None:
    value, always = OTHERWISE[name]
    said = said_to({name: value}, what)
    assert said == f"option {name} cannot be {value!r}: it is always {always}; leave it out"


def test_no_name_is_left_out_here() -> None:
    assert set(REFUSED) == set(FORBIDDEN)
    assert set(OTHERWISE) == set(FIXED)


@pytest.mark.parametrize("name", ["kafka.no.such.setting", "kafka.sasl.jaas.confg", "kafka."])
def test_an_unknown_name_of_a_client_setting_is_refused(name: str) -> None:
    said = said_to({name: "secret-of-somebody"}, "write")
    assert re.match(f"unknown option {re.escape(name)}: (did you mean|the documentation)", said)
    assert "secret-of-somebody" not in said


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "processing.guarantee=exactly_once needs transactions.*give processing.guarantee=at_least_once"),
        ({"processing.guarantee": "at_most_once"}, "processing.guarantee=at_most_once needs transactions"),
        ({"mode": "at_least_once", "transactional.id": "copy"}, "transactional.id.*leave one of them out"),
        ({"mode": "at_least_once", "write.token": "x"}, "write.token"),
        ({"mode": "at_least_once", "two.phase.commit": "require"}, "two.phase.commit=require"),
    ],
)
def test_without_idempotence_nothing_is_promised_that_needs_it(
    given: dict[str, str], says: str, stream: bool
) -> None:
    options = {**BROKERS, "topic": "t", "kafka.enable.idempotence": "False", **given}
    with pytest.raises(OptionError, match=says):
        sink_options(options, stream=stream)


def test_at_least_once_does_without_idempotence() -> None:
    plain = {**BROKERS, "topic": "t", "mode": "at_least_once"}
    assert sink_options(plain, stream=True).idempotent
    assert not sink_options({**plain, "kafka.enable.idempotence": "false"}, stream=True).idempotent
    source_options({**BROKERS, "subscribe": "t", "kafka.enable.idempotence": "false"}, stream=True)


# -- every option of Kafka's ---------------------------------------------------------------------
# Every option of Kafka's clients and of Spark's connector has one answer; a page counts them.

HERE = Path(__file__).parent  # the docs count them from the same file
INTERNAL = {"kafka.internal.throw.on.fetch.stable.offset.unsupported"}
"""Refused as an unknown name: Kafka has it for itself."""
KAFKAS = [f"kafka.{name}" for name in (HERE / "kafka_client_options.txt").read_text().split()]
TAKEN = {*(one.name for one in TABLE), *ALIASES, *FIXED}


def test_every_option_has_one_answer() -> None:
    for name in (*KAFKAS, *SPARKS_OPTIONS):
        found = [name in table for table in (TAKEN, NO_EFFECT, FORBIDDEN)]
        assert sum(found) == (0 if name in INTERNAL else 1), name


@pytest.mark.kafka
def test_the_list_is_that_of_kafkas_jars() -> None:
    check()
    command = ["java", "-cp", f"{JARS}/*", str(HERE / "ClientOptions.java")]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout
    assert [f"kafka.{name}" for name in said.split()] == KAFKAS
