"""What a process keeps for good is set aside twice, not at every call; what is made later is collected."""

import gc
import os
import weakref
from collections.abc import Iterator

import pytest

from eoslog.connector import longlived


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(longlived, "_seen", (-1, 0))
    gc.unfreeze()
    yield
    gc.unfreeze()


class Ring:
    """An object that only the cycle collector can free."""

    def __init__(self) -> None:
        self.itself = self


def is_collected_after_settling() -> bool:
    ring = Ring()
    gone = weakref.ref(ring)
    longlived.settle()
    del ring
    gc.collect()
    return gone() is None


def test_two_calls_set_aside_what_is_there_and_no_more() -> None:
    assert [is_collected_after_settling() for _ in range(4)] == [False, False, True, True]
    assert gc.get_freeze_count() > 0


def test_a_forked_process_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        longlived.settle()
    monkeypatch.setattr(os, "getpid", lambda: -2)
    assert not is_collected_after_settling()


def test_rows_of_a_task_are_collected_as_ever() -> None:
    longlived.settle()
    made = Ring()
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None
