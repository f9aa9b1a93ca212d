"""What people change between two starts of a query: its name, its guarantee, its beginning, the brokers'
disk.

Real processes, a real broker and SIGKILL; the stock client reads. Either all rows are there once, or the
start stops and says what to do, and doing it works.
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from eoslog.cli import main
from eoslog.client.admin.transaction_states import list_transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.refreshed_flow import check_not_refreshed, former_checkpoints
from eoslog.connector.commit.faults import StartsElsewhere
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import ON_KAFKA, Kafka
from tests.connector.checkpoint import halting
from tests.connector.checkpoint.test_crosscheck_spark import Copy
from tests.connector.crashes.crash_query import Crash, Query, run, start

DECIDED = ("decided, no winner finished", "decided, some winners finished", "all finished, not logged")


@pytest.fixture
def query(kafka: Kafka, tmp_path: Path) -> Query:
    topic = kafka.topic(2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "transactional.id": f"old-{topic}",
    }
    return Query(tmp_path / "checkpoint", options)


def renamed(query: Query, **options: str) -> Query:
    """The same query with other options, and a batch more to write."""
    given = {name.replace("_", "."): text for name, text in options.items()}
    return replace(query, options=query.options | given, batches=query.batches + 1)


def visible(kafka: Kafka, query: Query) -> list[bytes]:
    return sorted(row[3] for row in kafka.rows(query.options["topic"], 2))


def still_open(query: Query) -> list[str]:
    with Cluster(ClientConfig(parse_addresses(query.options["kafka.bootstrap.servers"]))) as cluster:
        names = [found.transactional_id for found in list_transactions(cluster, "", ["Ongoing"])]
    return [name for name in names if query.options["topic"] in name]


@pytest.mark.parametrize("at", DECIDED)
def test_a_name_changed_after_a_decision_stops_the_query(kafka: Kafka, query: Query, at: str) -> None:
    """The decision stands under the old name; and the way out that the error names works."""
    other = renamed(query, transactional_id=f"new-{query.options['topic']}")
    assert run(query, Crash(at)) == "killed"
    for _ in range(2):
        said = run(other)
        assert said.startswith("SinkChanged: batch 1 of query"), said
        assert f"once with transactional.id={query.options['transactional.id']}" in said
    assert run(query) == "done"
    assert run(other) == "done"
    assert visible(kafka, query) == other.rows() and still_open(query) == []


@pytest.mark.parametrize("at", ["some tasks prepared", "all tasks prepared", "before the decision is staged"])
def test_a_name_changed_before_the_decision_leaves_nothing_open(kafka: Kafka, query: Query, at: str) -> None:
    """What the old name holds open, sealed or not, is aborted: no time-out would end what is sealed."""
    other = renamed(query, transactional_id=f"new-{query.options['topic']}")
    assert run(query, Crash(at)) == "killed"
    assert still_open(query)
    assert run(other) == "done"
    assert visible(kafka, query) == other.rows() and still_open(query) == []


def test_a_name_changed_while_the_old_driver_lives(kafka: Kafka, query: Query) -> None:
    """It may not decide any more: the batch is written under the new name."""
    other = renamed(query, transactional_id=f"new-{query.options['topic']}")
    sleeping = start(query, Crash("before the decision is staged", stop=True))
    sleeping.wait_until_stopped()
    assert run(other) == "done"
    sleeping.wake()
    assert sleeping.end().startswith("SinkFenced")
    assert visible(kafka, query) == other.rows() and still_open(query) == []


def test_a_copied_checkpoint_writes_elsewhere_if_its_user_says_so(kafka: Kafka, query: Query) -> None:
    """The copy has the query's id; what the original has decided since, it cannot tell from a changed
    name."""
    assert run(query, Crash("offsets logged")) == "killed"
    copied = query.checkpoint.with_name("copied")
    shutil.copytree(query.checkpoint, copied)
    assert run(query) == "done"
    topic = kafka.topic(2)
    options = query.options | {"topic": topic, "transactional.id": f"copy-{topic}"}
    copy = replace(query, checkpoint=copied, options=options)
    said = run(copy)
    word = f"sink-changed:{query.options['transactional.id']}:1"
    assert said.startswith("SinkChanged") and f"start.accepted={word}" in said
    assert run(replace(copy, options=options | {"start.accepted": word})) == "done"
    assert visible(kafka, copy) == [row for row in copy.rows() if row.startswith(b"1/")]
    assert visible(kafka, query) == query.rows()
    assert run(renamed(query)) == "done", "the original is not disturbed"


def elsewhere(kafka: Kafka, query: Query, folder: str) -> Query:
    """A copy of the query's checkpoint, tried out into another topic, with the same names."""
    copied = query.checkpoint.with_name(folder)
    shutil.copytree(query.checkpoint, copied)
    return replace(query, checkpoint=copied, options=query.options | {"topic": kafka.topic(2)})


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("first", ["copy", "original"])
def test_a_copy_that_is_tried_out_and_the_original_do_not_both_go_on(
    kafka: Kafka, query: Query, named: bool, first: str
) -> None:
    """Not unnoticed; and the way out that the error names leads to every row in both topics, once."""
    if not named:
        query = replace(query, options={k: v for k, v in query.options.items() if k != "transactional.id"})
    assert run(replace(query, batches=1)) == "done"
    copy = elsewhere(kafka, query, "copied")
    one, other = (copy, query) if first == "copy" else (query, copy)
    assert run(one) == "done"
    for _ in range(2):
        said = run(other)
        assert said.startswith("CheckpointCopied"), said
        assert f"/{one.checkpoint.name}, by a start of" in said and f"went to {one.options['topic']}" in said
    assert run(replace(one, batches=3)) == "done"
    forked = query.checkpoint.with_name("forked")
    names = ["--transactional-id", f"fork-{other.options['topic']}"] if named else []
    command = ["fork", str(other.checkpoint), str(forked), "--bootstrap-server", kafka.bootstrap]
    done = CliRunner().invoke(main, ["checkpoint", *command, *names, "--watch", "0", "--fence"])
    assert done.exit_code == 0, done.output
    options = other.options | ({"transactional.id": names[1]} if named else {})
    assert run(replace(other, checkpoint=forked, options=options, batches=3)) == "done"
    rows = replace(query, batches=3).rows()
    old = [row for row in rows if row.startswith(b"0/")]
    assert sorted(visible(kafka, copy) + old) == rows
    assert visible(kafka, query) == rows
    assert still_open(query) == still_open(copy) == []


def test_a_copy_of_a_running_query_takes_no_batch_for_written_here(kafka: Kafka, query: Query) -> None:
    """It knows the start, as it was made since; but the rows are in another topic."""
    assert run(query, Crash("offsets logged")) == "killed"
    copy = elsewhere(kafka, query, "copied")
    assert run(query, Crash("all finished, not logged")) == "killed"
    words = (query.checkpoint / "eoslog" / "starts").read_text()
    (copy.checkpoint / "eoslog" / "starts").write_text(words)
    assert run(copy).startswith("CheckpointCopied")
    assert run(query) == "done"
    assert visible(kafka, query) == query.rows()


def test_a_moved_checkpoint_is_no_copy(kafka: Kafka, query: Query) -> None:
    assert run(query, Crash("all finished, not logged")) == "killed"
    moved = replace(query, checkpoint=query.checkpoint.rename(query.checkpoint.with_name("moved")), batches=3)
    assert run(moved) == "done"
    assert visible(kafka, moved) == moved.rows()


GUARANTEES = ("exactly_once", "at_most_once", "at_least_once")


@pytest.mark.parametrize("before", GUARANTEES)
@pytest.mark.parametrize("after", GUARANTEES)
def test_another_guarantee_on_the_same_checkpoint(
    kafka: Kafka, query: Query, before: str, after: str
) -> None:
    """The last batch is written, and Spark has not noted it as done."""
    weak = "at_least_once" in (before, after)
    first = replace(query, options=query.options | {"processing.guarantee": before})
    assert run(first) == "done"
    (query.checkpoint / "commits" / "1").unlink()
    then = replace(first, options=query.options | {"processing.guarantee": after})
    assert run(then) == "done"
    again = [row for row in query.rows() if row.startswith(b"1/")] if weak else []
    assert visible(kafka, query) == sorted([*query.rows(), *again])
    more = replace(then, batches=3)
    assert run(more) == "done"
    assert visible(kafka, query) == sorted([*more.rows(), *again]) and still_open(query) == []


@pytest.mark.parametrize("at", DECIDED)
def test_at_least_once_for_a_while_carries_out_what_was_decided(kafka: Kafka, query: Query, at: str) -> None:
    """Killed after a decision; once with a weaker guarantee, which may repeat rows; then as before."""
    assert run(query, Crash(at)) == "killed"
    weaker = renamed(query, processing_guarantee="at_least_once")
    assert run(weaker) == "done"
    assert set(visible(kafka, query)) == set(weaker.rows()) and still_open(query) == []
    last = replace(query, batches=4)
    assert run(last) == "done"
    seen = visible(kafka, query)
    assert set(seen) == set(last.rows())
    assert {row for row in seen if seen.count(row) > 1} <= {r for r in last.rows() if r.startswith(b"1/")}
    assert still_open(query) == []


def test_another_connector_for_a_while_leaves_nothing_open(kafka: Kafka, query: Query) -> None:
    """Spark's own sink has run the decided batch again and noted it; our transactions of it are still
    open."""
    assert run(query, Crash("decided, some winners finished")) == "killed"
    (query.checkpoint / "commits" / "1").write_text("v1\n{}")
    last = renamed(query)
    assert run(last) == "done"
    assert visible(kafka, query) == last.rows() and still_open(query) == []


@pytest.mark.skipif(ON_KAFKA, reason="copies the bundled broker's data directory")
@pytest.mark.parametrize("batches", [1, 0])
def test_brokers_restored_from_an_older_copy_stop_the_query(tmp_path: Path, batches: int) -> None:
    """The checkpoint is newer than the sink's last decision: batches are missing, and no later one hides
    it."""
    data = tmp_path / "data"
    with EmbeddedBroker(data) as broker:
        kafka = Kafka(broker.bootstrap)
        topic = kafka.topic(2)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": topic,
            "transactional.id": f"s-{topic}",
        }
        query = Query(tmp_path / "checkpoint", options, batches=batches)
        assert run(query) == "done"
        broker.kill()
        shutil.copytree(data, tmp_path / "copy")
        broker.restart()
        assert run(replace(query, batches=3)) == "done"
        broker.kill()
        shutil.rmtree(data)
        (tmp_path / "copy").rename(data)
        broker.restart()
        more = replace(query, batches=4)
        for _ in range(2):
            said = run(more)
            assert said.startswith("DecisionGone") and "completed batch 2" in said, said
        assert visible(kafka, query) == query.rows()
        accepted = replace(more, options=options | {"start.accepted": "decisions-gone:2"})
        assert run(accepted) == "done"
        assert visible(kafka, query) == query.rows() + [row for row in more.rows() if row.startswith(b"3/")]
        assert run(replace(more, batches=5)) == "done", "the word is needed once"


@pytest.mark.skipif(ON_KAFKA, reason="copies the bundled broker's data directory")
def test_a_name_changed_on_restored_brokers_hides_no_loss(tmp_path: Path) -> None:
    """What the old sink has lost is noticed before the new one takes its place."""
    with EmbeddedBroker(tmp_path / "data") as broker:
        kafka = Kafka(broker.bootstrap)
        topic = kafka.topic(2)
        broker.kill()
        shutil.copytree(broker.data, tmp_path / "copy")
        broker.restart()
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": topic,
            "transactional.id": f"s-{topic}",
        }
        query = Query(tmp_path / "checkpoint", options)
        assert run(query) == "done"
        broker.kill()
        shutil.rmtree(broker.data)
        (tmp_path / "copy").rename(broker.data)
        broker.restart()
        said = run(renamed(query, transactional_id=f"new-{topic}"))
        assert said.startswith(f"DecisionGone: sink s-{topic}: the checkpoint has completed batch 1"), said
        assert visible(kafka, query) == []


@pytest.mark.skipif(ON_KAFKA, reason="copies the bundled broker's data directory")
def test_brokers_restored_while_the_query_lives_stop_it(tmp_path: Path) -> None:
    """It only sees a connection that broke; what it remembers of its last batch the brokers do not know."""
    with EmbeddedBroker(tmp_path / "data") as broker:
        kafka = Kafka(broker.bootstrap)
        topic = kafka.topic(2)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": topic,
            "transactional.id": f"s-{topic}",
        }
        broker.kill()
        shutil.copytree(broker.data, tmp_path / "copy")
        broker.restart()
        query = Query(tmp_path / "checkpoint", options, batches=4)
        sleeping = start(query, Crash("offsets logged", batch=2, stop=True))
        sleeping.wait_until_stopped()
        broker.kill()
        shutil.rmtree(broker.data)
        (tmp_path / "copy").rename(broker.data)
        broker.restart()
        sleeping.wake()
        said = sleeping.end()
        assert said.startswith(("DecisionGone", "SinkFenced")), said
        assert run(query).startswith("DecisionGone")
        assert visible(kafka, query) == []


def test_a_note_of_a_later_version_is_not_guessed_at(query: Query) -> None:
    assert run(query) == "done"
    (query.checkpoint / "eoslog" / "sink").write_text(json.dumps({"version": 2, "sinks": []}))
    said = run(renamed(query))
    assert said.startswith("CheckpointUnreadable") and "a later version of eoslog has written" in said


# -- startingOffsets, in a real Spark ------------------------------------------------------------
# startingOffsets that is changed while a query's first batch is planned and not done, in a real Spark.
#
# Spark asks the source for the beginning again: the batch must be what it was planned to be.

LATER = [b"later-%d" % number for number in range(6)]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("starting", "changed", "wanted"), [("earliest", "latest", "all"), ("latest", "earliest", "later")]
)
def test_a_query_killed_in_its_first_batch(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, starting: str, changed: str, wanted: str
) -> None:
    cloudpickle.register_pickle_by_value(halting)  # type: ignore[no-untyped-call]
    spark.dataSource.register(halting.HaltingDataSource)
    copy = Copy(spark, kafka, tmp_path / "checkpoint")
    said = copy.run(starting, "halting", halt_at="decision and offsets staged", halt_batch="0")
    assert re.search("Python worker exited|crashed|EOF", said), said
    assert [path.name for path in (copy.checkpoint / "offsets").glob("[0-9]*")] == ["0"]
    assert not list((copy.checkpoint / "commits").glob("[0-9]*"))
    kafka.put(copy.source, LATER)
    assert copy.run(changed) == ""
    assert copy.visible() == sorted((copy.rows if wanted == "all" else []) + LATER)


# -- a pipeline's flow ---------------------------------------------------------------------------
# A new checkpoint beside a used one of the same flow of a pipeline: rows would be written again.


@pytest.mark.parametrize(
    ("location", "formers"),
    [
        ("/s/_checkpoints/t/f/2", ["/s/_checkpoints/t/f/1", "/s/_checkpoints/t/f/0"]),
        ("s3://b/_checkpoints/c/d/t/f/1/", ["s3://b/_checkpoints/c/d/t/f/0"]),
        ("/s/_checkpoints/t/f/0", []),
        ("/s/_checkpoints/1", []),  # no flow's
        ("/checkpoints/t/f/1", []),  # two queries may have numbers
        ("/s/_checkpoints/t/f/new", []),
    ],
)
def test_a_flows_checkpoints_have_numbers(location: str, formers: list[str]) -> None:
    assert former_checkpoints(location) == formers


def _planned(flow: Path, number: int, batches: int) -> Checkpoint:
    offsets = flow / str(number) / "offsets"
    offsets.mkdir(parents=True)
    for batch in range(batches):
        (offsets / str(batch)).write_text("v1\n{}\n-")
    return Checkpoint.at(str(flow / str(number)))


@pytest.mark.parametrize("used", [(1,), (1, 0), (1, 1)])
def test_a_checkpoint_after_a_used_one_is_refused(used: tuple[int, ...], tmp_path: Path) -> None:
    """Also if a refresh between has planned nothing."""
    flow = tmp_path / "_checkpoints" / "t" / "f"
    for number, batches in enumerate(used):
        _planned(flow, number, batches)
    new = _planned(flow, len(used), 1)
    with pytest.raises(StartsElsewhere, match=r"Nothing was written.*start\.accepted"):
        check_not_refreshed(new, {f"new-checkpoint:{len(used) - 1}"})
    assert "continuing" in str(check_not_refreshed(new, {f"new-checkpoint:{len(used)}"}))


@pytest.mark.parametrize("before", [(), (0,)])
def test_the_first_used_one_is_taken(before: tuple[int, ...], tmp_path: Path) -> None:
    flow = tmp_path / "_checkpoints" / "t" / "f"
    for number, batches in enumerate(before):
        _planned(flow, number, batches)
    assert check_not_refreshed(_planned(flow, len(before), 1), ()) is None
