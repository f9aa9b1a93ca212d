"""Error codes: what they mean, where answers have them, which version of an API knows them."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from eoslog.broker import handlers
from eoslog.errors import RefusedByBroker
from eoslog.protocol import errors
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.error_places import NEVER, VERSIONS, error_answer, errors_in, for_version
from eoslog.protocol.errors import ErrorCode, ErrorKind, KafkaError, info
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.fields import Array, Blob, Field, Fixed, Struct, Text

# -- the table -----------------------------------------------------------------------------------
# The error table against kio's, and what callers rely on.


def test_names_and_numbers_are_kafkas() -> None:
    theirs = {code.name.upper(): int(code) for code in KioErrorCode}
    ours = {code.name: int(code) for code in ErrorCode}
    assert {name: ours.get(name) for name in theirs} == theirs
    assert sorted(ours.values()) == list(range(-1, 137))


@pytest.mark.parametrize("code", KioErrorCode, ids=lambda code: code.name)
def test_retriable_as_in_kafka(code: KioErrorCode) -> None:
    assert info(int(code)).retriable == code.retriable == (info(int(code)).kind is ErrorKind.RETRIABLE)


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (ErrorKind.NONE, ["NONE"]),
        (ErrorKind.ABORTABLE, ["TRANSACTION_ABORTABLE", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"]),
        (ErrorKind.ABORTABLE, ["MESSAGE_TOO_LARGE", "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID"]),
        (ErrorKind.ABORTABLE, ["OFFSET_METADATA_TOO_LARGE"]),
        (ErrorKind.FATAL, ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"]),
        (ErrorKind.FATAL, ["INVALID_PRODUCER_ID_MAPPING", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"]),
        (ErrorKind.FATAL, ["UNSUPPORTED_VERSION"]),
        (ErrorKind.RETRIABLE, ["CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR", "UNSTABLE_OFFSET_COMMIT"]),
    ],
)
def test_what_becomes_of_a_transaction(kind: ErrorKind, codes: list[str]) -> None:
    assert {ErrorCode[name].kind for name in codes} == {kind}


def test_every_code_says_what_it_means() -> None:
    lines = [info(code) for code in ErrorCode]
    assert all(line.meaning for line in lines)
    assert len({line.meaning for line in lines}) == len(lines)
    assert [line.name for line in lines] == [code.name for code in ErrorCode]


def test_an_unknown_code_is_fatal_and_keeps_its_number() -> None:
    assert info(999).kind is ErrorKind.FATAL
    assert "999" in info(999).name
    error = KafkaError(999, "topic flights-0")
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "999" in str(error) and "flights-0" in str(error)
    with pytest.raises(ValueError, match="999"):
        ErrorCode(999)


@pytest.mark.parametrize("code", [*ErrorCode, 999])
def test_errors_survive_pickling(code: int) -> None:
    error = KafkaError(code, "partition flights-3")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.code, copy.message, copy.retriable) == (error.code, error.message, error.retriable)
    assert str(copy) == str(error)


def test_every_code_has_a_class_that_type_checkers_know() -> None:
    block = next(
        node for node in ast.parse(Path(errors.__file__).read_text()).body if isinstance(node, ast.If)
    )
    known = {ast.unparse(line.target) for line in block.body if isinstance(line, ast.AnnAssign)}
    assert {getattr(errors, name) for name in known} == {errors.class_of(c) for c in ErrorCode if c}
    assert len(known) == len(ErrorCode) - 1
    assert "NotLeaderOrFollower" in known


@pytest.mark.parametrize(
    "name", ["NoSuchError", "UNSTABLE_OFFSET_COMMIT", "Unstableoffsetcommit", "__path__"]
)
def test_there_are_no_other_classes(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(errors, name)


@pytest.mark.parametrize("code", ErrorCode)
@pytest.mark.parametrize("made_as", [KafkaError, RefusedByBroker])
def test_an_error_is_caught_by_the_class_of_its_code_alone(
    code: ErrorCode, made_as: type[KafkaError]
) -> None:
    error = made_as(code, "flights-3")
    assert [other for other in ErrorCode if isinstance(error, errors.class_of(other))] == [code]
    assert isinstance(error, made_as)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))


def test_a_class_by_its_name() -> None:
    with pytest.raises(errors.UnstableOffsetCommit, match="group g: UNSTABLE_OFFSET_COMMIT"):
        raise KafkaError(88, "group g")
    with pytest.raises(errors.UnknownServerError, match="error code 999"):
        raise KafkaError(999)
    assert type(KafkaError(90)).__qualname__ == "ProducerFenced"
    assert type(RefusedByBroker(90)).__qualname__ == "RefusedByBroker"


def test_an_error_reads_well() -> None:
    text = str(KafkaError(ErrorCode.PRODUCER_FENCED, "transactional id q1-7"))
    assert text.startswith("transactional id q1-7: PRODUCER_FENCED (90): ")
    assert str(KafkaError(ErrorCode.NOT_COORDINATOR)).startswith("NOT_COORDINATOR (16): ")


# -- where answers have them ---------------------------------------------------------------------
# An answer that says an error is one that every version's schema can carry, and says the error.

CASES = [
    (api.key, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)
]
CODE = ErrorCode.KAFKA_STORAGE_ERROR


def sample(kind: Any, version: int) -> Any:
    """A value of a type, with one item in every list."""
    match kind:
        case Struct(fields):
            return {field.name: sample(field.type, version) for field in fields if version in field.versions}
        case Array(of):
            return [sample(of, version)]
        case Text():
            return "name"
        case Blob():
            return b""
        case Fixed("uuid"):
            return bytes(range(16))
        case Fixed("bool"):
            return True
        case _:
            return 7


def codes_in(kind: Any, value: Any) -> list[int]:
    """All error codes in a message that was read."""
    if isinstance(kind, Array):
        return [code for item in value or () for code in codes_in(kind.of, item)]
    if isinstance(kind, Struct) and value is not None:
        return [code for field in kind.fields for code in _of(field, value[field.name])]
    return []


def _of(field: Field, value: Any) -> list[int]:
    return [value] if field.name in ("error_code", "partition_error_code") else codes_in(field.type, value)


@pytest.mark.parametrize(("key", "version"), CASES)
def test_every_api_and_version(key: ApiKey, version: int) -> None:
    api = APIS[key]
    written = b"".join(api.request.write(version, sample(api.request.struct, version)))
    request, _ = api.request.read(version, written)
    message = error_answer(key, version, request, CODE)
    assert message is not None
    read, _ = api.response.read(version, b"".join(api.response.write(version, message)))
    assert CODE in codes_in(api.response.struct, read)
    assert set(codes_in(api.response.struct, read)) <= {CODE, 0}
    assert errors_in(key, message) == {CODE: codes_in(api.response.struct, read).count(CODE)}


def test_each_partition_is_named() -> None:
    parts = [{"index": 3, "records": None}, {"index": 4, "records": None}]
    request = {"acks": -1, "topic_data": [{"name": "a", "topic_id": bytes(16), "partition_data": parts}]}
    answer = error_answer(ApiKey.PRODUCE, 9, request, CODE)
    assert answer is not None
    (topic,) = answer["responses"]
    assert topic["name"] == "a"
    assert topic["partition_responses"] == [
        {"index": 3, "error_code": CODE, "base_offset": -1, "error_message": None},
        {"index": 4, "error_code": CODE, "base_offset": -1, "error_message": None},
    ]


def test_names_in_a_plain_list() -> None:
    answer = error_answer(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g", "h"]}, CODE)
    assert answer == {
        "results": [{"group_id": "g", "error_code": CODE}, {"group_id": "h", "error_code": CODE}]
    }


def test_a_request_without_an_answer_gets_none() -> None:
    assert error_answer(ApiKey.PRODUCE, 9, {"acks": 0, "topic_data": []}, CODE) is None


def test_where_there_is_no_place_for_an_error() -> None:
    assert error_answer(ApiKey.LIST_OFFSETS, 5, {"topics": []}, CODE) is None


def test_a_message_stands_beside_the_code_where_there_is_a_place() -> None:
    request = {"topics": [{"name": "a"}]}
    told = {"name": "a", "error_code": CODE, "error_message": "why"}
    assert error_answer(ApiKey.CREATE_TOPICS, 5, request, CODE, "why") == {"topics": [told]}
    assert error_answer(ApiKey.HEARTBEAT, 4, {}, CODE, "why") == {"error_code": CODE}


def test_what_is_asked_for_is_not_repeated_as_if_it_were_found() -> None:
    part = {"partition": 1, "leader_epoch": 7, "current_leader_epoch": 8}
    answer = error_answer(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"topics": [{"topic": "a", "partitions": [part]}]}, CODE
    )
    assert answer == {"topics": [{"topic": "a", "partitions": [{"partition": 1, "error_code": CODE}]}]}


# -- versions ------------------------------------------------------------------------------------
# Which code each version of an API is told, walked from version 0 on, against what Kafka's sources say.

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
