"""What a task's rows come to in two numbers: the same for the same rows in any order and any pieces."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.sink.row_checksum import Tally

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROW: dict[str, Any] = {
    "key": b"k", "value": b"v", "topic": "t", "partition": 1, "headers": [{"key": "h", "value": b"x"}]
}  # fmt: skip
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=6),
            "value": st.none() | st.binary(max_size=70),
            "topic": st.sampled_from(["a", "b"]),
            "partition": st.none() | st.integers(0, 3),
            "headers": st.none()
            | st.lists(
                st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.binary(max_size=2)}),
                max_size=2,
            ),
        }
    ),
    max_size=30,
)


def tally(*pieces: list[dict[str, Any]]) -> tuple[int, int | None]:
    made = Tally(checksum=True)
    for piece in pieces:
        made.add(pa.RecordBatch.from_pylist(piece, SCHEMA))
    return made.rows, made.checksum


@given(rows=ROWS, at=st.integers(0, 30), data=st.data())
def test_neither_order_nor_pieces_matter(rows: list[dict[str, Any]], at: int, data: Any) -> None:
    expected = tally(rows)
    assert tally(rows[:at], rows[at:]) == expected and expected[0] == len(rows)
    assert tally(data.draw(st.permutations(rows))) == expected
    whole = pa.RecordBatch.from_pylist([ROW, *rows, ROW], SCHEMA)
    sliced = Tally(checksum=True)
    sliced.add(whole.slice(1, len(rows)))
    assert (sliced.rows, sliced.checksum) == expected


@given(rows=ROWS)
def test_a_row_more_or_another_row_shows(rows: list[dict[str, Any]]) -> None:
    assert tally([*rows, ROW])[1] != tally(rows)[1]
    assert tally([*rows, ROW])[1] != tally([*rows, {**ROW, "value": b"w"}])[1]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("key", b"l"),
        ("key", None),
        ("value", b"k"),
        ("value", None),
        ("topic", "u"),
        ("partition", 2),
        ("partition", None),
        ("headers", []),
        ("headers", [{"key": "h", "value": b"y"}]),
        ("headers", [{"key": "h", "value": None}]),
        ("headers", [{"key": "i", "value": b"x"}]),
    ],
)
def test_every_column_counts(name: str, other: Any) -> None:
    assert tally([{**ROW, name: other}])[1] != tally([ROW])[1]


def test_key_and_value_are_not_the_same_the_other_way_round() -> None:
    swapped = {**ROW, "key": b"v", "value": b"k"}
    assert tally([swapped])[1] != tally([ROW])[1]
    mixed = [{**ROW, "key": b"1", "value": b"4"}, {**ROW, "key": b"3", "value": b"2"}]
    straight = [{**ROW, "key": b"1", "value": b"2"}, {**ROW, "key": b"3", "value": b"4"}]
    assert tally(mixed)[1] != tally(straight)[1]


def test_without_checksum_rows_are_counted() -> None:
    plain = Tally(checksum=False)
    plain.add(pa.record_batch({"value": pa.array(["a", None, "c"])}))
    assert plain.rows == 3 and plain.checksum is None


def test_columns_may_be_missing_and_strings() -> None:
    made = Tally(checksum=True)
    made.add(pa.record_batch({"value": pa.array(["a", None])}))
    assert made.rows == 2 and made.checksum not in (0, None)


def test_the_topics_that_rows_name() -> None:
    """Only where they are wanted: where no option names the topic."""
    rows = pa.record_batch({"value": [b"1", b"2", b"3"], "topic": ["a", None, "b"]})
    tally = Tally(checksum=False, topics=True)
    tally.add(rows)
    tally.add(rows.slice(0, 0))
    tally.add(pa.record_batch({"value": [b"4"]}))
    assert tally.topics == {"a", "b"} and tally.rows == 4
    plain = Tally(checksum=False)
    plain.add(rows)
    assert plain.topics is None
