"""The types of `messages/produce.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from eoslog.protocol.primitives import Buffer


class ProduceRequestPartitionData(TypedDict):
    index: int
    records: memoryview | None


class ProduceRequestTopicData(TypedDict):
    name: str
    topic_id: bytes
    partition_data: list[ProduceRequestPartitionData]


class ProduceRequest(TypedDict):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[ProduceRequestTopicData]


class ProduceRequestPartitionDataDraft(TypedDict, total=False):
    index: int
    records: Buffer | Sequence[Buffer] | None


class ProduceRequestTopicDataDraft(TypedDict, total=False):
    name: str
    topic_id: bytes
    partition_data: Sequence[ProduceRequestPartitionDataDraft]


class ProduceRequestDraft(TypedDict, total=False):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: Sequence[ProduceRequestTopicDataDraft]


class ProduceResponseRecordError(TypedDict):
    batch_index: int
    batch_index_error_message: str | None


class ProduceResponseCurrentLeader(TypedDict):
    leader_id: int
    leader_epoch: int


class ProduceResponsePartitionResponse(TypedDict):
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: list[ProduceResponseRecordError]
    error_message: str | None
    current_leader: ProduceResponseCurrentLeader


class ProduceResponseResponse(TypedDict):
    name: str
    topic_id: bytes
    partition_responses: list[ProduceResponsePartitionResponse]


class ProduceResponseNodeEndpoint(TypedDict):
    node_id: int
    host: str
    port: int
    rack: str | None


class ProduceResponse(TypedDict):
    responses: list[ProduceResponseResponse]
    throttle_time_ms: int
    node_endpoints: list[ProduceResponseNodeEndpoint]


class ProduceResponseRecordErrorDraft(TypedDict, total=False):
    batch_index: int
    batch_index_error_message: str | None


class ProduceResponseCurrentLeaderDraft(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class ProduceResponsePartitionResponseDraft(TypedDict, total=False):
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: Sequence[ProduceResponseRecordErrorDraft]
    error_message: str | None
    current_leader: ProduceResponseCurrentLeaderDraft


class ProduceResponseResponseDraft(TypedDict, total=False):
    name: str
    topic_id: bytes
    partition_responses: Sequence[ProduceResponsePartitionResponseDraft]


class ProduceResponseNodeEndpointDraft(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class ProduceResponseDraft(TypedDict, total=False):
    responses: Sequence[ProduceResponseResponseDraft]
    throttle_time_ms: int
    node_endpoints: Sequence[ProduceResponseNodeEndpointDraft]
