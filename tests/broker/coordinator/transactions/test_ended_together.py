"""What ends together becomes visible together, is decided by one record, and has each its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from eoslog.broker.coordinator.transactions import transaction_changes
from eoslog.broker.coordinator.transactions.transaction import decided_with
from eoslog.broker.coordinator.transactions.transaction_changes import ReadBarrier
from eoslog.broker.coordinator.transactions.transaction_coordinator import Producer
from eoslog.broker.coordinator.transactions.transaction_journal import TransactionJournal
from eoslog.broker.coordinator.transactions.transaction_state import (
    COMPLETE,
    TV2,
    TransactionMetadata,
    TransactionState,
)
from eoslog.broker.core.broker import Broker
from eoslog.broker.handlers import end_txn
from eoslog.broker.log.partition import Partition
from eoslog.broker.requests import RequestContext
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.frames import RequestHeader
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.broker.coordinator.transactions import transaction_machine
from tests.broker.coordinator.transactions.transaction_machine import (
    Client,
    Machine,
    PowerCut,
    after_crash,
    fresh_disk,
)
from tests.broker.log.logkit import Directory, Outcome

A, B, C = ("a", 0), ("b", 0), ("c", 0)
PLACES = (A, B, C)

Test = Callable[[Machine], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def disk() -> Directory:
    return fresh_disk("a", "b", "c")


@pytest.fixture
def life(disk: Directory) -> Callable[[Test], None]:
    """Runs a test on a machine of its own."""

    def run(test: Test) -> None:
        async def live() -> None:
            machine = Machine(PowerCut(disk))
            try:
                await asyncio.wait_for(test(machine), 20)
            finally:
                machine.close()

        asyncio.run(live())

    return run


async def writers(machine: Machine, *names: str) -> list[Client]:
    """Clients with an open transaction each, on a partition each."""
    clients = [Client(machine, name, tv2=True) for name in names]
    for number, (client, place) in enumerate(zip(clients, PLACES, strict=False)):
        await client.init()
        await client.write(number, [place])
    return clients


async def end(machine: Machine, clients: list[Client], commit: bool = True) -> list[Any]:
    """All in one step; what each was answered."""
    for client in clients:
        client.history[-1].asked = commit
    producers = [Producer(client.name, *client.producer) for client in clients]
    return list(await machine.transactions.end_together(producers, commit, bump=True))


# What readers see


def seen(machine: Machine, places: tuple[tuple[str, int], ...]) -> set[bool]:
    """Of which of the partitions a fetch would see the row: all that can be seen in one turn of the loop."""
    return {bool(machine.partition(p).read(0, 1 << 20, committed=True).records) for p in places}


async def watched(machine: Machine, ending: Coroutine[Any, Any, Any], places: Any) -> None:
    """Sync one partition after another, the ones with the rows last, and look in every turn."""
    machine.flush.hold()
    task = asyncio.create_task(ending)
    names = [f"{topic}-{index}" for topic, index in places]
    while not task.done():
        for _ in range(20):
            await asyncio.sleep(0)
            assert len(seen(machine, places)) == 1, "a part of it can be seen"
        dirty = list(machine.flush._dirty)
        if dirty:
            machine.flush.flush_now(min(dirty, key=lambda p: (str(p) in names, str(p))))
    await task
    assert seen(machine, places) == {True}, "who was told reads it"


async def three_transactions(machine: Machine) -> None:
    clients = await writers(machine, "x", "y", "z")
    await watched(machine, end(machine, clients), PLACES)


async def one_on_three_partitions(machine: Machine) -> None:
    client = Client(machine, "x", tv2=True)
    await client.init()
    await client.write(1, list(PLACES))
    await watched(machine, client.end(True), PLACES)


BOTH = pytest.mark.parametrize("test", [three_transactions, one_on_three_partitions])


@BOTH
def test_readers_see_all_or_nothing(life: Callable[[Test], None], test: Test) -> None:
    life(test)


@BOTH
def test_without_a_curtain_they_see_a_part(
    life: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch, test: Test
) -> None:
    monkeypatch.setattr(ReadBarrier, "draw", lambda self, partition: None)
    with pytest.raises(AssertionError, match="a part of it can be seen"):
        life(test)


def test_who_waits_for_news_is_told_when_the_curtain_is_lifted(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        clients, looks = await writers(machine, "x", "y"), []
        partition = machine.partition(A)
        partition.subscribe(lambda: looks.append(partition.last_stable_offset))
        await end(machine, clients)
        assert looks[-1] == partition.log_end_offset == 2

    life(test)


def test_a_partition_that_fails_does_not_hold_back_the_others(
    life: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(machine: Machine) -> None:
        clients, real = await writers(machine, "x", "y", "z"), Partition.append_marker

        def broken(self: Partition, *arguments: Any, **more: Any) -> Any:
            if self.topic == "b":
                raise KafkaError(E.KAFKA_STORAGE_ERROR, "no room")
            return real(self, *arguments, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_marker", broken)
            answers = await end(machine, clients)
        assert [getattr(answer, "code", 0) for answer in answers] == [0, E.CONCURRENT_TRANSACTIONS, 0]
        assert seen(machine, (A, C)) == {True} and seen(machine, (B,)) == {False}
        await machine.transactions.tick()
        assert seen(machine, PLACES) == {True}

    life(test)


# What each is answered


async def ask(machine: Machine, *named: Producer) -> list[int]:
    """EndTxn 5 through its schemas; the code of each."""
    api = APIS[ApiKey.END_TXN]
    first, *others = [one._asdict() for one in named]
    for one in (first, *others):
        one["producer_epoch"] = one.pop("epoch")
    sent = b"".join(api.request.write(5, {**first, "committed": True, "together": others}))
    context = RequestContext(cast(Broker, machine), RequestHeader(ApiKey.END_TXN, 5, 1, "test"), "127.0.0.1")
    drafted = await end_txn.handle(context, api.request.read(5, sent)[0])
    answer, _ = api.response.read(5, b"".join(api.response.write(5, drafted)))
    assert [one["transactional_id"] for one in answer["together"]] == [
        one.transactional_id for one in named[1:]
    ]
    return [answer["error_code"], *(one["error_code"] for one in answer["together"])]


async def odd_ones(machine: Machine) -> list[Producer]:
    """One of each kind that EndTxn answers in its own way, between two that can be ended."""
    first, done, aborted, fenced, last = (Client(machine, name, tv2=True) for name in "vwxyz")
    for number, client in enumerate((first, done, aborted, fenced, last)):
        await client.init()
        await client.write(number, [A])
    named = {client.name: Producer(client.name, *client.producer) for client in (first, done, aborted, last)}
    await done.end(True)
    await aborted.end(False)
    stranger = Producer("nobody", 4711, 0)
    old = Producer(fenced.name, fenced.producer[0], fenced.producer[1] + 5)
    return [named["v"], named["w"], named["x"], old, stranger, Producer("", 1, 1), named["z"]]


def test_each_is_answered_as_by_a_request_of_its_own(life: Callable[[Test], None]) -> None:
    found: dict[str, list[int]] = {}

    def by(how: str) -> Test:
        async def test(machine: Machine) -> None:
            named = await odd_ones(machine)
            alone = how == "alone"
            found[how] = (
                [(await ask(machine, one))[0] for one in named] if alone else await ask(machine, *named)
            )
            assert [known.state for known in machine.transactions.list()].count(TransactionState.ONGOING) == 1

        return test

    life(by("alone"))
    life(by("together"))
    codes = [
        0,
        0,
        E.INVALID_TXN_STATE,
        E.PRODUCER_FENCED,
        E.INVALID_PRODUCER_ID_MAPPING,
        E.INVALID_REQUEST,
        0,
    ]
    assert found == {"alone": codes, "together": codes}


def test_the_answer_can_be_asked_again(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        named = [Producer(client.name, *client.producer) for client in await writers(machine, "x", "y", "z")]
        assert await ask(machine, *named) == await ask(machine, *named) == [0, 0, 0]

    life(test)


def test_nobody_is_named_twice(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        (client,) = await writers(machine, "x")
        named = Producer("x", *client.producer)
        assert await ask(machine, named, named) == [0, E.INVALID_REQUEST]

    life(test)


def test_a_record_that_cannot_be_written_decides_nothing(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        clients = await writers(machine, "x", "y")
        machine.fs.capacity = 0
        answers = await end(machine, clients)
        assert [answer.code for answer in answers] == [E.COORDINATOR_NOT_AVAILABLE] * 2
        machine.fs.capacity = None
        assert {known.state for known in machine.transactions.list()} == {TransactionState.ONGOING}
        assert not any(isinstance(answer, KafkaError) for answer in await end(machine, clients))

    life(test)


def test_who_is_decided_and_could_not_be_recorded_is_ended_later(
    life: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for it any more; the first one is not completed before, as its record alone tells of it."""

    async def test(machine: Machine) -> None:
        clients, real = await writers(machine, "x", "y"), TransactionJournal.append

        def full(self: TransactionJournal, metadata: TransactionMetadata) -> Any:
            if metadata.transactional_id == "y" or metadata.state in COMPLETE:
                raise KafkaError(E.COORDINATOR_NOT_AVAILABLE, "no room")
            return real(self, metadata)

        with monkeypatch.context() as patch:
            patch.setattr(TransactionJournal, "append", full)
            answers = await end(machine, clients)
            await machine.transactions.tick()
        assert [answer.code for answer in answers] == [E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_NOT_AVAILABLE]
        found = {known.transactional_id: known.state for known in machine.transactions.list()}
        assert found == {"x": TransactionState.PREPARE_COMMIT, "y": TransactionState.ONGOING}
        await machine.transactions.tick()
        assert seen(machine, (A, B)) == {True}
        assert {known.state for known in machine.transactions.list()} == {TransactionState.COMPLETE_COMMIT}

    life(test)


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_with_another_and_has_not_gone_on_ends_alike(commit: bool) -> None:
    prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    first = TransactionMetadata(
        "x", 1, 1000, 0, 1, state=prepared, client_version=TV2, together=(("y", 2, 7),)
    )
    still = TransactionMetadata("y", 2, 1000, 0, 7, state=TransactionState.ONGOING, partitions=frozenset({A}))
    following = decided_with(first, still, ProducerIdentity(2, 7), 5, new_producer_id=-1)
    assert following is not None
    assert (following.state, following.producer_epoch, following.partitions) == (prepared, 8, frozenset({A}))
    gone_on = [None, replace(still, producer_epoch=8), replace(still, state=TransactionState.COMPLETE_ABORT)]
    assert [decided_with(first, one, ProducerIdentity(2, 7), 5, new_producer_id=-1) for one in gone_on] == [
        None
    ] * 3


# The power fails


def every_crash(disk: Directory, seed: int) -> Iterator[tuple[bool, ...]]:
    """Cut the power at each step of an end of three; what was committed then, after each recovery."""
    whole = PowerCut(disk)
    step, _ = asyncio.run(_lived(whole, seed))
    dead = True
    while dead:
        fs = PowerCut(disk, step)
        _, answered = asyncio.run(_lived(fs, seed + step))
        left, dead = fs.left if fs.left is not None else fs.root, fs.dead
        for outcome in (Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX):
            kept = after_crash(left, outcome, seed + step)
            again = PowerCut(kept, 1 + step % 20)  # and a second time, while it recovers
            asyncio.run(_recovered(again, seed))
            kept = kept if again.left is None else after_crash(again.left, outcome, seed)
            visible = asyncio.run(_recovered(PowerCut(kept), seed))
            assert all(visible) or not answered, "answered, and gone"
            yield visible
        step += 1


async def _lived(fs: PowerCut, seed: int) -> tuple[int, bool]:
    """At which step of the disk the end begins; whether its answer was heard."""
    machine = Machine(fs, seed=seed)
    clients = await writers(machine, "x", "yy", "zzz")
    before = fs.steps
    answers = await end(machine, clients)
    assert not any(isinstance(answer, KafkaError) for answer in answers)
    machine.close()
    return before, not fs.dead


async def _recovered(fs: PowerCut, seed: int) -> tuple[bool, ...]:
    machine = Machine(fs, seed=seed)
    await machine.transactions.complete()
    visible = tuple(seen(machine, (place,)) == {True} for place in PLACES)
    states = {known.state for known in machine.transactions.list()}
    assert states.isdisjoint({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
    machine.close()
    return visible


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> Directory:
    """A disk on which the records of different ids lie in different files."""
    monkeypatch.setitem(transaction_machine.CONFIG, "transaction.state.log.num.partitions", "4")
    return fresh_disk("a", "b", "c")


def test_a_crash_leaves_all_or_none_of_them(spread: Directory) -> None:
    assert set(every_crash(spread, 100)) == {(True,) * 3, (False,) * 3}


def test_a_record_that_does_not_name_the_others_would_be_noticed(
    spread: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_changes, "_linked", dict)
    assert any(len(set(visible)) > 1 for visible in every_crash(spread, 100))
