"""Offset JSON: Spark's form, and every way of writing it wrong; plans of batches: limits and tasks."""

from __future__ import annotations

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
from eoslog.connector.offsets.plan import Range, losses, ranges, share, split
from eoslog.errors import OptionError

# -- offset JSON ---------------------------------------------------------------------------------
# Offset JSON: Spark's form, and every way of writing it wrong.

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


# -- plans ---------------------------------------------------------------------------------------
# Limits and tasks: every offset in one task and no other, limits kept, nobody starved.

PARTITIONS = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 5)),
    st.tuples(st.integers(0, 1000), st.integers(0, 10_000)),
    max_size=8,
)


@given(PARTITIONS, st.integers(1, 5000))
def test_share_keeps_the_limit_and_starves_nobody(
    partitions: dict[tuple[str, int], tuple[int, int]], most: int
) -> None:
    start = {tp: a for tp, (a, _) in partitions.items()}
    end = {tp: a + n for tp, (a, n) in partitions.items()}
    got = share(start, end, most)
    sizes = {tp: got[tp] - start[tp] for tp in end}
    waiting = [tp for tp in end if end[tp] > start[tp]]
    assert all(1 <= sizes[tp] <= end[tp] - start[tp] for tp in waiting)
    assert all(sizes[tp] == 0 for tp in end if tp not in waiting)
    assert sum(sizes.values()) <= most + len(waiting)
    total = sum(end.values()) - sum(start.values())
    if total <= most:
        assert got == end
    for tp in waiting:
        assert abs(sizes[tp] - most * (end[tp] - start[tp]) / total) <= 1 or total <= most


@given(PARTITIONS, st.integers(1, 300))
def test_sharing_again_and_again_reaches_the_end(
    partitions: dict[tuple[str, int], tuple[int, int]], most: int
) -> None:
    at = {tp: a for tp, (a, _) in partitions.items()}
    end = {tp: a + n for tp, (a, n) in partitions.items()}
    for _ in range(sum(end.values()) - sum(at.values())):
        if at == end:
            break
        at = share(at, end, most)
    assert at == end


def test_share_leaves_what_lies_behind() -> None:
    """A log that ends before the query's position gives no offsets."""
    assert share({("t", 0): 10, ("t", 1): 0}, {("t", 0): 5, ("t", 1): 100}, 10) == {("t", 0): 5, ("t", 1): 10}


@given(
    PARTITIONS,
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 500)),
)
def test_tasks_cover_each_offset_once(
    partitions: dict[tuple[str, int], tuple[int, int]], least: int | None, most: int | None
) -> None:
    start = {tp: a for tp, (a, _) in partitions.items()}
    end = {tp: a + n for tp, (a, n) in partitions.items()}
    whole = ranges(start, end)
    pieces = split(whole, least, most)
    joined: list[Range] = []
    for piece in pieces:
        assert piece.size > 0 and (most is None or piece.size <= most)
        last = joined[-1] if joined else None
        if last and (last.topic, last.partition, last.end) == (piece.topic, piece.partition, piece.start):
            joined[-1] = Range(last.topic, last.partition, last.start, piece.end)
        else:
            joined.append(piece)
    assert joined == whole
    if least is not None and whole and most is None:
        assert len(pieces) >= min(least, sum(r.size for r in whole)) // 2


def test_larger_ranges_give_more_tasks() -> None:
    pieces = split([Range("t", 0, 0, 900), Range("t", 1, 0, 100)], 10, None)
    assert [sum(p.partition == i for p in pieces) for i in (0, 1)] == [9, 1]


def test_losses() -> None:
    start = {("t", 0): 5, ("t", 1): 5, ("t", 2): 5}
    found = losses(start, {("t", 0): 5, ("t", 1): 3, ("t", 9): 0})
    assert found and found.gone == (("t", 2),) and found.back == {("t", 1): (5, 3)}
    assert str(found).startswith("t-2 does not exist any more; t-1 ends at 3, before 5, where the query")
    assert not losses(start, start)


def test_what_has_no_backlog_is_no_task() -> None:
    assert share({}, {("t", 0): 5}, 2) == {("t", 0): 5}
    assert ranges({("t", 0): 5, ("t", 1): 3}, {("t", 0): 3, ("t", 1): 3}) == []
    assert [piece.size for piece in split([Range("t", 0, 5, 7)], 10, None)] == [1, 1]


def test_what_is_not_named_any_more_is_not_gone() -> None:
    lost = losses({("t", 0): 5, ("u", 1): 7}, {}).apart(lambda place: place[0] == "t")
    assert (lost.gone, lost.dropped) == ((("t", 0),), (("u", 1),))
    dropped = losses({("u", 1): 7}, {}).apart(lambda _: False)
    assert dropped and str(dropped).startswith("u-1 was read before, and subscribe")
    assert not losses({}, {}).apart(lambda _: False)
