"""Rows as Arrow has them: small and large offsets, slices, empty beside null, all destinations at once.

What Spark hands over depends on its settings (spark.sql.execution.arrow.useLargeVarTypes) and on how it cut
its batches. Whatever the type, the same rows give the same records; a type that cannot be written is refused.
"""

from typing import Any

import pyarrow as pa
import pytest

from eoslog.connector.sink.deadletters import RowValidator, TopicLimits
from eoslog.connector.sink.routing import Router
from eoslog.connector.sink.row_checksum import Tally
from eoslog.protocol.batch import iter_headers
from eoslog.protocol.decode import decode_batches
from tests.protocol.stamp import stamp

PARTITIONS = 3


def headers(text: pa.DataType, binary: pa.DataType, *, large: bool = False) -> pa.DataType:
    pair = pa.struct([("key", text), ("value", binary)])
    return pa.large_list(pair) if large else pa.list_(pair)


ROWS: dict[str, list[Any]] = {
    "key": [b"", None, b"k1", b"k2"] * 5,
    "value": [None, b"", b"v", b"w" * 60] * 5,
    "topic": ["a", "b", "a", "b"] * 5,
    "headers": [None, [], [{"key": "x", "value": None}, {"key": "", "value": b""}],
                [{"key": "y", "value": b"1"}]] * 5,
    "partition": [None, 2, None, 0] * 5,
}  # fmt: skip
"""Five times four rows, which end up in two topics and all their partitions."""
SMALL = (pa.binary(), pa.string(), headers(pa.string(), pa.binary()))
TYPES = {
    "large": (pa.large_binary(), pa.large_string(), headers(pa.large_string(), pa.large_binary())),
    "large lists": (
        pa.large_binary(),
        pa.large_string(),
        headers(pa.large_string(), pa.large_binary(), large=True),
    ),
    "mixed": (pa.binary(), pa.large_string(), headers(pa.string(), pa.large_binary())),
}


def batch(binary: pa.DataType, text: pa.DataType, pairs: pa.DataType) -> pa.RecordBatch:
    types = {"key": binary, "value": binary, "topic": text, "headers": pairs, "partition": pa.int32()}
    return pa.record_batch({name: pa.array(column, types[name]) for name, column in ROWS.items()})


def written(rows: pa.RecordBatch, *, topic: str | None = None, codec: int = 0, most: int = 300) -> list[Any]:
    """What the log would hold of each record: topic, partition, key, value, headers; in order."""
    router = Router(lambda _: PARTITIONS, topic=topic, codec=codec, max_batch_bytes=most)
    found: list[Any] = []
    for to in router.route(rows):
        data = bytearray().join(to.batch.finish())
        stamp(data, 0, 0)
        got = decode_batches(data, list(iter_headers(data)), headers=True)
        assert got.headers is not None
        columns = (got.key.to_pylist(), got.value.to_pylist(), got.headers.to_pylist())
        found += [(to.topic, to.partition, *row) for row in zip(*columns, strict=True)]
    return found


def checksum(rows: pa.RecordBatch) -> int | None:
    tally = Tally(checksum=True)
    tally.add(rows)
    assert tally.rows == len(rows)
    return tally.checksum


@pytest.mark.parametrize("types", TYPES.values(), ids=TYPES)
def test_the_type_of_a_column_changes_no_record(types: tuple[Any, Any, Any]) -> None:
    rows, plain = batch(*types), batch(*SMALL)
    assert written(rows) == written(plain) and len(written(plain)) == len(plain)
    assert checksum(rows) == checksum(plain)
    split = [
        RowValidator(None, lambda _: TopicLimits(PARTITIONS, 150, True)).split(one) for one in (rows, plain)
    ]
    assert split[0].good.num_rows == split[1].good.num_rows < len(rows)
    dead = [one.dead for one in split]
    assert dead[0] is not None and dead[1] is not None
    assert written(dead[0], topic="dead") == written(dead[1], topic="dead")


def test_what_is_empty_is_not_null() -> None:
    rows = batch(*SMALL)
    got = [row[2:] for row in sorted(written(rows), key=str)]
    pairs = [[(h["key"], h["value"]) for h in hs or ()] for hs in ROWS["headers"]]
    wanted = list(zip(ROWS["key"], ROWS["value"], pairs, strict=True))
    found = [(key, value, [(h["key"], h["value"]) for h in hs or ()]) for key, value, hs in got]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


def test_an_empty_key_has_its_partition_and_a_null_one_takes_turns() -> None:
    columns = {"key": pa.array([b""] * 4, pa.binary()), "value": pa.array([b"v"] * 4, pa.binary())}
    router = Router(lambda _: 7, topic="t", codec=0, max_batch_bytes=1 << 20)
    places = [to.partition for _ in range(5) for to in router.route(pa.record_batch(columns))]
    assert len(set(places)) == 1
    columns["key"] = pa.nulls(4, pa.binary())
    places = [to.partition for _ in range(7) for to in router.route(pa.record_batch(columns))]
    assert sorted(places) == list(range(7))


@pytest.mark.parametrize(("start", "count"), [(1, 19), (7, 5), (19, 1), (5, 0)])
def test_a_slice_is_written_as_its_own_rows(start: int, count: int) -> None:
    """Also of a slice, whose columns begin in the middle of their buffers."""
    rows = batch(*SMALL).slice(start, count)
    copied = pa.RecordBatch.from_pylist(rows.to_pylist(), schema=rows.schema)
    assert written(rows) == written(copied) and len(written(rows)) == count
    assert checksum(rows) == checksum(copied)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("most", [1, 62, 100, 300, 1 << 20])
def test_no_row_is_lost_or_doubled_wherever_batches_are_cut(codec: int, most: int) -> None:
    """A batch has room for one row at least, whatever was asked for."""
    rows = batch(*SMALL)
    assert sorted(map(repr, written(rows, codec=codec, most=most))) == sorted(map(repr, written(rows)))


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([[None]], SMALL[2]), "headers have a null element"),
        (pa.array([[{"key": None, "value": b"x"}]], SMALL[2]), "a header's key is null"),
    ],
)
def test_headers_that_kafka_does_not_have_are_refused(column: pa.Array, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        written(pa.record_batch({"value": pa.array([b"v"]), "headers": column}), topic="t")


@pytest.mark.parametrize("name", ["key", "value"])
def test_a_type_that_is_no_row_of_bytes_is_refused(name: str) -> None:
    columns = {"value": pa.array([b"v"]), name: pa.array([b"v"]).dictionary_encode()}
    with pytest.raises(ValueError, match=f"{name} has type dictionary"):
        written(pa.record_batch(columns), topic="t")


@pytest.mark.parametrize("most", [1, 100, 1 << 20])
def test_rows_of_a_partition_keep_their_order(most: int) -> None:
    rows = batch(*SMALL)
    numbers = pa.array([b"%d" % number for number in range(len(rows))])
    found: dict[Any, list[int]] = {}
    for topic, partition, _, value, _ in written(rows.set_column(1, "value", numbers), most=most):
        found.setdefault((topic, partition), []).append(int(value))
    assert len(found) > 2 and all(order == sorted(order) for order in found.values())
    assert sorted(number for order in found.values() for number in order) == list(range(len(rows)))
