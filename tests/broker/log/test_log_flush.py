"""The group flush: one sync for many, nothing forgotten, an orderly end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from eoslog.broker.log import durability
from eoslog.broker.log.durability import GroupFlush, Job
from eoslog.broker.log.log_settings import LogSettings
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.logkit import DIRECTORY, NOW, Disk, Inode, batch


class Slow:
    """A partition whose sync takes until it is let go."""

    def __init__(self, flush: GroupFlush) -> None:
        self.flush = flush
        self.end = 0
        self.let_go = threading.Event()
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.threads: set[str] = set()

    def write(self) -> None:
        self.end += 1
        self.flush.mark(self)

    def begin_flush(self) -> tuple[int, Sequence[Job]]:
        self.begun.append(self.end)
        return self.end, [lambda: self.threads.add(threading.current_thread().name), self.let_go.wait]

    def end_flush(self, offset: int, error: Exception | None) -> None:
        assert error is None
        self.ended.append(offset)


def test_what_comes_during_a_sync_is_in_the_next_one() -> None:
    async def scenario() -> None:
        flush = GroupFlush()
        flush.start()
        slow = Slow(flush)
        for _ in range(3):
            slow.write()
        await asyncio.sleep(0.01)
        assert slow.begun == [3], "one sync for the three"
        for _ in range(4):
            slow.write()
        await asyncio.sleep(0.01)
        assert slow.begun == [3]
        slow.let_go.set()
        await flush.stop()
        assert (slow.begun, slow.ended) == ([3, 7], [3, 7])
        assert threading.current_thread().name not in slow.threads

    asyncio.run(scenario())


def test_what_was_marked_before_the_start_is_flushed_then() -> None:
    disk = Disk()
    partition = disk.open()
    partition.append(batch(b"x"), now_ms=NOW)

    async def scenario() -> None:
        disk.flush.start()
        await asyncio.wait_for(partition.wait_durable(0), 5)
        await disk.flush.stop()

    asyncio.run(scenario())
    assert partition.high_watermark == 1


def test_waiting_for_what_is_durable_returns_at_once_and_for_nothing_is_an_error() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, batch(b"a", b"b"))

    async def scenario() -> None:
        await partition.wait_durable(1)
        with pytest.raises(ValueError, match="t-0 ends at 2"):
            await partition.wait_durable(2)

    asyncio.run(scenario())


def test_with_flush_os_nobody_waits() -> None:
    disk = Disk(flush="os")
    partition = disk.open()

    async def scenario() -> None:
        await partition.wait_durable(partition.append(batch(b"x"), now_ms=NOW).last_offset)

    asyncio.run(scenario())


def test_a_partition_that_is_removed_while_it_is_synced_closes_its_files_afterwards() -> None:
    async def scenario() -> None:
        disk = Disk()
        partition = disk.open()
        disk.flush.start()
        gate = threading.Event()
        partition.durability._to_sync.append(gate.wait)
        waiting = asyncio.ensure_future(
            partition.wait_durable(partition.append(batch(b"x"), now_ms=NOW).last_offset)
        )
        await asyncio.sleep(0.01)
        partition.close()
        file = partition._log.segments.active.file
        assert not file.closed  # type: ignore[attr-defined]
        with pytest.raises(KafkaError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        gate.set()
        await disk.flush.stop()
        assert file.closed  # type: ignore[attr-defined]
        with pytest.raises(KafkaError):
            partition.append(batch(b"x"), now_ms=NOW)

    asyncio.run(scenario())


def test_any_failure_of_a_sync_counts_as_one() -> None:
    class Odd(Slow):
        def begin_flush(self) -> tuple[int, Sequence[Job]]:
            def broken() -> None:
                raise ValueError("odd")

            return 1, [broken]

        def end_flush(self, offset: int, error: Exception | None) -> None:
            assert isinstance(error, ValueError)
            self.ended.append(offset)

    async def scenario() -> None:
        flush = GroupFlush()
        flush.start()
        odd = Odd(flush)
        odd.write()
        await flush.stop()
        assert odd.ended == [1]

    asyncio.run(scenario())


def test_a_cancelled_wait_disturbs_nobody() -> None:
    async def scenario() -> None:
        disk = Disk()
        partition = disk.open()
        offset = partition.append(batch(b"x"), now_ms=NOW).last_offset
        first, second = (asyncio.ensure_future(partition.wait_durable(offset)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        disk.sync(partition)
        await second
        assert first.cancelled()

    asyncio.run(scenario())


class Paced(Slow):
    """A partition whose sync takes `seconds`, by the clock that the flush is given."""

    seconds = 0.0

    def begin_flush(self) -> tuple[int, Sequence[Job]]:
        self.let_go.set()
        return super().begin_flush()


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> type[Paced]:
    """What a sync takes: two looks at the clock, `Paced.seconds` apart."""
    now = [0.0]

    def clock() -> float:
        now[0] += Paced.seconds
        return now[0]

    monkeypatch.setattr(durability, "perf_counter", clock)
    return Paced


async def _durable(partition: Paced) -> str:
    """Write once, wait until it is durable; answers in which thread it was synced."""
    partition.threads.clear()
    partition.write()
    while partition.ended[-1:] != [partition.end]:
        await asyncio.sleep(0.001)
    (thread,) = partition.threads
    return thread


def test_a_quick_disk_is_synced_here_and_a_slow_one_by_threads(pace: type[Paced]) -> None:
    async def scenario() -> None:
        here = threading.current_thread().name
        flush = GroupFlush()
        flush.start()
        partition = pace(flush)
        pace.seconds = durability.QUICK / 10
        assert await _durable(partition) != here, "nothing is known of the disk yet"
        in_turn = [await _durable(partition) for _ in range(40)]
        assert in_turn[-1] == here
        pace.seconds = 1.0
        assert await _durable(partition) == here, "it could not be known"
        assert await _durable(partition) != here, "one second is enough"
        pace.seconds = durability.QUICK / 10
        assert [await _durable(partition) for _ in range(80)][-1] == here
        await flush.stop()

    asyncio.run(scenario())


def test_many_partitions_at_once_are_for_the_threads(pace: type[Paced]) -> None:
    """However quick each is: the loop has others to serve."""

    async def scenario() -> None:
        here = threading.current_thread().name
        flush = GroupFlush()
        flush.start()
        pace.seconds = durability.QUICK / 10
        many = [pace(flush) for _ in range(20)]
        for _ in range(40):
            await _durable(many[0])
        for partition in many:
            partition.threads.clear()
            partition.write()
        await flush.stop()
        assert all(partition.ended[-1] == partition.end for partition in many)
        assert not any(here in partition.threads for partition in many)

    asyncio.run(scenario())


def test_what_comes_in_a_row_shares_a_sync(pace: type[Paced]) -> None:
    """Marks of turns of the loop that follow each other, up to a bound."""

    async def scenario() -> None:
        flush = GroupFlush()
        flush.start()
        partition = pace(flush)
        for _ in range(durability.MOST_TURNS + 1):
            partition.write()
            await asyncio.sleep(0)
        assert partition.begun == [durability.MOST_TURNS + 1]
        while not partition.ended:
            await asyncio.sleep(0.001)
        for _ in range(3 * durability.MOST_TURNS):
            partition.write()
            await asyncio.sleep(0)
        await flush.stop()
        assert partition.ended[-1] == partition.end and len(partition.begun) > 2

    asyncio.run(scenario())


def test_what_is_written_during_a_sync_is_not_made_durable_by_it() -> None:
    """Neither shown nor believed by a start; and what a later sync fails to keep is cut off from there on."""
    disk = Disk()
    partition = disk.open()
    partition.append(batch(b"a"), now_ms=NOW)
    assert partition.high_watermark == 0, "nobody sees what no sync has made durable"
    offset, jobs = partition.durability.begin_flush()
    size = len(disk.file("00000000000000000000.log"))
    partition.append(batch(b"b"), now_ms=NOW)
    for job in jobs:
        job()
    partition.durability.end_flush(offset, None)
    assert (partition.high_watermark, partition.recovery_point, partition.log_end_offset) == (1, 1, 2)
    offset, _ = partition.durability.begin_flush()
    partition.durability.end_flush(offset, OSError("the disk is gone"))
    assert partition.offline is not None
    assert len(disk.file("00000000000000000000.log")) == size


def test_a_roll_leaves_nothing_unsynced_but_what_is_written_now() -> None:
    disk = Disk(LogSettings(segment_bytes=1000, index_interval_bytes=100))
    partition = disk.open()
    for _ in range(40):
        disk.append(partition, batch(bytes(50), timestamp=NOW))
    names = [name for name in disk.fs.list(DIRECTORY) if name.endswith((".log", ".index", ".timeindex"))]
    assert len(names) > 9
    for name in names[:-3]:
        inode = disk.fs.find(f"{DIRECTORY}/{name}")
        assert isinstance(inode, Inode) and inode.durable == bytes(inode.data) and not inode.pending, name


def test_a_sync_that_fails_ends_the_jobs() -> None:
    """What comes behind it leans on it: an index on its log, a snapshot on both."""

    class Two:
        def __init__(self) -> None:
            self.done: list[str] = []
            self.error: Exception | None = None

        def fail(self) -> None:
            raise OSError("the disk is gone")

        def begin_flush(self) -> tuple[int, Sequence[Job]]:
            return 1, [lambda: self.done.append("first"), self.fail, lambda: self.done.append("last")]

        def end_flush(self, offset: int, error: Exception | None) -> None:
            self.error = error

    partition = Two()
    GroupFlush().flush_now(partition)
    assert partition.done == ["first"] and isinstance(partition.error, OSError)
