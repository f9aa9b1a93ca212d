"""A batch write with a token is done once: what tells that its decision has been carried out in full.

The decision itself tells a second run with the same token that the rows are decided. This note tells it
that nothing is left to finish either: brokers forget idle transactional ids, and a transaction that is
forgotten must not be taken for one that is lost. So it is written last, after every winner is committed.
"""

from eoslog.connector.commit.commands import CommitOffsets, FetchStored, Rules, demand
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.names import Sink

BATCH = 0
"""A write has one batch."""


def is_finished(sink: Sink, token: str) -> Rules[bool]:
    """Whether a write with this token has been carried out in full. Raises CommitFault."""
    what = f"whether the write with token {token} is done cannot be read"
    stored = yield from demand(FetchStored(sink.finished_group), what)
    return stored.chunks.get(0) == (BATCH, token)


def note_finished(sink: Sink, token: str) -> Rules[None]:
    """Note that it has been. Raises CommitFault: the rows are visible then, and the same token is safe."""
    what = f"the write with token {token} is visible, but that could not be noted; running it again is safe"
    yield from demand(CommitOffsets(sink.finished_group, {(ANCHOR, 0): (BATCH, token)}), what)
