"""The page of a partition's messages, and bytes as people read them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from eoslog.broker.console.broker_access import BrokerAccess, Caller
from eoslog.broker.log.durability import ReadResult
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.batch import BatchHeader, CorruptBatch, iter_headers
from eoslog.protocol.control import ABORT, COMMIT, read_control
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.plain_records import Record, iter_records

# -- readable bytes --------------------------------------------------------------------------------
# Bytes in readable form: text, JSON or hex, cut off at a bound. Pure.


Form = Literal["auto", "text", "json", "hex"]
FORMS: tuple[Form, ...] = ("auto", "text", "json", "hex")

Shown = dict[str, object]

_LARGEST_JSON = 64 << 10
_STEPS_BACK = 4  # bytes of one character in UTF-8 that a cut may leave behind


def shown(data: bytes | None, form: Form, most: int) -> Shown | None:
    """At most `most` bytes of a key, a value or a header's value; None stays None.

    Returns {"as": text, json or hex, "data", "size" in bytes, "cut": whether there is more}. `auto` is
    text where the bytes are UTF-8, else hex; `json` is indented where the bytes are JSON, else like `auto`.
    """
    if data is None:
        return None
    size, piece = len(data), bytes(data[:most])
    kind, text = _read(piece, form, whole=size <= most)
    return {"as": kind, "data": text, "size": size, "cut": size > most}


def _read(piece: bytes, form: Form, *, whole: bool) -> tuple[str, str]:
    if form == "hex":
        return "hex", _hex(piece)
    if form == "text":
        return "text", piece.decode("utf-8", "replace")
    if form == "json" and whole:
        found = _json(piece)
        if found is not None:
            return "json", found
    text = _text(piece, whole=whole)
    return ("text", text) if text is not None else ("hex", _hex(piece))


def _hex(piece: bytes) -> str:
    return piece.hex(" ")


def _json(piece: bytes) -> str | None:
    """Indented JSON, if the text is an object or array and not too large for that."""
    if len(piece) > _LARGEST_JSON or piece.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return json.dumps(json.loads(piece), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _text(piece: bytes, *, whole: bool) -> str | None:
    """The bytes as UTF-8 text, None if they are not. After a cut the last character may be incomplete."""
    for torn in range(1 if whole else _STEPS_BACK):
        try:
            text = piece[: len(piece) - torn].decode()
        except UnicodeDecodeError:
            continue
        return text if all(char >= " " or char in "\t\r\n" for char in text) else None
    return None


# -- messages --------------------------------------------------------------------------------------
# The records of a partition: as a read_committed reader gets them, or all of them.
#
# `read_uncommitted` shows everything: each record with the state of its transaction, and the markers, which
# readers never get. A page is bounded in records, bytes shown and bytes read; a batch is decompressed up to a
# bound. Records are read in small slices, so that the broker can do other work in between.


OPEN, COMMITTED, ABORTED, NONE = "open", "committed", "aborted", "none"
MARKERS = {ABORT: "abort marker", COMMIT: "commit marker"}


class Outcomes:
    """Gets a partition's batches in order, and returns the outcome of each: that of its transaction.

    A partition knows the first offset of each open transaction, and that of each aborted one (which goes up
    to its marker). All other transactional records are committed."""

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


MOST_RECORDS = 500
MOST_SHOWN = 256 << 10
"""Bytes of keys, values and headers on a page. A page has at least one record."""
MOST_OF_ONE = 64 << 10
"""The most bytes of one key or value that a request may ask for."""

_READ = 256 << 10  # bytes of batches in one read
_LOOKS = 8  # reads for one page, where batches have no record to show
_MOST_UNPACKED = 32 << 20  # bytes of one batch when decompressed
_LARGEST_BATCH = 32 << 20
_SLICE = 64  # records between two pauses
_MOST_HEADERS = 50  # of one record

Row = dict[str, Any]


class MessageQuery(NamedTuple):
    """A page's parameters. `offset` -1: the last `limit` records. `most`: bytes of each key and value."""

    topic: str
    partition: int
    offset: int
    limit: int
    committed: bool
    form: Form = "auto"
    most: int = 1024


class LogExcerpt(NamedTuple):
    """One read of the log: batches, and the state of the transactions in them."""

    result: ReadResult
    records: bytes
    open_since: dict[int, int]


@dataclass
class Page:
    """A page that is being built."""

    query: MessageQuery
    next: int
    rows: list[Row] = field(default_factory=list)
    bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether it takes no further record."""
        return len(self.rows) >= self.query.limit or (self.bytes >= MOST_SHOWN and bool(self.rows))


async def messages(inside: BrokerAccess, caller: Caller, query: MessageQuery) -> Row:
    """A page of records, the partition's offsets, and the offset of the next page. Raises KafkaError."""
    first = await inside.look(lambda: _look(inside, caller, query, query.offset))
    result = first.result
    end = result.last_stable_offset if query.committed else result.high_watermark
    begin = max(result.log_start_offset, query.offset if query.offset >= 0 else end - query.limit)
    page = Page(query, begin)
    for number in range(_LOOKS):
        before, look = page.next, first
        if number or query.offset < 0:
            look = await inside.look(lambda: _look(inside, caller, query, page.next))
        await _fill(page, look)
        if page.full or page.next == before or page.next >= end:
            break
    return {
        "topic": query.topic,
        "partition": query.partition,
        "isolation": "read_committed" if query.committed else "read_uncommitted",
        "start": result.log_start_offset,
        "stable": result.last_stable_offset,
        "high_watermark": result.high_watermark,
        "from": begin,
        "next": page.next,
        "more": page.next < end,
        "records": page.rows,
    }


def _look(inside: BrokerAccess, caller: Caller, query: MessageQuery, offset: int) -> LogExcerpt:
    """On the broker's loop, in one turn, so that batches and transactions fit together."""
    if not inside.allows(caller, AclOperation.READ, ResourceType.TOPIC, query.topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {query.topic}")
    partition = inside.broker.topics.partition(query.topic, query.partition)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{query.topic}-{query.partition}")
    if offset < 0:  # its offsets only
        return LogExcerpt(partition.read(partition.log_end_offset, 0, committed=query.committed), b"", {})
    offset = min(max(offset, partition.log_start_offset), partition.log_end_offset)
    result = partition.read_with_outcomes(offset, _READ, committed=query.committed)
    return LogExcerpt(result, bytes(result.records), dict(partition.open_transactions()))


async def _fill(page: Page, look: LogExcerpt) -> None:
    outcomes = Outcomes(look.open_since, look.result.aborted or ())
    for position, header in iter_headers(look.records):
        if header.is_control:
            _marker(page, look.records, position, header, outcomes)
        elif header.last_offset >= page.next:
            state = outcomes.of(header)
            if page.query.committed and state == ABORTED:
                page.next = header.next_offset
            else:
                await _batch(page, look.records, position, header, state)
        else:
            outcomes.of(header)
        if page.full:
            return


def _marker(page: Page, data: bytes, position: int, header: BatchHeader, outcomes: Outcomes) -> None:
    try:
        marker = read_control(data, position, header)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    outcomes.of(header)
    outcomes.ended(header, marker.type)
    if header.base_offset < page.next:
        return
    page.next = header.next_offset
    if not page.query.committed:
        row = _head(header, header.base_offset, header.base_timestamp, "control")
        note = MARKERS.get(marker.type, f"control record of type {marker.type}")
        page.rows.append(row | {"note": f"{note}, coordinator epoch {marker.coordinator_epoch}"})


async def _batch(page: Page, data: bytes, position: int, header: BatchHeader, state: str) -> None:
    """Add a batch's records to the page, from `page.next` on; moves `page.next`."""
    if header.size > _LARGEST_BATCH:
        _too_large(page, header, state, f"{header.size} bytes")
        return
    for number, record in enumerate(_records(page, data, position, header, state), 1):
        if record.offset >= page.next:
            _add(page, header, record, state)
            if page.full:
                return
        if not number % _SLICE:
            await asyncio.sleep(0.001)
    page.next = header.next_offset


def _records(page: Page, data: bytes, position: int, header: BatchHeader, state: str) -> Iterator[Record]:
    try:
        yield from iter_records(data, position, header, max_size=_MOST_UNPACKED)
    except CorruptBatch as error:
        _too_large(page, header, state, str(error))


def _too_large(page: Page, header: BatchHeader, state: str, why: str) -> None:
    """A row in place of a batch that cannot be shown."""
    offset = max(header.base_offset, page.next)
    row = _head(header, offset, header.max_timestamp, state)
    page.rows.append(row | {"note": f"offsets {offset} to {header.last_offset} are not shown: {why}"})
    page.next = header.next_offset


def _add(page: Page, header: BatchHeader, record: Record, state: str) -> None:
    query = page.query
    headers = [
        {"key": name[:200], "value": shown(value, query.form, query.most)}
        for name, value in record.headers[:_MOST_HEADERS]
    ]
    row = _head(header, record.offset, record.timestamp, state)
    page.rows.append(row | {
        "key": shown(record.key, query.form, query.most),
        "value": shown(record.value, query.form, query.most),
        "headers": headers,
        "more_headers": max(0, len(record.headers) - _MOST_HEADERS),
    })  # fmt: skip
    sizes = [record.key, record.value, *(value for _, value in record.headers[:_MOST_HEADERS])]
    page.bytes += sum(min(len(data), query.most) for data in sizes if data is not None)
    page.next = record.offset + 1


def _head(header: BatchHeader, offset: int, timestamp: int, state: str) -> Row:
    """The fields of every row. Producer id -1: the producer is not idempotent."""
    return {
        "offset": offset,
        "timestamp": timestamp,
        "state": state,
        "producer_id": header.producer_id,
        "epoch": header.producer_epoch,
    }
