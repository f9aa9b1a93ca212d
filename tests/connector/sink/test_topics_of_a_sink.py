"""Writes over many topics, and topics that are made anew under a stream."""

import json
import re
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewTopic

from eoslog.client.admin import groups
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.wire.cluster import shared_cluster
from eoslog.commands import transactions
from eoslog.connector.commit.faults import RowsGone
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.task_reports import Prepared
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.run import runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.protocol.topic_partitions import TopicPartition
from tests.connector.brokers import ON_KAFKA, Kafka
from tests.connector.commit.test_decision import TEN_TIMES

# -- many topics ---------------------------------------------------------------------------------
# Writes whose decision has no room in one group: over many topics, and ten times what was once refused.

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
        assert last == runner.last_decision(cluster, Sink(name), options.decision_topic)
        assert last == transactions.last_decision(cluster, name), "commands read it, too"
    more = groups.fetch_committed(cluster, f"{name}/1", None, require_stable=True)
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


# -- topics made anew ----------------------------------------------------------------------------
# Topics that are deleted and made anew under a stream that remembers rows in them: on a real broker, with the
# sink's own code. Whichever it is, whenever the query wrote to it last: it stops, and each way out ends.


class Stream:
    """A query whose rows name their topics; those of a topic that there is not go to its dead letters."""

    def __init__(self, kafka: Kafka, checkpoint: Path) -> None:
        self.kafka, self.checkpoint, self.starts, self.next = kafka, checkpoint, 0, 0
        self.dead = kafka.topic()
        self.given = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "transactional.id": f"stream-{self.dead}",
            "checkpointLocation": str(checkpoint),
            "deadletter.topic": self.dead,
        }
        self.options = self._start()
        for log in ("offsets", "commits"):
            (checkpoint / log).mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": f"query-{self.dead}"}))

    def _start(self, accepted: str = "") -> SinkOptions:
        self.starts += 1  # another word each time: so each start is checked as one
        return sink_options(self.given | {"start.accepted": f"start-{self.starts},{accepted}"}, stream=True)

    def start(self, accepted: str = "") -> None:
        self.options = self._start(accepted)

    def batch(self, *topics: str, noted: bool = True, bad: bool = False, killed: bool = False) -> None:
        """Run the next batch: a row for each topic, and one that cannot be written. `noted`: by Spark;
        `killed`: when it has begun."""
        (self.checkpoint / "offsets" / str(self.next)).write_text(f'v1\n{{}}\n{{"t":{{"0":{self.next}}}}}')
        begun = committer.begin_stream(self.options)
        assert begun is not None
        if killed:
            raise RuntimeError("killed")
        values = [b"%d" % self.next] * (len(topics) + bad)
        columns = {
            "value": pa.array(values, pa.binary()),
            "topic": pa.array([*topics, *[None] * bad], pa.string()),
        }
        attempt = Attempt(begun.batch.query_id, self.next, 0)
        report = write_rows(self.options, begun, attempt, iter([pa.record_batch(columns)])).report
        committer.commit_stream(self.options, [report], self.next)
        if noted:
            (self.checkpoint / "commits" / str(self.next)).write_text("v1\n{}")
            self.next += 1

    def stops(self, topic: str, *topics: str) -> str:
        """The next start stops as the topic is another one; the word that it names."""
        for _ in range(2):
            self.start()
            with pytest.raises(RowsGone) as said:
                self.batch(*topics)
        assert f"topic {topic} was deleted and created again (its id was " in str(said.value)
        return str(re.findall(r"start\.accepted=\S*?([^,\s]+)$", str(said.value))[0])

    def values(self, topic: str) -> list[bytes]:
        return [row[3] for row in self.kafka.rows(topic)]


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, tmp_path / "checkpoint")


@pytest.mark.parametrize("of_dead_letters", [False, True])
@pytest.mark.parametrize("ago", [1, 2, 5])
def test_a_topic_that_was_not_written_lately(
    stream: Stream, kafka: Kafka, ago: int, of_dead_letters: bool
) -> None:
    often, seldom = kafka.topic(), stream.dead if of_dead_letters else kafka.topic()
    stream.batch(*([often] if of_dead_letters else [often, seldom]), bad=of_dead_letters)
    for _ in range(ago):
        stream.batch(often)
    kafka.make_anew(seldom)
    word = stream.stops(seldom, often)
    stream.start(word)
    stream.batch(often)
    stream.start()
    stream.batch(often)
    assert stream.values(seldom) == [], "what is gone is accepted once, for good"
    assert stream.values(often) == [b"%d" % number for number in range(ago + 3)]


def test_a_topic_that_is_made_anew_while_the_query_runs(stream: Stream, kafka: Kafka) -> None:
    """The batch that would write to the new one is not decided: earlier rows went with the old one."""
    topic, other = kafka.topic(), kafka.topic()
    stream.batch(topic)
    for _ in range(2):
        stream.batch(other)
    kafka.make_anew(topic)
    shared_cluster(stream.options.client).forget_topic(topic)  # as another task's process has no memory of it
    with pytest.raises(RowsGone, match=f"topic {topic} was deleted and created again") as said:
        stream.batch(topic)
    assert "Start the query again" in str(said.value) and stream.values(topic) == []
    stream.start(stream.stops(topic, topic))
    stream.batch(topic)
    stream.start()
    stream.batch(topic)
    assert stream.values(topic) == [b"3", b"4"] and stream.values(other) == [b"1", b"2"]


def test_the_first_batch_is_decided_and_spark_has_not_noted_it(stream: Stream, kafka: Kafka) -> None:
    topic = kafka.topic()
    stream.batch(topic, noted=False)
    kafka.make_anew(topic)
    stream.start(stream.stops(topic, topic))
    stream.batch(topic)
    assert stream.values(topic) == [], "they are not wanted any more"
    stream.batch(topic)
    assert stream.values(topic) == [b"1"]


def test_a_batch_is_decided_again_with_its_saved_state(stream: Stream, kafka: Kafka) -> None:
    """Somebody deletes the sink's groups between two runs. A decision without the state would forget it."""
    topic, state = kafka.topic(), kafka.topic(cleanup_policy="compact")
    stream.given["state.topic"] = state
    stream.start()
    for _ in range(2):
        stream.batch(topic)
    sink, cluster = Sink(stream.given["transactional.id"]), shared_cluster(stream.options.client)
    before = committer.runner_for(stream.options).run(observed_decision(sink))
    assert before is not None and before.saved is not None
    end = list_offsets(cluster, {(state, 0): LATEST}, committed=True)[state, 0]
    for deleted in kafka.admin.delete_consumer_groups([sink.group]).values():
        deleted.result(60)
    stream.start()
    with pytest.raises(RuntimeError, match="killed"):
        stream.batch(topic, killed=True)
    again = committer.runner_for(stream.options).run(observed_decision(sink))
    assert again is not None and again.batch == before.batch and again.saved is not None
    assert (again.saved.topic, again.saved.batch) == (state, 2), "as batch 2 is to find it"
    assert {place.topic for place in again.everywhere} == {topic}
    assert list_offsets(cluster, {(state, 0): LATEST}, committed=True)[state, 0] > end
    stream.start()
    stream.batch(topic)
    assert stream.values(topic) == [b"0", b"1", b"2"]
