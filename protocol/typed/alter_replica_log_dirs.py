"""The types of `messages/alter_replica_log_dirs.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class AlterReplicaLogDirsRequestTopic(TypedDict):
    name: str
    partitions: list[int]


class AlterReplicaLogDirsRequestDir(TypedDict):
    path: str
    topics: list[AlterReplicaLogDirsRequestTopic]


class AlterReplicaLogDirsRequest(TypedDict):
    dirs: list[AlterReplicaLogDirsRequestDir]


class AlterReplicaLogDirsRequestTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[int]


class AlterReplicaLogDirsRequestDirDraft(TypedDict, total=False):
    path: str
    topics: Sequence[AlterReplicaLogDirsRequestTopicDraft]


class AlterReplicaLogDirsRequestDraft(TypedDict, total=False):
    dirs: Sequence[AlterReplicaLogDirsRequestDirDraft]


class AlterReplicaLogDirsResponsePartition(TypedDict):
    partition_index: int
    error_code: int


class AlterReplicaLogDirsResponseResult(TypedDict):
    topic_name: str
    partitions: list[AlterReplicaLogDirsResponsePartition]


class AlterReplicaLogDirsResponse(TypedDict):
    throttle_time_ms: int
    results: list[AlterReplicaLogDirsResponseResult]


class AlterReplicaLogDirsResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    error_code: int


class AlterReplicaLogDirsResponseResultDraft(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirsResponsePartitionDraft]


class AlterReplicaLogDirsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[AlterReplicaLogDirsResponseResultDraft]
