"""A backup is of one instant, whatever changes from turn to turn of the event loop while it is made."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log.segment.group_flush import GroupFlush
from eoslog.broker.log.upkeep import backup
from eoslog.broker.log.upkeep.backup import Backups
from eoslog.broker.ports.ports import OsFileSystem
from eoslog.broker.topics.topics import Topics
from eoslog.commands.backup_copy import copied
from eoslog.commands.backup_source import NoBackup, source
from tests.broker.log.fakefs import FakeClock
from tests.broker.log.logkit import NOW, sequenced

PARTITIONS = 8
SMALL = {"segment.bytes": "1024", "file.delete.delay.ms": "0"}
WRITER, ABORTED, IDLE = 1, 2, 3  # producer ids


def opened(directory: Path) -> Topics:
    return Topics.open(OsFileSystem(), str(directory), BrokerConfig(), FakeClock(NOW), GroupFlush("os"))


class BusyTopic:
    """A topic in whose partitions the same is written in the same turn; others come and go."""

    def __init__(self, directory: Path) -> None:
        self.topics = opened(directory)
        self.backups = Backups(OsFileSystem(), str(directory), self.topics.all_partitions, FakeClock(NOW))
        self.topic = self.topics.create("t", PARTITIONS, SMALL)
        self.rounds = 0

    def one_round(self) -> None:
        number, self.rounds = self.rounds, self.rounds + 1
        for partition in self.topic.partitions:
            if not number:
                partition.append(sequenced(IDLE, 0), now_ms=NOW)
            partition.append(sequenced(WRITER, number), now_ms=NOW)
            partition.append(sequenced(ABORTED, number, transactional=True), now_ms=NOW)
            partition.append_marker(ABORTED, 0, False, 0, NOW)
        if number % 3 == 2:
            for partition in self.topic.partitions:
                partition.delete_records(partition.log_end_offset - 10)
                partition.retain(NOW)
        name = f"passing-{number // 5}"
        if number % 5 == 0:
            self.topics.create(name, 2, SMALL).partitions[0].append(sequenced(WRITER, 0), now_ms=NOW)
        elif number % 5 == 4:
            self.topics.delete(name)

    async def copy(self, rounds: int, directory: Path, to: Path) -> None:
        """Make a copy after so many rounds, and go on meanwhile."""

        def make() -> None:
            with source(str(directory)) as found:
                copied(found, str(to), lambda size: None)

        self.topics._flush.start()
        for _ in range(rounds):
            self.one_round()
        making = asyncio.create_task(asyncio.to_thread(make))
        while not making.done():
            look = asyncio.create_task(self.backups.look())
            while not look.done():
                await asyncio.sleep(0)
                self.one_round()
            await look
            await asyncio.sleep(0.01)
        await making
        await self.topics._flush.stop()


@pytest.mark.parametrize("rounds", [1, 20])
def test_all_partitions_are_of_the_same_turn(tmp_path: Path, rounds: int) -> None:
    busy = BusyTopic(tmp_path / "data")
    asyncio.run(busy.copy(rounds, tmp_path / "data", tmp_path / "copy"))
    assert busy.rounds > rounds + PARTITIONS, "it was written to meanwhile"
    copy = opened(tmp_path / "copy")
    assert copy.report == []
    topic = copy.get("t")
    assert topic is not None
    (end,) = {partition.log_end_offset for partition in topic.partitions}
    (start,) = {partition.log_start_offset for partition in topic.partitions}
    written = (end - 1) // 3
    assert rounds <= written < busy.rounds and end == 1 + 3 * written
    assert start == max(0, 1 + 3 * (written - written % 3) - 10)
    for partition in topic.partitions:
        states = {state.producer_id: state for state in partition.producers()}
        assert set(states) == {WRITER, ABORTED, IDLE}, "those whose records are deleted are known still"
        assert states[WRITER].batches[-1].last_sequence == written - 1
        markers = [entry.last_offset for one in partition.segments for entry in one.transactions.entries]
        assert markers == list(range(markers[0], end, 3)) and markers[0] <= start + 3, "all that was aborted"
    passing = [name for name in copy.names() if name != "t"]
    assert passing in ([], [f"passing-{(written - 1) // 5}"])
    copy.close()
    busy.topics.close()


def test_a_log_that_the_broker_has_not_given_is_missed(tmp_path: Path) -> None:
    """A copy without it would begin the partition anew."""
    data = tmp_path / "data"
    topics = opened(data)

    def answer() -> None:
        place = data / backup.DIRECTORY
        while not (place / backup.LOCK).exists():
            time.sleep(0.01)
        (place / "t-0").mkdir()
        sizes = {"t-0": {f"{0:020d}.log": 10, f"{0:020d}.txnindex": 0}}
        (place / "answer").write_text(json.dumps({"now_ms": NOW, "sizes": sizes}))
        (place / "answer").rename(place / backup.ANSWER)

    broker = threading.Thread(target=answer)
    broker.start()
    with pytest.raises(NoBackup, match=r"left out t-0/0+\.log"), source(str(data)):
        pass
    broker.join()
    topics.close()
