"""Saves all logs at an orderly shutdown."""

from __future__ import annotations

from collections.abc import Iterable

from eoslog.broker.log.partition.partition import Partition
from eoslog.broker.log.segment.parallel_sync import each


def save_all(partitions: Iterable[Partition]) -> None:
    """Save the changed partitions, see `Partition.save`. None may be in use. Raises the first OSError."""
    each(Partition.save, [partition for partition in partitions if partition.progress.changed])
