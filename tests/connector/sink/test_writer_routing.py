"""Rows to record batches: schema, topic, partition, order; against a plain row-at-a-time reckoning."""

from collections import defaultdict
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from eoslog.connector.sink import routing
from eoslog.connector.sink.routing import Router
from eoslog.connector.spark.columns import check_sink_schema
from eoslog.errors import SchemaError
from eoslog.protocol.decode import decode_batches

PARTITIONS = {"a": 3, "b": 5, "solo": 1}
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def schema(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def router(topic: str | None = None, **more: Any) -> Router:
    given: dict[str, Any] = {"codec": 0, "max_batch_bytes": 900_000} | more
    return Router(PARTITIONS.__getitem__, topic=topic, **given)


def routed(made: Router, rows: pa.RecordBatch) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
    for topic, partition, batch in made.route(rows):
        read = decode_batches(b"".join(map(bytes, batch.finish())), headers=True)
        assert read.headers is not None
        found[topic, partition] += zip(
            read.key.to_pylist(), read.value.to_pylist(), read.headers.to_pylist(), strict=True
        )
    return dict(found)


def batch(**columns: Any) -> pa.RecordBatch:
    types = {"topic": pa.string(), "partition": pa.int32(), "headers": ARROW_HEADERS}
    return pa.RecordBatch.from_arrays(
        [pa.array(values, types.get(name, pa.binary())) for name, values in columns.items()],
        names=list(columns),
    )


@pytest.mark.parametrize(
    ("fields", "topic"),
    [
        (schema(value=BinaryType()), "a"),
        (schema(value=StringType(), topic=StringType()), None),
        (
            schema(
                key=StringType(),
                value=BinaryType(),
                headers=ArrayType(HEADER),
                partition=IntegerType(),
                x=LongType(),
            ),
            "a",
        ),
    ],
)
def test_schemas_that_fit(fields: StructType, topic: str | None) -> None:
    check_sink_schema(fields, topic, None)
    checked = StructType([*fields.fields, StructField("deadletter", StringType())])
    check_sink_schema(checked, topic, "dead")
    with pytest.raises(SchemaError, match=r"the option deadletter\.topic is not given: give it"):
        check_sink_schema(checked, topic, None)


@pytest.mark.parametrize(
    ("fields", "topic", "says"),
    [
        (schema(key=BinaryType()), "a", r"no column 'value', but key"),
        (schema(Value=BinaryType()), "a", r"rename 'Value' to 'value'"),
        (schema(value=LongType()), "a", r"column 'value' is bigint: cast it to binary or string"),
        (
            schema(value=BinaryType(), key=IntegerType()),
            "a",
            r"column 'key' is int: cast it to binary or string",
        ),
        (schema(value=BinaryType()), None, r"option topic, or a column 'topic'"),
        (
            schema(value=BinaryType(), topic=BinaryType()),
            None,
            r"column 'topic' is binary: cast it to string",
        ),
        (
            schema(value=BinaryType(), partition=LongType()),
            "a",
            r"column 'partition' is bigint: cast it to int",
        ),
        (
            schema(value=BinaryType(), headers=StringType()),
            "a",
            r"column 'headers' is string: cast it to array",
        ),
    ],
)
def test_schemas_that_do_not(fields: StructType, topic: str | None, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        check_sink_schema(fields, topic, None)


keys = st.one_of(st.none(), st.binary(max_size=9))
row = st.tuples(
    st.sampled_from(["a", "b", "solo"]),
    st.one_of(st.none(), st.just(0)),
    keys,
    st.one_of(st.none(), st.binary(max_size=20)),
)


@settings(deadline=None)
@given(
    rows=st.lists(row, max_size=60),
    size=st.sampled_from([100, 900_000]),
    together=st.sampled_from([0, routing.TOGETHER]),
)
def test_every_row_goes_once_to_its_place_in_order(
    rows: list[tuple[Any, ...]], size: int, together: int
) -> None:
    """Whether its destinations are encoded in one go, as those of small batches are, or one by one."""
    made = router(max_batch_bytes=size)
    topics, partitions, key, value = zip(*rows, strict=True) if rows else ((), (), (), ())
    with patch.object(routing, "TOGETHER", together):
        got = routed(made, batch(topic=topics, partition=partitions, key=key, value=value))
    expected: dict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
    for topic, partition, k, v in rows:
        if partition is None and k is not None:
            partition = (murmur2(k) & 0x7FFFFFFF) % PARTITIONS[topic]
        # rows without key stay together: all of a topic in one partition of it, whichever that is
        turn = 0 if partition is None else partition
        expected[topic, turn].append((k, v, []))
    assert got == dict(expected)


def test_the_option_beats_the_column() -> None:
    assert set(routed(router("b"), batch(value=[b"x"], topic=["a"], partition=[4]))) == {("b", 4)}


@pytest.mark.parametrize("partition", range(3))
def test_the_column_beats_the_key(partition: int) -> None:
    rows = batch(key=[b"k", b"l"], value=[b"1", b"2"], partition=[partition] * 2)
    assert list(routed(router("a"), rows)) == [("a", partition)]


def test_rows_without_key_take_turns_batch_by_batch() -> None:
    made = router("a", seed=1)
    places = [next(iter(routed(made, batch(value=[b"x", b"y"])))) for _ in range(4)]
    assert places == [("a", 1), ("a", 2), ("a", 0), ("a", 1)]


def test_strings_are_written_as_utf_8_and_headers_as_given() -> None:
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["kä", None]),
            pa.array(["ü", "v"], pa.large_string()),
            pa.array([[("h", b"1"), ("h", None)], None], ARROW_HEADERS),
        ],
        names=["key", "value", "headers"],
    )
    got = routed(router("solo"), rows)["solo", 0]
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert got == [("kä".encode(), "ü".encode(), headers), (None, b"v", [])]


def test_null_values_are_tombstones() -> None:
    assert routed(router("solo"), batch(key=[b"k"], value=[None])) == {("solo", 0): [(b"k", None, [])]}


def test_a_row_without_topic() -> None:
    with pytest.raises(SchemaError, match=r"1 of 2 rows have null in the column 'topic'.*option"):
        list(router().route(batch(value=[b"x", b"y"], topic=["a", None])))


@pytest.mark.parametrize("partition", [3, -1, 2**31 - 1])
def test_a_partition_that_does_not_exist(partition: int) -> None:
    with pytest.raises(
        SchemaError, match=rf"partition that does not exist, first {partition} of topic 'a', which has 3"
    ):
        list(router("a").route(batch(value=[b"x", b"y"], partition=[0, partition])))


def test_no_rows_no_batches() -> None:
    assert routed(router("a"), batch(value=[], key=[])) == {}


def test_sliced_batches() -> None:
    whole = batch(value=[b"0", b"1", b"2", b"3"], partition=[0, 1, 0, 1])
    assert routed(router("a"), whole.slice(1, 2)) == {
        ("a", 1): [(None, b"1", [])],
        ("a", 0): [(None, b"2", [])],
    }
