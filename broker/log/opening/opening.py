"""Creates, opens and saves partitions: directory, small files and log. A damaged one opens offline."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence

from eoslog.broker.log.partition.partition import Partition
from eoslog.broker.log.recovery.partition_reopening import read_back
from eoslog.broker.log.recovery.recovery import DamagedLog, KnownLog, RecoveryFinding
from eoslog.broker.log.segment import files
from eoslog.broker.log.segment.checkpoint import Checkpoints
from eoslog.broker.log.segment.group_flush import GroupFlush
from eoslog.broker.log.segment.log_settings import LogSettings
from eoslog.broker.log.segment.parallel_sync import for_each_parallel
from eoslog.broker.log.segment.results import PartitionPlace
from eoslog.broker.log.segment.scan import DamagedBatch
from eoslog.broker.log.segment.segment import Segment
from eoslog.broker.ports.ports import FileSystem
from eoslog.broker.rules.producer_state import ProducerStates

logger = logging.getLogger(__name__)


def create_directory(fs: FileSystem, directory: str, topic_id: bytes, interval: int, epoch: int = 0) -> None:
    """Create the directory of a new partition. The caller syncs its parent. Raises OSError."""
    fs.make_dir(directory)
    metadata = os.path.join(directory, files.PARTITION_METADATA)
    files.write_whole(fs, metadata, files.encode_partition_metadata(topic_id), sync_dir=False)
    epochs = os.path.join(directory, files.LEADER_EPOCHS)
    files.write_whole(fs, epochs, files.encode_checkpoint([f"{epoch} 0"]), sync=False, sync_dir=False)
    Segment.create(fs, directory, 0, interval).close()
    fs.sync_dir(directory)


def create_directories(fs: FileSystem, places: Sequence[PartitionPlace], interval: int, epoch: int) -> None:
    """Create the directories of new partitions, see `create_directory`. Raises the first OSError."""

    def create(place: PartitionPlace) -> None:
        create_directory(fs, place.directory, place.topic_id, interval, epoch)

    for_each_parallel(create, places)


def open_partition(
    fs: FileSystem,
    place: PartitionPlace,
    settings: LogSettings,
    flush: GroupFlush,
    checkpoints: Checkpoints,
    known: KnownLog,
    now_ms: int,
    report: list[RecoveryFinding],
) -> Partition:
    """Open a partition. Adds to `report` what was cut off or is damaged.

    If the log has lost acknowledged records, or cannot be read, the partition is offline: its requests get
    KAFKA_STORAGE_ERROR, the broker's other partitions are not affected.
    """
    try:
        if checkpoints.cleaned_forgotten and settings.compacted:
            checkpoints.cleaned.put(place.topic, place.number, 0)
        start = checkpoints.starts.get(place.topic, place.number)
        segments, states = read_back(fs, place.directory, settings, known, start, now_ms, report)
    except DamagedLog as damage:
        report.append(damage.finding)
        return _offline(fs, place, settings, flush, checkpoints, known, str(damage))
    except DamagedBatch as damage:
        report.append(RecoveryFinding(damage.path, damage.position, -1, damage.reason))
        return _offline(fs, place, settings, flush, checkpoints, known, str(damage))
    except OSError as error:
        report.append(RecoveryFinding(place.directory, 0, -1, f"cannot be opened: {error}"))
        return _offline(fs, place, settings, flush, checkpoints, known, str(error), may_return=True)
    partition = Partition(fs, place, settings, flush, checkpoints, segments, states, known.leader_epoch)
    if known.clean or (partition.size == 0 and not states.all()):
        partition.progress.is_saved()
    return partition


def _offline(
    fs: FileSystem,
    place: PartitionPlace,
    settings: LogSettings,
    flush: GroupFlush,
    checkpoints: Checkpoints,
    known: KnownLog,
    reason: str,
    may_return: bool = False,
) -> Partition:
    partition = Partition(fs, place, settings, flush, checkpoints, [], ProducerStates(), known.leader_epoch)
    partition.durability.recovery_point = known.recovery_point
    partition.stay_offline(reason, may_return=may_return)
    return partition


def save_all(partitions: Iterable[Partition]) -> None:
    """Save the changed partitions, see `Partition.save`. None may be in use. Raises the first OSError."""
    for_each_parallel(Partition.save, [partition for partition in partitions if partition.progress.changed])
