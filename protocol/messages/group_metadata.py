"""Records of `__consumer_offsets`: committed offsets and the state of groups.

The int16 before a key says its kind: 0 or 1 an offset, 2 a group. Before a value it is the value's version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.protocol.fields import ARRAY, BYTES, INT32, INT64, STRING, UUID, F
from eoslog.protocol.schema import Schema

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        GroupMetadataKey,
        GroupMetadataKeyDraft,
        GroupMetadataValue,
        GroupMetadataValueDraft,
        OffsetCommitKey,
        OffsetCommitKeyDraft,
        OffsetCommitValue,
        OffsetCommitValueDraft,
    )

OFFSET_COMMIT_KEY: Schema[OffsetCommitKey, OffsetCommitKeyDraft] = Schema(
    "OffsetCommitKey",
    "0-1",
    fields=(
        F("group", STRING),
        F("topic", STRING),
        F("partition", INT32),
    ),
)

OFFSET_COMMIT_VALUE: Schema[OffsetCommitValue, OffsetCommitValueDraft] = Schema(
    "OffsetCommitValue",
    "0-4",
    flexible=4,
    fields=(
        F("offset", INT64),
        F("leader_epoch", INT32, "3+", default=-1, ignorable=True),
        F("metadata", STRING),
        F("commit_timestamp", INT64),
        F("expire_timestamp", INT64, "1", default=-1, ignorable=True),
        F("topic_id", UUID, "4+", tag=0, ignorable=True),
    ),
)

GROUP_METADATA_KEY: Schema[GroupMetadataKey, GroupMetadataKeyDraft] = Schema(
    "GroupMetadataKey", "2", fields=(F("group", STRING),)
)

GROUP_METADATA_VALUE: Schema[GroupMetadataValue, GroupMetadataValueDraft] = Schema(
    "GroupMetadataValue",
    "0-4",
    flexible=4,
    fields=(
        F("protocol_type", STRING),
        F("generation", INT32),
        F("protocol", STRING, nullable=True),
        F("leader", STRING, nullable=True),
        F("current_state_timestamp", INT64, "2+", default=-1, ignorable=True),
        F(
            "members",
            ARRAY(
                F("member_id", STRING),
                F("group_instance_id", STRING, "3+", nullable=True, default=None, ignorable=True),
                F("client_id", STRING),
                F("client_host", STRING),
                F("rebalance_timeout", INT32, "1+", default=-1, ignorable=True),
                F("session_timeout", INT32),
                F("subscription", BYTES),
                F("assignment", BYTES),
            ),
        ),
    ),
)
