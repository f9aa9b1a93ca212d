"""The decision in the group's offsets: whole or not at all, the newest one, within Kafka's limits."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.commit.decision import METADATA_LIMIT, Decision, Winner, decode, encode
from eoslog.connector.commit.faults import DecisionDamaged, DecisionTooLarge
from eoslog.connector.commit.messages import Batch
from eoslog.connector.commit.names import Identity, Participant, Sink, Slot, parity

SINK = Sink("orders/eu")


def decision(winners: int, *, batch_id: int = 7, sequence: int = 3, workers: int = 4) -> Decision:
    run = Identity(1_000_000_007, 12)
    return Decision(
        sequence,
        Batch("3f2b8c6e-9d0a-4d0e-8a53-1f0d8a8c0a11", batch_id, "0123456789abcdef"),
        run,
        tuple(
            Winner(
                number,
                Participant(
                    SINK.participant(
                        Slot(run, parity(batch_id), f"{number % workers:016x}", number // workers)
                    ),
                    Identity(1_000_000_100 + number, number % 30_000),
                ),
            )
            for number in range(winners)
        ),
        tuple(sorted((f"topic-{number % 3}", number) for number in range(winners))),
    )


@given(winners=st.integers(0, 300), batch_id=st.integers(0, 2**40), sequence=st.integers(1, 2**40))
def test_what_is_encoded_is_decoded(winners: int, batch_id: int, sequence: int) -> None:
    made = decision(winners, batch_id=batch_id, sequence=sequence)
    chunks = encode(made, SINK, anchors=50)
    assert decode(SINK, chunks) == made
    assert all(len(text.encode("utf-16-le")) // 2 <= METADATA_LIMIT for _, text in chunks.values())
    assert sorted(chunks) == list(range(len(chunks)))


@given(query_id=st.text(max_size=40))
def test_any_query_id_survives_and_counts_in_utf_16(query_id: str) -> None:
    made = decision(1)._replace(batch=Batch(query_id, 1))
    made = made._replace(winners=(), incarnation=Identity(1, 1))
    chunks = encode(made, SINK, anchors=8)
    assert decode(SINK, chunks) == made
    assert all(len(text.encode("utf-16-le")) // 2 <= METADATA_LIMIT for _, text in chunks.values())


def test_hundreds_of_winners_fit_into_the_smallest_cluster() -> None:
    """The bundled broker has eight partitions of __consumer_offsets, a Kafka cluster fifty."""
    encode(decision(800), SINK, anchors=8)
    with pytest.raises(DecisionTooLarge, match=r"10000 transactions .*coalesce"):
        encode(decision(10_000), SINK, anchors=8)


def test_no_chunks_no_decision() -> None:
    assert decode(SINK, {}) is None


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
    for bad in (text[:-1], text.replace("won", "own"), text.replace("/1 ", "/2 "), "", "eoslog/1 0 1"):
        with pytest.raises(DecisionDamaged, match="delete the group"):
            decode(SINK, {0: (sequence, bad)})


def test_a_winner_of_another_run_or_batch_cannot_be_decided() -> None:
    made = decision(2)
    for wrong in (made._replace(incarnation=Identity(1, 1)), made._replace(batch=Batch("q", 8))):
        with pytest.raises(ValueError, match="not a participant"):
            encode(wrong, SINK, 8)


def test_reports_pickle() -> None:
    import pickle

    from eoslog.connector.commit.messages import Prepared, Stamp

    stamp = Stamp("s", Identity(1, 0), Identity(1, 1), 3, 50, Batch("q", 1, "d"))
    report = Prepared(stamp, 0, Participant("s/1.0/1/w.0", Identity(5, 5)), 10, (("t", 0),))
    assert pickle.loads(pickle.dumps(report)) == report
    assert replace(stamp, sequence=4) != stamp
