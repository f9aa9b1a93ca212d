"""Tokens of batch writes: which ones share a sink, and what a decision remembers of earlier ones.

A token that ends in digits has a stem and a number: `job-17` is the 17th of `job-`. All tokens of a stem that
are written to one topic share a sink, so its writes use the same transactional ids again. Each decision of
the sink remembers what the last tokens wrote. `floor` is the highest number that it has forgotten: an unknown
token up to that number may have been written before, so it is not written.
"""

import re
from typing import NamedTuple

from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink

WRITER = "eoslog-write"
"""The writer's name if no transactional.id is given."""
KEPT_TOKENS = 64
"""How many tokens of a stem are remembered, in some 15 to 30 characters each."""
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


def token_within(batch: Batch) -> str:
    """What stands for a token in a write without one, in foreachBatch of this micro-batch."""
    return f"{batch.query_id}-{batch.batch_id}"


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


class RememberedTokens(NamedTuple):
    """What a sink's last writes were given, by the digits of their tokens, oldest first.

    `floor`: the highest number that was remembered once and is no longer. None: there is none.
    """

    kept: tuple[tuple[str, Content], ...] = ()
    floor: int | None = None

    def get(self, token: Token) -> Content | None:
        """What was written under the token. None: nothing, or it is forgotten."""
        return dict(self.kept).get(token.digits)

    def forgot(self, token: Token) -> bool:
        """Whether the token may have been written and then forgotten."""
        return self.get(token) is None and self.floor is not None and token.number <= self.floor

    def later_than(self, token: Token) -> int | None:
        """The highest number that was written, if that is above the token's."""
        newest = max((Token(token.stem, digits).number for digits, _ in self.kept), default=-1)
        return newest if newest > token.number else None

    def after(self, token: Token, content: Content) -> "RememberedTokens":
        """These tokens with one more, and without the oldest if there are too many."""
        others = [(digits, written) for digits, written in self.kept if digits != token.digits]
        kept = (*others, (token.digits, content))
        forgotten = [Token(token.stem, digits).number for digits, _ in kept[:-KEPT_TOKENS]]
        floor = max([*forgotten, *([] if self.floor is None else [self.floor])], default=None)
        return RememberedTokens(kept[-KEPT_TOKENS:], floor)

    def text(self) -> str:
        """The short form that a decision stores; "" if there are no tokens."""
        if not self.kept:
            return ""
        entries = [f"{digits} {rows} {checksum or 0:x}" for digits, (rows, checksum) in self.kept]
        return "|".join(["" if self.floor is None else str(self.floor), *entries])

    @classmethod
    def read(cls, text: str) -> "RememberedTokens":
        """The tokens that `text` describes. Raises ValueError if it is malformed."""
        if not text:
            return cls()
        floor, *entries = text.split("|")
        cut = [one.split(" ") for one in entries]
        kept = tuple((digits, Content(int(rows), int(checksum, 16))) for digits, rows, checksum in cut)
        return cls(kept, int(floor) if floor else None)
