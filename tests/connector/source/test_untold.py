"""The source under a PySpark that does not say where a batch starts when it asks for its end (before 4.2): a
start compares all that it compares elsewhere before a row is read, and says so with the same words.

The reader is called as PySpark 4.0 and 4.1 call it; the judges with a real Spark are in tests/versions.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.reader import UntoldStreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import DataLoss, EoslogError, OptionError
from tests.connector.brokers import Kafka, bare
from tests.connector.source.test_source_stream import planned, reader

NO_LIMIT = ReadAllAvailable()
ROWS = 6


def untold(kafka: Kafka, topic: str, **options: str) -> UntoldStreamReader:
    given = {name.replace("__", "."): value for name, value in options.items()}
    given = {"small.batch.max.offsets": "0", "fetchOffset.retryIntervalMs": "1", **given}
    return UntoldStreamReader(
        source_options({"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, **given}, stream=True)
    )


def stored(end: Any) -> Any:
    """As Spark keeps it in the checkpoint."""
    return json.loads(json.dumps(end))


def in_rounds(made: UntoldStreamReader, stood: Any) -> Any:
    """A start with a checkpoint: Spark says where the query stands, and asks for an end."""
    assert made.partitions(stood, stood) == []
    return stored(made.latestOffset())


def wrapped(made: UntoldStreamReader, stood: Any) -> Any:
    """The same with availableNow and Spark's wrapper: it asks first, and once more for a report."""
    end = stored(made.latestOffset())
    assert made.partitions(stood, stood) == []
    made.latestOffset()
    return end


def first_batch(made: UntoldStreamReader) -> tuple[Any, list[tuple[int, int, int]]]:
    """The first batch of a new query: its end, and what it reads."""
    end = stored(made.latestOffset())
    return end, planned(made, stored(made.initialOffset()), end)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """Two partitions, the first of which has rows."""
    made = kafka.topic(2)
    kafka.put(made, [b"old"] * ROWS)
    return made


Start = Callable[[UntoldStreamReader, Any], Any]
starts = pytest.mark.parametrize("start", [in_rounds, wrapped])


@pytest.mark.parametrize("later", ["earliest", "latest", "offsets"])
@pytest.mark.parametrize("first", ["earliest", "latest", "offsets"])
def test_a_first_batch_runs_again_as_it_was_planned(kafka: Kafka, topic: str, first: str, later: str) -> None:
    def starting(start: str) -> UntoldStreamReader:
        given = f'{{"{topic}":{{"0":1,"1":-2}}}}' if start == "offsets" else start
        return untold(kafka, topic, startingOffsets=given)

    end, wanted = first_batch(starting(first))
    kafka.put(topic, [b"new"] * 3)
    again = starting(later)
    assert again.partitions(end, end) == []
    assert planned(again, stored(again.initialOffset()), end) == wanted
    following = stored(again.latestOffset())
    assert planned(again, end, following) == [(0, ROWS, ROWS + 3)]


@starts
def test_a_start_reads_on_from_where_the_query_stands(kafka: Kafka, topic: str, start: Start) -> None:
    """Whatever startingOffsets says by now."""
    stood, read = first_batch(untold(kafka, topic, startingOffsets="earliest"))
    assert read == [(0, 0, ROWS)]
    kafka.put(topic, [b"new"] * 4)
    for given in ("earliest", "latest"):
        made = untold(kafka, topic, startingOffsets=given)
        end = start(made, stood)
        assert planned(made, stood, end) == [(0, ROWS, ROWS + 4)]
        after = untold(kafka, topic, startingOffsets=given)
        assert after.partitions(end, end) == [] and planned(after, stood, end) == [(0, ROWS, ROWS + 4)], given
        told = reader(kafka, topic, startingOffsets=given)
        assert told.partitions(end, end) == [] and planned(told, stood, end) == [(0, ROWS, ROWS + 4)], given
    end = in_rounds(untold(kafka, topic), stood)  # which names no beginning
    kafka.put(topic, [b"newest"] * 2)
    made = untold(kafka, topic, startingOffsets="earliest")
    last = start(made, end)
    assert planned(made, end, last) == [(0, ROWS + 4, ROWS + 6)], "not from where a new query would begin"
    told = reader(kafka, topic, startingOffsets="earliest")
    assert planned(told, end, last) == [(0, ROWS + 4, ROWS + 6)], "nor under a later PySpark"


def of_another(kind: str) -> Callable[[str], str]:
    return lambda text: re.sub(rf'("{kind}:(?:t-\w+:)?)[\w-]+', r"\g<1>AAAAAAAAAAAAAAAAAAAAAQ", text)


CHANGES: dict[str, Callable[[str], str]] = {
    "another cluster": of_another("cluster-id"),
    "a topic made anew": of_another("topic-id"),
    "a log that was restored": lambda text: re.sub(r'("leader-epoch:t-\w+:)\d+', r"\g<1>3", text),
    "a log that was cut": lambda text: text.replace(f'"0": {ROWS}', f'"0": {ROWS + 9}'),
    "a topic that is gone": lambda text: '{"gone": {"0": 1}, ' + text[1:],
}


@starts
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_start_compares_stops_it_before_a_row_is_read(
    kafka: Kafka, topic: str, change: str, start: Start
) -> None:
    """With the same words as under a PySpark that says where the query stands."""
    end, _ = first_batch(untold(kafka, topic, startingOffsets="earliest"))
    stood = json.loads(CHANGES[change](json.dumps(end)))
    assert stood != end
    kafka.put(topic, [b"new"])
    with pytest.raises(EoslogError) as told:
        reader(kafka, topic, fetchOffset__retryIntervalMs="1").latestOffset(stood, NO_LIMIT)
    for _ in range(2):
        with pytest.raises(type(told.value), match=re.escape(str(told.value))):
            start(untold(kafka, topic), stood)


@starts
def test_records_deleted_before_they_were_read(kafka: Kafka, topic: str, start: Start) -> None:
    stood = stored(untold(kafka, topic, startingOffsets="earliest", maxOffsetsPerTrigger="2").latestOffset())
    assert bare(stood)[topic]["0"] == 2
    for gone in kafka.admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        gone.result(30)
    with pytest.raises(DataLoss, match=f"{topic}-0 begins at 4 and ends at {ROWS}, and the query is at 2"):
        start(untold(kafka, topic, startingOffsets="earliest"), stood)


def test_limits_hold_from_the_first_batch_on_and_after_a_restart(kafka: Kafka, topic: str) -> None:
    made = untold(kafka, topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    end, read = first_batch(made)
    assert read == [(0, 0, 2)]
    following = stored(made.latestOffset())
    assert planned(made, end, following) == [(0, 2, 4)]
    again = untold(kafka, topic, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert planned(again, following, in_rounds(again, following)) == [(0, 4, 5)]
    waiting = untold(kafka, topic, minOffsetsPerTrigger="5", startingOffsets="earliest")
    assert bare(in_rounds(waiting, following))[topic]["0"] == ROWS, "the first batch of a run does not wait"
    kafka.put(topic, [b"few"] * 2)
    stood = stored(waiting.latestOffset())
    assert bare(stood)[topic]["0"] == ROWS, "too few"
    kafka.put(topic, [b"enough"] * 3)
    assert planned(waiting, stood, stored(waiting.latestOffset())) == [(0, ROWS, ROWS + 5)]


def test_what_a_limit_means_here_is_said_once(
    kafka: Kafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    first_batch(untold(kafka, topic, startingOffsets="earliest"))
    assert "by-version-of-pyspark" not in caplog.text
    made = untold(kafka, topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    end, _ = first_batch(made)
    planned(made, end, stored(made.latestOffset()))
    assert caplog.text.count("reads one batch in a run, and this option bounds it. See connector-opt") == 1


def test_ends_that_are_asked_for_in_turn_without_plans(kafka: Kafka, topic: str) -> None:
    """Spark plans no tasks of a source of which a batch uses nothing."""
    made = untold(kafka, topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert [bare(stored(made.latestOffset()))[topic]["0"] for _ in range(4)] == [2, 4, 6, 6]
    kafka.put(topic, [b"new"])
    assert bare(stored(made.latestOffset()))[topic]["0"] == 7, (
        "its first end did not fix those of later batches"
    )


def changed_topics(kafka: Kafka, topic: str, other: str) -> Any:
    """A query has read both topics, and reads the first one alone since."""
    both, _ = first_batch(untold(kafka, f"{topic},{other}", startingOffsets="earliest"))
    left = stored(reader(kafka, topic, failOnDataLoss="false").latestOffset(both, NO_LIMIT))
    assert any(key.startswith("left") for key in left), left
    return left


def test_an_end_that_is_another_from_where_the_query_stands_is_refused(kafka: Kafka, topic: str) -> None:
    """Without the wrapper the query goes on, and what it has left is not read from its beginning again."""
    other = kafka.topic(1)
    kafka.put(other, [b"other"] * 5)
    stood = changed_topics(kafka, topic, other)
    kafka.put(topic, [b"new"])
    with pytest.raises(OptionError, match=r"triggerAvailableNowWrapper.*Nothing was read\. Unset it"):
        wrapped(untold(kafka, topic), stood)
    made = untold(kafka, topic)
    end = in_rounds(made, stood)
    assert planned(made, stood, end) == [(0, ROWS, ROWS + 1)]
    kafka.put(other, [b"later"] * 2)
    back = untold(kafka, f"{topic},{other}")
    assert planned(back, end, in_rounds(back, end)) == [(0, 5, 7)], "from where it had left it"


def test_a_limit_does_not_end_a_whole_run(kafka: Kafka, topic: str) -> None:
    stood, _ = first_batch(untold(kafka, topic, startingOffsets="earliest", maxOffsetsPerTrigger="4"))
    for given in ("earliest", json.dumps({topic: {"0": 4, "1": 0}})):
        with pytest.raises(OptionError, match="by maxOffsetsPerTrigger"):
            wrapped(untold(kafka, topic, startingOffsets=given, maxOffsetsPerTrigger="1"), stood)
    made = untold(kafka, topic, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert planned(made, stood, in_rounds(made, stood)) == [(0, 4, 5)]


def test_a_place_where_a_new_query_cannot_begin_names_the_setting(kafka: Kafka, topic: str) -> None:
    stood, _ = first_batch(untold(kafka, topic, startingOffsets="earliest"))
    gone = json.dumps({topic: {"0": ROWS + 50, "1": 0}})
    with pytest.raises(DataLoss) as found:
        wrapped(untold(kafka, topic, startingOffsets=gone), stood)
    assert "unset spark.sql.streaming.triggerAvailableNowWrapper.enabled" in found.value.__notes__[0]
    kafka.put(topic, [b"new"])
    made = untold(kafka, topic, startingOffsets=gone)
    assert planned(made, stood, in_rounds(made, stood)) == [(0, ROWS, ROWS + 1)]
