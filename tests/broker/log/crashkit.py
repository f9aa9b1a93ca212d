"""Topics on a file system in memory, and a crash at every point of what is done to them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log.segment.group_flush import GroupFlush
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.fakefs import FakeClock, FakeFileSystem, Outcome, PowerLoss
from tests.broker.log.logkit import NOW, batch

DATA = "/var/data"


def opened(fs: FakeFileSystem, config: BrokerConfig | None = None, **options: str) -> Topics:
    """The topics of a broker with this config, or with these options, dots as underlines."""
    return Topics.open(
        fs,
        DATA,
        config or BrokerConfig.from_options({name.replace("_", "."): text for name, text in options.items()}),
        FakeClock(),
        GroupFlush(),
    )


def code(call: Callable[[], object]) -> ErrorCode:
    """The code of the KafkaError that `call` raises."""
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


OUTCOMES = [Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX, Outcome.PREFIX, Outcome.PREFIX]


def every_crash(act: Callable[[Topics], object], check: Callable[[Topics, bool], None]) -> int:
    """Do `act` with a crash before each of its changes of the disk, in all ways; `check` after a restart."""
    steps = 0
    while True:
        finished = False
        for seed, outcome in enumerate(OUTCOMES):
            fs = FakeFileSystem()
            topics = opened(fs)
            topics.create("other", 1)
            keep = topics.create("keep", 1).partitions[0]
            keep.append(batch(b"x"), now_ms=NOW)
            keep.durability.flush_now()
            fs.steps_left = steps
            try:
                act(topics)
                finished = True
            except PowerLoss:
                finished = False
            fs.crash(outcome, Random(seed * 1000 + steps))
            again = opened(fs)
            assert again.report == []
            check(again, finished)
            kept = again.partition("keep", 0)
            assert kept is None or kept.log_end_offset == 1
            directories = sorted(name for name in fs.list(DATA) if "." not in name and "-" in name)
            wanted = [f"{p}" for name in again.names() for p in again.get(name).partitions]  # type: ignore[union-attr]
            assert directories == sorted(wanted), "nothing is left over"
            assert not [name for name in fs.list(DATA) if name.endswith((".tmp", "-delete"))]
        if finished:
            return steps
        steps += 1
