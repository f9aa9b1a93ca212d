"""Random lives of a log that is compacted and trimmed, with crashes, held against a dumb model."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from eoslog.broker.log.segment.log_settings import LogSettings
from tests.broker.log.fakefs import Outcome
from tests.broker.log.upkept_partition import HOUR, UpkeptPartition, survive

STRIDE = int(os.environ.get("EOSLOG_CRASH_STRIDE", "9"))
SEEDS = range(7, 7 + int(os.environ.get("EOSLOG_CRASH_LIVES", "1")))
KEYS = [b"a", b"b", b"c", b"d"]
COMPACTED = LogSettings(
    segment_bytes=1024,
    index_interval_bytes=200,
    compacted=True,
    deleted=False,
    delete_retention_ms=3 * HOUR,
    timestamp_after_max_ms=10**12,
    producer_id_expiration_ms=10**12,
)
BOTH = replace(COMPACTED, deleted=True, retention_bytes=2500, retention_ms=20 * HOUR)
TRIMMED = replace(BOTH, compacted=False)

VALUE = st.one_of(st.none(), st.binary(min_size=1, max_size=200))
PAIRS = st.lists(st.tuples(st.sampled_from(KEYS), VALUE), min_size=1, max_size=4)
PUT = st.tuples(
    st.just("put"), st.sampled_from([-1, 1, 2]), PAIRS, st.booleans(), st.sampled_from([0, 0, 0, 1, 2, 3, 4])
)
STEP = st.one_of(
    PUT,
    PUT,
    PUT,
    st.tuples(st.just("mark"), st.sampled_from([1, 2]), st.booleans()),
    st.tuples(st.just("sync")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from([1, 3, 1000])),
    st.tuples(st.just("wait"), st.integers(1, 4)),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("check")),
    st.tuples(st.just("restart"), st.sampled_from([None, Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX])),
)
FEW = st.lists(st.tuples(st.sampled_from(KEYS[:2]), st.sampled_from([None, b"v"])), min_size=1, max_size=2)
TRANSACTION = st.builds(
    lambda pid, pairs, commit: [("put", pid, pairs, True, 0), ("mark", pid, commit), ("sync",), ("roll",)],
    *(st.sampled_from([1, 2]), FEW, st.booleans()),
)
CLEANED = st.builds(
    lambda keys, hours: [("clean", keys), ("wait", hours)], st.sampled_from([1, 1000]), st.integers(1, 4)
)
TRIM = st.one_of(st.tuples(st.just("retain")), st.tuples(st.just("delete"), st.floats(0, 1)))


def live(limits: LogSettings, steps: list[tuple[object, ...]], seed: int) -> None:
    upkept = UpkeptPartition(limits, seed)
    survive(upkept, [*steps, ("check",), ("roll",), ("clean", 1000), ("check",), ("restart", Outcome.PREFIX)])


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=15, max_size=50), st.integers(0, 2**32))
def test_a_compacted_log_says_what_was_written(steps: list[tuple[object, ...]], seed: int) -> None:
    live(COMPACTED, steps, seed)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(STEP, STEP, TRIM), min_size=15, max_size=50), st.integers(0, 2**32), st.booleans())
def test_a_log_that_is_trimmed_and_compacted_says_what_is_left(
    steps: list[tuple[object, ...]], seed: int, compacted: bool
) -> None:
    live(BOTH if compacted else TRIMMED, steps, seed)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(TRANSACTION, TRANSACTION, CLEANED), min_size=6, max_size=20), st.integers(0, 2**32))
def test_a_log_of_transactions_says_what_they_wrote(pieces: list[list[Any]], seed: int) -> None:
    """Each is ended, sealed and compacted soon: what an earlier run has left behind counts in the next."""
    live(COMPACTED, [step for piece in pieces for step in [*piece, ("check",)]], seed)


def busy(random: Random, trimmed: bool) -> list[tuple[Any, ...]]:
    """A life in which everything happens: transactions over segments, tombstones, several compactions."""
    steps: list[tuple[Any, ...]] = []
    for _ in range(4):
        for _ in range(3):
            pairs = [(random.choice(KEYS), random.choice([None, b"v" * 150, b"w"])) for _ in range(2)]
            steps.append(("put", random.choice([-1, 1, 2]), pairs, random.random() < 0.6, 0))
        steps += [("mark", random.choice([1, 2]), random.random() < 0.5), ("sync",), ("roll",)]
        steps.append(("clean", random.choice([2, 1000])))
        steps.append(("wait", 2))
        if trimmed:
            steps.append(random.choice([("retain",), ("delete", 0.4)]))
    return [*steps, ("mark", 1, True), ("mark", 2, False), ("sync",), ("roll",), ("clean", 1000)]


@pytest.mark.parametrize("limits", [COMPACTED, BOTH, TRIMMED])
@pytest.mark.parametrize("outcome", [Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX])
def test_a_crash_at_every_single_change_of_the_disk(limits: LogSettings, outcome: Outcome) -> None:
    """In the suite at every `STRIDE`th change; `make crash-log` takes all, with several lives."""
    crashes = 0
    for seed in SEEDS:
        steps = busy(Random(seed), limits.deleted)
        for at in range(list(Outcome).index(outcome) % STRIDE, 10**6, STRIDE):
            upkept = UpkeptPartition(limits, at)
            upkept.disk.fs.steps_left = at
            if not survive(upkept, steps):
                break
            upkept.restart(outcome)
            upkept.roll()
            upkept.clean(1000)
            upkept.check()
            crashes += 1
    print(f"{crashes} crash points, {outcome.value} of what was not synced kept")
    assert crashes >= 100 / STRIDE
