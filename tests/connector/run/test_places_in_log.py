"""Where a task's rows are, told by its report, and what the log shows there afterwards: on a real broker."""

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition

from eoslog.client.admin import transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit.places import Place, Seen, ended, from_json, places_of, to_json
from eoslog.connector.commit.task_reports import Prepared
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run import places_in_log
from eoslog.connector.run.places_in_log import followed, lacking, look_at
from eoslog.connector.sink.committer import begin_batch
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.protocol import errors
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.names_by_sink import sink_of
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.brokers import Kafka
from tests.kit.program import until


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as made:
        yield made


def written(kafka: Kafka, topic: str, partitions: list[int], rows: int = 3) -> Prepared:
    """A task's report; its transaction is open."""
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "two.phase.commit": "false"}
    options = sink_options(given, stream=False)
    begun = begin_batch(options)
    assert begun is not None and begun.batch is not None
    values = pa.array([b"row"] * (rows * len(partitions)))
    to = pa.array([p for p in partitions for _ in range(rows)], pa.int32())
    batch = pa.record_batch({"value": values, "partition": to})
    report = write_rows(options, begun, Attempt(begun.batch.query_id, 0, 0), iter([batch])).report
    assert isinstance(report, Prepared)
    return report


def end(cluster: Cluster, report: Prepared, *, commit: bool) -> None:
    transactions.end_txn(cluster, *report.participant, commit=commit)


def seen(cluster: Cluster, *places: Place) -> list[Seen]:
    found = look_at(cluster, places)
    return [found[place] for place in places]


def said(cluster: Cluster, place: Place) -> list[str]:
    return [*lacking(cluster, [place]).values()]


def test_a_report_says_where_its_rows_are(kafka: Kafka, cluster: Cluster) -> None:
    topic = kafka.topic(2)
    kafka.put(topic, [b"before"] * 7, 1)
    report = written(kafka, topic, [0, 1])
    first, second = places_of([report])
    assert (first.partition, first.offset, second.partition, second.offset) == (0, 2, 1, 9)
    assert first.writer == report.participant.identity and first.topic_id == cluster.topic(topic).topic_id
    assert from_json(to_json((first, second))) == (first, second)
    end(cluster, report, commit=False)


def test_the_last_place_of_each_partition_and_one_of_each_writer(kafka: Kafka, cluster: Cluster) -> None:
    topic = kafka.topic(1)
    reports = [written(kafka, topic, [0]) for _ in range(3)]
    places = places_of(reports)
    assert {place.writer for place in places} == {report.participant.identity for report in reports}
    assert max(place.offset for place in places) == 8
    for report in reports:
        end(cluster, report, commit=False)


def test_of_two_that_wrote_to_both_partitions_the_last_rows_count(kafka: Kafka, cluster: Cluster) -> None:
    topic = kafka.topic(2)
    reports = [written(kafka, topic, [0, 1]) for _ in range(2)]
    found = {(place.partition, place.offset) for place in places_of(reports)}
    assert found >= {(0, 5), (1, 5)} and len(found) == 3
    for report in reports:
        end(cluster, report, commit=False)


@pytest.mark.parametrize("commit", [True, False])
def test_the_log_shows_how_a_transaction_has_ended(kafka: Kafka, cluster: Cluster, commit: bool) -> None:
    topic = kafka.topic(1)
    kafka.put(topic, [b"before"])
    report = written(kafka, topic, [0])
    (place,) = places_of([report])
    assert seen(cluster, place) == [Seen.OPEN], "it is open"
    end(cluster, report, commit=commit)
    how = Seen.COMMITTED if commit else Seen.ABORTED
    deadline = time.monotonic() + 30
    while seen(cluster, place) == [Seen.OPEN] and time.monotonic() < deadline:  # markers on their way
        time.sleep(0.05)
    other = written(kafka, topic, [0])
    end(cluster, other, commit=not commit)
    assert seen(cluster, place) == [how]
    assert ended(look_at(cluster, [place])) == {place.writer: how}
    assert not lacking(cluster, [place])
    assert bool(lacking(cluster, [place], visible=[place])) is not commit, "no reader gets what was aborted"


def test_what_the_log_does_not_have(kafka: Kafka, cluster: Cluster) -> None:
    topic = kafka.topic(1)
    report = written(kafka, topic, [0])
    end(cluster, report, commit=True)
    (place,) = places_of([report])
    later = place._replace(offset=40)
    assert seen(cluster, later) == [Seen.GONE]
    assert said(cluster, later) == [f"{topic}-0 ends at 4, and rows were written up to 40"]
    for other in (
        place._replace(writer=place.writer._replace(producer_id=987654)),
        place._replace(writer=place.writer._replace(epoch=5)),
        place._replace(time_ms=place.time_ms - 1),
    ):
        assert seen(cluster, other) == [Seen.GONE]
        assert said(cluster, other) == [f"offset 2 of {topic}-0 holds other rows than were written there"]
    nowhere = place._replace(partition=3)
    assert said(cluster, nowhere) == [f"{topic}-3 does not exist any more"]
    kafka.make_anew(topic)
    kafka.put(topic, [b"anew"] * 9)
    cluster.forget_topic(topic)
    assert "was deleted and created again" in said(cluster, place)[0]
    assert seen(cluster, place) == [Seen.REPLACED] == seen(cluster, nowhere)


def test_rows_of_transactions_that_follow(kafka: Kafka, cluster: Cluster) -> None:
    """Plain producers' rows and aborted ones are none; in other partitions younger rows count."""
    topic = kafka.topic(2)
    before = written(kafka, topic, [1])
    end(cluster, before, commit=True)
    time.sleep(0.01)  # the next rows are younger
    report = written(kafka, topic, [0])
    end(cluster, report, commit=True)
    places = places_of([report])
    kafka.put(topic, [b"plain"])
    end(cluster, written(kafka, topic, [0]), commit=False)
    assert followed(cluster, places) == []
    more = written(kafka, topic, [0, 1])
    assert followed(cluster, places) == [], "it is open"
    end(cluster, more, commit=True)
    first, second = later = places_of([more])
    assert followed(cluster, later) == []
    assert followed(cluster, places) == [
        f"{topic}-0 has 3 rows of {more.participant.name} from offset {first.offset - 2} on",
        f"{topic}-1 has 3 rows of {more.participant.name} from offset {second.offset - 2} on",
    ]


def test_rows_of_another_application_s_transactions_do_not_follow(
    kafka: Kafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transactional.id says whose they are. If a cluster has forgotten it, nobody knows."""
    topic = kafka.topic(1)
    report = written(kafka, topic, [0])
    end(cluster, report, commit=True)
    (place,) = places_of([report])
    other = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"other-{topic}"})
    other.init_transactions(30)
    for _ in range(3):
        other.begin_transaction()
        other.produce(topic, b"theirs")
        other.commit_transaction(30)
    assert followed(cluster, [place]) == []
    more = written(kafka, topic, [0])
    end(cluster, more, commit=True)
    (later,) = places_of([more])
    says = f"{topic}-0 has 3 rows of {more.participant.name} from offset {later.offset - 2} on"
    assert followed(cluster, [place]) == [says]
    assert followed(cluster, [place], sink_of(more.participant.name)) == [says]
    assert followed(cluster, [place], "another sink") == []
    sink = str(sink_of(more.participant.name))
    slot = Sink(sink).slot_of(more.participant.name)
    assert slot is not None
    run, later_run = slot.incarnation, slot.incarnation._replace(epoch=slot.incarnation.epoch + 1)
    assert followed(cluster, [place], sink, run) == [says]
    assert followed(cluster, [place], sink, later_run) == [], "an earlier run has written them"
    assert followed(cluster, [place], "another sink", run) == []
    monkeypatch.setattr(places_in_log, "list_transactions", lambda *_, **__: [])
    forgotten = [f"{topic}-0 has 6 rows from offset {place.offset + 2} on"]
    assert followed(cluster, [place], sink, run) == forgotten
    with monkeypatch.context() as hidden:
        hidden.setattr(places_in_log, "describe", refused)
        assert followed(cluster, [place], sink, run) == [], "they may be another user's"
    assert followed(cluster, [place]) == [f"{topic}-0 has 6 rows from offset {place.offset + 2} on"]


def test_what_was_removed_where_a_query_waits_for_its_first_rows(kafka: Kafka, cluster: Cluster) -> None:
    """Rows that are gone may have been younger than the first batch, unless something older is left."""
    topic = kafka.topic(1)
    since = {topic: 5_000}
    assert followed(cluster, (), "a sink", waiting=since) == []
    kafka.put(topic, [b"before"] * 2, timestamp=4_000)
    kafka.put(topic, [b"plain"] * 2, timestamp=6_000)
    removed(kafka, topic, 1)
    assert followed(cluster, (), "a sink", waiting=since) == [], "what is left is older"
    for begins in (2, 3, 4):
        removed(kafka, topic, begins)
        says = f"{topic}-0 begins at {begins}: what it had before was removed"
        assert followed(cluster, (), "a sink", waiting=since) == [says]
    old = kafka.topic(1)
    kafka.put(old, [b"before"] * 3, timestamp=4_000)
    removed(kafka, old, 2)
    assert followed(cluster, (), "a sink", waiting={old: 5_000}) == [], "nothing younger was there"


def removed(kafka: Kafka, topic: str, begins: int) -> None:
    where = TopicPartition(topic, 0, begins)
    kafka.admin.delete_records([where])[where].result(30)


def refused(*_: object) -> None:
    raise errors.TransactionalIdAuthorizationFailed(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the right is missing"
    )


def test_retention_and_compaction_are_no_loss(kafka: Kafka, cluster: Cluster) -> None:
    topic = kafka.topic(1)
    report = written(kafka, topic, [0])
    end(cluster, report, commit=True)
    (place,) = places_of([report])
    kafka.put(topic, [b"later"] * 3)
    for future in kafka.admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        future.result(60)
    assert seen(cluster, place) == [Seen.REMOVED] and not lacking(cluster, [place])
    assert followed(cluster, [place]) == [f"{topic}-0 begins at 5: what it had from 3 on was removed"]


def test_the_marker_of_a_batch_may_be_removed_with_its_rows(kafka: Kafka, cluster: Cluster) -> None:
    topic = kafka.topic(1)
    report = written(kafka, topic, [0])
    end(cluster, report, commit=True)
    for future in kafka.admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(60)
    assert followed(cluster, places_of([report])) == []


def test_a_broker_s_own_time_is_that_of_the_batch(kafka: Kafka, cluster: Cluster) -> None:
    topic = kafka.topic(1, message_timestamp_type="LogAppendTime")
    report = written(kafka, topic, [0])
    end(cluster, report, commit=True)
    assert not lacking(cluster, places_of([report]))


def test_another_transaction_hides_how_one_has_ended_and_its_marker_tells(
    kafka: Kafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before, in the same partition, and is open: no reader of committed data comes that far."""
    topic = kafka.topic(1)
    other = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"before-{topic}"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topic, b"theirs")
    other.flush(30)
    reports = [written(kafka, topic, [0]) for _ in range(3)]
    places = [place for report in reports for place in places_of([report])]
    end(cluster, reports[1], commit=True)
    end(cluster, reports[0], commit=False)
    hidden = [Seen.ABORTED, Seen.COMMITTED, Seen.OPEN]
    until(lambda: seen(cluster, *places) == hidden, "the markers are written")
    assert [tp for tp in kafka.rows(topic)] == []
    says = f"{topic}-0 has 3 rows of {reports[1].participant.name} from offset {places[1].offset - 2} on"
    hides = "which an open transaction before them hides from readers of committed data until it ends"
    assert followed(cluster, places[:1]) == [f"{says}, {hides}"]
    monkeypatch.setattr(places_in_log, "LOOKED_THROUGH", 0)
    assert seen(cluster, *places) == hidden, "however much stands between"
    monkeypatch.undo()
    other.commit_transaction(30)
    end(cluster, reports[2], commit=False)
    until(lambda: seen(cluster, *places)[2] is Seen.ABORTED, "the marker is written")
    assert seen(cluster, *places)[:2] == hidden[:2]
    assert followed(cluster, places[:1]) == [says]


def test_every_partition_is_looked_at(kafka: Kafka, cluster: Cluster) -> None:
    """A leader may be elected that lacks the rows of one partition, and others write over their offsets."""
    topic = kafka.topic(40)
    report = written(kafka, topic, list(range(40)), rows=1)
    end(cluster, report, commit=True)
    places = places_of([report])
    before = time.monotonic()
    assert not lacking(cluster, places, visible=places)
    print(f"40 partitions held against the log in {(time.monotonic() - before) * 1000:.0f} ms")
    theirs = ProducerIdentity(report.participant.identity.producer_id, 999)
    held = [place._replace(writer=theirs) if place.partition == 25 else place for place in places]
    told = lacking(cluster, held, visible=held)
    assert list(told.values()) == [f"offset 0 of {topic}-25 holds other rows than were written there"]


def test_rows_follow_where_no_batch_had_any(kafka: Kafka, cluster: Cluster) -> None:
    """A query whose batches were all without rows knows its topic, and since when it has waited."""
    topic, other = kafka.topic(2), kafka.topic(1)
    end(cluster, written(kafka, topic, [0]), commit=True)
    time.sleep(0.01)  # the next rows are younger
    began = {topic: int(time.time() * 1000)}
    assert followed(cluster, [], "s", waiting=began) == []
    time.sleep(0.01)
    report = written(kafka, topic, [1])
    end(cluster, report, commit=True)
    end(cluster, written(kafka, other, [0]), commit=True)
    sink = sink_of(report.participant.name)
    says = f"{topic}-1 has 3 rows of {report.participant.name} from offset 0 on"
    assert followed(cluster, [], sink, waiting=began) == [says]
    assert followed(cluster, [], "another sink", waiting=began) == []
