"""Transactions and their producers; the records of `__transaction_state`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, INT64, OWN_TAGS, STRING, F
from eoslog.protocol.schema import Schema

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        TransactionLogKey,
        TransactionLogKeyDraft,
        TransactionLogValue,
        TransactionLogValueDraft,
    )

# InitProducerId (key 22): a producer id and epoch; fences older users of a transactional id.

INIT_PRODUCER_ID_REQUEST = Schema(
    "InitProducerIdRequest",
    "0-6",
    flexible=2,
    fields=(
        F("transactional_id", STRING, nullable=True),
        F("transaction_timeout_ms", INT32),
        F("producer_id", INT64, "3+", default=-1),
        F("producer_epoch", INT16, "3+", default=-1),
        F("enable2_pc", BOOL, "6+"),
        F("keep_prepared_txn", BOOL, "6+"),
    ),
)

INIT_PRODUCER_ID_RESPONSE = Schema(
    "InitProducerIdResponse",
    "0-6",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("producer_id", INT64, default=-1),
        F("producer_epoch", INT16),
        F("ongoing_txn_producer_id", INT64, "6+", default=-1),
        F("ongoing_txn_producer_epoch", INT16, "6+", default=-1),
    ),
)

# AddPartitionsToTxn (key 24): enlist partitions in a transaction; from version 4 for brokers (KIP-890).

ADD_PARTITIONS_TO_TXN_REQUEST = Schema(
    "AddPartitionsToTxnRequest",
    "0-5",
    flexible=3,
    fields=(
        F(
            "transactions",
            ARRAY(
                F("transactional_id", STRING),
                F("producer_id", INT64),
                F("producer_epoch", INT16),
                F("verify_only", BOOL),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING),
                        F("partitions", ARRAY(INT32)),
                    ),
                ),
            ),
            "4+",
        ),
        F("v3_and_below_transactional_id", STRING, "0-3"),
        F("v3_and_below_producer_id", INT64, "0-3"),
        F("v3_and_below_producer_epoch", INT16, "0-3"),
        F(
            "v3_and_below_topics",
            ARRAY(
                F("name", STRING),
                F("partitions", ARRAY(INT32)),
            ),
            "0-3",
        ),
    ),
)

ADD_PARTITIONS_TO_TXN_RESPONSE = Schema(
    "AddPartitionsToTxnResponse",
    "0-5",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16, "4+", ignorable=True),
        F(
            "results_by_transaction",
            ARRAY(
                F("transactional_id", STRING),
                F(
                    "topic_results",
                    ARRAY(
                        F("name", STRING),
                        F(
                            "results_by_partition",
                            ARRAY(
                                F("partition_index", INT32),
                                F("partition_error_code", INT16),
                            ),
                        ),
                    ),
                ),
            ),
            "4+",
        ),
        F(
            "results_by_topic_v3_and_below",
            ARRAY(
                F("name", STRING),
                F(
                    "results_by_partition",
                    ARRAY(
                        F("partition_index", INT32),
                        F("partition_error_code", INT16),
                    ),
                ),
            ),
            "0-3",
        ),
    ),
)

# AddOffsetsToTxn (key 25): enlist a group's offsets in a transaction.

ADD_OFFSETS_TO_TXN_REQUEST = Schema(
    "AddOffsetsToTxnRequest",
    "0-4",
    flexible=3,
    fields=(
        F("transactional_id", STRING),
        F("producer_id", INT64),
        F("producer_epoch", INT16),
        F("group_id", STRING),
    ),
)

ADD_OFFSETS_TO_TXN_RESPONSE = Schema(
    "AddOffsetsToTxnResponse",
    "0-4",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
    ),
)

# EndTxn (key 26): commit or abort; version 5 returns the bumped epoch (KIP-890).
#
# `together` is eoslog's own, for a broker whose ApiVersions says `ends_together`: further transactions that
# end in the same way and become visible in the same moment. A broker that does not know it ends the first one
# only, and answers without it.

END_TXN_REQUEST = Schema(
    "EndTxnRequest",
    "0-5",
    flexible=3,
    fields=(
        F("transactional_id", STRING),
        F("producer_id", INT64),
        F("producer_epoch", INT16),
        F("committed", BOOL),
        F(
            "together",
            ARRAY(
                F("transactional_id", STRING),
                F("producer_id", INT64),
                F("producer_epoch", INT16),
            ),
            "5+",
            tag=OWN_TAGS,
        ),
    ),
)

END_TXN_RESPONSE = Schema(
    "EndTxnResponse",
    "0-5",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("producer_id", INT64, "5+", default=-1, ignorable=True),
        F("producer_epoch", INT16, "5+", default=-1, ignorable=True),
        F(
            "together",
            ARRAY(
                F("transactional_id", STRING),
                F("error_code", INT16),
                F("producer_id", INT64, default=-1),
                F("producer_epoch", INT16, default=-1),
            ),
            "5+",
            tag=OWN_TAGS,
        ),
    ),
)

# WriteTxnMarkers (key 27): a transaction coordinator tells partition leaders to write markers.

WRITE_TXN_MARKERS_REQUEST = Schema(
    "WriteTxnMarkersRequest",
    "1-2",
    flexible=1,
    fields=(
        F(
            "markers",
            ARRAY(
                F("producer_id", INT64),
                F("producer_epoch", INT16),
                F("transaction_result", BOOL),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING),
                        F("partition_indexes", ARRAY(INT32)),
                    ),
                ),
                F("coordinator_epoch", INT32),
                F("transaction_version", INT8, "2+", ignorable=True),
            ),
        ),
    ),
)

WRITE_TXN_MARKERS_RESPONSE = Schema(
    "WriteTxnMarkersResponse",
    "1-2",
    flexible=1,
    fields=(
        F(
            "markers",
            ARRAY(
                F("producer_id", INT64),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING),
                        F(
                            "partitions",
                            ARRAY(
                                F("partition_index", INT32),
                                F("error_code", INT16),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

# TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction.

TXN_OFFSET_COMMIT_REQUEST = Schema(
    "TxnOffsetCommitRequest",
    "0-5",
    flexible=3,
    fields=(
        F("transactional_id", STRING),
        F("group_id", STRING),
        F("producer_id", INT64),
        F("producer_epoch", INT16),
        F("generation_id", INT32, "3+", default=-1),
        F("member_id", STRING, "3+"),
        F("group_instance_id", STRING, "3+", nullable=True, default=None),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("committed_offset", INT64),
                        F("committed_leader_epoch", INT32, "2+", default=-1, ignorable=True),
                        F("committed_metadata", STRING, nullable=True),
                    ),
                ),
            ),
        ),
    ),
)

TXN_OFFSET_COMMIT_RESPONSE = Schema(
    "TxnOffsetCommitResponse",
    "0-5",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("error_code", INT16),
                    ),
                ),
            ),
        ),
    ),
)

# DescribeProducers (key 61): the active producers of partitions (KIP-664).

DESCRIBE_PRODUCERS_REQUEST = Schema(
    "DescribeProducersRequest",
    "0",
    flexible=0,
    fields=(
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F("partition_indexes", ARRAY(INT32)),
            ),
        ),
    ),
)

DESCRIBE_PRODUCERS_RESPONSE = Schema(
    "DescribeProducersResponse",
    "0",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("error_code", INT16),
                        F("error_message", STRING, nullable=True, default=None),
                        F(
                            "active_producers",
                            ARRAY(
                                F("producer_id", INT64),
                                F("producer_epoch", INT32),
                                F("last_sequence", INT32, default=-1),
                                F("last_timestamp", INT64, default=-1),
                                F("coordinator_epoch", INT32),
                                F("current_txn_start_offset", INT64, default=-1),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

# DescribeTransactions (key 65): state, timeout and partitions of transactional ids.

DESCRIBE_TRANSACTIONS_REQUEST = Schema(
    "DescribeTransactionsRequest", "0", flexible=0, fields=(F("transactional_ids", ARRAY(STRING)),)
)

DESCRIBE_TRANSACTIONS_RESPONSE = Schema(
    "DescribeTransactionsResponse",
    "0",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "transaction_states",
            ARRAY(
                F("error_code", INT16),
                F("transactional_id", STRING),
                F("transaction_state", STRING),
                F("transaction_timeout_ms", INT32),
                F("transaction_start_time_ms", INT64),
                F("producer_id", INT64),
                F("producer_epoch", INT16),
                F(
                    "topics",
                    ARRAY(
                        F("topic", STRING),
                        F("partitions", ARRAY(INT32)),
                    ),
                ),
            ),
        ),
    ),
)

# ListTransactions (key 66): transactional ids by state, producer id, age (v1) and pattern (v2).

LIST_TRANSACTIONS_REQUEST = Schema(
    "ListTransactionsRequest",
    "0-2",
    flexible=0,
    fields=(
        F("state_filters", ARRAY(STRING)),
        F("producer_id_filters", ARRAY(INT64)),
        F("duration_filter", INT64, "1+", default=-1),
        F("transactional_id_pattern", STRING, "2+", nullable=True, default=None),
    ),
)

LIST_TRANSACTIONS_RESPONSE = Schema(
    "ListTransactionsResponse",
    "0-2",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("unknown_state_filters", ARRAY(STRING)),
        F(
            "transaction_states",
            ARRAY(
                F("transactional_id", STRING),
                F("producer_id", INT64),
                F("transaction_state", STRING),
            ),
        ),
    ),
)

# Records of `__transaction_state`: one key a transactional id, its state as the value (null: expired).
#
# Value version 1 (KIP-890, transaction.version 2) adds the tagged fields. `together` is eoslog's own, in a
# prepared state: the open transactions that the same record decides, and who held them.

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
