"""Rows to record batches: schema, topic, partition, order, Arrow's forms, dead letters."""

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
from eoslog.connector.sink.deadletters import (
    HEADER_OVERHEAD,
    RECORD_OVERHEAD,
    SOURCE,
    RowValidator,
    TopicLimits,
)
from eoslog.connector.sink.routing import Router
from eoslog.connector.sink.row_checksum import Tally
from eoslog.connector.spark.columns import check_sink_schema
from eoslog.errors import SchemaError
from eoslog.protocol.batch import HEADER_SIZE, iter_headers
from eoslog.protocol.decode import decode_batches
from tests.protocol.oracle import stamp

# -- routing -------------------------------------------------------------------------------------
# Rows to record batches: schema, topic, partition, order; against a plain row-at-a-time reckoning.

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


# -- Arrow's forms -------------------------------------------------------------------------------
# Rows as Arrow has them: small and large offsets, slices, empty beside null, all destinations at once.
#
# What Spark hands over depends on its settings (spark.sql.execution.arrow.useLargeVarTypes) and on how it cut
# its batches. Whatever the type, the same rows give the same records; a type that cannot be written is
# refused.

ARROW_PARTITIONS = 3


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


def arrow_batch(binary: pa.DataType, text: pa.DataType, pairs: pa.DataType) -> pa.RecordBatch:
    types = {"key": binary, "value": binary, "topic": text, "headers": pairs, "partition": pa.int32()}
    return pa.record_batch({name: pa.array(column, types[name]) for name, column in ROWS.items()})


def written(rows: pa.RecordBatch, *, topic: str | None = None, codec: int = 0, most: int = 300) -> list[Any]:
    """What the log would hold of each record: topic, partition, key, value, headers; in order."""
    router = Router(lambda _: ARROW_PARTITIONS, topic=topic, codec=codec, max_batch_bytes=most)
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
    rows, plain = arrow_batch(*types), arrow_batch(*SMALL)
    assert written(rows) == written(plain) and len(written(plain)) == len(plain)
    assert checksum(rows) == checksum(plain)
    split = [
        RowValidator(None, lambda _: TopicLimits(ARROW_PARTITIONS, 150, True)).split(one)
        for one in (rows, plain)
    ]
    assert split[0].good.num_rows == split[1].good.num_rows < len(rows)
    dead = [one.dead for one in split]
    assert dead[0] is not None and dead[1] is not None
    assert written(dead[0], topic="dead") == written(dead[1], topic="dead")


def test_what_is_empty_is_not_null() -> None:
    rows = arrow_batch(*SMALL)
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
    rows = arrow_batch(*SMALL).slice(start, count)
    copied = pa.RecordBatch.from_pylist(rows.to_pylist(), schema=rows.schema)
    assert written(rows) == written(copied) and len(written(rows)) == count
    assert checksum(rows) == checksum(copied)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("most", [1, 62, 100, 300, 1 << 20])
def test_no_row_is_lost_or_doubled_wherever_batches_are_cut(codec: int, most: int) -> None:
    """A batch has room for one row at least, whatever was asked for."""
    rows = arrow_batch(*SMALL)
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
    rows = arrow_batch(*SMALL)
    numbers = pa.array([b"%d" % number for number in range(len(rows))])
    found: dict[Any, list[int]] = {}
    for topic, partition, _, value, _ in written(rows.set_column(1, "value", numbers), most=most):
        found.setdefault((topic, partition), []).append(int(value))
    assert len(found) > 2 and all(order == sorted(order) for order in found.values())
    assert sorted(number for order in found.values() for number in order) == list(range(len(rows)))


# -- dead letters --------------------------------------------------------------------------------
# Which rows are dead letters, and what is said of them: vectorised, against a plain loop over rows.

ITEM = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema({
    "key": pa.binary(), "value": pa.binary(), "headers": pa.list_(ITEM), "topic": pa.string(),
    "partition": pa.int32(), "deadletter": pa.string(),
})  # fmt: skip
TOPICS = {
    "small": TopicLimits(2, HEADER_SIZE + RECORD_OVERHEAD + 20, False),
    "compacted": TopicLimits(3, 10_000, True),
}
Row = dict[str, Any]

texts = st.binary(max_size=24)
dead_headers = st.lists(
    st.fixed_dictionaries({"key": st.text("abc", max_size=5), "value": st.none() | texts}), max_size=3
)
rows = st.fixed_dictionaries({
    "key": st.none() | texts, "value": st.none() | texts, "headers": st.none() | dead_headers,
    "topic": st.sampled_from([None, *TOPICS]), "partition": st.none() | st.integers(-2, 4),
    "deadletter": st.none() | st.sampled_from(["", "no such customer"]),
})  # fmt: skip


def size(row: Row) -> int:
    own = sum(len(row[name] or b"") for name in ("key", "value"))
    more = sum(len(h["key"]) + len(h["value"] or b"") + HEADER_OVERHEAD for h in row["headers"] or [])
    return HEADER_SIZE + RECORD_OVERHEAD + own + more


def reason(row: Row) -> str | None:
    if row.get("deadletter") is not None:
        return str(row["deadletter"])
    if row["topic"] is None:
        return "no topic"
    limits = TOPICS[row["topic"]]
    if row["partition"] is not None and not 0 <= row["partition"] < limits.partitions:
        return "no such partition"
    if size(row) > limits.max_bytes:
        return "too large"
    return "no key" if limits.needs_key and row["key"] is None else None


def detail(row: Row, why: str) -> str:
    name = row["topic"]
    limits = TOPICS.get(name)
    if row.get("deadletter") is not None:
        return "the query's own check, in the column deadletter"
    if why == "no topic" or limits is None:
        return "the column topic is null, and the sink has no option topic"
    number = row["partition"]
    return {
        "no such partition": f"topic {name} has {limits.partitions} partitions and no number {number}",
        "too large": f"up to {size(row)} bytes; topic {name} takes {limits.max_bytes}",
        "no key": f"topic {name} is compacted and takes no record without a key",
    }[why]


def letter(row: Row, why: str) -> Row:
    def header(name: str, value: Any) -> Row:
        return {"key": f"deadletter.{name}", "value": None if value is None else str(value).encode()}

    said = [header("reason", why), header("detail", detail(row, why))]
    said += [header("topic", row["topic"]), header("partition", row["partition"])]
    if row.get(SOURCE):
        said += [header(f"source.{name}", value) for name, value in row[SOURCE].items()]
    return {"key": row["key"], "value": row["value"], "headers": [*(row["headers"] or []), *said]}


@settings(deadline=None)
@given(st.lists(rows, max_size=20))
def test_rows_are_judged_one_by_one_and_all_at_once_alike(given_rows: list[Row]) -> None:
    good, dead = RowValidator(None, TOPICS.__getitem__).split(pa.RecordBatch.from_pylist(given_rows, SCHEMA))
    reasons = [reason(row) for row in given_rows]
    assert good.to_pylist() == [row for row, why in zip(given_rows, reasons, strict=True) if why is None]
    letters = [letter(row, why) for row, why in zip(given_rows, reasons, strict=True) if why is not None]
    assert ([] if dead is None else dead.to_pylist()) == letters


def test_with_few_columns_and_a_topic_for_all() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["short", "x" * 40, None]})
    good, dead = RowValidator("small", TOPICS.__getitem__).split(batch)
    assert good.to_pylist() == [{"value": "short"}, {"value": None}]
    assert dead is not None
    (one,) = dead.to_pylist()
    assert one["value"] == "x" * 40
    assert [h["key"] for h in one["headers"]] == [
        "deadletter.reason",
        "deadletter.detail",
        "deadletter.topic",
        "deadletter.partition",
    ]
    told = [b"too large", b"up to 136 bytes; topic small takes 116", b"small", None]
    assert [h["value"] for h in one["headers"]] == told
    assert RowValidator("compacted", TOPICS.__getitem__).split(batch).good.num_rows == 0


def test_good_rows_are_handed_through_untouched() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b"]})
    assert RowValidator("small", TOPICS.__getitem__).split(batch).good is batch


def test_slices_are_read_from_where_they_begin() -> None:
    row: Row = {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"1"}], "topic": "small"}
    whole = pa.RecordBatch.from_pylist([{**row, "partition": p} for p in (0, 1, 9, 9)], SCHEMA)
    good, dead = RowValidator(None, TOPICS.__getitem__).split(whole.slice(1, 2))
    assert good.to_pylist() == whole.slice(1, 1).to_pylist()
    assert dead is not None and dead.to_pylist() == [
        letter(whole.slice(2, 1).to_pylist()[0], "no such partition")
    ]


def test_where_a_row_came_from_is_told_if_it_tells_it() -> None:
    place = {"topic": "orders", "partition": 3, "offset": 17}
    row: Row = {"key": None, "value": b"v", "headers": None, "topic": None, "partition": None, SOURCE: place}
    kind = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    batch = pa.RecordBatch.from_pylist([row, {**row, SOURCE: None}], SCHEMA.append(pa.field(SOURCE, kind)))
    good, dead = RowValidator(None, TOPICS.__getitem__).split(batch)
    assert len(good) == 0 and dead is not None
    nowhere = {**row, SOURCE: dict.fromkeys(place)}
    assert dead.to_pylist() == [letter(row, "no topic"), letter(nowhere, "no topic")]
    other = pa.RecordBatch.from_pydict({"value": ["x"], "topic": pa.nulls(1, pa.string()), SOURCE: ["mine"]})
    dead = RowValidator(None, TOPICS.__getitem__).split(other).dead
    assert dead is not None
    (one,) = dead.to_pylist()
    assert [h["key"] for h in one["headers"]] == [
        f"deadletter.{n}" for n in ("reason", "detail", "topic", "partition")
    ]
