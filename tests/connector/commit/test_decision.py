"""The decision in the group's offsets: whole or not at all, the newest one, within Kafka's limits."""

import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.commit import decision as decisions
from eoslog.connector.commit.decision import KEPT_QUERIES, Decision, decode, encode
from eoslog.connector.commit.faults import DecisionDamaged
from eoslog.connector.commit.places import Place
from eoslog.connector.commit.saved_state import Saved
from eoslog.connector.commit.task_reports import Batch, Left, Start
from eoslog.connector.commit.transactional_ids import Participant, ParticipantSlot, Sink, parity
from eoslog.connector.commit.winner import Winner
from eoslog.protocol.producer_identity import ProducerIdentity

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
