"""Access to records: Produce, Fetch, ListOffsets and what else names partitions to read or write them."""

from __future__ import annotations

from eoslog.broker.authorize.cuts import (
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    in_turn,
    topics,
)
from eoslog.broker.authorize.guard import Asked, Refused
from eoslog.broker.rules.acls import Operation, ResourceType
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.schema import Message


def _produced(index: int, code: ErrorCode = TOPIC_DENIED) -> Message:
    return {"index": index, "error_code": code, "base_offset": -1}


def _transactional_id(asked: Asked) -> Refused | None:
    """A producer that names a transactional id must be allowed to use it, or nothing is appended."""
    transactional_id = asked.request["transactional_id"]
    if transactional_id is None or asked.may(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
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


produce = in_turn(
    _transactional_id,
    topics(
        Operation.WRITE, field="topic_data", partitions="partition_data", index="index",
        answers="responses", entries="partition_responses", entry=_produced,
    ),
)  # fmt: skip

fetch = topics(
    Operation.READ, name="topic", index="partition", answers="responses",
    entry=lambda index: {
        "partition_index": index, "error_code": TOPIC_DENIED, "high_watermark": -1,
        "aborted_transactions": None, "records": b"",
    },
)  # fmt: skip

list_offsets = topics(
    Operation.DESCRIBE, entry=lambda index: {"partition_index": index, "error_code": TOPIC_DENIED}
)

offset_for_leader_epoch = topics(
    Operation.DESCRIBE, name="topic", index="partition",
    entry=lambda index: {"partition": index, "error_code": TOPIC_DENIED},
)  # fmt: skip

delete_records = topics(
    Operation.DELETE,
    entry=lambda index: {"partition_index": index, "low_watermark": -1, "error_code": TOPIC_DENIED},
)

describe_producers = topics(
    Operation.READ, partitions="partition_indexes", index=None,
    entry=lambda index: {"partition_index": index, "error_code": TOPIC_DENIED, "error_message": None},
)  # fmt: skip
