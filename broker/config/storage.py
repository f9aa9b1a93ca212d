"""Options of the log: where it is, and what durable means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from eoslog.broker.config.base import option

FlushMode = Literal["fsync", "os"]


@dataclass(frozen=True)
class StorageOptions:
    """The data directory and when it is written to."""

    log_dirs: str = option("eoslog-data", "log.dirs", "data directory")
    flush: FlushMode = option(
        "fsync",
        "flush.mode",
        "fsync: acknowledge after fdatasync; os: after the write call, as Kafka does",
        choices=get_args(FlushMode),
    )
    checkpoint_interval_ms: int = option(
        60_000,
        "log.flush.offset.checkpoint.interval.ms",
        "how often the recovery points are written",
        low=1,
    )
