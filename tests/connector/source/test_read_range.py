"""A task's range is read once, as it was planned, whatever is gone in the middle of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from eoslog.connector.offsets.offsets import began_from_json
from eoslog.connector.offsets.plan import Range
from eoslog.connector.options.source_options import SourceOptions, source_options
from eoslog.connector.source import read_range, reader
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable, ReadMaxRows
from eoslog.errors import (
    DataLoss,
    OffsetsGone,
    OptionError,
    SchemaError,
    TopicRecreated,
    UnknownTopic,
)
from eoslog.protocol.decode import DecodedRecords
from tests.connector.brokers import Kafka, bare
from tests.connector.source.test_source_stream import planned
from tests.connector.source.test_source_stream import reader as stream_reader

# -- a range -------------------------------------------------------------------------------------
# A task's range is read once, whatever is gone in the middle of it: without a broker.


def options(**more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"} | more
    return source_options(given, stream=True)


def records(*offsets: int) -> DecodedRecords:
    count = len(offsets)
    texts = pa.array([b"%d" % at for at in offsets])
    columns: dict[str, Any] = {"offset": pa.array(offsets, pa.int64())}
    for field in DecodedRecords.__dataclass_fields__.values():
        columns.setdefault(field.name, None)
    columns |= {"key": texts, "value": texts}
    columns["timestamp"] = pa.array(np.zeros(count, np.int64))
    columns["timestamp_type"] = pa.array(np.zeros(count, np.int32))
    return DecodedRecords(**columns)


class Log:
    """Answers of a broker: what is fetched from which position, and where the log begins afterwards."""

    def __init__(self, patch: pytest.MonkeyPatch, first: int, *answers: list[Any]) -> None:
        self.asked: list[tuple[int, int, dict[str, Any]]] = []
        self.answers = iter(answers)
        patch.setattr(read_range, "fetch", self.fetch)
        patch.setattr(read_range, "shared_cluster", lambda client: None)
        patch.setattr(read_range, "list_offsets", lambda cluster, wanted, **_: dict.fromkeys(wanted, first))

    def fetch(
        self, cluster: Any, topic: str, partition: int, position: int, end: int, **more: Any
    ) -> Iterator[DecodedRecords]:
        self.asked.append((position, end, more))
        for answer in next(self.answers):
            if isinstance(answer, Exception):
                raise answer
            yield answer


def read(given: SourceOptions, task: Range) -> list[int]:
    return [at for batch in read_range.read_range(given, task) for at in batch.column("offset").to_pylist()]


GONE = OffsetsGone("gone", 0, 0)
CARELESS = {"failOnDataLoss": "false"}


def test_no_row_comes_twice_after_the_log_was_cut_in_mid_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records before 3 were deleted and those from 5 on cut, when 0 to 4 had been delivered."""
    log = Log(monkeypatch, 3, [records(0, 1, 2), records(3, 4), GONE], [records(3, 4)])
    assert read(options(**CARELESS), Range("t", 0, 0, 10)) == [0, 1, 2, 3, 4]
    assert len(log.asked) == 1


def test_after_what_was_deleted_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, 7, [records(0, 1), GONE], [records(7, 9)])
    assert read(options(**CARELESS), Range("t", 0, 0, 10)) == [0, 1, 7, 9]
    assert [asked[:2] for asked in log.asked] == [(0, 10), (7, 10)]


@pytest.mark.parametrize("loss", [GONE, TopicRecreated("another topic")])
def test_a_loss_stops_the_task_unless_it_may_be(monkeypatch: pytest.MonkeyPatch, loss: Exception) -> None:
    Log(monkeypatch, 0, [records(0), loss])
    with pytest.raises(DataLoss, match="failOnDataLoss"):
        read(options(), Range("t", 0, 0, 10))
    Log(monkeypatch, 0, [records(0), loss])
    assert read(options(**CARELESS), Range("t", 0, 0, 10)) == [0]


def test_of_a_topic_that_is_deleted_in_mid_range_the_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Log(monkeypatch, 0, [records(0, 4), UnknownTopic("t")])
    with pytest.raises(DataLoss, match="t-0: offsets 5 to 9 cannot be read"):
        read(options(), Range("t", 0, 0, 10))
    Log(monkeypatch, 0, [records(0, 4), UnknownTopic("t")])
    assert read(options(**CARELESS), Range("t", 0, 0, 10)) == [0, 4]


def test_what_is_asked_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for level, committed in (("read_committed", True), ("read_uncommitted", False)):
        log = Log(monkeypatch, 0, [records(4)])
        read(options(**{"kafka.isolation.level": level}), Range("t", 0, 4, 5, "the-id"))
        ((position, end, more),) = log.asked
        assert (position, end, more["committed"], more["topic_id"]) == (4, 5, committed, "the-id")


def test_a_range_that_begins_after_its_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the other partitions alone are not what was asked for."""
    found = {"startingOffsets": {("t", 0): 5, ("t", 1): 0}, "endingOffsets": {("t", 0): 3, ("t", 1): 9}}

    class Turned:
        ids: ClassVar[dict[str, str]] = {}
        cluster = SimpleNamespace(meet=lambda: None)

        def __init__(self, options: SourceOptions) -> None:
            pass

        def resolve(self, option: str, where: Any) -> Any:
            return found[option]

    monkeypatch.setattr(reader, "SourceTopics", Turned)
    given = source_options({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}, stream=False)
    with pytest.raises(OptionError, match="lies after endingOffsets: t-0 from 5 to 3; correct"):
        reader.BatchReader(given).partitions()


LONGEST_MS = (2**63 - 1) // 1000


@pytest.mark.parametrize("time", [LONGEST_MS + 1, -LONGEST_MS - 1, 2**63 - 1, -(2**63)])
def test_a_time_that_spark_cannot_hold_is_said_with_the_offset_of_its_row(
    monkeypatch: pytest.MonkeyPatch, time: int
) -> None:
    """Not with the range of all that was fetched with it."""
    found = records(3, 4, 7, 9, 12)
    found = replace(found, timestamp=pa.array([0, LONGEST_MS, time, -LONGEST_MS, time], pa.int64()))
    Log(monkeypatch, 0, [records(0, 1), found])
    with pytest.raises(
        SchemaError, match=rf"^t-0: the record at offset 7 has the timestamp {time}, which"
    ) as raised:
        read(options(), Range("t", 0, 0, 13))
    assert "3" not in str(raised.value).replace(str(time), "") and "2 of 5" not in str(raised.value)


# -- the first batch of a query ------------------------------------------------------------------
# The first batch of a query is read as it was planned, whatever the options say when it runs again.
#
# Spark stores ends alone and asks for the beginning again. A beginning that is looked up later, or under
# another startingOffsets, would lose rows of the batch or add some.

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
    return stream_reader(kafka, topic, **given, kafka__group__id=topic, **more)


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
