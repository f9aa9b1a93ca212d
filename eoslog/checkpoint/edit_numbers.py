"""The numbers of a checkpoint's edits, and the processes that edit.

Each number is taken by one edit, which has seen the one before it. File systems of object stores have no
exclusive create. So an edit writes a claim under a name that is its own alone, and then looks for others: of
two at once, at least one sees the other and stops.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from socket import gethostname
from typing import NamedTuple

from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.spark.processes import ProcessIdentity, lives, this_process
from eoslog.errors import EoslogError


class NotEditable(EoslogError):
    """An edit or a look is refused; the message says why, and what to do."""


class NotRestorable(EoslogError):
    """A checkpoint cannot be restored from the topic of state.topic; the message says why."""


class Editor(NamedTuple):
    """`started`: when, as the system counts it, for a pid may be used again."""

    host: str
    pid: int
    started: str

    @classmethod
    def this(cls) -> Editor:
        """This process."""
        return cls(gethostname(), *this_process())

    @property
    def works_here(self) -> bool:
        """Whether it is another process of this machine, and lives."""
        known = ProcessIdentity(self.pid, self.started)
        return not self.elsewhere and known != this_process() and lives(known)

    @property
    def elsewhere(self) -> bool:
        """Whether it is on another machine: whether it lives cannot be seen."""
        return self.host != gethostname()


_EDIT = re.compile(r"edit-(\d{4,})")
_CLAIM = re.compile(r"claim-[0-9a-f]{32}")


@dataclass(frozen=True)
class LastEdit:
    """The newest edit when a checkpoint was looked at: its number (0: none), and the text of its backup."""

    number: int
    text: str | None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> LastEdit:
        """Raises CheckpointUnreadable."""
        number = newest_number(checkpoint)
        return cls(number, checkpoint.noted(numbered(number)) if number else None)


@contextmanager
def claimed(checkpoint: Checkpoint, seen: LastEdit) -> Iterator[str]:
    """The name for the backup of a new edit, to be written inside. Nobody else writes it, and nobody has made
    an edit or taken one back since `seen`. Raises NotEditable, CheckpointUnreadable."""
    own = f"claim-{uuid.uuid4().hex}"
    checkpoint.note(own, json.dumps(Editor.this()))
    try:
        check_alone(checkpoint, seen, own)
        yield numbered(seen.number + 1)
    finally:
        checkpoint.forget(own)


def check_alone(checkpoint: Checkpoint, seen: LastEdit, own: str | None = None) -> None:
    """Raise NotEditable if another edit is about to begin, or has been made since `seen`. `own`: a claim that
    does not count. Those of the dead are removed. Raises CheckpointUnreadable."""
    # Claims first: who removes its claim has written its backup, which the second look finds.
    claims = [name for name in checkpoint.notes() if _CLAIM.fullmatch(name) and name != own]
    others = [name for name in claims if _is_alive(checkpoint, name)]
    for dead in set(claims) - set(others):
        checkpoint.forget(dead)
    if others:
        raise NotEditable(
            "another edit of this checkpoint begins at this moment; nothing was changed. Look at the "
            f"checkpoint again. If no other edit runs, one has died in its first step: delete "
            f"eoslog/{others[0]}"
        )
    if LastEdit.of(checkpoint) != seen:
        raise NotEditable(
            "another edit was made, or taken back, since this one looked at the checkpoint; nothing was "
            "changed. Look at the checkpoint again"
        )


def _is_alive(checkpoint: Checkpoint, claim: str) -> bool:
    """Whether its edit may be at work: it has not died on this machine. One that cannot be read is: somebody
    writes it."""
    try:
        by = Editor(*json.loads(checkpoint.noted(claim) or ""))
    except (ValueError, TypeError):
        return True
    return by.elsewhere or by.works_here


def is_name(text: str) -> bool:
    """Whether a backup may be called so."""
    return _EDIT.fullmatch(text) is not None


def numbers(checkpoint: Checkpoint) -> list[int]:
    """Those of all edits, in order. Raises CheckpointUnreadable."""
    found = (_EDIT.fullmatch(name) for name in checkpoint.notes())
    return sorted(int(match[1]) for match in found if match)


def newest_number(checkpoint: Checkpoint) -> int:
    """The last edit's; 0: there was none. Raises CheckpointUnreadable."""
    return max(numbers(checkpoint), default=0)


def numbered(number: int) -> str:
    """The name of an edit's backup."""
    return f"edit-{number:04d}"
