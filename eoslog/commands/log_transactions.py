"""A `.txnindex` and the abort markers of its segment: there must be one entry for each aborted transaction.

Without its entry, readers see aborted rows. An extra entry, or one that begins too early, hides committed
rows. Compaction removes aborted rows and leaves their entry, so there an entry may begin before the first
row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from eoslog.broker.log.segment import files
from eoslog.broker.log.segment.index import TXN_ENTRY
from eoslog.broker.rules.producer_state import AbortedTransaction
from eoslog.commands.log_files import whole, with_suffix
from eoslog.commands.log_report import Fix, LogFinding


class Marker(NamedTuple):
    """An abort marker at `offset`; `after` is the offset of the producer's marker before it, -1 if unknown.

    `entry` is the one that follows from the broker's rules, None if no row of the transaction was read.
    """

    offset: int
    producer_id: int
    after: int
    entry: AbortedTransaction | None


class Wrong(NamedTuple):
    """A finding, and the `offset` of the marker it is about, whether or not that exists."""

    offset: int
    finding: LogFinding


class TransactionIndexCheck:
    """The entries of a segment's index, compared with its abort markers."""

    def __init__(self, segment: str, markers: list[Marker], *, gaps: bool, known_from: int) -> None:
        """`segment`: the path of the `.log`. What was written below offset `known_from` is unknown.

        Raises OSError.
        """
        self._path = with_suffix(segment, files.TXN_INDEX)
        self._markers, self._gaps, self._known_from = markers, gaps, known_from
        try:
            data = whole(self._path)
        except FileNotFoundError:
            data = b""
        self._rest = len(data) % TXN_ENTRY.size
        found = list(TXN_ENTRY.iter_unpack(data[: len(data) - self._rest]))
        self._found = [AbortedTransaction(*values) for _, *values in found]
        self._unlike = [AbortedTransaction(*values) for version, *values in found if version]

    def check(self, end: int | None) -> list[Wrong]:
        """Compare entries and markers both ways. Returns the findings, each with the correct index as its
        fix. `end`: the segment's end offset, None if unknown.
        """
        wrong = list(self._order(end))
        by_marker = {entry.last_offset: entry for entry in self._found}
        wanted: list[AbortedTransaction] = []
        for marker in self._markers:
            entry, text = self._compare(marker, by_marker.pop(marker.offset, None))
            wanted += [entry] if entry is not None else []
            wrong += [(marker.offset, text)] if text else []
        for entry in by_marker.values():
            wrong.append((entry.last_offset, f"{_named(entry)}, but there is no marker that aborts it"))
        fix = Fix(b"".join(TXN_ENTRY.pack(0, *entry) for entry in wanted) if wanted else None)
        return self._findings(wrong, fix)

    def check_alone(self, end: int | None) -> list[Wrong]:
        """As `check`, if the segment's markers are unknown."""
        return self._findings(list(self._order(end)), None)

    def _findings(self, wrong: list[tuple[int, str]], fix: Fix | None) -> list[Wrong]:
        return [Wrong(offset, LogFinding(self._path, 0, text, fix)) for offset, text in sorted(wrong)]

    def _order(self, end: int | None) -> Iterator[tuple[int, str]]:
        for entry in self._unlike:
            yield entry.last_offset, f"{_named(entry)}: the entry's version is not 0"
        before = -1
        for entry in self._found:
            if entry.last_offset <= before:
                yield entry.last_offset, f"{_named(entry)}, which comes after offset {before}"
            before = max(before, entry.last_offset)
        if self._rest and end is not None:
            yield end - 1, f"{self._rest} bytes follow the last entry, which has {TXN_ENTRY.size}"

    def _compare(
        self, marker: Marker, found: AbortedTransaction | None
    ) -> tuple[AbortedTransaction | None, str]:
        """The correct entry for a marker, and what is wrong with the one found."""
        right = marker.entry
        if found is None:
            return right, "" if right is None else f"{_named(right)}: it is missing"
        if found.producer_id != marker.producer_id:
            return right, f"{_named(found)}, but the marker there has producer id {marker.producer_id}"
        fits = right is not None and found.first_offset == right.first_offset
        if not fits and not self._may_be(found, marker):
            truth = "none was open" if right is None else f"it begins at {right.first_offset}"
            return right, f"{_named(found)}, but {truth}"
        if right is not None and found.last_stable_offset > right.last_stable_offset:
            rest = f"with the last stable offset {found.last_stable_offset}, which is too high"
            return found._replace(last_stable_offset=right.last_stable_offset), f"{_named(found)}, {rest}"
        return found, ""

    def _may_be(self, found: AbortedTransaction, marker: Marker) -> bool:
        """Whether the transaction may have had earlier rows that are gone now."""
        end = marker.offset if marker.entry is None else marker.entry.first_offset
        taken = self._gaps or found.first_offset < self._known_from
        return taken and marker.after < found.first_offset < end


def _named(entry: AbortedTransaction) -> str:
    return (
        f"the transaction of producer id {entry.producer_id} from offset {entry.first_offset}, aborted at "
        f"offset {entry.last_offset}"
    )
