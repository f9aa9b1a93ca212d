"""Saving all logs at an orderly end."""

from __future__ import annotations

from collections.abc import Iterable

from eoslog.broker.log.partition.partition import Partition
from eoslog.broker.log.segment.many import each


def save_all(partitions: Iterable[Partition]) -> None:
    """Save what has changed, see `Partition.save`; nobody may use them now. Raises the first OSError."""
    each(Partition.save, [partition for partition in partitions if partition.progress.changed])
