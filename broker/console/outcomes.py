"""Which transaction a batch belongs to, and what has become of it. Pure.

A partition knows two things: since which offset a producer has a transaction open, and from which offset on
one of its transactions was aborted (up to its marker). All other transactional records are committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eoslog.protocol.batch import BatchHeader
from eoslog.protocol.control import ABORT, COMMIT

OPEN, COMMITTED, ABORTED, NONE = "open", "committed", "aborted", "none"
MARKERS = {ABORT: "abort marker", COMMIT: "commit marker"}


class Outcomes:
    """Told of a partition's batches in their order, it says of each what became of its records."""

    def __init__(self, open_since: Mapping[int, int], aborted: Iterable[tuple[int, int]]) -> None:
        """`open_since`: first offset by producer id; `aborted`: (producer id, first offset)."""
        self._open_since = open_since
        self._to_come = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._aborting: set[int] = set()

    def of(self, header: BatchHeader) -> str:
        """The outcome of a batch of records: none (outside of transactions), open, committed or aborted."""
        while self._to_come and self._to_come[-1][1] <= header.last_offset:
            self._aborting.add(self._to_come.pop()[0])
        if not header.is_transactional:
            return NONE
        since = self._open_since.get(header.producer_id)
        if since is not None and header.base_offset >= since:
            return OPEN
        return ABORTED if header.producer_id in self._aborting else COMMITTED

    def ended(self, header: BatchHeader, kind: int) -> None:
        """A marker of the kind ABORT or COMMIT has been passed."""
        if kind == ABORT:
            self._aborting.discard(header.producer_id)
