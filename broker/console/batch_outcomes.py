"""The state of the transaction that a batch belongs to. Pure.

A partition knows two things: the first offset of each open transaction, and the first offset of each aborted
one (which goes up to its marker). All other transactional records are committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eoslog.protocol.batch import BatchHeader
from eoslog.protocol.control import ABORT, COMMIT

OPEN, COMMITTED, ABORTED, NONE = "open", "committed", "aborted", "none"
MARKERS = {ABORT: "abort marker", COMMIT: "commit marker"}


class Outcomes:
    """Gets a partition's batches in order, and returns the outcome of each."""

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
        """Note a marker, ABORT or COMMIT."""
        if kind == ABORT:
            self._aborting.discard(header.producer_id)
