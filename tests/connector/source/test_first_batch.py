"""The first batch of a query is read as it was planned, whatever the options say when it runs again.

Spark stores ends alone and asks for the beginning again. A beginning that is looked up later, or under
another startingOffsets, would lose rows of the batch or add some.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from eoslog.connector.offsets.offsets import began_from_json
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable, ReadMaxRows
from eoslog.errors import DataLoss
from tests.connector.source.test_source_stream import planned, reader
from tests.connector.stock_kafka import Kafka, bare

NO_LIMIT = ReadAllAvailable()
T = 1_700_000_000_000
STARTS = ("earliest", "latest", "offsets", "time", "committed")
OLD, NEW = 4, 3
"""Records of each partition before the query begins, and those that are added before its batch runs again."""


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """Two partitions, of whose records a group has read two; the times are T, T + 1, ..."""
    made = kafka.topic(2)
    for p in range(2):
        for number in range(OLD):
            kafka.put(made, [b"old"], p, timestamp=T + number)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": made})
    consumer.commit(offsets=[TopicPartition(made, p, 2) for p in range(2)], asynchronous=False)
    consumer.close()
    return made


def starting(kafka: Kafka, topic: str, start: str, **more: str) -> StreamReader:
    """A query's source with one of STARTS."""
    given = {"startingOffsets": {"offsets": f'{{"{topic}":{{"0":1,"1":-2}}}}'}.get(start, start)}
    if start == "time":
        given = {"startingTimestamp": str(T + 3)}
    return reader(kafka, topic, **given, kafka__group__id=topic, **more)


def through_spark(told: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(told))


def first_batch(made: StreamReader) -> tuple[Any, list[tuple[int, int, int]]]:
    """Its end in the checkpoint, and what it reads."""
    began = through_spark(made.initialOffset())
    end = through_spark(made.latestOffset(began, made.getDefaultReadLimit()))
    return end, planned(made, began, end)


@pytest.mark.parametrize("later", STARTS)
@pytest.mark.parametrize("first", STARTS)
def test_a_first_batch_runs_again_as_it_was_planned(kafka: Kafka, topic: str, first: str, later: str) -> None:
    end, wanted = first_batch(starting(kafka, topic, first))
    kafka.put(topic, [b"new"] * NEW)
    again = starting(kafka, topic, later)
    assert planned(again, through_spark(again.initialOffset()), end) == wanted
    following = through_spark(again.latestOffset(end, NO_LIMIT))
    stood = bare(end)[topic]["0"]
    assert planned(again, end, following)[0] == (0, stood, OLD + NEW), "the next batch begins at its end"
    assert not began_from_json(following), "later batches do not say where the query began"


def test_an_end_that_does_not_move_stays_the_same_text(kafka: Kafka, topic: str) -> None:
    """Spark takes another text for new data."""
    made = starting(kafka, topic, "earliest")
    end, _ = first_batch(made)
    assert began_from_json(end) == {(topic, 0): 0, (topic, 1): 0}
    assert json.dumps(made.latestOffset(end, NO_LIMIT)) == json.dumps(end)
    assert planned(made, end, end) == [], "it is the end of a batch that is done"


@pytest.mark.parametrize("limits", [{"maxOffsetsPerTrigger": "3"}, {"minOffsetsPerTrigger": "100"}])
def test_limits_of_a_first_batch(kafka: Kafka, topic: str, limits: dict[str, str]) -> None:
    end, wanted = first_batch(starting(kafka, topic, "earliest", **limits))
    assert wanted == ([(0, 0, 1), (1, 0, 1)] if "maxOffsetsPerTrigger" in limits else [(0, 0, 4), (1, 0, 4)])
    again = starting(kafka, topic, "latest", **limits)
    assert planned(again, again.initialOffset(), end) == wanted


def test_available_now(kafka: Kafka, topic: str) -> None:
    made = starting(kafka, topic, "earliest")
    made.prepareForTriggerAvailableNow()
    began = made.initialOffset()
    end = made.latestOffset(began, ReadMaxRows(2))
    kafka.put(topic, [b"new"] * NEW)
    again = starting(kafka, topic, "latest")
    again.prepareForTriggerAvailableNow()
    assert planned(again, again.initialOffset(), end) == planned(made, began, end) == [(0, 0, 1), (1, 0, 1)]
    assert bare(again.latestOffset(end, NO_LIMIT)) == {topic: {"0": OLD + NEW, "1": OLD}}


def test_a_topic_that_comes_before_the_first_batch_is_planned(kafka: Kafka, topic: str) -> None:
    """It is read from its beginning, as in later batches; and so it is when the batch runs again."""

    def made_with(start: str) -> StreamReader:
        given = {"subscribePattern": f"{topic}.*", "startingOffsets": start, "small.batch.max.offsets": "0"}
        return StreamReader(
            source_options({"kafka.bootstrap.servers": kafka.bootstrap, **given}, stream=True)
        )

    made = made_with("earliest")
    began = made.initialOffset()
    second = kafka.topic(name=f"{topic}-second")
    kafka.put(second, [b"x"] * 5)
    end = made.latestOffset(began, NO_LIMIT)
    again = made_with("latest")
    kafka.put(second, [b"y"] * 2)
    wanted = [(0, 0, OLD), (1, 0, OLD), (0, 0, 5)]
    assert planned(again, again.initialOffset(), end) == planned(made, began, end) == wanted


def test_records_deleted_before_it_runs_again_are_a_loss(kafka: Kafka, topic: str) -> None:
    """`earliest` lies behind them now."""
    end, _ = first_batch(starting(kafka, topic, "earliest"))
    kafka.admin.delete_records([TopicPartition(topic, 1, 2)])[TopicPartition(topic, 1)].result(30)
    again = starting(kafka, topic, "earliest")
    with pytest.raises(DataLoss, match=f"{topic}-1 begins at 2 and ends at 4, and the query is at 0"):
        again.partitions(again.initialOffset(), end)


def test_an_end_of_an_older_eoslog_begins_where_the_option_says(kafka: Kafka, topic: str) -> None:
    end, _ = first_batch(starting(kafka, topic, "earliest"))
    older = {key: parts for key, parts in end.items() if not key.startswith("began-at:")}
    again = starting(kafka, topic, "offsets")
    assert planned(again, again.initialOffset(), older) == [(0, 1, 4), (1, 0, 4)]
    kafka.put(topic, [b"new"] * NEW)
    following = again.latestOffset(older, NO_LIMIT)
    assert not began_from_json(following) and planned(again, older, following) == [(0, 4, 7)]
