"""Names of transactions: no sink ever touches what another one owns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.commit.transactional_ids import ParticipantSlot, Sink, parity
from eoslog.protocol.producer_identity import ProducerIdentity

SLOT = ParticipantSlot(ProducerIdentity(17, 3), 1, "0123abc", 4)
ids = st.text(st.sampled_from("ab-/%.0125F"), min_size=1, max_size=12)


def test_a_participant_says_where_it_belongs() -> None:
    name = Sink("orders").participant(SLOT)
    assert name == "orders/17.3/1/0123abc.4"
    assert Sink("orders").slot_of(name) == SLOT


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ("a", "a-b"),
        ("a", "a/17.3/1/w.0"),
        ("a", "a/17.3"),
        ("a/17.3", "a"),
        ("a%2F17.3", "a/17.3"),
        ("orders", "orders "),
    ],
)
def test_prefixes_and_delimiters_in_ids_do_not_confuse(mine: str, other: str) -> None:
    for name in (Sink(other).participant(SLOT), Sink(other).coordinator):
        assert Sink(mine).slot_of(name) is None


@given(mine=ids, other=ids)
def test_a_name_belongs_to_one_sink(mine: str, other: str) -> None:
    name = Sink(mine).participant(SLOT)
    assert Sink(mine).slot_of(name) == SLOT
    assert (Sink(other).slot_of(name) == SLOT) == (mine == other)
    assert Sink(other).slot_of(Sink(mine).coordinator) is None
    assert (Sink(other).coordinator == Sink(mine).coordinator) == (mine == other)


@pytest.mark.parametrize("other", ["a", "a/attempts", "a/finished"])
def test_no_note_stands_in_the_place_of_a_decision(other: str) -> None:
    """Neither of its own sink nor of another one."""
    notes = (Sink("a").attempts_group, Sink("a").finished_group)
    assert len(set(notes)) == 2 and Sink(other).group not in notes


@pytest.mark.parametrize(
    "name",
    [
        "a/",
        "a/1.2/2/w.0",
        "a/1.2/1/w.",
        "a/1.2/1/w.0/",
        "a/1.2/1/W.0",
        "a/1/1/w.0",
        "a/1.2/1/w.0\n",
        "A/1.2/1/w.0",
    ],
)
def test_what_does_not_parse_is_somebody_elses(name: str) -> None:
    assert Sink("a").slot_of(name) is None


def test_parity_alternates() -> None:
    assert [parity(batch_id) for batch_id in range(4)] == [0, 1, 0, 1]
