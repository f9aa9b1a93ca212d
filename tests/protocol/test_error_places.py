"""An answer that says an error is one that every version's schema can carry, and says the error."""

from typing import Any

import pytest

from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.error_places import error_answer, errors_in
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.fields import Array, Blob, Field, Fixed, Struct, Text

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


def errors(kind: Any, value: Any) -> list[int]:
    """All error codes in a message that was read."""
    if isinstance(kind, Array):
        return [code for item in value or () for code in errors(kind.of, item)]
    if isinstance(kind, Struct) and value is not None:
        return [code for field in kind.fields for code in _of(field, value[field.name])]
    return []


def _of(field: Field, value: Any) -> list[int]:
    return [value] if field.name in ("error_code", "partition_error_code") else errors(field.type, value)


@pytest.mark.parametrize(("key", "version"), CASES)
def test_every_api_and_version(key: ApiKey, version: int) -> None:
    api = APIS[key]
    written = b"".join(api.request.write(version, sample(api.request.struct, version)))
    request, _ = api.request.read(version, written)
    message = error_answer(key, version, request, CODE)
    assert message is not None
    read, _ = api.response.read(version, b"".join(api.response.write(version, message)))
    assert CODE in errors(api.response.struct, read)
    assert set(errors(api.response.struct, read)) <= {CODE, 0}
    assert errors_in(key, message) == {CODE: errors(api.response.struct, read).count(CODE)}


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
