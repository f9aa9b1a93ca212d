"""Which rows are dead letters, and what is said of them: vectorised, against a plain loop over rows."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.connector.sink.deadletters import (
    HEADER_OVERHEAD,
    RECORD_OVERHEAD,
    SOURCE,
    RowValidator,
    TopicLimits,
)
from eoslog.protocol.batch import HEADER_SIZE

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
headers = st.lists(
    st.fixed_dictionaries({"key": st.text("abc", max_size=5), "value": st.none() | texts}), max_size=3
)
rows = st.fixed_dictionaries({
    "key": st.none() | texts, "value": st.none() | texts, "headers": st.none() | headers,
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
