"""A source's log that is not the one that the query has read: restored from a copy, or cut, and grown again.

Topic id, cluster id and the query's offset are all in it; the leader epochs beside the offsets tell.
"""

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from eoslog.broker.log import leader_epochs
from eoslog.client.wire.connection import BrokerConnection
from eoslog.connector.offsets.offsets import epochs_from_json
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable, ReadMaxRows
from eoslog.errors import DataLoss
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import ON_KAFKA, Kafka, bare
from tests.connector.source.test_source_stream import planned, reader

NO_LIMIT = ReadAllAvailable()
TOPIC = "events"

pytestmark = pytest.mark.skipif(ON_KAFKA, reason="restores the bundled broker's directory")


class Site:
    """A broker whose data directory is copied and put back while it is down."""

    def __init__(self, directory: Path, *, in_thread: bool = False) -> None:
        self.copy, self.broker = directory / "copy", EmbeddedBroker(directory / "data", in_thread=in_thread)
        self.broker.start()
        self.kafka = Kafka(self.broker.bootstrap)
        self.kafka.topic(name=TOPIC)

    def put(self, said: str, count: int) -> None:
        self.kafka.put(TOPIC, [f"{said}-{number}".encode() for number in range(count)])

    def backup(self) -> None:
        self.broker.stop()
        shutil.copytree(self.broker.data, self.copy)
        self.broker.start()

    def restore(self) -> None:
        self.broker.stop()
        shutil.rmtree(self.broker.data)
        shutil.copytree(self.copy, self.broker.data)
        self.broker.start()

    def cut(self, share: float) -> int:
        """Cut the tail off the log's file, as somebody does who lost a disk's last blocks; its new end."""
        self.broker.stop()
        log = self.broker.data / f"{TOPIC}-0" / f"{0:020d}.log"
        with log.open("r+b") as file:
            file.truncate(int(log.stat().st_size * share))
        (self.broker.data / ".kafka_cleanshutdown").unlink()
        (self.broker.data / "recovery-point-offset-checkpoint").unlink()
        self.broker.start()
        return len(self.kafka.rows(TOPIC))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.broker.stop()


def values(made: StreamReader, start: Any, end: Any) -> list[bytes]:
    """What the tasks of a batch read."""
    return [
        value.as_py()
        for task in made.partitions(start, end)
        for batch in made.read(task)
        for value in batch.column("value")
    ]


def stood_on(site: Site) -> tuple[Any, Any]:
    """Where a query began that has read all, and where it stands; as its checkpoint keeps them."""
    made = reader(site.kafka, TOPIC, startingOffsets="earliest")
    began = made.initialOffset()
    return json.loads(json.dumps(began)), json.loads(json.dumps(made.latestOffset(began, NO_LIMIT)))


def parted(site: Site) -> tuple[Any, Any]:
    """A query has read 150 records; the log was put back to the first 100 and has grown to 220."""
    site.put("first", 100)
    site.backup()
    site.put("read", 50)
    began, stood = stood_on(site)
    assert bare(stood) == {TOPIC: {"0": 150}}
    site.restore()
    site.put("other", 120)
    return began, stood


def test_a_restored_log_that_has_grown_past_the_query_stops_it(site: Site) -> None:
    _, stood = parted(site)
    with pytest.raises(DataLoss, match=rf"{TOPIC}-0.*150.*differs from offset 100.*failOnDataLoss") as caught:
        reader(site.kafka, TOPIC).latestOffset(stood, NO_LIMIT)
    (then,) = epochs_from_json(stood).values()
    assert f"leader epoch {then}" in str(caught.value)


def test_with_fail_on_data_loss_false_it_goes_on_where_the_logs_part(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    _, stood = parted(site)
    for limit in (NO_LIMIT, ReadMaxRows(50)):
        careless = reader(site.kafka, TOPIC, failOnDataLoss="false")
        with caplog.at_level(logging.WARNING, "eoslog"):
            end = careless.latestOffset(stood, limit)
            assert values(careless, stood, end) == []
        assert "the log differs from offset 100 on" in caplog.text
        then = careless.latestOffset(end, NO_LIMIT)
        assert values(careless, end, then) == [b"other-%d" % n for n in range(120)]
        caplog.clear()
        assert careless.latestOffset(then, NO_LIMIT) == then
        restarted = reader(site.kafka, TOPIC)
        assert restarted.latestOffset(then, NO_LIMIT) == then, "it is mended for good"
        assert not caplog.records


def test_a_planned_batch_is_not_replayed_with_other_records(site: Site) -> None:
    began, stood = parted(site)
    with pytest.raises(DataLoss, match=f"{TOPIC}-0.*offset 100"):
        reader(site.kafka, TOPIC).partitions(began, stood)
    careless = reader(site.kafka, TOPIC, failOnDataLoss="false")
    assert len(values(careless, began, stood)) == 100, "what is left of it"
    end = careless.latestOffset(stood, NO_LIMIT)
    assert values(careless, stood, end) == []
    assert len(values(careless, end, careless.latestOffset(end, NO_LIMIT))) == 120


def test_a_planned_batch_of_a_log_that_is_shorter_now(site: Site) -> None:
    """With the option it gives what is left, and then all that is in the log now is read."""
    site.put("first", 100)
    site.backup()
    site.put("read", 50)
    began, stood = stood_on(site)
    site.restore()
    site.put("other", 20)
    with pytest.raises(DataLoss, match=f"{TOPIC}-0 ends at 120, before 150.*differs from offset 100"):
        reader(site.kafka, TOPIC, fetchOffset__retryIntervalMs="1").partitions(began, stood)
    careless = reader(site.kafka, TOPIC, failOnDataLoss="false", fetchOffset__retryIntervalMs="1")
    assert len(values(careless, began, stood)) == 100
    end = careless.latestOffset(stood, NO_LIMIT)
    assert values(careless, stood, end) == []
    then = careless.latestOffset(end, NO_LIMIT)
    assert values(careless, end, then) == [b"other-%d" % n for n in range(20)]


def test_a_planned_batch_of_a_shorter_log_without_leader_epochs(site: Site) -> None:
    """As another connector plans it. Where the logs differ is not known then; what is there is read."""
    site.put("first", 100)
    began, stood = stood_on(site)
    planned = {**without_epochs(stood), TOPIC: {"0": 150}}
    with pytest.raises(DataLoss, match=f"{TOPIC}-0 ends at 100, before 150"):
        reader(site.kafka, TOPIC, fetchOffset__retryIntervalMs="1").partitions(began, planned)
    careless = reader(
        site.kafka,
        TOPIC,
        failOnDataLoss="false",
        fetchOffset__retryIntervalMs="1",
        kafka__default__api__timeout__ms="2000",
    )
    assert len(values(careless, began, planned)) == 100


def without_epochs(stood: Any) -> Any:
    return {name: at for name, at in stood.items() if not name.startswith("leader-epoch:")}


def test_a_cut_log_that_has_grown_past_the_query_stops_it(site: Site) -> None:
    for number in range(15):
        site.put(f"b{number}", 10)
    _, stood = stood_on(site)
    end = site.cut(0.5)
    assert 0 < end < 150
    site.put("other", 200)
    with pytest.raises(DataLoss, match=f"{TOPIC}-0.*differs from offset {end} on,"):
        reader(site.kafka, TOPIC).latestOffset(stood, NO_LIMIT)


def test_a_restored_log_that_has_not_grown_says_where_it_ends(site: Site) -> None:
    site.put("first", 100)
    site.backup()
    site.put("read", 50)
    _, stood = stood_on(site)
    site.restore()
    with pytest.raises(DataLoss, match=f"{TOPIC}-0 ends at 100, before 150"):
        reader(site.kafka, TOPIC, fetchOffset__retryIntervalMs="1").latestOffset(stood, NO_LIMIT)


def test_restarts_of_the_broker_are_no_loss_and_make_no_batch(site: Site) -> None:
    site.put("a", 30)
    made = reader(site.kafka, TOPIC, startingOffsets="earliest")
    began = made.initialOffset()
    half = made.latestOffset(began, ReadMaxRows(20))
    for stop in (site.broker.stop, site.broker.kill, site.broker.stop):
        stop()
        site.broker.start()
        for one in (made, reader(site.kafka, TOPIC)):
            assert bare(one.latestOffset(half, NO_LIMIT)) == {TOPIC: {"0": 30}}
    end = made.latestOffset(half, NO_LIMIT)
    site.broker.restart()
    for one in (made, reader(site.kafka, TOPIC)):
        assert one.latestOffset(end, NO_LIMIT) == end, "another epoch alone is no new offset"
    site.put("b", 10)
    then = made.latestOffset(end, NO_LIMIT)
    assert bare(then) == {TOPIC: {"0": 40}}
    assert epochs_from_json(then)[TOPIC, 0] > epochs_from_json(end)[TOPIC, 0]
    assert planned(reader(site.kafka, TOPIC), half, then) == [(0, 20, 40)]


def test_it_is_asked_once_after_a_change_of_epochs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    send = BrokerConnection.send

    def noted(self: BrokerConnection, api: ApiKey, *more: Any, **named: Any) -> int:
        sent.append(APIS[api].name)
        return send(self, api, *more, **named)

    monkeypatch.setattr(BrokerConnection, "send", noted)
    site.put("a", 30)
    made = reader(site.kafka, TOPIC, startingOffsets="earliest")
    end = made.latestOffset(made.initialOffset(), NO_LIMIT)
    made.latestOffset(end, NO_LIMIT)
    assert reader(site.kafka, TOPIC).latestOffset(end, NO_LIMIT) == end
    assert "OffsetForLeaderEpoch" not in sent
    site.broker.restart()
    sent.clear()
    for _ in range(3):
        assert made.latestOffset(end, NO_LIMIT) == end
    assert sent.count("OffsetForLeaderEpoch") == 1
    site.put("b", 5)
    then = made.latestOffset(end, NO_LIMIT)
    made.latestOffset(then, NO_LIMIT)
    assert sent.count("OffsetForLeaderEpoch") == 1


def test_a_group_that_stands_in_the_other_log(site: Site) -> None:
    """startingOffsets=committed: the epoch is beside the group's offset, as Java's consumer has it."""
    from eoslog.client.admin import groups as group_offsets
    from eoslog.client.wire.cluster import Cluster
    from eoslog.client.wire.config import ClientConfig, parse_addresses

    site.put("first", 100)
    site.backup()
    site.put("read", 50)
    _, stood = stood_on(site)
    (epoch,) = epochs_from_json(stood).values()
    site.restore()
    site.put("other", 120)
    with Cluster(ClientConfig(parse_addresses(site.broker.bootstrap))) as cluster:
        places = {(TOPIC, 0): (150, "")}
        group_offsets.commit_plain(cluster, "g", places, epochs={(TOPIC, 0): epoch})
    options = {"startingOffsets": "committed", "kafka__group__id": "g"}
    with pytest.raises(DataLoss, match=rf"group g.*{TOPIC}-0.*150.*differs from offset 100 on"):
        reader(site.kafka, TOPIC, **options).initialOffset()
    careless = reader(site.kafka, TOPIC, failOnDataLoss="false", **options)
    assert bare(careless.initialOffset()) == {TOPIC: {"0": 100}}


def test_a_line_of_a_checkpoint_that_stands_in_the_other_log(site: Site) -> None:
    """startingOffsets by hand, copied from the checkpoint of a query that goes on from there."""
    _, stood = parted(site)
    line = json.dumps(stood)
    with pytest.raises(DataLoss, match=rf"startingOffsets: {TOPIC}-0.*150.*differs from offset 100 on"):
        reader(site.kafka, TOPIC, startingOffsets=line).initialOffset()
    careless = reader(site.kafka, TOPIC, startingOffsets=line, failOnDataLoss="false")
    assert bare(careless.initialOffset()) == {TOPIC: {"0": 100}}
    bare_line = json.dumps(bare(stood))
    assert bare(reader(site.kafka, TOPIC, startingOffsets=bare_line).initialOffset()) == {TOPIC: {"0": 150}}
    now = reader(site.kafka, TOPIC, startingOffsets="latest").initialOffset()
    assert reader(site.kafka, TOPIC, startingOffsets=json.dumps(now)).initialOffset() == now


def test_lives_of_an_instant_have_epochs_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copy, life, copy put back, life, all within the time of an epoch if none waited for its end."""
    monkeypatch.setattr(leader_epochs, "TICK_MS", 8_000)
    monkeypatch.setattr(leader_epochs, "_WAIT_MS", 16_000)
    site = Site(tmp_path, in_thread=True)
    site.put("first", 10)
    site.backup()
    site.put("read", 5)
    _, stood = stood_on(site)
    site.restore()
    site.put("other", 20)
    with pytest.raises(DataLoss, match="differs from offset 10 on"):
        reader(site.kafka, TOPIC).latestOffset(stood, NO_LIMIT)
    site.broker.stop()


def test_a_stock_consumer_goes_on_over_restarts(site: Site) -> None:
    consumer = Consumer({"bootstrap.servers": site.broker.bootstrap, "group.id": "stock"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    got = 0
    for _ in range(3):
        site.put("x", 10)
        while got % 10 or not got:
            message = consumer.poll(30)
            assert message is not None and not message.error(), message
            got += 1
        site.broker.restart()
        site.put("y", 10)
        for _ in range(10):
            message = consumer.poll(30)
            assert message is not None and not message.error(), message
            got += 1
    consumer.close()
    assert got >= 40
