"""What the logs of topics hold: the transactions in each partition, with their markers, and rows as content.

A row's content is its bytes in one form, so that whoever reads a copy gets the same ones: the key, the value,
the time and the headers, in this order. Key and value, and each header's key and value, come behind their
lengths (-1: null), and the headers behind their number: 4 bytes each. The time has 8 bytes, ms since 1970.
All numbers are big-endian. The broker may have changed no part of it, and a mirror keeps all of it.

Rows are told by two numbers. SHA-256 over the contents in the log's order cannot be forged. The sum of the
rows' digests can, by whoever makes rows for it, but it needs no order, and that of any stretch of rows is
the difference of two: so a batch is found again in a copy that lacks rows before it.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.audit.bounds import AuditedRange
from eoslog.audit.digest import Digester, Raw
from eoslog.audit.read import halves, records_of
from eoslog.client.admin.topics import EARLIEST, LATEST, list_offsets
from eoslog.client.admin.transaction_states import list_transactions
from eoslog.client.records.fetch import FetchedBatches, Gaps, fetch_batches
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.output import ProgressListener
from eoslog.errors import UnknownTopic
from eoslog.protocol.batch import BatchHeader, iter_headers
from eoslog.protocol.columns import BinaryColumn, binary_array, offsets_of
from eoslog.protocol.control import COMMIT, read_control
from eoslog.protocol.decode import DecodedRecords
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.protocol.varints import Ints

_SEED = b"eoslog prove 1"
"""The sum's random numbers are made of it: a sum means the same in every document."""

# -- transactions ----------------------------------------------------------------------------------


class Written(NamedTuple):
    """The rows of one transaction in a partition: how many the log has, the first and the last offset, and
    the largest time of the last batch (ms since 1970). `marker`: the offset of the marker that ends it, -1:
    the log has none. `committed`: what that says; None: nothing."""

    writer: ProducerIdentity
    rows: int
    first: int
    last: int
    time_ms: int
    marker: int = -1
    committed: bool | None = None


class PartitionLog(NamedTuple):
    """A partition: its topic's id, its first offset, where readers of committed rows stop, and its end.
    `compacted`: rows may be missing in its midst. `plain`: the first offset and the number of rows of each
    run of batches without a transaction."""

    topic_id: str | None
    begins: int
    stable: int
    ends: int
    compacted: bool
    transactions: tuple[Written, ...]
    plain: tuple[tuple[int, int], ...]


def partition_logs(
    cluster: Cluster, topics: Iterable[str], watch: ProgressListener
) -> dict[TopicPartition, PartitionLog]:
    """All partitions of those topics that there are. Reads heads of batches alone. Raises what fetch does."""
    found: dict[TopicPartition, PartitionLog] = {}
    for topic in sorted(topics):
        try:
            info = cluster.describe(topic)
        except UnknownTopic:
            continue
        places = [(topic, partition) for partition in sorted(info.leaders)]
        begins = list_offsets(cluster, dict.fromkeys(places, EARLIEST), committed=True)
        stable = list_offsets(cluster, dict.fromkeys(places, LATEST), committed=True)
        ends = list_offsets(cluster, dict.fromkeys(places, LATEST), committed=False)  # behind all markers
        compacted = bool(places) and Gaps(cluster, *places[0]).are_explained()
        for where in places:
            watch.begin(f"looking at {topic}-{where[1]}", ends[where] - begins[where])
            heads = _Heads(begins[where])
            answers = fetch_batches(
                cluster, *where, begins[where], ends[where], committed=False, topic_id=info.topic_id
            )
            for answer in answers if ends[where] > begins[where] else ():
                heads.read(answer, watch)
            bounds = (begins[where], stable[where], ends[where])
            found[where] = PartitionLog(info.topic_id, *bounds, compacted, *heads.found())
    return found


class _Heads:
    """Collects the transactions of a partition from the heads of its batches, in their order."""

    def __init__(self, begins: int) -> None:
        self._begins = self._at = begins
        self._open: dict[int, Written] = {}
        self._ended: list[Written] = []
        self._plain: list[tuple[int, int]] = []
        self._in_plain = False

    def read(self, answer: FetchedBatches, watch: ProgressListener) -> None:
        """The batches of the next answer."""
        for position, head in iter_headers(answer.records):
            if head.next_offset <= self._at:
                continue
            watch.advance(head.next_offset - self._at)
            self._at = head.next_offset
            if head.is_control:
                self._end(head, read_control(answer.records, position, head).type == COMMIT)
            elif head.count:
                self._add(head)

    def found(self) -> tuple[tuple[Written, ...], tuple[tuple[int, int], ...]]:
        """All transactions, those that are open too, and the runs of rows without one."""
        every = sorted((*self._ended, *self._open.values()), key=lambda one: one.first)
        return tuple(every), tuple(self._plain)

    def _add(self, head: BatchHeader) -> None:
        first = max(head.base_offset, self._begins)
        rows = min(head.count, head.next_offset - first)
        if not head.is_transactional:
            before = self._plain.pop() if self._in_plain else (first, 0)
            self._plain.append((before[0], before[1] + rows))
            self._in_plain = True
            return
        self._in_plain = False
        writer = ProducerIdentity(head.producer_id, head.producer_epoch)
        known = self._open.get(head.producer_id, Written(writer, 0, first, first, 0))
        if known.writer != writer:  # the marker of what it wrote before is not in the log
            self._ended.append(known)
            known = Written(writer, 0, first, first, 0)
        self._open[head.producer_id] = known._replace(
            rows=known.rows + rows, last=head.last_offset, time_ms=head.max_timestamp
        )

    def _end(self, head: BatchHeader, committed: bool) -> None:
        """A marker ends what its producer has open, perhaps under a later epoch (KIP-890)."""
        self._in_plain = False
        known = self._open.pop(head.producer_id, None)
        if known is not None:
            self._ended.append(known._replace(marker=head.base_offset, committed=committed))


def names_of(cluster: Cluster, producer_ids: Collection[int]) -> dict[int, str]:
    """The transactional ids of those producers that a coordinator still knows, and that this user may see: a
    producer id belongs to one for ever. Raises KafkaError, RetriesExhausted."""
    wanted = sorted(producer_ids)
    found = list_transactions(cluster, "", producer_ids=wanted) if wanted else []
    return {one.producer_id: one.transactional_id for one in found if one.producer_id in producer_ids}


# -- contents --------------------------------------------------------------------------------------


@dataclass
class Content:
    """A stretch of a partition's rows: how many rows readers see before it, how many it has, and what they
    are. `before` -1: it has no row."""

    before: int = -1
    rows: int = 0
    sums: Raw = field(default_factory=lambda: np.zeros(2, np.uint64))
    sha256: Any = field(default_factory=hashlib.sha256)

    @property
    def sum(self) -> str:
        """The sum of the rows' digests, in hexadecimal."""
        return "".join(f"{int(half):016x}" for half in self.sums)


class Measured(NamedTuple):
    """All visible rows of a stretch of a partition: their number, and the contents of its parts."""

    rows: int
    contents: list[Content]


class Piece(NamedTuple):
    """Visible rows that follow each other: their offsets, their contents, and the contents' digests, an array
    of shape (rows, 2)."""

    offsets: Ints
    contents: pa.Array
    digests: Raw


def pieces_of(cluster: Cluster, place: AuditedRange, watch: ProgressListener) -> Iterator[Piece]:
    """All rows that readers of committed data see there, in little memory. Raises what fetch does."""
    digester, at = Digester(_SEED), place.start
    watch.begin(f"reading {place}", place.size)
    for records in records_of(cluster, place, committed=True, headers=True) if place.size else ():
        contents, offsets = content_of(records), records.offset.to_numpy()
        yield Piece(offsets, contents, halves(digester.strings(contents)))
        watch.advance(int(offsets[-1]) + 1 - at)
        at = int(offsets[-1]) + 1


def measured(
    pieces: Iterable[Piece], parts: Sequence[tuple[int, int]], seen: int = 0, *, by_number: bool = False
) -> Measured:
    """What these parts, first..behind-1 in rising order, hold: by offset, or by the rows' numbers. `seen`:
    how many rows readers have seen before."""
    found = [Content() for _ in parts]
    firsts = np.array([first for first, _ in parts], np.int64)
    behind = np.maximum.accumulate(np.array([end for _, end in parts], np.int64))
    for piece in pieces:
        count = len(piece.contents)
        at = np.arange(seen, seen + count) if by_number else piece.offsets
        one, last = (
            int(np.searchsorted(behind, at[0], "right")),
            int(np.searchsorted(firsts, at[-1], "right")),
        )
        for number in range(one, last):
            begin, end = (int(edge) for edge in np.searchsorted(at, parts[number]))
            if begin < end:
                _add(found[number], piece, begin, end, seen)
        seen += count
    return Measured(seen, found)


def _add(content: Content, piece: Piece, begin: int, end: int, seen: int) -> None:
    """Add rows begin..end-1 of a piece, before which readers have `seen` so many."""
    content.before = seen + begin if content.before < 0 else content.before
    content.rows += end - begin
    content.sums += piece.digests[begin:end].sum(axis=0, dtype=np.uint64)
    edges = offsets_of(piece.contents)
    content.sha256.update(memoryview(piece.contents.buffers()[2] or b"")[edges[begin] : edges[end]])


def content_of(records: DecodedRecords) -> pa.Array:
    """The content of each row, in the form above. `records` have their headers."""
    parts = [*_framed(records.key), *_framed(records.value), _numbers(records.timestamp.to_numpy(), ">i8")]
    return _joined([*parts, *_headers(records.headers)])


def _headers(headers: pa.Array) -> list[pa.Array]:
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False).astype(np.int64)
    items = pc.list_flatten(headers)
    if not len(items):
        return [_numbers(counts, ">i4")]
    key, value = pc.struct_field(items, "key").cast(pa.binary()), pc.struct_field(items, "value")
    each = _joined([*_framed(key), *_framed(value)])
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    whole = binary_array(offsets_of(each)[ends], each.buffers()[2], large=pa.types.is_large_binary(each.type))
    return [_numbers(counts, ">i4"), whole]


def _framed(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The length of each row, and its bytes."""
    return _numbers(BinaryColumn.of("content", column, len(column)).lengths, ">i4"), column


def _numbers(values: npt.NDArray[Any], kind: str) -> pa.Array:
    data = values.astype(kind)
    return binary_array(np.arange(len(data) + 1) * data.itemsize, data.tobytes(), large=False)


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    whole = pc.binary_join_element_wise(
        *parts, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
