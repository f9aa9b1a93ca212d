"""Client quotas: set, told, found for a client, kept; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from broker_clients import Wire

from eoslog.broker.log.files import BadFile
from eoslog.broker.ports import OsFileSystem
from eoslog.broker.quotas import CONSUMER_RATE, MUTATION_RATE, PRODUCER_RATE, Quotas, entity
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import EmbeddedBroker

Named = dict[str, str | None]
EXACT, DEFAULT, ANY = 0, 1, 2


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def entry(whose: Named, **limits: float | None) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in whose.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()
        ],
    }


def alter(wire: Wire, *entries: dict[str, Any], version: int = 1, **how: Any) -> list[ErrorCode]:
    answer = wire.call(ApiKey.ALTER_CLIENT_QUOTAS, version, entries=list(entries), **how)
    assert [one["entity"] for one in answer["entries"]] == [one["entity"] for one in entries]
    for one in answer["entries"]:
        assert (one["error_code"] == 0) == (one["error_message"] is None)
    return [ErrorCode(one["error_code"]) for one in answer["entries"]]


def describe(wire: Wire, *wanted: tuple[str, int, str | None], version: int = 1, strict: bool = False) -> Any:
    components = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in wanted]
    answer = wire.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=components, strict=strict)
    if answer["error_code"]:
        assert answer["error_message"]
        assert answer["entries"] is None
        return ErrorCode(answer["error_code"])
    return {
        tuple((part["entity_type"], part["entity_name"]) for part in one["entity"]): {
            value["key"]: value["value"] for value in one["values"]
        }
        for one in answer["entries"]
    }


def test_limits_are_set_told_and_taken_away(wire: Wire) -> None:
    for version in versions(ApiKey.ALTER_CLIENT_QUOTAS):
        alice: Named = {"user": "alice"}
        assert alter(wire, entry(alice, producer_byte_rate=1024.0), version=version, validate_only=True) == [
            0
        ]
        assert describe(wire, version=version) == {}
        assert alter(wire, entry(alice, producer_byte_rate=1024.0), version=version) == [0]
        assert alter(wire, entry(alice, request_percentage=12.5), version=version) == [0]
        assert describe(wire, version=version) == {
            (("user", "alice"),): {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
        }  # fmt: skip
        gone = entry(alice, producer_byte_rate=None, request_percentage=None, consumer_byte_rate=None)
        assert alter(wire, gone, version=version) == [0]
        assert describe(wire, version=version) == {}


def test_filters(wire: Wire) -> None:
    entities: list[Named] = [
        {"user": "u"}, {"user": None}, {"client-id": "c"}, {"client-id": None, "user": "u"}, {"ip": "::1"},
    ]  # fmt: skip
    for number, whose in enumerate(entities):
        limit = "connection_creation_rate" if "ip" in whose else "producer_byte_rate"
        assert alter(wire, entry(whose, **{limit: number + 1.0})) == [0]

    def found(*wanted: tuple[str, int, str | None], strict: bool = False) -> set[int]:
        answer = describe(wire, *wanted, strict=strict)
        return {int(value) for limits in answer.values() for value in limits.values()}

    assert found() == {1, 2, 3, 4, 5}
    assert found(strict=True) == set()
    assert found(("user", EXACT, "u")) == {1, 4}
    assert found(("user", EXACT, "u"), strict=True) == {1}
    assert found(("user", DEFAULT, None)) == {2}
    assert found(("user", ANY, None)) == {1, 2, 4}
    assert found(("user", ANY, None), ("client-id", ANY, None), strict=True) == {4}
    assert found(("client-id", EXACT, "c")) == {3}
    assert found(("ip", EXACT, "::1")) == {5}
    assert found(("ip", DEFAULT, None)) == set()
    for number, whose in enumerate(entities):
        limit = "connection_creation_rate" if "ip" in whose else "producer_byte_rate"
        assert alter(wire, entry(whose, **{limit: None})) == [0], number


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_make_no_sense(
    wire: Wire, wanted: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert describe(wire, *wanted) == code


@pytest.mark.parametrize(
    ("whose", "limits"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"group": "g"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "u", "ip": "::1"}, {"producer_byte_rate": 1.0}),
        ({"ip": "no address"}, {"connection_creation_rate": 1.0}),
        ({"ip": "::1"}, {"producer_byte_rate": 1.0}),
        ({"user": "u"}, {"connection_creation_rate": 1.0}),
        ({"user": "u"}, {"no_such_limit": 1.0}),
        ({"user": "u"}, {"producer_byte_rate": 0.0}),
        ({"user": "u"}, {"producer_byte_rate": -1.0}),
        ({"user": "u"}, {"producer_byte_rate": 1.5}),
        ({"user": "u"}, {"producer_byte_rate": 1e30}),
        ({"user": "u"}, {"producer_byte_rate": float("nan")}),
        ({"user": "u"}, {"request_percentage": float("inf")}),
        ({"ip": "::1"}, {"connection_creation_rate": 2.0**31}),
    ],
)
def test_limits_that_cannot_be(wire: Wire, whose: Named, limits: dict[str, float]) -> None:
    refused = entry(whose) | {
        "ops": [{"key": key, "value": value, "remove": False} for key, value in limits.items()]
    }
    good = entry({"user": "good"}, producer_byte_rate=1.0)
    assert alter(wire, refused, good) == [ErrorCode.INVALID_REQUEST, 0]
    assert describe(wire) == {(("user", "good"),): {"producer_byte_rate": 1.0}}
    assert alter(wire, entry({"user": "good"}, producer_byte_rate=None)) == [0]


def test_what_is_named_twice_is_refused(wire: Wire) -> None:
    one = entry({"user": "u"}, producer_byte_rate=1.0)
    assert alter(wire, one, one) == [ErrorCode.INVALID_REQUEST] * 2
    assert alter(wire, one | {"ops": one["ops"] * 2}) == [ErrorCode.INVALID_REQUEST]
    assert alter(wire, one | {"entity": one["entity"] * 2}) == [ErrorCode.INVALID_REQUEST]
    assert describe(wire) == {}


def test_limits_outlive_a_kill() -> None:
    with EmbeddedBroker() as broker:
        with Wire(broker.host, broker.port) as wire:
            assert alter(wire, entry({"user": None, "client-id": "c"}, consumer_byte_rate=5.0)) == [0]
        broker.kill()
        broker.start()
        with Wire(broker.host, broker.port) as wire:
            assert describe(wire) == {(("client-id", "c"), ("user", None)): {"consumer_byte_rate": 5.0}}


def test_the_most_special_limit_counts(tmp_path: Any) -> None:
    quotas = Quotas(OsFileSystem(), str(tmp_path))
    assert not quotas
    assert quotas.of("u", "c") == {}
    order: list[Named] = [
        {"client-id": None}, {"client-id": "c"}, {"user": None}, {"user": None, "client-id": None},
        {"user": None, "client-id": "c"}, {"user": "u"}, {"user": "u", "client-id": None},
        {"user": "u", "client-id": "c"},
    ]  # fmt: skip
    for number, whose in enumerate(order, 1):
        quotas.change(entity(whose.items()), {PRODUCER_RATE: number})
        assert quotas.of("u", "c") == {PRODUCER_RATE: number}
    quotas.change(entity([("user", None)]), {CONSUMER_RATE: 7, MUTATION_RATE: 0.5})
    assert quotas.of("u", "c") == {PRODUCER_RATE: 8, CONSUMER_RATE: 7, MUTATION_RATE: 0.5}
    assert quotas.of("v", "d") == {PRODUCER_RATE: 4, CONSUMER_RATE: 7, MUTATION_RATE: 0.5}
    quotas.change(entity([("ip", None)]), {"connection_creation_rate": 3})
    quotas.change(entity([("ip", "::1")]), {"connection_creation_rate": 4})
    assert quotas.of_address("::1") == {"connection_creation_rate": 4}
    assert quotas.of_address("::2") == {"connection_creation_rate": 3}
    again = Quotas(OsFileSystem(), str(tmp_path))
    assert again.all() == quotas.all()
    assert again


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", '{"version": 2}', '{"version": 1, "quotas": [{}]}',
        '{"version": 1, "quotas": [{"entity": [["x", "y"]], "limits": {}}]}',
        '{"version": 1, "quotas": [{"entity": [["user", "y"]], "limits": {"a": "b"}}]}',
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_no_quotas(tmp_path: Any, content: str) -> None:
    (tmp_path / "quotas.json").write_text(content)
    with pytest.raises(BadFile, match=r"quotas\.json"):
        Quotas(OsFileSystem(), str(tmp_path))
