"""Requests and answers of the commit protocol, as stories to read: transcripts/*.txt, first_start.txt first.

    EOSLOG_REWRITE=1 python -m pytest tests/connector/commit/test_transcripts.py

writes them as the rules are now. Read the difference before it is committed.
"""

import os
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.connector.commit import rules_broken as broken
from tests.connector.commit import test_model_sees as sees
from tests.connector.commit.transcript import told_anew

_FOLDER = Path(__file__).parent / "transcripts"
_REWRITE = "EOSLOG_REWRITE"
_BREAKS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (sees.no_roll_forward, "killed_after_the_decision"),
    (sees.left_overs_cleared_before_the_roll_forward, "killed_after_the_decision"),
    (sees.leftovers_not_cleared, "killed_after_prepare"),
    (sees.parity_ignored, "batches_tv2"),
    (broken.acquired_without_a_look, "first_start"),
    (broken.begin_never_goes_on, "batches_tv2"),
    (broken.epoch_not_raised, "batches_tv1"),
    (broken.winners_not_verified, "timed_out_before_the_decision"),
    (broken.not_sealed, "sealing"),
    (broken.partitions_not_asked, "killed_in_finish"),
    (broken.earlier_queries_forgotten, "new_checkpoint"),
]


def difference(text: str) -> str:
    """From what a transcript tells to what the rules do; "": there is none."""
    lines, now = text.splitlines(), told_anew(text).splitlines()
    return "\n".join(unified_diff(lines, now, "as told", "as the rules do", lineterm=""))


@pytest.mark.parametrize("path", sorted(_FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    if os.environ.get(_REWRITE):
        path.write_text(told_anew(path.read_text()))
    text = path.read_text()
    assert text.startswith("# "), "a head says what is told"
    assert "\n  ? " not in text, "an act that could not be done"
    found = difference(text)
    assert not found, f"{path.name} tells it otherwise. If that is meant: {_REWRITE}=1, and read it\n{found}"


@pytest.mark.parametrize(("rule", "name"), _BREAKS, ids=lambda told: getattr(told, "__name__", told))
def test_a_broken_rule_makes_another_story(
    monkeypatch: pytest.MonkeyPatch, rule: Callable[[pytest.MonkeyPatch], None], name: str
) -> None:
    rule(monkeypatch)
    assert difference((_FOLDER / f"{name}.txt").read_text())


@pytest.mark.parametrize("act", ["driver 1 does as it likes", "driver 1 begins batch 0; struck by lightning"])
def test_an_act_that_nobody_knows_is_refused(act: str) -> None:
    with pytest.raises(ValueError, match="nobody knows what this is"):
        told_anew(f"# A story\n{act}\n")


def test_an_act_that_could_not_be_done_is_told() -> None:
    told = told_anew(
        "driver 1 begins batch 0; killed before EndTxn(commit) sink\nlook; killed after EndTxn\n"
    )
    assert told.count("\n  ? it never came to that") == 2
    fenced = "driver 1 begins batch 0\ndriver 2 begins batch 1\ndriver 1 begins batch 1\n"
    assert "\n  ? driver 1 has begun nothing" in told_anew(f"{fenced}task 0 of driver 1 writes a\n")
    assert "\n  ? driver 1 has not begun it" in told_anew(f"{fenced}driver 1 ends batch 1\n")
