"""Which code each version of an API is told, walked from version 0 on, against what Kafka's sources say."""

import pytest

from eoslog.broker import handlers
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_versions import NEVER, VERSIONS, for_version
from eoslog.protocol.errors import ErrorCode as E

LATEST = 20
"""Above the newest version of every API here."""

# API, code -> what is told, "version: code" from the version on. Comments name the place in Kafka's sources.
WALKS = {
    # ProduceRequest.json, KafkaApis.handleFetchRequest
    "Produce KAFKA_STORAGE_ERROR": "0: NOT_LEADER_OR_FOLLOWER, 4: KAFKA_STORAGE_ERROR",
    "Fetch KAFKA_STORAGE_ERROR": "0: NOT_LEADER_OR_FOLLOWER, 6: KAFKA_STORAGE_ERROR",
    # ControllerApis.deleteTopics
    "DeleteTopics TOPIC_DELETION_DISABLED": "0: INVALID_REQUEST, 3: TOPIC_DELETION_DISABLED",
    # KafkaApis: handleProduceRequest, handleFetchRequest, handleOffsetCommitRequest; TxnOffsetCommitRequest
    "Produce UNKNOWN_TOPIC_ID": "0: UNKNOWN_TOPIC_OR_PARTITION, 13: UNKNOWN_TOPIC_ID",
    "Fetch UNKNOWN_TOPIC_ID": "0: UNKNOWN_TOPIC_OR_PARTITION, 13: UNKNOWN_TOPIC_ID",
    "OffsetCommit UNKNOWN_TOPIC_ID": "0: UNKNOWN_TOPIC_OR_PARTITION, 10: UNKNOWN_TOPIC_ID",
    "TxnOffsetCommit UNKNOWN_TOPIC_ID": "0: UNKNOWN_TOPIC_OR_PARTITION, 6: UNKNOWN_TOPIC_ID",
    # KafkaApis, the handlers of these; AddPartitionsToTxnManager for Produce and TxnOffsetCommit
    "InitProducerId PRODUCER_FENCED": "0: INVALID_PRODUCER_EPOCH, 4: PRODUCER_FENCED",
    "AddPartitionsToTxn PRODUCER_FENCED": "0: INVALID_PRODUCER_EPOCH, 2: PRODUCER_FENCED",
    "AddOffsetsToTxn PRODUCER_FENCED": "0: INVALID_PRODUCER_EPOCH, 2: PRODUCER_FENCED",
    "EndTxn PRODUCER_FENCED": "0: INVALID_PRODUCER_EPOCH, 2: PRODUCER_FENCED",
    "Produce PRODUCER_FENCED": "0: INVALID_PRODUCER_EPOCH",
    "TxnOffsetCommit PRODUCER_FENCED": "0: INVALID_PRODUCER_EPOCH",
    # OffsetMetadataManager.validateOffsetCommit and .validateTransactionalOffsetCommit
    "OffsetCommit GROUP_ID_NOT_FOUND": "0: ILLEGAL_GENERATION, 9: GROUP_ID_NOT_FOUND",
    "TxnOffsetCommit GROUP_ID_NOT_FOUND": "0: ILLEGAL_GENERATION, 6: GROUP_ID_NOT_FOUND",
    "TxnOffsetCommit STALE_MEMBER_EPOCH": "0: ILLEGAL_GENERATION, 6: STALE_MEMBER_EPOCH",
    # the requests' JSON files; AddPartitionsToTxnManager for Produce and TxnOffsetCommit
    "InitProducerId TRANSACTION_ABORTABLE": "0: INVALID_TXN_STATE, 5: TRANSACTION_ABORTABLE",
    "AddPartitionsToTxn TRANSACTION_ABORTABLE": "0: INVALID_TXN_STATE, 5: TRANSACTION_ABORTABLE",
    "AddOffsetsToTxn TRANSACTION_ABORTABLE": "0: INVALID_TXN_STATE, 4: TRANSACTION_ABORTABLE",
    "EndTxn TRANSACTION_ABORTABLE": "0: INVALID_TXN_STATE, 4: TRANSACTION_ABORTABLE",
    "Produce TRANSACTION_ABORTABLE": "0: INVALID_TXN_STATE, 11: TRANSACTION_ABORTABLE",
    "TxnOffsetCommit TRANSACTION_ABORTABLE": "0: INVALID_TXN_STATE, 4: TRANSACTION_ABORTABLE",
    # ReplicaManager.handleProduceAppend
    "Produce CONCURRENT_TRANSACTIONS": "0: NOT_ENOUGH_REPLICAS, 12: CONCURRENT_TRANSACTIONS",
    "Produce NETWORK_EXCEPTION": "0: NOT_ENOUGH_REPLICAS",
    "Produce COORDINATOR_LOAD_IN_PROGRESS": "0: NOT_ENOUGH_REPLICAS",
    "Produce COORDINATOR_NOT_AVAILABLE": "0: NOT_ENOUGH_REPLICAS",
    "Produce NOT_COORDINATOR": "0: NOT_ENOUGH_REPLICAS",
    # KafkaApis.handleTxnOffsetCommitRequest; the first is eoslog's own
    "TxnOffsetCommit CONCURRENT_TRANSACTIONS": (
        "0: COORDINATOR_NOT_AVAILABLE, 2: COORDINATOR_LOAD_IN_PROGRESS, 5: CONCURRENT_TRANSACTIONS"
    ),
    "TxnOffsetCommit COORDINATOR_LOAD_IN_PROGRESS": (
        "0: COORDINATOR_NOT_AVAILABLE, 2: COORDINATOR_LOAD_IN_PROGRESS"
    ),
    # GroupMetadataManager.describeGroups
    "DescribeGroups GROUP_ID_NOT_FOUND": "0: NONE, 6: GROUP_ID_NOT_FOUND",
}


def named(api: ApiKey) -> str:
    return "".join(word.capitalize() for word in api.name.split("_"))


KEYS = {named(key): key for key in ApiKey}


@pytest.mark.parametrize("row", WALKS)
def test_what_each_version_is_told(row: str) -> None:
    name, code = row.split()
    steps = {int(since): E[told] for since, told in (step.split(": ") for step in WALKS[row].split(", "))}
    expected = E.NONE
    for version in range(LATEST):
        expected = steps.get(version, expected)
        assert for_version(KEYS[name], version, E[code]) is expected, f"version {version}"


def test_every_row_is_walked() -> None:
    assert {f"{named(key)} {code.name}" for key, code in VERSIONS} == set(WALKS)


def test_every_row_is_needed_by_a_version_that_is_served() -> None:
    served = {module.KEY: module.VERSIONS for module in handlers.ALL}
    for (key, code), known in VERSIONS.items():
        first, last = served[key]
        assert known.since > first, f"{named(key)} {code.name}: every version that is served knows it"
        assert known.since < NEVER or for_version(key, last, code) is not code


def test_every_other_code_is_told_as_it_is() -> None:
    for key in ApiKey:
        for code in E:
            if (key, code) not in VERSIONS:
                assert for_version(key, 0, code) is code
