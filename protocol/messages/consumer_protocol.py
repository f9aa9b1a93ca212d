"""What members of a classic consumer group tell each other inside JoinGroup and SyncGroup (embedded bytes).

An int16 version comes first (`coordinator_records.encode` and `decode`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.protocol.fields import ARRAY, BYTES, INT32, STRING, F
from eoslog.protocol.schema import Schema

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ConsumerProtocolAssignment,
        ConsumerProtocolAssignmentDraft,
        ConsumerProtocolSubscription,
        ConsumerProtocolSubscriptionDraft,
    )

CONSUMER_PROTOCOL_SUBSCRIPTION: Schema[ConsumerProtocolSubscription, ConsumerProtocolSubscriptionDraft] = (
    Schema(
        "ConsumerProtocolSubscription",
        "0-3",
        fields=(
            F("topics", ARRAY(STRING)),
            F("user_data", BYTES, nullable=True, default=None),
            F(
                "owned_partitions",
                ARRAY(
                    F("topic", STRING),
                    F("partitions", ARRAY(INT32)),
                ),
                "1+",
                ignorable=True,
            ),
            F("generation_id", INT32, "2+", default=-1, ignorable=True),
            F("rack_id", STRING, "3+", nullable=True, default=None, ignorable=True),
        ),
    )
)

CONSUMER_PROTOCOL_ASSIGNMENT: Schema[ConsumerProtocolAssignment, ConsumerProtocolAssignmentDraft] = Schema(
    "ConsumerProtocolAssignment",
    "0-3",
    fields=(
        F(
            "assigned_partitions",
            ARRAY(
                F("topic", STRING),
                F("partitions", ARRAY(INT32)),
            ),
        ),
        F("user_data", BYTES, nullable=True, default=None),
    ),
)
