"""Two edits of one checkpoint at once: the second runs whole at each step of the first. Each is carried out
as if it were alone, or changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from eoslog.checkpoint import carry_out, edit_numbers
from eoslog.checkpoint.edit_numbers import LastEdit, NotEditable, claimed
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.files import LocalFiles
from eoslog.connector.spark.processes import ProcessIdentity
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.plain_checkpoint import run

Act = Callable[[], bool]
ANOTHER = ProcessIdentity(1, "another process")
_FIRST, _BEFORE = 20, 17
"""Where the query stood before all edits, and before the two."""


def position(checkpoint: Path) -> int:
    """Where it stands: the end of its one partition."""
    (ends,) = json.loads((checkpoint / "offsets" / "1").read_text().splitlines()[2]).values()
    return int(ends["0"])


class Interrupted:
    """Runs `other` before step number `at` of what comes next; the steps: looks at the notes, and changes of
    files."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, other: Act) -> None:
        self.at, self.other, self.steps, self.succeeded = at, other, 0, False
        for name in ("names", "put", "remove"):
            patch.setattr(LocalFiles, name, self._stepping(getattr(LocalFiles, name)))

    def _stepping(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*given: Any, **named: Any) -> Any:
            step, self.steps = self.steps, self.steps + 1
            if step == self.at:
                self.succeeded = self.other()
            return call(*given, **named)

        return stepped


@pytest.mark.long
@pytest.mark.parametrize("kind", ["plain", "decided"])
@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("rewind", "rewind", {_BEFORE - 7}),
        ("rewind", "undo", {_BEFORE, _FIRST - 5}),
        ("undo", "rewind", {_BEFORE, _FIRST - 2}),
    ],
)
def test_each_is_whole_or_changes_nothing(
    broker: EmbeddedBroker,
    request: pytest.FixtureRequest,
    kind: str,
    first: str,
    second: str,
    both: set[int],
) -> None:
    """`both`: where the query may stand if both have succeeded: in this order, or the other."""
    checkpoint: Path = request.getfixturevalue(kind)

    def other_process(act: Act) -> Act:
        def acting() -> bool:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(edit_numbers, "this_process", lambda: ANOTHER)
                return act()

        return acting

    def act(command: str, by: int) -> Act:
        more = ["--by", str(by), "--accept-duplicates", str(by)] if command == "rewind" else []
        return lambda: run(broker, command, checkpoint, *more).exit_code == 0

    alone = {("rewind", 5): _BEFORE - 5, ("rewind", 2): _BEFORE - 2}
    for at in count():
        assert act("rewind", 3)() and position(checkpoint) == _BEFORE
        with pytest.MonkeyPatch.context() as patch:
            between = Interrupted(patch, at, other_process(act(second, 2)))
            has = act(first, 5)()
        wanted = {
            (True, True): both,
            (True, False): {alone.get((first, 5), _FIRST)},
            (False, True): {alone.get((second, 2), _FIRST)},
        }
        assert position(checkpoint) in wanted[has, between.succeeded], f"step {at}"
        assert run(broker, "check", checkpoint).exit_code == 0, f"step {at}"
        if between.steps <= at:
            assert at > 3
            return
        back_to_the_first(broker, checkpoint)


@pytest.mark.parametrize("kind", ["plain", "decided"])
def test_an_edit_of_another_machine_is_left_alone(
    broker: EmbeddedBroker, request: pytest.FixtureRequest, kind: str
) -> None:
    """Nobody sees from here whether it is at work."""
    checkpoint: Path = request.getfixturevalue(kind)

    class Killed(Exception):
        pass

    def die(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edit_numbers, "gethostname", lambda: "elsewhere")
        patch.setattr(carry_out, "_check_files", die)
        assert isinstance(
            run(broker, "rewind", checkpoint, "--by", "3", "--accept-duplicates", "3").exception, Killed
        )
    said = run(broker, "undo", checkpoint)
    assert said.exit_code == 1 and "begun on the machine elsewhere, and may be at work there" in said.output
    assert run(broker, "undo", checkpoint, "--edit-has-ended").exit_code == 0
    assert position(checkpoint) == _FIRST
    assert run(broker, "check", checkpoint).exit_code == 0


def back_to_the_first(broker: EmbeddedBroker, checkpoint: Path) -> None:
    """Go forward to where the query stood before all edits."""
    by = _FIRST - position(checkpoint)
    if by:
        run(broker, "skip-to", checkpoint, "--by", str(by), "--accept-loss", str(by))


def test_of_two_claims_at_least_one_stops(tmp_path: Path) -> None:
    """Both look before either has written its backup."""
    checkpoint = Checkpoint.at(str(tmp_path))
    seen = LastEdit.of(checkpoint)
    with claimed(checkpoint, seen) as name:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(edit_numbers, "this_process", lambda: ANOTHER)
            with pytest.raises(NotEditable, match="begins at this moment"), claimed(checkpoint, seen):
                pass
        checkpoint.note(name, "a backup")
    with pytest.raises(NotEditable, match="was made"), claimed(checkpoint, seen):
        pass
    assert checkpoint.notes() == ["edit-0001"]


@pytest.mark.parametrize(
    ("claim", "stops"),
    [
        ('["HERE", 1, "of a process that has died"]', False),
        ('["another machine", 1, "1"]', True),
        ("", True),
        ("[1]", True),
    ],
)
def test_a_claim_that_was_left(tmp_path: Path, claim: str, stops: bool) -> None:
    """Of an edit that has died on this machine it is in nobody's way."""
    checkpoint = Checkpoint.at(str(tmp_path))
    checkpoint.note(f"claim-{'0' * 32}", claim.replace("HERE", gethostname()))
    if stops:
        with (
            pytest.raises(NotEditable, match=r"delete eoslog/claim-0"),
            claimed(checkpoint, LastEdit(0, None)),
        ):
            pass
    else:
        with claimed(checkpoint, LastEdit(0, None)) as name:
            assert name == "edit-0001"
        assert checkpoint.notes() == []
