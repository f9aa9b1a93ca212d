"""When the broker looks among all objects for garbage."""

import asyncio
import gc

import pytest

from eoslog.broker.fairness import garbage
from eoslog.broker.fairness.garbage import LATEST_SECONDS, GarbageWatch

DUE = 10


def test_it_looks_when_python_would_have() -> None:
    watch = GarbageWatch(DUE)
    assert not watch.is_time(0, DUE - 1, busy=False)
    assert watch.is_time(1, DUE, busy=False)


def test_not_while_something_large_is_served_but_not_much_later_either() -> None:
    watch = GarbageWatch(DUE)
    assert not watch.is_time(0, DUE, busy=True)
    assert not watch.is_time(LATEST_SECONDS - 0.1, DUE, busy=True)
    assert watch.is_time(LATEST_SECONDS, DUE, busy=True)
    assert not watch.is_time(LATEST_SECONDS + 1, DUE, busy=True)  # it is due anew


def test_what_was_due_and_was_done_by_others_is_due_no_more() -> None:
    watch = GarbageWatch(DUE)
    assert not watch.is_time(0, DUE, busy=True)
    assert not watch.is_time(1, 0, busy=True)
    assert not watch.is_time(LATEST_SECONDS + 1, DUE, busy=True)


def test_python_does_not_do_it_by_itself_while_we_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    looks = []
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, before[2]))
    monkeypatch.setattr(gc, "collect", lambda: looks.append(gc.get_threshold()))

    async def watched() -> None:
        task = asyncio.create_task(garbage.watch(lambda: False))
        while not looks:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(watched())
    assert looks[0][:2] == before[:2] and looks[0][2] > 1_000_000
    assert gc.get_threshold() == before
