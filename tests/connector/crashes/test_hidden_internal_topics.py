"""The crash table on a broker that hides its internal topics: the decision is kept on another topic
(decision.topic). And a sink whose decision.topic changes: no decision is overlooked."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.client.admin import groups
from tests.connector.brokers import (
    AUTHORIZER,
    DECISIONS,
    Broker,
    Kafka,
    hide_internal_topics,
    hide_topics,
    show_topics,
    start_broker,
    start_hiding_broker,
)
from tests.connector.crashes import test_crash_table as table
from tests.connector.crashes.crash_query import IN_DRIVER, IN_TASKS, Crash, Query, run
from tests.spark_session import all_available

INTERNAL = "__consumer_offsets"
DECIDED = "decided, no winner finished"


@pytest.fixture(scope="module")
def hiding() -> Iterator[Broker]:
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with start_hiding_broker({interval: "100"}) as broker:
        yield broker


@pytest.fixture
def bench(hiding: Broker, tmp_path: Path) -> table.Bench:
    return table.Bench(hiding, tmp_path / "checkpoint", decision__topic=DECISIONS)


def test_without_the_option_nothing_is_written_and_the_error_names_it(hiding: Broker, tmp_path: Path) -> None:
    bench = table.Bench(hiding, tmp_path / "checkpoint", kafka__default__api__timeout__ms="3000")
    said = run(bench.query)
    assert INTERNAL in said and "decision.topic" in said
    assert bench.written(0) == 0


def test_a_topic_that_does_not_exist_is_said_before_anything_is_written(
    hiding: Broker, tmp_path: Path
) -> None:
    bench = table.Bench(hiding, tmp_path / "checkpoint", decision__topic="absent")
    said = run(bench.query)
    assert "'absent' does not exist" in said and bench.written(0) == 0


@pytest.mark.parametrize("at", IN_DRIVER)
def test_driver_killed(bench: table.Bench, at: str) -> None:
    table.test_driver_killed(bench, at)


@pytest.mark.parametrize("at", IN_TASKS)
def test_task_killed(bench: table.Bench, at: str) -> None:
    table.test_task_killed(bench, at)


@pytest.mark.parametrize("at", ["begun", "before the decision"])
def test_old_driver_wakes_up_after_a_new_one_is_done(bench: table.Bench, at: str) -> None:
    table.test_old_driver_wakes_up_after_a_new_one_is_done(bench, at)


@pytest.mark.parametrize("at", table.BROKER_DIES_AT)
def test_broker_killed(bench: table.Bench, at: str) -> None:
    table.test_broker_killed(bench, at)


def test_broker_and_driver_killed_between_two_winners(bench: table.Bench) -> None:
    table.test_broker_and_driver_killed_between_two_winners(bench)


def test_nothing_is_kept_on_the_internal_topic(bench: table.Bench) -> None:
    assert run(bench.query) == "done"
    with bench.cluster() as cluster:
        kept = groups.fetch_committed(cluster, bench.sink_id, None)
    assert {topic for topic, _ in kept} == {DECISIONS}


@pytest.mark.parametrize("to", ["another", None])
def test_another_topic_than_before_stops_every_start(broker: Broker, tmp_path: Path, to: str | None) -> None:
    """Killed after its decision. Overlooked, the decision would be made a second time, and its rows doubled;
    the right topic carries it out."""
    bench = _of_two_topics(broker, tmp_path)
    assert run(bench.query, Crash(DECIDED)) == "killed"
    elsewhere = _keeping(bench.query, to and f"{to}-{bench.topic}")
    for _ in range(2):
        said = run(elsewhere)
        assert said.startswith("DecisionElsewhere") and f"decisions-{bench.topic}" in said
    assert bench.visible() == bench.batch(0)
    bench.finish()
    assert bench.written(1) == 1


def test_decisions_on_a_topic_that_was_hidden_since_are_not_overlooked(tmp_path: Path) -> None:
    """The group does not show them any more; the checkpoint knows where they are."""
    with start_broker(AUTHORIZER) as broker:
        bench = table.Bench(broker, tmp_path / "checkpoint")
        bench.kafka.topic(1, name=DECISIONS)
        assert run(bench.query, Crash(DECIDED)) == "killed"
        hide_internal_topics(broker.bootstrap)
        said = run(_keeping(bench.query, DECISIONS))
        assert said.startswith("DecisionElsewhere") and f"with decisions on {INTERNAL}" in said
        assert bench.visible() == bench.batch(0)


@pytest.mark.parametrize(("before", "after"), [(None, DECISIONS), (DECISIONS, None), (DECISIONS, "other")])
def test_hidden_decisions_are_not_overlooked_without_a_checkpoint(
    tmp_path: Path, before: str | None, after: str | None
) -> None:
    """Neither group nor checkpoint show them; the time-out of the sink's own transactional id does. Seen
    again, they are carried out."""
    with start_broker(AUTHORIZER) as broker:
        bench = table.Bench(broker, tmp_path / "checkpoint")
        for name in (DECISIONS, "other"):
            bench.kafka.topic(1, name=name)
        bench.query = _keeping(bench.query, before)
        assert run(bench.query, Crash(DECIDED)) == "killed"
        hide_topics(broker.bootstrap, before or INTERNAL)
        elsewhere = replace(_keeping(bench.query, after), checkpoint=tmp_path / "another")
        for _ in range(2):
            said = run(elsewhere)
            assert said.startswith("DecisionElsewhere") and "this user cannot see" in said
        show_topics(broker.bootstrap)
        bench.finish()
        assert (bench.written(0), bench.written(1)) == (1, 1)


def test_hidden_tokens_are_not_overlooked(spark: SparkSession) -> None:
    """A write with a token has no checkpoint: the same write again, its decisions hidden since, stops."""
    with start_broker(AUTHORIZER) as broker:
        kafka = Kafka(broker.bootstrap)
        sink = kafka.topic(2)
        kafka.topic(1, name=DECISIONS)

        def write(**more: str) -> None:
            rows = spark.range(30).selectExpr("cast(id AS string) AS value")
            given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": sink, "transactional.id": "t"}
            writer = rows.write.format("eoslog").mode("append").options(**given, **{"write.token": "load-1"})
            writer.options(**more).save()

        write()
        hide_topics(broker.bootstrap, INTERNAL)
        with pytest.raises(PySparkException, match="DecisionElsewhere"):
            write(**{"decision.topic": DECISIONS})
        show_topics(broker.bootstrap)
        write()
        assert len(kafka.rows(sink, 2)) == 30


def test_a_name_that_has_decided_nothing_may_change_the_topic_of_decisions(
    broker: Broker, tmp_path: Path
) -> None:
    """A driver that died before its first decision has left a transactional id and no group."""
    bench = _of_two_topics(broker, tmp_path)
    assert run(bench.query, Crash("begun", batch=0)) == "killed"
    bench.query = replace(_keeping(bench.query, f"another-{bench.topic}"), checkpoint=tmp_path / "another")
    bench.finish()


def test_a_new_checkpoint_does_not_overlook_decisions_on_another_topic(
    broker: Broker, tmp_path: Path
) -> None:
    """The checkpoint knows nothing, the group does."""
    bench = _of_two_topics(broker, tmp_path)
    assert run(bench.query, Crash(DECIDED)) == "killed"
    elsewhere = replace(_keeping(bench.query, None), checkpoint=tmp_path / "another")
    said = run(elsewhere)
    assert said.startswith("DecisionElsewhere") and f"group {bench.sink_id} has decisions on" in said
    bench.finish()


def test_the_way_to_another_topic_for_decisions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """As the error says: another name, a new checkpoint, and the line where the old one has ended."""
    kafka = Kafka(broker.bootstrap)
    source, sink, decisions = kafka.topic(2), kafka.topic(2), kafka.topic(2)

    def started(folder: str, name: str, starting: str, **more: str) -> StreamingQuery:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "transactional.id": f"{name}-{sink}"}
        reads = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": source,
            "startingOffsets": starting,
        }
        rows = spark.readStream.format("eoslog").options(**reads).load()
        writer = rows.writeStream.format("eoslog").options(**given, topic=sink, **more)
        query: StreamingQuery = all_available(writer.option("checkpointLocation", str(tmp_path / folder)))
        return query

    other = {"decision.topic": decisions}
    kafka.put(source, [b"%d" % number for number in range(5)])
    started("old", "a", "earliest").awaitTermination()
    kafka.put(source, [b"%d" % number for number in range(5, 9)])
    with pytest.raises(StreamingQueryException, match="DecisionElsewhere"):
        started("old", "a", "earliest", **other).awaitTermination()
    done = max(int(path.name) for path in (tmp_path / "old" / "commits").glob("[0-9]*"))
    line = (tmp_path / "old" / "offsets" / str(done)).read_text().splitlines()[-1]
    started("new", "b", line, **other).awaitTermination()
    assert sorted(row[3] for row in kafka.rows(sink, 2)) == [b"%d" % number for number in range(9)]


def _of_two_topics(broker: Broker, directory: Path) -> table.Bench:
    bench = table.Bench(broker, directory / "checkpoint")
    for name in ("decisions", "another"):
        bench.kafka.topic(2, name=f"{name}-{bench.topic}")
    bench.query = _keeping(bench.query, f"decisions-{bench.topic}")
    return bench


def _keeping(query: Query, topic: str | None) -> Query:
    """The query with its decisions on another topic; None: on the default one."""
    options = {name: value for name, value in query.options.items() if name != "decision.topic"}
    return replace(query, options=options | ({"decision.topic": topic} if topic else {}))
