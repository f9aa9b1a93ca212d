"""A real process on a real disk, killed with SIGKILL while it appends: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.topics import TopicOptions
from eoslog.broker.log.segment.group_flush import GroupFlush
from eoslog.broker.ports.ports import OsFileSystem, SystemClock
from eoslog.broker.topics.topics import Topics
from tests.broker.log.logkit import sequenced

CONFIG = BrokerConfig(topics=TopicOptions(segment_bytes=20000))
CHILD = """
import asyncio, sys
from tests.broker.log.logkit import sequenced
from eoslog.broker.log.segment.group_flush import GroupFlush
from eoslog.broker.ports.ports import OsFileSystem, SystemClock
from eoslog.broker.topics.topics import Topics
from tests.broker.log.test_log_kill9 import CONFIG

async def main():
    flush = GroupFlush(sys.argv[2])
    flush.start()
    clock = SystemClock()
    topics = Topics.open(OsFileSystem(), sys.argv[1], CONFIG, clock, flush)
    partitions = (topics.get("t") or topics.create("t", 3)).partitions

    async def produce(pid, partition):
        sequence = partition.log_end_offset
        while True:
            last = partition.append(sequenced(pid, sequence, 2), now_ms=clock.now_ms()).last_offset
            await partition.wait_durable(last)
            print(partition.index, last, flush=True)
            sequence += 2
            await asyncio.sleep(0)

    await asyncio.gather(*(produce(p.index, p) for p in partitions))

asyncio.run(main())
"""


@pytest.mark.parametrize("mode", ["fsync", "os"])
def test_everything_acknowledged_is_there_after_kill_9(tmp_path: Path, mode: str) -> None:
    data, seed = str(tmp_path / "data"), random.randrange(1 << 30)
    for life in range(3):
        child = subprocess.Popen([sys.executable, "-c", CHILD, data, mode], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(random.Random(seed + life).uniform(0.05, 0.4))
        os.kill(child.pid, signal.SIGKILL)
        lines = [first, *child.stdout.readlines()]
        assert child.wait() == -signal.SIGKILL, seed
        acknowledged = [-1, -1, -1]
        for line in lines:
            if line.endswith("\n"):
                index, last = map(int, line.split())
                acknowledged[index] = last
        _check(data, acknowledged, seed)


def _check(data: str, acknowledged: list[int], seed: int) -> None:
    clock = SystemClock()
    topics = Topics.open(OsFileSystem(), data, CONFIG, clock, GroupFlush())
    topic = topics.get("t")
    assert topic is not None
    for partition, last in zip(topic.partitions, acknowledged, strict=True):
        assert partition.log_end_offset > last, seed
        sequences = [(h.base_offset, h.base_sequence, h.count) for h, _ in partition.scan()]
        assert sequences == [(o, o, 2) for o in range(0, partition.log_end_offset, 2)], seed
        newest = partition.log_end_offset - 2
        for offset in range(max(0, newest - 8), newest + 2, 2):
            appended = partition.append(sequenced(partition.index, offset, 2), now_ms=clock.now_ms())
            assert appended.base_offset == offset, seed
    topics.close()
