"""The console's lists with 500 groups and 2,000 transactional ids: filtered, sorted, folded, bounded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.console.console_site import Site, create, write
from tests.top.busy import (
    GROUPS,
    IDLE,
    IDS_OF_A_SINK,
    OPEN_OF_A_SINK,
    OTHER_IDS,
    READERS,
    SINKS,
    fill,
    reader,
    sink,
)

RECORDS = 600
SOON_S = 3.0
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("console-many")) as opened:
        create(opened.client(), "orders")
        create(opened.client(), "wide", partitions=3)
        write(Producer(opened.client()), "orders", *("v" for _ in range(RECORDS)))
        fill(opened.broker.bootstrap, "orders", RECORDS)
        yield opened


def names(rows: list[dict[str, Any]], column: str = "group") -> list[str]:
    return [row[column] for row in rows]


def test_groups_of_decisions_are_folded_into_their_sinks(site: Site) -> None:
    told = site.look("groups", fold="yes", limit=200)
    assert (told["total"], told["matching"], len(told["groups"])) == (GROUPS, READERS, 200)
    assert told["total_sinks"] == SINKS
    assert told["sinks"] == [
        {"sink": name, "groups": 2} for name in sorted(sink(number).id for number in range(SINKS))
    ]
    assert not any(row["group"].startswith("copy") for row in told["groups"])
    second = site.look("groups", fold="yes", limit=200, after=told["next"])
    assert second["groups"][0]["group"] > told["groups"][-1]["group"]


def test_a_sink_is_unfolded(site: Site) -> None:
    told = site.look("groups", sink="copy/eu")
    assert names(told["groups"]) == ["copy%2Feu", "copy%2Feu/finished"]
    assert [(row["sink"], row["lag"]) for row in told["groups"]] == [("copy/eu", None)] * 2
    told = site.look("transactions", sink="copy-1", state="all", limit=200)
    assert (told["matching"], len(told["transactions"])) == (IDS_OF_A_SINK, 200)
    assert {row["sink"] for row in told["transactions"]} == {"copy-1"}
    told = site.look("transactions", sink="copy-1")
    assert names(told["transactions"], "transactional_id") == [
        "copy-1/5.0/0/w.0", "copy-1/5.0/0/w.2", "copy-1/5.0/1/w.1"
    ]  # fmt: skip


def test_without_folding_everything_is_there(site: Site) -> None:
    told = site.look("groups", filter="copy")
    assert (told["matching"], len(told["groups"]), "sinks" in told) == (2 * SINKS, 2 * SINKS, False)
    told = site.look("transactions", state="all", limit=1)
    assert told["total"] == told["matching"] == 2000


def test_ids_of_a_sink_are_a_line_with_counts(site: Site) -> None:
    told = site.look("transactions", fold="yes", state="all")
    assert (told["total"], told["matching"]) == (2000, OTHER_IDS)
    assert [(row["sink"], row["ids"], row["open"]) for row in told["sinks"]] == [
        (sink(number).id, IDS_OF_A_SINK, 0 if number == IDLE else OPEN_OF_A_SINK)
        for number in (*range(1, SINKS), 0)
    ]
    ages = {row["sink"]: row["age_ms"] for row in told["sinks"]}
    assert ages["copy/eu"] >= ages["copy-6"] >= 0 and ages[sink(IDLE).id] is None
    told = site.look("transactions", fold="yes", sort="age", down="yes")
    assert told["transactions"] == [] and told["sinks"][0]["sink"] == "copy/eu"
    assert (told["total_sinks"], told["total"]) == (SINKS - 1, (SINKS - 1) * OPEN_OF_A_SINK), "open ones"


def test_lists_are_filtered(site: Site) -> None:
    told = site.look("groups", fold="yes", filter="SHOP-READER-00")
    assert (names(told["groups"]), told["sinks"]) == ([reader(n) for n in (1, 3, 5, 7, 9)], [])
    assert [row["sink"] for row in site.look("groups", fold="yes", filter="copy/eu")["sinks"]] == ["copy/eu"]
    told = site.look("transactions", fold="yes", state="all", filter="w.1")
    assert told["matching"] == 0 and {row["ids"] for row in told["sinks"]} == {111}


def test_groups_are_sorted(site: Site) -> None:
    told = site.look("groups", fold="yes", sort="lag", down="yes", limit=3)
    assert names(told["groups"]) == [reader(READERS - n) for n in (1, 2, 3)]
    assert (told["matching"], told["next"], told["sorted"]) == (READERS, None, "lag")
    assert names(site.look("groups", fold="yes", sort="lag", limit=2)["groups"]) == [reader(0), reader(1)]
    assert names(site.look("groups", fold="yes", down="yes", limit=1)["groups"]) == [reader(READERS - 1)]
    assert site.look("groups", sort="lag", limit=200)["groups"][-1]["lag"] is not None, "unknown ones last"


def test_transactions_are_sorted(site: Site) -> None:
    told = site.look("transactions", sort="age", down="yes")
    ages = [row["age_ms"] for row in told["transactions"]]
    assert ages == sorted(ages, reverse=True) and len(ages) == (SINKS - 1) * OPEN_OF_A_SINK
    told = site.look("transactions", sort="state", down="yes", state="all", limit=30)
    states = names(told["transactions"], "state")
    assert states == sorted(states, reverse=True) and "Ongoing" in states


@pytest.mark.parametrize("column", ["records", "bytes", "name", "partitions", "held_back"])
@pytest.mark.parametrize("down", ["yes", "no"])
def test_topics_are_sorted(site: Site, column: str, down: str) -> None:
    told = site.look("topics", sort=column, down=down)
    values = names(told["topics"], column)
    assert values == sorted(values, reverse=down == "yes") and told["sorted"] == column
    assert told["matching"] == told["total"] == len(values) == 4


@pytest.mark.parametrize("given", [{"sort": "colour"}, {"fold": "maybe"}, {"down": "1"}])
def test_what_makes_no_sense_is_told(site: Site, given: dict[str, str]) -> None:
    for what in ("groups", "transactions"):
        assert site.get(f"/api/{what}", **given).status == 400


@pytest.mark.parametrize("given", [{}, {"sort": "lag"}, {"sort": "age"}, {"filter": "1"}], ids=str)
def test_a_list_comes_soon(site: Site, given: dict[str, str]) -> None:
    """The shortest of three times, as the machine may stand still."""
    what = "groups" if given.get("sort") == "lag" else "transactions"
    taken = []
    for _ in range(3):
        begun = time.monotonic()
        site.look(what, fold="yes", limit=200, **given)
        taken.append(time.monotonic() - begun)
    assert min(taken) < SOON_S, taken
