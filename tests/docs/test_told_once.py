"""Facts that pages told in different ways: each has one page, which a test or figures back; others link to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from benchmarks.simulate import JSON
from tests.docs.blocks import PAGES, ROOT

NUMBER = r"(?:\d[\d,]*|two|three|four|five|six|seven|eight|nine|ten)"
MADE = re.compile(r"<!-- kafka versions -->.*?<!-- end of kafka versions -->", re.DOTALL)
"""Made from results by tests/versions."""

ONE_PAGE = {
    rf"\b{NUMBER}(?: or {NUMBER})? (?:more )?round trips|round trips \(\d+": "docs/exactly-once.md",
    r"milliseconds (?:apart|before those)|(?:for|within|these) milliseconds": "",
}
"""What is said only there -> that page ("" for none). Round trips are counted by test_round_trips.py."""


def found(pattern: str) -> Iterator[tuple[str, str]]:
    """Each page that says it, and what it says."""
    for page in PAGES:
        for said in re.findall(pattern, MADE.sub("", page.read_text())):
            yield str(page.relative_to(ROOT)), said


@pytest.mark.parametrize("pattern", ONE_PAGE)
def test_a_fact_stands_on_one_page(pattern: str) -> None:
    page = ONE_PAGE[pattern]
    assert [(where, said) for where, said in found(pattern) if where != page] == []


def test_for_how_long_a_part_is_seen_is_what_was_measured() -> None:
    page = " ".join((ROOT / "docs" / "exactly-once.md").read_text().split())
    found = json.loads(JSON.read_text())
    one, three = (
        [f"{measured[tasks]['in_part']:,.0f} ms" for tasks in ("10", "100", "1000")]
        for measured in (found[name]["measured"] for name in ("one Kafka node", "three Kafka nodes"))
    )
    assert f"on one node {one[0]} with 10 tasks, {one[1]} with 100, {one[2]} with 1,000" in page
    assert f"on three nodes {three[0]}, {three[1]} and {three[2]}" in page
