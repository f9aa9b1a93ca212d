"""Every API with each right alone, each right missing, all and none: what is refused, on the bundled broker
and on Apache Kafka in the same run. Not part of the plain test run: `make test-rights`.
Only refusals are compared: the errors that say "not authorized", and closed connections. What else an answer
says depends on what the requests before have made. A difference has to be in `EXPLAINED`, and each line there
has to be one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from eoslog.protocol.acls import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.plain_records import encode_records
from eoslog.protocol.schema import ProtocolError
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, carried
from tests.broker.security.securitykit import STANDARD, free_ports, plain_jaas
from tests.scenarios.apache_kafka import ApacheKafka

pytestmark = pytest.mark.kafka

NAME = "fuzz"
"""Of everything that the requests are about."""
USER, PASSWORD = "carol", "carol-password"
DENIED = {29: "TOPIC", 30: "GROUP", 31: "CLUSTER", 53: "TRANSACTIONAL_ID", 65: "TOKEN"}
WAITS = 3.0
"""Seconds; who has no answer by then was let in."""

Right = tuple[AclOperation, ResourceType]
RIGHTS: list[Right] = [
    (operation, kind)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
    for operation in SUPPORTED[kind]
]
SASL = {
    "sasl.enabled.mechanisms": "PLAIN",
    "authorizer.class.name": STANDARD,
    "super.users": "User:ANONYMOUS",
}
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}

EXPLAINED: dict[tuple[str, str], str] = {}
"""(API, what the difference looks like) -> why it is meant."""

Body = dict[str, Any]


@dataclass
class Subject:
    """One of the two, with the port on which users have names."""

    name: str
    port: int
    sasl_port: int

    def admin(self) -> Wire:
        return Wire("127.0.0.1", self.port, 30)

    def user(self) -> Wire:
        wire = Wire("127.0.0.1", self.sasl_port, WAITS)
        wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        token = f"\0{USER}\0{PASSWORD}".encode()
        assert wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)["error_code"] == 0
        return wire

    def give(self, rights: list[Right]) -> None:
        """The user has these rights and no others."""
        with self.admin() as wire:
            wire.call(ApiKey.DELETE_ACLS, 3, filters=[_ANY_RULE])
            creations = [
                {
                    "resource_type": kind,
                    "resource_name": CLUSTER_NAME if kind is ResourceType.CLUSTER else NAME,
                    "resource_pattern_type": 3, "principal": f"User:{USER}", "host": "*",
                    "operation": operation, "permission_type": 3,
                }
                for operation, kind in rights
            ]  # fmt: skip
            wire.call(ApiKey.CREATE_ACLS, 3, creations=creations)
            deadline = time.monotonic() + 20
            while _count(wire) != len(rights):
                assert time.monotonic() < deadline, "the rules are not there"
                time.sleep(0.02)

    def prepare(self) -> None:
        """What the requests are about is there, or may be."""
        with self.admin() as wire:
            topic = {
                "name": NAME,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            made = (0, 36)  # TOPIC_ALREADY_EXISTS
            self._until(
                made,
                lambda: wire.call(
                    ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=10_000, validate_only=False
                )["topics"][0]["error_code"],
            )
            for kind in (0, 1):
                find = partial(wire.call, ApiKey.FIND_COORDINATOR, 1, key=NAME, key_type=kind)
                self._until((0,), partial(_code_of, find))
            partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
            topics = [{"name": NAME, "partitions": [partition]}]
            self._until(
                (0,),
                lambda: wire.call(
                    ApiKey.OFFSET_COMMIT,
                    7,
                    group_id=NAME,
                    generation_id_or_member_epoch=-1,
                    member_id="",
                    group_instance_id=None,
                    topics=topics,
                )["topics"][0]["partitions"][0]["error_code"],
            )

    @staticmethod
    def _until(fine: tuple[int, ...], call: Callable[[], int]) -> None:
        """A topic that was just deleted is in the way for a moment, a coordinator may be loading."""
        deadline = time.monotonic() + 30
        while (code := call()) not in fine:
            assert time.monotonic() < deadline, f"error {code}"
            time.sleep(0.1)


_ANY_RULE = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


_RULE = {
    "resource_type": 2, "resource_name": "elsewhere", "resource_pattern_type": 3, "principal": "User:nobody",
    "host": "*", "operation": 3, "permission_type": 2,
}  # fmt: skip


def _count(wire: Wire) -> int:
    answer = wire.call(ApiKey.DESCRIBE_ACLS, 3, **_ANY_RULE)
    acls = [acl for resource in answer["resources"] for acl in resource["acls"]]
    return sum(acl["principal"] == f"User:{USER}" for acl in acls)


class SaslKafka(ApacheKafka):
    """Apache Kafka with a second listener, on which users have names."""

    def __init__(self) -> None:
        super().__init__({})
        (self.sasl_port,) = free_ports(1)
        plain, sasl = f"PLAINTEXT://127.0.0.1:{self.port}", f"SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}"
        self._settings |= SASL | TWO_PHASE | {
            "listeners": f"{plain},{sasl},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"{plain},{sasl}",
            "listener.security.protocol.map":
                "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas(**{USER: PASSWORD}),
            "unstable.api.versions.enable": "true",
        }  # fmt: skip


@pytest.fixture(scope="module")
def subjects() -> Iterator[list[Subject]]:
    (port,) = free_ports(1)
    config = SASL | TWO_PHASE | {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas(**{USER: PASSWORD}),
        "group.initial.rebalance.delay.ms": "0",
    }  # fmt: skip
    with SaslKafka() as kafka, EmbeddedBroker(config=config) as eoslog:
        yield [
            Subject("kafka", kafka.port, kafka.sasl_port),
            Subject("eoslog", eoslog.port, port),
        ]


def _code_of(ask: Callable[[], Body]) -> int:
    code: int = ask()["error_code"]
    return code


# What is asked


def requests() -> list[tuple[str, ApiKey, int, Body]]:
    """(title, API, version, body): each API in its oldest and newest version, something in every field."""
    found: list[tuple[str, ApiKey, int, Body]] = []
    for api in sorted(APIS.values(), key=lambda api: api.key in LAST):
        if api.key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            continue
        for version in sorted({api.min_version, api.max_version, *SPLIT.get(api.key, ())}):
            body = _deep(carried(api.request.struct, version), PATIENT)
            for title, change in VARIANTS.get(api.key, {"": dict}).items():
                changed = _deep(body, change())
                found.append(
                    (f"{ApiKey(api.key).name} {version} {title}".strip(), ApiKey(api.key), version, changed)
                )
    return found


LAST = (ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS)
"""After them there is nothing left to ask about."""
PATIENT: Body = {"timeout_ms": 10_000, "max_wait_ms": 100}
SPLIT = {
    ApiKey.ADD_PARTITIONS_TO_TXN: (3,),
    ApiKey.INIT_PRODUCER_ID: (5,),
    ApiKey.PRODUCE: (12,),
    ApiKey.FETCH: (12,),
}
"""Versions at which the rules change."""


def _config(kind: int, name: str) -> Callable[[], Body]:
    return lambda: {"resources": [{"resource_type": kind, "resource_name": name}]}


_CONFIGS = {"topic": _config(2, NAME), "broker": _config(4, "1"), "group": _config(32, NAME)}
VARIANTS: dict[int, dict[str, Callable[[], Body]]] = {
    ApiKey.DESCRIBE_CONFIGS: _CONFIGS,
    ApiKey.ALTER_CONFIGS: _CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CONFIGS,
    ApiKey.FIND_COORDINATOR: {"group": lambda: {"key_type": 0}, "transaction": lambda: {"key_type": 1}},
    ApiKey.INIT_PRODUCER_ID: {
        "no id": lambda: {"transactional_id": None},
        "id": dict,
        "2pc": lambda: {"enable2_pc": True},
        "keep": lambda: {"keep_prepared_txn": True},
        "2pc keep": lambda: {"enable2_pc": True, "keep_prepared_txn": True},
    },
    ApiKey.PRODUCE: {
        "plain": dict,
        "plain, no id": lambda: {"transactional_id": None},
        "transactional": lambda: _records(),
        "transactional, no id": lambda: _records() | {"transactional_id": None},
    },
    ApiKey.FETCH: {"": dict, "follower": lambda: {"replica_id": 5, "replica_state": {"replica_id": 5}}},
    ApiKey.DESCRIBE_ACLS: {"": lambda: _ANY_RULE},
    ApiKey.DELETE_ACLS: {"": lambda: {"filters": [_ANY_RULE | {"principal_filter": "User:nobody"}]}},
    ApiKey.CREATE_ACLS: {"": lambda: {"creations": [_RULE]}},
    ApiKey.METADATA: {"": dict, "all": lambda: {"topics": None}},
    ApiKey.OFFSET_FETCH: {"": dict},
    ApiKey.CREATE_TOPICS: {"another": lambda: {"topics": [{"name": f"{NAME}-new"}], "validate_only": True}},
}
"""Requests whose rights depend on what they ask for."""


def _records() -> Body:
    records = encode_records([(b"k", b"v")], 1, producer_id=1, producer_epoch=0, transactional=True)
    return {"topic_data": [{"partition_data": [{"records": records}]}]}


def _deep(body: Body, change: Body) -> Body:
    """The body with the change in it, in each element of a list; fields that it does not carry stay out."""
    out = dict(body)
    for field, value in change.items():
        if field not in out:
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            out[field] = [_deep(element, value[0]) for element in out[field]]
        elif isinstance(value, dict):
            out[field] = _deep(out[field], value)
        else:
            out[field] = value
    return out


# What is answered


class Asker:
    """A user's connection, made again where it was closed."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._wire: Wire | None = None

    def ask(self, key: ApiKey, version: int, body: Body) -> str:
        """What was refused: kinds of resources, "closed", or nothing."""
        if self._wire is None:
            self._wire = self._subject.user()
        try:
            answer = self._wire.call(key, version, **body)
        except TimeoutError:
            self.close()
            return ""
        except (ConnectionError, ProtocolError):
            self.close()
            return "closed"
        codes = {int(code) for code in re.findall(r"error_code': (?:<[^:]*: )?(-?\d+)", repr(answer))}
        return " ".join(sorted(DENIED[code] for code in codes & DENIED.keys()))

    def close(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
            self._wire = None


def asked(subject: Subject, rights: list[Right]) -> dict[str, str]:
    """What is refused of each request to who has these rights."""
    subject.prepare()
    subject.give(rights)
    asker = Asker(subject)
    try:
        return {title: asker.ask(key, version, body) for title, key, version, body in requests()}
    finally:
        asker.close()


def _name(right: Right) -> str:
    return f"{right[0].name} on {right[1].name}"


ALL_BUT = {f"all but {_name(one)}": [right for right in RIGHTS if right != one] for one in RIGHTS}
ALONE = {f"{_name(one)} alone": [one] for one in RIGHTS}
GIVEN: dict[str, list[Right]] = {"nothing": [], "everything": RIGHTS} | ALONE | ALL_BUT


@pytest.mark.timeout(1200)
def test_both_refuse_the_same(subjects: list[Subject]) -> None:
    differences: dict[tuple[str, str], list[str]] = {}
    for given, rights in GIVEN.items():
        kafka, ours = (asked(subject, rights) for subject in subjects)
        for title, theirs in kafka.items():
            if theirs != ours[title]:
                seen = f"kafka {theirs or 'serves it'}, eoslog {ours[title] or 'serves it'}"
                differences.setdefault((title, seen), []).append(given)
    for (title, seen), when in differences.items():
        print(f"{title}: {seen}: with {', '.join(when[:3])}{' ...' if len(when) > 3 else ''} ({len(when)})")
    unexplained = {key: when for key, when in differences.items() if key not in EXPLAINED}
    assert not unexplained
    assert not EXPLAINED.keys() - differences.keys(), "these are none any more"
