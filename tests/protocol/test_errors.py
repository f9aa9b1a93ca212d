"""The error table against kio's, and what callers rely on."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from eoslog.errors import RefusedByBroker
from eoslog.protocol import errors
from eoslog.protocol.errors import ErrorCode, ErrorKind, KafkaError, info


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
