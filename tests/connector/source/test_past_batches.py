"""A read with as.of.batch or as.of.time has the rows up to that batch of a sink, and none of a later one."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Place

from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.leave_sink import leave
from eoslog.connector.commit.task_reports import Batch, Left
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.options.rights import DESCRIBE_CONFIGS, READ, TOPIC, needed
from eoslog.connector.options.source_options import SourceOptions, source_options
from eoslog.connector.run.runner import Runner
from eoslog.connector.source import past_batches
from eoslog.connector.source.past_batches import PastBatches, Stored
from eoslog.connector.source.reader import BatchReader
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.errors import OptionError, RetriesExhausted
from eoslog.protocol.names_by_sink import ANCHOR
from tests.connector.brokers import Kafka
from tests.connector.source import test_whole_batches
from tests.connector.source.test_whole_batches import PARTITIONS, Writer

FAR = "9999999999999"
BATCHES = ([0], [0, 1, 2], [1], [0, 2], [0, 1, 2])
"""To which partitions of both topics each batch writes: two have no row at first."""


def options_of(writer: Writer, **more: str) -> SourceOptions:
    servers = ",".join(f"{host}:{port}" for host, port in writer.cluster.config.bootstrap)
    given = {"kafka.bootstrap.servers": servers}
    given |= {} if "assign" in more else {"subscribe": ",".join(writer.topics)}
    given |= {"read.whole.batches": writer.sink.id, "kafka.default.api.timeout.ms": "20000"}
    return source_options(
        given | {name.replace("__", "."): value for name, value in more.items()}, stream=False
    )


def read(writer: Writer, **more: str) -> list[int]:
    """The batch of each row that such a read has."""
    log = SourceTopics(options_of(writer, **more))
    start = log.resolve("startingOffsets", log.options.starting)
    end = PastBatches(log).ends(start)
    return sorted(row.batch for row in writer.rows if start[row.where] <= row.offset < end[row.where])


def rows_up_to(number: int) -> list[int]:
    return sorted(n for n, tasks in enumerate(BATCHES[: number + 1]) for _ in (*tasks, *tasks))


@pytest.fixture
def writer(kafka: Kafka) -> Iterator[Writer]:
    made = Writer(kafka.bootstrap, [kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)])
    with made.cluster:
        yield made


def write_all(writer: Writer) -> list[int]:
    """Write the batches; returns a time after each, in ms."""
    times = []
    for number, tasks in enumerate(BATCHES):
        writer.batch(number, tasks)
        time.sleep(0.005)
        times.append(int(time.time() * 1000))
        time.sleep(0.005)
    return times


def test_each_batch_as_it_was(writer: Writer) -> None:
    """Also the last one, and where a partition had no row yet."""
    times = write_all(writer)
    for number, at in enumerate(times):
        assert read(writer, as__of__batch=str(number)) == rows_up_to(number)
        assert read(writer, as__of__time=str(at)) == rows_up_to(number)
    assert read(writer, as__of__time=str(2 * times[-1])) == rows_up_to(4)


def test_others_rows_and_where_the_read_begins(writer: Writer, kafka: Kafka) -> None:
    """Rows of others come as they stand, before the sink's last row."""
    writer.batch(0, [0, 1, 2])
    kafka.put(writer.topics[0], [b"other"])
    writer.batch(1, [0, 1, 2])
    kafka.put(writer.topics[0], [b"later"])
    log = SourceTopics(options_of(writer, as__of__batch="1"))
    start = log.resolve("startingOffsets", log.options.starting)
    end = PastBatches(log).ends(start)
    rows = [(row[1], row[3]) for row in kafka.rows(writer.topics[0])]
    assert [value for at, value in rows if at < end[writer.topics[0], 0]] == [b"0", b"other", b"1"]
    behind = json.dumps({topic: {p: end[topic, p] for p in range(PARTITIONS)} for topic in writer.topics})
    assert read(writer, as__of__batch="0", startingOffsets=behind) == [], "it begins behind that batch"
    assert BatchReader(options_of(writer, as__of__batch="0", startingOffsets=behind)).partitions()


def test_the_last_query_s_batch_counts(writer: Writer) -> None:
    """A new checkpoint counts from 0 again; a former query's batches are told by their time."""
    write_all(writer)
    before = int(time.time() * 1000)
    time.sleep(0.01)
    writer.begin_anew("q2")
    writer.batch(0, [0, 1, 2])
    assert len(read(writer, as__of__batch="0")) == len(rows_up_to(4)) + 6
    with pytest.raises(OptionError, match="begins with batch 0 of query q2"):
        read(writer, as__of__batch="3")
    assert read(writer, as__of__time=str(before)) == rows_up_to(4)


def test_what_the_log_does_not_have_is_refused(writer: Writer) -> None:
    with pytest.raises(OptionError, match=f"what {ANCHOR} has of sink .* has no decision of a query"):
        read(writer, as__of__batch="0")
    with pytest.raises(OptionError, match=r"is empty\. Brokers compact former decisions away"):
        read(writer, as__of__time="5")
    write_all(writer)
    with pytest.raises(OptionError, match=r"begins with batch 0 of query q\. Brokers compact"):
        read(writer, as__of__batch="5")
    with pytest.raises(OptionError, match=r"begins at \d+\. Brokers compact former"):
        read(writer, as__of__time="5")


def test_what_compaction_has_left_of_the_decisions(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision of which a chunk is gone is none. Where the sink's first one is gone, a partition without a
    place may have had rows."""
    write_all(writer)
    stored = list(past_batches.decisions_in_log(writer.cluster, writer.sink, ANCHOR))
    assert [one.sequence for one in stored] == [1, 2, 3, 4, 5]

    def has(*kept: Stored) -> None:
        monkeypatch.setattr(past_batches, "decisions_in_log", lambda *_: iter(kept))

    torn = stored[2]._replace(chunks={0: (3, stored[2].chunks[0][1].replace(" 1 ", " 2 ", 1))})
    has(*stored[:2], torn, *stored[3:])
    with pytest.raises(OptionError, match="begins with batch 0 of query q"):
        read(writer, as__of__batch="2")
    with pytest.raises(OptionError, match="and has not all of that time"):
        read(writer, as__of__time=str(torn.time_ms))
    has(*stored[:2], *stored[3:])
    with pytest.raises(OptionError, match="and has not all of that time"):
        read(writer, as__of__time=str(torn.time_ms))
    has(*stored[1:])
    assert read(writer, as__of__batch="1") == rows_up_to(1)
    has(*stored[2:])
    assert read(writer, as__of__batch="2") == rows_up_to(2), "later batches' rows follow the known places"
    has(stored[0], *stored[2:])
    with pytest.raises(OptionError, match=r"-1, \S+-2, \S+-1, \S+-2 is not known"):
        read(writer, as__of__batch="0")
    has(*stored[2:])
    with pytest.raises(OptionError, match="begins with batch 2 of query q"):
        read(writer, as__of__batch="1")


def check_unknown(writer: Writer, past: dict[str, str], right: list[int]) -> None:
    """Whether such a read is refused for partition 1 of both topics, and the way out that is named: the
    others, which have these batches."""
    with pytest.raises(OptionError, match=r"sink's rows ended in \S+-1, \S+-1 is not known.*name the other"):
        read(writer, **past)
    others = json.dumps({topic: [0, 2] for topic in writer.topics})
    known = SourceTopics(options_of(writer, assign=others, **past))
    end = PastBatches(known).ends({(topic, p): 0 for topic in writer.topics for p in (0, 2)})
    assert sorted(row.batch for row in writer.rows if row.offset < end.get(row.where, 0)) == right


def begins_again_at(writer: Writer, number: int, tasks: Sequence[int]) -> None:
    """The next batch is its sink's first decision: nothing is known there of batches before."""
    writer.batch(number, tasks)
    first = next(past_batches.decisions_in_log(writer.cluster, writer.sink, ANCHOR))
    assert (first.sequence, json.loads(first.chunks[0][1].split(" ", 4)[4])["batch"]) == (1, number)


def test_a_query_that_has_changed_its_name(writer: Writer) -> None:
    """Its former name's batches went to partition 1 too, of which the new one's decisions know nothing, until
    they have a place there."""
    for number in range(2):
        writer.batch(number, [0, 1])
    former = writer.sink
    leave_for(writer, f"{former.id}-2", 2)
    begins_again_at(writer, 2, [0])
    check_unknown(writer, {"as.of.batch": "2"}, [0, 0, 1, 1, 2, 2])
    check_unknown(writer, {"as.of.time": FAR}, [0, 0, 1, 1, 2, 2])
    writer.batch(3, [1])
    assert read(writer, as__of__batch="3") == [0] * 4 + [1] * 4 + [2] * 2 + [3] * 2
    writer.sink = former
    assert read(writer, as__of__batch="1") == [0] * 4 + [1] * 4


@pytest.mark.parametrize("places", [True, False], ids=["with places", "without places"])
@pytest.mark.parametrize("within", [True, False], ids=["foreachBatch", "job"])
def test_writes_under_the_name_of_a_stream_stay(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, within: bool, places: bool
) -> None:
    """They are there at all later times, whoever writes next, and whatever else is compacted; or the read is
    refused, where the brokers did not say where they are."""
    writer, times = Writer(kafka.bootstrap, [kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)]), list[int]()
    writer.query = writer.topics[0]
    made = ((0, [0, 1]), (1, [0, 1]), (2, [0]), (3, [0]), (4, [0, 1]))
    with writer.cluster:
        for number, tasks in made:
            writer.places = places or number not in (1, 2)
            if number in (1, 2):
                writer.write(number, tasks, within)
            else:
                writer.batch(number, tasks)
            time.sleep(0.005)
            times.append(int(time.time() * 1000))
            time.sleep(0.005)
        real = past_batches.decisions_in_log
        alone: Any = lambda *of: (one for one in real(*of) if one.sequence > 3)  # noqa: E731
        all_of_it = [n for n, tasks in made for _ in (*tasks, *tasks)]
        for number, at in enumerate(times):
            right = [n for n in all_of_it if n <= number]
            if places or number in (0, 4):
                assert read(writer, as__of__time=str(at)) == right
            else:
                with pytest.raises(OptionError, match=r"sink's rows ended in \S+-[01], .* is not known"):
                    read(writer, as__of__time=str(at))
        assert read(writer, as__of__batch="4") == all_of_it
        monkeypatch.setattr(past_batches, "decisions_in_log", alone)
        if places:
            assert read(writer, as__of__batch="3") == [n for n in all_of_it if n <= 3]
        else:
            with pytest.raises(OptionError, match=r"-1, \S+-1 is not known"):
                read(writer, as__of__batch="3")


def leave_for(writer: Writer, name: str, number: int) -> None:
    """The query goes on under another name from this batch on."""
    rules = leave(
        writer.sink, Batch("q", number, str(number)), number - 1, Left("word", name, "q", number, 0)
    )
    Runner(writer.cluster, 60_000).run(rules)
    writer.sink = Sink(name)


def test_a_query_that_was_elsewhere_for_a_while(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink's places from before do not name the rows that came under the other name. That its decisions
    of that time are compacted away changes nothing."""
    former = writer.sink
    writer.batch(0, [0, 1])
    leave_for(writer, f"{former.id}-2", 1)
    writer.batch(1, [0, 1])
    leave_for(writer, former.id, 2)
    writer.batch(2, [0])
    check_unknown(writer, {"as.of.batch": "2"}, [0, 0, 1, 1, 2, 2])
    real = past_batches.decisions_in_log
    monkeypatch.setattr(past_batches, "decisions_in_log", lambda *of: iter([*real(*of)][-1:]))
    check_unknown(writer, {"as.of.batch": "2"}, [0, 0, 1, 1, 2, 2])
    monkeypatch.setattr(past_batches, "decisions_in_log", real)
    writer.batch(3, [1])
    writer.batch(4, [0])
    assert read(writer, as__of__batch="4") == [0] * 4 + [1] * 4 + [2] * 2 + [3] * 2 + [4] * 2


def test_a_query_that_was_on_another_cluster_for_a_while() -> None:
    """Its decisions have a gap that compaction has not made."""
    first, last = (decision(1, 4), decision(2, 8))
    where = {(place.topic, place.partition) for place in first.places}
    bare = last._replace(places=(), older=first.places)
    assert past_batches._named_since([first, bare]) == set()
    assert past_batches._named_since([first._replace(sequence=3), bare._replace(batch=first.batch)]) == set()
    assert past_batches._named_since([first, last]) == where
    untold = decision(2, 4)._replace(write_of="q", places=(), behind=first)
    assert past_batches._named_since([first, untold]) == set(), (
        "a write of foreachBatch by an earlier version"
    )
    for compacted in (decision(5, 8), decision(2, 5), decision(2, 4), decision(2, 1)):
        assert past_batches._named_since([first, compacted._replace(places=(), written=())]) == where


def decision(sequence: int, number: int) -> Decision:
    return test_whole_batches.LAST._replace(sequence=sequence, batch=Batch("q", number, "digest"))


@pytest.mark.parametrize("partition", [0, 2])
def test_a_sink_on_a_cluster_to_which_rows_were_copied(writer: Writer, kafka: Kafka, partition: int) -> None:
    """A mirror's rows are plain ones. Others that are behind the sink's last row do not count."""
    for topic in writer.topics:
        for number in (0, 1):
            kafka.put(topic, [b"0", b"1"], number)
    with pytest.raises(OptionError, match=r"has no decision of a query"):
        read(writer, as__of__batch="1")
    begins_again_at(writer, 2, [partition])
    unknown = ", ".join(rf"\S+-{number}" for _ in writer.topics for number in (0, 1) if number != partition)
    for past in ({"as.of.batch": "2"}, {"as.of.time": FAR}):
        with pytest.raises(OptionError, match=f"ended in {unknown} is not known"):
            read(writer, **past)


@pytest.mark.parametrize("compacted", [True, False])
def test_decisions_that_were_forgotten(
    writer: Writer, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    """Another query goes on under the name, with decisions from 1 on."""
    for number in range(2):
        writer.batch(number, [0, 1])
    kafka.admin.delete_consumer_groups([writer.sink.group])[writer.sink.group].result(60)
    time.sleep(0.01)
    since = int(time.time() * 1000)
    writer.begin_anew("q2")
    writer.batch(0, [0])
    if compacted:
        real = past_batches.decisions_in_log
        monkeypatch.setattr(
            past_batches, "decisions_in_log", lambda *of: (one for one in real(*of) if one.time_ms >= since)
        )
    for past in ({"as.of.batch": "0"}, {"as.of.time": FAR}):
        check_unknown(writer, past, [0, 0, 0, 0, 1, 1])


def test_a_topic_that_only_a_former_name_wrote_to(writer: Writer) -> None:
    topics = writer.topics
    writer.batch(0, [0])
    leave_for(writer, f"{writer.sink.id}-2", 1)
    writer.topics = topics[:1]
    begins_again_at(writer, 1, [0])
    writer.topics = topics
    with pytest.raises(OptionError, match=rf"ended in {topics[1]}-0 is not known"):
        read(writer, as__of__batch="1")


def test_rows_of_the_next_batch_are_no_earlier_ones(writer: Writer) -> None:
    """Partition 1 gets its first rows while the reader waits, after a try that was aborted."""

    def interrupted(command: object) -> None:
        if command is None:  # the tasks are done
            raise KeyboardInterrupt

    def reading(command: object) -> None:
        if command is None:
            with pytest.raises(RetriesExhausted, match=r"-1: a transaction is open"):
                read(writer, as__of__batch="0", kafka__default__api__timeout__ms="300")

    writer.batch(0, [0])
    with pytest.raises(KeyboardInterrupt):
        writer.batch(1, [0, 1], interrupted)
    writer.batch(1, [0, 1], reading)
    assert read(writer, as__of__batch="0") == [0, 0]


def test_places_that_were_not_told(kafka: Kafka) -> None:
    """A broker did not say where a batch is, and the log has all decisions: it had rows there."""
    writer = Writer(kafka.bootstrap, [kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)], places=False)
    with writer.cluster:
        writer.batch(0, [0])
        with pytest.raises(OptionError, match=r"-0, \S+-0 is not known"):
            read(writer, as__of__batch="0")


def test_rows_that_are_gone_since(writer: Writer, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention, a deletion and compaction; and each way out."""
    write_all(writer)
    topic = writer.topics[0]
    kafka.admin.delete_records([Place(topic, 0, 1)])[Place(topic, 0)].result(60)
    with pytest.raises(OptionError, match=f"{topic}-0 begins at 1 now.*give startingOffsets as offsets"):
        read(writer, as__of__batch="3")
    there = rows_up_to(3)[1:]
    assert read(writer, as__of__batch="3", failOnDataLoss="false") == there
    given = {one: {str(p): int((one, p) == (topic, 0)) for p in range(PARTITIONS)} for one in writer.topics}
    assert read(writer, as__of__batch="3", startingOffsets=json.dumps(given)) == there
    kafka.configure(writer.topics[1], "cleanup.policy", "compact")
    with pytest.raises(OptionError, match=f"topic {writer.topics[1]} is compacted"):
        read(writer, as__of__batch="3", startingOffsets=json.dumps(given))
    kafka.make_anew(topic, PARTITIONS)
    with pytest.raises(OptionError, match=f"{topic}-0 ends at 0, and its rows went to offset 4: the log was"):
        read(writer, as__of__batch="3", failOnDataLoss="false")
    anew = decode

    def of_another(*given: Any) -> Decision | None:
        found = anew(*given)
        return None if found is None else test_whole_batches.replace_id(found, "another")

    monkeypatch.setattr(past_batches, "decode", of_another)
    with pytest.raises(OptionError, match=r"was deleted and created again .* since batch 3 of query q"):
        read(writer, as__of__batch="3", failOnDataLoss="false")


def test_a_partition_without_a_place_that_retention_has_emptied(writer: Writer, kafka: Kafka) -> None:
    topic = writer.topics[0]
    writer.batch(0, [0])
    kafka.put(topic, [b"of whom is not known"], 1)
    kafka.admin.delete_records([Place(topic, 1, 1)])[Place(topic, 1)].result(60)
    with pytest.raises(OptionError, match=f"{topic}-1 begins at 1 now.*set failOnDataLoss=false"):
        read(writer, as__of__batch="0")
    assert read(writer, as__of__batch="0", failOnDataLoss="false") == [0, 0]


def test_a_batch_that_cannot_be_read_yet_is_waited_for(writer: Writer, kafka: Kafka) -> None:
    """Somebody else's open transaction holds its readers back."""
    writer.batch(0, [0, 1, 2])
    other = kafka.transactional("another")
    other.begin_transaction()
    other.produce(writer.topics[0], b"open", partition=0)
    other.flush(60)
    writer.batch(1, [0, 1, 2])
    with pytest.raises(RetriesExhausted, match=f"{writer.topics[0]}-0: a transaction is open"):
        read(writer, as__of__batch="1", kafka__default__api__timeout__ms="300")
    assert read(writer, as__of__batch="0") == [0] * 6
    other.abort_transaction(60)
    assert read(writer, as__of__batch="1") == [0] * 6 + [1] * 6


def test_a_sink_that_was_left_is_read_as_it_was(writer: Writer) -> None:
    """Its former batches are whole; the query's later ones are another sink's."""
    sink = writer.sink
    writer.batch(0, [0, 1, 2])
    time.sleep(0.01)
    leave_for(writer, "next", 1)
    writer.sink = sink
    assert read(writer, as__of__batch="0") == [0] * 6
    at = list(past_batches.decisions_in_log(writer.cluster, writer.sink, ANCHOR))[-1].time_ms
    for until in (str(at), FAR):
        with pytest.raises(
            OptionError, match=rf"gone on with transactional.id=next since .*={at - 1} or less"
        ):
            read(writer, as__of__time=until)
    assert read(writer, as__of__time=str(at - 1)) == [0] * 6
    time.sleep(0.01)
    leave_for(writer, "next", 2)  # as each start of at_least_once leaves it
    writer.sink = sink
    with pytest.raises(OptionError, match=rf"since batch 1, at {at}\..*={at - 1} or less"):
        read(writer, as__of__time=FAR)


GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "out", "read.whole.batches": "a"}


@pytest.mark.parametrize(
    "more",
    [
        {"as.of.batch": "1", "as.of.time": "1"},
        {"as.of.batch": "1", "read.whole.batches": "a, b"},
    ],
)
def test_they_need_one_sink(more: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"needs one sink, and is one of as\.of\.batch and as\.of\.time"):
        source_options(GIVEN | more, stream=False)
    alone = {name: value for name, value in GIVEN.items() if name != "read.whole.batches"}
    with pytest.raises(OptionError, match="needs one sink"):
        source_options(alone | {"as.of.time": "1"}, stream=False)


def test_they_are_of_batch_reads(caplog: pytest.LogCaptureFixture) -> None:
    assert source_options(GIVEN | {"as.of.batch": "1"}, stream=True).as_of_batch is None
    assert "option as.of.batch does nothing in a streaming read" in caplog.text
    with pytest.raises(OptionError, match=r"as\.of\.batch cannot be '-1'"):
        source_options(GIVEN | {"as.of.batch": "-1"}, stream=False)


def test_their_rights() -> None:
    options = source_options(GIVEN | {"as.of.batch": "1"}, stream=False)
    asked: set[Any] = {right[:3] for right in needed(options, None, stream=False).rights}
    assert {(READ, TOPIC, ANCHOR), (DESCRIBE_CONFIGS, TOPIC, "out"), (READ, TOPIC, "out")} <= asked
    assert Sink("a").group in {name for _, _, name in asked}
