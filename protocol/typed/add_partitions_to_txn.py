"""The types of `messages/add_partitions_to_txn.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class AddPartitionsToTxnRequestTopic(TypedDict):
    name: str
    partitions: list[int]


class AddPartitionsToTxnRequestTransaction(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: list[AddPartitionsToTxnRequestTopic]


class AddPartitionsToTxnRequestV3AndBelowTopic(TypedDict):
    name: str
    partitions: list[int]


class AddPartitionsToTxnRequest(TypedDict):
    transactions: list[AddPartitionsToTxnRequestTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnRequestV3AndBelowTopic]


class AddPartitionsToTxnRequestTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[int]


class AddPartitionsToTxnRequestTransactionDraft(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: Sequence[AddPartitionsToTxnRequestTopicDraft]


class AddPartitionsToTxnRequestV3AndBelowTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[int]


class AddPartitionsToTxnRequestDraft(TypedDict, total=False):
    transactions: Sequence[AddPartitionsToTxnRequestTransactionDraft]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: Sequence[AddPartitionsToTxnRequestV3AndBelowTopicDraft]


class AddPartitionsToTxnResponseResultsByPartition(TypedDict):
    partition_index: int
    partition_error_code: int


class AddPartitionsToTxnResponseTopicResult(TypedDict):
    name: str
    results_by_partition: list[AddPartitionsToTxnResponseResultsByPartition]


class AddPartitionsToTxnResponseResultsByTransaction(TypedDict):
    transactional_id: str
    topic_results: list[AddPartitionsToTxnResponseTopicResult]


class AddPartitionsToTxnResponseResultsByTopicV3AndBelow(TypedDict):
    name: str
    results_by_partition: list[AddPartitionsToTxnResponseResultsByPartition]


class AddPartitionsToTxnResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResponseResultsByTransaction]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponseResultsByTopicV3AndBelow]


class AddPartitionsToTxnResponseResultsByPartitionDraft(TypedDict, total=False):
    partition_index: int
    partition_error_code: int


class AddPartitionsToTxnResponseTopicResultDraft(TypedDict, total=False):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnResponseResultsByPartitionDraft]


class AddPartitionsToTxnResponseResultsByTransactionDraft(TypedDict, total=False):
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnResponseTopicResultDraft]


class AddPartitionsToTxnResponseResultsByTopicV3AndBelowDraft(TypedDict, total=False):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnResponseResultsByPartitionDraft]


class AddPartitionsToTxnResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    results_by_transaction: Sequence[AddPartitionsToTxnResponseResultsByTransactionDraft]
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnResponseResultsByTopicV3AndBelowDraft]
