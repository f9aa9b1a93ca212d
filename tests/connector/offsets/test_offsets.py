"""Offset JSON: Spark's form, and every way of writing it wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.offsets.offsets import (
    EARLIEST,
    LATEST,
    SourcePosition,
    TakenFrom,
    epochs_from_json,
    from_json,
    parse_assignment,
    parse_bound,
    position_from_json,
    to_json,
)
from eoslog.errors import OptionError

OFFSETS = st.dictionaries(st.tuples(st.text(), st.integers(0, 99)), st.integers(0, 2**63 - 1))


@given(OFFSETS)
def test_there_and_back_through_text(offsets: dict[tuple[str, int], int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


def test_equal_offsets_are_equal_texts() -> None:
    """Spark compares texts to see whether there is new data."""
    one, other = {("b", 1): 1, ("a", 10): 2, ("a", 9): 3}, {("a", 9): 3, ("b", 1): 1, ("a", 10): 2}
    assert json.dumps(to_json(one)) == json.dumps(to_json(other))
    assert to_json(one) == {"a": {"9": 3, "10": 2}, "b": {"1": 1}}


def test_bounds() -> None:
    assert (parse_bound("o", "earliest"), parse_bound("o", " LATEST ")) == (EARLIEST, LATEST)
    assert parse_bound("o", '{"t":{"0":23,"1":-2},"u":{"0":-1}}') == {
        ("t", 0): 23,
        ("t", 1): -2,
        ("u", 0): -1,
    }


@pytest.mark.parametrize(
    "text",
    ["", "{", "5", "[]", "{}", "null", '{"t":{}}', '{"t":[0]}', '{"t":{"a":1}}', '{"t":{"-1":1}}',
     '{"t":{"0":"1"}}', '{"t":{"0":1.5}}', '{"t":{"0":true}}', '{"t":{"0":-3}}', '{"t":{"0":null}}',
     '{"t":{"0":1,"0":2}}', '{"t":{"0":1},"t":{"1":1}}', "first"],
)  # fmt: skip
def test_malformed_bounds_say_the_right_form(text: str) -> None:
    with pytest.raises(
        OptionError,
        match=r'startingOffsets.*give startingOffsets as earliest, latest, committed, or JSON like \{"topic"',
    ):
        parse_bound("startingOffsets", text)


def test_assignments() -> None:
    assert parse_assignment("assign", '{"b":[1],"a":[2,0,2]}') == (("a", 0), ("a", 2), ("b", 1))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"t":[]}', '{"t":0}', '{"t":["0"]}', '{"t":[-1]}', '{"t":[true]}']
)
def test_malformed_assignments_say_the_right_form(text: str) -> None:
    with pytest.raises(OptionError, match=r'assign.*give assign as JSON like \{"topic":\[0,1\]\}'):
        parse_assignment("assign", text)


def test_only_a_beginning_may_be_where_a_group_stands() -> None:
    with pytest.raises(OptionError, match="endingOffsets"):
        parse_bound("endingOffsets", "committed")


@given(
    st.dictionaries(st.tuples(st.sampled_from(["t", "u.v-1"]), st.integers(0, 30)), st.integers(0, 2**31 - 1))
)
def test_leader_epochs_are_beside_the_offsets_and_no_part_of_them(epochs: dict[tuple[str, int], int]) -> None:
    ends = dict.fromkeys([*epochs, ("w", 0)], 7)
    stored = json.loads(json.dumps(to_json(ends, {"t": "id"}, "c", {**epochs, ("gone", 1): 3})))
    assert from_json(stored) == ends and epochs_from_json(stored) == epochs
    assert position_from_json(stored).epochs == epochs and epochs_from_json({"t": {"0": 5}}) == {}


@given(OFFSETS, st.frozensets(st.builds(TakenFrom, st.text(), st.text())))
def test_whose_offsets_a_query_has_begun_with(
    offsets: dict[tuple[str, int], int], taken: frozenset[TakenFrom]
) -> None:
    stored = json.loads(json.dumps(to_json(offsets, taken=taken)))
    assert position_from_json(stored) == SourcePosition(offsets, {}, None, {}, taken)


def test_partitions_of_one_epoch_share_an_entry() -> None:
    epochs = {("t", p): 9 for p in (0, 2, 3, 4, 10, 11)} | {("t", 1): 8}
    names = [name for name in to_json(dict.fromkeys(epochs, 0), epochs=epochs) if ":" in name]
    assert names == ["leader-epoch:t:9:0,2-4,10-11", "leader-epoch:t:8:1"]


LINE = (
    '{"a":{"0":5,"1":-2},"b":{"0":7},"topic-id:a:x1":{},"cluster-id:c":{},"leader-epoch:a:3:0-1":{},'
    '"leader-epoch:b:4:0":{},"offsets-of:s:g":{}}'
)


def test_a_beginning_may_be_a_line_of_a_checkpoint() -> None:
    found = {("a", 0): 5, ("a", 1): -2, ("b", 0): 7}
    epochs = {("a", 0): 3, ("b", 0): 4}
    assert parse_bound("startingOffsets", LINE) == SourcePosition(found, {"a": "x1"}, "c", epochs)
    assert parse_bound("startingOffsets", f" orders_2:{LINE}") == parse_bound("startingOffsets", LINE)
    for name in ("or ders", "", '"orders"', "orders: orders"):
        with pytest.raises(OptionError, match="startingOffsets"):
            parse_bound("startingOffsets", f"{name}:{LINE}")
    with pytest.raises(OptionError, match="endingOffsets"):
        parse_bound("endingOffsets", 'orders:{"a":{"0":1}}')
    with pytest.raises(OptionError, match="endingOffsets: topic 'topic-id:a:x1' has"):
        parse_bound("endingOffsets", LINE)


@pytest.mark.parametrize(
    "entry", ["leader-epoch:a:x:0", "leader-epoch:a:1", "topic-id:a", "leader-epoch:a:1:0-x", "other:a:1"]
)
def test_what_a_line_says_of_its_log_has_to_be_right(entry: str) -> None:
    with pytest.raises(OptionError, match=f"startingOffsets: .*{entry}.*; give startingOffsets as earliest"):
        parse_bound("startingOffsets", json.dumps({"a": {"0": 5}, entry: {}}))


def test_a_line_without_offsets_names_no_topic() -> None:
    with pytest.raises(OptionError, match="names no topic"):
        parse_bound("startingOffsets", '{"cluster-id:c":{}}')
