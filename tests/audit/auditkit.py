"""What the audit's tests share: audits without a cluster, topics filled quickly, tables whole or hurt."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from deltalake import write_deltalake
from pyiceberg.catalog import Catalog

from eoslog.audit import run
from eoslog.audit.bounds import AuditedRange
from eoslog.audit.digest import Digester
from eoslog.audit.findings import Findings
from eoslog.audit.identity import Identity
from eoslog.audit.match import ITEM
from eoslog.audit.read import Read, ReadSettings
from eoslog.client.admin import transactions
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.encode import encode_batches

# -- audits of rows that are given -----------------------------------------------------------------
# An audit without a cluster, of rows that are given; and a plain judge to compare with.


Records = Sequence[tuple[int, int, int]]
"""(offset, identity, key) of a partition's records."""

GAP = 3  # offsets lie apart, as compaction and markers leave them


class Silent:
    """Watches nothing."""

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, steps: int) -> None: ...


def spread(number: int) -> int:
    """A number like a digest: equal for equal ones, and anywhere in 64 bits."""
    return number * 0x9E3779B97F4A7C15 % 2**64


def judged(
    source: Sequence[Records], target: Sequence[Records], *, limit: int = 4, by_key: bool = False,
    in_order: bool = True, settled: Sequence[int] | None = None, show: int = 1000,
) -> Findings:  # fmt: skip
    """What an audit finds of partitions with these records, with so many rows in memory at a time."""
    sides = {"a": source, "b": target}
    places = {
        name: [
            AuditedRange(name, None, n, 0, max((offset for offset, *_ in part), default=-1) + 1)
            for n, part in enumerate(parts)
        ]
        for name, parts in sides.items()
    }  # fmt: skip

    def read(_: Any, place: AuditedRange, number: int, way: ReadSettings, digester: Digester) -> Any:
        records = sides[place.topic][place.partition]
        for first in range(0, len(records), limit):
            piece = records[first : first + limit]
            rows = np.zeros(len(piece), ITEM)
            rows["digest"] = [spread(ident) for _, ident, _ in piece]
            rows["more"] = [ident for _, ident, _ in piece]
            rows["group"] = [spread(key) if way.by_key else 0 for _, _, key in piece]
            rows["offset"] = [offset for offset, _, _ in piece]
            rows["place"] = number
            yield Read(number, rows, rows[:0])

    with tempfile.TemporaryDirectory() as directory, patch.object(run, "read", read):
        job = run.Job(
            Path(directory), [p.end for p in places["a"]] if settled is None else settled, show, limit
        )
        way = ReadSettings(Identity(content=True), by_key)
        none: Any = None
        found = run.audit(
            run.AuditedCluster(none, places["a"]), run.AuditedCluster(none, places["b"]), way, job, Silent(),
            in_order=in_order,
        )  # fmt: skip
        assert not list(Path(directory).iterdir()), "files are left"
        return found


@dataclass
class Expected:
    """What the plain judge says: positions as (partition, offset)."""

    lost: set[tuple[int, int]] = field(default_factory=set)
    doubled: set[tuple[int, int]] = field(default_factory=set)
    foreign: set[tuple[int, int]] = field(default_factory=set)
    reordered: set[tuple[int, int]] = field(default_factory=set)
    matched: int = 0
    loose: int = 0


def plainly(source: Sequence[Records], target: Sequence[Records], *, by_key: bool = False) -> Expected:
    """The same rules, with dictionaries and one record after the other."""
    a, b = _by_identity(source), _by_identity(target)
    said, lanes = Expected(), defaultdict(list)
    for ident in a.keys() | b.keys():
        mine, theirs = a.get(ident, []), b.get(ident, [])
        pairs = min(len(mine), len(theirs))
        said.matched += pairs
        said.lost |= {place[:2] for place in mine[pairs:]}
        (said.doubled if mine else said.foreign).update(place[:2] for place in theirs[pairs:])
        if len(mine) == len(theirs) and len({p for p, *_ in mine}) == len({p for p, *_ in theirs}) == 1:
            for (p, offset, key), (q, at, _) in zip(mine, theirs, strict=True):
                lanes[p, q, key if by_key else None].append((at, offset))
        elif len(mine) == len(theirs):
            said.loose += pairs
    for (_, q, _), lane in lanes.items():
        lane.sort()
        said.reordered |= {(q, at) for (_, before), (at, offset) in pairwise(lane) if offset < before}
    return said


def _by_identity(side: Sequence[Records]) -> dict[int, list[tuple[int, int, int]]]:
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number, records in enumerate(side):
        for offset, ident, key in records:
            found[ident].append((number, offset, key))
    return found


def at(findings: Findings, kind: str) -> set[tuple[int, int]]:
    """Where the listed findings of a kind are."""
    listed = findings[kind].listed(findings.places)
    return {(row["at"]["partition"], row["at"]["offset"]) for row in listed}


def partition(identities: Sequence[int], keys: Sequence[int] | None = None) -> Records:
    """Records at every third offset."""
    keys = [0] * len(identities) if keys is None else keys
    return [(GAP * n, ident, key) for n, (ident, key) in enumerate(zip(identities, keys, strict=True))]


# -- topics ----------------------------------------------------------------------------------------
# Topics filled quickly: rows made and written as columns, and the same rows hurt in one place.


Numbers = npt.NDArray[np.int64]

PARTITIONS = 4
_BATCH_BYTES = 200_000
_TRANSACTION_MS = 60_000
_PATIENCE_S = 60.0

HURTS = ("nothing", "lost", "doubled", "swapped")
"""What may be wrong with a copy."""


def hurt(how: str, numbers: Numbers) -> Numbers:
    """The rows of one partition, by number, as the copy has them."""
    middle = len(numbers) // 2
    if how == "lost":
        return np.delete(numbers, middle)
    if how == "doubled":
        return np.insert(numbers, middle + 7, numbers[middle])
    if how == "swapped":
        swapped = numbers.copy()
        swapped[[middle, middle + 1]] = swapped[[middle + 1, middle]]
        return swapped
    return numbers


def rows(numbers: Numbers, value_bytes: int) -> tuple[pa.Array, pa.Array]:
    """Keys and values that follow from the rows' numbers; values differ in their first bytes only."""
    texts = pc.cast(pa.array(numbers), pa.string())
    keys = pc.binary_join_element_wise("key-", pc.utf8_lpad(texts, 9, "0"), "")
    return keys, pc.utf8_rpad(pc.binary_join_element_wise("value ", texts, ""), value_bytes, ".")


@contextmanager
def cluster_at(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(ClientConfig(parse_addresses(bootstrap), api_timeout_ms=120_000)) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, partitions: int = PARTITIONS) -> None:
    wanted = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    body = {"topics": [wanted], "timeout_ms": 60_000, "validate_only": False}
    (made,) = cluster.any_broker().call(APIS[ApiKey.CREATE_TOPICS], body)["topics"]
    assert made["error_code"] == 0, made


def fill(
    cluster: Cluster, topic: str, parts: list[Numbers], value_bytes: int = 100, *, codec: int = 0
) -> None:
    """Write rows to the topic's partitions in a transaction, behind one that wrote others and was aborted."""
    now_ms = int(time.time() * 1000)  # older records would fall to retention
    for commit, chosen in ((False, [part[:50] for part in parts]), (True, parts)):
        name = f"fill-{topic}"
        identity = transactions.init_producer_id(cluster, name, _TRANSACTION_MS)
        with Producer(cluster, identity=identity, transactional_id=name) as producer:
            for partition, numbers in enumerate(chosen):
                keys, values = rows(numbers, value_bytes)
                batches = encode_batches(
                    keys, values, None, now_ms, codec=codec, max_batch_bytes=_BATCH_BYTES
                )
                for batch in batches:
                    producer.send(topic, partition, batch)
            producer.flush()
        transactions.end_txn(cluster, name, identity, commit)
    wait_until_seen(cluster, topic, len(parts))


def wait_until_seen(cluster: Cluster, topic: str, partitions: int) -> None:
    """Wait until no transaction hides anything: Kafka answers EndTxn before the markers are written."""
    where = [(topic, partition) for partition in range(partitions)]
    end = time.monotonic() + _PATIENCE_S
    while list_offsets(cluster, dict.fromkeys(where, LATEST), committed=True) != list_offsets(
        cluster, dict.fromkeys(where, LATEST), committed=False
    ):
        assert time.monotonic() < end, f"a transaction on {topic} does not end"
        time.sleep(0.02)


def split(count: int, partitions: int = PARTITIONS) -> list[Numbers]:
    """Row numbers of each partition."""
    return [np.arange(first, count, partitions) for first in range(partitions)]


# -- tables ----------------------------------------------------------------------------------------
# Tables with the rows of a topic, as a stock client reads them, written whole or hurt.


SCHEMA = pa.schema([
    ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()),
    ("partition", pa.int32()), ("offset", pa.int64()),
])  # fmt: skip
"""As Spark's kafka source has them, without timestamps."""
_WAIT_S = 60.0


def rows_of(bootstrap: str, topic: str, partitions: int) -> pa.Table:
    """All committed records of a topic."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "nobody", "auto.offset.reset": "earliest",
        "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, ended = [], set[int]()
    while len(ended) < partitions:
        messages = consumer.consume(10_000, 0.2)
        ended |= {m.partition() or 0 for m in messages if m.error()}
        found += [(m.key(), m.value(), topic, m.partition(), m.offset()) for m in messages if not m.error()]
    consumer.close()
    columns = list(zip(*found, strict=True)) or [()] * len(SCHEMA)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


Hurt = Callable[[pa.Table], pa.Table]


def _without(rows: pa.Table, at: int) -> pa.Table:
    return pa.concat_tables([rows[:at], rows[at + 1 :]])


def _with(rows: pa.Table, at: int, **values: Any) -> pa.Table:
    """All rows, of which one has other values."""
    changed = pa.Table.from_pylist([{**rows[at : at + 1].to_pylist()[0], **values}], rows.schema)
    return pa.concat_tables([rows[:at], changed, rows[at + 1 :]])


AT = 123

HURTS_STORED_TABLES: dict[str, tuple[Hurt, dict[str, int]]] = {
    "nothing": (lambda rows: rows, {}),
    "shuffled": (lambda rows: rows.take(pa.array(range(len(rows) - 1, -1, -1))), {}),
    "removed": (lambda rows: _without(rows, AT), {"lost": 1}),
    "doubled": (lambda rows: pa.concat_tables([rows, rows[AT : AT + 1]]), {"doubled": 1}),
    "altered": (lambda rows: _with(rows, AT, value=b"other"), {"altered": 1}),
    "key altered": (lambda rows: _with(rows, AT, key=None), {"altered": 1}),
    "moved": (
        lambda rows: _with(rows, AT, offset=rows["offset"][AT + 1].as_py()),
        {"lost": 1, "doubled": 1, "altered": 1},
    ),
    "aborted": (lambda rows: pa.concat_tables([rows, _with(rows[:1], 0, offset=3)]), {"phantom": 1}),
    "foreign": (lambda rows: _with(rows, AT, topic="another"), {"lost": 1, "foreign": 1}),
}  # fmt: skip
"""What may be wrong with a table, and what the audit counts then. Offset 3 is an aborted one (filling.py)."""


def store(kind: str, rows: pa.Table, folder: Path, catalog: Catalog) -> str:
    """A new table of this kind with the rows, in two commits; what --to calls it."""
    if kind == "parquet":
        folder.mkdir(exist_ok=True)
        for number, half in enumerate(halves(rows)):
            pq.write_table(half, folder / f"part-{number}.parquet")
        return f"parquet:{folder}"
    if kind == "delta":
        for half in halves(rows):
            write_deltalake(folder, half, partition_by=["partition"], mode="append")
        return f"delta:{folder}"
    if kind == "postgres":
        return _in_postgres(rows, folder.parent.name)
    table = catalog.create_table(f"ns.{folder.name}", SCHEMA)
    for half in halves(rows):
        table.append(half)
    return f"iceberg:here.ns.{folder.name}"


def _in_postgres(rows: pa.Table, name: str) -> str:
    """A table of this name in the server that libpq's environment variables name."""
    with psycopg.connect("") as connection:
        connection.execute(
            f'CREATE TABLE "{name}" (note text, value bytea, "offset" bigint, partition integer, topic text, '
            "key bytea)".encode()
        )
        copy = f'COPY "{name}" (topic, partition, "offset", key, value, note) FROM STDIN (FORMAT binary)'
        with connection.cursor().copy(copy.encode()) as copying:
            copying.set_types(["text", "int4", "int8", "bytea", "bytea", "text"])
            for row in rows.to_pylist():
                parts = ("topic", "partition", "offset", "key", "value")
                copying.write_row([*(row[part] for part in parts), None])
    return f"postgres:public.{name}"


def halves(rows: pa.Table) -> Sequence[pa.Table]:
    """The rows for two files."""
    return [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
