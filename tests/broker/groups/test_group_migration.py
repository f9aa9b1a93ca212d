"""Members of both protocols come to one group and leave it, in any order, with restarts of the broker.

However the group goes between the protocols: no partition is read by two members at the same time, and when
nobody comes or goes any more, every partition has its reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from consumer_world import Client
from group_life import Life, assignment, subscription, world

from eoslog.broker.rules.classic_events import (
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    Leave,
    Sync,
    SyncAnswer,
)
from eoslog.broker.rules.consumer_events import Beat, BeatAnswer
from eoslog.broker.rules.consumer_protocol import read_assignment
from eoslog.broker.rules.consumer_state import Part
from eoslog.protocol.errors import ErrorCode as E

SESSION_MS = 5_000
"""A member whose leaving a crash has undone is a member until then: only a rebalance is put down."""


def now(awaitable: Awaitable[Any]) -> Any:
    """The value of something that has no need to wait."""
    try:
        next(awaitable.__await__())
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


class Door:
    """The coordinator as clients of the consumer protocol reach it; it is replaced by a restart."""

    def __init__(self, life: Life) -> None:
        self.life = life

    def beat(self, event: Beat) -> BeatAnswer:
        pending = self.life.groups.consumer_heartbeat("g", event)
        self.life.sync()
        answer: BeatAnswer = now(pending)
        return answer


@dataclass
class Classic:
    """A member of the classic protocol. It gives everything back before it joins again (eager)."""

    door: Door
    name: str
    member_id: str = ""
    generation: int = -1
    reading: set[Part] = field(default_factory=set)
    pending: asyncio.Future[Any] | None = None

    def step(self) -> None:
        """Take an answer in and ask what follows from it, or send a heartbeat."""
        if self.pending is None:
            self._join() if self.generation < 0 else self._heartbeat()
        elif self.pending.done():
            answer, self.pending = self.pending.result(), None
            self._heard(answer)

    def _join(self) -> None:
        self.reading = set()
        protocols = (("range", subscription("t")),)
        new_id = f"{self.name}-{self.door.life.clock.now}"
        event = Join(self.member_id, None, "c", "h", "consumer", protocols, SESSION_MS, 60_000, new_id)
        self.pending = self.door.life.groups.join("g", event)

    def _heartbeat(self) -> None:
        event = Heartbeat(self.member_id, None, self.generation)
        self.pending = self.door.life.groups.heartbeat("g", event)

    def _heard(self, answer: JoinAnswer | SyncAnswer | HeartbeatAnswer) -> None:
        if answer.error is E.MEMBER_ID_REQUIRED and isinstance(answer, JoinAnswer):
            self.member_id = answer.member_id
        elif answer.error is E.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation, self.reading = "", -1, set()
        elif answer.error is not E.NONE:
            self.generation = -1
        elif isinstance(answer, JoinAnswer):
            self.generation = answer.generation
            self._sync(answer)
        elif isinstance(answer, SyncAnswer):
            parts, _ = read_assignment(answer.assignment, self.door.life.groups.consumers._cluster)
            self.reading = set(parts)

    def _sync(self, joined: JoinAnswer) -> None:
        names = sorted(member for member, _, _ in joined.members)
        given = {name: assignment("t", *range(at, 4, len(names))) for at, name in enumerate(names)}
        event = Sync(self.member_id, None, self.generation, "consumer", "range", given)
        self.pending = self.door.life.groups.sync("g", event)

    def leave(self) -> None:
        self.door.life.groups.leave("g", Leave(((self.member_id, None),)))
        self.reading = set()


@dataclass
class Group:
    """The clients of one group."""

    door: Door
    new: list[Client] = field(default_factory=list)
    old: list[Classic] = field(default_factory=list)
    names: int = 0

    def come(self, kind: str) -> None:
        self.names += 1
        if kind == "new":
            self.new.append(Client(self.door, f"n{self.names}", frozenset({"t"})))  # type: ignore[arg-type]
        else:
            self.old.append(Classic(self.door, f"o{self.names}"))

    async def turn(self, random: Random | None = None) -> None:
        """All clients do their next step, or, at random, some of them."""
        clients: list[Client | Classic] = [*self.new, *self.old]
        for client in clients:
            if random is not None and random.random() < 0.3:
                continue
            if isinstance(client, Classic):
                client.step()
            else:
                client.beat()
                if random is None or random.random() < 0.7:
                    client.obey()
            self.check()
        self.door.life.sync()
        self.door.life.clock.now += 50
        self.door.life.groups.consumers._expire("g")
        if self.door.life.groups.describe("g") is not None:
            self.door.life.groups._members._tick("g")
        await asyncio.sleep(0.003)

    def check(self) -> None:
        read = [part for client in [*self.new, *self.old] for part in client.reading]
        assert len(read) == len(set(read)), "two members read one partition"

    async def settle(self) -> None:
        quiet = 0
        for _ in range(300):
            before = [set(client.reading) for client in [*self.new, *self.old]]
            await self.turn()
            read = sum(len(client.reading) for client in [*self.new, *self.old])
            same = before == [set(client.reading) for client in [*self.new, *self.old]]
            quiet = quiet + 1 if same and read == 4 else 0
            if quiet == 8:
                break
        else:
            raise AssertionError(f"it does not settle: {self.new} {self.old} {self.door.life.seen()}")
        consumer = self.door.life.groups.describe_consumer("g")
        if self.new:
            assert consumer is not None and len(consumer.members) == len(self.new) + len(self.old)
        else:
            assert consumer is None, "the last of the new ones has gone: it is a classic group again"

    def go(self, random: Random) -> None:
        """Somebody leaves who knows that it is in the group."""
        clients: list[Client | Classic] = [c for c in self.new if c.epoch > 0]
        clients += [c for c in self.old if c.generation >= 0]
        if not clients:
            return
        client = random.choice(clients)
        if isinstance(client, Classic):
            self.old.remove(client)
            client.leave()
        elif client.beat() is E.NONE:
            self.new.remove(client)
            client.leave()

    def restart(self) -> None:
        """The broker is killed; who waited for an answer gets none and asks again."""
        life = self.door.life
        life.sync()
        life.groups.close()
        life.topics._close_files()
        fs = life.topics.fs
        fs.locked.clear()  # type: ignore[attr-defined]
        self.door.life = Life(fs, life.clock.now)  # type: ignore[arg-type]
        for client in self.old:
            if client.pending is not None:
                client.pending, client.generation = None, -1


@pytest.mark.parametrize("seed", range(16))
def test_groups_of_both_protocols(seed: int) -> None:
    async def story() -> None:
        random, group = Random(seed), Group(Door(Life(world())))
        group.come(random.choice(["new", "old"]))
        for _ in range(12):
            kinds = ["new", "old", "go", "go", "restart"]
            act = random.choice(kinds if len(group.new) + len(group.old) < 4 else ["go", "restart"])
            if act == "go":
                group.go(random)
            elif act == "restart":
                group.restart()
            else:
                group.come(act)
            if not group.new and not group.old:
                group.come("old")
            for _ in range(random.randint(0, 8)):
                await group.turn(random)
            if random.random() < 0.4:
                await group.settle()
        await group.settle()
        group.door.life.groups.close()

    asyncio.run(asyncio.wait_for(story(), 60))
