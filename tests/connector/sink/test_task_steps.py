"""A task of the sink: how a batch begins for it, what it does with its rows, and what it tells of them."""

import inspect
import os
import pickle
import traceback
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.serializers import CloudPickleSerializer

from eoslog import errors
from eoslog.client.admin import transaction_states, transactions
from eoslog.client.wire.cluster import shared_cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.commit import faults
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Empty, Prepared, Report, Stamp
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.sink import committer, task_writer
from eoslog.connector.sink.begin_on_driver import BeginsWhenPickled, let_through
from eoslog.connector.sink.row_checksum import Tally
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.errors import EoslogError, RefusedByBroker, UnknownTopic, WrongCluster
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.brokers import Kafka

# -- a batch begins ------------------------------------------------------------------------------
# What goes wrong where a micro-batch begins is seen as it is: not behind what PySpark says of pickling.

OPTIONS = sink_options({"kafka.bootstrap.servers": "nowhere:1", "topic": "t"}, stream=True)
OURS = [
    kind
    for room in (errors, faults)
    for kind in vars(room).values()
    if inspect.isclass(kind) and issubclass(kind, EoslogError | KafkaError)
]


def dumps(value: object) -> None:
    """As PySpark pickles what it sends to a task."""
    CloudPickleSerializer().dumps(value)  # type: ignore[no-untyped-call]


class Fails(BeginsWhenPickled):
    def __init__(self, error: Exception) -> None:
        super().__init__(OPTIONS)
        self.error = error

    def _begin(self) -> Begun | None:
        raise self.error


def made(kind: Any) -> Exception:
    error: Exception = kind(ErrorCode.NOT_CONTROLLER, "why") if issubclass(kind, KafkaError) else kind("why")
    return error


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_of_ours_comes_through_as_it_is(kind: type[Exception], capsys: Any) -> None:
    with pytest.raises(kind) as raised:
        dumps(Fails(made(kind)))
    last, own = traceback.format_exception_only(raised.value)[-1], type(made(kind))
    assert last.startswith(f"{own.__module__}.{own.__qualname__}: ") and "serialize" not in last
    assert str(raised.value) == str(made(kind)) and capsys.readouterr().err == ""


def test_without_that_it_would_stand_behind_the_pickling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eoslog.connector.sink.begin_on_driver.let_through", lambda error: None)
    with pytest.raises(pickle.PicklingError, match="Could not serialize object: WrongCluster: why"):
        dumps(Fails(WrongCluster("why")))


def test_errors_of_pythons_own_stay_what_they_are() -> None:
    error = OSError("disk full")
    let_through(error)
    assert type(error) is OSError


def test_what_an_error_carries_stays() -> None:
    error = RefusedByBroker(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Produce")
    error.add_note("a note")
    let_through(error)
    let_through(error)
    assert isinstance(error, RefusedByBroker) and error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert error.__notes__ == ["a note"] and "the rights Read and Describe" in str(error)


# -- a task --------------------------------------------------------------------------------------
# A task of the sink: what it does with its rows and what it tells of them; and the names it goes by.

NOWHERE = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out"}
BATCH = Batch("q", 4, "digest")
BEGUN = Begun("sink", ProducerIdentity(1, 0), ProducerIdentity(1, 3), 2, 8, BATCH, None)


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def written(options: SinkOptions, begun: Begun, *batches: pa.RecordBatch) -> Report:
    report = write_rows(options, begun, Attempt("q", 4, 0), iter(batches)).report
    assert report is not None
    return report


# -- without a broker -------------------------------------------------------------------------


@pytest.mark.parametrize(("lost_rows", "summed"), [("replay", True), ("stop", False)])
def test_rows_that_pass_are_counted_and_summed(lost_rows: str, summed: bool) -> None:
    """A replay compares them with those of the first time: all tasks of the batch, not only the lost ones."""
    options = sink_options({**NOWHERE, "on.lost.transaction": lost_rows}, stream=True)
    tally = Tally(checksum=True)
    for batch in (rows(b"a", b"b"), rows(b"c")):
        tally.add(batch)
    report = written(options, replace(BEGUN, decided=BATCH), rows(b"a", b"b"), rows(b"c"))
    assert isinstance(report, Decided) and report.rows == 3
    assert report.checksum == (tally.checksum if summed else None)


@pytest.mark.parametrize(
    ("options", "told"),
    [({}, ("a", "b")), ({"topic": "out"}, ()), ({"deadletter.topic": "bad"}, ())],
    ids=["by rows", "by an option", "some may be dead letters"],
)
def test_rows_that_pass_tell_which_topics_they_name(options: dict[str, str], told: tuple[str, ...]) -> None:
    given = {key: value for key, value in NOWHERE.items() if key != "topic"} | options
    named = pa.record_batch({"value": [b"1", b"2", b"3"], "topic": ["b", "a", "b"]})
    report = written(sink_options(given, stream=True), replace(BEGUN, decided=BATCH), named)
    assert isinstance(report, Decided) and report.topics == told


def test_rows_of_a_batch_that_was_tried_are_taken_and_dropped() -> None:
    taken: list[int] = []

    def given() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            taken.append(number)
            yield rows(b"x")

    options = sink_options(NOWHERE, stream=True)
    dropped = replace(BEGUN, dropped=True)
    report = write_rows(options, dropped, Attempt("q", 4, 0), given()).report
    assert isinstance(report, Empty) and taken == [0, 1, 2]


def test_a_task_without_rows_opens_nothing() -> None:
    assert isinstance(written(sink_options(NOWHERE, stream=True), BEGUN, rows(), rows()), Empty)


def test_a_topic_is_created_once() -> None:
    """One that was there and is gone has taken rows of this task along: a new one would hold the rest."""
    created: list[bool] = []

    class There:
        config = ClientConfig((), api_timeout_ms=1, retry_backoff_ms=1, retry_backoff_max_ms=1)
        reached, gone = True, False

        def topic(self, name: str, *, create: bool) -> Any:
            created.append(create)
            if self.gone and not create:
                raise UnknownTopic(name)
            return SimpleNamespace(leaders={0: 1, 1: 1})

    cluster = There()
    partitions_of = task_writer._partitions_of(cluster)  # type: ignore[arg-type]
    assert partitions_of("t") == 2
    cluster.gone = True
    with pytest.raises(UnknownTopic):
        partitions_of("t")
    assert partitions_of("another") == 2
    assert created == [True, False, True]


def stamp(batch_id: int, incarnation: int = 0, sink_id: str = "sink") -> Stamp:
    run = ProducerIdentity(1, incarnation)
    return Stamp(sink_id, run, run, 0, 8, Batch("q", batch_id))


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_writer, "_slots", task_writer._Slots(-1, "", {}))


def slot(made: Stamp) -> int:
    return task_writer._next_slot(made)[1]


def test_a_process_has_no_name_twice_in_a_batch_and_few_in_all(fresh: None) -> None:
    assert [slot(stamp(0)), slot(stamp(0)), slot(stamp(1)), slot(stamp(0))] == [0, 1, 0, 2]
    assert [slot(stamp(2)), slot(stamp(2)), slot(stamp(1))] == [0, 1, 1], "names come again"


@pytest.mark.parametrize("other", [stamp(2, incarnation=1), stamp(2, sink_id="other"), stamp(3)])
def test_a_late_task_of_an_older_run_does_not_take_a_name_that_it_has_used(fresh: None, other: Stamp) -> None:
    """A worker has run a task of another run, sink or batch in between. The same name once more would abort
    what the first task has written under it, though its report may be on its way."""
    assert slot(stamp(0)) == 0
    slot(other)
    assert slot(stamp(0)) == 1


def test_a_forked_process_has_a_word_of_its_own(fresh: None) -> None:
    mine, _ = task_writer._next_slot(stamp(0))
    assert task_writer._next_slot(stamp(0))[0] == mine
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(there, task_writer._next_slot(stamp(0))[0].encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(here, 100).decode()
    assert theirs and theirs != mine


# -- on a broker ------------------------------------------------------------------------------


class Write:
    """A batch write of one task on a topic with two partitions."""

    def __init__(self, kafka: Kafka, **more: str) -> None:
        self.kafka, self.topic = kafka, kafka.topic(2)
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": self.topic,
            "transactional.id": self.topic,
        }
        self.options = sink_options(given | {k.replace("__", "."): v for k, v in more.items()}, stream=False)
        self.begun = committer.begin_batch(self.options)

    def run(self, given: Iterator[pa.RecordBatch]) -> Report | None:
        query_id = self.begun.batch.query_id if self.begun and self.begun.batch else ""
        return write_rows(self.options, self.begun, Attempt(query_id, 0, 0), given).report

    def open(self) -> list[str]:
        cluster = shared_cluster(self.options.client)
        found = transaction_states.list_transactions(cluster, self.topic, ["Ongoing"])
        return [listing.transactional_id for listing in found]

    def visible(self) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.topic, 2))


def test_all_rows_are_written_and_told_of(kafka: Kafka) -> None:
    write = Write(kafka)
    report = write.run(iter([rows(), rows(b"a"), rows(), rows(b"b", b"c"), rows(b"d")]))
    assert isinstance(report, Prepared) and report.rows == 4 and report.bytes > 0
    assert report.written == ((write.topic, 0), (write.topic, 1))
    (told,) = report.topic_ids
    assert told == (write.topic, shared_cluster(write.options.client).topic(write.topic).topic_id)
    assert write.visible() == [] and write.open() == [report.participant.name]
    committer.commit_batch(write.options, [report])
    assert write.visible() == [b"a", b"b", b"c", b"d"] and write.open() == []


def test_the_checksum_is_that_of_the_rows(kafka: Kafka) -> None:
    tally = Tally(checksum=True)
    tally.add(rows(b"a", b"b"))
    write = Write(kafka, on__lost__transaction="replay", write__token=f"token-{os.urandom(4).hex()}-x")
    report = write.run(iter([rows(b"b"), rows(b"a")]))
    assert isinstance(report, Prepared) and report.checksum == tally.checksum


def test_a_task_that_fails_leaves_nothing_open_or_visible(kafka: Kafka) -> None:
    """Though rows of it are in the log: the second batch of a partition waits for the answer to its first."""

    def failing() -> Iterator[pa.RecordBatch]:
        yield from [rows(b"a")] * 6
        assert len(write.open()) == 1
        raise ZeroDivisionError

    write = Write(kafka)
    with pytest.raises(ZeroDivisionError):
        write.run(failing())
    assert write.open() == [] and write.visible() == []


def test_what_fails_first_is_what_is_reported(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(b"a")
        raise ZeroDivisionError

    def away(*_: Any, **__: Any) -> None:
        raise OSError("away")

    write = Write(kafka)
    monkeypatch.setattr(transactions, "end_txn", away)
    with pytest.raises(ZeroDivisionError) as error:
        write.run(failing())
    assert any("could not be aborted at once: away" in note for note in error.value.__notes__)


def test_at_least_once_writes_each_row_once_when_nothing_fails(kafka: Kafka) -> None:
    write = Write(kafka, processing__guarantee="at_least_once")
    assert write.run(iter([rows(), rows(b"a", b"b"), rows(b"c")])) is None
    assert write.visible() == [b"a", b"b", b"c"]


# -- its rows in two numbers ---------------------------------------------------------------------
# What a task's rows come to in two numbers: the same for the same rows in any order and any pieces.

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROW: dict[str, Any] = {
    "key": b"k", "value": b"v", "topic": "t", "partition": 1, "headers": [{"key": "h", "value": b"x"}]
}  # fmt: skip
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=6),
            "value": st.none() | st.binary(max_size=70),
            "topic": st.sampled_from(["a", "b"]),
            "partition": st.none() | st.integers(0, 3),
            "headers": st.none()
            | st.lists(
                st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.binary(max_size=2)}),
                max_size=2,
            ),
        }
    ),
    max_size=30,
)


def tally(*pieces: list[dict[str, Any]]) -> tuple[int, int | None]:
    made = Tally(checksum=True)
    for piece in pieces:
        made.add(pa.RecordBatch.from_pylist(piece, SCHEMA))
    return made.rows, made.checksum


@given(rows=ROWS, at=st.integers(0, 30), data=st.data())
def test_neither_order_nor_pieces_matter(rows: list[dict[str, Any]], at: int, data: Any) -> None:
    expected = tally(rows)
    assert tally(rows[:at], rows[at:]) == expected and expected[0] == len(rows)
    assert tally(data.draw(st.permutations(rows))) == expected
    whole = pa.RecordBatch.from_pylist([ROW, *rows, ROW], SCHEMA)
    sliced = Tally(checksum=True)
    sliced.add(whole.slice(1, len(rows)))
    assert (sliced.rows, sliced.checksum) == expected


@given(rows=ROWS)
def test_a_row_more_or_another_row_shows(rows: list[dict[str, Any]]) -> None:
    assert tally([*rows, ROW])[1] != tally(rows)[1]
    assert tally([*rows, ROW])[1] != tally([*rows, {**ROW, "value": b"w"}])[1]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("key", b"l"),
        ("key", None),
        ("value", b"k"),
        ("value", None),
        ("topic", "u"),
        ("partition", 2),
        ("partition", None),
        ("headers", []),
        ("headers", [{"key": "h", "value": b"y"}]),
        ("headers", [{"key": "h", "value": None}]),
        ("headers", [{"key": "i", "value": b"x"}]),
    ],
)
def test_every_column_counts(name: str, other: Any) -> None:
    assert tally([{**ROW, name: other}])[1] != tally([ROW])[1]


def test_key_and_value_are_not_the_same_the_other_way_round() -> None:
    swapped = {**ROW, "key": b"v", "value": b"k"}
    assert tally([swapped])[1] != tally([ROW])[1]
    mixed = [{**ROW, "key": b"1", "value": b"4"}, {**ROW, "key": b"3", "value": b"2"}]
    straight = [{**ROW, "key": b"1", "value": b"2"}, {**ROW, "key": b"3", "value": b"4"}]
    assert tally(mixed)[1] != tally(straight)[1]


def test_without_checksum_rows_are_counted() -> None:
    plain = Tally(checksum=False)
    plain.add(pa.record_batch({"value": pa.array(["a", None, "c"])}))
    assert plain.rows == 3 and plain.checksum is None


def test_columns_may_be_missing_and_strings() -> None:
    made = Tally(checksum=True)
    made.add(pa.record_batch({"value": pa.array(["a", None])}))
    assert made.rows == 2 and made.checksum not in (0, None)


def test_the_topics_that_rows_name() -> None:
    """Only where they are wanted: where no option names the topic."""
    rows = pa.record_batch({"value": [b"1", b"2", b"3"], "topic": ["a", None, "b"]})
    tally = Tally(checksum=False, topics=True)
    tally.add(rows)
    tally.add(rows.slice(0, 0))
    tally.add(pa.record_batch({"value": [b"4"]}))
    assert tally.topics == {"a", "b"} and tally.rows == 4
    plain = Tally(checksum=False)
    plain.add(rows)
    assert plain.topics is None
