"""The cross-check with real brokers: the source's reader, and the sink's begin, as Spark calls them."""

import json
import logging
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions

from eoslog.client.admin.groups import commit_plain
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.client.wire.connection import BrokerConnection
from eoslog.connector.checkpoint.completed_batches import check_run_again
from eoslog.connector.commit.faults import DecisionGone, SinkChanged, StartsElsewhere, TakenOver
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.offsets.offsets import TakenFrom, cluster_from_json, taken_from_json, to_json
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run import run_memory
from eoslog.connector.run.source_ends import SourceEnd
from eoslog.connector.sink import committer
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import DataLoss, OptionError, WrongCluster
from tests.connector.brokers import Kafka, bare, start_broker
from tests.connector.crashes.crash_query import GROUP, ROWS, SOURCE, Crash, Query, run
from tests.connector.source.test_source_stream import planned, reader

NO_LIMIT = ReadAllAvailable()


@pytest.fixture(scope="module")
def other() -> Iterator[Kafka]:
    """Another cluster, with ids of its own."""
    with start_broker() as broker:
        yield Kafka(broker.bootstrap)


# -- the source -------------------------------------------------------------------------------


def stood_on(kafka: Kafka, rows: int = 5) -> tuple[str, Any]:
    """A topic, and what a query's checkpoint says when it has read all of it."""
    topic = kafka.topic()
    kafka.put(topic, [b"x"] * rows)
    made = reader(kafka, topic, startingOffsets="earliest")
    return topic, made.latestOffset(made.initialOffset(), NO_LIMIT)


def test_another_cluster_stops_the_query_before_anything_is_read(kafka: Kafka, other: Kafka) -> None:
    topic, stood = stood_on(kafka)
    other.topic(name=topic)
    other.put(topic, [b"y"] * 9)
    for careless in ("true", "false"):  # a query that may lose rows may not double them
        with pytest.raises(
            WrongCluster, match=r"kafka.bootstrap.servers leads to the cluster .*cluster.moved.to="
        ):
            reader(other, topic, failOnDataLoss=careless).latestOffset(stood, NO_LIMIT)
    with pytest.raises(WrongCluster):
        reader(other, topic).partitions({topic: {"0": 0}}, stood)  # a batch that an earlier run planned
    nowhere = reader(other, f"{topic}-is-not-there")
    with pytest.raises(WrongCluster):
        nowhere.latestOffset({f"{topic}-is-not-there": {"0": 1}, **stood}, NO_LIMIT)


def test_a_cluster_that_was_moved_is_named_and_remembered(kafka: Kafka, other: Kafka) -> None:
    topic, stood = stood_on(kafka)
    other.topic(name=topic)
    other.put(topic, [b"y"] * 9)
    began = reader(other, topic).initialOffset()
    now = str(cluster_from_json(began))
    moved = reader(other, topic, cluster__moved__to=now)
    end = moved.latestOffset(stood, NO_LIMIT)
    assert bare(end) == {topic: {"0": 9}} and cluster_from_json(end) == now
    (task,) = moved.partitions(stood, end)
    assert (task.start, task.end) == (5, 9)  # type: ignore[attr-defined]
    assert sum(batch.num_rows for batch in moved.read(task)) == 4
    assert reader(other, topic).latestOffset(end, NO_LIMIT) == end, "the option is needed once"


def test_a_checkpoint_without_a_cluster_goes_on(kafka: Kafka) -> None:
    """As Spark's own source stored it, or an earlier version."""
    topic, stood = stood_on(kafka)
    end = reader(kafka, topic).latestOffset(bare(stood), NO_LIMIT)
    told = {key: parts for key, parts in stood.items() if not key.startswith(("leader-epoch:", "began-at:"))}
    assert end == told and cluster_from_json(end), "epochs come when its partitions move"


def test_a_line_of_a_checkpoint_is_of_its_cluster(kafka: Kafka, other: Kafka) -> None:
    topic, stood = stood_on(kafka)
    other.topic(name=topic)
    other.put(topic, [b"y"] * 9)
    line = json.dumps(stood)
    with pytest.raises(WrongCluster, match=r"cluster\.moved\.to=") as caught:
        reader(other, topic, startingOffsets=line).initialOffset()
    now = str(caught.value).rpartition("cluster.moved.to=")[2]
    moved = reader(other, topic, startingOffsets=line, cluster__moved__to=now)
    assert bare(moved.initialOffset()) == {topic: {"0": 5}}


def test_partitions_that_came_after_a_line_of_a_checkpoint_begin_at_their_beginning(kafka: Kafka) -> None:
    topic, stood = stood_on(kafka)
    kafka.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(10)
    began = reader(kafka, topic, startingOffsets=json.dumps(stood)).initialOffset()
    assert bare(began) == {topic: {"0": 5, "1": 0}}
    with pytest.raises(OptionError, match=f"startingOffsets leaves out {topic}-1"):
        reader(kafka, topic, startingOffsets=json.dumps(bare(stood))).initialOffset()


def delete_before(kafka: Kafka, topic: str, offset: int) -> None:
    kafka.admin.delete_records([TopicPartition(topic, 0, offset)])[TopicPartition(topic, 0)].result(30)


def test_offsets_that_retention_took_are_named_at_the_start(kafka: Kafka) -> None:
    topic, stood = stood_on(kafka)
    kafka.put(topic, [b"y"] * 10)
    delete_before(kafka, topic, 8)
    says = rf"{topic}-0 begins at 8 and ends at 15, and the query is at 5.*retention.*failOnDataLoss"
    with pytest.raises(DataLoss, match=says):
        reader(kafka, topic).latestOffset(stood, NO_LIMIT)
    end = {**stood, topic: {"0": 15}}
    with pytest.raises(DataLoss, match=says):
        reader(kafka, topic).partitions(stood, end)
    careless = reader(kafka, topic, failOnDataLoss="false")
    assert bare(careless.latestOffset(stood, NO_LIMIT)) == {topic: {"0": 15}}
    (task,) = careless.partitions(stood, end)
    assert sum(batch.num_rows for batch in careless.read(task)) == 7, "what is left is read"


def test_a_planned_batch_beyond_the_log_s_end(kafka: Kafka) -> None:
    topic, stood = stood_on(kafka)
    given = {"fetchOffset__retryIntervalMs": "1"}
    beyond = {**stood, topic: {"0": 9}}
    with pytest.raises(DataLoss, match=f"{topic}-0 ends at 5, before 9, where the query is: the log was cut"):
        reader(kafka, topic, **given).partitions(stood, beyond)
    careless = reader(kafka, topic, failOnDataLoss="false", **given)
    assert planned(careless, stood, beyond) == []  # there is nothing


def test_the_log_s_beginning_is_asked_for_once_a_run(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, stood = stood_on(kafka)
    made = reader(kafka, topic)
    asked: list[str] = []
    real = BrokerConnection.send

    def send(self: BrokerConnection, api: Any, *args: Any, **kwargs: Any) -> int:
        asked.append(api.name)
        return real(self, api, *args, **kwargs)

    monkeypatch.setattr(BrokerConnection, "send", send)
    costs = []
    for _ in range(3):
        before = len([name for name in asked if name != "API_VERSIONS"])
        made.latestOffset(stood, NO_LIMIT)
        costs.append(len([name for name in asked if name != "API_VERSIONS"]) - before)
    assert costs[0] - costs[1] == 2 and costs[1] == costs[2], (costs, asked)  # Metadata, ListOffsets


def commit_with_note(kafka: Kafka, topic: str, group: str, sink_id: str, at: int) -> None:
    """As that sink's query does with a batch."""
    cluster = Cluster(ClientConfig(parse_addresses(kafka.bootstrap)))
    note = Note(sink_id, "its-query", 4).text()  # confluent-kafka would put a NUL behind it
    commit_plain(cluster, group, {(topic, 0): (at, note)})
    cluster.close()


def test_a_query_that_begins_at_a_group_s_offsets_says_whose_they_are(kafka: Kafka) -> None:
    """In its first batch, for the sink to read, and until it has moved on: another text would be new data."""
    topic, _ = stood_on(kafka)
    group = f"group:{topic}"
    commit_with_note(kafka, topic, group, "a:sink", 3)
    made = reader(kafka, topic, startingOffsets="committed", kafka__group__id=group)
    began = made.initialOffset()
    assert bare(began) == {topic: {"0": 3}} and "offsets-of:a%3Asink:group%3A" + topic in began
    first = made.latestOffset(began, NO_LIMIT)
    assert first == {**began, f"began-at:{topic}:3:0": {}}
    second = made.latestOffset(first, NO_LIMIT)
    assert bare(second) == {topic: {"0": 5}} and not taken_from_json(second)
    commit_with_note(kafka, topic, group, "a:sink", 5)
    made = reader(kafka, topic, startingOffsets="committed", kafka__group__id=group)
    began = made.initialOffset()
    first = made.latestOffset(began, NO_LIMIT)
    assert [made.latestOffset(first, NO_LIMIT) for _ in range(2)] == [first] * 2, "nothing is new"


# -- the sink ---------------------------------------------------------------------------------


class Bench:
    """A query of crash_query.py, and what a later begin of its sink says."""

    def __init__(self, kafka: Kafka, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.kafka, self.caplog, self.folder = kafka, caplog, folder
        if SOURCE not in kafka.admin.list_topics(timeout=10).topics:
            kafka.topic(2, name=SOURCE)
        self.topic = kafka.topic(2)
        self.group = f"{GROUP}-{self.topic}"
        self.options = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": self.topic,
            "transactional.id": f"sink-{self.topic}",
            "kafka.group.id": self.group,
        }
        self.query = Query(folder / "checkpoint", self.options)

    def plan(self, batch: int, ends: int | None = None, entries: Mapping[str, object] | None = None) -> None:
        """Write a batch to Spark's offset log."""
        offset = (batch + 1) * ROWS if ends is None else ends
        began: dict[str, Any] = {}
        if batch == 0 and ends is not None:
            began = {f"began-at:{SOURCE}:{offset}:0-1": {}}
        line = json.dumps({SOURCE: {"0": offset, "1": offset}, **began, **(entries or {})})
        (self.query.checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{line}")

    def begin(self, **options: str) -> list[str]:
        """What begin warns of, for the newest planned batch, as a new run of the query."""
        given = self.options | {name.replace("__", "."): text for name, text in options.items()}
        made = sink_options({**given, "checkpointLocation": str(self.query.checkpoint)}, stream=True)
        who = json.loads((self.query.checkpoint / "metadata").read_text())["id"]
        run_memory.take(repr(made.client.bootstrap), str(made.transactional_id), who)
        self.caplog.clear()
        with self.caplog.at_level(logging.WARNING):
            committer.begin_stream(made)
        return [record.getMessage() for record in self.caplog.records if record.name.startswith("eoslog")]

    def commit(self, *offsets: int) -> None:
        """Move the group by hand."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": self.group})
        places = [TopicPartition(SOURCE, p, at) for p, at in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def lose_checkpoint(self, rest: Sequence[str] = ()) -> None:
        """A new checkpoint, with its first batch planned."""
        self.query.checkpoint.rename(self.folder / "lost")
        (self.query.checkpoint / "offsets").mkdir(parents=True)
        (self.query.checkpoint / "metadata").write_text('{"id":"another-query"}')
        self.plan(0)


@pytest.fixture
def bench(kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Bench:
    return Bench(kafka, tmp_path, caplog)


def test_what_fits_is_not_talked_about(bench: Bench) -> None:
    assert run(bench.query) == "done"
    bench.plan(2)
    assert bench.begin() == []


def test_a_restored_checkpoint_whose_decision_is_forgotten(bench: Bench) -> None:
    """Batches that run again for their state alone would be written again."""
    assert run(bench.query) == "done"
    later = json.dumps({SOURCE: {"0": 3 * ROWS, "1": 3 * ROWS}})
    bench.plan(1, entries={f"then:0:{quote(later, safe='')}": {}})
    (bench.query.checkpoint / "commits" / "1").unlink()
    groups = [f"sink-{bench.topic}", bench.group]
    for gone in bench.kafka.admin.delete_consumer_groups(groups).values():
        gone.result(30)
    with pytest.raises(DecisionGone, match=r"was restored, and runs batches 1 to 2 again.*decisions-gone:2"):
        bench.begin()
    check_run_again("s", Batch("q", 1), Batch("q", 2), Batch("q", 2), ())
    check_run_again("s", Batch("q", 1), Batch("q", 2), Batch("q", 1), ("decisions-gone:2",))
    with pytest.raises(DecisionGone, match="runs batches 1 to 2 again"):
        check_run_again("s", Batch("q", 1), Batch("q", 2), Batch("q", 1), ())


def test_a_group_that_was_moved_by_hand(bench: Bench) -> None:
    assert run(bench.query) == "done"
    bench.plan(2)
    bench.commit(2 * ROWS, 7)
    (said,) = bench.begin()
    assert f"{SOURCE}-1 at 7, not at {2 * ROWS}, where batch 1 ended" in said and "by hand" in said
    assert f"{SOURCE}-0" not in said


def test_a_changed_transactional_id_after_a_decision(bench: Bench) -> None:
    """Batch 1 is decided and Spark does not know it: under another id it would be written again."""
    assert run(bench.query, Crash("all finished, not logged")) == "killed"
    for group in (True, False):  # the checkpoint itself tells
        if not group:
            del bench.options["kafka.group.id"]
        with pytest.raises(
            SinkChanged, match=r"batch 1 of query .* was decided by the sink sink-.*once with"
        ):
            bench.begin(transactional__id="another")
    bench.options["kafka.group.id"] = bench.group
    (bench.query.checkpoint / "eoslog" / "sink").unlink()  # as an earlier version left it
    with pytest.raises(
        DecisionGone, match=r"batch 1 of query .*, so its rows are written.*transactional.id back"
    ):
        bench.begin(transactional__id="another")
    (bench.query.checkpoint / "eoslog" / "sink").unlink()
    assert bench.begin() == [], "with the old one it goes on"
    assert run(bench.query) == "done"
    assert sorted(row[3] for row in bench.kafka.rows(bench.topic, 2)) == bench.query.rows()


def test_a_changed_transactional_id_between_batches(bench: Bench) -> None:
    assert run(bench.query) == "done"
    bench.plan(2)
    (bench.query.checkpoint / "eoslog" / "sink").unlink()
    (said,) = bench.begin(transactional__id=f"another-{bench.topic}")
    assert "completed batch 1, but the sink has decided no batch of this query" in said
    assert bench.begin(transactional__id=f"third-{bench.topic}") == [], "the checkpoint tells whose they were"


@pytest.mark.parametrize("group", [True, False])
def test_a_checkpoint_that_was_copied_without_its_notes(bench: Bench, group: bool) -> None:
    """Batch 1 is decided and Spark does not know it. Under another name nobody finds that decision."""
    if not group:
        del bench.options["kafka.group.id"]
    bench.query = replace(bench.query, options=bench.options, ours=True)
    assert run(bench.query, Crash("all finished, not logged")) == "killed"
    notes = bench.query.checkpoint / "eoslog"
    shutil.copytree(notes, bench.folder / "kept")
    shutil.rmtree(notes)
    for _ in range(2):  # nothing was noted by the first one
        with pytest.raises((SinkChanged, DecisionGone)) as caught:
            bench.begin(transactional__id="another", commit__source__offsets=str(group).lower())
    if not group:
        assert "(it has no eoslog/sink)" in str(caught.value), caught.value
        (word,) = re.findall(r"start\.accepted=(sink-unknown:1)$", str(caught.value))
        bench.begin(transactional__id=f"third-{bench.topic}", start__accepted=word)
        shutil.rmtree(notes)
    shutil.copytree(bench.folder / "kept", notes)
    with pytest.raises(SinkChanged, match="was decided by the sink sink-"):
        bench.begin(transactional__id="another")
    shutil.rmtree(notes)
    assert bench.begin() == [], "with the old name it goes on"
    assert run(bench.query) == "done"
    assert sorted(row[3] for row in bench.kafka.rows(bench.topic, 2)) == bench.query.rows()


def test_the_batch_after_another_sink_s_is_planned_here(bench: Bench) -> None:
    """The code moves to this sink between two batches: nothing is to be decided twice."""
    bench.query = replace(bench.query, ours=True)
    assert run(bench.query) == "done"
    shutil.rmtree(bench.query.checkpoint / "eoslog")
    own = "Q" * 22  # no other test's source, which may live in this process, has planned this end
    name, end = (
        f"another-{bench.topic}",
        {SOURCE: {"0": 3 * ROWS, "1": 3 * ROWS}, f"topic-id:{SOURCE}:{own}": {}},
    )
    bench.plan(2, entries={f"topic-id:{SOURCE}:{own}": {}})
    source = SourceEnd()
    source.note(end)
    with pytest.raises(SinkChanged, match=r"batch 2 of query .* was planned by an earlier run"):
        bench.begin(transactional__id=name)
    source.note(end, planned=True)
    (said,) = bench.begin(transactional__id=name)
    assert "completed batch 1, but the sink has decided no batch of this query" in said
    source.forget()


def test_at_least_once_notes_that_no_sink_got_its_batches(bench: Bench) -> None:
    """So exactly_once goes on behind it, in the middle of a batch, too."""
    bench.query = replace(
        bench.query, options={**bench.options, "processing.guarantee": "at_least_once"}, ours=True
    )
    assert run(bench.query, Crash("all tasks prepared")) == "killed"
    assert bench.begin() == []


def word_of(error: Exception) -> str:
    """The word of start.accepted that an error names."""
    (word,) = re.findall(r"start\.accepted=(new-checkpoint:[\w:-]*\w)", str(error))
    return str(word)


def test_a_new_checkpoint_under_an_old_sink(bench: Bench) -> None:
    assert run(bench.query) == "done"
    bench.lose_checkpoint()
    says = rf"holds source offsets of an earlier query \({SOURCE}-0 at {2 * ROWS}.*startingOffsets=committed"
    with pytest.raises(StartsElsewhere, match=says) as stopped:
        bench.begin()
    (said,) = bench.begin(start__accepted=word_of(stopped.value))
    assert "continuing" in said
    bench.plan(0, ends=2 * ROWS)  # the empty first batch of a query that begins at committed
    assert bench.begin() == []
    del bench.options["kafka.group.id"]
    assert bench.begin() == [], "the decision says where it ended, whatever the group"
    bench.plan(0)
    with pytest.raises(StartsElsewhere, match=r"the sink has written batch 1 of query.*=committed"):
        bench.begin()


@pytest.mark.parametrize("group", ["given", "by default", "reset by a stranger"])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once", "at_most_once"])
def test_a_new_checkpoint_behind_the_last_decision(bench: Bench, guarantee: str, group: str) -> None:
    """The rows between would be written by nobody, under whatever guarantee the query goes on."""
    if group == "by default":
        del bench.options["kafka.group.id"]
    assert run(bench.query) == "done"
    bench.lose_checkpoint()
    bench.plan(0, ends=3 * ROWS)  # startingOffsets=latest
    if group == "reset by a stranger":
        bench.commit(3 * ROWS, 3 * ROWS)
    more = {"processing__guarantee": guarantee}
    for _ in range(2):
        with pytest.raises(
            StartsElsewhere, match=r"is new.*new checkpoint and startingOffsets=\{"
        ) as stopped:
            bench.begin(**more)
    assert "continuing" in bench.begin(**more, start__accepted=word_of(stopped.value))[0]
    bench.plan(0, ends=2 * ROWS)
    group_moved = group == "reset by a stranger" and guarantee == "at_least_once"
    assert bench.begin(**more) == [] or group_moved


def test_at_least_once_goes_on_behind_its_own_notes_alone(bench: Bench) -> None:
    """It decides nothing: the group says how far it has come."""
    more = {"processing__guarantee": "at_least_once"}
    bench.query = replace(bench.query, options={**bench.options, "processing.guarantee": "at_least_once"})
    assert run(bench.query) == "done"
    bench.lose_checkpoint()
    bench.plan(0, ends=3 * ROWS)
    with pytest.raises(StartsElsewhere, match=f"{SOURCE}-0 at {3 * ROWS}, and {2 * ROWS} was reached"):
        bench.begin(**more)
    for ends in (2 * ROWS, ROWS):
        bench.plan(0, ends=ends)
        assert bench.begin(**more) == []


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_source_that_begins_where_another_query_stands(bench: Bench, guarantee: str) -> None:
    """The sink has no group to compare: the planned batch says where the source has begun."""
    (bench.query.checkpoint / "offsets").mkdir(parents=True)
    (bench.query.checkpoint / "metadata").write_text('{"id":"this-query"}')
    bench.plan(0, entries=to_json({}, taken=[TakenFrom("other-sink", "g")]))
    del bench.options["kafka.group.id"]
    more = {"processing__guarantee": guarantee}
    says = "begins at offsets of group g that the sink other-sink has committed.*Nothing was written"
    for _ in range(2):  # the first try changes nothing
        with pytest.raises(StartsElsewhere, match=says):
            bench.begin(**more)
    assert bench.begin(**more, start__accepted="offsets-of:other-sink:0") == []


@pytest.mark.parametrize("name", ["its own", "the same"])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_who_begins_behind_a_decision_carries_it_out(bench: Bench, guarantee: str, name: str) -> None:
    """Its driver was killed before its winners were committed, and nobody else would: with a name of its own
    the new query does not begin that sink, and at_least_once begins none."""
    old = f"sink-{bench.topic}"
    assert run(bench.query, Crash("decided, no winner finished")) == "killed"
    known = json.loads((bench.query.checkpoint / "metadata").read_text())["id"]
    bench.lose_checkpoint()
    bench.plan(0, ends=2 * ROWS)
    more = {"processing__guarantee": guarantee, "start__accepted": f"offsets-of:{old}:{known}:1"}
    if name == "its own":
        more["transactional__id"] = f"own-{bench.topic}"
    with pytest.raises(AssertionError):
        assert sorted(row[3] for row in bench.kafka.rows(bench.topic, 2)) == bench.query.rows()
    assert bench.begin(**more) == []
    assert sorted(row[3] for row in bench.kafka.rows(bench.topic, 2)) == bench.query.rows()


@pytest.mark.parametrize("changed", ["transactional.id", "kafka.group.id", "both", "nothing"])
def test_the_old_query_of_a_hand_over_is_known_by_the_names_that_it_had(bench: Bench, changed: str) -> None:
    """Its successor writes and commits on; its own options are changed before it is started again."""
    assert run(bench.query) == "done"
    old = bench.query.checkpoint
    bench.lose_checkpoint()
    bench.plan(0, ends=2 * ROWS)
    bench.begin()
    assert run(replace(bench.query, batches=4)) == "done"
    bench.query.checkpoint.rename(bench.folder / "successor's")
    (bench.folder / "lost").rename(old)
    bench.plan(2)
    given = {"transactional.id": f"own-{bench.topic}", "kafka.group.id": f"own-{bench.group}"}
    given = {name: value for name, value in given.items() if changed in (name, "both")}
    names = {name.replace(".", "__"): value for name, value in given.items()}
    says = (
        f"query another-query has taken the place of .*kafka.group.id={bench.group} and transactional.id="
        f"sink-{bench.topic} in source and sink.*start.accepted=(taken-over:third-query:2,)?"
        "taken-over:another-query:2$"
    )
    for _ in range(2):  # the first try changes nothing
        with pytest.raises(TakenOver, match=says):
            bench.begin(**names)
    if changed == "both":
        assert bench.begin(**names, start__accepted="taken-over:another-query:2") == []
        assert bench.begin(**names) == [], "its names are noted, and the word is needed once"
    else:
        with pytest.raises(TakenOver, match=says):
            bench.begin(**names, start__accepted="taken-over:third-query:2")


def test_a_note_of_before_groups_were_noted(bench: Bench) -> None:
    assert run(bench.query) == "done"
    note = bench.query.checkpoint / "eoslog" / "sink"
    told = json.loads(note.read_text())
    assert told.pop("group") == bench.group and told["since"] == 0
    note.write_text(json.dumps(told))
    bench.plan(2)
    assert bench.begin() == []
    assert json.loads(note.read_text()) == {**told, "group": bench.group}


def test_the_sink_s_start_costs_a_constant_number_of_requests(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside those of begin itself, and the cluster's id: the group's coordinator, its offsets before the
    sink is acquired and after."""
    assert run(bench.query) == "done"
    with Cluster(ClientConfig(parse_addresses(bench.kafka.bootstrap))) as cluster:
        bench.plan(2, entries={f"cluster-id:{cluster.metadata([]).cluster_id}": {}})
    asked: Counter[str] = Counter()
    real = BrokerConnection.send

    def send(self: BrokerConnection, api: Any, *args: Any, **kwargs: Any) -> int:
        asked[api.name] += 1
        return real(self, api, *args, **kwargs)

    monkeypatch.setattr(BrokerConnection, "send", send)
    bench.begin(kafka__client__id="before")  # finds out how the last run's transaction ended, once
    costs = []
    for group in (True, False):
        if not group:
            bench.options["commit.source.offsets"] = "false"
            del bench.options["kafka.group.id"]
            bench.begin()  # names that were changed cost a look at the old ones, once
        asked.clear()
        bench.begin(kafka__client__id=f"counted-{group}")
        costs.append(Counter(asked))
    assert costs[0] - costs[1] == {"FIND_COORDINATOR": 1, "OFFSET_FETCH": 2}, costs


def test_source_offsets_of_another_cluster_are_not_committed(bench: Bench, other: Kafka) -> None:
    assert run(bench.query) == "done"
    bench.plan(2, entries={"cluster-id:elsewhere": {}})
    with pytest.raises(WrongCluster, match=f"kafka.group.id={bench.group}: .* of the cluster elsewhere"):
        bench.begin()
    del bench.options["kafka.group.id"]
    assert bench.begin() == [], "without a group the source may be anywhere"
