"""Lives, crashes at moments of them, the lives that follow, and their judge; `make soak-crash` does it for
minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from eoslog.broker.main import StartError
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import iter_headers
from eoslog.protocol.control import ABORT, read_control
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.plain_records import iter_records
from eoslog.protocol.topic_partitions import TopicPartition
from tests.crash.crash_clients import (
    PLACES,
    Admin,
    Batch,
    Broken,
    Idempotent,
    Member,
    TopicLife,
    Transaction,
    Transactional,
    Violation,
    expect,
)
from tests.crash.crash_machine import Channel, Disk, Machine, Outcome, Picture, after_crash, picture, run

# -- the judge -----------------------------------------------------------------------------------
# The judge: what readers and groups see after a crash against what the clients had been told.
#
# Shares nothing with the broker but the wire format. Reads as a consumer does: every batch of a partition,
# with the aborted transactions that the fetch answers name; records of those, and control records, are for
# the broker to tell and for a reader to leave out.


@dataclass
class Clients:
    """All clients of a run."""

    idempotent: list[Idempotent]
    transactional: list[Transactional]
    members: list[Member]
    admins: list[Admin]

    @property
    def everybody(self) -> list[Any]:
        """All of them."""
        return [*self.idempotent, *self.transactional, *self.members, *self.admins]


@dataclass
class Seen:
    """What a read_committed reader finds in a partition: (offset, value), and where it has to stop.

    `waiting`: what is there from where it has to stop on, as a transaction is open; by value.
    """

    records: list[tuple[int, str]] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)
    stable: int = 0
    end: int = 0


class Unavailable(Exception):
    """The broker says that a partition cannot be read: loud, and judged by the caller."""


async def read(channel: Channel, place: TopicPartition) -> Seen:
    """Read as a read_committed consumer, then on as one that reads all. Raises Unavailable, Violation."""
    seen = await _read_committed(channel, place)
    position = seen.stable
    while position < seen.end:
        part = await _fetch(channel, place, position, committed=False)
        for at, header in iter_headers(part["records"]):
            position = header.last_offset + 1
            if not header.is_control:
                found = iter_records(part["records"], at, header)
                seen.waiting |= {
                    (r.value or b"").decode(): r.offset for r in found if r.offset >= seen.stable
                }
    return seen


async def _read_committed(channel: Channel, place: TopicPartition) -> Seen:
    seen, position, aborting = Seen(), 0, set[int]()
    starts: list[tuple[int, int]] = []  # first offset and producer of aborted transactions
    position = await _beginning(channel, place)
    while True:
        part = await _fetch(channel, place, position)
        seen.stable, seen.end = part["last_stable_offset"], part["high_watermark"]
        starts = sorted(
            {*starts, *((a["first_offset"], a["producer_id"]) for a in part["aborted_transactions"])}
        )
        records = part["records"] or b""
        before = position
        for at, header in iter_headers(records):
            while starts and starts[0][0] <= header.last_offset:
                aborting.add(starts.pop(0)[1])
            position = header.last_offset + 1
            if header.is_control:
                if read_control(records, at, header).type == ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                found = iter_records(records, at, header)
                seen.records += [(r.offset, (r.value or b"").decode()) for r in found if r.offset >= before]
        if position == before:
            break
    if position > seen.stable:
        raise Violation(f"{place}: read to {position}, past the last stable offset {seen.stable}")
    return seen


async def _beginning(channel: Channel, place: TopicPartition) -> int:
    topic, index = place
    message = await channel.ask(
        ApiKey.LIST_OFFSETS, 5, replica_id=-1, isolation_level=1,
        topics=[{"name": topic, "partitions": [{"partition_index": index, "timestamp": -2}]}],
    )  # fmt: skip
    part = message["topics"][0]["partitions"][0]
    if part["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR:
        raise Unavailable(f"{place} is offline")
    if part["error_code"] != ErrorCode.NONE:
        raise Violation(f"the beginning of {place}: {ErrorCode(part['error_code']).name}")
    offset: int = part["offset"]
    return offset


async def _fetch(channel: Channel, place: TopicPartition, position: int, *, committed: bool = True) -> Any:
    topic, index = place
    message = await channel.ask(
        ApiKey.FETCH, 12, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
        isolation_level=int(committed),
        topics=[{"topic": topic, "partitions": [
            {"partition": index, "fetch_offset": position, "partition_max_bytes": 1 << 20}]}],
    )  # fmt: skip
    part = message["responses"][0]["partitions"][0]
    if part["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR:
        raise Unavailable(f"{place} is offline")
    if part["error_code"] != ErrorCode.NONE:
        raise Violation(f"{place} at {position}: {ErrorCode(part['error_code']).name}")
    return part


async def committed_offset(channel: Channel, group: str) -> int:
    """The offset that a group has committed for PLACES[0]; -1: none."""
    topic, index = PLACES[0]
    message = await channel.ask(
        ApiKey.OFFSET_FETCH, 7, group_id=group, require_stable=False,
        topics=[{"name": topic, "partition_indexes": [index]}],
    )  # fmt: skip
    if message["error_code"] in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        raise Unavailable(f"the offsets of {group} cannot be served")
    if message["error_code"] != ErrorCode.NONE:
        raise Violation(f"offsets of {group}: {ErrorCode(message['error_code']).name}")
    offset: int = message["topics"][0]["partitions"][0]["committed_offset"]
    return offset


class Audit:
    """One look at a broker. `final`: the clients have ended all they had begun."""

    def __init__(
        self, clients: Clients, seen: dict[TopicPartition, Seen], offsets: dict[str, int], final: bool
    ) -> None:
        self._clients, self._seen, self._offsets, self._final = clients, seen, offsets, final
        self._at = {
            place: {value: offset for offset, value in there.records} for place, there in seen.items()
        }

    def judge(self) -> None:
        """Raises Violation."""
        for place, there in self._seen.items():
            values = [value for _, value in there.records]
            if len(values) != len(set(values)):
                doubled = sorted({value for value in values if values.count(value) > 1})
                raise Violation(f"{place}: doubled {doubled}")
            for value in values:
                if value.endswith("zombie"):
                    raise Violation(f"{place}: a fenced producer's {value}")
            if self._final and there.stable != there.end:
                raise Violation(f"{place}: readers are stuck at {there.stable} of {there.end}, all has ended")
        for producer in self._clients.idempotent:
            self._plain(producer)
        for transactional in self._clients.transactional:
            self._transactions(transactional)
        for member in self._clients.members:
            self._commits(member)

    def _plain(self, producer: Idempotent) -> None:
        for place in PLACES:
            mine = [batch for batch in producer.batches if batch.place == place]
            self._in_order(place, mine, producer.name)
            there = [batch for batch in mine if self._whole(batch) is not False]
            if there != mine[: len(there)]:
                raise Violation(f"{place}: of {producer.name} a batch is missing before one that is there")
            for batch in mine:
                if (batch.acked or self._final) and batch not in there:
                    raise Violation(f"{place}: lost {batch}")

    def _whole(self, batch: Batch) -> bool | None:
        """Whether it is there for readers, None if that is not yet told.

        A half is a violation, and an acknowledged one must be where it was said to be.
        """
        at = self._at[batch.place] | self._seen[batch.place].waiting
        found = [at[value] for value in batch.values if value in at]
        if not found:
            return False
        if len(found) != len(batch.values):
            raise Violation(f"{batch.place}: only a part of {batch}")
        if batch.acked and found[0] != batch.offset:
            raise Violation(f"{batch.place}: {batch} is at {found[0]}")
        return None if batch.values[0] in self._seen[batch.place].waiting else True

    def _in_order(self, place: TopicPartition, sent: Iterable[Batch], name: str) -> None:
        order = {value: number for number, value in enumerate(v for batch in sent for v in batch.values)}
        found = [order[value] for _, value in self._seen[place].records if value in order]
        if found != sorted(found):
            raise Violation(f"{place}: the records of {name} are out of order: {found}")

    def _transactions(self, producer: Transactional) -> None:
        for place in PLACES:
            batches = [b for t in producer.transactions for b in t.batches if b.place == place]
            self._in_order(place, batches, producer.name)
        last = {-1}
        for transaction in producer.transactions:
            there = {self._whole(batch) for batch in transaction.batches}
            if there >= {True, False}:
                raise Violation(f"{producer.name}: split: {transaction}")
            visible, told = True in there, there != {None}
            self._outcome(producer.name, transaction, visible, told)
            if transaction.offset is not None and visible:
                last = {transaction.offset}
            elif transaction.offset is not None and not told:
                last.add(transaction.offset)
        found = self._offsets[producer.name]
        if found not in last:
            raise Violation(f"group {producer.name}: offset {found}, with the records {last} was committed")

    def _outcome(self, name: str, transaction: Transaction, visible: bool, told: bool) -> None:
        if told and transaction.answered and visible is not transaction.asked:
            raise Violation(f"{name}: told {'commit' if transaction.asked else 'abort'}: {transaction}")
        if visible and not transaction.asked:
            raise Violation(f"{name}: nobody asked to commit {transaction}")
        if self._final and not (transaction.answered or transaction.given_up):
            raise Violation(f"{name}: {transaction} was never ended")

    def _commits(self, member: Member) -> None:
        found = self._offsets[member.name]
        acked = max((commit.offset for commit in member.commits if commit.acked), default=-1)
        sent = {commit.offset for commit in member.commits}
        if found < acked or (found != -1 and found not in sent):
            raise Violation(f"group {member.name}: offset {found}, acknowledged {acked}")


async def audit(machine: Machine, clients: Clients, *, final: bool) -> None:
    """Look at everything. Raises Violation; Unavailable if a partition is offline."""
    channel = machine.connect("auditor")
    seen = {place: await read(channel, place) for place in PLACES}
    groups = [*(p.name for p in clients.transactional), *(m.name for m in clients.members)]
    offsets = {group: await committed_offset(channel, group) for group in groups}
    Audit(clients, seen, offsets, final).judge()
    for admin in clients.admins:
        await _topics(channel, admin)


async def _topics(channel: Channel, admin: Admin) -> None:
    message = await channel.ask(ApiKey.METADATA, 12, topics=None)
    there = {topic["name"]: topic["topic_id"] for topic in message["topics"]}
    latest = {life.name: life for life in admin.lives}
    for name, life in latest.items():
        if life.deleted:
            if name in there:
                raise Violation(f"topic {name} was deleted, and is there")
        elif life.created and not life.delete_asked:
            if name not in there or (life.topic_id and there[name] != life.topic_id):
                raise Violation(
                    f"topic {name} was created as {life.topic_id!r}, there is {there.get(name)!r}"
                )
            await _its_record(channel, life)


async def _its_record(channel: Channel, life: TopicLife) -> None:
    record, place = life.record, life.record.place
    values = [value for _, value in (await read(channel, place)).records]
    if values not in ([], record.values) or (record.acked and not values and not life.trim_asked):
        raise Violation(f"{place} holds {values}, written was {record}")
    if values and life.trimmed:
        raise Violation(f"{place}: {values} was deleted, and is there again")


async def settle() -> None:
    """Let the broker finish what it found prepared."""
    await asyncio.sleep(0.5)


# -- lives ---------------------------------------------------------------------------------------
# Runs: a first life from an empty disk, crashes at moments of it, and the lives that follow.


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


# -- make soak-crash -----------------------------------------------------------------------------
# Crashes for minutes: `make soak-crash`. Prints its seed, and how many crash points it tried.
#
# Long lives with random crashes, crash after crash, and now and then a crash at every change of a short run.
# A violation ends it with the seed that shows it again.

_SMALL_EVERY = 25  # random runs


def main() -> None:
    """Try until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="the first one")
    options = parser.parse_args()
    logging.getLogger("eoslog").setLevel(logging.CRITICAL)
    begun, told, seed, count = time.monotonic(), time.monotonic(), options.seed, Count()
    print(f"seeds from {seed} on, for {options.minutes:g} minutes", flush=True)
    while time.monotonic() - begun < 60 * options.minutes:
        try:
            _try(seed, options.seed, count)
        except BaseException:
            print(f"VIOLATION with --seed {seed}, after {count}", flush=True)
            raise
        seed += 1
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"{told - begun:5.0f} s: {count}, no violation", flush=True)
    print(f"seeds {options.seed} to {seed - 1}: {count}, 0 violations", flush=True)


def _try(seed: int, first: int, count: Count) -> None:
    random_lives(seed, 8, count, work=4)
    if (seed - first) % _SMALL_EVERY == 0:
        life = live(Disk(), new_clients(), seed, work=1, wanted=lambda number: True)
        try_all(life, seed, count, lambda _: (*ORDERED, Outcome.PAGES))


if __name__ == "__main__":
    main()
