"""The types of `messages/elect_leaders.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class ElectLeadersRequestTopicPartition(TypedDict):
    topic: str
    partitions: list[int]


class ElectLeadersRequest(TypedDict):
    election_type: int
    topic_partitions: list[ElectLeadersRequestTopicPartition] | None
    timeout_ms: int


class ElectLeadersRequestTopicPartitionDraft(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]


class ElectLeadersRequestDraft(TypedDict, total=False):
    election_type: int
    topic_partitions: Sequence[ElectLeadersRequestTopicPartitionDraft] | None
    timeout_ms: int


class ElectLeadersResponsePartitionResult(TypedDict):
    partition_id: int
    error_code: int
    error_message: str | None


class ElectLeadersResponseReplicaElectionResult(TypedDict):
    topic: str
    partition_result: list[ElectLeadersResponsePartitionResult]


class ElectLeadersResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ElectLeadersResponseReplicaElectionResult]


class ElectLeadersResponsePartitionResultDraft(TypedDict, total=False):
    partition_id: int
    error_code: int
    error_message: str | None


class ElectLeadersResponseReplicaElectionResultDraft(TypedDict, total=False):
    topic: str
    partition_result: Sequence[ElectLeadersResponsePartitionResultDraft]


class ElectLeadersResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    replica_election_results: Sequence[ElectLeadersResponseReplicaElectionResultDraft]
