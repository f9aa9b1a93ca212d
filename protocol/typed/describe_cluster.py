"""The types of `messages/describe_cluster.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DescribeClusterRequest(TypedDict):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool


class DescribeClusterRequestDraft(TypedDict, total=False):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool


class DescribeClusterResponseBroker(TypedDict):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class DescribeClusterResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterResponseBroker]
    cluster_authorized_operations: int


class DescribeClusterResponseBrokerDraft(TypedDict, total=False):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class DescribeClusterResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribeClusterResponseBrokerDraft]
    cluster_authorized_operations: int
