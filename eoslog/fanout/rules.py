"""What the mark of a table means for a batch. Pure.

A table's mark is written in the commit that adds a batch's rows, so it is there if they are. Whoever sets a
table back to an older state takes the rows and leaves the mark: then the mark says so (`Gone`).
Spark numbers a query's batches without gaps, and every batch is committed, also one without rows. So each
table stands at this batch or at the one before; anywhere else, rows have been lost or would be doubled.
"""

from enum import Enum
from hashlib import sha256
from typing import NamedTuple

from eoslog.connector.errors import EoslogError


class FanoutStopped(EoslogError):
    """A batch cannot be made exact in all places. Nothing more is written; the message says what to do."""


class Content(NamedTuple):
    """The rows that a table was given: how many, and the sum of their hashes modulo 2**63, free of order."""

    rows: int
    checksum: int


class Batch(NamedTuple):
    """A micro-batch: the fan-out's name, the number of its query (`number_of`), and its batch id."""

    name: str
    query: int
    number: int


class Gone(NamedTuple):
    """Why a table does not have the batch of its mark any more, or may not, and how it is brought back."""

    why: str
    back: str


class Mark(NamedTuple):
    """The last batch that a table has been given. `gone`: None if the table has it still."""

    query: int
    number: int
    content: Content
    gone: Gone | None = None


class Step(Enum):
    """What there is to do for a table."""

    WRITE = "write"
    CHECK = "check"
    """It has the batch: see that it got the same rows."""


def number_of(query_id: str) -> int:
    """A query id as a number that fits into Delta's `txn.version`: 63 bits of its SHA-256."""
    return int.from_bytes(sha256(query_id.encode()).digest()[:8]) >> 1


def step(place: str, mark: Mark | None, batch: Batch, since: int | None) -> Step:
    """What to do for a table with this mark. `since`: the batch from which on it takes part; None: the first.

    Raises FanoutStopped where the table stands neither at this batch nor at the one before, or has lost its
    batch. `since` may say that it goes on all the same, with this batch or with the next.
    """
    what = f"fanout {batch.name}, batch {batch.number}, {place}"
    if mark is not None and mark.query != batch.query:
        raise FanoutStopped(
            f"{what}: another query (another checkpoint) has written its batches 0 to {mark.number} under "
            f"this "
            "name. A new checkpoint counts from 0 again, so its batches would be taken for those. Nothing "
            "was "
            "written. Start with the old checkpoint, or give the fan-out a new name: then the places get all "
            "rows of the new checkpoint, also those that they have"
        )
    if mark is not None and mark.gone is not None:
        return _after_a_loss(what, mark, mark.gone, batch, since)
    if mark is not None and mark.number == batch.number:
        return Step.CHECK
    if mark is not None and mark.number > batch.number:
        raise FanoutStopped(
            f"{what}: it has batch {mark.number} already, so this checkpoint is an older copy, or another "
            "driver runs the query. Nothing was written. Stop the other driver, or bring back the newest "
            "checkpoint"
        )
    if batch.number in (0 if mark is None else mark.number + 1, since):
        return Step.WRITE
    has = "it has none of this fan-out's batches" if mark is None else f"it ends at batch {mark.number}"
    raise FanoutStopped(
        f"{what}: {has}, but the query has done those before {batch.number}: the table was created again, "
        f"was "
        "added to the fan-out, or has lost its mark. Nothing was written. Bring back the table; or, if it "
        f"is to get the rows from this batch on alone, say since={batch.number} for it"
    )


def _after_a_loss(what: str, mark: Mark, gone: Gone, batch: Batch, since: int | None) -> Step:
    """`since` is the user's word that the table has all that it is to have of the batches before it."""
    again = mark.number == batch.number
    if since == batch.number:
        return Step.WRITE
    if again and since == batch.number + 1:
        return Step.CHECK
    word = f"say since={batch.number} for it, and it gets this batch's rows and those that follow"
    if again:
        word += f"; with since={batch.number + 1} only those that follow"
    raise FanoutStopped(f"{what}: {gone.why}. Nothing was written. {gone.back}; or {word}")


def compare(place: str, had: Content, given: Content, batch: Batch) -> None:
    """Raise FanoutStopped if a batch that the table has comes again with other rows."""
    if had == given:
        return
    raise FanoutStopped(
        f"fanout {batch.name}, batch {batch.number}, {place}: it has {had.rows} rows (checksum "
        f"{had.checksum:016x}) of this batch, and is given {given.rows} (checksum {given.checksum:016x}) "
        f"now. "
        "Nothing more was written. The query's plan does not repeat (rand, uuid, a table read beside the "
        "stream), or its checkpoint was changed. To keep what the places have, and to give this batch's "
        f"rows of now to the others, start once with accept_other_rows={batch.number}"
    )
