"""A partition in memory: record batches as they came, markers, who has a transaction open, leader epochs."""

from dataclasses import dataclass, field, replace

from eoslog.protocol.batch import read_header
from eoslog.protocol.control import ABORT, COMMIT, control_batch
from tests.protocol.oracle import stamp

STRANGER = 900_000
"""The producer id of another application."""
OPEN, COMMITTED, ABORTED, PLAIN, MARKER = "open", "committed", "aborted", "plain", "marker"


@dataclass
class Entry:
    """One batch: its bytes, and what became of the transaction that it belongs to. `compacted`: it is gone;
    readers have had it. `copy_of`: the topic's id and the bytes of what a mirror has copied."""

    base: int
    next: int
    data: bytes
    producer: int
    state: str
    ms: int
    compacted: bool = False
    copy_of: tuple[bytes, bytes] | None = None


@dataclass
class Log:
    """Offsets from `start` to `end`. `epochs`: (leader epoch, its first offset), rising."""

    epoch: int = 0
    start: int = 0
    end: int = 0
    entries: list[Entry] = field(default_factory=list)
    open: dict[int, tuple[int, int]] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    seen: dict[tuple[int, int, int], int] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min((first for first, _ in self.open.values()), default=self.end)

    def append(self, records: bytes, ms: int) -> int:
        """Take a producer's batch, or know it again; its base offset."""
        header = read_header(records)
        who = (header.producer_id, header.producer_epoch, header.base_sequence)
        if header.producer_id >= 0 and who in self.seen:
            return self.seen[who]
        data = bytearray(records)
        stamp(data, self.end, self.epoch)
        base = self.end
        state = OPEN if header.is_transactional else PLAIN
        if header.is_transactional:
            self.open.setdefault(header.producer_id, (base, header.producer_epoch))
        if header.producer_id >= 0:
            self.seen[who] = base
        self._add(Entry(base, base + header.count, bytes(data), header.producer_id, state, ms))
        return base

    def mark(self, producer: int, epoch: int, commit: bool, ms: int) -> None:
        """End what the producer has open."""
        first, _ = self.open.pop(producer, (self.end, 0))
        state = COMMITTED if commit else ABORTED
        for entry in self.entries:
            if entry.producer == producer and entry.state == OPEN:
                entry.state = state
        if not commit:
            self.aborted.append((producer, first, self.end))
        data = bytearray(control_batch(COMMIT if commit else ABORT, producer, epoch, 0, ms))
        stamp(data, self.end, self.epoch)
        self._add(Entry(self.end, self.end + 1, bytes(data), producer, MARKER, ms))

    def last_sequence(self, producer: int) -> int:
        """The sequence number of the producer's last record; -1: it has none."""
        mine = [e for e in self.entries if e.producer == producer and e.state != MARKER]
        newest = read_header(mine[-1].data) if mine else None
        return -1 if newest is None else newest.base_sequence + newest.count - 1

    def _add(self, entry: Entry) -> None:
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, entry.base))
        self.entries.append(entry)
        self.end = entry.next

    def read(self, offset: int, bound: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Batches from the one that holds `offset` to `bound`, and the aborted transactions among them."""
        wanted = [e for e in self.entries if e.next > offset and e.base < bound and not e.compacted]
        gone = [(who, first) for who, first, last in self.aborted if last >= offset and first < bound]
        return b"".join(e.data for e in wanted), gone

    def at_time(self, ms: int) -> int:
        """The first offset of a batch that is not older; -1: there is none."""
        there = (e for e in self.entries if e.state != MARKER and not e.compacted)
        return next((e.base for e in there if e.ms >= ms), -1)

    def compact(self, keep: int, markers: bool) -> None:
        """Later records have the keys of all but the last `keep` committed batches. `markers`: those are
        gone, too, as after delete.retention.ms."""
        for state, kept in ((COMMITTED, keep), (ABORTED, 0), *([(MARKER, keep)] if markers else [])):
            ended = [e for e in self.ranges(state) if e.next <= self.stable]
            for entry in ended[: len(ended) - kept]:
                entry.compacted = entry.next < self.end

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the largest epoch up to this one, and where it ends."""
        known = [at for at, (e, _) in enumerate(self.epochs) if e <= epoch]
        if not known or epoch > max(self.epoch, self.epochs[-1][0]):
            return (-1, -1) if epoch > self.epoch or not self.epochs else (epoch, self.epochs[0][1])
        at = known[-1]
        ends = self.epochs[at + 1][1] if at + 1 < len(self.epochs) else self.end
        return self.epochs[at][0], ends

    def copy(self) -> "Log":
        """As it is now."""
        return replace(
            self, entries=[replace(e) for e in self.entries], open=dict(self.open),
            aborted=list(self.aborted), seen=dict(self.seen), epochs=list(self.epochs),
        )  # fmt: skip

    def ranges(self, *states: str) -> list[Entry]:
        """Batches in one of these states."""
        return [e for e in self.entries if e.state in states]

    def written_here(self, *states: str) -> list[Entry]:
        """The same without a mirror's copies."""
        return [e for e in self.ranges(*states) if e.copy_of is None]
