"""Writes whose decision has no room in one group: over many topics, and ten times what was once refused."""

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewTopic

from eoslog.client.admin import group_offsets
from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.task_reports import Prepared
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.protocol.topic_partitions import TopicPartition
from tests.connector.brokers import ON_KAFKA
from tests.connector.commit.test_large_decisions import TEN_TIMES
from tests.connector.stock_kafka import Kafka

COUNT = 160
"""decision.topic has one partition here. With eight it takes some 700 topics of this length."""


@pytest.fixture(scope="module")
def topics(kafka: Kafka) -> list[str]:
    names = [f"{uuid.uuid4().hex}-{number:012}" for number in range(COUNT)]
    made = kafka.admin.create_topics([NewTopic(name, 1, 1) for name in names], operation_timeout=120)
    for future in made.values():
        future.result(120)
    return names


def test_a_write_over_many_topics_is_decided_and_the_next_one_reads_it(
    kafka: Kafka, topics: list[str]
) -> None:
    name = f"many-{uuid.uuid4().hex[:8]}"
    options = sink_options(
        {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "transactional.id": name,
            "decision.topic": kafka.topic(1),
        },
        stream=False,
    )
    cluster = shared_cluster(options.client)
    for write in range(2):
        begun = committer.begin_batch(options)
        assert begun is not None
        rows = pa.record_batch({"topic": pa.array(topics), "value": pa.array([b"%d" % write] * COUNT)})
        report = write_rows(options, begun, Attempt(begun.batch.query_id, 0, 0), iter([rows])).report
        assert isinstance(report, Prepared)
        committer.commit_batch(options, [report])
        last = committer.runner_for(options).run(observed_decision(Sink(name)))
        assert last is not None and last.sequence == write + 1
        assert {topic for topic, _ in last.written} == set(topics)
    more = group_offsets.fetch_committed(cluster, f"{name}/1", None, require_stable=True)
    assert more, "one group has no room for it"
    for topic in (topics[0], topics[COUNT // 2], topics[-1]):
        assert [row[3] for row in kafka.rows(topic)] == [b"0", b"1"]


@pytest.mark.skipif(
    ON_KAFKA, reason="brokers are asked for these topics' markers, and the topics are not there"
)
@pytest.mark.parametrize("anchors", [1, 400])
@pytest.mark.parametrize("written", TEN_TIMES.values(), ids=TEN_TIMES)
def test_ten_times_what_had_no_room(kafka: Kafka, anchors: int, written: list[TopicPartition]) -> None:
    """A task says that its row went to all of these, and a broker takes the decision. They are not there, so
    nobody is asked whether the row is."""
    name, topic = f"huge-{uuid.uuid4().hex[:8]}", kafka.topic(1)
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "transactional.id": name,
        "topic": topic,
        "decision.topic": kafka.topic(anchors),
    }
    options = sink_options(given, stream=False)
    begun = committer.begin_batch(options)
    assert begun is not None
    rows = pa.record_batch({"value": pa.array([b"a row"])})
    report = write_rows(options, begun, Attempt(begun.batch.query_id, 0, 0), iter([rows])).report
    assert isinstance(report, Prepared)
    committer.commit_batch(options, [replace(report, written=tuple(written), first_rows=())])
    last = committer.runner_for(options).run(observed_decision(Sink(name)))
    assert last is not None and last.written == tuple(written)
    assert [row[3] for row in kafka.rows(topic)] == [b"a row"]
