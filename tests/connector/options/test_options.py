"""The options of the connector, and client settings that are refused by name."""

from __future__ import annotations

import pickle
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eoslog.client.wire.config import ClientConfig
from eoslog.connector.options.ignored_and_refused import FIXED, FORBIDDEN, NO_EFFECT
from eoslog.connector.options.parsing import parse
from eoslog.connector.options.sink_options import Guarantee, SinkOptions, sink_options
from eoslog.connector.options.source_options import SourceOptions, source_options
from eoslog.connector.options.table import ALIASES, SPARKS_OPTIONS, TABLE, OptionType, Use
from eoslog.errors import OptionError
from tests.scenarios.apache_kafka import JARS, check

# -- options ---------------------------------------------------------------------------------------
# Options: what is right is read, what is wrong is said with what to do about it.


BROKERS = {"kafka.bootstrap.servers": "one:9092,two:9093"}


def source(stream: bool = False, /, **options: Any) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return source_options({**BROKERS, **named}, stream=stream)


def sink(stream: bool = True, /, **options: Any) -> SinkOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return sink_options({**BROKERS, **named}, stream=stream)


def test_defaults_of_a_batch_and_of_a_stream() -> None:
    batch, stream = source(subscribe="t"), source(True, subscribe="t")
    assert (batch.starting, batch.ending, stream.starting) == (-2, -1, -1)
    assert batch.committed and batch.fail_on_data_loss and not batch.headers
    assert batch.client.bootstrap == (("one", 9092), ("two", 9093))
    made = sink()
    assert made.guarantee is Guarantee.EXACTLY_ONCE
    assert (made.transaction_timeout_ms, made.codec, made.max_batch_bytes) == (900_000, 0, 900_000)
    assert (made.topic, made.transactional_id, made.group_id, made.checkpoint_location) == (None,) * 4


def test_names_and_words_in_any_case() -> None:
    made = source_options(
        {
            "KAFKA.Bootstrap.Servers": "a:1",
            "SUBSCRIBE": " a, b ,a",
            "STARTINGoffsets": "Earliest",
            "IncludeHeaders": "TRUE",
            "failondataloss": "False",
            "kafka.isolation.LEVEL": "READ_UNCOMMITTED",
        },
        stream=True,
    )
    assert made.subscribe == ("a", "b") and made.starting == -2
    assert made.headers and not made.fail_on_data_loss and not made.committed


def test_every_client_setting_arrives() -> None:
    made = sink(
        kafka__client__id="me",
        kafka__request__timeout__ms="11",
        kafka__default__api__timeout__ms="12",
        kafka__delivery__timeout__ms="13",
        kafka__retry__backoff__ms="14",
        kafka__retry__backoff__max__ms="15",
        kafka__max__request__size="16",
    )
    assert made.client == ClientConfig((("one", 9092), ("two", 9093)), "me", 11, 12, 13, 14, 15, 16)


def test_client_settings_by_which_people_tune() -> None:
    made = source(
        subscribe="t",
        kafkaConsumer__pollTimeoutMs="1",
        kafka__metadata__max__age__ms="2",
        kafka__fetch__min__bytes="3",
        kafka__fetch__max__wait__ms="4",
        kafka__max__partition__fetch__bytes="5",
        kafka__fetch__max__bytes="6",
        kafka__client__rack="r",
        kafka__send__buffer__bytes="7",
        kafka__receive__buffer__bytes="-1",
        kafka__socket__connection__setup__timeout__ms="8",
        fetchOffset__numRetries="9",
        fetchOffset__retryIntervalMs="10",
    )
    client = made.client
    assert (client.poll_timeout_ms, client.metadata_max_age_ms, client.fetch_min_bytes) == (1, 2, 3)
    assert (client.fetch_max_wait_ms, client.max_partition_fetch_bytes, client.fetch_max_bytes) == (4, 5, 6)
    assert (client.client_rack, client.send_buffer_bytes, client.receive_buffer_bytes) == ("r", 7, -1)
    assert (client.connect_timeout_ms, made.end_tries, made.end_pause_ms) == (8, 9, 10)
    write = sink(kafka__max__in__flight__requests__per__connection="1", kafka__max__block__ms="2")
    assert (write.client.max_in_flight, write.client.api_timeout_ms) == (1, 2)


def test_what_changes_no_result_is_taken() -> None:
    for name in NO_EFFECT:
        source_options({**BROKERS, "subscribe": "t", name.upper(): "1"}, stream=True)
        sink_options({**BROKERS, name: "1"}, stream=True)


def test_a_stream_that_waits_for_more_than_it_may_take() -> None:
    with pytest.raises(OptionError, match=r"minOffsetsPerTrigger \(5\) is above maxOffsetsPerTrigger \(4\)"):
        source(True, subscribe="t", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")


def test_spaces_around_names_do_not_count() -> None:
    assert sink(topic=" t ").topic == "t" and source(subscribePattern=" t.* ").pattern == "t.*"


def test_options_travel_to_the_tasks() -> None:
    made = sink(topic="t", transactional__id="s", kafka__group__id="g", kafka__compression__type="zstd",
                path="p", checkpointLocation="file:/c", queryName="q", kafka__transaction__timeout__ms="5000",
                kafka__batch__size="1000")  # fmt: skip
    assert pickle.loads(pickle.dumps(made)) == made
    assert (made.topic, made.transactional_id, made.group_id, made.codec) == ("t", "s", "g", 4)
    assert made.checkpoint_location == "file:/c"
    read = source(True, assign='{"t":[1,0]}', startingOffsets='{"t":{"0":5,"1":-2}}')
    assert pickle.loads(pickle.dumps(read)) == read
    assert read.assign == (("t", 0), ("t", 1)) and read.starting == {("t", 0): 5, ("t", 1): -2}


@pytest.mark.parametrize("name", ["processing.guarantee", "processing.mode", "mode", "Processing.Mode"])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_the_guarantee_under_each_name(name: str, guarantee: Guarantee) -> None:
    assert sink_options({**BROKERS, name: guarantee.value.upper()}, stream=True).guarantee is guarantee


def test_the_guarantee_twice() -> None:
    assert sink(mode="at_least_once", processing__mode="at_least_once").guarantee is Guarantee.AT_LEAST_ONCE
    with pytest.raises(OptionError, match="mean the same option"):
        sink(mode="at_least_once", processing__guarantee="exactly_once")
    with pytest.raises(OptionError, match="mean the same option"):
        sink(mode="at_least_once", processing__mode="at_most_once")


BAD: list[tuple[str, dict[str, str], str]] = [
    ("both", {"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign are both given: keep one"),
    ("pattern too", {"subscribe": "a", "subscribePattern": "a"}, "subscribe and subscribePattern"),
    ("neither", {}, "nothing to read: give one of the options subscribe, subscribePattern, assign"),
    ("empty", {"subscribe": " , "}, "subscribe is empty"),
    ("pattern", {"subscribePattern": "a("}, "no regular expression"),
    ("word", {"subscribe": "a", "startingOffsets": "earlyest"}, "'earlyest': did you mean earliest. give"),
    ("word", {"subscribe": "a", "endingOffsets": "now"}, "cannot be 'now': give endingOffsets as"),
    ("json", {"subscribe": "a", "startingOffsets": "{"}, "cannot be read.*give startingOffsets as"),
    ("word", {"subscribe": "a", "startingOffsets": "newest"}, "as earliest, latest, committed, or JSON"),
    ("latest", {"subscribe": "a", "startingOffsets": "latest"}, "nothing would be read"),
    ("-1", {"subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'}, "nothing would be read"),
    ("earliest", {"subscribe": "a", "endingOffsets": "earliest"}, "nothing to read"),
    ("other topic", {"subscribe": "a", "startingOffsets": '{"b":{"0":1}}'}, "they differ in a, b"),
    ("other part", {"assign": '{"a":[0,1]}', "endingOffsets": '{"a":{"0":1}}'}, "they differ in a-1"),
    ("assign", {"assign": '{"a":"0"}'}, "list of partitions"),
    ("bool", {"subscribe": "a", "includeHeaders": "yes"}, "cannot be 'yes': give true or false"),
    ("zero", {"subscribe": "a", "minPartitions": "0"}, "a whole number above 0"),
    ("count", {"subscribe": "a", "maxRecordsPerPartition": "1e3"}, "give a whole number"),
    ("large", {"subscribe": "a", "kafka.request.timeout.ms": "2147483648"}, "largest is 2147483647"),
    ("level", {"subscribe": "a", "kafka.isolation.level": "committed"}, "one of read_committed, read"),
    ("reset", {"subscribe": "a", "kafka.auto.offset.reset": "latest"}, "use the option startingOffsets"),
    ("deserializer", {"subscribe": "a", "kafka.key.deserializer": "x"}, "always binary"),
    ("value deserializer", {"subscribe": "a", "kafka.value.deserializer": "x"}, "always binary"),
    ("unknown kafka", {"subscribe": "a", "kafka.isolation.lvl": "x"}, "mean kafka.isolation.level"),
    ("unknown far", {"subscribe": "a", "kafka.zzz": "x"}, "unknown option kafka.zzz"),
    ("misspelt", {"subscribe": "a", "startingOffset": "x"}, "did you mean startingOffsets"),
    ("tls", {"subscribe": "a", "kafka.security.protocol": "TLS"}, "cannot be 'TLS'"),
    ("autocommit", {"subscribe": "a", "kafka.enable.auto.commit": "true"}, "always false"),
    ("brokers", {"subscribe": "a", "kafka.bootstrap.servers": "a"}, "not host:port"),
    ("group", {"subscribe": "a", "kafka.group.id": " "}, "kafka.group.id is empty"),
    ("java pattern", {"subscribePattern": "[a-z&&[^b]]+"}, "no regular expression of Python's: Possible"),
    ("poll", {"subscribe": "a", "kafkaConsumer.pollTimeoutMs": "2m"}, "pollTimeoutMs cannot be '2m'"),
    ("tries", {"subscribe": "a", "fetchOffset.numRetries": "0"}, "a whole number above 0"),
    ("buffer", {"subscribe": "a", "kafka.send.buffer.bytes": "-2"}, "or -1 for the system's own"),
    ("crcs", {"subscribe": "a", "kafka.check.crcs": "false"}, "always true"),
    ("times", {"subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":7}}',
               "endingOffsetsByTimestamp": '{"a":{"0":6}}'}, "lies after endingOffsetsByTimestamp .* a-0"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "said"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_source_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source_options({**BROKERS, **options}, stream=False)


BAD_SINK: list[tuple[dict[str, str], str]] = [
    ({"processing.guarantee": "exactly-once"}, "choose one of exactly_once, at_least_once, at_most_once"),
    ({"mode": "append"}, "processing.guarantee cannot be 'append'"),
    ({"kafka.compression.type": "lzma"}, "choose one of none, gzip, snappy, lz4, zstd"),
    ({"kafka.transaction.timeout.ms": "-1"}, "kafka.transaction.timeout.ms cannot be '-1'"),
    ({"kafka.acks": "1"}, "kafka.acks cannot be '1': it is always all"),
    ({"kafka.transactional.id": "x"}, "use the option transactional.id"),
    ({"kafka.value.serializer": "x"}, "encode them in the DataFrame"),
    ({"topic": ""}, "topic is empty"),
    ({"kafka.max.in.flight.requests.per.connection": "6"}, "remember the last 5 batches.*give 5 at most"),
    ({"kafka.partitioner.ignore.keys": "true"}, "always false"),
    ({"kafka.max.block.ms": "5", "kafka.default.api.timeout.ms": "6"}, "mean the same option"),
    ({"kafka.ssl.truststore.password": "x"}, "no effect with kafka.security.protocol=plaintext"),
    ({"kafka.linger": "5"}, "did you mean kafka.linger.ms"),
]


def test_a_group_of_decisions_is_no_group_for_offsets_of_their_topic() -> None:
    """Both would have one place: the second start could not read the decision, and no way out would help."""
    given = {**BROKERS, "topic": "t", "transactional.id": "a/b", "kafka.group.id": "a%2Fb"}
    assert sink_options(given, stream=True).group_id == "a%2Fb"
    for group in ("a%2Fb", "a%2Fb/attempts"):
        with pytest.raises(OptionError, match=r"keeps the decisions .*=a/b.*another name"):
            sink_options({**given, "kafka.group.id": group, "decision.topic": "d"}, stream=True)
    for more in ({"kafka.group.id": "c"}, {"transactional.id": "c"}):
        assert sink_options({**given, "decision.topic": "d", **more}, stream=True)


@pytest.mark.parametrize(("options", "said"), BAD_SINK)
def test_bad_sink_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        sink_options({**BROKERS, **options}, stream=True)


def test_brokers_are_required() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        source_options({"subscribe": "t"}, stream=False)


def test_ending_offsets_do_not_suit_a_stream() -> None:
    with pytest.raises(OptionError, match="endingOffsets is not valid in streaming"):
        source(True, subscribe="t", endingOffsets="latest")


def test_settings_that_are_so_anyway_and_harmless_ones_are_taken() -> None:
    source(subscribe="t", kafka__security__protocol="PLAINTEXT", kafkaConsumer__pollTimeoutMs="5",
           groupIdPrefix="x", somethingElse="1", topic="of the sink",
           kafka__enable__auto__commit="false")  # fmt: skip
    sink(kafka__acks="-1", kafka__enable__idempotence="true", subscribe="of the source")


def test_the_table_is_whole_and_says_something_of_each() -> None:
    names = [option.name.lower() for option in TABLE]
    assert len(names) == len(set(names))
    others = [n.lower() for n in (*ALIASES, *FIXED, *FORBIDDEN, *NO_EFFECT)]
    assert not set(names) & set(others) and len(others) == len(set(others))
    for option in TABLE:
        assert option.meaning.endswith(".") and option.use
        assert bool(option.choices) == (option.kind is OptionType.CHOICE)
        assert (
            option.default is None or option.kind is not OptionType.CHOICE or option.default in option.choices
        )
    for use in (Use.READ, Use.READ_STREAM, Use.WRITE, Use.WRITE_STREAM):
        assert set(parse(BROKERS, use)) == {o.name.lower() for o in TABLE if o.use & use}


TOGETHER: list[tuple[bool, dict[str, Any], str]] = [
    (True, {"write.token": "t-1"}, "write.token names a batch write"),
    (
        False,
        {"write.token": "t", "processing.guarantee": "at_least_once"},
        "write.token needs processing.guar",
    ),
    (
        False,
        {"write.token": "t", "processing.guarantee": "at_most_once"},
        "write.token needs processing.guar",
    ),
    (True, {"two.phase.commit": "require", "processing.guarantee": "at_least_once"}, "has no transactions"),
    (False, {"two.phase.commit": "require"}, "give transactional.id or write.token"),
    (
        True,
        {"on.lost.transaction": "replay", "processing.guarantee": "at_least_once"},
        "needs processing.guar",
    ),
    (
        True,
        {"on.lost.transaction": "replay", "processing.guarantee": "at_most_once"},
        "needs processing.guar",
    ),
    (False, {"on.lost.transaction": "replay"}, "needs write.token"),
    (
        True,
        {"progress.log": "true", "processing.guarantee": "at_least_once"},
        "progress.log reports commits",
    ),
    (True, {"topic": "t", "deadletter.topic": "t"}, "must be another topic"),
    (True, {"processing.guarantee": "exactly_once", "mode": "at_least_once"}, "mean the same option"),
]
"""In a stream or a batch write: options that make no sense together, and what is said of them."""


@pytest.mark.parametrize(("stream", "options", "says"), TOGETHER)
def test_what_makes_no_sense_together_is_refused(stream: bool, options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        sink_options(BROKERS | options, stream=stream)


def _applies(use: Use) -> set[str]:
    return {o.name for o in TABLE if o.use & use or o.name.startswith("kafka.")}


@pytest.mark.parametrize("use", [Use.READ, Use.READ_STREAM, Use.WRITE, Use.WRITE_STREAM])
def test_what_does_nothing_here_is_said(use: Use, caplog: pytest.LogCaptureFixture) -> None:
    values = {
        OptionType.BOOL: "true",
        OptionType.DURATION: "1s",
        OptionType.OFFSETS: "latest",
        OptionType.TIMES: '{"t":{"0":1}}',
    }
    refused = {"write.token"} if use is Use.WRITE_STREAM else set()
    if use is Use.READ_STREAM:
        refused = {name for name in _applies(Use.READ) if name.startswith("ending")}
    for option in TABLE:
        if option.name in _applies(use) | refused:
            continue
        caplog.clear()
        parse(
            BROKERS | {option.name: option.choices[0] if option.choices else values.get(option.kind, "1")},
            use,
        )
        assert f"option {option.name} does nothing in a " in caplog.text


def test_an_option_that_serves_another_one_is_nothing_without_it(caplog: pytest.LogCaptureFixture) -> None:
    source(True, subscribe="t", maxTriggerDelay="5s")
    assert "maxTriggerDelay does nothing without minOffsetsPerTrigger" in caplog.text
    caplog.clear()
    source(True, subscribe="t", maxTriggerDelay="5s", minOffsetsPerTrigger="5")
    source(subscribe="t", startingOffsetsByTimestampStrategy="latest", startingTimestamp="5")
    assert not caplog.text


def test_clients_settings_may_be_shared_by_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    shared = {
        "kafka.fetch.min.bytes": "1",
        "kafka.batch.size": "1000",
        "kafka.transaction.timeout.ms": "5000",
    }
    parse(BROKERS | shared, Use.READ)
    parse(BROKERS | shared, Use.WRITE_STREAM)
    assert not caplog.text


def test_the_second_name_that_create_table_gives_to_an_option_is_left_out() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "failOnDataLoss": "false"}
    copies = {f"option.{name}": value for name, value in given.items()}
    assert source_options({**given, **copies}, stream=False) == source_options(given, stream=False)
    with pytest.raises(OptionError, match=r"unknown option option\.kafka\.bootstrap\.servers"):
        source_options({**given, "option.kafka.bootstrap.servers": "b:1"}, stream=False)


@pytest.mark.parametrize(
    ("named", "selected"),
    [
        ({"subscribe": "a,b"}, [True, True, False]),
        ({"subscribePattern": "a"}, [True, False, False]),
        ({"assign": '{"a":[1],"ab":[0]}'}, [False, False, True]),
    ],
)
def test_which_partitions_a_source_selects(named: dict[str, str], selected: list[bool]) -> None:
    assert [source(**named).selects((topic, 0)) for topic in ("a", "b", "ab")] == selected


# -- the environment -----------------------------------------------------------------------------


def test_options_without_brokers_take_the_cluster_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=other:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
                    "sasl.username=u\nsasl.password=p\n")  # fmt: skip
    monkeypatch.setenv("EOSLOG_COMMAND_CONFIG", str(file))
    taken = source_options({"subscribe": "t"}, stream=True).client
    assert taken.bootstrap == (("other", 1),) and taken.security.sasl is not None
    assert taken.bootstrap_origin == f"bootstrap.servers in {file} (EOSLOG_COMMAND_CONFIG)"
    monkeypatch.setenv("EOSLOG_BOOTSTRAP_SERVERS", "kafka:9092")
    taken = sink_options({"topic": "t", "kafka.client.id": "c"}, stream=True).client
    assert (taken.bootstrap, taken.bootstrap_origin) == ((("kafka", 9092),), "EOSLOG_BOOTSTRAP_SERVERS")
    assert taken.security.sasl is not None and taken.client_id == "c"
    own = source_options({"subscribe": "t", "Kafka.Bootstrap.Servers": "mine:9092"}, stream=False).client
    assert (own.bootstrap, own.bootstrap_origin) == ((("mine", 9092),), "kafka.bootstrap.servers")
    assert own.security.sasl is None, "other brokers never get this cluster's password"


def test_tasks_never_ask_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOSLOG_BOOTSTRAP_SERVERS", "kafka:9092")
    sent = pickle.dumps(source_options({"subscribe": "t"}, stream=True))
    monkeypatch.setenv("EOSLOG_BOOTSTRAP_SERVERS", "of-the-executor:9092")
    assert pickle.loads(sent).client.bootstrap == (("kafka", 9092),)


def test_what_the_environment_lacks_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EOSLOG_COMMAND_CONFIG", str(tmp_path / "none"))
    with pytest.raises(OptionError, match=r"the file of properties .*none cannot be read: No such file"):
        source_options({"subscribe": "t"}, stream=True)
    monkeypatch.delenv("EOSLOG_COMMAND_CONFIG")
    with pytest.raises(OptionError, match=r"missing: give brokers .* or set EOSLOG_BOOTSTRAP_SERVERS where"):
        source_options({"subscribe": "t"}, stream=True)


# -- refused settings ------------------------------------------------------------------------------
# Client settings that cannot be heeded are refused by name; each option of Kafka's has one answer.


BROKERS_OF_REFUSED = {"kafka.bootstrap.servers": "one:9092"}

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
            sink_options({**BROKERS_OF_REFUSED, "topic": "t", **options}, stream=True)
        else:
            source_options({**BROKERS_OF_REFUSED, "subscribe": "t", **options}, stream=what == "stream")
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
    options = {**BROKERS_OF_REFUSED, "topic": "t", "kafka.enable.idempotence": "False", **given}
    with pytest.raises(OptionError, match=says):
        sink_options(options, stream=stream)


def test_at_least_once_does_without_idempotence() -> None:
    plain = {**BROKERS_OF_REFUSED, "topic": "t", "mode": "at_least_once"}
    assert sink_options(plain, stream=True).idempotent
    assert not sink_options({**plain, "kafka.enable.idempotence": "false"}, stream=True).idempotent
    source_options({**BROKERS_OF_REFUSED, "subscribe": "t", "kafka.enable.idempotence": "false"}, stream=True)


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
