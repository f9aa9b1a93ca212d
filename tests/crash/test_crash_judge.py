"""A crash at every change of the disk: nothing told is untrue afterwards. And kill -9."""

import contextlib
import errno
import logging
from collections.abc import Iterator

import pytest

from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import create
from tests.crash.crash_lives import ORDERED, Count, Refused, live, new_clients, random_lives, try_all
from tests.crash.crash_machine import Disk, Outcome, after_crash, picture
from tests.crash.soak_kill9 import Round


@pytest.fixture
def quiet() -> Iterator[None]:
    """A crash is news to a log, thousands of times."""
    log = logging.getLogger("eoslog")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


def _two_of_three(number: int) -> tuple[Outcome, ...]:
    """`make soak-crash` tries all for each; here neighbours share the work."""
    return Outcome.NOTHING, (Outcome.PREFIX, Outcome.ALL)[number % 2]


@pytest.mark.usefixtures("quiet")
def test_a_crash_at_every_change_of_a_small_run() -> None:
    life = live(Disk(), new_clients(), 1, work=1, wanted=lambda number: True)
    assert len(life.pictures) == life.changes > 150
    count = Count()
    try_all(life, 1000, count, _two_of_three)
    print(count)
    assert count.outcomes == 2 * life.changes


@pytest.mark.usefixtures("quiet")
def test_a_crash_at_every_change_of_a_recovery() -> None:
    first = live(Disk(), new_clients(), 2, work=1, wanted=lambda number: number % 60 == 59)
    count = Count()
    for number, taken in first.pictures.items():
        disk, clients = after_crash(taken, Outcome.PREFIX, number)
        begun: list[int] = []
        second = live(disk, clients, number, work=0, wanted=lambda n: n <= 25, segment_bytes=700)
        begun.append(second.begun)
        try_all(second, 2000, count, lambda _: (Outcome.NOTHING, Outcome.PREFIX), work=0)
    print(count)
    assert count.points > 40


@pytest.mark.usefixtures("quiet")
def test_where_pages_are_lost_it_may_refuse_but_never_lie() -> None:
    life = live(Disk(), new_clients(), 3, work=1, wanted=lambda number: number % 4 == 0)
    count = Count()
    try_all(life, 3000, count, lambda _: (Outcome.PAGES,))
    print(count)
    assert count.refused < count.outcomes


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", range(6))
def test_crash_after_crash(seed: int) -> None:
    random_lives(seed, 6, Count())


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_call_to_the_disk_fails(error: int) -> None:
    """One call after the other; the broker goes on or stops serving, and after a restart all is well."""
    changes = live(Disk(), new_clients(), 4, work=1).changes
    served = 0
    for number in range(5 if error == errno.EIO else 7, changes, 10):
        disk, clients = Disk(fail_at=number, error=error), new_clients()
        with contextlib.suppress(Refused):  # it said so and stopped; anything else is a fault of the broker
            live(disk, clients, 4, work=1)
            served += 1
        left = picture(disk, clients)
        for outcome in ORDERED[::2]:
            after, survivors = after_crash(left, outcome, number)
            live(after, survivors, number, work=1)
    assert served


# -- kill -9 under stock clients -----------------------------------------------------------------
# kill -9 and power loss under stock clients: what was acked is there once, transactions whole or not.


def test_what_stock_clients_were_told_holds_after_the_broker_died() -> None:
    with EmbeddedBroker(faults=True, config={"offsets.topic.num.partitions": "2"}) as broker:
        create(broker.bootstrap, "plain", 3)
        create(broker.bootstrap, "whole", 2)
        round_ = Round(broker, 3)
        round_.run(2)
        round_.audit()
