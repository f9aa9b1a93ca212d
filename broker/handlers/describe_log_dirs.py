"""DescribeLogDirs (key 35, versions 1-5): the data directory, its space, and the sizes of its logs (KIP-113).

There is one directory. A partition's size is that of its record batches, without indexes; it never lags and
is never the future copy of a move. Partitions that do not exist are left out, as Kafka does. An offline
partition does not affect the others, and is listed with the size it has. No directory is cordoned (KIP-1066):
the only one takes all new partitions, and cordoned.log.dirs is refused.

Left out: several data directories.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import AccessRequest, RequestRefused, needs
from eoslog.broker.requests import RequestContext
from eoslog.broker.topics.topics import Topic
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeLogDirsRequest,
        DescribeLogDirsResponseDraft,
        DescribeLogDirsResponseResultDraft,
        DescribeLogDirsResponseTopicDraft,
    )


KEY = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS = (1, 5)


def _log_dirs_hidden(
    asked: AccessRequest[DescribeLogDirsRequest], code: ErrorCode
) -> RequestRefused[DescribeLogDirsResponseDraft]:
    """The answer lists directories, which no request names; before version 3 it is empty."""
    return RequestRefused({"error_code": code})


access = needs(AclOperation.DESCRIBE, ResourceType.CLUSTER, refuse=_log_dirs_hidden)


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponseDraft:
    """Describe the partitions in the request, all of them if it is null."""
    topics = context.broker.topics
    path = os.path.abspath(topics.data_dir)
    try:
        total, usable = topics.fs.space(path)
    except OSError:
        failed: DescribeLogDirsResponseResultDraft = {
            "error_code": ErrorCode.KAFKA_STORAGE_ERROR,
            "log_dir": path,
            "topics": [],
        }
        return {"error_code": 0, "results": [failed]}
    wanted = _wanted(request, topics.names())
    found = ((topics.get(name), numbers) for name, numbers in wanted.items())
    described = [_topic(topic, numbers) for topic, numbers in found if topic is not None]
    result: DescribeLogDirsResponseResultDraft = {
        "error_code": 0,
        "log_dir": path,
        "topics": [topic for topic in described if topic["partitions"]],
        "total_bytes": total,
        "usable_bytes": usable,
        "is_cordoned": False,
    }
    return {"error_code": 0, "results": [result]}


def _wanted(request: DescribeLogDirsRequest, names: list[str]) -> dict[str, set[int] | None]:
    """The requested partitions by topic; None: all of a topic."""
    if request["topics"] is None:
        return dict.fromkeys(names)
    wanted: dict[str, set[int] | None] = {}
    for asked in request["topics"]:
        wanted[asked["topic"]] = (wanted.get(asked["topic"]) or set()) | set(asked["partitions"])
    return wanted


def _topic(topic: Topic, wanted: set[int] | None) -> DescribeLogDirsResponseTopicDraft:
    return {
        "name": topic.name,
        "partitions": [
            {
                "partition_index": partition.index,
                "partition_size": partition.size,
                "offset_lag": 0,
                "is_future_key": False,
            }
            for partition in topic.partitions
            if wanted is None or partition.index in wanted
        ],
    }
