"""A reader with read.whole.batches meets all rows of a batch, in all partitions and topics, or none."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from eoslog.client.admin import transactions
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.commands import End, Refused
from eoslog.connector.commit.decide import Terms, commit
from eoslog.connector.commit.decision import KEPT_TOPICS, Decision
from eoslog.connector.commit.leave_sink import leave
from eoslog.connector.commit.places import Place
from eoslog.connector.commit.prepare import Task, judge, participant_name
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Left, Prepared, Report
from eoslog.connector.commit.token_write import begin_within, commit_within
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.options.rights import DESCRIBE, GROUP, needed
from eoslog.connector.options.source_options import SourceOptions, source_options
from eoslog.connector.run import runner
from eoslog.connector.run.runner import Runner
from eoslog.connector.source import whole_batches
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.connector.source.whole_batches import STILL_SECONDS, WholeBatches, check_left, may_have
from eoslog.errors import OptionError, RetriesExhausted
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition
from tests.connector.brokers import Broker, Kafka, bare
from tests.docs.reader import code_of
from tests.kit.program import until

PARTITIONS = 3
LOOKS_WHILE_PENDING = 6000
"""A look at a decision that is just being made waits for so small a part of kafka.default.api.timeout.ms: the
sink goes on after the look only."""
WRITER = ProducerIdentity(7, 0)


# -- a sink on a broker ---------------------------------------------------------------------------


class Row(NamedTuple):
    where: TopicPartition
    offset: int
    batch: int


class Writer:
    """A sink whose tasks write to one partition of two topics each. `places`: whether they tell where."""

    def __init__(self, bootstrap: str, topics: list[str], *, places: bool = True) -> None:
        self.topics, self.places, self.sink = topics, places, Sink(f"of-{topics[0]}")
        self.cluster = Cluster(ClientConfig(parse_addresses(bootstrap)))
        self.query, self._rows = "q", dict[int, list[Row]]()
        self._before: list[Row] = []

    @property
    def rows(self) -> list[Row]:
        """Of each batch those that were written last."""
        return self._before + [row for rows in self._rows.values() for row in rows]

    def begin_anew(self, query: str) -> None:
        """Another query goes on under the sink's name, with batches from 0 on."""
        self._before, self._rows, self.query = self.rows, {}, query

    def batch(self, number: int, tasks: Sequence[int], after: Callable[[Any], None] = lambda _: None) -> None:
        """A micro-batch of the query, perhaps tried again; `after` is called after each of its requests."""
        does = Runner(self.cluster, 60_000, after=after)
        done = number - 1 if number else None
        begun, _ = does.run(begin(self.sink, Batch(self.query, number, str(number)), completed=done))
        if judge(begun, self.query, number, tasks[0])[0] is Task.WRITE:
            self._rows[number] = []
        reports = [self._task(begun, number, partition) for partition in tasks]
        after(None)
        does.run(commit(self.sink, reports, number))

    def write(
        self,
        number: int,
        tasks: Sequence[int],
        within: bool = False,
        after: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """A df.write under the sink's name, whose rows are counted as this batch. `within`: the query's
        foreachBatch makes it, in the micro-batch of this number. `after`: as in batch(), of its decision."""
        does, decides = Runner(self.cluster, 60_000), Runner(self.cluster, 60_000, after=after)
        batch = Batch(f"write {number} {time.monotonic_ns()}", 0)
        begun, _ = does.run(begin(self.sink, batch))
        self._rows[number] = []
        reports = [self._write(begun, batch, number, partition) for partition in tasks]
        if not within:
            decides.run(commit(self.sink, reports, 0, terms=Terms(write_of="")))
            return
        of_query = does.run(begin_within(self.query, TwoPhase.AUTO))
        told = [
            replace(one, stamp=replace(one.stamp, within=Batch(self.query, number)), checksum=number)
            for one in reports
        ]
        decides.run(commit_within(of_query, told, self.topics[0], TwoPhase.AUTO))

    def _task(self, begun: Begun, number: int, partition: int) -> Report:
        task, stamp = judge(begun, self.query, number, partition)
        if task is not Task.WRITE:
            return Decided(stamp, partition)
        return self._write(begun, stamp.batch, number, partition)

    def _write(self, begun: Begun, batch: Batch, number: int, partition: int) -> Prepared:
        _, stamp = judge(begun, *batch[:2], partition)
        name = participant_name(stamp, f"w{partition}", 0)
        identity = transactions.init_producer_id(self.cluster, name, 60_000)
        now_ms = int(time.time() * 1000)
        with Producer(self.cluster, identity=identity, transactional_id=name) as producer:
            for topic in self.topics:
                for rows in encode_batches(
                    None, pa.array([b"%d" % number]), None, now_ms, codec=0, max_batch_bytes=99
                ):
                    producer.send(topic, partition, rows)
            producer.flush()
            first = dict(producer.first_rows)
        self._rows[number] += [Row(where, offset, number) for where, offset in first.items()]
        last = tuple((offset, now_ms) for offset in first.values()) if self.places else ()
        who = Participant(name, identity)
        return Prepared(
            stamp, partition, who, 2, tuple(first), last_rows=last, first_rows=tuple(first.values())
        )

    def options(self, **more: str) -> SourceOptions:
        servers = ",".join(f"{host}:{port}" for host, port in self.cluster.config.bootstrap)
        given = {"kafka.bootstrap.servers": servers, "subscribe": ",".join(self.topics)}
        return source_options(given | {"read.whole.batches": self.sink.id} | more, stream=True)

    def parts(self, ends: Offsets) -> list[int]:
        """Batches of which a reader up to `ends` has some rows and lacks others."""
        has = Counter(row.batch for row in self.rows if row.offset < ends[row.where])
        return [number for number, rows in has.items() if rows < self.size(number)]

    def size(self, number: int) -> int:
        return len(self._rows[number])

    def stable(self) -> Offsets:
        """What other readers of committed records read up to."""
        asked = {row.where: LATEST for row in self.rows}
        return list_offsets(self.cluster, asked, committed=True)


@pytest.mark.parametrize("places", [True, False], ids=["with places", "without places"])
def test_at_no_step_of_a_batch_is_a_part_met(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, places: bool
) -> None:
    """Others meet parts at some steps: this judge can fail."""
    monkeypatch.setattr(runner, "LOOKS", LOOKS_WHILE_PENDING)
    writer = Writer(kafka.bootstrap, [kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)], places=places)
    with writer.cluster:
        reader = WholeBatches(SourceTopics(writer.options()))
        met: list[Offsets] = []
        parts_of_others: list[int] = []

        def look(_: object) -> None:
            if not writer.rows:
                return
            parts_of_others.extend(writer.parts(writer.stable()))
            found = reader.ends()
            if found is not None:
                assert writer.parts(found) == []
                met.append(found)

        for number, tasks in enumerate(([0, 1, 2], [1], [0, 2], [0, 1, 2])):
            writer.batch(number, tasks, look)
        assert parts_of_others, "the transactions end one after another"
        last = reader.await_ends()
        assert all(row.offset < last[row.where] for row in writer.rows)
        seen = {sum(row.offset < ends[row.where] for row in writer.rows) for ends in met}
        assert seen == {6, 8, 12, 18}, "no batch is kept back until the next one has ended"


def test_a_writer_that_died_in_its_commit_is_started_again(kafka: Kafka) -> None:
    """The way out that the warning names: until then the reader has what was whole."""
    writer, ended = Writer(kafka.bootstrap, [kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)]), list[End]()

    def dies(command: Any) -> None:
        ended.extend([command] if isinstance(command, End) and command.commit else [])
        if len(ended) == 2:  # the decision, and the first task's transaction
            raise KeyboardInterrupt

    with writer.cluster:
        reader = WholeBatches(SourceTopics(writer.options()))
        writer.batch(0, [0, 1, 2])
        before = reader.await_ends()
        with pytest.raises(KeyboardInterrupt):
            writer.batch(1, [0, 1, 2], dies)
        until(lambda: writer.parts(writer.stable()) == [1], "the first task's marker, after EndTxn's answer")
        assert reader.ends() is None
        writer.batch(1, [0, 1, 2])
        after = reader.await_ends()
        assert [writer.parts(ends) for ends in (before, after)] == [[], []]
        assert all(row.offset < after[row.where] for row in writer.rows)


@pytest.mark.parametrize("writes_after", [0, 1], ids=["first write", "second write"])
@pytest.mark.parametrize("places", [True, False], ids=["with places", "without places"])
@pytest.mark.parametrize("within", [True, False], ids=["foreachBatch", "job"])
def test_a_write_under_the_name_of_a_stream_is_met_whole(
    kafka: Kafka, within: bool, places: bool, writes_after: int
) -> None:
    """What the stream's decision knows of a partition says nothing of a later write there: its driver dies
    between two of its transactions."""
    topics = [kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)]
    writer, ended = Writer(kafka.bootstrap, topics, places=places), list[End]()
    writer.query = topics[0]

    def dies(command: Any) -> None:
        ended.extend([command] if isinstance(command, End) and command.commit else [])
        if len(ended) == 2:  # the decision, and the first task's transaction
            raise KeyboardInterrupt

    with writer.cluster:
        writer.batch(0, [0, 1, 2])
        for number in range(1, 1 + writes_after):
            writer.write(number, [0, 1], within)
        reader = WholeBatches(SourceTopics(writer.options()))
        reader.await_ends()
        with pytest.raises(KeyboardInterrupt):
            writer.write(5, [0, 1, 2], within, dies)
        until(lambda: writer.parts(writer.stable()) == [5], "the first task's marker, after EndTxn's answer")
        assert reader.ends() is None
        writer.batch(6, [1])
        after = reader.await_ends()
        assert writer.parts(after) == []
        assert all(row.offset < after[row.where] for row in writer.rows)


def test_a_writer_that_was_renamed_is_named_as_well(kafka: Kafka) -> None:
    """The way out of the error: the reader then waits until the new name has decided, and meets no part."""
    old = Writer(kafka.bootstrap, [kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)])
    new = Writer(kafka.bootstrap, old.topics)
    new.sink, both = Sink(f"{old.sink.id}-2"), f"{old.sink.id},{old.sink.id}-2"
    with old.cluster, new.cluster:
        old.batch(0, [0, 1, 2])
        does = Runner(old.cluster, 60_000)
        does.run(leave(old.sink, Batch("q", 1, "1"), 0, Left("word", new.sink.id, "q", 1, 0)))
        with pytest.raises(OptionError, match=f"name {new.sink.id} as well"):
            WholeBatches(SourceTopics(old.options())).ends()
        reader = WholeBatches(SourceTopics(old.options(**{"read.whole.batches": both})))
        assert reader.ends() is None, "the new name has decided nothing"
        new.batch(1, [0, 1, 2])
        ends = reader.await_ends()
        assert all(row.offset < ends[row.where] for row in (*old.rows, *new.rows))


def test_a_stream_plans_no_batch_that_ends_in_a_part(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first batch waits, as Spark runs one in any case; the next ones are asked for again by Spark."""
    monkeypatch.setattr(runner, "LOOKS", LOOKS_WHILE_PENDING)
    writer = Writer(kafka.bootstrap, [kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)])
    with writer.cluster:
        reader = StreamReader(writer.options(startingOffsets="earliest"))
        began = reader.initialOffset()
        ends: list[dict[str, dict[str, int]]] = [began]

        def look(_: object) -> None:
            if writer.rows and writer.size(0) < len(writer.rows):  # from the second batch on
                ends.append(reader.latestOffset(ends[-1], reader.getDefaultReadLimit()))

        for number in range(3):
            writer.batch(number, [0, 1, 2], look)
        read = [{(t, int(p)): at for t, each in bare(end).items() for p, at in each.items()} for end in ends]
        assert all(writer.parts(end) == [] for end in read)
        counts = [sum(row.offset < end[row.where] for row in writer.rows) for end in read]
        assert counts == sorted(counts) and set(counts) >= {0, 6, 12}
        late = StreamReader(writer.options())  # startingOffsets=latest
        start = {(t, int(p)): at for t, each in bare(late.initialOffset()).items() for p, at in each.items()}
        assert all(row.offset < start[row.where] for row in writer.rows)
        reader.stop()
        late.stop()


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_new_query_waits_for_its_first_whole_batch(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, starting: str
) -> None:
    """Spark runs a first batch in any case, and asks once where the query begins."""
    topic = kafka.topic()
    kafka.put(topic, [b"0", b"1", b"of a batch that is a part now"])
    looks: list[Offsets | None] = [None, {(topic, 0): 2}]
    monkeypatch.setattr(WholeBatches, "ends", lambda *_: looks.pop(0))
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "read.whole.batches": "s"}
    reader = StreamReader(source_options(given | {"startingOffsets": starting}, stream=True))
    began = reader.initialOffset()
    end = reader.latestOffset(began, reader.getDefaultReadLimit())
    reader.stop()
    assert (bare(began), bare(end)) == ({topic: {"0": 0 if starting == "earliest" else 2}}, {topic: {"0": 2}})


# -- in Spark, as a reader of docs/exactly-once.md types it ---------------------------------------


class Seen:
    """The micro-batches that a query has read: how many rows of each of the sink's batches, by topic."""

    def __init__(self) -> None:
        self.batches: list[Counter[tuple[str, str]]] = []

    def take(self, frame: DataFrame, _: int) -> None:
        rows = frame.selectExpr("topic", "cast(value as string) value").collect()
        if rows:
            self.batches.append(Counter((row.topic, row.value) for row in rows))


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_stream_never_meets_a_part(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The sink's commit is held between its first transaction and its second, until a stream without the
    option has read a part."""
    kafka = Kafka(broker.bootstrap)
    writer = Writer(kafka.bootstrap, [kafka.topic(3, name=name) for name in ("orders", "lines")])
    given: dict[str, Any] = {"spark": spark, "kafka": {"kafka.bootstrap.servers": kafka.bootstrap}}
    exec(code_of("exactly-once.md", "both = ("), given)
    others = spark.readStream.format("eoslog").options(**given["kafka"]).option("subscribe", "orders,lines")
    with writer.cluster:
        writer.batch(0, [0, 1, 2])
    writer = Writer(kafka.bootstrap, writer.topics)
    whole, plain = Seen(), Seen()
    queries = [
        frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(tmp_path / name)).start()
        for name, frame, seen in (("whole", given["both"], whole), ("plain", others.load(), plain))
    ]
    until(lambda: all(query.lastProgress is not None for query in queries), "the queries' beginning", 120)
    ended, go_on, ends = threading.Event(), threading.Event(), list[End]()

    def hold(command: Any) -> None:
        ends.extend([command] if isinstance(command, End) and command.commit else [])
        if len(ends) == 2 and not ended.is_set():  # the decision, and the first task's transaction
            ended.set()
            assert go_on.wait(180)

    with writer.cluster:
        write = threading.Thread(target=lambda: writer.batch(1, [0, 1, 2], after=hold))
        write.start()
        assert ended.wait(60)
        try:
            until(lambda: plain.batches, "a part in the other stream", 120)
            assert sum(plain.batches[0].values()) < 6
            assert whole.batches == []
        finally:
            go_on.set()
            write.join(60)
        until(lambda: whole.batches, "the batch", 120)
        writer.batch(2, [0, 2])
        until(lambda: sum(map(Counter.total, whole.batches)) == 10, "the next batch", 120)
    for query in queries:
        query.stop()
    whole_of = {1: 3, 2: 2}
    for batch in whole.batches:
        assert all(count == whole_of[int(value)] for (_, value), count in batch.items())
        assert {topic for topic, _ in batch} == {"orders", "lines"}
    read = spark.read.format("eoslog").options(**given["kafka"]).option("subscribe", "orders,lines")
    assert read.option("read.whole.batches", "of-orders").load().count() == 16
    exec(code_of("exactly-once.md", "then = ("), given)
    assert sorted(row.value for row in given["then"].collect()) == [b"0"] * 6 + [b"1"] * 6


# -- looks, with given answers ------------------------------------------------------------------

T0, T1 = ("out", 0), ("out", 1)
LAST = Decision(5, Batch("q", 4, "digest"), WRITER, (), (T0,), topics=(("out", 5),))
LAST = LAST._replace(places=(Place("out", "id", 0, 9, WRITER, 0),))
MADE = Refused(ErrorCode.UNSTABLE_OFFSET_COMMIT, "pending")


class Log:
    """Stands for SourceTopics: each look has its own ends."""

    cluster = None

    def __init__(self, options: SourceOptions, ends: list[Offsets]) -> None:
        self.options, self._ends, self.ids = options, ends, {"out": "id"}

    def partitions(self) -> list[TopicPartition]:
        return [T0, T1]

    def latest(self, position: Offsets | None = None) -> Offsets:
        return self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., WholeBatches]]:
    """Makes a reader that meets these decisions and ends, one after another; the last ones stay. `written`:
    to where rows go that nobody may read yet."""

    def make(decisions: list[Any], ends: list[Offsets], written: Offsets | None = None) -> WholeBatches:
        class Answers:
            def __init__(self, *_: Any, **__: Any) -> None:
                pass

            def run(self, rule: Any) -> Any:
                rule.close()
                return decisions.pop(0) if len(decisions) > 1 else decisions[0]

        monkeypatch.setattr(whole_batches, "Runner", Answers)
        found = written or {}
        monkeypatch.setattr(
            whole_batches, "list_offsets", lambda _, asked, **__: {tp: found.get(tp, 0) for tp in asked}
        )
        given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "out", "read.whole.batches": "s"}
        options = source_options(given | {"kafka.default.api.timeout.ms": "50"}, stream=True)
        return WholeBatches(Log(options, ends))  # type: ignore[arg-type]

    yield make


def test_the_same_decision_before_and_after(reader: Callable[..., WholeBatches]) -> None:
    ends = {T0: 10, T1: 0}
    assert reader([LAST], [ends]).ends() == ends


def test_a_name_that_has_decided_nothing_may_be_misspelt(reader: Callable[..., WholeBatches]) -> None:
    """Who went on without it would meet parts. What the cluster forgets of a name that was known stays."""
    ends = {T0: 10, T1: 0}
    with pytest.raises(RetriesExhausted, match=r"sink s has decided nothing.*check the name"):
        reader([None], [ends]).await_ends()
    assert reader([LAST, None], [ends]).ends() == ends


def test_a_sink_that_was_left_for_another(reader: Callable[..., WholeBatches]) -> None:
    """The way out: its name, too."""
    left = LAST._replace(left=Left("word", "s2", "q", 5, 0))
    with pytest.raises(
        OptionError, match=r"has gone on with transactional\.id=s2 since batch 5.*name s2 as well"
    ):
        reader([left], [{T0: 10, T1: 0}]).ends()
    check_left({"s": left, "s2": LAST})
    least = LAST._replace(left=Left("word", "", "q", 5, 0))
    for named, way in (
        ({"s": least}, "leave read.whole.batches out"),
        ({"s2": least, "other": LAST}, "leave s2 out"),
        ({"s": left, "s2": least}, "leave read.whole.batches out"),
        ({"other": LAST, "s": left, "s2": least}, "leave s, s2 out"),
    ):
        with pytest.raises(OptionError, match=rf"at_least_once since batch 5.*{re.escape(way)}$"):
            check_left(named)
    with pytest.raises(OptionError, match="name s2 as well"):
        check_left({"other": LAST, "s": left})  # so s has to go with s2
    check_left({"other": LAST})


def test_a_sink_that_was_left_for_one_that_is_forgotten() -> None:
    """Without the one, the other one's query would be missed: both have to go."""
    left = LAST._replace(left=Left("word", "s2", "q", 5, 0))
    for named, way in (
        ({"s": left, "s2": None}, "leave read.whole.batches out"),
        ({"s": left, "s2": None, "other": LAST}, "leave s, s2 out"),
        ({"s": LAST, "s2": None}, "leave s2 out"),
    ):
        assert whole_batches.Decided(named, {}, {}).why_part({}).endswith(f"check the name, or {way}")


def test_an_end_before_the_query_s_position_is_a_loss(reader: Callable[..., WholeBatches]) -> None:
    """The source compares it with its checkpoint, and stops; a wait would hide it."""
    cut = {T0: 3, T1: 0}
    assert reader([LAST], [cut]).ends({T0: 3, T1: 0}) is None
    assert reader([LAST], [cut]).ends({T0: 4, T1: 0}) == cut


def test_the_sink_decides_meanwhile(reader: Callable[..., WholeBatches]) -> None:
    """The next batch's rows may be among those below the ends that were met before it was seen."""
    following = LAST._replace(sequence=6, batch=Batch("q", 5, "digest"))
    first, second = {T0: 11, T1: 0}, {T0: 12, T1: 0}
    assert reader([LAST, following], [first, second]).ends() == second
    changing = [LAST._replace(sequence=number) for number in range(9)]
    assert reader(changing, [first]).ends() is None
    assert reader([MADE], [first]).ends() is None
    assert reader([LAST, MADE, LAST], [first, second]).ends() == second


def test_what_was_seen_last_counts_as_seen_before(reader: Callable[..., WholeBatches]) -> None:
    """So a stream that waits asks once a look."""
    following = LAST._replace(sequence=6)
    found = reader([LAST, LAST, following], [{T0: 10, T1: 0}, {T0: 11, T1: 0}, {T0: 12, T1: 0}])
    assert found.ends() == {T0: 10, T1: 0}
    assert found.ends() == {T0: 12, T1: 0}


def test_rows_of_the_batch_cannot_be_read_yet(reader: Callable[..., WholeBatches]) -> None:
    assert reader([LAST], [{T0: 9, T1: 0}]).ends() is None
    older = LAST._replace(older=(Place("out", "id", 1, 3, WRITER, 0),))
    assert reader([older], [{T0: 10, T1: 3}]).ends() is None
    assert reader([older], [{T0: 10, T1: 4}]).ends() == {T0: 10, T1: 4}
    behind = LAST._replace(behind=older, places=())
    assert reader([behind], [{T0: 10, T1: 3}]).ends() is None


def test_a_partition_without_a_place(reader: Callable[..., WholeBatches]) -> None:
    """Whatever stands there when the decision is met has to be readable; what comes after it has not."""
    assert reader([LAST], [{T0: 10, T1: 4}], {T1: 5}).ends() is None
    assert reader([LAST], [{T0: 10, T1: 5}], {T1: 5}).ends() == {T0: 10, T1: 5}
    elsewhere = LAST._replace(topics=(("other", 5),))
    assert reader([elsewhere], [{T0: 10, T1: 4}], {T1: 5}).ends() == {T0: 10, T1: 4}


@pytest.mark.parametrize(
    ("decision", "may"),
    [
        (LAST, True),
        (LAST._replace(topics=()), False),
        (LAST._replace(topics=(), written=(T1,)), True),
        (LAST._replace(topics=tuple((f"t{n}", n) for n in range(KEPT_TOPICS))), True),
        (LAST._replace(topics=(), write_of=""), True),
    ],
    ids=["of its topics", "of others", "of the batch", "more topics than it says", "of a batch write"],
)
def test_where_rows_may_be(decision: Decision, may: bool) -> None:
    assert may_have(decision, T1) is may


def test_a_topic_that_was_made_anew(reader: Callable[..., WholeBatches]) -> None:
    then = replace_id(LAST, "another")
    assert reader([then], [{T0: 2, T1: 0}], {T0: 2}).ends() == {T0: 2, T1: 0}
    unknown = replace_id(LAST, None)
    assert reader([unknown], [{T0: 2, T1: 0}], {T0: 2}).ends() is None
    running = reader([LAST], [{T0: 10, T1: 0}, {T0: 2, T1: 0}], {T0: 2})
    assert running.ends() == {T0: 10, T1: 0}
    running._log.ids = {"out": "another"}
    assert running.ends() == {T0: 2, T1: 0}, "while the query runs"


def replace_id(decision: Decision, topic_id: str | None) -> Decision:
    return decision._replace(places=tuple(place._replace(topic_id=topic_id) for place in decision.places))


def test_a_wait_has_an_end(reader: Callable[..., WholeBatches]) -> None:
    why = r"within 50 ms .*its rows in out-0 go to offset 9, and committed records end at 9"
    with pytest.raises(RetriesExhausted, match=why):
        reader([LAST], [{T0: 9, T1: 0}]).await_ends()


def test_a_stream_says_why_it_stands(
    reader: Callable[..., WholeBatches], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    waiting = reader([LAST], [{T0: 9, T1: 0}])
    for seconds, said in ((0, 0), (STILL_SECONDS - 1, 0), (1, 1), (1, 1), (STILL_SECONDS, 2)):
        now += seconds
        assert waiting.ends() is None
        assert len(caplog.records) == said
    assert "sink s has decided" in caplog.text and "no-whole-batch-can-be-read" in caplog.text


# -- options --------------------------------------------------------------------------------------

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "out", "read.whole.batches": "a, b"}


@pytest.mark.parametrize(
    ("more", "stream"),
    [
        ({"maxOffsetsPerTrigger": "5"}, True),
        ({"endingOffsets": '{"out":{"0":5}}'}, False),
        ({"endingTimestamp": "5"}, False),
        ({"endingOffsetsByTimestamp": '{"out":{"0":5}}'}, False),
        ({"shadow.of": "v1", "shadow.topic": "x", "shadow.into": "y", "kafka.group.id": "g"}, True),
    ],
)
def test_two_options_that_say_where_a_batch_ends(more: dict[str, str], stream: bool) -> None:
    both = f"options read.whole.batches and {next(iter(more))} are both given"
    with pytest.raises(OptionError, match=both):
        source_options(GIVEN | more, stream=stream)


def test_its_options() -> None:
    assert source_options(GIVEN | {"endingOffsets": "latest"}, stream=False).whole_batches == ("a", "b")
    with pytest.raises(OptionError, match=r"needs kafka\.isolation\.level=read_committed"):
        source_options(GIVEN | {"kafka.isolation.level": "read_uncommitted"}, stream=True)


def test_its_rights() -> None:
    asked = {right[:3] for right in needed(source_options(GIVEN, stream=True), None, stream=True).rights}
    assert {(DESCRIBE, GROUP, Sink(name).group) for name in ("a", "b")} <= asked
