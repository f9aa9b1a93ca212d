"""Limits and tasks: every offset in one task and no other, limits kept, nobody starved."""

from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.offsets.plan import Range, losses, ranges, share, split

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
