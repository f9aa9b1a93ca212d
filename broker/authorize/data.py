"""Access to records: Produce, Fetch, ListOffsets and what else names partitions to read or write them."""

from __future__ import annotations

from eoslog.broker.authorize.cuts import (
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    in_turn,
    topics,
)
from eoslog.broker.authorize.guard import Asked, Mend, Refused
from eoslog.broker.rules.acls import Operation, ResourceType
from eoslog.protocol.batch import CorruptBatch, read_header
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.schema import Message


def _produced(index: int, code: ErrorCode = TOPIC_DENIED) -> Message:
    return {"index": index, "error_code": code, "base_offset": -1}


def _transactional_id(asked: Asked) -> Refused | None:
    """Who writes transactional batches must be allowed to use their id, or nothing is appended."""
    transactional_id = asked.request["transactional_id"]
    if not _has_transactional(asked.request) or (
        transactional_id is not None
        and asked.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        return None
    if not asked.request["acks"]:
        return Refused(None)
    responses = [
        {
            "name": topic["name"],
            "topic_id": topic["topic_id"],
            "partition_responses": [
                _produced(part["index"], TRANSACTION_DENIED) for part in topic["partition_data"]
            ],
        }
        for topic in asked.request["topic_data"]
    ]
    return Refused({"responses": responses})


def _has_transactional(request: Message) -> bool:
    """Whether one of the batches is part of a transaction; one that is none is refused later."""
    for topic in request["topic_data"]:
        for part in topic["partition_data"]:
            try:
                if part["records"] and read_header(part["records"]).is_transactional:
                    return True
            except CorruptBatch:
                continue
    return False


produce = in_turn(
    _transactional_id,
    topics(
        Operation.WRITE, field="topic_data", partitions="partition_data", index="index",
        answers="responses", entries="partition_responses", entry=_produced,
    ),
)  # fmt: skip


def _not_fetched(index: int) -> Message:
    return {
        "partition_index": index, "error_code": TOPIC_DENIED, "high_watermark": -1,
        "aborted_transactions": None, "records": b"",
    }  # fmt: skip


_fetched = topics(Operation.READ, name="topic", index="partition", answers="responses", entry=_not_fetched)


def fetch(asked: Asked) -> Refused | Mend | None:
    """Consumers need READ on each topic; who says to be a follower needs CLUSTER_ACTION, for all of them."""
    request = asked.request
    newer: Message = request.get("replica_state", {})
    if max(request.get("replica_id", -1), newer.get("replica_id", -1)) < 0:
        return _fetched(asked)
    if asked.may_cluster(Operation.CLUSTER_ACTION):
        return None
    return Refused({
        "responses": [
            {
                "topic": topic.get("topic"),
                "partitions": [_not_fetched(part["partition"]) for part in topic["partitions"]],
            }
            | ({"topic_id": topic["topic_id"]} if "topic_id" in topic else {})
            for topic in request["topics"]
        ]
    })  # fmt: skip


list_offsets = topics(
    Operation.DESCRIBE, entry=lambda index: {"partition_index": index, "error_code": TOPIC_DENIED}
)

_epochs = topics(
    Operation.DESCRIBE, name="topic", index="partition",
    entry=lambda index: {"partition": index, "error_code": TOPIC_DENIED},
)  # fmt: skip


def offset_for_leader_epoch(asked: Asked) -> Refused | Mend | None:
    """Needs DESCRIBE on each topic; brokers with CLUSTER_ACTION may ask for all."""
    if asked.may_cluster(Operation.CLUSTER_ACTION, told=False):
        return None
    return _epochs(asked)


delete_records = topics(
    Operation.DELETE,
    entry=lambda index: {"partition_index": index, "low_watermark": -1, "error_code": TOPIC_DENIED},
)

describe_producers = topics(
    Operation.READ, partitions="partition_indexes", index=None,
    entry=lambda index: {"partition_index": index, "error_code": TOPIC_DENIED, "error_message": None},
)  # fmt: skip
