"""The transaction coordinator at work: what waits for what, what is refused meanwhile, faults, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

import pytest

from eoslog.broker.coordinator.transactions.transaction_coordinator import BLOCK, FILE, ProducerIds
from eoslog.broker.coordinator.transactions.transaction_journal import (
    DamagedTransactionLog,
    DescribedTransaction,
    TransactionJournal,
)
from eoslog.broker.coordinator.transactions.transaction_state import (
    NEVER_PERSISTED,
    TransactionMetadata,
    TransactionState,
)
from eoslog.broker.log.durability import Appended
from eoslog.broker.log.files import BadFile
from eoslog.broker.log.partition import Partition
from eoslog.broker.log.upkeep import Upkeep
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.control import read_control
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages.transactions import TRANSACTION_KEY, TRANSACTION_VALUE
from eoslog.protocol.plain_records import encode_records
from tests.broker.coordinator.transactions.transaction_machine import (
    DATA,
    Client,
    Machine,
    PowerCut,
    after_crash,
    fresh_disk,
)
from tests.broker.log.logkit import Directory, FakeClock, Outcome

if TYPE_CHECKING:
    from eoslog.protocol.typed import TransactionLogValueDraft

A, B = ("a", 0), ("b", 0)
LOG = ("__transaction_state", 0)

Test = Callable[["Life"], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def disk() -> Directory:
    return fresh_disk("a", "b")


class Life:
    """A machine and its later lives, on one disk."""

    def __init__(self, disk: Directory) -> None:
        self.fs = PowerCut(disk)
        self.machine = Machine(self.fs)

    def crash(self, outcome: Outcome = Outcome.NOTHING) -> Machine:
        """Start again on what the disk holds."""
        self.machine.close()
        self.fs = PowerCut(after_crash(self.fs.root, outcome, 0))
        self.machine = Machine(self.fs, clock=self.machine.clock)
        return self.machine

    def client(self, name: str = "x", tv2: bool = True, timeout_ms: int = 60_000) -> Client:
        return Client(self.machine, name, tv2, timeout_ms)

    async def writer(self, *places: tuple[str, int], name: str = "x", tv2: bool = True) -> Client:
        """A client with an open transaction."""
        client = self.client(name, tv2)
        await client.init()
        await client.write(1, list(places) or [A, B])
        return client

    def state(self, name: str = "x") -> str:
        return self.known(name).state.text

    def known(self, name: str = "x") -> DescribedTransaction:
        found = self.machine.transactions.describe(name)
        assert found is not None
        return found

    def markers(self, place: tuple[str, int]) -> list[tuple[int, int, int]]:
        """(producer id, epoch, 1 for commit) of each marker on a partition."""
        return [
            (header.producer_id, header.producer_epoch, read_control(data, 0, header).type)
            for header, data in self.machine.partition(place).scan()
            if header.is_control
        ]

    def records(self) -> list[int]:
        """Offsets of the batches in `__transaction_state`."""
        return [header.base_offset for header, _ in self.machine.partition(LOG).scan()]


def run(disk: Directory, test: Test) -> None:
    async def live() -> None:
        life = Life(disk)
        try:
            await asyncio.wait_for(test(life), 20)
        finally:
            life.machine.close()

    asyncio.run(live())


@pytest.fixture
def life(disk: Directory) -> Callable[[Test], None]:
    """Runs a test on a fresh machine."""
    return lambda test: run(disk, test)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def refused(code: E, request: Awaitable[Any]) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await request
    assert caught.value.code is code
    return caught.value


# What waits for what


def test_markers_wait_for_the_decision_and_the_answer_for_the_markers(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        pid, epoch = client.producer
        life.machine.flush.hold()
        end = asyncio.create_task(client.end(True))
        await turns()
        assert life.markers(A) == life.markers(B) == []
        assert life.state() == "Ongoing", "what is not durable is not told"
        life.machine.flush.held = False
        life.machine.partition(LOG).durability.flush_now()
        life.machine.flush.held = True
        await turns()
        assert life.markers(A) == life.markers(B) == [(pid, epoch + 1, 1)]
        assert life.state() == "PrepareCommit"
        life.machine.partition(A).durability.flush_now()
        await turns()
        assert not end.done()
        assert life.known().partitions == [A, B]
        life.machine.partition(B).durability.flush_now()
        await turns()
        assert end.done(), "the completion itself is not waited for"
        assert life.state() == "CompleteCommit"
        assert life.machine.partition(LOG).high_watermark < life.machine.partition(LOG).log_end_offset
        assert client.producer == (pid, epoch + 1)
        assert sorted(life.machine.marked) == [("a-0", pid, epoch + 1, True), ("b-0", pid, epoch + 1, True)]
        for place in (A, B):
            read = life.machine.partition(place).read(0, 1 << 20, committed=True)
            assert read.last_stable_offset == life.machine.partition(place).log_end_offset

    life(test)


@pytest.mark.parametrize("tv2", [False, True])
def test_only_one_change_at_a_time(life: Callable[[Test], None], tv2: bool) -> None:
    async def test(life: Life) -> None:
        client = await life.writer(tv2=tv2)
        coordinator, producer = life.machine.transactions, client.producer
        life.machine.flush.hold()
        end = asyncio.create_task(client.end(True))
        await turns(2)
        busy = E.CONCURRENT_TRANSACTIONS
        await refused(busy, coordinator.init_producer_id("x", 1000))
        await refused(busy, coordinator.end_txn("x", *producer, True, bump=tv2))
        await refused(busy, coordinator.end_txn("x", *producer, False, bump=tv2))
        await refused(busy, coordinator.add_partitions("x", *producer, [A]))
        with pytest.raises(KafkaError) as caught:
            coordinator.verify_partition("x", *producer, *A, False)
        assert caught.value.code is busy
        life.machine.flush.go_on()
        await end

    life(test)


def test_a_new_id_is_busy_from_its_first_request_on(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        coordinator = life.machine.transactions
        first = asyncio.create_task(coordinator.init_producer_id("x", 1000))
        await turns(1)
        await refused(E.CONCURRENT_TRANSACTIONS, coordinator.init_producer_id("x", 1000))
        assert coordinator.describe("x") is None
        assert coordinator.list() == []
        pid, epoch = await first
        assert epoch == 0
        assert await coordinator.init_producer_id("x", 1000) == (pid, 1)

    life(test)


def test_who_stops_waiting_does_not_stop_the_end(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        end = asyncio.create_task(client.end(True))
        await turns(1)
        end.cancel()
        while life.state() != "CompleteCommit":
            await asyncio.sleep(0)
        assert len(life.markers(A)) == len(life.markers(B)) == 1

    life(test)


# Joining by writing


def test_partitions_written_at_once_join_with_one_record(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = life.client()
        await client.init()
        before = len(life.records())
        await asyncio.gather(client.produce(A, 1), client.produce(B, 1), client.produce(A, 2))
        assert len(life.records()) == before + 1
        assert life.known().partitions == [A, B]
        await client.produce(B, 3)
        assert len(life.records()) == before + 1

    life(test)


def test_joining_waits_for_what_is_on_its_way(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer(A)
        life.machine.flush.hold()
        end = asyncio.create_task(client.end(True))
        await turns(2)
        late = life.machine.transactions.verify_partition("x", *client.producer, *B, True)
        assert late is not None
        pid, epoch = client.producer
        early = life.machine.transactions.verify_partition("x", pid, epoch, *A, True)
        assert early is not None, "nothing is appended once the end is on its way"
        life.machine.flush.go_on()
        await end
        await refused(E.PRODUCER_FENCED, late)
        await refused(E.PRODUCER_FENCED, early)
        assert life.markers(B) == []

    life(test)


def test_a_batch_that_was_let_in_before_the_end_cannot_be_appended_after_it(
    life: Callable[[Test], None],
) -> None:
    """TV2: the marker takes the partition to the next epoch, even where nothing had been written."""

    async def test(life: Life) -> None:
        client = life.client()
        await client.init()
        joined = life.machine.transactions.verify_partition("x", *client.producer, *A, True)
        assert joined is not None
        await joined
        pid, epoch = client.producer
        await life.machine.transactions.end_txn("x", pid, epoch, False, bump=True)
        batch = encode_records(
            [(b"", b"1")], 1, producer_id=pid, producer_epoch=epoch, base_sequence=0, transactional=True
        )
        with pytest.raises(KafkaError) as caught:
            life.machine.partition(A).append(batch, now_ms=life.machine.clock.now_ms())
        assert caught.value.code is E.INVALID_PRODUCER_EPOCH

    life(test)


@pytest.mark.parametrize("implicit", [False, True])
def test_who_may_not_write(life: Callable[[Test], None], implicit: bool) -> None:
    async def test(life: Life) -> None:
        client = await life.writer(A)
        pid, epoch = client.producer
        verify = life.machine.transactions.verify_partition
        for arguments, code in [
            ((None, pid, epoch, *A), E.INVALID_TXN_STATE),
            (("y", pid, epoch, *A), E.INVALID_PRODUCER_ID_MAPPING),
            (("x", pid + 1, epoch, *A), E.INVALID_PRODUCER_ID_MAPPING),
            (("x", pid, epoch + 1, *A), E.PRODUCER_FENCED),
        ]:
            with pytest.raises(KafkaError) as caught:
                verify(*arguments, implicit)
            assert caught.value.code is code
        if not implicit:
            with pytest.raises(KafkaError) as caught:
                verify("x", pid, epoch, *B)
            assert caught.value.code is E.TRANSACTION_ABORTABLE
        assert verify("x", pid, epoch, *A, implicit) is None

    life(test)


def test_a_late_writer_does_not_join_the_next_transaction(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer(A)
        verify, (pid, epoch) = life.machine.transactions.verify_partition, client.producer
        life.machine.flush.hold()
        end = asyncio.create_task(client.end(True))
        await turns(2)
        late = verify("x", pid, epoch, *B, True)
        life.machine.partition(LOG).durability.flush_now()
        await turns()
        assert life.state() == "PrepareCommit"
        following = verify("x", pid, epoch + 1, *A, True)
        assert late is not None
        assert following is not None
        life.machine.flush.go_on()
        await end
        await refused(E.PRODUCER_FENCED, late)
        await following
        assert (life.state(), life.known().partitions) == ("Ongoing", [A])

    life(test)


# Faults


def test_a_deleted_topic_does_not_hold_up_the_end(
    life: Callable[[Test], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        life.machine.topics.delete("b")
        await client.end(True)
        assert life.state() == "CompleteCommit"

    life(test)
    assert "commit marker of x for b-0 is not written" in caplog.text


def test_a_topic_deleted_while_its_marker_is_on_its_way(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        life.machine.flush.hold()
        end = asyncio.create_task(client.end(True))
        await turns()
        life.machine.partition(LOG).durability.flush_now()
        await turns()
        life.machine.topics.delete("b")
        life.machine.flush.go_on()
        await end
        assert life.state() == "CompleteCommit"

    life(test)


def test_a_marker_that_cannot_be_written_is_tried_again(
    life: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Partition.append_marker

    def failing(partition: Partition, *arguments: Any) -> Appended:
        if partition.topic == "b":
            raise KafkaError(E.KAFKA_STORAGE_ERROR, "no space")
        return whole(partition, *arguments)

    async def test(life: Life) -> None:
        client = await life.writer()
        coordinator, producer = life.machine.transactions, client.producer
        monkeypatch.setattr(Partition, "append_marker", failing)
        error = await refused(E.CONCURRENT_TRANSACTIONS, coordinator.end_txn("x", *producer, True, bump=True))
        assert "no space" in error.message
        assert (life.state(), life.known().partitions) == ("PrepareCommit", [B])
        await refused(E.CONCURRENT_TRANSACTIONS, coordinator.end_txn("x", *producer, True, bump=True))
        await refused(E.INVALID_TXN_STATE, coordinator.end_txn("x", *producer, False, bump=True))
        await coordinator.tick()
        assert life.state() == "PrepareCommit"
        monkeypatch.setattr(Partition, "append_marker", whole)
        await coordinator.tick()
        assert (life.state(), life.known().partitions) == ("CompleteCommit", [])
        assert len(life.markers(A)) == len(life.markers(B)) == 1, "what has its marker gets no second one"
        assert await coordinator.end_txn("x", *producer, True, bump=True) == (producer[0], producer[1] + 1)

    life(test)


@pytest.mark.parametrize("tv2", [False, True])
def test_partitions_are_told_by_which_rules_a_marker_comes(
    life: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch, tv2: bool
) -> None:
    """KIP-1228: under TV2 the partition refuses a marker that is not above the epoch of the records."""
    whole, told = Partition.append_marker, []

    def listening(partition: Partition, *arguments: Any) -> Appended:
        told.append(arguments[5])
        return whole(partition, *arguments)

    async def test(life: Life) -> None:
        client = await life.writer(A, tv2=tv2)
        monkeypatch.setattr(Partition, "append_marker", listening)
        await client.end(True)
        assert told == [2 if tv2 else 0]

    life(test)


def test_a_full_disk_changes_nothing(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        coordinator, before = life.machine.transactions, life.known()
        life.fs.capacity = 0
        end = coordinator.end_txn("x", *client.producer, True, bump=True)
        await refused(E.COORDINATOR_NOT_AVAILABLE, end)
        await refused(E.COORDINATOR_NOT_AVAILABLE, coordinator.init_producer_id("new", 1000))
        assert coordinator.describe("new") is None
        assert life.known() == before
        life.fs.capacity = None
        await client.end(True)
        assert life.state() == "CompleteCommit"

    life(test)


@pytest.mark.parametrize("outcome", [Outcome.NOTHING, Outcome.ALL])
def test_after_a_failed_sync_nothing_is_told_until_the_next_start(
    life: Callable[[Test], None], outcome: Outcome
) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        coordinator = life.machine.transactions
        life.fs.fail_sync = "__transaction_state"
        end = coordinator.end_txn("x", *client.producer, True, bump=True)
        await refused(E.COORDINATOR_NOT_AVAILABLE, end)
        assert life.markers(A) == []
        life.fs.fail_sync = None
        unknown = E.COORDINATOR_NOT_AVAILABLE
        await refused(unknown, coordinator.end_txn("x", *client.producer, True, bump=True))
        await refused(unknown, coordinator.init_producer_id("x", 1000))
        for question in (lambda: coordinator.describe("x"), coordinator.list):
            with pytest.raises(KafkaError, match="not known") as caught:
                question()
            assert caught.value.code is unknown
        with pytest.raises(KafkaError):
            coordinator.verify_partition("x", *client.producer, *A)
        await coordinator.tick()
        life.crash(outcome)
        await life.machine.transactions.complete()
        assert life.state() == "Ongoing", "the log was cut back to what was durable"

    life(test)


async def come_back(life: Life) -> None:
    """As the broker does it, once the disk works again."""
    machine = life.machine
    upkeep = Upkeep(machine.topics.all_partitions, machine.clock)
    await upkeep.bring_back(machine.transactions.read_again)
    assert all(partition.offline is None for partition in machine.topics.all_partitions())


@pytest.mark.parametrize("commit", [True, False])
def test_what_became_of_a_transaction_is_known_again_when_the_disk_works(
    life: Callable[[Test], None], commit: bool
) -> None:
    """Whether its end was recorded was not known: it was not, since nothing unsynced comes back."""

    async def test(life: Life) -> None:
        client = await life.writer()
        other = life.client("new")
        coordinator = life.machine.transactions
        life.fs.fail_sync = "__transaction_state"
        await refused(
            E.COORDINATOR_NOT_AVAILABLE, coordinator.end_txn("x", *client.producer, commit, bump=True)
        )
        await refused(E.COORDINATOR_NOT_AVAILABLE, coordinator.init_producer_id("new", 1000))
        life.fs.fail_sync = None
        await come_back(life)
        assert life.state() == "Ongoing" and life.markers(A) == []
        assert coordinator.describe("new") is None, "nothing of it is durable"
        await other.init()
        await client.end(commit)
        life.crash()
        await life.machine.transactions.complete()
        assert life.state() == ("CompleteCommit" if commit else "CompleteAbort")

    life(test)


def test_a_transaction_whose_marker_failed_ends_when_the_disk_works(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        coordinator = life.machine.transactions
        life.fs.fail_sync = "/b-0"
        end = coordinator.end_txn("x", *client.producer, True, bump=True)
        await refused(E.CONCURRENT_TRANSACTIONS, end)
        assert life.state() == "PrepareCommit" and life.known().partitions == [B]
        life.fs.fail_sync = None
        await coordinator.tick()
        assert life.state() == "PrepareCommit", "the partition is offline"
        await come_back(life)
        await coordinator.tick()
        assert life.state() == "CompleteCommit"
        assert life.markers(A) == life.markers(B)

    life(test)


def test_an_id_that_was_never_recorded_is_free_again(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        coordinator = life.machine.transactions
        await life.writer()
        life.fs.fail_sync = "__transaction_state"
        await refused(E.COORDINATOR_NOT_AVAILABLE, coordinator.init_producer_id("new", 1000))
        with pytest.raises(KafkaError, match="not known"):
            coordinator.describe("new")
        life.fs.fail_sync = None
        await come_back(life)
        assert coordinator.describe("new") is None
        assert (await coordinator.init_producer_id("new", 1000))[1] == 0

    life(test)


def test_what_is_open_under_a_later_epoch_is_not_left_behind(life: Callable[[Test], None]) -> None:
    """No marker may end it, nobody may forget it: it is tried again."""

    async def test(life: Life) -> None:
        client = await life.writer(B)
        pid, epoch = client.producer
        coordinator = life.machine.transactions
        await coordinator.add_partitions("x", pid, epoch, [A])
        later = encode_records(
            [(b"", b"x")], 1, producer_id=pid, producer_epoch=32767, base_sequence=0, transactional=True
        )
        life.machine.partition(A).append(later, now_ms=1)
        end = coordinator.end_txn("x", pid, epoch, True, bump=True)
        await refused(E.CONCURRENT_TRANSACTIONS, end)
        assert life.known().partitions == [A]

    life(test)


@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_under_a_strangers_epoch_does_not_hold_the_transaction(
    life: Callable[[Test], None], commit: bool
) -> None:
    """Nothing of the transaction can be open there. The marker of the other partition is written."""

    async def test(life: Life) -> None:
        client = await life.writer(B)
        pid, epoch = client.producer
        coordinator = life.machine.transactions
        await coordinator.add_partitions("x", pid, epoch, [A])
        stranger = encode_records([(b"", b"x")], 1, producer_id=pid, producer_epoch=32767, base_sequence=0)
        life.machine.partition(A).append(stranger, now_ms=1)
        await coordinator.end_txn("x", pid, epoch, commit, bump=True)
        assert life.state() == ("CompleteCommit" if commit else "CompleteAbort")
        assert life.markers(A) == [] and len(life.markers(B)) == 1

    life(test)


def test_a_completion_that_was_lost_is_done_once_more(life: Callable[[Test], None]) -> None:
    """It is not waited for: the client has its answer, memory says complete, the log does not."""

    async def test(life: Life) -> None:
        client = await life.writer()
        await client.end(True)
        life.fs.fail_sync = "__transaction_state"
        await refused(E.COORDINATOR_NOT_AVAILABLE, life.machine.transactions.init_producer_id("new", 1000))
        assert life.state() == "CompleteCommit"
        life.fs.fail_sync = None
        await come_back(life)
        assert life.state() == "PrepareCommit"
        await life.machine.transactions.tick()
        assert life.state() == "CompleteCommit"
        assert {kind for *_, kind in life.markers(A)} == {1}

    life(test)


# Time


def test_time_outs(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        pid, epoch = client.producer
        life.machine.clock.now += 60_000
        await life.machine.transactions.tick()
        assert life.state() == "Ongoing"
        life.machine.clock.now += 1
        await life.machine.transactions.tick()
        assert life.state() == "CompleteAbort"
        assert life.markers(A) == [(pid, epoch + 1, 0)]
        end = life.machine.transactions.end_txn
        await refused(E.INVALID_TXN_STATE, end("x", pid, epoch, True, bump=True))
        await refused(E.PRODUCER_FENCED, end("x", pid, epoch, True, bump=False))
        assert await end("x", pid, epoch, False, bump=True) == (pid, epoch + 1)
        with pytest.raises(KafkaError) as caught:
            life.machine.transactions.verify_partition("x", pid, epoch, *A)
        assert caught.value.code is E.PRODUCER_FENCED

    life(test)


def test_a_commit_on_its_way_is_not_timed_out(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        life.machine.flush.hold()
        commit = asyncio.create_task(client.end(True))
        await turns()
        life.machine.clock.now += 10**9
        tick = asyncio.create_task(life.machine.transactions.tick())
        await turns()
        life.machine.flush.go_on()
        await asyncio.gather(commit, tick)
        assert life.state() == "CompleteCommit"
        assert [kind for _, _, kind in life.markers(A)] == [1]

    life(test)


def test_a_new_user_aborts_the_old_ones_transaction(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        pid, epoch = client.producer
        await refused(E.CONCURRENT_TRANSACTIONS, life.machine.transactions.init_producer_id("x", 1000))
        assert life.state() == "CompleteAbort", "the answer comes when the abort is through"
        assert await life.machine.transactions.init_producer_id("x", 1000) == (pid, epoch + 2)

    life(test)


# Starts


@pytest.mark.parametrize("tv2", [False, True])
def test_open_transactions_outlive_a_crash(life: Callable[[Test], None], tv2: bool) -> None:
    async def test(life: Life) -> None:
        client = await life.writer(tv2=tv2)
        client.machine = life.crash()
        await life.machine.transactions.complete()
        assert (life.state(), life.known().partitions) == ("Ongoing", [A, B])
        assert life.machine.partition(A).last_stable_offset == 0
        await client.end(True)
        assert life.machine.partition(A).last_stable_offset == 2

    life(test)


def test_retries_are_answered_after_a_crash(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        before = client.producer
        await client.end(True)
        end = life.crash().transactions.end_txn
        await life.machine.transactions.complete()
        assert await end("x", *before, True, bump=True) == client.producer
        await refused(E.INVALID_TXN_STATE, end("x", *before, False, bump=True))
        init = life.machine.transactions.init_producer_id
        assert await init("x", 1000, *before) == client.producer, "KIP-360 across the crash"

    life(test)


def test_a_lost_completion_is_made_up_for(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        log = life.machine.partition(LOG)
        await client.end(True)
        assert log.high_watermark < log.log_end_offset, "the completion is not durable yet"
        life.crash()
        assert life.state() == "PrepareCommit"
        await refused(E.CONCURRENT_TRANSACTIONS, life.machine.transactions.init_producer_id("x", 1000))
        await life.machine.transactions.complete()
        assert life.state() == "CompleteCommit"
        assert len(life.markers(A)) == 2
        read = life.machine.partition(A)
        await read.wait_durable(read.log_end_offset - 1)
        result = read.read(0, 1 << 20, committed=True)
        assert result.last_stable_offset == read.log_end_offset
        assert result.aborted == []

    life(test)


def log_with(disk: Directory, *records: tuple[bytes, bytes | None]) -> Directory:
    """A disk whose `__transaction_state` ends with these records."""

    async def write() -> Directory:
        life = Life(disk)
        partition = life.machine.partition(LOG)
        now = life.machine.clock.now_ms()
        partition.append(encode_records(records, now), now_ms=now, coordinator=True)
        life.machine.close()
        life.machine.topics.close()
        return life.fs.root

    return asyncio.run(write())


KEY = coordinator_records.encode(TRANSACTION_KEY, 0, {"transactional_id": "x"})
OLD_VALUE: TransactionLogValueDraft = {
    "producer_id": 5000,
    "producer_epoch": 3,
    "transaction_timeout_ms": 1000,
    "transaction_status": int(TransactionState.ONGOING),
    "transaction_partitions": [{"topic": "a", "partition_ids": [0]}],
    "transaction_last_update_timestamp_ms": 7,
    "transaction_start_timestamp_ms": 6,
}


def test_records_of_older_brokers_are_understood(disk: Directory) -> None:
    old = coordinator_records.encode(TRANSACTION_VALUE, 0, OLD_VALUE)

    async def test(life: Life) -> None:
        assert life.known() == DescribedTransaction("x", TransactionState.ONGOING, 5000, 3, 1000, 6, [A])
        new = await life.machine.transactions.init_producer_id(None, 0)
        assert new == (5001, 0), "ids in use are skipped"

    run(log_with(disk, (KEY, old)), test)


def test_expired_ids_and_records_of_other_kinds(disk: Directory, caplog: pytest.LogCaptureFixture) -> None:
    old = coordinator_records.encode(TRANSACTION_VALUE, 0, OLD_VALUE)

    async def test(life: Life) -> None:
        assert life.machine.transactions.list() == []

    run(log_with(disk, (KEY, old), (b"\x00\x09?", b"?"), (KEY, None)), test)
    assert "__transaction_state-0 offset 1: a record of an unknown kind" in caplog.text


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"\x00\x07", "versions 0 to 1, not 7"),
        (coordinator_records.encode(TRANSACTION_VALUE, 0, OLD_VALUE)[:-1], "offset 0"),
        (
            coordinator_records.encode(TRANSACTION_VALUE, 0, {**OLD_VALUE, "transaction_status": 9}),
            "9 is not a valid TransactionState",
        ),
        (
            coordinator_records.encode(TRANSACTION_VALUE, 0, {**OLD_VALUE, "transaction_status": 7}),
            "PrepareEpochFence is never written to the log",
        ),
    ],
)
def test_what_cannot_be_understood_stops_the_start(disk: Directory, value: bytes, complaint: str) -> None:
    async def start() -> None:
        Life(log_with_damage)

    log_with_damage = log_with(disk, (KEY, value))
    with pytest.raises(DamagedTransactionLog, match=complaint):
        asyncio.run(start())


def test_a_transaction_that_nobody_knows_of_is_reported(
    disk: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        batch = encode_records(
            [(b"", b"1")], 1, producer_id=77, producer_epoch=0, base_sequence=0, transactional=True
        )
        life.machine.partition(B).append(batch, now_ms=life.machine.clock.now_ms())
        caplog.clear()
        life.crash(Outcome.ALL)
        reports = [record.message for record in caplog.records if "no transactional id" in record.message]
        assert len(reports) == 1
        assert reports[0].startswith("b-0: the transaction of producer id 77, open since offset 1")
        coordinator = life.machine.transactions
        partition = life.machine.partition(B)
        pid, epoch = client.producer
        await refused(E.INVALID_TXN_STATE, coordinator.write_marker(partition, pid, epoch, True, 0))
        assert life.markers(B) == []
        await coordinator.write_marker(partition, 77, 0, False, 0)
        assert partition.open_transactions() == [(pid, 0)]

    run(disk, test)


# Producer ids


def test_ids_are_never_handed_out_twice(disk: Directory) -> None:
    fs = PowerCut(disk)
    handed: list[int] = []
    for count in (1, 3, BLOCK + 5, BLOCK):
        ids = ProducerIds(fs, DATA)
        handed += [ids.take() for _ in range(count)]
        fs.root = after_crash(fs.root, Outcome.NOTHING, 0)
    assert len(handed) == len(set(handed))
    assert handed == sorted(handed)


def test_a_lost_file_of_ids(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        client = await life.writer()
        await client.end(True)
        life.fs.remove(f"{DATA}/{FILE}")
        plain = encode_records([(b"", b"1")], 1, producer_id=500, producer_epoch=0, base_sequence=0)
        assert client.producer[0] < 500, "an idempotent producer's id is in no other place than its partition"
        life.machine.partition(A).append(plain, now_ms=life.machine.clock.now_ms())
        life.crash(Outcome.ALL)
        assert await life.machine.transactions.init_producer_id(None, 0) == (501, 0)

    life(test)


def test_a_damaged_file_of_ids(disk: Directory) -> None:
    fs = PowerCut(disk)
    ProducerIds(fs, DATA).take()
    fs.open(f"{DATA}/{FILE}").write([b"nonsense"], 0)
    with pytest.raises(BadFile, match=FILE):
        ProducerIds(fs, DATA)


def test_no_ids_without_a_disk(disk: Directory) -> None:
    fs = PowerCut(deepcopy(disk))
    ids = ProducerIds(fs, DATA)
    fs.capacity = 0
    with pytest.raises(KafkaError, match="no producer ids can be reserved") as caught:
        ids.take()
    assert caught.value.code is E.COORDINATOR_NOT_AVAILABLE
    fs.capacity = None
    assert ids.take() == 0


@pytest.mark.parametrize(("pid", "epoch"), [(1, -1), (-1, 1)])
def test_half_a_producer_is_refused(life: Callable[[Test], None], pid: int, epoch: int) -> None:
    async def test(life: Life) -> None:
        await refused(E.INVALID_REQUEST, life.machine.transactions.init_producer_id("x", 1000, pid, epoch))

    life(test)


def test_each_id_has_its_partition_of_the_log() -> None:
    """And on a full disk only the end of a transaction may use the reserve."""
    written: list[int] = []
    urgently: list[bool] = []

    class Log:
        def __init__(self, index: int) -> None:
            self.index = index

        def append(self, batch: bytes, *, now_ms: int, coordinator: bool, urgent: bool) -> Appended:
            written.append(self.index)
            urgently.append(urgent)
            return Appended(0, 0, -1, 0)

    class Logs:
        def internal(self, name: str) -> list[Log]:
            assert name == "__transaction_state"
            return [Log(index) for index in range(50)]

    journal = TransactionJournal(cast(Topics, Logs()), FakeClock())
    names = ["a", "q-0.1-0-3-17", "polygenelubricants"]
    for name in names:
        journal.append(TransactionMetadata(name, 1, 1, 1, producer_epoch=0))
    assert written == [97 % 50, 2034552461 % 50, 0]
    assert urgently == [False] * 3
    ends = {2, 3, 4, 5}
    for state in [one for one in TransactionState if one not in NEVER_PERSISTED]:
        journal.append(TransactionMetadata("a", 1, 1, 1, producer_epoch=0, state=state))
        assert urgently[-1] == (state in ends), state


def test_empty_ids_are_refused(life: Callable[[Test], None]) -> None:
    async def test(life: Life) -> None:
        coordinator = life.machine.transactions
        await refused(E.INVALID_REQUEST, coordinator.init_producer_id("", 1000))
        await refused(E.INVALID_REQUEST, coordinator.add_partitions("", 0, 0, [A]))
        await refused(E.INVALID_REQUEST, coordinator.end_txn("", 0, 0, True, bump=True))

    life(test)
