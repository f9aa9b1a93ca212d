"""The types of `messages/fetch.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from eoslog.protocol.primitives import Buffer


class FetchRequestReplicaState(TypedDict):
    replica_id: int
    replica_epoch: int


class FetchRequestPartition(TypedDict):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: bytes
    high_watermark: int


class FetchRequestTopic(TypedDict):
    topic: str
    topic_id: bytes
    partitions: list[FetchRequestPartition]


class FetchRequestForgottenTopicsData(TypedDict):
    topic: str
    topic_id: bytes
    partitions: list[int]


class FetchRequest(TypedDict):
    cluster_id: str | None
    replica_id: int
    replica_state: FetchRequestReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchRequestTopic]
    forgotten_topics_data: list[FetchRequestForgottenTopicsData]
    rack_id: str


class FetchRequestReplicaStateDraft(TypedDict, total=False):
    replica_id: int
    replica_epoch: int


class FetchRequestPartitionDraft(TypedDict, total=False):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: bytes
    high_watermark: int


class FetchRequestTopicDraft(TypedDict, total=False):
    topic: str
    topic_id: bytes
    partitions: Sequence[FetchRequestPartitionDraft]


class FetchRequestForgottenTopicsDataDraft(TypedDict, total=False):
    topic: str
    topic_id: bytes
    partitions: Sequence[int]


class FetchRequestDraft(TypedDict, total=False):
    cluster_id: str | None
    replica_id: int
    replica_state: FetchRequestReplicaStateDraft
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[FetchRequestTopicDraft]
    forgotten_topics_data: Sequence[FetchRequestForgottenTopicsDataDraft]
    rack_id: str


class FetchResponseDivergingEpoch(TypedDict):
    epoch: int
    end_offset: int


class FetchResponseCurrentLeader(TypedDict):
    leader_id: int
    leader_epoch: int


class FetchResponseSnapshotId(TypedDict):
    end_offset: int
    epoch: int


class FetchResponseAbortedTransaction(TypedDict):
    producer_id: int
    first_offset: int


class FetchResponsePartition(TypedDict):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: FetchResponseDivergingEpoch
    current_leader: FetchResponseCurrentLeader
    snapshot_id: FetchResponseSnapshotId
    aborted_transactions: list[FetchResponseAbortedTransaction] | None
    preferred_read_replica: int
    records: memoryview | None


class FetchResponseResponse(TypedDict):
    topic: str
    topic_id: bytes
    partitions: list[FetchResponsePartition]


class FetchResponseNodeEndpoint(TypedDict):
    node_id: int
    host: str
    port: int
    rack: str | None


class FetchResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchResponseResponse]
    node_endpoints: list[FetchResponseNodeEndpoint]


class FetchResponseDivergingEpochDraft(TypedDict, total=False):
    epoch: int
    end_offset: int


class FetchResponseCurrentLeaderDraft(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class FetchResponseSnapshotIdDraft(TypedDict, total=False):
    end_offset: int
    epoch: int


class FetchResponseAbortedTransactionDraft(TypedDict, total=False):
    producer_id: int
    first_offset: int


class FetchResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: FetchResponseDivergingEpochDraft
    current_leader: FetchResponseCurrentLeaderDraft
    snapshot_id: FetchResponseSnapshotIdDraft
    aborted_transactions: Sequence[FetchResponseAbortedTransactionDraft] | None
    preferred_read_replica: int
    records: Buffer | Sequence[Buffer] | None


class FetchResponseResponseDraft(TypedDict, total=False):
    topic: str
    topic_id: bytes
    partitions: Sequence[FetchResponsePartitionDraft]


class FetchResponseNodeEndpointDraft(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class FetchResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: Sequence[FetchResponseResponseDraft]
    node_endpoints: Sequence[FetchResponseNodeEndpointDraft]
