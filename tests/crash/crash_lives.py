"""Runs: a first life from an empty disk, crashes at moments of it, and the lives that follow."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from eoslog.broker.main import StartError
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from tests.crash.crash_auditor import Clients, Unavailable, audit, settle
from tests.crash.crash_clients import PLACES, Broken, Idempotent, Transactional, expect
from tests.crash.crash_groups import Admin, Member
from tests.crash.crash_machine import Disk, Machine, Outcome, Picture, after_crash, picture, run


class Refused(Exception):
    """The broker did not start, or keeps a partition offline, and says why: loud, never silent."""


def new_clients() -> Clients:
    """The clients of a run, before their first request."""
    return Clients(
        [Idempotent("plain")],
        [Transactional("old"), Transactional("new", tv2=True)],
        [Member("workers")],
        [Admin("admin")],
    )


@dataclass
class Life:
    """What one life left: pictures by the number of the change they were taken before."""

    changes: int
    pictures: dict[int, Picture]
    begun: int = 0
    """Changes that the start and the recovery made."""


Wanted = Callable[[int], bool]


def live(
    disk: Disk,
    clients: Clients,
    seed: int,
    *,
    work: int,
    wanted: Wanted = lambda number: False,
    segment_bytes: int = 2000,
) -> Life:
    """Start, judge what is found, let the clients go on and end all they began, judge again.

    Takes a picture before each change of the disk that is `wanted`. Raises Violation, Refused.
    """
    life = Life(0, {})

    def before_change(number: int) -> None:
        if wanted(number):
            life.pictures[number] = picture(disk, clients)

    async def main() -> None:
        disk.before_change = before_change
        try:
            machine = await Machine.start(disk, segment_bytes)
        except StartError as error:
            raise Refused(str(error)) from error
        life.begun = disk.changes
        await settle()
        try:
            await _make_topics(machine)
            await audit(machine, clients, final=False)
            random = Random(seed)
            seeds = [Random(random.random()) for _ in clients.everybody]
            await asyncio.gather(
                *(
                    client.go_on(machine, own, work)
                    for client, own in zip(clients.everybody, seeds, strict=True)
                )
            )
            await settle()
            await audit(machine, clients, final=True)
        except (Unavailable, Broken) as error:
            raise Refused(str(error)) from error
        life.changes = disk.changes

    run(seed, main)
    return life


async def _make_topics(machine: Machine) -> None:
    """Those that all write to; also after a crash that came before they were there."""
    channel = machine.connect("setup")
    for name in sorted({topic for topic, _ in PLACES}):
        count = 1 + max(index for topic, index in PLACES if topic == name)
        message = await channel.ask(
            ApiKey.CREATE_TOPICS, 7, timeout_ms=1000,
            topics=[{"name": name, "num_partitions": count, "replication_factor": 1}],
        )  # fmt: skip
        expect(message["topics"][0]["error_code"], f"creates {name}", ErrorCode.TOPIC_ALREADY_EXISTS)


def follow(
    taken: Picture, outcome: Outcome, seed: int, *, work: int = 1, wanted: Wanted = lambda number: False
) -> Life:
    """The life after a crash."""
    disk, clients = after_crash(taken, outcome, seed)
    return live(disk, clients, seed, work=work, wanted=wanted)


@dataclass
class Count:
    """What a run of the judge has tried."""

    points: int = 0
    outcomes: int = 0
    refused: int = 0

    def __str__(self) -> str:
        return f"{self.points} crash points, {self.outcomes} outcomes, {self.refused} loud refusals"


# What a disk may leave that keeps the order of a file's writes; PAGES does not: there the broker may refuse.
ORDERED = (Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX)


Outcomes = Callable[[int], tuple[Outcome, ...]]


def all_ordered(number: int) -> tuple[Outcome, ...]:
    """Every outcome after which the broker has to be there again."""
    return ORDERED


def try_all(life: Life, seed: int, count: Count, outcomes: Outcomes = all_ordered, work: int = 1) -> None:
    """Follow every picture, with outcomes by its number. Raises Violation; Refused unless pages were lost."""
    for number, taken in life.pictures.items():
        count.points += 1
        for outcome in outcomes(number):
            count.outcomes += 1
            try:
                follow(taken, outcome, seed + number, work=work)
            except Refused:
                if outcome is not Outcome.PAGES:
                    raise
                count.refused += 1
            except AssertionError as error:
                error.add_note(f"seed {seed}, crash before change {number}, outcome {outcome.value}")
                raise


def _early(number: int) -> bool:
    return number < 30


def _every(step: int, number: int) -> bool:
    return number % step == 0


def random_lives(seed: int, generations: int, count: Count, work: int = 3) -> None:
    """Crash after crash: each life ends at a random change of it, often within its recovery.

    In some lives a call to the disk fails before, and the broker goes on or refuses.
    """
    random = Random(seed)
    disk, clients = Disk(), new_clients()
    for generation in range(generations):
        failing = random.random() < 0.25
        if failing:
            disk.fail_at, disk.error = random.randint(1, 250), random.choice([errno.EIO, errno.ENOSPC])
        early, step = random.random() < 0.4, random.randint(5, 60)
        try:
            life = live(
                disk,
                clients,
                seed * 100 + generation,
                work=work,
                wanted=_early if early else partial(_every, step),
                segment_bytes=random.choice([700, 2000, 1 << 20]),
            )
            taken = random.choice(list(life.pictures.values()))
        except Refused:
            if not failing:
                raise
            taken = picture(disk, clients)
        count.points += 1
        count.outcomes += 1
        outcome = random.choice([*ORDERED, Outcome.PREFIX])
        disk, clients = after_crash(taken, outcome, random.randrange(1 << 30))
    live(disk, clients, seed, work=work)
