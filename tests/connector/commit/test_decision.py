"""A decision: its text, as others see it, of an older version, and in many chunks."""

import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.commit import commands as c
from eoslog.connector.commit import decision as decisions
from eoslog.connector.commit.commands import FetchStored, Refused
from eoslog.connector.commit.decision import (
    KEPT_PLACES,
    KEPT_QUERIES,
    Decision,
    Stored,
    by_group,
    decode,
    encode,
)
from eoslog.connector.commit.faults import CommitFault, DecisionDamaged
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.places import Place
from eoslog.connector.commit.saved_state import Saved
from eoslog.connector.commit.task_reports import Batch, Left, Prepared, Report, Start
from eoslog.connector.commit.transactional_ids import Participant, ParticipantSlot, Sink, parity
from eoslog.connector.commit.winner import Winner
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.names_by_sink import ANCHOR, sinks_of_groups
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition
from tests.connector.commit.model_bench import Bench, Crash, decides, finishes
from tests.connector.commit.model_broker import ModelBroker
from tests.connector.commit.model_history import BY_ITSELF, Case, Choices, Shape, names, suite
from tests.connector.commit.model_judge import explore, judge
from tests.connector.commit.model_spark import Simulation
from tests.connector.commit.test_model import mostly_zero

# -- its text ------------------------------------------------------------------------------------
# The decision in the group's offsets: whole or not at all, the newest one, within Kafka's limits.

SINK = Sink("orders/eu")
METADATA_LIMIT = 4096
"""Kafka's default of offset.metadata.max.bytes: in UTF-16 units, as its code counts."""


def decision(winners: int, *, batch_id: int = 7, sequence: int = 3, workers: int = 4) -> Decision:
    run = ProducerIdentity(1_000_000_007, 12)
    return Decision(
        sequence,
        Batch("3f2b8c6e-9d0a-4d0e-8a53-1f0d8a8c0a11", batch_id, "0123456789abcdef"),
        run,
        tuple(
            Winner(
                number,
                Participant(
                    SINK.participant(
                        ParticipantSlot(run, parity(batch_id), f"{number % workers:016x}", number // workers)
                    ),
                    ProducerIdentity(1_000_000_100 + number, number % 30_000),
                ),
            )
            for number in range(winners)
        ),
        tuple(sorted((f"topic-{number % 3}", number) for number in range(winners))),
    )


def test_the_other_query_whose_batch_is_the_oldest_makes_room() -> None:
    full = decision(0)._replace(earlier=tuple(Batch(f"other {n}", n) for n in range(KEPT_QUERIES)))
    assert full.earlier_than("a new one") == (full.batch, *full.earlier[:-1])


@given(winners=st.integers(0, 300), batch_id=st.integers(0, 2**40), sequence=st.integers(1, 2**40))
def test_what_is_encoded_is_decoded(winners: int, batch_id: int, sequence: int) -> None:
    made = decision(winners, batch_id=batch_id, sequence=sequence)
    chunks = encode(made, SINK, anchors=50)
    assert decode(SINK, chunks) == made
    assert all(len(text.encode("utf-16-le")) // 2 <= METADATA_LIMIT for _, text in chunks.values())
    assert sorted(chunks) == list(range(len(chunks)))


@given(
    batches=st.lists(
        st.tuples(st.text(max_size=40), st.integers(0, 2**40), st.text(max_size=16)), max_size=40
    )
)
def test_the_last_batches_of_other_queries_are_kept_the_newest_first(
    batches: list[tuple[str, int, str]],
) -> None:
    """Up to a limit, and one for each query; a decision of no other query looks as it always did."""
    last: Decision | None = None
    for number, batch in enumerate(batches, 1):
        made = Decision(number, Batch(*batch), ProducerIdentity(1, 1), (), ())
        last = made._replace(earlier=last.earlier_than(batch[0]) if last else ())
        last = decode(SINK, encode(last, SINK, anchors=8))
    for query_id in list({query_id: None for query_id, *_ in reversed(batches)})[: KEPT_QUERIES + 1]:
        newest = next(batch for batch in reversed(batches) if batch[0] == query_id)
        assert last is not None and last.last_of(query_id) == Batch(*newest)
    assert "before" not in encode(decision(3), SINK, anchors=8)[0][1]


@given(query_id=st.text(max_size=40))
def test_any_query_id_survives_and_counts_in_utf_16(query_id: str) -> None:
    made = decision(1)._replace(batch=Batch(query_id, 1))
    made = made._replace(winners=(), incarnation=ProducerIdentity(1, 1))
    chunks = encode(made, SINK, anchors=8)
    assert decode(SINK, chunks) == made
    assert all(len(text.encode("utf-16-le")) // 2 <= METADATA_LIMIT for _, text in chunks.values())


def test_hundreds_of_winners_fit_into_the_smallest_cluster() -> None:
    """The bundled broker has eight partitions of __consumer_offsets, a Kafka cluster fifty."""
    assert len(encode(decision(800), SINK, anchors=8)) <= 8


@given(
    winners=st.integers(1, 100),
    epochs=st.integers(1, 32_000),
    rotated=st.sets(st.integers(0, 99)),
    plain=st.sets(st.integers(0, 99)),
)
def test_holders_are_encoded_and_decoded(
    winners: int, epochs: int, rotated: set[int], plain: set[int]
) -> None:
    """Usually some epochs after the writer's; of another producer id once its epochs are used up; or none."""

    def held(winner: Winner) -> Winner:
        identity = winner.participant.identity
        holder = ProducerIdentity(identity.producer_id, identity.epoch + epochs)
        if winner.partition in rotated:
            holder = ProducerIdentity(identity.producer_id + 12_345, 0)
        return winner._replace(holder=None if winner.partition in plain else holder)

    made = decision(winners)
    made = made._replace(winners=tuple(held(winner) for winner in made.winners))
    assert decode(SINK, encode(made, SINK, anchors=50)) == made
    assert made.unsealed == decision(winners)


def test_hundreds_of_sealed_winners_fit_into_the_smallest_cluster() -> None:
    made = decision(750)
    held = [w.participant.identity._replace(epoch=w.participant.identity.epoch + 1) for w in made.winners]
    sealed = tuple(w._replace(holder=holder) for w, holder in zip(made.winners, held, strict=True))
    assert len(encode(made._replace(winners=sealed), SINK, anchors=8)) <= 8


def test_a_decision_of_before_is_read_as_it_was_written() -> None:
    text = (
        '{"query":"q","batch":7,"digest":"d","run":[1000,2],"won":{"a0":[[0,1,2000,5],[1,0,2001,6]]},'
        '"wrote":{"out":[0,1]}}'
    )
    found = decode(SINK, {0: (9, f"eoslog/1 0 1 {zlib.crc32(text.encode()):08x} {text}")})
    run = ProducerIdentity(1000, 2)

    def winner(partition: int, number: int, identity: ProducerIdentity) -> Winner:
        return Winner(
            partition, Participant(SINK.participant(ParticipantSlot(run, 1, "a0", number)), identity)
        )

    winners = (winner(0, 1, ProducerIdentity(2001, 6)), winner(1, 0, ProducerIdentity(2000, 5)))
    assert found == Decision(9, Batch("q", 7, "d"), run, winners, (("out", 0), ("out", 1)))
    now = text.replace("[0,1]}}", "[[0,1]]}}")
    assert encode(found, SINK, 8)[0][1].split(" ", 4)[4].count("]") == now.count("]"), "no holders are said"


def test_no_chunks_no_decision() -> None:
    assert decode(SINK, {}) is None


def test_of_too_many_queries_the_newest_are_kept() -> None:
    last = decision(0)
    for number in range(20):
        last = last._replace(batch=Batch(f"q{number}", 1), earlier=last.earlier_than(f"q{number}"))
    assert [batch.query_id for batch in last.earlier] == [f"q{number}" for number in range(18, 2, -1)]


def test_longer_decisions_leave_chunks_behind_that_do_not_count() -> None:
    chunks = encode(decision(400, sequence=3), SINK, 50) | encode(
        decision(2, sequence=4, batch_id=8), SINK, 50
    )
    assert len(chunks) > 1
    assert decode(SINK, chunks) == decision(2, sequence=4, batch_id=8)


def test_a_partial_decision_is_refused_even_if_an_older_one_is_whole() -> None:
    """An older decision would say that the newer batch never happened. It may have."""
    newer = encode(decision(400, sequence=4), SINK, 50)
    older = encode(decision(400, sequence=3), SINK, 50)
    for missing in newer:
        mixed: dict[int, Any] = {**newer, missing: older[missing]}
        with pytest.raises(DecisionDamaged, match="not whole"):
            decode(SINK, mixed)


def test_damaged_and_foreign_metadata_is_refused() -> None:
    (chunk,) = encode(decision(2), SINK, 8).values()
    sequence, text = chunk
    for bad in (text[:-1], text.replace("won", "own"), text.replace("/2 ", "/x "), "", "eoslog/1 0 1", "2"):
        with pytest.raises(DecisionDamaged, match="delete the group"):
            decode(SINK, {0: (sequence, bad)})


def test_what_a_later_version_has_written_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever that version means by it: the batch before it must not be taken for the last one."""
    before, now = encode(decision(2, sequence=3), SINK, 8), encode(decision(2, sequence=4), SINK, 8)
    said = r"a later version of eoslog has written \(format 2, and this one knows 1\)\. .*Use that version"
    with monkeypatch.context() as older:
        older.setattr(decisions, "_FORMAT", 1)
        assert decode(SINK, encode(decision(2), SINK, 8)) == decision(2)
        for newest in (now, {0: (4, "eoslog/2 as it likes")}):
            with pytest.raises(DecisionDamaged, match=said):
                decode(SINK, before | newest)
    assert decode(SINK, before | now) == decision(2, sequence=4)


@pytest.mark.parametrize("within", [False, True], ids=["its own", "of what is behind it"])
def test_a_field_of_a_later_version_is_not_overlooked(monkeypatch: pytest.MonkeyPatch, within: bool) -> None:
    made = decision(2)._replace(left=Left("word", "s", "q", 7, 0))
    if within:
        made = decision(2)._replace(behind=made)
    chunks = encode(made, SINK, 8)
    assert decode(SINK, chunks) == made
    monkeypatch.setattr(decisions, "_FIELDS", decisions._FIELDS - {"left"})
    with pytest.raises(DecisionDamaged, match=r"a later version .* \(fields left\)\. .*Use that"):
        decode(SINK, chunks)


def test_a_winner_of_another_run_or_batch_cannot_be_decided() -> None:
    made = decision(2)
    for wrong in (made._replace(incarnation=ProducerIdentity(1, 1)), made._replace(batch=Batch("q", 8))):
        with pytest.raises(ValueError, match="not a participant"):
            encode(wrong, SINK, 8)


def test_reports_pickle() -> None:
    import pickle

    from eoslog.connector.commit.task_reports import Prepared, Stamp

    stamp = Stamp("s", ProducerIdentity(1, 0), ProducerIdentity(1, 1), 3, 50, Batch("q", 1, "d"))
    report = Prepared(stamp, 0, Participant("s/1.0/1/w.0", ProducerIdentity(5, 5)), 10, (("t", 0),))
    assert pickle.loads(pickle.dumps(report)) == report
    assert replace(stamp, sequence=4) != stamp


@given(lines=st.lists(st.text(max_size=300), max_size=20))
def test_what_the_plan_was_is_decoded_as_it_was(lines: list[str]) -> None:
    made = decision(3)._replace(ends="\n".join(lines))
    assert decode(SINK, encode(made, SINK, anchors=50)) == made


def test_what_the_plan_was_is_left_out_where_there_is_no_room() -> None:
    """The offsets of many thousand partitions do not stop a batch: the decision is made without them."""
    noise = "".join(f"{number * 7919 % 99991}," for number in range(30_000))
    made = decision(3)._replace(ends=noise)
    assert decode(SINK, encode(made, SINK, anchors=8)) == made._replace(ends="")
    assert decode(SINK, encode(made, SINK, anchors=50)) == made
    assert made.unsealed == decision(3)


def test_places_are_kept_as_long_as_there_is_room() -> None:
    made = decision(150)
    places = tuple(
        Place("out", None if n % 2 else "id", n, 10 + n, w.participant.identity, 1_700_000_000_000)
        for n, w in enumerate(made.winners)
    )
    full = made._replace(places=tuple(sorted(places, key=lambda p: (p.topic_id or "", p.partition))))
    assert decode(SINK, encode(full, SINK, anchors=50)) == full
    assert decode(SINK, encode(full, SINK, anchors=len(encode(made, SINK, anchors=50)))) == made
    assert full.unsealed == made.unsealed, "a batch that is sealed twice is the same"
    with pytest.raises(DecisionDamaged):
        broken = encode(full, SINK, anchors=50)
        decode(SINK, {at: (offset, text.replace('"id"', '["id]')) for at, (offset, text) in broken.items()})


def row(offset: int, partition: int = 0, topic: str = "out", topic_id: str = "id") -> Place:
    return Place(topic, topic_id, partition, offset, ProducerIdentity(7, 0), 1_700_000_000_000)


def test_the_last_place_of_earlier_batches_in_each_partition_stays() -> None:
    """Who follows the sink compares it with the log, whichever batch wrote there."""
    made = decision(1)._replace(
        start=Start("w", "/c", 1), places=(row(10), row(11, 1)), older=(row(5, 2), row(7, 3))
    )
    made = made._replace(older=(*made.older, row(1, topic="bad")))
    assert made.older_after((row(20), row(9, 3))) == (row(5, 2), row(1, topic="bad"), row(11, 1))
    assert made.older_after(()) == made.everywhere == (*made.older, *made.places)
    assert made.older_after((row(0, 9, topic_id="anew"),)) == (row(1, topic="bad"),)
    write = decision(1)._replace(behind=made.kept_of_query(4), write_of="")
    assert write.older_after(()) == made.everywhere, "a batch write leaves the sink to its query"
    many = made._replace(older=tuple(row(n, n + 9) for n in range(KEPT_PLACES)))
    assert many.older_after(()) == (*many.older[2:], *made.places)
    assert decode(SINK, encode(made, SINK, anchors=8)) == made and made.unsealed.older == ()


def test_a_place_is_the_last_one_or_is_not_known() -> None:
    """What a batch write has written behind the rows of the query, and where brokers did not say it."""
    made = decision(1)._replace(
        start=Start("w", "/c", 1), written=(), places=(row(10), row(11, 1), row(12, 2))
    )
    write = decision(1)._replace(behind=made.kept_of_query(4), write_of="", places=(row(20),))
    write = write._replace(written=(("out", 0), ("out", 1)))
    assert write.known_rows == write.older_after(()) == (row(12, 2), row(20))
    assert write.older_after((), [("out", 2)]) == (row(20),)
    assert write.older_of_write((), [("out", 2)]) == (row(20),), "the query's are behind it"
    assert made.older_of_write((), []) == ()
    last = decision(1)._replace(behind=write.kept_of_query(5), write_of="", written=())
    assert last.known_rows == (row(12, 2),)


def test_places_of_earlier_batches_go_first_where_there_is_no_room() -> None:
    older = tuple(row(10**18 + n, n) for n in range(KEPT_PLACES))
    made = decision(2)._replace(older=older, ends="plan", places=(row(10),))
    assert decode(SINK, encode(made, SINK, anchors=1)) == made._replace(older=())
    write = decision(2)._replace(behind=decision(2)._replace(older=older, ends="plan"), ends="its own")
    without = decision(2)._replace(ends="its own", behind=decision(2))
    assert decode(SINK, encode(write, SINK, anchors=1)) == without


def test_batch_writes_leave_the_sink_to_its_query() -> None:
    """However many there are: where the query has ended, and what it has saved, is known."""
    start, saved = Start("w", "/c", 1, (("w", 0),), "out"), Saved("state", 0, 7, 9, "d", True)
    last = decision(3)._replace(
        start=start, ends="plan", saved=saved, rows=(1, 2, 3), earlier=(Batch("one", 4),)
    )
    stream = last
    for number in range(2 * KEPT_QUERIES):
        write = decision(2, sequence=4 + number)._replace(batch=Batch(f"write {number}", 7))
        write = write._replace(earlier=last.earlier_than(write.batch.query_id))
        last = write._replace(behind=last.kept_of_query(write.sequence))
        assert decode(SINK, encode(last, SINK, anchors=8)) == last
    known = last.of_query
    assert known is not None and known.sequence == last.sequence and known.winners == ()
    kept = ("batch", "start", "ends", "saved", "rows", "written")
    assert [getattr(known, name) for name in kept] == [getattr(stream, name) for name in kept]
    assert last.last_of(stream.batch.query_id) == stream.batch
    assert last.successor_of(stream.batch.query_id) is None
    assert last.of(stream.batch.query_id) == known, "all of it, not its start alone"
    other = last.followed_by(decision(2)._replace(batch=Batch("another", 0), start=start))
    assert other.starts == ((stream.batch.query_id, start),) and other.of("another") == other
    told = other.of(stream.batch.query_id)
    assert told is not None and (told.batch, told.start, told.written) == (stream.batch, start, ())
    assert other.of("nobody") is None
    assert last.unsealed.behind is None
    assert stream.of_query == stream and decision(1)._replace(batch=Batch("uuid", 0)).of_query is None


def test_a_plan_that_a_batch_write_keeps_goes_first_if_there_is_no_room() -> None:
    behind = decision(0)._replace(ends="".join(map(chr, range(0x4E00, 0x4E00 + 6000))))
    made = decision(0)._replace(ends="its own", behind=behind)
    assert decode(SINK, encode(made, SINK, anchors=1)) == made._replace(behind=behind._replace(ends=""))


def test_who_has_taken_a_query_s_place() -> None:
    """A batch write under its name, between two runs of it, has not."""
    start, one, two, write = Start("w", "/c", 1), Batch("one", 1), Batch("two", 0), Batch("uuid", 0)
    stream = decision(0)._replace(batch=two, earlier=(one,), start=start, ends="x")
    assert stream.successor_of("one") == "two" and stream.successor_of("two") is None
    backfill = decision(0)._replace(batch=write, earlier=(one,))
    assert backfill.successor_of("one") is None
    assert backfill._replace(earlier=(two, one)).successor_of("one") == "two"
    assert backfill._replace(earlier=(two, one)).successor_of("two") is None
    assert backfill._replace(earlier=()).successor_of("one") is None
    marked = backfill._replace(start=start, ends="x", write_of="one")
    assert marked.successor_of("one") is None and marked.is_write


def test_which_query_uses_a_sink() -> None:
    """Its own batches say it, or a batch write's mark; a write of an earlier version does not."""
    start, one = Start("w", "/c", 1), Batch("one", 1)
    stream = decision(0)._replace(batch=one, start=start)
    assert stream.used_by == "one" and not stream.is_write
    for query in ("", "two"):
        marked = decision(0)._replace(batch=Batch("uuid", 0), earlier=(one,), write_of=query)
        kept = decode(SINK, encode(marked, SINK, anchors=50))
        assert kept == marked and kept.used_by == query and kept.is_write
    before = decision(0)._replace(batch=Batch("uuid", 0), earlier=(one,))
    assert before.used_by == "" and before.is_write and before.write_of is None
    moved = decision(0)._replace(batch=one._replace(digest="of a plan that had no room"))
    assert moved.used_by == "one" and not moved.is_write


# -- as others see it ----------------------------------------------------------------------------
# A sink's last decision, as others see it.

OBSERVED = Sink("orders-v1")
LAST = Decision(5, Batch("query", 4, "digest"), ProducerIdentity(7, 0), (), ())


def observed(answer: Any) -> Decision | None:
    """What the rule makes of the answer to its one question."""
    rule = observed_decision(OBSERVED)
    assert next(rule) == FetchStored(OBSERVED.group)
    with pytest.raises(StopIteration) as end:
        rule.send(answer)
    found: Decision | None = end.value.value
    return found


def test_the_last_decision() -> None:
    assert observed(Stored(50, encode(LAST, OBSERVED, 50))) == LAST
    assert observed(Stored(50, {})) is None


def test_the_next_one_is_just_being_made() -> None:
    assert observed(Refused(ErrorCode.UNSTABLE_OFFSET_COMMIT, "pending")) is None


def test_it_cannot_be_read() -> None:
    with pytest.raises(CommitFault, match=r"the last decision of sink orders-v1 cannot be read: not allowed"):
        observed(Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not allowed"))


# -- of an older version -------------------------------------------------------------------------
# A query that was killed under an older version, in the middle of a batch, is carried on by this one.

WRITTEN = {
    1: '4ecbdcfa {"query":"q","batch":0,"digest":"digest 0","run":[1001,1],"won":{"w0":[[0,0,1004,0]],"w1":'
    '[[0,1,1005,0]]},"wrote":{"out":[0,1]},"rows":[1,1],"before":[["before",0,"digest 0"]]}',
    2: 'a0addfe3 {"query":"q","batch":0,"digest":"digest 0","run":[1001,2],"won":{"w0":[[0,0,1004,0]],"w1":'
    '[[0,1,1005,0]]},"wrote":{"out":[0,1]},"rows":[1,1],"before":[["before",0,"digest 0"]]}',
}
"""A decision as the first version wrote it, by transaction.version."""


@pytest.mark.parametrize("tv", [1, 2])
def test_a_decision_of_the_first_version_is_carried_out(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0, query="before")
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    bench.broker.groups["sink"] = {(ANCHOR, 0): (2, f"eoslog/1 0 1 {WRITTEN[tv]}")}
    assert bench.broker.visible() == ["before0p0", "before0p1"]
    begun = bench.begin(0)
    assert bench.open() == () and begun.decided == begun.batch
    bench.commit(bench.prepare_all(begun), 0)
    bench.whole_batch(1)
    assert bench.broker.visible() == [f"{batch}p{p}" for batch in ("before0", "q0", "q1") for p in (0, 1)]


# -- in many chunks ------------------------------------------------------------------------------
# A decision that one group has no room for: its other chunks are in groups that follow, all or none.

ONE_STRIKE = [case for case in suite() if case.name.startswith("3 batches, one strike")]
BOTH = pytest.mark.parametrize("tv", [1, 2])
ROWS = ["q0p0", "q0p1"]
LARGE = Sink("sink")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every decision takes several groups, of one partition each."""
    monkeypatch.setattr(decisions, "METADATA_LIMIT", decisions._HEAD_ROOM + 40)
    defaults = ModelBroker.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "anchors", 1)


def groups(bench: Bench) -> list[str]:
    """Those that have chunks of the newest decision."""
    found = bench.broker.groups
    newest = max(offset for chunks in found.values() for offset, _ in chunks.values())
    return sorted(name for name, of in found.items() if any(at == newest for at, _ in of.values()))


def last(bench: Bench) -> Decision | None:
    stored = bench.run(c.look_up("sink"))
    assert not isinstance(stored, (c.Refused, c.Unknown)), stored
    return decode(bench.sink, stored.chunks)


def stages(command: c.Command[Any]) -> bool:
    return isinstance(command, c.StageOffsets)


@BOTH
@pytest.mark.usefixtures("narrow")
def test_a_batch_is_decided_in_all_of_its_groups_at_once(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    assert len(groups(bench)) > 2 and "sink/1" in groups(bench)
    decided = last(bench)
    assert decided is not None and decided.batch.batch_id == 0 and len(decided.winners) == 2
    bench.whole_batch(1, completed=0)
    assert bench.broker.visible() == [*ROWS, "q1p0", "q1p1"] and not bench.open()


@BOTH
@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("chunk", range(4))
def test_a_driver_that_dies_between_two_chunks_has_decided_nothing(tv: int, chunk: int, after: bool) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    before = last(bench)
    reports = bench.prepare_all(bench.begin(1, run=bench.remembered, completed=0))
    seen: list[c.Command[Any]] = []

    def here(command: c.Command[Any]) -> bool:
        seen.extend([command] if stages(command) else [])
        return stages(command) and len(seen) == chunk + 1

    bench.crash_at(here, after=after)
    with pytest.raises(Crash):
        bench.commit(reports, 1)
    begun = bench.begin(1, completed=0)
    assert not begun.is_decided and last(bench) == before
    bench.commit(bench.prepare_all(begun), 1)
    assert bench.broker.visible() == [*ROWS, "q1p0", "q1p1"] and not bench.open()


@BOTH
@pytest.mark.usefixtures("narrow")
def test_a_driver_that_dies_after_the_commit_has_decided_all(tv: int) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(decides, after=True)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    assert bench.begin(0).is_decided
    assert bench.broker.visible() == ROWS and not bench.open()


@pytest.mark.usefixtures("narrow")
def test_a_marker_that_is_missing_in_a_group_that_follows_is_written() -> None:
    bench = Bench()
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.forget_markers("sink", ("sink/2",))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    assert set(bench.broker.held) == {"sink/2"} and bench.broker.visible() == []
    bench.begin(0)
    assert bench.broker.visible() == ROWS and not bench.broker.held


@pytest.mark.usefixtures("narrow")
def test_a_group_that_is_gone_is_no_older_decision() -> None:
    bench = Bench()
    bench.whole_batch(0)
    bench.whole_batch(1, completed=0)
    del bench.broker.groups["sink/1"]
    with pytest.raises(DecisionDamaged):
        bench.begin(2, completed=1)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("answer", [c.Unknown("away"), c.Refused(30, "group sink/1: not allowed")])
def test_a_group_that_cannot_be_read_stops(answer: c.Failure) -> None:
    bench = Bench()
    bench.whole_batch(0)
    bench.intercept = lambda one: answer if one == c.FetchStored("sink/1") else None
    with pytest.raises(CommitFault, match=r"cannot be read: (away|group sink/1: not allowed)"):
        bench.begin(1, completed=0)
    assert isinstance(bench.run(c.look_up("sink")), c.Unknown)


@pytest.mark.usefixtures("narrow")
def test_a_decision_that_is_made_while_one_reads_is_read_whole() -> None:
    """The first group was read, and then another driver decides."""
    bench = Bench()
    bench.whole_batch(0)
    other = Bench()
    other.broker, other.remembered = bench.broker, bench.remembered

    def decides_now(command: c.Command[Any]) -> None:
        if command == c.FetchStored("sink/1"):
            bench.intercept = None
            other.whole_batch(1, run=other.remembered, completed=0)

    bench.intercept = decides_now
    found = last(bench)
    assert found is not None and found.batch.batch_id == 1


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("stale", [0, 1, 50], ids=["older", "of the same number", "later"])
def test_what_a_deleted_sink_has_left_in_its_other_groups_does_not_count(stale: int) -> None:
    """Somebody has deleted the sink's group alone: its decisions begin anew."""
    left = Bench()
    for number in range(stale + 1):
        left.whole_batch(number, query="long ago", completed=number - 1)
    bench = Bench()
    kept = {name: dict(chunks) for name, chunks in left.broker.groups.items() if name != "sink"}
    bench.broker.groups |= {"sink/9": kept["sink/1"]} | kept
    bench.whole_batch(0, query="a query with a longer name, which takes more groups than the other one did")
    bench.whole_batch(1, query="q", completed=0)
    found = last(bench)
    assert found is not None and (found.batch.query_id, found.batch.batch_id) == ("q", 1)


def test_a_short_decision_after_a_large_one_leaves_chunks_that_do_not_count() -> None:
    bench = Bench(anchors=1)
    bench.commit(written_to(bench, 0, [f"topic-{n:050}" for n in range(200)]), 0)
    assert len(groups(bench)) > 2
    bench.whole_batch(1, completed=0)
    assert groups(bench) == ["sink"]
    found = last(bench)
    assert found is not None and found.batch.batch_id == 1
    bench.commands.clear()
    bench.whole_batch(2, completed=1)
    assert not [one for one in bench.commands if one == c.FetchStored("sink/1")], "it costs no request"


def test_more_partitions_for_decisions_change_nothing_for_the_last_one() -> None:
    """decision.topic gets more partitions between two batches: chunks have numbers, wherever they are."""
    bench = Bench(anchors=2)
    topics = [f"topic-{n:050}" for n in range(200)]
    bench.commit(written_to(bench, 0, topics), 0)
    bench.broker.anchors = 3
    found = last(bench)
    assert found is not None and sorted({topic for topic, _ in found.written}) == topics
    bench.commit(written_to(bench, 1, topics, completed=0), 1)
    found = last(bench)
    assert found is not None and found.batch.batch_id == 1


def written_to(bench: Bench, batch_id: int, topics: list[str], **more: Any) -> list[Report]:
    """One task that has written to all of these."""
    begun = bench.begin(batch_id, **more)
    report = bench.prepare(begun, 0, [f"{batch_id}"])
    assert isinstance(report, Prepared)
    return [replace(report, written=tuple((topic, 0) for topic in topics))]


TEN_TIMES: dict[str, list[TopicPartition]] = {
    "616 topics of 45": [(f"{n:045}", 0) for n in range(6_160)],
    "1,186 topics of 20": [(f"{n:020}", 0) for n in range(11_860)],
    "125 topics of 249": [(f"{n:0249}", 0) for n in range(1_250)],
    "6,625 partitions of one": [("out", 2 * n) for n in range(66_250)],
}
"""Ten times what one group of eight partitions has room for: places of which no two are a run."""


@pytest.mark.parametrize("anchors", [1, 8, 50, 1_000])
@pytest.mark.parametrize("written", TEN_TIMES.values(), ids=TEN_TIMES)
def test_ten_times_what_one_group_has_room_for(written: list[TopicPartition], anchors: int) -> None:
    made = Decision(1, Batch("q", 0, "d"), ProducerIdentity(1, 1), (), tuple(written))
    bench = Bench()
    found: dict[int, tuple[int, str]] = {}
    for number, (name, offsets) in enumerate(by_group("sink", encode(made, bench.sink, anchors), anchors)):
        assert name == ("sink" if not number else f"sink/{number}") and len(offsets) <= anchors
        assert all(place[0] == ANCHOR and 0 <= place[1] < anchors for place in offsets)
        found |= {len(found) + at: chunk for at, chunk in enumerate(offsets.values())}
    assert decode(bench.sink, found) == made


@pytest.mark.parametrize("anchors", [1, 50])
def test_forty_thousand_tasks(anchors: int) -> None:
    bench = Bench(anchors=anchors)
    made = decision_of(40_000)
    for name, offsets in by_group("sink", encode(made, bench.sink, anchors), anchors):
        bench.broker.groups[name] = dict(offsets)
    assert len(bench.broker.groups) > 1 and last(bench) == made


def decision_of(winners: int) -> Decision:
    """Of so many tasks, each with rows."""
    run = ProducerIdentity(1_000_000_007, 12)
    names = [LARGE.participant(ParticipantSlot(run, 0, f"{n % 9:016x}", n // 9)) for n in range(winners)]
    won = [Winner(n, Participant(name, ProducerIdentity(n, 1))) for n, name in enumerate(names)]
    return Decision(1, Batch("q", 0, "d"), run, tuple(won), (), rows=tuple(range(winners)))


def test_the_partitions_of_a_topic_are_said_as_runs() -> None:
    places = [*(("out", n) for n in range(60_000)), *(("few", n) for n in (3, 5, 6, 9))]
    made = Decision(1, Batch("q", 0, "d"), ProducerIdentity(1, 1), (), tuple(sorted(places)))
    ((_, text),) = encode(made, LARGE, anchors=1).values()
    assert '"wrote":{"few":[3,[5,6],9],"out":[[0,59999]]}' in text
    assert decode(LARGE, {0: (1, text)}) == made


def test_the_groups_are_known_as_the_sinks() -> None:
    names = {name: [ANCHOR] for name in ("a%2Fb", "a%2Fb/1", "a%2Fb/310", "a%2Fb/x")}
    assert sinks_of_groups(names) == {"a%2Fb": "a/b", "a%2Fb/1": "a/b", "a%2Fb/310": "a/b"}


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("case", ONE_STRIKE, ids=names(ONE_STRIKE))
def test_every_history_with_one_fault(case: Case) -> None:
    """The judge of test_model.py, where each decision takes several groups."""
    found = explore(case.shape)
    print(found)
    assert found.ends.total() > 20


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("seed", range(24))
def test_histories_at_random(seed: int) -> None:
    shape = Shape(
        tv=1 + seed % 2, batches=4, partitions=3, faults=1 + seed % 8, kinds=BY_ITSELF, spread=True,
        twice=seed % 3 == 0, late_markers=seed % 5 < 2, keeps=True if seed % 4 else None,
    )  # fmt: skip
    judge(Simulation(shape, Choices(fallback=mostly_zero(seed))).run())
