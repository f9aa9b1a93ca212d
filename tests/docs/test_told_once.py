"""Facts that pages told in different ways: each has one page that a test or a figure backs, and others link to it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.blocks import PAGES, ROOT

NUMBER = r"(?:\d[\d,]*|two|three|four|five|six|seven|eight|nine|ten)"
MADE = re.compile(r"<!-- kafka versions -->.*?<!-- end of kafka versions -->", re.DOTALL)
"""Made from results by tests/versions."""

ONE_PAGE = {
    rf"\b{NUMBER}(?: or {NUMBER})? (?:more )?round trips|round trips \(\d+": "docs/exactly-once.md",
}
"""What a page may say only there -> that page ("" for none). Behind it: test_round_trips.py counts them."""


def found(pattern: str) -> Iterator[tuple[str, str]]:
    """Each page that says it, and what it says."""
    for page in PAGES:
        for said in re.findall(pattern, MADE.sub("", page.read_text())):
            yield str(page.relative_to(ROOT)), said


@pytest.mark.parametrize("pattern", ONE_PAGE)
def test_a_fact_stands_on_one_page(pattern: str) -> None:
    page = ONE_PAGE[pattern]
    assert [(where, said) for where, said in found(pattern) if where != page] == []
