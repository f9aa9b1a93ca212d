"""Names of transactions, and tokens of batch writes: no sink ever touches what another one owns."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.commit.decision import Decision, decode, encode
from eoslog.connector.commit.faults import DecisionDamaged
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import ParticipantSlot, Sink, parity
from eoslog.connector.commit.write_token import KEPT_TOKENS, Content, RememberedTokens, Token, TopicIds
from eoslog.protocol.producer_identity import ProducerIdentity

# -- names ---------------------------------------------------------------------------------------
# Names of transactions: no sink ever touches what another one owns.

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


# -- tokens --------------------------------------------------------------------------------------
# Tokens of batch writes: where they are cut, whose sink they share, and what is remembered of them.

SINK = Sink("writes")
texts = st.text(st.sampled_from("ab:%/.-0199"), min_size=1, max_size=10)
topics = st.one_of(st.none(), st.text(st.sampled_from("ab._-09"), min_size=1, max_size=4))


@pytest.mark.parametrize(
    ("text", "stem", "digits", "number"),
    [
        ("job-17", "job-", "17", 17),
        ("job-007", "job-", "007", 7),
        ("20261122", "", "20261122", 20261122),
        ("load-2026-11-22", "load-2026-11-", "22", 22),
        ("all", "all", "", -1),
        ("x1" * 10 + "y", "x1" * 10 + "y", "", -1),
        ("n" + "9" * 20, "n99", "9" * 18, 10**18 - 1),
        ("job-\n1", "job-\n", "1", 1),
        ("job-\u0661", "job-\u0661", "", -1),
    ],
)
def test_a_token_is_cut_before_its_last_digits(text: str, stem: str, digits: str, number: int) -> None:
    assert Token.of(text) == (stem, digits) and Token.of(text).number == number


def test_a_sink_is_named_by_writer_stem_and_topic() -> None:
    assert Token.of("job-17").sink_id("eoslog-write", "out") == "eoslog-write:job-:out"
    assert Token.of("10:15").sink_id("copy", None) == "copy:10%3A:"


@given(one=st.tuples(texts, texts, topics), other=st.tuples(texts, texts, topics))
def test_no_two_stems_share_a_sink(
    one: tuple[str, str, str | None], other: tuple[str, str, str | None]
) -> None:
    def told(name: str, token: str, topic: str | None) -> tuple[str, str, str]:
        return name, Token.of(token).stem, topic or ""

    same = Token.of(one[1]).sink_id(one[0], one[2]) == Token.of(other[1]).sink_id(other[0], other[2])
    assert same == (told(*one) == told(*other))


ids_of_tokens = st.sampled_from([(), (("out", "a"),), (("out", "b"),), (("bad", "1"), ("out", "a"))])
contents = st.builds(Content, st.integers(0, 2**50), st.integers(0, 2**32 - 1))


@given(writes=st.lists(st.tuples(st.integers(-1, 200), contents, ids_of_tokens), max_size=120))
def test_what_was_written_is_known_or_said_to_be_forgotten(
    writes: list[tuple[int, Content, TopicIds]],
) -> None:
    """Whatever the order. It survives its decision; and a token that was never written is no known one."""
    last: Decision | None = None
    truth: dict[str, Content] = {}
    for number, content, gone_to in writes:
        token = Token("job-", "" if number < 0 else str(number))
        truth[token.digits] = content
        tokens = (last.tokens if last else RememberedTokens()).after(token, content, gone_to)
        made = Decision(1, Batch("job-" + token.digits, 0), ProducerIdentity(1, 1), (), (), tokens=tokens)
        last = decode(SINK, encode(made, SINK, anchors=8))
        assert last == made and tokens.get(token) == content and not tokens.forgot(token)
        assert tokens.topics_of(token) == gone_to
    known = last.tokens if last else RememberedTokens()
    assert len(known.kept) <= KEPT_TOKENS
    for digits, content in truth.items():
        token = Token("job-", digits)
        assert known.get(token) == content or known.forgot(token)
    for number in set(range(201)) - {int(digits or -1) for digits in truth}:
        assert known.get(Token("job-", str(number))) is None


@pytest.mark.parametrize("bad", ["1|2 3", "x|1 2 3", "|1 2 3 4", "|1 2 zz"])
def test_a_memory_that_makes_no_sense_is_refused(bad: str) -> None:
    made = Decision(1, Batch("job-1", 0), ProducerIdentity(1, 1), (), ())
    ((sequence, text),) = encode(
        made._replace(tokens=RememberedTokens().after(Token.of("job-1"), Content(1, 2))), SINK, 8
    ).values()
    body = text.split(" ", 4)[4].replace("|1 1 2", bad)
    with pytest.raises(DecisionDamaged, match="makes no sense"):
        decode(SINK, {0: (sequence, f"eoslog/1 0 1 {zlib.crc32(body.encode()):08x} {body}")})
