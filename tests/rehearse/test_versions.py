"""What the table of docs/rehearse.md says is what the runs printed; and what tells 4.0.0 from the others."""

from __future__ import annotations

import json

import pytest

from tests.rehearse.rehearsing import not_holding, verdicts
from tests.rehearse.run_versions import BEGIN, END, KEPT, PAGE, Node, rehearsed, table

PROOF = "proof of a time-out"


def test_the_page_has_what_was_printed() -> None:
    printed = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert printed == table(json.loads(KEPT.read_text()))


@pytest.mark.kafka
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("level", "verdict"), [("1", "holds"), ("2", "note")])
def test_a_time_out_of_4_0_0_cannot_be_told_from_another_history(level: str, verdict: str) -> None:
    """Its transaction.version 2 raises the epoch by two."""
    found = rehearsed(Node("4.0.0", level))
    assert verdicts(found)[PROOF] == verdict and not not_holding(found), found
