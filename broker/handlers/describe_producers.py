"""DescribeProducers (key 61, version 0): the producers that partitions know, and their open transactions.

Shows the state of each partition itself: current_txn_start_offset is the first offset of the producer's open
transaction there, -1 if it has none (KIP-664).

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import topics
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.broker.rules.producer_state import ProducerState
    from eoslog.protocol.typed import (
        DescribeProducersRequest,
        DescribeProducersResponseActiveProducerDraft,
        DescribeProducersResponseDraft,
        DescribeProducersResponsePartitionDraft,
    )

KEY = ApiKey.DESCRIBE_PRODUCERS
VERSIONS = (0, 0)


access = topics(AclOperation.READ)


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponseDraft:
    """Describe each partition separately."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [_partition(context, topic["name"], i) for i in topic["partition_indexes"]],
            }
            for topic in request["topics"]
        ]
    }


def _partition(context: RequestContext, topic: str, index: int) -> DescribeProducersResponsePartitionDraft:
    partition = context.broker.topics.partition(topic, index)
    if partition is None:
        return {
            "partition_index": index,
            "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "error_message": f"there is no partition {topic}-{index}",
            "active_producers": [],
        }
    producers = [_producer(state) for state in partition.producers()]
    return {"partition_index": index, "error_code": 0, "active_producers": producers}


def _producer(state: ProducerState) -> DescribeProducersResponseActiveProducerDraft:
    return {
        "producer_id": state.producer_id,
        "producer_epoch": state.epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp": state.last_timestamp,
        "coordinator_epoch": state.coordinator_epoch,
        "current_txn_start_offset": state.transaction_start,
    }
