"""Tokens of batch writes: which ones share a sink, and what a decision remembers of earlier ones.

A token that ends in digits has a stem and a number: `job-17` is the 17th of `job-`. All tokens of a stem that
are written to one topic share a sink, so its writes use the same transactional ids again. Each decision of
the sink remembers what the last tokens wrote, with the ids of their topics. `floor` is the highest number
that it has forgotten: an unknown token up to that number may have been written before, so it is not written.

A write without a token in foreachBatch is known by its micro-batch and the topic. All of a query's share a
sink, whatever their options are. What each write of foreachBatch has written, with a token or without, its
query remembers: code that changes in the middle of a batch must not write the rows under another name.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from eoslog.connector.commit.transactional_ids import Sink

WRITER = "eoslog-write"
"""The writer's name if no transactional.id is given."""
KEPT_TOKENS = 64
"""How many tokens of a stem are remembered, in some 15 to 30 characters each."""
CHECKSUMS = 2**32
"""Checksums of tasks are below it; a batch's is their sum modulo it (connector/sink/row_checksum.py)."""
PASSED = -1
"""The batch id of a token that was written before its sink's last one. Real batch ids begin at 0."""

_STEM_AND_NUMBER = re.compile(r"(.*?)([0-9]{0,18})", re.DOTALL)


class Token(NamedTuple):
    """The option write.token, cut in two. `digits`: with leading zeroes; "" if it does not end in digits."""

    stem: str
    digits: str

    @classmethod
    def of(cls, text: str) -> "Token":
        """Cut a token before its last digits, at most 18 of them."""
        match = _STEM_AND_NUMBER.fullmatch(text)
        assert match is not None, "every text is a stem"
        return cls(*match.groups())

    @property
    def number(self) -> int:
        """The digits as a number. -1: the token has none, and comes before all that have one."""
        return int(self.digits or -1)

    def sink_id(self, name: str, topic: str | None) -> str:
        """The sink of this stem, writer's name and topic. `topic`: None if each row names its own."""
        return _start(name) + ":".join((_quoted(self.stem), topic or ""))


def sink_of_query(query_id: str) -> Sink:
    """The sink of all writes without a token in foreachBatch of a query."""
    return Sink(_start(WRITER) + _quoted(query_id))


def id_before(name: str, text: str) -> str:
    """The id of the sink that an earlier version gave to a token."""
    return f"{name}.{text}"


def sinks_of_tokens(name: str) -> tuple[str, str]:
    """How the transactional ids and groups of all tokens of a writer begin: now, and in earlier versions."""
    return Sink(_start(name)).coordinator, Sink(id_before(name, "")).coordinator


def _start(name: str) -> str:
    return f"{_quoted(name)}:"


def _quoted(text: str) -> str:
    """The text without ":", which separates the parts of a sink's id. A topic's name cannot have one."""
    return text.replace("%", "%25").replace(":", "%3A")


class Content(NamedTuple):
    """The rows that a write was given: their number, and a checksum that ignores their order. None: not
    recorded."""

    rows: int | None
    checksum: int | None

    def differs(self, other: "Content") -> bool:
        """Whether a value that both have recorded differs."""
        return any(a != b for a, b in zip(self, other, strict=True) if a is not None and b is not None)

    def __str__(self) -> str:
        checksum = "" if self.checksum is None else f" (checksum {self.checksum:08x})"
        return f"{self.rows} rows{checksum}"


def content_of(rows: Sequence[int], checksums: Sequence[int]) -> Content:
    """The content of a batch from those of its tasks. Empty: not recorded."""
    return Content(sum(rows) if rows else None, sum(checksums) % CHECKSUMS if checksums else None)


TopicIds = tuple[tuple[str, str], ...]
"""Topics to which rows went, each with its id. Brokers that report no ids: none."""


class RememberedTokens(NamedTuple):
    """What a sink's last writes were given, by the digits of their tokens, and to which topics it went. The
    oldest is the first.

    `floor`: the highest number that was remembered once and is no longer. None: there is none.
    """

    kept: tuple[tuple[str, Content, TopicIds], ...] = ()
    floor: int | None = None

    def get(self, token: Token) -> Content | None:
        """What was written under the token. None: nothing, or it is forgotten."""
        return next((content for digits, content, _ in self.kept if digits == token.digits), None)

    def topics_of(self, token: Token) -> TopicIds:
        """To which topics rows went under the token; empty: it is not known."""
        return next((topics for digits, _, topics in self.kept if digits == token.digits), ())

    def forgot(self, token: Token) -> bool:
        """Whether the token may have been written and then forgotten."""
        return self.get(token) is None and self.floor is not None and token.number <= self.floor

    def after(self, token: Token, content: Content, topics: TopicIds = ()) -> "RememberedTokens":
        """These tokens with one more, and without the oldest if there are too many."""
        others = [one for one in self.kept if one[0] != token.digits]
        kept = (*others, (token.digits, content, topics))
        forgotten = [Token(token.stem, digits).number for digits, *_ in kept[:-KEPT_TOKENS]]
        floor = max([*forgotten, *([] if self.floor is None else [self.floor])], default=None)
        return RememberedTokens(kept[-KEPT_TOKENS:], floor)

    def text(self) -> str:
        """The short form that a decision stores; "" if there are no tokens."""
        if not self.kept:
            return ""
        entries, before = [], ""
        for digits, (rows, checksum), topics in self.kept:
            told = ",".join(f"{topic}:{number}" for topic, number in topics)
            more = f" {_SAME if told == before else told}" if told else ""
            entries.append(f"{digits} {rows} {checksum or 0:x}{more}")
            before = told
        return "|".join(["" if self.floor is None else str(self.floor), *entries])

    @classmethod
    def read(cls, text: str) -> "RememberedTokens":
        """The tokens that `text` describes. Raises ValueError if it is malformed."""
        if not text:
            return cls()
        floor, *entries = text.split("|")
        kept, before = list[tuple[str, Content, TopicIds]](), ""
        for one in entries:
            digits, rows, checksum, *more = one.split(" ")
            (told,) = more or [""]
            before = before if told == _SAME else told
            kept.append((digits, Content(int(rows), int(checksum, 16)), _topic_ids(before)))
        return cls(tuple(kept), int(floor) if floor else None)


class BatchWrite(NamedTuple):
    """A write of foreachBatch. `batch`: the micro-batch's number; `place`: the topic that its option names,
    "" if each row names its own; `topics`: to which rows went. `token`: its write.token, "": none; `name`:
    the transactional.id beside the token, "": none, or it does not matter."""

    batch: int
    place: str
    content: Content
    topics: TopicIds = ()
    token: str = ""
    name: str = ""

    @property
    def where(self) -> str:
        """Its place, for messages."""
        return f"topic {self.place}" if self.place else "the topics that its rows name"

    @property
    def known_by(self) -> str:
        """What distinguishes it from the other writes of its micro-batch: a topic's name has no space."""
        return f"{self.place} {self.name} {self.token}" if self.token else self.place

    @property
    def stem(self) -> str:
        """Its token's text before the number, "": it has none."""
        return Token.of(self.token).stem if self.token else ""

    def same_line(self, other: "BatchWrite") -> bool:
        """Whether it may be the same line of the function, in whichever micro-batch."""
        return (self.place, self.name, self.stem) == (other.place, other.name, other.stem)

    def shares_topic(self, other: "BatchWrite") -> bool:
        """Whether rows of both may be in one topic."""
        return bool(({self.place, *dict(self.topics)} & {other.place, *dict(other.topics)}) - {""})

    def sink(self, query_id: str) -> Sink:
        """The sink that has decided it, in foreachBatch of this query."""
        if not self.token:
            return sink_of_query(query_id)
        return Sink(Token.of(self.token).sink_id(self.name or WRITER, self.place or None))

    @property
    def under(self) -> str:
        """Its options, for messages."""
        named = f" and transactional.id={self.name}" if self.name else ""
        return f"with write.token={self.token}{named}" if self.token else "without write.token"


class BatchWrites(NamedTuple):
    """What is remembered of a query's writes: all of the last two micro-batches with writes, and some of
    those before. The oldest is the first."""

    kept: tuple[BatchWrite, ...] = ()

    def get(self, batch: int, place: str) -> BatchWrite | None:
        """What a micro-batch has written to a place without a token. None: nothing, or it is forgotten."""
        return next((one for one in self.kept if (one.batch, one.known_by) == (batch, place)), None)

    @property
    def newest(self) -> int:
        """The newest micro-batch; -1: there is none."""
        return max((one.batch for one in self.kept), default=-1)

    def after(self, write: BatchWrite, older: int = KEPT_TOKENS) -> "BatchWrites":
        """These writes with one more. `older`: how many to keep of those before the last two batches."""
        same = write.batch, write.known_by
        kept = (*(one for one in self.kept if (one.batch, one.known_by) != same), write)
        last = sorted({one.batch for one in kept})[-2:]
        old = [one for one in kept if one.batch not in last]
        return BatchWrites(
            (*old[len(old) - min(older, len(old)) :], *(one for one in kept if one.batch in last))
        )

    @classmethod
    def read(cls, found: Iterable[Any]) -> "BatchWrites":
        """The writes that a decision has stored. Raises ValueError, TypeError."""
        return cls(
            tuple(
                BatchWrite(
                    int(batch),
                    str(place),
                    Content(rows, checksum),
                    tuple((str(topic), str(number)) for topic, number in topics),
                    *map(str, more),
                )
                for batch, place, (rows, checksum), topics, *more in found
            )
        )


_SAME = "="
"""Stands for the topics of the write before."""


def _topic_ids(text: str) -> TopicIds:
    """Topics and ids from the form that a decision stores. Raises ValueError."""
    pairs = [one.split(":") for one in text.split(",")] if text else []
    return tuple((topic, number) for topic, number in pairs)
