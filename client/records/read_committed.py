"""Which batches of a Fetch answer a reader may see. Pure: headers in, positions out.

read_committed readers get, with the records, the transactions aborted in that range: (producer id, first
offset). A producer's batches from such an offset up to its ABORT marker are hidden (KIP-98). Only batch
headers and control records are read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eoslog.protocol.batch import BatchHeader, Buffer, CorruptBatch, crc_ok, iter_headers
from eoslog.protocol.control import ABORT, read_control

Located = tuple[int, BatchHeader]


@dataclass(frozen=True, slots=True)
class Visible:
    """Batches to decode, as (position, header), and the offset at which to continue.

    `next_offset` is -1 if the bytes have no whole batch. `missing`: the first gap in the range's offsets,
    from and to below; None: there is none. Only compaction removes records.
    """

    batches: list[Located]
    next_offset: int
    missing: tuple[int, int] | None


def visible(records: Buffer, start: int, end: int, aborted: Sequence[tuple[int, int]] | None) -> Visible:
    """The batches of `records` with offsets in start..end-1. `aborted` None: aborted records are included.

    Raises CorruptBatch, even for a damaged batch that would be skipped: its producer id may be wrong.
    """
    hidden = _Hidden(aborted or ())
    kept: list[Located] = []
    next_offset, before, missing = -1, start, None
    for pos, header in iter_headers(records):
        if missing is None and before < min(header.base_offset, end):
            missing = before, header.base_offset
        next_offset = before = max(next_offset, header.next_offset)
        if header.base_offset >= end:
            break
        if hidden.hides(records, pos, header) or header.is_control:
            if not crc_ok(records, pos, header):
                raise CorruptBatch(
                    f"batch at offset {header.base_offset} has a wrong CRC", header.base_offset
                )
        elif header.count and header.next_offset > start:
            kept.append((pos, header))
    return Visible(kept, next_offset, missing)


class _Hidden:
    """The producers with an aborted transaction at the current offset, as batches are read in order."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._now: set[int] = set()

    def hides(self, records: Buffer, pos: int, header: BatchHeader) -> bool:
        """Whether the next batch belongs to an aborted transaction. Call for every batch, in order."""
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._now.add(self._coming.pop()[0])
        if header.producer_id not in self._now:
            return False
        if header.is_control:
            if read_control(records, pos, header).type == ABORT:
                self._now.discard(header.producer_id)
            return True
        return header.is_transactional
