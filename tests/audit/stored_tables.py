"""Tables with the rows of a topic, as a stock client reads them, written whole or hurt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from deltalake import write_deltalake
from pyiceberg.catalog import Catalog

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

HURTS: dict[str, tuple[Hurt, dict[str, int]]] = {
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
    table = catalog.create_table(f"ns.{folder.name}", SCHEMA)
    for half in halves(rows):
        table.append(half)
    return f"iceberg:here.ns.{folder.name}"


def halves(rows: pa.Table) -> Sequence[pa.Table]:
    """The rows for two files."""
    return [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
