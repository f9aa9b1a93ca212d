"""A rehearsal's crash under load names each broker that forgets something in it, and none that is whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from eoslog.broker.coordinator.transactions.transaction_changes import Changes
from eoslog.rehearse.rows import Verdict
from tests.broker.coordinator.transactions import test_transaction_crash as coordinators
from tests.crash import test_crash_judge_judged as judged
from tests.rehearse.broken_brokers import (
    ANY,
    BROKEN,
    BROKEN_IN_CRASHES,
    BROKEN_UNDER_LOAD,
    ROWS,
    STATES,
    Break,
)
from tests.rehearse.crashing import crashed

CRASHES = 80
"""A crash shows what is broken only at some moments: so many are tried."""
ON_OTHER_DISKS = {"no_fdatasync": "files_are_not_synced", "no_directory_sync": "directories_are_not_synced"}
"""They break the file system of the crash judge; these do the same to that of the embedded broker."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    log = logging.getLogger("eoslog")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("broken", "slow"), BROKEN_UNDER_LOAD, ids=[entry[0].__name__ for entry in BROKEN_UNDER_LOAD]
)
def test_a_broker_that_forgets_in_a_crash_is_named(broken: Break, slow: str) -> None:
    for seed in range(CRASHES):
        seen = crashed(broken, "some" if seed % 2 else "nothing", slow, seed)
        if seen.verdict is not Verdict.HOLDS:
            print(f"{broken.__name__}, crash {seed}: {seen.what}")
            return
    pytest.fail(f"{CRASHES} crashes hold: {seen.what}")


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("slow", [ANY, STATES, ROWS])
def test_a_whole_broker_holds(slow: str) -> None:
    for seed in range(4):
        seen = crashed(None, "some" if seed % 2 else "nothing", slow, seed)
        assert seen.verdict is Verdict.HOLDS and "under load" in seen.what, seen


def test_each_broken_broker_of_the_suite_is_here() -> None:
    """Those of the crash judge and of the coordinator; a further file that has some is to be added here."""
    here = {entry[0].__name__ for entry in (*BROKEN, *BROKEN_UNDER_LOAD)}
    here |= {broken.__name__ for broken in BROKEN_IN_CRASHES}
    there = {ON_OTHER_DISKS.get(broken.__name__, broken.__name__) for broken, _ in judged.BROKEN}
    there |= {kind.__name__ for kind in vars(coordinators).values() if _is_broken(kind)}
    assert len(there) >= 21 and there <= here, there - here


def _is_broken(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Changes) and kind is not Changes
