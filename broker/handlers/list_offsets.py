"""ListOffsets (key 2, versions 1-11): offsets by time, and the ends of a partition.

Special times: -1 the end (the last stable offset for read_committed), -2 and -4 the start, -3 the record with
the largest time stamp, -5 and -6 the ends of remote storage, which does not exist here (offset -1).

Left out: remote storage, whose ends are answered as -1.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import topics
from eoslog.broker.requests import RequestContext
from eoslog.broker.rules.fetch_session import check_leader_epoch, reads_committed
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.protocol.typed import (
        ListOffsetsRequest,
        ListOffsetsRequestPartition,
        ListOffsetsRequestTopic,
        ListOffsetsResponseDraft,
        ListOffsetsResponsePartitionDraft,
        ListOffsetsResponseTopicDraft,
    )

KEY = ApiKey.LIST_OFFSETS
VERSIONS = (1, 11)


access = topics(AclOperation.DESCRIBE)


LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6

_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""The first version that has each special time."""

_NEVER = 2**15
_LEADER_EPOCHS_SINCE = 4
_NOTHING = (-1, -1)


def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponseDraft:
    """Return an offset for each partition, -1 if no record is as late as asked for."""
    topics, isolation = request["topics"], request["isolation_level"]
    asked = Counter((topic["name"], p["partition_index"]) for topic in topics for p in topic["partitions"])
    twice = {place for place, count in asked.items() if count > 1}

    def answer(topic: ListOffsetsRequestTopic) -> ListOffsetsResponseTopicDraft:
        name = topic["name"]
        parts = [_answer(context, name, wanted, isolation, twice) for wanted in topic["partitions"]]
        return {"name": name, "partitions": parts}

    return {"topics": [answer(topic) for topic in topics]}


def _answer(
    context: RequestContext,
    topic: str,
    wanted: ListOffsetsRequestPartition,
    isolation: int,
    twice: set[tuple[str, int]],
) -> ListOffsetsResponsePartitionDraft:
    index = wanted["partition_index"]
    try:
        committed = reads_committed(isolation)
        if (topic, index) in twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic}-{index} is in the request twice")
        partition = context.broker.topics.partition(topic, index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
        check_leader_epoch(partition.leader_epoch, wanted["current_leader_epoch"])
        timestamp, offset = _offset(partition, wanted["timestamp"], committed, context.header.api_version)
        epoch = _epoch(partition, wanted["timestamp"], offset)
    except KafkaError as error:
        return {"partition_index": index, "error_code": error.code}
    known = offset >= 0 and context.header.api_version >= _LEADER_EPOCHS_SINCE
    return {
        "partition_index": index,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch if known else -1,
    }


def _epoch(partition: Partition, asked: int, offset: int) -> int:
    """As in Kafka: for the end the leader's current epoch, for a record its own."""
    return partition.leader_epoch if asked == LATEST or offset < 0 else partition.epoch_at(offset)


def _offset(partition: Partition, timestamp: int, committed: bool, version: int) -> tuple[int, int]:
    """(time stamp, offset) for a time or a special time; time stamp -1 for the ends."""
    if timestamp < 0 and version < (since := _SINCE.get(timestamp, _NEVER)):
        what = f"needs version {since}" if since < _NEVER else "is none of the special times"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"time {timestamp} {what}")
    end = partition.last_stable_offset if committed else partition.high_watermark
    match timestamp:
        case -1:
            return -1, end
        case -2 | -4:
            return -1, partition.log_start_offset
        case -3:
            found = partition.max_timestamp()
        case -5 | -6:
            return _NOTHING
        case _:
            found = partition.offset_for(timestamp, committed=committed)
    return found if found is not None and found[1] < end else _NOTHING
