"""From two looks to figures, text, lines for many names, and a picture."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from eoslog.top.cluster_snapshot import BrokerView, ClusterSnapshot, GroupView, Open, PartitionView
from eoslog.top.columns import DisplayOptions, age, count
from eoslog.top.command import Shown
from eoslog.top.figures import Figures, Fold, as_text, figures, fit, fitted, tables
from eoslog.top.view import KEYS, picture, share

# -- figures -------------------------------------------------------------------------------------
# From two looks to figures, text and a picture.

PARTITIONS = {
    ("a", 0): PartitionView(1, 0, 100, 100, 1000),
    ("a", 1): PartitionView(2, 10, 50, 60, 600),
    ("b", 0): PartitionView(1, 0, 5, 5, 50),
    ("__state", 0): PartitionView(2, 0, 9, 9, 90),
}
NOW_MS = 1_790_000_000_000


def seen(at: float = 10.0, **changes: object) -> ClusterSnapshot:
    look = ClusterSnapshot(
        at, NOW_MS, "cluster-1",
        [BrokerView(1, "h:1"), BrokerView(2, "h:2"), BrokerView(3, "h:3")], PARTITIONS,
        frozenset({"__state"}), 0,
        [
            GroupView("quick", "Stable", "classic", {("a", 0): 100}),
            GroupView("slow", "Empty", "", {("a", 1): 20, ("gone", 0): 1}),
        ],
        [Open("tx-1", "Ongoing", NOW_MS - 90_000, 2), Open("tx-2", "PrepareCommit", None, 1)], [],
    )  # fmt: skip
    return dataclasses.replace(look, **changes)  # type: ignore[arg-type]


def later(**ends: int) -> ClusterSnapshot:
    """Five seconds later, with these partitions grown by so many records of ten bytes."""
    grown = {
        where: dataclasses.replace(p, end=p.end + ends.get(f"{where[0]}{where[1]}", 0),
                                   size=(p.size or 0) + 10 * ends.get(f"{where[0]}{where[1]}", 0))
        for where, p in PARTITIONS.items()
    }  # fmt: skip
    return seen(15.0, partitions=grown)


def test_rates_are_what_was_added_over_the_time_between() -> None:
    shown = figures(later(a0=50, a1=10, b0=5), seen())
    rates = {row["name"]: (row["records_rate"], row["bytes_rate"]) for row in shown.topics}
    assert rates == {"a": (12.0, 120.0), "b": (1.0, 10.0)}
    assert {row["name"]: row["records_rate"] for row in shown.brokers} == {
        "1 h:1": 11.0,
        "2 h:2": 2.0,
        "3 h:3": 0.0,
    }
    assert (shown.total["records_rate"], shown.total["records"], shown.total["size"]) == (13.0, 229, 2390)


def test_without_an_earlier_look_there_are_no_rates() -> None:
    for before in (None, seen(10.0)):  # or at the same moment
        assert {(row["records_rate"], row["bytes_rate"]) for row in figures(seen(), before).topics} == {
            (None, None)
        }


def test_what_gets_smaller_or_is_new_adds_nothing() -> None:
    assert figures(seen(20.0), later(a0=50, b0=20)).total["records_rate"] == 0
    before = {where: p for where, p in PARTITIONS.items() if where[0] != "b"}
    shown = figures(later(b0=5), seen(partitions=before))
    assert {row["name"]: row["records_rate"] for row in shown.topics} == {"a": 0.0, "b": 0.0}


def test_without_sizes_the_records_are_shown() -> None:
    blind = {where: dataclasses.replace(p, size=None) for where, p in PARTITIONS.items()}
    shown = figures(seen(15.0, partitions=blind), seen(partitions=blind))
    assert (shown.total["size"], shown.total["bytes_rate"], shown.total["records_rate"]) == (None, None, 0.0)


def test_what_open_transactions_hold_back_is_counted() -> None:
    assert {row["name"]: row["held"] for row in figures(seen(), None).topics} == {"a": 10, "b": 0}


@pytest.mark.parametrize(
    ("sort", "order"),
    [("name", "ab"), ("records", "ba"), ("bytes", "ba"), ("size", "ab"), ("held", "ab")],
)
def test_topics_are_sorted_as_asked(sort: str, order: str) -> None:
    assert (
        "".join(row["name"] for row in figures(later(b0=7, a0=1), seen(), DisplayOptions(topics=sort)).topics)
        == order
    )


def test_internal_topics_are_shown_where_asked() -> None:
    assert [row["name"] for row in figures(seen(), None, DisplayOptions(internal=True)).topics] == [
        "__state",
        "a",
        "b",
    ]


def test_lag_is_counted_where_it_is_known() -> None:
    lags = [(g["name"], g["behind"], g["partitions"]) for g in figures(seen(), None).groups]
    assert lags == [("slow", 40, 2), ("quick", 0, 1)]
    nothing = seen(groups=[GroupView("new", "Empty", "classic")])
    assert figures(nothing, None).groups[0]["behind"] is None


def test_transactions_are_shown_with_their_age() -> None:
    ages = [(t["transactional_id"], t["seconds"]) for t in figures(seen(), None).transactions]
    assert ages == [("tx-1", 90.0), ("tx-2", None)]
    assert tables(figures(seen(), None))[3].alarming == {0}


def test_numbers_are_short() -> None:
    numbers = (None, 0, 9999, 10_000, 123_456, 999_600, 1_500_000, 2e21)
    assert [count(n) for n in numbers] == ["-", "0", "9999", "10.0k", "123k", "1.0M", "1.5M", "2000000P"]
    spans = (None, 0.25, 59, 61, 3600, 90_000)
    assert [age(s) for s in spans] == ["-", "0.2s", "59s", "1m01s", "1h00m", "1d01h"]


def test_a_page_of_text_has_it_all() -> None:
    page = as_text(figures(later(a0=50), seen(problems=[], without_leader=0)))
    assert page.startswith("eoslog top  ") and "3 brokers  4 partitions  10 records/s  100B/s" in page
    for word in ("1 h:1", "slow", "tx-1", "1m30s", "TOPIC", "held back".upper()):
        assert word in page
    told = as_text(figures(seen(problems=["groups: refused"], without_leader=2), None))
    assert "2 WITHOUT LEADER" in told and "groups: refused" in told


def drawn(look: ClusterSnapshot, lines: int, **more: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=110, height=lines, force_terminal=False)
    console.print(picture(figures(look, None), lines=lines, **more))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue().splitlines()


def many(topics: int, groups: int) -> ClusterSnapshot:
    return seen(
        partitions={(f"topic-{n}", 0): PartitionView(1, 0, 5, 5, 50) for n in range(topics)},
        groups=[GroupView(f"group-{n}", "Stable", "classic") for n in range(groups)],
    )


def test_the_picture_fits_the_terminal() -> None:
    for lines in (30, 50, 100):
        assert len(drawn(many(200, 200), lines)) <= lines
    page = "\n".join(drawn(many(200, 3), 50, wish=DisplayOptions(unfolded=True)))
    assert "... and 1" in page and all(f"group-{n} " in page for n in range(3))
    assert len(drawn(many(2, 2), 10)) > 10  # a terminal too small for a line of each is scrolled


def test_the_picture_says_what_is_wrong_and_which_keys_there_are() -> None:
    page = "\n".join(drawn(seen(problems=["groups: refused"]), 50, note="the cluster did not answer"))
    assert "groups: refused" in page and "the cluster did not answer" in page and KEYS in page


def test_lines_are_shared_fairly() -> None:
    assert share([3, 100, 100], 43) == [3, 20, 20]
    assert share([1, 2], 100) == [1, 2]
    assert share([5, 5, 5], 0) == [1, 1, 1]
    assert share([], 10) == []


def test_keys_choose() -> None:
    shown = Shown()
    assert [shown.pressed(key).wish.topics for key in "rbshn"] == ["records", "bytes", "size", "held", "name"]
    assert [shown.pressed(key).wish.groups for key in "lnt"] == ["lag", "name", "state"]
    assert [shown.pressed(key).wish.transactions for key in "ant"] == ["age", "name", "state"]
    assert shown.pressed("i").wish.internal and not shown.pressed("i").pressed("i").wish.internal
    assert shown.pressed("f").wish.unfolded and not shown.pressed("f").pressed("f").wish.unfolded
    assert shown.pressed("q").over and shown.pressed(" ").now and shown.pressed("x") == shown
    assert not shown.pressed(" ").pressed("").now


def typed(keys: Iterable[str]) -> Shown:
    shown = Shown()
    for key in keys:
        shown = shown.pressed(key)
    return shown


def test_a_filter_is_typed() -> None:
    assert (typed("/qopy").wish.text, typed("/qopy").typing, typed("/qopy").over) == ("qopy", True, False)
    assert (typed("/ab\x7fc\n").wish.text, typed("/ab\x7fc\n").typing) == ("ac", False)
    assert typed("/a\t\n") == typed("/a\r") == typed("/a\n/\n"), "it goes on where it was"
    assert typed("/ab\x1b") == typed("/ab\n\x1b") == Shown() and typed("/\x7f").wish.text == ""
    assert typed(["/", "a", "", "é"]).wish.text == "aé", "no key is no key"
    assert typed("/a\x04").over, "the terminal is gone"


def test_the_filter_takes_names_in_upper_or_lower_case() -> None:
    page = figures(seen(), None, DisplayOptions(text="SLO"))
    assert ([g["name"] for g in page.groups], page.topics, page.transactions) == (["slow"], [], [])
    assert [
        t["transactional_id"] for t in figures(seen(), None, DisplayOptions(text="x-2")).transactions
    ] == ["tx-2"]
    assert (
        len(figures(seen(), None, DisplayOptions(text="SLO")).brokers) == 3 and page.total["partitions"] == 4
    )


@pytest.mark.parametrize(
    ("sort", "order"), [("lag", ["slow", "quick"]), ("name", ["quick", "slow"]), ("state", ["slow", "quick"])]
)
def test_groups_are_sorted_as_asked(sort: str, order: list[str]) -> None:
    assert [g["name"] for g in figures(seen(), None, DisplayOptions().sorted_by(sort)).groups] == order


@pytest.mark.parametrize(("sort", "order"), [("age", "21"), ("name", "12"), ("state", "12")])
def test_transactions_are_sorted_as_asked(sort: str, order: str) -> None:
    opened = [Open("tx-1", "Ongoing", NOW_MS - 1, 1), Open("tx-2", "PrepareCommit", NOW_MS - 9000, 1)]
    page = figures(seen(transactions=opened), None, DisplayOptions().sorted_by(sort))
    assert [t["transactional_id"] for t in page.transactions] == [f"tx-{n}" for n in order]


def test_the_column_that_is_sorted_by_is_marked() -> None:
    page = "\n".join(drawn(seen(), 50, wish=DisplayOptions().sorted_by("name")))
    for head in ("topic*", "group*", "transactional id*", "topics by name", "groups by name"):
        assert head in page
    page = "\n".join(drawn(seen(), 15))
    for head in ("records/s*", "lag*", "age*"):
        assert head in page


def test_the_bottom_says_what_is_filtered_by() -> None:
    assert drawn(seen(), 50, wish=DisplayOptions(text="a"), typing=True)[-1].startswith("/a_  Enter keeps it")
    assert drawn(seen(), 50, wish=DisplayOptions(text="a"))[-1].startswith(
        "filter: a (Esc clears it)  q quit"
    )


# -- lines for many names ------------------------------------------------------------------------
# Lines for many names: what sinks made, and names with a common prefix where they do not fit.

OFFSETS = "__consumer_offsets"


def labels(names: list[str], room: int) -> list[str]:
    return [fold.label for fold in fit(names, room)]


def test_what_fits_stands_alone() -> None:
    assert labels(["a-1", "a-2", "b"], 3) == ["a-1", "a-2", "b"]
    assert labels([], 0) == []


def test_the_first_stand_alone_and_those_after_them_share_lines() -> None:
    names = [f"app-{n}" for n in range(100)]
    assert labels(names, 5) == ["app-0", "app-1", "app-2", "app-3", "app-* (96)"]
    assert fit(names, 2)[1] == Fold("app-* (99)", tuple(range(1, 100)))


def test_the_longest_prefix_that_fits_is_taken() -> None:
    names = [f"shop.{part}.{n}" for n in range(9) for part in ("cart", "bill")]
    assert labels(names, 1) == ["shop.* (18)"]
    assert labels(names, 2) == ["shop.cart.0", "shop.* (17)"]
    assert labels(names, 3) == ["shop.cart.0", "shop.bill.* (9)", "shop.cart.* (8)"]
    assert labels(names, 5) == [
        "shop.cart.0",
        "shop.bill.0",
        "shop.cart.1",
        "shop.bill.* (8)",
        "shop.cart.* (7)",
    ]


def test_numbers_at_the_end_are_cut_off_too() -> None:
    assert labels([f"billing{n}" for n in range(20)], 1) == ["billing* (20)"]
    assert labels(["1", "2", "3", "x", "y"], 2) == ["1", "2", "3", "x", "y"], "they have no prefix"


def test_prefixes_that_save_little_are_not_taken() -> None:
    names = [f"{word}-1" for word in "abcdef"] + ["a-2"]
    assert labels(names, 3) == names
    names = [f"{word}-{n}" for word in "abcdef" for n in range(4)]
    assert labels(names, 3) == [f"{word}-* (4)" for word in "abcdef"], "a quarter of the lines"


names_of_words = st.lists(st.text("ab-1", min_size=1, max_size=8), max_size=40, unique=True)


@given(names_of_words, st.integers(0, 45))
def test_every_name_is_in_one_line(names: list[str], room: int) -> None:
    folds = fit(names, room)
    assert sorted(place for fold in folds for place in fold.places) == list(range(len(names)))
    assert len(folds) <= max(room, len(names))
    for fold in folds:
        assert all(names[place].startswith(fold.label.partition("*")[0]) for place in fold.places)


def sinks() -> ClusterSnapshot:
    """Two sinks, one of them with open transactions, beside a reader's group and somebody's transaction."""
    mine = ["copy", "copy/probe", *(f"copy/5.0/{n % 2}/w.{n}" for n in range(240))]
    return seen(
        partitions={**PARTITIONS, (OFFSETS, 0): PartitionView(1, 0, 900, 900, 900)},
        groups=[
            GroupView("copy", "Empty", "classic", {(OFFSETS, 0): 7}),
            GroupView("copy/finished", "Empty", "classic", {(OFFSETS, 0): 7}),
            GroupView("a%2Fb", "Empty", "classic", {(OFFSETS, 0): 1}),
            GroupView("quick", "Stable", "classic", {("a", 0): 90}),
        ],
        transactions=[
            Open("copy/5.0/0/w.2", "Ongoing", NOW_MS - 12_000, 1),
            Open("copy/5.0/0/w.4", "Ongoing", NOW_MS - 2_000, 2),
            Open("copy/5.0/0/w.6", "Ongoing", None, 1),
            Open("billing", "Ongoing", NOW_MS - 90_000, 1),
        ],
        ids=[*mine, "other", "a%2Fb/1.0/0/w.0", "billing"],
    )  # fmt: skip


def lines(page: Figures, unfolded: bool = False) -> list[list[str]]:
    return [line.split() for line in as_text(page, unfolded).splitlines()]


def test_what_a_sink_made_is_one_line() -> None:
    page = lines(figures(sinks(), None))
    assert ["copy", "242", "3", "12s", "2"] in page and ["a/b", "1", "0", "-", "1"] in page
    first = [line[0] for line in page if line]
    assert "copy/finished" not in first and "copy/5.0/0/w.2" not in first
    assert "quick" in first and "billing" in first and "other" not in first


def test_notes_of_queries_without_ids_are_one_line() -> None:
    """A cluster of twenty queries has a group eoslog-write:<id of the query> for each, which nobody knows."""
    writing = "eoslog-write:writes"
    names = [writing, *(f"eoslog-write:{n:08}-6f1e" for n in range(20))]
    look = seen(
        partitions={**PARTITIONS, (OFFSETS, 0): PartitionView(1, 0, 900, 900, 900)},
        groups=[GroupView(name, "Empty", "classic", {(OFFSETS, 0): 7}) for name in names],
        ids=[writing, f"{writing}/5.0/0/w.2"],
    )
    page = lines(figures(look, None))
    assert [line for line in page if line and line[0].startswith("eoslog-write:")] == [
        ["eoslog-write:*", "0", "0", "-", "20"],
        [writing, "2", "0", "-", "1"],
    ]
    unfolded = [line[0] for line in lines(figures(look, None), unfolded=True) if line]
    assert set(names) <= set(unfolded)
    told = dataclasses.asdict(figures(look, None))["groups"]
    assert {group["name"]: group["sink"] for group in told} == {name: name for name in names}


def test_unfolded_each_name_is_a_line() -> None:
    page = lines(figures(sinks(), None), unfolded=True)
    first = [line[0] for line in page if line]
    assert {"copy", "copy/finished", "copy/5.0/0/w.2", "a%2Fb", "quick", "billing"} <= set(first)
    assert ["copy", "Empty", "classic", "1", "-"] in page, "a decision is behind nothing"
    assert "SINK" not in first


def test_programs_are_told_whose_it_is() -> None:
    page = dataclasses.asdict(figures(sinks(), None))
    assert {group["name"]: group["sink"] for group in page["groups"]} == {
        "quick": None, "a%2Fb": "a/b", "copy": "copy", "copy/finished": "copy",
    }  # fmt: skip
    assert page["sinks"][0] == {"sink": "copy", "ids": 242, "open": 3, "oldest": 12.0, "groups": 2}


def test_sinks_are_sorted_and_filtered() -> None:
    def named(wish: DisplayOptions) -> list[str]:
        return [sink["sink"] for sink in figures(sinks(), None, wish).sinks]

    assert named(DisplayOptions()) == ["copy", "a/b"] and named(DisplayOptions().sorted_by("name")) == [
        "a/b",
        "copy",
    ]
    assert named(DisplayOptions().sorted_by("state")) == ["copy", "a/b"]
    assert named(DisplayOptions(text="A/B")) == ["a/b"] and named(DisplayOptions(text="quick")) == []
    (some,) = figures(sinks(), None, DisplayOptions(text="w.2")).sinks
    assert (some["ids"], some["open"]) == (len([n for n in range(240) if str(n).startswith("2")]), 1)


def test_sums_of_a_shared_line() -> None:
    opened = [Open(f"tx-{n}", "Ongoing", NOW_MS - 1000 * n, 2) for n in range(9)]
    groups = [
        GroupView(f"g-{n}", "Stable" if n else "Empty", "classic", {("a", 0): 100 - n}) for n in range(9)
    ]
    page = fitted(
        figures(seen(groups=groups, transactions=opened), None), {"groups": 2, "open transactions": 1}
    )
    alone, shared = page.groups
    assert (alone["name"], alone["behind"]) == ("g-8", 8)
    assert (shared["name"], shared["state"], shared["kind"], shared["partitions"]) == (
        "g-* (8)",
        "mixed",
        "classic",
        8,
    )
    assert shared["behind"] == sum(range(8))
    (age,) = page.transactions
    assert (age["transactional_id"], age["state"], age["seconds"], age["partitions"]) == (
        "tx-* (9)",
        "Ongoing",
        8.0,
        18,
    )
