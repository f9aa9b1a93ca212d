"""Records of `__transaction_state`: one key a transactional id, its state as the value (null: expired).

Value version 1 (KIP-890, transaction.version 2) adds the tagged fields. `together` is eoslog's own, in a
prepared state: the open transactions that the same record decides, and who held them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.protocol.fields import ARRAY, INT8, INT16, INT32, INT64, OWN_TAGS, STRING, F
from eoslog.protocol.schema import Schema

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        TransactionLogKey,
        TransactionLogKeyDraft,
        TransactionLogValue,
        TransactionLogValueDraft,
    )

TRANSACTION_KEY: Schema[TransactionLogKey, TransactionLogKeyDraft] = Schema(
    "TransactionLogKey", "0", fields=(F("transactional_id", STRING),)
)

TRANSACTION_VALUE: Schema[TransactionLogValue, TransactionLogValueDraft] = Schema(
    "TransactionLogValue",
    "0-1",
    flexible=1,
    fields=(
        F("producer_id", INT64),
        F("previous_producer_id", INT64, "1+", default=-1, tag=0),
        F("next_producer_id", INT64, "1+", default=-1, tag=1),
        F("producer_epoch", INT16),
        F("next_producer_epoch", INT16, "1+", default=-1, tag=3),
        F("transaction_timeout_ms", INT32),
        F("transaction_status", INT8),
        F(
            "transaction_partitions",
            ARRAY(
                F("topic", STRING),
                F("partition_ids", ARRAY(INT32)),
            ),
            nullable=True,
        ),
        F("transaction_last_update_timestamp_ms", INT64),
        F("transaction_start_timestamp_ms", INT64),
        F("client_transaction_version", INT16, "1+", tag=2),
        F(
            "together",
            ARRAY(
                F("transactional_id", STRING),
                F("producer_id", INT64),
                F("producer_epoch", INT16),
            ),
            "1+",
            tag=OWN_TAGS,
        ),
    ),
)
