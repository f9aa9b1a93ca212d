"""The types of `messages/write_txn_markers.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class WriteTxnMarkersRequestTopic(TypedDict):
    name: str
    partition_indexes: list[int]


class WriteTxnMarkersRequestMarker(TypedDict):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: list[WriteTxnMarkersRequestTopic]
    coordinator_epoch: int
    transaction_version: int


class WriteTxnMarkersRequest(TypedDict):
    markers: list[WriteTxnMarkersRequestMarker]


class WriteTxnMarkersRequestTopicDraft(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]


class WriteTxnMarkersRequestMarkerDraft(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WriteTxnMarkersRequestTopicDraft]
    coordinator_epoch: int
    transaction_version: int


class WriteTxnMarkersRequestDraft(TypedDict, total=False):
    markers: Sequence[WriteTxnMarkersRequestMarkerDraft]


class WriteTxnMarkersResponsePartition(TypedDict):
    partition_index: int
    error_code: int


class WriteTxnMarkersResponseTopic(TypedDict):
    name: str
    partitions: list[WriteTxnMarkersResponsePartition]


class WriteTxnMarkersResponseMarker(TypedDict):
    producer_id: int
    topics: list[WriteTxnMarkersResponseTopic]


class WriteTxnMarkersResponse(TypedDict):
    markers: list[WriteTxnMarkersResponseMarker]


class WriteTxnMarkersResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    error_code: int


class WriteTxnMarkersResponseTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[WriteTxnMarkersResponsePartitionDraft]


class WriteTxnMarkersResponseMarkerDraft(TypedDict, total=False):
    producer_id: int
    topics: Sequence[WriteTxnMarkersResponseTopicDraft]


class WriteTxnMarkersResponseDraft(TypedDict, total=False):
    markers: Sequence[WriteTxnMarkersResponseMarkerDraft]
