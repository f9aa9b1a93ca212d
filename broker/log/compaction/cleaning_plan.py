"""The plan of one compaction run: made on the event loop, executed in a thread.

It stands apart from `cleaning_run`, which needs NumPy: the broker's start does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from eoslog.broker.log.compaction.compaction_rules import CleaningFacts
from eoslog.broker.log.segment.segment import Segment
from eoslog.broker.rules.producer_state import AbortedTransaction


class SealedSegment(NamedTuple):
    """A sealed segment as it was when the plan was made."""

    segment: Segment
    path: str
    size: int
    next_offset: int


@dataclass(frozen=True)
class CleaningPlan:
    """The input of a run. Sizes in bytes."""

    directory: str
    interval: int  # index.interval.bytes
    sources: list[SealedSegment]  # all sealed segments up to `end`, from the start of the log on
    first_dirty: int
    end: int
    groups: list[list[SealedSegment]]
    aborted: list[AbortedTransaction]
    facts: CleaningFacts
