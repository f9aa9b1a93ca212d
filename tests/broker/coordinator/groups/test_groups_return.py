"""A partition of `__consumer_offsets` that was offline is back: its groups are what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from eoslog.broker.coordinator.groups.classic_group_state import Join
from eoslog.broker.coordinator.groups.consumer_group_state import ConsumerHeartbeat
from eoslog.broker.log.upkeep.upkeep import Upkeep
from eoslog.broker.ports.ports import OsFile
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinator.groups.group_shell import Shell, on_loop


@contextmanager
def failing_disk() -> Iterator[None]:
    """Nothing that is written to `__consumer_offsets` becomes durable."""
    real = OsFile.sync

    def sync(file: OsFile) -> None:
        if "__consumer_offsets" in file.path:
            raise OSError(5, "Input/output error", file.path)
        real(file)

    with patch.object(OsFile, "sync", sync):
        yield


async def come_back(shell: Shell) -> None:
    """As the broker does it."""
    partitions = [p for p in shell.topics.all_partitions() if p.offline is not None]
    assert partitions
    await Upkeep(lambda: partitions, shell.clock).bring_back(shell.groups.read_again)
    assert all(partition.offline is None for partition in partitions)


def joining(client: str) -> Join:
    protocols = (("range", b""),)
    return Join("", None, client, "h", "consumer", protocols, 60_000, 60_000, client, False)


def beating(member: str, epoch: int) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        member, epoch, rebalance_timeout_ms=60_000, topics=frozenset(("t",)), owned=frozenset()
    )


@on_loop
async def test_a_commit_that_was_refused_is_not_told_later(data: Path) -> None:
    shell = Shell(data)
    await shell.commit("g", p0=1)
    await shell.commit("h", p0=5)
    assert shell.partition("g") is not shell.partition("h")
    with failing_disk(), pytest.raises(KafkaError) as refused:
        await shell.commit("g", p0=2)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError) as offline:
        await shell.offset("g")
    assert offline.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await come_back(shell)
    assert (await shell.offset("g"), await shell.offset("h")) == (1, 5)
    await shell.commit("g", p0=3)
    assert await shell.offset("g") == 3
    assert await shell.crashed().offset("g") == 3


@on_loop
async def test_offsets_of_an_open_transaction_are_as_the_log_has_them(data: Path) -> None:
    shell = Shell(data)
    await shell.txn_commit("g", p0=7)
    with failing_disk(), pytest.raises(KafkaError):
        await shell.txn_commit("g", p1=8)
    await come_back(shell)
    assert (await shell.fetch("g", ("t", 0), stable=True))["t", 0].error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    shell.marker("g", True)
    assert (await shell.offset("g", 0), await shell.offset("g", 1)) == (7, -1)


@on_loop
async def test_who_waits_in_a_classic_group_is_sent_to_look_for_it_again(data: Path) -> None:
    shell = Shell(data)
    assert (await shell.groups.join("g", joining("first"))).error is ErrorCode.NONE
    second = shell.groups.join("g", joining("second"))
    await asyncio.sleep(0)
    assert not second.done(), "it waits for the first member"
    assert shell.partition("i") is shell.partition("g")
    with failing_disk(), pytest.raises(KafkaError):
        await shell.commit("i", p0=1)
    assert not second.done()
    await come_back(shell)
    assert (await second).error is ErrorCode.NOT_COORDINATOR
    assert shell.groups.describe("g") is None, "nothing of it was recorded: its first rebalance was under way"
    assert (await shell.groups.join("g", joining("second"))).error is ErrorCode.NONE


@on_loop
async def test_a_consumer_group_is_back_and_its_sessions_run(data: Path) -> None:
    short = {"group.consumer.session.timeout.ms": "400", "group.consumer.min.session.timeout.ms": "1"}
    shell = Shell(data, short | {"group.consumer.heartbeat.interval.ms": "100"})
    shell.topic()
    await shell.groups.consumer_heartbeat("g", beating("m", 0))
    with failing_disk(), pytest.raises(KafkaError):
        await shell.groups.consumer_heartbeat("g", beating("n", 0))
    await come_back(shell)
    group = shell.groups.describe_consumer("g")
    assert group is not None and list(group.members) == ["m"]
    await asyncio.sleep(0.6)
    left = shell.groups.describe_consumer("g")
    assert left is not None and not left.members, "nobody beats any more"
