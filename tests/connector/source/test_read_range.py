"""A task's range is read once, whatever is gone in the middle of it: without a broker."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from eoslog.connector.offsets.plan import Range
from eoslog.connector.options.source_options import SourceOptions, source_options
from eoslog.connector.source import read_range, reader
from eoslog.errors import (
    DataLoss,
    OffsetsGone,
    OptionError,
    SchemaError,
    TopicRecreated,
    UnknownTopic,
)
from eoslog.protocol.decode import DecodedRecords


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
