"""A crash at every change of the disk in the life of groups of both protocols and their offsets.

After the restart everything is as it was after the last step that was answered, or as after the one that was
under way: never in between, and never older.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from eoslog.broker.coordinator.groups.classic_group_state import Leave
from eoslog.broker.coordinator.groups.committed_offsets import Committer
from tests.broker.coordinator.groups.group_life import (
    MINUTE_MS,
    START_MS,
    FakeFileSystem,
    Life,
    Outcome,
    PowerLoss,
    disk_with_topics,
)


async def new_protocol(life: Life) -> AsyncIterator[None]:
    """Two members share, commit, leave for a while and for ever."""
    await life.join("m1", instance_id="i")
    yield
    await life.join("m2", topics=frozenset(), regex="t.?")
    yield
    await life.commit(Committer("g", "m1", None, 2), 5)
    yield
    answer = await life.beat("m1", 2)
    assert answer.assignment is not None
    kept = {index for _, index in answer.assignment}
    yield
    await life.beat("m1", 2, kept)
    yield
    await life.beat("m2", 3)
    yield
    await life.beat("m1", -2, instance_id="i")
    yield
    await life.join("m3", instance_id="i")
    yield
    await life.beat("m2", -1)
    yield
    await life.beat("m3", -1, instance_id="i")
    yield
    await life.durable(life.groups.delete("g"))
    yield


async def both_protocols(life: Life) -> AsyncIterator[None]:
    """A classic group makes room for a consumer group; its offsets stay till they expire."""
    old = await life.classic()
    yield
    await life.commit(Committer("g", old, None, 1), 7)
    yield
    await life.durable(life.groups.leave("g", Leave(((old, None),))))
    yield
    await life.join("new")
    yield
    await life.beat("new", -1)
    yield
    await life.join("late")
    yield
    await life.beat("late", -1)
    yield
    await life.durable(life.groups.delete_offsets("g", [("t", 0)]))
    yield
    await life.commit(Committer("g"), 9)
    yield
    life.clock.now += 2 * MINUTE_MS
    await life.groups.expire()  # Nobody is told, so nothing waits for it to be durable.
    life.sync()
    yield


Story = Callable[[Life], AsyncIterator[None]]


async def told(fs: FakeFileSystem, story: Story, steps: int | None) -> tuple[list[object], bool]:
    """Live until the story or the power ends; what was seen after each step, and whether it was all."""
    life = Life(fs)
    fs.steps_left = steps
    seen = [life.seen()]
    try:
        async for _ in story(life):
            seen.append(life.seen())
    except PowerLoss:
        # What the step under way had in mind counts as well.
        seen.append(life.seen())
        return seen, False
    finally:
        life.groups.close()
    return seen, True


@pytest.mark.parametrize("story", [new_protocol, both_protocols])
def test_a_crash_at_every_point(story: Story) -> None:
    whole, ended = asyncio.run(told(disk_with_topics(), story, None))
    assert ended and len({repr(seen) for seen in whole}) > 6
    crashes, steps = 0, 0
    while True:
        finished = False
        for seed, outcome in enumerate((Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX, Outcome.PAGES)):
            fs = disk_with_topics()
            seen, finished = asyncio.run(told(fs, story, steps))
            fs.crash(outcome, Random(steps * 10 + seed))
            asyncio.run(check(fs, seen, finished))
            crashes += 1
        if finished:
            break
        steps += 1
    assert crashes > 60


async def check(fs: FakeFileSystem, seen: list[object], finished: bool) -> None:
    after = Life(fs, START_MS + 3 * MINUTE_MS)
    found = after.seen()
    allowed = seen[-1:] if finished else seen[-2:]
    assert found in allowed, f"found {found}\nallowed {allowed}"
    after.groups.close()
