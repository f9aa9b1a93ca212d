"""Tokens of batch writes: where they are cut, whose sink they share, and what is remembered of them."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.commit.decision import Decision, decode, encode
from eoslog.connector.commit.faults import DecisionDamaged
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import KEPT_TOKENS, Content, RememberedTokens, Token, TopicIds
from eoslog.protocol.producer_identity import ProducerIdentity

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


ids = st.sampled_from([(), (("out", "a"),), (("out", "b"),), (("bad", "1"), ("out", "a"))])
contents = st.builds(Content, st.integers(0, 2**50), st.integers(0, 2**32 - 1))


@given(writes=st.lists(st.tuples(st.integers(-1, 200), contents, ids), max_size=120))
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
