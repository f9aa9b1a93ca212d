"""Takes out rows that cannot be written, or must not be, before they fail the batch, with the reason of each.

| row | reason |
|---|---|
| null in the column `topic`, and no option `topic` | no topic |
| a column `partition` with a number that its topic does not have | no such partition |
| larger than its topic's max.message.bytes, before compression | too large |
| without a key, and its topic is compacted | no key |
| not null in the column `deadletter`, which a query's own checks fill | that text |

The row goes to the dead letter topic with its key, value and headers, and with these headers:
`deadletter.reason`, `deadletter.detail` (the reason with its figures), `deadletter.topic`,
`deadletter.partition`; and, if the rows have a column `deadletter.source` (a struct of topic, partition and
offset), `deadletter.source.topic`, `.partition` and `.offset`. All rows of an Arrow batch are checked at
once.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.connector.sink.routing import column_of
from eoslog.protocol.batch import HEADER_SIZE

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

REASONS = ("no topic", "no such partition", "too large", "no key")
OWN = "deadletter"
"""An optional column: why the query does not want a row written; null: it does. It comes before REASONS."""
SOURCE = "deadletter.source"
"""An optional column: the topic, partition and offset from which each row came."""
RECORD_OVERHEAD = 7 * 5
"""At most this many bytes of a record are not key, value or headers: seven varints."""
HEADER_OVERHEAD = 2 * 5


class TopicLimits(NamedTuple):
    """What a topic accepts: its partitions, the bytes of a batch, and whether every record needs a key."""

    partitions: int
    max_bytes: int
    needs_key: bool

    @classmethod
    def of(cls, partitions: int, configs: Mapping[str, str]) -> "TopicLimits":
        """The limits by the topic's configs."""
        return cls(partitions, int(configs["max.message.bytes"]), "compact" in configs["cleanup.policy"])


LIMITING = ("max.message.bytes", "cleanup.policy")
"""The configs that `TopicLimits` needs."""


class Split(NamedTuple):
    """Rows that can be written, and those that cannot, ready for the dead letter topic."""

    good: pa.RecordBatch
    dead: pa.RecordBatch | None


class RowValidator:
    """Checks the rows of one task. `limits_of` gives the limits of a topic."""

    def __init__(self, topic: str | None, limits_of: Callable[[str], TopicLimits]) -> None:
        """`topic`: the option's value."""
        self._topic, self._limits_of = topic, limits_of

    def split(self, rows: pa.RecordBatch) -> Split:
        """Separate the good rows from the others."""
        names, place = self._topics(rows)
        reason, sizes = np.full(len(rows), -1, np.int8), _sizes(rows)
        limits = [self._limits_of(name) for name in names]
        # A row may have several reasons. The strongest overwrites the others, so it is reported.
        for number, one in enumerate(limits):
            self._check(rows, sizes, one, place == number, reason)
        reason[place < 0] = 0
        own = column_of(rows, OWN)
        if own is not None:
            reason[own.is_valid().to_numpy(zero_copy_only=False)] = len(REASONS)
        bad = reason >= 0
        if not bad.any():
            return Split(rows, None)
        dead, at = _only(rows, bad), place[bad]
        topics = pa.array([*names, None], pa.string()).take(pa.array(at % (len(names) + 1)))  # -1: null
        figures = {
            "partitions": np.array([*(one.partitions for one in limits), 0])[at],
            "largest": np.array([*(one.max_bytes for one in limits), 0])[at],
            "size": sizes[bad],
        }
        return Split(_only(rows, ~bad), _letters(dead, reason[bad], topics, figures))

    def _topics(self, rows: pa.RecordBatch) -> tuple[list[str], Ints]:
        if self._topic is not None:
            return [self._topic], np.zeros(len(rows), np.int64)
        coded = pc.dictionary_encode(rows.column("topic"))
        places = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
        return coded.dictionary.to_pylist(), places.astype(np.int64)

    def _check(
        self,
        rows: pa.RecordBatch,
        sizes: Ints,
        limits: TopicLimits,
        mine: Bools,
        reason: npt.NDArray[np.int8],
    ) -> None:
        key, given = column_of(rows, "key"), column_of(rows, "partition")
        if limits.needs_key:
            reason[mine & (_nulls(key, len(rows)))] = 3
        reason[mine & (sizes > limits.max_bytes)] = 2
        if given is not None:
            number = pc.fill_null(given, 0).to_numpy(zero_copy_only=False)
            reason[mine & ((number < 0) | (number >= limits.partitions))] = 1


def _sizes(rows: pa.RecordBatch) -> Ints:
    """For each row, the bytes of a batch of this row alone, at most."""
    size = np.full(len(rows), HEADER_SIZE + RECORD_OVERHEAD, np.int64)
    for name in ("key", "value"):
        column = column_of(rows, name)
        if column is not None:
            size += _lengths(column)
    headers = column_of(rows, "headers")
    if headers is not None:
        each = headers.flatten()
        bytes_of = np.concatenate(
            ([0], np.cumsum(sum(_lengths(each.field(i)) for i in range(2)) + HEADER_OVERHEAD))
        )
        counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        ends = np.cumsum(counts)
        size += bytes_of[ends] - bytes_of[ends - counts]
    return size


def _lengths(column: pa.Array) -> Ints:
    lengths: Ints = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _nulls(column: pa.Array | None, count: int) -> Bools:
    if column is None:
        return np.ones(count, np.bool_)
    nulls: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _letters(
    rows: pa.RecordBatch, reason: npt.NDArray[np.int8], topics: pa.Array, figures: Mapping[str, Ints]
) -> pa.RecordBatch:
    """The rows with reason and origin in their headers, and without the columns topic and partition."""
    given = column_of(rows, "partition")
    partitions = pc.cast(given, pa.string()) if given is not None else pa.nulls(len(rows), pa.string())
    own = column_of(rows, OWN)
    own = pa.nulls(len(rows), pa.string()) if own is None else own.cast(pa.string())
    known = pa.array([*REASONS, None]).take(pa.array(reason))
    said = {
        "deadletter.reason": pc.coalesce(own, known),
        "deadletter.detail": _details(reason, topics, partitions, figures),
        "deadletter.topic": topics,
        "deadletter.partition": partitions,
        **_sources(rows),
    }
    columns = {name: rows.column(name) for name in ("key", "value") if name in rows.schema.names}
    return pa.RecordBatch.from_pydict(
        {**columns, "headers": _headers(column_of(rows, "headers"), said, len(rows))}
    )


def _details(
    reason: npt.NDArray[np.int8], topics: pa.Array, given: pa.Array, figures: Mapping[str, Ints]
) -> pa.Array:
    """Each row's reason with its figures. The texts are in the order of REASONS."""
    texts = {name: pc.cast(pa.array(numbers), pa.string()) for name, numbers in figures.items()}

    def joined(*parts: str | pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="")

    return pc.choose(
        pa.array(reason, pa.int64()),
        "the column topic is null, and the sink has no option topic",
        joined("topic ", topics, " has ", texts["partitions"], " partitions and no number ", given),
        joined("up to ", texts["size"], " bytes; topic ", topics, " takes ", texts["largest"]),
        joined("topic ", topics, " is compacted and takes no record without a key"),
        "the query's own check, in the column deadletter",
    )


def _sources(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Headers that say where the rows came from, if they have the column SOURCE."""
    source = column_of(rows, SOURCE)
    if source is None or not pa.types.is_struct(source.type):
        return {}
    names = [source.type.field(number).name for number in range(source.type.num_fields)]
    known = [name for name in ("topic", "partition", "offset") if name in names]
    return {f"{SOURCE}.{name}": pc.cast(pc.struct_field(source, name), pa.string()) for name in known}


def _headers(old: pa.Array | None, more: Mapping[str, pa.Array], count: int) -> pa.Array:
    """Each row's headers, plus one for each of `more`."""
    item = pa.struct([("key", pa.string()), ("value", pa.binary())])
    had = pa.array([[]] * count, pa.list_(item)) if old is None else old.cast(pa.list_(item))
    counts = pc.fill_null(pc.list_value_length(had), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    added = len(more)
    starts = np.concatenate(([0], np.cumsum(counts + added)))
    pool = [had.flatten(), *(_header(name, values, item) for name, values in more.items())]
    # The pool index of each item of the new lists: first a row's own headers, then the added ones.
    order = np.empty(int(starts[-1]), np.int64)
    own = np.arange(int(counts.sum()))
    order[own + np.repeat(np.arange(count) * added, counts)] = own
    for number in range(added):
        order[starts[:-1] + counts + number] = int(counts.sum()) + number * count + np.arange(count)
    items = pa.concat_arrays(pool).take(pa.array(order))
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), items)


def _header(name: str, values: pa.Array, item: pa.DataType) -> pa.Array:
    names = pa.array([name]).take(pa.array(np.zeros(len(values), np.int64)))
    return pa.StructArray.from_arrays([names, values.cast(pa.binary())], fields=list(item))


def _only(rows: pa.RecordBatch, wanted: Bools) -> pa.RecordBatch:
    return rows.filter(pa.array(wanted))
