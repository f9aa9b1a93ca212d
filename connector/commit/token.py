"""Tokens of batch writes: which ones share a sink, and what a decision remembers of those before it.

A token that ends in digits has a stem and a number: `job-17` is the 17th of `job-`. All tokens of a stem
that are written to one topic share a sink, so names come again from one write to the next. Each of its
decisions keeps what the last ones wrote; a number that fell out of that memory leaves a floor behind, below
which nothing is known, and nothing is written.
"""

import re
from typing import NamedTuple

from eoslog.connector.commit.names import Sink

WRITER = "eoslog-write"
"""The writer's name where no transactional.id is given."""
KEPT_TOKENS = 64
"""So many tokens of a stem are remembered, in some 15 to 30 characters each."""
PASSED = -1
"""Batch number, in its sink, of a token that was written before the last one. Those that count begin at 0."""

_STEM_AND_NUMBER = re.compile(r"(.*?)([0-9]{0,18})", re.DOTALL)


class Token(NamedTuple):
    """The option write.token, cut in two. `digits`: with their leading zeroes; "" where it ends in none."""

    stem: str
    digits: str

    @classmethod
    def of(cls, text: str) -> "Token":
        """Cuts it before its last digits, 18 of them at most."""
        match = _STEM_AND_NUMBER.fullmatch(text)
        assert match is not None, "every text is a stem"
        return cls(*match.groups())

    @property
    def number(self) -> int:
        """-1: it has none, and comes before all that have one."""
        return int(self.digits or -1)

    def sink_id(self, name: str, topic: str | None) -> str:
        """The sink of this stem: of the writer's name, and of the topic; "" where each row names its own."""
        return _start(name) + ":".join((_quoted(self.stem), topic or ""))


def id_before(name: str, text: str) -> str:
    """The sink that an earlier version gave to a token."""
    return f"{name}.{text}"


def sinks_of_tokens(name: str) -> tuple[str, str]:
    """What the transactional ids and groups of all tokens of a writer begin with: now, and before."""
    return Sink(_start(name)).coordinator, Sink(id_before(name, "")).coordinator


def _start(name: str) -> str:
    return f"{_quoted(name)}:"


def _quoted(text: str) -> str:
    """Without the sign between the parts of a sink's id; a topic's name cannot hold it."""
    return text.replace("%", "%25").replace(":", "%3A")


class Content(NamedTuple):
    """What a write was given: how many rows, and a checksum of them in any order. None: not recorded."""

    rows: int | None
    checksum: int | None

    def differs(self, other: "Content") -> bool:
        """For all that both tell."""
        return any(a != b for a, b in zip(self, other, strict=True) if a is not None and b is not None)

    def __str__(self) -> str:
        checksum = "" if self.checksum is None else f" (checksum {self.checksum:08x})"
        return f"{self.rows} rows{checksum}"


class Tokens(NamedTuple):
    """What a sink's last writes were given, by their tokens' digits, the oldest first.

    `floor`: the highest number that was remembered once and is no longer; None: there is none.
    """

    kept: tuple[tuple[str, Content], ...] = ()
    floor: int | None = None

    def get(self, token: Token) -> Content | None:
        """What was written under it; None: nothing, or it is forgotten."""
        return dict(self.kept).get(token.digits)

    def forgot(self, token: Token) -> bool:
        """Whether it may have been written, and nobody knows any more."""
        return self.get(token) is None and self.floor is not None and token.number <= self.floor

    def after(self, token: Token, content: Content) -> "Tokens":
        """With one more, and without those for which there is no room."""
        others = [(digits, written) for digits, written in self.kept if digits != token.digits]
        kept = (*others, (token.digits, content))
        forgotten = [Token(token.stem, digits).number for digits, _ in kept[:-KEPT_TOKENS]]
        floor = max([*forgotten, *([] if self.floor is None else [self.floor])], default=None)
        return Tokens(kept[-KEPT_TOKENS:], floor)

    def text(self) -> str:
        """Short, as it stands in a decision; "" where there is nothing to tell."""
        if not self.kept:
            return ""
        told = [f"{digits} {rows} {checksum or 0:x}" for digits, (rows, checksum) in self.kept]
        return "|".join(["" if self.floor is None else str(self.floor), *told])

    @classmethod
    def read(cls, text: str) -> "Tokens":
        """What `text` told. ValueError: it makes no sense."""
        if not text:
            return cls()
        floor, *told = text.split("|")
        cut = [one.split(" ") for one in told]
        kept = tuple((digits, Content(int(rows), int(checksum, 16))) for digits, rows, checksum in cut)
        return cls(kept, int(floor) if floor else None)
