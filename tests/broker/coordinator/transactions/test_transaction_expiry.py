"""Transactional ids expire: the record first, then memory; never one that is in use; faults of the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from eoslog.broker.coordinator.transactions import transaction_journal
from eoslog.broker.log.partition import Partition
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.plain_records import iter_records
from tests.broker.coordinator.transactions.transaction_machine import (
    CONFIG,
    Client,
    Machine,
    PowerCut,
    after_crash,
    fresh_disk,
)
from tests.broker.log.fakefs import Directory, Outcome

A, LOG = ("a", 0), ("__transaction_state", 0)
WEEK_MS = 604_800_000

Test = Callable[[Machine], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def disk() -> Directory:
    return fresh_disk("a")


@pytest.fixture
def life(disk: Directory) -> Callable[[Test], None]:
    def run(test: Test) -> None:
        async def live() -> None:
            machine = Machine(PowerCut(disk))
            await asyncio.wait_for(test(machine), 30)
            machine.close()

        asyncio.run(live())

    return run


async def rest(machine: Machine, *names: str) -> None:
    for name in names:
        await Client(machine, name, True).init()


def last_words(machine: Machine) -> dict[str, bool]:
    """What the log says last of each id: whether it is known."""
    said = {}
    for header, data in machine.partition(LOG).scan():
        for record in iter_records(data, 0, header):
            decoded = transaction_journal.decode(record)
            assert decoded is not None
            said[decoded[0]] = decoded[1] is not None
    return said


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_one_millisecond_decides(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        await rest(machine, "x")
        machine.clock.now += WEEK_MS - 1
        await rest(machine, "y")
        await machine.transactions.forget_idle()
        assert last_words(machine) == {"x": True, "y": True}
        machine.clock.now += 1
        await machine.transactions.forget_idle()
        assert last_words(machine) == {"x": False, "y": True}
        assert [one.transactional_id for one in machine.transactions.list()] == ["y"]
        before = machine.partition(LOG).log_end_offset
        await machine.transactions.forget_idle()
        assert machine.partition(LOG).log_end_offset == before

    life(test)


def test_the_record_comes_first_and_the_id_is_busy_until_it_is_durable(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        await rest(machine, "x")
        old = machine.transactions.describe("x")
        assert old is not None
        machine.clock.now += WEEK_MS
        machine.flush.hold()
        forgetting = asyncio.create_task(machine.transactions.forget_idle())
        await turns()
        assert last_words(machine) == {"x": False}
        assert machine.transactions.describe("x") is not None, "not durable, so not true yet"
        with pytest.raises(KafkaError, match="Dead is on its way") as caught:
            await machine.transactions.init_producer_id("x", 1000)
        assert caught.value.code is E.CONCURRENT_TRANSACTIONS
        write = machine.transactions.verify_partition("x", old.producer_id, old.producer_epoch, *A, True)
        assert write is not None
        joining = asyncio.ensure_future(write)
        await turns()
        machine.flush.go_on()
        await forgetting
        with pytest.raises(KafkaError) as caught:
            await joining
        assert caught.value.code is E.INVALID_PRODUCER_ID_MAPPING, "who waited finds that it is gone"
        assert machine.transactions.describe("x") is None
        new = await machine.transactions.init_producer_id("x", 1000)
        assert new == (old.producer_id + 1, 0)

    life(test)


def test_a_change_on_its_way_holds_it_off(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        await rest(machine, "x")
        machine.clock.now += WEEK_MS
        machine.flush.hold()
        init = asyncio.create_task(machine.transactions.init_producer_id("x", 1000))
        await turns()
        await machine.transactions.forget_idle()
        machine.flush.go_on()
        assert (await init)[1] == 1
        assert last_words(machine) == {"x": True}

    life(test)


def test_what_is_open_or_prepared_does_not_expire(
    life: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise KafkaError(E.KAFKA_STORAGE_ERROR, "no space")

    async def test(machine: Machine) -> None:
        open_, ending = Client(machine, "open", True), Client(machine, "ending", True)
        for number, client in enumerate((open_, ending)):
            await client.init()
            await client.write(number, [A])
        monkeypatch.setattr(Partition, "append_marker", failing)
        with pytest.raises(KafkaError, match="no space"):
            await machine.transactions.end_txn("ending", *ending.producer, True, bump=True)
        machine.clock.now += 2 * WEEK_MS
        await machine.transactions.forget_idle()
        assert last_words(machine) == {"open": True, "ending": True}

    life(test)


@pytest.mark.parametrize("outcome", [Outcome.NOTHING, Outcome.ALL])
def test_after_a_crash_it_is_known_or_not_but_never_half(disk: Directory, outcome: Outcome) -> None:
    """The power goes before the record is durable: the old producer is still fenced, or a stranger."""

    async def test() -> None:
        machine = Machine(PowerCut(disk))
        names = [f"id-{number}" for number in range(5)]
        await rest(machine, *names)
        machine.clock.now += WEEK_MS
        machine.flush.hold()
        forgetting = asyncio.create_task(machine.transactions.forget_idle())
        await turns()
        root = after_crash(machine.fs.root, outcome, 0)
        machine.flush.go_on()
        await forgetting
        machine.close()
        again = Machine(PowerCut(root), clock=machine.clock)
        known = {one.transactional_id for one in again.transactions.list()}
        assert known == (set(names) if outcome is Outcome.NOTHING else set())
        pid, epoch = await again.transactions.init_producer_id("id-0", 1000)
        assert (pid, epoch) == ((0, 1) if known else (pid, 0))
        assert known or pid > 4
        again.close()

    asyncio.run(test())


def test_a_full_disk_leaves_it_as_it_was(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        await rest(machine, "x")
        machine.clock.now += WEEK_MS
        machine.fs.capacity = 0
        await machine.transactions.forget_idle()
        assert machine.transactions.describe("x") is not None
        machine.fs.capacity = None
        await machine.transactions.forget_idle()
        assert machine.transactions.describe("x") is None

    life(test)


def test_after_a_failed_sync_nothing_is_told(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        await rest(machine, "x")
        machine.clock.now += WEEK_MS
        machine.fs.fail_sync = "__transaction_state"
        await machine.transactions.forget_idle()
        for ask in (
            lambda: machine.transactions.describe("x"),
            lambda: machine.transactions.list(),
        ):
            with pytest.raises(KafkaError) as caught:
                ask()
            assert caught.value.code is E.COORDINATOR_NOT_AVAILABLE

    life(test)


def test_each_partition_of_the_log_is_told_of_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIG, "transaction.state.log.num.partitions", "3")
    disk = fresh_disk("a")

    async def test() -> None:
        machine = Machine(PowerCut(disk))
        await rest(machine, *(f"id-{number}" for number in range(12)))
        machine.clock.now += WEEK_MS
        await machine.transactions.forget_idle()
        root = after_crash(machine.fs.root, Outcome.NOTHING, 0)
        machine.close()
        again = Machine(PowerCut(root), clock=machine.clock)
        assert again.transactions.list() == []
        again.close()

    asyncio.run(test())


def test_many_ids_expire_in_few_batches(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        names = [f"{number:04d}" + "n" * 1000 for number in range(600)]
        await asyncio.gather(*(Client(machine, name, True).init() for name in names))
        machine.clock.now += WEEK_MS
        before = sum(1 for _ in machine.partition(LOG).scan())
        await machine.transactions.forget_idle()
        batches = list(machine.partition(LOG).scan())[before:]
        assert len(batches) == 3
        assert max(header.size for header, _ in batches) < 2**18 + 2000
        assert machine.transactions.list() == []
        assert set(last_words(machine).values()) == {False}

    life(test)
