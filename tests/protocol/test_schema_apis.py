"""The served APIs and those we speak, as clients have been seen to need them."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from eoslog.broker.network.dispatch import served as declared_apis
from eoslog.protocol import messages
from eoslog.protocol.apis import APIS, Api, ApiKey

# key, name, first flexible version, versions named to clients, versions served
EXPECTED = [
    (0, "Produce", 9, (0, 13), (3, 13)),
    (1, "Fetch", 12, (4, 18), (4, 18)),
    (2, "ListOffsets", 6, (1, 11), (1, 11)),
    (3, "Metadata", 9, (0, 13), (0, 13)),
    (8, "OffsetCommit", 8, (2, 10), (2, 10)),
    (9, "OffsetFetch", 6, (1, 10), (1, 10)),
    (10, "FindCoordinator", 3, (0, 6), (0, 6)),
    (11, "JoinGroup", 6, (0, 9), (0, 9)),
    (12, "Heartbeat", 4, (0, 4), (0, 4)),
    (13, "LeaveGroup", 4, (0, 5), (0, 5)),
    (14, "SyncGroup", 4, (0, 5), (0, 5)),
    (15, "DescribeGroups", 5, (0, 6), (0, 6)),
    (16, "ListGroups", 3, (0, 5), (0, 5)),
    (17, "SaslHandshake", 32768, (0, 1), (0, 1)),
    (18, "ApiVersions", 3, (0, 4), (0, 4)),
    (19, "CreateTopics", 5, (2, 7), (2, 7)),
    (20, "DeleteTopics", 4, (1, 6), (1, 6)),
    (21, "DeleteRecords", 2, (0, 2), (0, 2)),
    (22, "InitProducerId", 2, (0, 6), (0, 6)),
    (23, "OffsetForLeaderEpoch", 4, (2, 4), (2, 4)),
    (24, "AddPartitionsToTxn", 3, (0, 5), (0, 5)),
    (25, "AddOffsetsToTxn", 3, (0, 4), (0, 4)),
    (26, "EndTxn", 3, (0, 5), (0, 5)),
    (27, "WriteTxnMarkers", 1, (1, 2), (1, 2)),
    (28, "TxnOffsetCommit", 3, (0, 5), (0, 5)),
    (29, "DescribeAcls", 2, (1, 3), (1, 3)),
    (30, "CreateAcls", 2, (1, 3), (1, 3)),
    (31, "DeleteAcls", 2, (1, 3), (1, 3)),
    (32, "DescribeConfigs", 4, (1, 4), (1, 4)),
    (33, "AlterConfigs", 2, (0, 2), (0, 2)),
    (34, "AlterReplicaLogDirs", 2, (1, 2), (1, 2)),
    (35, "DescribeLogDirs", 2, (1, 5), (1, 5)),
    (36, "SaslAuthenticate", 2, (0, 2), (0, 2)),
    (37, "CreatePartitions", 2, (0, 3), (0, 3)),
    (42, "DeleteGroups", 2, (0, 2), (0, 2)),
    (43, "ElectLeaders", 2, (0, 2), (0, 2)),
    (44, "IncrementalAlterConfigs", 1, (0, 1), (0, 1)),
    (45, "AlterPartitionReassignments", 0, (0, 1), (0, 1)),
    (46, "ListPartitionReassignments", 0, (0, 0), (0, 0)),
    (47, "OffsetDelete", 32768, (0, 0), (0, 0)),
    (48, "DescribeClientQuotas", 1, (0, 1), (0, 1)),
    (50, "DescribeUserScramCredentials", 0, (0, 0), (0, 0)),
    (51, "AlterUserScramCredentials", 0, (0, 0), (0, 0)),
    (55, "DescribeQuorum", 0, (0, 2), (0, 2)),
    (57, "UpdateFeatures", 0, (0, 2), (0, 2)),
    (60, "DescribeCluster", 0, (0, 2), (0, 2)),
    (61, "DescribeProducers", 0, (0, 0), (0, 0)),
    (65, "DescribeTransactions", 0, (0, 0), (0, 0)),
    (66, "ListTransactions", 0, (0, 2), (0, 2)),
    (68, "ConsumerGroupHeartbeat", 0, (0, 1), (0, 1)),
    (69, "ConsumerGroupDescribe", 0, (0, 1), (0, 1)),
    (74, "ListConfigResources", 0, (0, 1), (0, 1)),
    (75, "DescribeTopicPartitions", 0, (0, 0), (0, 0)),
]


Range = tuple[int, int]


@pytest.mark.parametrize("line", EXPECTED, ids=[line[1] for line in EXPECTED])
def test_versions(line: tuple[int, str, int, Range, Range]) -> None:
    key, name, flexible, named, served = line
    api = APIS[ApiKey(key)]
    assert (api.key, api.name, api.flexible_from) == (key, name, flexible)
    assert (api.min_version, api.max_version) == served
    declared = declared_apis()[api.key]
    assert declared.versions == served
    assert (declared.named_from, declared.versions.last) == named


def test_the_table_is_complete() -> None:
    assert sorted(APIS) == sorted(ApiKey) == [*declared_apis()] == [row[0] for row in EXPECTED]


def test_every_file_of_messages_belongs_to_a_key_or_to_a_log() -> None:
    files = {found.name for found in pkgutil.iter_modules(messages.__path__)}
    logs = {"consumer_group_metadata", "consumer_protocol", "group_metadata", "transaction_log"}
    assert files == {key.name.lower() for key in ApiKey} | logs


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_head_of_the_messages_says_their_name_and_key(api: Api) -> None:
    file = importlib.import_module(f"{messages.__name__}.{api.key.name.lower()}")
    assert (file.__doc__ or "").startswith(f"{api.name} (key {api.key:d})")
    assert (file.REQUEST.name, file.RESPONSE.name) == (f"{api.name}Request", f"{api.name}Response")
    assert file.REQUEST.versions == file.RESPONSE.versions
