"""Where a read begins and ends by time or by a group's offsets; batches that wait, for rows or a
transaction.
"""

import json
import logging
import time
from collections.abc import Iterator
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eoslog.client.admin import transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.client.wire.connection import BrokerConnection
from eoslog.connector.commit.transactional_ids import ParticipantSlot, Sink
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source import held_back, reader
from eoslog.connector.source.reader import BatchReader, StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable, ReadMaxRows, ReadMinRows
from eoslog.errors import OptionError, RetriesExhausted
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.names_by_sink import sink_of
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.brokers import ON_KAFKA, Kafka, bare
from tests.connector.source.test_source_stream import reader as stream_reader
from tests.kit.program import until

# -- times ---------------------------------------------------------------------------------------
# Where a read begins and ends by time or by a group's offsets, and batches that wait for enough rows.

T = 1_700_000_000_000
NO_LIMIT = ReadAllAvailable()
Planned = list[tuple[int, int, int]]


def options(kafka: Kafka, topic: str, stream: bool, given: dict[str, str]) -> Any:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return source_options(
        {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, **named}, stream=stream
    )


def planned(kafka: Kafka, topic: str, **given: str) -> Planned:
    """(partition, start, end) of a batch read."""
    made = BatchReader(options(kafka, topic, False, given))
    return [(r.partition, r.start, r.end) for r in made.partitions() if r.topic]  # type: ignore[attr-defined]


def stream(kafka: Kafka, topic: str, **given: str) -> StreamReader:
    return StreamReader(options(kafka, topic, True, given))


def by_time(topic: str, **times: int) -> str:
    return json.dumps({topic: {name.removeprefix("p"): at for name, at in times.items()}})


@pytest.fixture(scope="module")
def timed(kafka: Kafka) -> str:
    """Partition 0 has records at T, T+10 ... T+90, partition 1 at T and T+5."""
    topic = kafka.topic(2)
    for step in range(10):
        kafka.put(topic, [b"%d" % step], 0, timestamp=T + 10 * step)
    for step in range(2):
        kafka.put(topic, [b"%d" % step], 1, timestamp=T + 5 * step)
    return topic


def test_from_a_time_in_every_partition(kafka: Kafka, timed: str) -> None:
    assert planned(kafka, timed, startingTimestamp=str(T)) == [(0, 0, 10), (1, 0, 2)]
    assert planned(kafka, timed, startingTimestamp=str(T + 1)) == [(0, 1, 10), (1, 1, 2)]


def test_where_no_record_is_young_enough(kafka: Kafka, timed: str) -> None:
    with pytest.raises(
        OptionError, match=rf"no record has the given time .*{timed}-1 \(at {T + 6} ms\).*Strategy=latest"
    ):
        planned(kafka, timed, startingTimestamp=str(T + 6))
    late = {"startingTimestamp": str(T + 6), "startingOffsetsByTimestampStrategy": "latest"}
    assert planned(kafka, timed, **late) == [(0, 1, 10)]


def test_until_a_time(kafka: Kafka, timed: str) -> None:
    assert planned(kafka, timed, endingTimestamp=str(T + 5)) == [(0, 0, 1), (1, 0, 1)]
    assert planned(kafka, timed, endingTimestamp=str(T + 1000)) == [(0, 0, 10), (1, 0, 2)]
    assert planned(kafka, timed, startingTimestamp=str(T + 1), endingTimestamp=str(T + 30)) == [
        (0, 1, 3),
        (1, 1, 2),
    ]


def test_a_time_for_each_partition(kafka: Kafka, timed: str) -> None:
    start, end = by_time(timed, p0=T + 20, p1=T), by_time(timed, p0=T + 40, p1=T + 5)
    both = {"startingOffsetsByTimestamp": start, "endingOffsetsByTimestamp": end}
    assert planned(kafka, timed, **both) == [(0, 2, 4), (1, 0, 1)]


def test_what_wins_over_what(kafka: Kafka, timed: str) -> None:
    offsets = json.dumps({timed: {"0": 7, "1": 1}})
    each = by_time(timed, p0=T + 20, p1=T + 5)
    given = {"startingOffsets": offsets, "startingOffsetsByTimestamp": each}
    assert planned(kafka, timed, **given) == [(0, 2, 10), (1, 1, 2)]
    assert planned(kafka, timed, **given, startingTimestamp=str(T)) == [(0, 0, 10), (1, 0, 2)]
    ends = {"endingOffsets": offsets, "endingOffsetsByTimestamp": each}
    assert planned(kafka, timed, **ends) == [(0, 0, 2), (1, 0, 1)]
    assert planned(kafka, timed, **ends, endingTimestamp=str(T + 10)) == [(0, 0, 1), (1, 0, 2)]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingTimestamp": "-1"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": "1"}, "give startingOffsetsByTimestamp as JSON"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "is no time for partition 0"),
        ({"startingOffsetsByTimestamp": '{"x":{"0":1}}'}, "must name the same topics"),
        ({"endingOffsetsByTimestamp": '{"x":{"0":1}}'}, "must name the same topics"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "choose one of error, latest"),
        ({"startingOffsets": "committed"}, "give transactional.id, or kafka.group.id"),
        ({"endingOffsets": "committed"}, "as earliest, latest, or JSON"),
    ],
)
def test_what_is_wrong_is_said(kafka: Kafka, given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        options(kafka, "t", False, given)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_a_batch_that_ends_at_a_time_waits_for_what_is_open_before_it(
    kafka: Kafka, commits: bool, late: bool
) -> None:
    """The next batch begins at that time: neither would read these records."""
    topic, timeout = kafka.topic(1), {"kafka__default__api__timeout__ms": "1500"}
    kafka.put(topic, [b"a"], timestamp=T)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"open-{topic}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", timestamp=T + 10)
    producer.flush(20)
    if late:
        kafka.put(topic, [b"next"], timestamp=T + 50)
    assert planned(kafka, topic, endingTimestamp=str(T + 10)) == [(0, 0, 1)]
    with pytest.raises(
        RetriesExhausted, match=rf"are open on {topic}-0, for longer than 1500 ms.*nothing was read"
    ):
        planned(kafka, topic, endingTimestamp=str(T + 20), **timeout)
    uncommitted = planned(
        kafka, topic, endingTimestamp=str(T + 20), kafka__isolation__level="read_uncommitted"
    )
    assert uncommitted == [(0, 0, 2)]
    end = Thread(target=producer.commit_transaction if commits else producer.abort_transaction, args=(20,))
    end.start()
    first = planned(kafka, topic, endingTimestamp=str(T + 20))
    end.join()
    assert first in ([(0, 0, 2)], [(0, 0, 2 if late else 3)])  # with the marker, or without
    if late:
        assert planned(kafka, topic, startingTimestamp=str(T + 20)) == [(0, 2, 4)]


@pytest.mark.parametrize("name", ["endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"])
def test_a_stream_has_no_end(kafka: Kafka, name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is not valid in streaming"):
        options(kafka, "t", True, {name: "1"})


def test_a_partition_without_a_time_is_named(kafka: Kafka, timed: str) -> None:
    with pytest.raises(OptionError, match=f"leaves out {timed}-1"):
        planned(kafka, timed, startingOffsetsByTimestamp=by_time(timed, p0=T))
    with pytest.raises(OptionError, match=f"leaves out {timed}-1"):
        planned(kafka, timed, endingOffsetsByTimestamp=by_time(timed, p0=T))


def test_a_stream_from_a_time(kafka: Kafka, timed: str) -> None:
    assert bare(stream(kafka, timed, startingTimestamp=str(T + 5)).initialOffset()) == {
        timed: {"0": 1, "1": 1}
    }


def test_a_stream_from_the_latest_for_want_of_younger_records_stores_where_it_began(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"old"], timestamp=T)
    made = stream(kafka, topic, startingTimestamp=str(T + 1), startingOffsetsByTimestampStrategy="latest")
    began = made.initialOffset()
    kafka.put(topic, [b"new"], timestamp=T)
    assert bare(made.latestOffset(began, NO_LIMIT)) == bare(began) == {topic: {"0": 1}}


def commit(kafka: Kafka, group: str, topic: str, **offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    places = [TopicPartition(topic, int(name.removeprefix("p")), at) for name, at in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def test_from_where_a_group_stands(kafka: Kafka, timed: str) -> None:
    group = f"stands-{timed}"
    given = {"startingOffsets": "committed", "kafka.group.id": group}
    with pytest.raises(OptionError, match=f"group {group} has committed no offset"):
        planned(kafka, timed, **given)
    commit(kafka, group, timed, p0=4)
    assert planned(kafka, timed, **given) == [(0, 4, 10), (1, 0, 2)], "a partition never committed is new"
    made = stream(kafka, timed, **given)
    began = made.initialOffset()
    assert bare(began) == {timed: {"0": 4, "1": 0}}
    commit(kafka, group, timed, p0=9, p1=1)
    stored = made.latestOffset(began, NO_LIMIT)
    assert bare(stored) == bare(began), "the first batch stores where the query began"


class Clock:
    """A clock that the test moves: a busy machine must not make a delay run out."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_batch_waits_for_enough_rows_or_long_enough(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(reader, "time", clock)
    topic = kafka.topic(2)
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "10", "maxTriggerDelay": "700ms"}
    made = stream(kafka, topic, **given)
    limit = made.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    kafka.put(topic, [b"x"] * 3)
    first = made.latestOffset(made.initialOffset(), limit)
    assert bare(first) == {topic: {"0": 3, "1": 0}}, "a query that begins does not wait"
    kafka.put(topic, [b"x"] * 9)
    assert made.latestOffset(first, limit) == first
    assert bare(made.latestOffset(first, NO_LIMIT)) == {topic: {"0": 12, "1": 0}}, (
        "availableNow does not wait"
    )
    kafka.put(topic, [b"x"], 1)
    second = made.latestOffset(first, limit)
    assert bare(second) == {topic: {"0": 12, "1": 1}}, "ten are enough"
    kafka.put(topic, [b"x"])
    clock.now += 0.69
    assert made.latestOffset(second, limit) == second, "too early by 10 ms"
    clock.now += 0.02
    assert bare(made.latestOffset(second, limit)) == {topic: {"0": 13, "1": 1}}, "long enough"


def test_at_least_and_at_most(kafka: Kafka) -> None:
    topic = kafka.topic()
    made = stream(
        kafka, topic, startingOffsets="earliest", minOffsetsPerTrigger="10", maxOffsetsPerTrigger="20"
    )
    limit = made.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    began = made.initialOffset()
    kafka.put(topic, [b"x"] * 50)
    first = made.latestOffset(began, limit)
    assert bare(first) == {topic: {"0": 20}}
    assert bare(made.latestOffset({topic: {"0": 45}}, limit)) == {topic: {"0": 45}}


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("2h", 7_200_000), ("30s", 30_000), ("5", 5), ("1 min", 60_000), ("1d", 86_400_000)],
)
def test_delays(kafka: Kafka, text: str, ms: int) -> None:
    assert options(kafka, "t", True, {"maxTriggerDelay": text}).max_delay_ms == ms


@pytest.mark.parametrize("text", ["soon", "1.5h", "-1s", "10y"])
def test_bad_delays(kafka: Kafka, text: str) -> None:
    with pytest.raises(OptionError, match="30s, 15m or 2h"):
        options(kafka, "t", True, {"maxTriggerDelay": text})


# -- an open transaction -------------------------------------------------------------------------
# A source that waits behind an open transaction says so once, whose it is, and how to end it.


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return kafka.topic(2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The seconds that the watch sees go by."""
    now = [1000.0]
    told = SimpleNamespace(
        monotonic=lambda: now[0], time=time.time, strftime=time.strftime, gmtime=time.gmtime
    )
    monkeypatch.setattr(held_back, "time", told)
    yield now


def trigger(made: StreamReader, topic: str) -> dict[str, dict[str, int]]:
    return bare(made.latestOffset({topic: {"0": 0, "1": 0}}, NO_LIMIT))


def hold(kafka: Kafka, topic: str, name: str) -> Producer:
    """Leave a transaction open on both partitions."""
    producer = kafka.transactional(name)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, b"open", partition=partition)
    assert producer.flush(20) == 0
    for partition in (0, 1):
        kafka.put(topic, [b"after"] * 2, partition)
    return producer


def test_it_is_told_once_and_costs_nothing_before(
    kafka: Kafka,
    topic: str,
    clock: list[float],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, made = f"holder-{topic}", stream_reader(kafka, topic)
    kafka.put(topic, [b"before"] * 3)
    hold(kafka, topic, name)
    sent: list[str] = []
    send = BrokerConnection.send

    def noted(self: BrokerConnection, api: ApiKey, *more: Any, **named: Any) -> int:
        sent.append(APIS[api].name)
        return send(self, api, *more, **named)

    monkeypatch.setattr(BrokerConnection, "send", noted)
    caplog.set_level(logging.WARNING, "eoslog")
    assert trigger(made, topic) == {topic: {"0": 3, "1": 0}}
    sent.clear()
    clock[0] += 59
    assert trigger(made, topic) == {topic: {"0": 3, "1": 0}}
    assert sent == ["Metadata", "ListOffsets"] and not caplog.records
    clock[0] += 2
    trigger(made, topic)
    (said,) = (record.getMessage() for record in caplog.records)
    assert f"{topic}-0 (and {topic}-1): no committed record can be read from offset 3 on" in said
    assert "though the log continues to 6" in said
    assert f"transactional id {name}, producer id" in said and "open since" in said and "Ongoing" in said
    assert f"eoslog transactions abort --transactional-id {name}. See errors/reading.md#" in said
    clock[0] += 200
    sent.clear()
    trigger(made, topic)
    assert sent == ["Metadata", "ListOffsets", "ListOffsets"] and len(caplog.records) == 1


def test_the_metrics_are_told_when_a_partition_that_was_held_back_moves(
    kafka: Kafka, topic: str, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Any]] = []
    monkeypatch.setattr(held_back, "tell", lambda event, **of: told.append((event, of["partitions"])))
    kafka.put(topic, [b"before"] * 3, 1)
    holder = hold(kafka, topic, f"holder-{topic}")
    made = stream_reader(kafka, topic)
    trigger(made, topic)
    clock[0] += 61
    trigger(made, topic)
    assert told == [("held", [(topic, 0), (topic, 1)])]
    holder.abort_transaction(60)
    until(lambda: trigger(made, topic)[topic]["0"] > 3)
    until(lambda: trigger(made, topic)[topic]["1"] > 3)
    assert sorted(place for event, places in told[1:] if event == "moved" for place in places) == [
        (topic, 0), (topic, 1),
    ]  # fmt: skip
    kafka.put(topic, [b"more"])
    trigger(made, topic)
    assert len([event for event, _ in told if event == "held"]) == 1
    assert sum(len(places) for event, places in told if event == "moved") == 2, "told once"


def test_an_idle_topic_is_no_standstill(
    kafka: Kafka, topic: str, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    made = stream_reader(kafka, topic)
    kafka.put(topic, [b"before"] * 3)
    for _ in range(3):
        trigger(made, topic)
        clock[0] += 61
    assert not caplog.records


def test_a_run_of_what_is_there_tells_it_as_well(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hold(kafka, topic, f"holder-{topic}")
    stream_reader(kafka, topic).prepareForTriggerAvailableNow()
    assert not caplog.records, "it is young"
    monkeypatch.setattr(held_back, "STANDSTILL_SECONDS", -60)
    stream_reader(kafka, topic).prepareForTriggerAvailableNow()
    assert f"transactional id holder-{topic}" in caplog.text


@pytest.mark.skipif(ON_KAFKA, reason="seals without a right to")
def test_a_sealed_one_is_named_with_its_sink(
    kafka: Kafka, topic: str, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(f"a/{topic}")
    name = sink.participant(ParticipantSlot(ProducerIdentity(7, 0), 1, "w", 3))
    assert sink_of(name) == sink.id and sink_of(sink.coordinator) is None
    hold(kafka, topic, name)
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        assert isinstance(
            transactions.keep_prepared(cluster, [name], 60_000)[name], transactions.AcquiredTransaction
        )
    made = stream_reader(kafka, topic)
    for _ in range(2):
        trigger(made, topic)
        clock[0] += 61
    assert f"of the sink {sink.id}" in caplog.text and "never times out" in caplog.text
    assert f"eoslog transactions abort --transactional-id {name} --force" in caplog.text
