"""Options: what is right is read, what is wrong is said with what to do about it."""

import pickle
from typing import Any

import pytest

from eoslog.connector.client.config import ClientConfig
from eoslog.connector.errors import OptionError
from eoslog.connector.option_table import ALIASES, FIXED, FORBIDDEN, TABLE, Kind, Use
from eoslog.connector.options import (
    Guarantee,
    SinkOptions,
    SourceOptions,
    parse,
    sink_options,
    source_options,
)

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


def test_options_travel_to_the_tasks() -> None:
    made = sink(topic="t", transactional__id="s", kafka__group__id="g", kafka__compression__type="zstd",
                path="p", checkpointLocation="file:/c", queryName="q", kafka__transaction__timeout__ms="5000",
                kafka__batch__size="1000")  # fmt: skip
    assert pickle.loads(pickle.dumps(made)) == made
    assert (made.topic, made.transactional_id, made.group_id, made.codec) == ("t", "s", "g", 4)
    assert (made.path, made.checkpoint_location, made.query_name) == ("p", "file:/c", "q")
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
]


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
    assert not set(names) & {n.lower() for n in (*ALIASES, *FIXED, *FORBIDDEN)}
    for option in TABLE:
        assert option.meaning.endswith(".") and option.use
        assert bool(option.choices) == (option.kind is Kind.CHOICE)
        assert option.default is None or option.kind is not Kind.CHOICE or option.default in option.choices
    for use in (Use.READ, Use.READ_STREAM, Use.WRITE, Use.WRITE_STREAM):
        assert set(parse(BROKERS, use)) == {o.name.lower() for o in TABLE if o.use & use}
