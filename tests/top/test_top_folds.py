"""Lines for many names: what sinks made, and names with a common prefix where they do not fit."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from eoslog.top.cluster_snapshot import ClusterSnapshot, GroupView, Open, PartitionView
from eoslog.top.columns import DisplayOptions
from eoslog.top.figures import Figures, figures
from eoslog.top.folds import Fold, fit, fitted
from eoslog.top.text import as_text
from tests.top.test_top_figures import NOW_MS, PARTITIONS, seen

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
