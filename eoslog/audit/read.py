"""Turns a partition's records into rows of digests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from eoslog.audit.bounds import AuditedRange
from eoslog.audit.digest import Digester, Raw, Words
from eoslog.audit.identity import Identity
from eoslog.audit.match import ITEM
from eoslog.audit.spill import Rows
from eoslog.client.records.fetch import fetch
from eoslog.client.wire.cluster import Cluster
from eoslog.protocol.decode import DecodedRecords

_FETCH_BYTES = 1 << 20  # for one fetch; a larger batch arrives even so
_PAYLOAD_BYTES = 2 << 20  # uncompressed bytes to decode at a time; a larger batch is decoded even so
_PIECE_BYTES = 2 << 20  # uncompressed bytes to digest at a time


@dataclass(frozen=True)
class ReadSettings:
    """How records are read and compared."""

    identity: Identity
    by_key: bool = False
    """Digest each record's key too: order is checked among records of the same key only."""
    committed: bool = True


@dataclass(frozen=True)
class Read:
    """Rows of one answer, or of one piece of a file: those with an identity, and those without. `place`: the
    number of their place."""

    place: int
    rows: Rows
    without: Rows


def read(
    cluster: Cluster, place: AuditedRange, number: int, way: ReadSettings, digester: Digester
) -> Iterator[Read]:
    """All records of a place, one answer at a time. Raises what fetch does."""
    headers = way.identity.needs_headers
    for records in records_of(cluster, place, committed=way.committed, headers=headers):
        yield _rows(records, number, way, digester)


def records_of(
    cluster: Cluster, place: AuditedRange, *, committed: bool, headers: bool = False
) -> Iterator[DecodedRecords]:
    """All records of a place, in pieces that need little memory to work on. Raises what fetch does."""
    answers = fetch(
        cluster, place.topic, place.partition, place.start, place.end,
        committed=committed, topic_id=place.topic_id, max_bytes=_FETCH_BYTES,
        headers=headers, max_payload=_PAYLOAD_BYTES,
    )  # fmt: skip
    for answer in answers:
        yield from _pieces(answer)


def _rows(records: DecodedRecords, number: int, way: ReadSettings, digester: Digester) -> Read:
    words, there = way.identity.digests(digester, records)
    rows = np.zeros(len(records), ITEM)
    rows["digest"], rows["more"] = halves(words).T
    if way.by_key:
        rows["group"] = halves(digester.strings(records.key))[:, 0]
    rows["offset"] = records.offset.to_numpy()
    rows["place"] = number
    return Read(number, rows[there], rows[~there])


def halves(words: Words) -> Raw:
    """Digests as two numbers of 64 bits each, an array of shape (rows, 2)."""
    return words.view("<u8")


def _pieces(records: DecodedRecords) -> Iterator[DecodedRecords]:
    size = sum(c.nbytes for c in (records.key, records.value, records.headers) if c is not None)
    step = max(1, len(records) * _PIECE_BYTES // max(size, 1))
    for first in range(0, len(records), step):
        columns = ((f.name, getattr(records, f.name)) for f in fields(records))
        yield DecodedRecords(**{name: c if c is None else c.slice(first, step) for name, c in columns})
