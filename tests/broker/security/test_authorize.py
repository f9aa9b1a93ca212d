"""ACLs over the wire: without a rule nobody may do anything, and with one nothing but what it says."""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclOperation,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from eoslog.broker.authorize.access import MOST_LOGGED, WINDOW_S, AccessRequest, Audit, Guard, RequestRefused
from eoslog.broker.core.authorizer import Authorizer
from eoslog.broker.handlers import (
    consumer_group_describe,
    describe_transactions,
    fetch,
    list_groups,
    list_transactions,
    produce,
)
from eoslog.broker.network.dispatch import checks
from eoslog.broker.ports import OsFileSystem
from eoslog.broker.requests import CloseConnection
from eoslog.broker.rules.acls import Client
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.acls import Acl, Pattern, Permission, ResourceType
from eoslog.protocol.acls import AclOperation as Operation
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.frames import RequestHeader
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, bodies
from tests.broker.security.securitykit import ADMIN, Site, free_ports

TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED = 29, 30, 31, 53
OPEN_TO_ALL = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER}
LISTS = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_LOG_DIRS}
"""These leave out what may not be seen (the last below version 3, which has no place for an error)."""


ANY_RULE = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def started() -> Iterator[Site]:
    with Site() as site:
        site.create("fuzz", "t", "u", "secret")
        yield site


@pytest.fixture
def site(started: Site) -> Iterator[Site]:
    started.forget()
    yield started
    assert "Traceback" not in started.broker.output(), started.broker.output()


# Every API has a check: without `access` in its handler's file the broker does not serve


def test_an_api_without_a_check_is_refused() -> None:
    guard = Guard(None, checks())  # type: ignore[arg-type]
    guarded = guard.around(RequestHeader(9999, 0, 1, None), lambda context, request: {})
    with pytest.raises(CloseConnection, match="no access rule"):
        guarded(None, {})  # type: ignore[arg-type]


def codes(answer: object) -> set[int]:
    """All error codes in an answer."""
    return {int(code) for code in re.findall(r"error_code': (?:<[^:]*: )?(-?\d+)", repr(answer))}


def test_nobody_may_do_anything(site: Site) -> None:
    """Each API and version, as a user without any rule: denied wherever there is something to deny."""
    denied = {TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED}
    wrong: list[Any] = []
    for api, version, body in bodies():
        if api.key in OPEN_TO_ALL or api.key not in checks():
            continue
        with site.wire("carol") as wire:
            try:
                answer: Any = wire.call(api.key, version, **body)
            except ConnectionError:
                answer = "closed"
        found = codes(answer) - {0, 55}  # 55: not attempted, because of another that was denied
        hidden = found <= denied and (found or api.key in LISTS)
        unknown = found == {100} and version >= 6  # an id of all zeros is no secret
        if not hidden and not unknown:
            wrong.append((api.name, version, found, answer))
    assert not wrong
    with site.wire(ADMIN) as wire:
        topics = wire.call(ApiKey.METADATA, 9, topics=None)["topics"]
        assert {topic["name"] for topic in topics if not topic["is_internal"]} == {"fuzz", "t", "u", "secret"}
        ends = wire.call(
            ApiKey.LIST_OFFSETS, 5,
            topics=[{"name": "fuzz", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        )  # fmt: skip
        assert ends["topics"][0]["partitions"][0]["offset"] == 0
        assert not wire.call(ApiKey.LIST_GROUPS, 4)["groups"]
        assert not wire.call(ApiKey.LIST_TRANSACTIONS, 0)["transaction_states"]


# Single rules, over raw connections where the details count


def fetched(wire: Wire, *topics: str) -> dict[str, int]:
    answer = wire.call(
        ApiKey.FETCH, 12, max_wait_ms=0, min_bytes=0,
        topics=[{"topic": t, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]} for t in topics],
    )  # fmt: skip
    return {t["topic"]: t["partitions"][0]["error_code"] for t in answer["responses"]}


def test_a_fetch_gets_what_is_allowed(site: Site) -> None:
    site.change("alice", "READ TOPIC t")
    with site.wire("alice") as wire:
        assert fetched(wire, "t", "secret", "missing") == {"t": 0, "secret": 29, "missing": 29}
        site.change("alice", "READ TOPIC t", deny=True)
        assert fetched(wire, "t") == {"t": 29}


def test_a_request_of_many_refusals_makes_few_lines_and_none_that_clients_wrote() -> None:
    with Site(log_level="info") as site:
        with site.wire("alice") as wire:
            assert set(fetched(wire, *(f"x{number}" for number in range(5000))).values()) == {29}
            time.sleep(2 * WINDOW_S)
            wire.call(ApiKey.METADATA, 9, topics=[{"name": f"x{number}"} for number in range(5000)])
            time.sleep(2 * WINDOW_S)
            fetched(wire, "x\n2026-11-24 00:00:00,000 INFO eoslog.broker.main: forged")
        lines = site.broker.output().splitlines()
    denied = [line for line in lines if "INFO eoslog.broker.authorizer: Principal" in line]
    for key in (ApiKey.FETCH, ApiKey.METADATA):  # Metadata is served in steps
        told = [line for line in denied[:-1] if line.endswith(f"for request = {key:d}")]
        more = [int(count) for count in re.findall(r"is Denied (\d+) times more", "\n".join(told))]
        single = len(told) - len(more)
        assert single + sum(more) == 5000
        assert single <= MOST_LOGGED * (len(more) + 1), "a slow machine takes more than one window"
    assert r"LITERAL:x\n2026" in denied[-1] and "forged" in denied[-1]
    assert not any(line.startswith("2026-11-24 00:00:00,000") for line in lines)


def test_a_fetch_by_id(site: Site) -> None:
    site.change("alice", "READ TOPIC t")
    with site.wire(ADMIN) as wire:
        found = wire.call(ApiKey.METADATA, 12, topics=[{"name": "t"}, {"name": "secret"}])["topics"]
    ids = {topic["name"]: topic["topic_id"] for topic in found}
    with site.wire("alice") as wire:
        answer = wire.call(
            ApiKey.FETCH, 13, max_wait_ms=0, min_bytes=0, session_epoch=0,
            topics=[{"topic_id": i, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}
                    for i in (*ids.values(), bytes(15) + b"\7")],
        )  # fmt: skip
        assert answer["session_id"] == 0, "with ACLs each fetch names all that it wants"
        told = {t["topic_id"]: t["partitions"][0]["error_code"] for t in answer["responses"]}
        assert told == {ids["t"]: 0, ids["secret"]: 29, bytes(15) + b"\7": 100}


def seen(wire: Wire, version: int = 9, **body: Any) -> dict[str, int]:
    answer = wire.call(ApiKey.METADATA, version, **body)
    return {topic["name"]: topic["error_code"] for topic in answer["topics"]}


def test_metadata_hides_what_may_not_be_described(site: Site) -> None:
    site.change("alice", "READ TOPIC t", "DESCRIBE TOPIC u")
    with site.wire("alice") as wire:
        assert seen(wire, topics=None) == {"t": 0, "u": 0}
        assert seen(wire, 0, topics=[]) == {"t": 0, "u": 0}
        named = [{"name": "t"}, {"name": "secret"}, {"name": "missing"}]
        assert seen(wire, topics=named) == {"t": 0, "secret": 29, "missing": 29}
        assert seen(wire, 0, topics=[{"name": "secret"}]) == {"secret": 29}


def test_making_topics_on_first_use_needs_create(site: Site) -> None:
    site.change("alice", "ALL TOPIC new", prefixed=True)
    site.change("bob", "WRITE TOPIC other")
    with site.wire("bob") as wire:
        assert seen(wire, topics=[{"name": "other"}]) == {"other": 29}
        unmade = seen(wire, topics=[{"name": "other"}], allow_auto_topic_creation=False)
        assert unmade == {"other": 3}
    with site.wire("alice") as wire:
        assert seen(wire, topics=[{"name": "new.one"}]) == {"new.one": 0}
    site.change("bob", "CREATE CLUSTER kafka-cluster")
    with site.wire("bob") as wire:
        assert seen(wire, topics=[{"name": "other"}]) == {"other": 0}
    admin = site.admin()
    for done in admin.delete_topics(["new.one", "other"]).values():
        done.result(10)


def operations(*which: AclOperation) -> int:
    return sum(1 << operation.value for operation in which)


def test_authorized_operations(site: Site) -> None:
    site.change("alice", "WRITE TOPIC t", "READ GROUP g", "DESCRIBE CLUSTER kafka-cluster")
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    with site.wire("alice") as wire:
        answer = wire.call(ApiKey.METADATA, 9, topics=[{"name": "t"}], **asked)
        (topic,) = answer["topics"]
        assert topic["topic_authorized_operations"] == operations(AclOperation.WRITE, AclOperation.DESCRIBE)
        assert answer["cluster_authorized_operations"] == operations(AclOperation.DESCRIBE)
        answer = wire.call(ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True)
        assert answer["cluster_authorized_operations"] == operations(AclOperation.DESCRIBE)
        answer = wire.call(ApiKey.DESCRIBE_GROUPS, 5, groups=["g", "h"], include_authorized_operations=True)
        g, h = answer["groups"]
        assert g["authorized_operations"] == operations(AclOperation.READ, AclOperation.DESCRIBE)
        assert h["error_code"] == GROUP_DENIED
    with site.wire("bob") as wire:
        answer = wire.call(ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True)
        assert (answer["error_code"], answer["cluster_authorized_operations"]) == (0, 0)


def test_offsets_need_group_and_topic(site: Site) -> None:
    def commit(*topics: str) -> dict[str, int]:
        answer = wire.call(
            ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            topics=[
                {"name": t, "partitions": [{"partition_index": 0, "committed_offset": 3}]} for t in topics
            ],
        )  # fmt: skip
        return {t["name"]: t["partitions"][0]["error_code"] for t in answer["topics"]}

    with site.wire("alice") as wire:
        assert commit("t") == {"t": 30}
        site.change("alice", "READ GROUP g", "READ TOPIC t")
        assert commit("t", "u") == {"t": 0, "u": 29}
        groups = [{"group_id": "g", "topics": None}, {"group_id": "h", "topics": None}]
        g, h = wire.call(ApiKey.OFFSET_FETCH, 8, groups=groups)["groups"]
        assert [topic["name"] for topic in g["topics"]] == ["t"]
        assert h["error_code"] == GROUP_DENIED
    site.change("alice", "ALL TOPIC t", deny=True)
    with site.wire("alice") as wire:
        (g,) = wire.call(ApiKey.OFFSET_FETCH, 8, groups=groups[:1])["groups"]
        assert g["topics"] == []
        named = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]
        (g,) = wire.call(ApiKey.OFFSET_FETCH, 8, groups=named)["groups"]
        assert g["topics"][0]["partitions"][0]["error_code"] == TOPIC_DENIED


def test_an_unlogged_write_that_is_denied_closes(site: Site) -> None:
    from tests.broker.broker_clients import RECORDS

    with site.wire("alice") as wire:
        wire.send(
            ApiKey.PRODUCE, 9, acks=0,
            topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": RECORDS}]}],
        )  # fmt: skip
        with pytest.raises(ConnectionError):
            wire.exactly(1)


def test_transactions_need_their_id(site: Site) -> None:
    site.change("alice", "WRITE TOPIC t")
    with site.wire("alice") as wire:

        def init(**more: Any) -> int:
            body = {"transactional_id": None, "transaction_timeout_ms": 1000} | more
            return int(wire.call(ApiKey.INIT_PRODUCER_ID, 6, **body)["error_code"])

        assert init() == 0  # who may write somewhere may be idempotent
        assert init(transactional_id="x") == TRANSACTION_DENIED
        site.change("alice", "WRITE TRANSACTIONAL_ID x")
        assert init(transactional_id="x") == 0
        assert init(transactional_id="x", enable2_pc=True) == TRANSACTION_DENIED
        body = {"v3_and_below_transactional_id": "x", "v3_and_below_producer_id": 0}
        topics = [{"name": name, "partitions": [0]} for name in ("t", "secret")]
        answer = wire.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_topics=topics, **body)
        told = {
            topic["name"]: topic["results_by_partition"][0]["partition_error_code"]
            for topic in answer["results_by_topic_v3_and_below"]
        }
        assert told == {"t": 55, "secret": TOPIC_DENIED}
    with site.wire("bob") as wire:
        assert init() == CLUSTER_DENIED


def test_each_transaction_that_ends_with_others_needs_its_id(site: Site) -> None:
    site.change("alice", "WRITE TRANSACTIONAL_ID x", "WRITE TRANSACTIONAL_ID y")
    with site.wire("alice") as wire:

        def end(first: str, *others: str) -> dict[str, int]:
            who = {"producer_id": 4711, "producer_epoch": 0}
            together = [{"transactional_id": name, **who} for name in others]
            answer = wire.call(
                ApiKey.END_TXN, 5, transactional_id=first, committed=True, together=together, **who
            )
            told = {one["transactional_id"]: one["error_code"] for one in answer["together"]}
            return {first: answer["error_code"], **told}

        unknown = 49  # INVALID_PRODUCER_ID_MAPPING: allowed, and not there
        assert end("x", "secret", "y") == {"x": unknown, "secret": TRANSACTION_DENIED, "y": unknown}
        assert end("x", "secret") == {"x": unknown, "secret": TRANSACTION_DENIED}
        assert end("secret", "x") == {"secret": TRANSACTION_DENIED}, "the others are to ask for themselves"


def test_rules_that_make_no_sense(site: Site) -> None:
    right = {
        "resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3,
        "permission_type": 3,
    }  # fmt: skip
    wrong: list[dict[str, Any]] = [
        {"resource_type": 1}, {"resource_type": 99}, {"resource_name": ""}, {"resource_pattern_type": 2},
        {"principal": "alice"}, {"principal": ""}, {"principal": "User:"}, {"host": ""},
        {"host": "10.0.0.0/99"}, {"operation": 1}, {"operation": 77}, {"permission_type": 1},
        {"resource_type": 4},
    ]  # fmt: skip
    creations = [right | one for one in (*wrong, {}, {})]
    with site.wire(ADMIN) as wire:
        answer = wire.call(ApiKey.CREATE_ACLS, 2, creations=creations)
        assert [one["error_code"] for one in answer["results"]] == [42] * len(wrong) + [0, 0]
        every = ANY_RULE
        answer = wire.call(ApiKey.DESCRIBE_ACLS, 2, **every)
        assert [(r["resource_name"], len(r["acls"])) for r in answer["resources"]] == [("t", 1)]
        bad = every | {"operation": 99}
        assert wire.call(ApiKey.DESCRIBE_ACLS, 2, **bad)["error_code"] == 42
        first, second = wire.call(ApiKey.DELETE_ACLS, 2, filters=[bad, every])["filter_results"]
        assert (first["error_code"], len(second["matching_acls"])) == (42, 1)


# With a stock client


def test_a_reader_and_a_writer(site: Site) -> None:
    site.change("alice", "WRITE TOPIC t", "WRITE TRANSACTIONAL_ID tx", prefixed=True)
    site.change("bob", "READ TOPIC t", "READ GROUP readers")
    producer = Producer(site.client("alice", **{"transactional.id": "tx-1"}))
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("t", b"by alice")
    producer.commit_transaction(10)
    failed: list[Any] = []
    stranger = Producer(site.client("bob"))
    stranger.produce("t", b"x", on_delivery=lambda error, _: failed.append(error.code() if error else None))
    stranger.flush(10)
    assert failed in ([TOPIC_DENIED], [CLUSTER_DENIED], [-139])
    consumer = Consumer(site.client("bob", **{"group.id": "readers", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["t"])
    message = consumer.poll(15)
    assert message is not None and message.value() == b"by alice"
    consumer.commit(asynchronous=False)
    consumer.close()
    outsider = Consumer(site.client("bob", **{"group.id": "others"}))
    outsider.subscribe(["t"])
    message = outsider.poll(10)
    error = None if message is None else message.error()
    assert error is not None and error.code() == GROUP_DENIED
    outsider.close()


def test_rules_outlive_the_broker(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        site.create("t", "u")
        site.change("alice", "READ TOPIC t")
        site.change("alice", "READ TOPIC u", deny=True)
        for end in (site.broker.stop, site.broker.kill):
            end()
            site.broker.start()
            with site.wire("alice") as wire:
                assert fetched(wire, "t", "u") == {"t": 0, "u": 29}


def test_open_resources_where_that_is_said(tmp_path: Path) -> None:
    with Site(**{"allow.everyone.if.no.acl.found": "true"}) as site:
        site.create("t", "u")
        site.change("alice", "READ TOPIC t")
        with site.wire("bob") as wire:
            assert fetched(wire, "t", "u") == {"t": 29, "u": 0}


def test_damaged_rules_stop_the_start(tmp_path: Path) -> None:
    from eoslog.testing import BrokerFailed

    with Site(tmp_path) as site:
        site.change("alice", "READ TOPIC t")
        site.broker.stop()
        (tmp_path / "acls.json").write_text("{}")
        with pytest.raises(BrokerFailed, match=r"acls\.json cannot be read"):
            site.broker.start()


def test_without_an_authorizer_there_are_no_rules(broker: EmbeddedBroker) -> None:
    with Wire(broker.host, broker.port) as wire:
        every = ANY_RULE
        assert wire.call(ApiKey.DESCRIBE_ACLS, 2, **every)["error_code"] == 54


def test_what_an_administrator_does_stands_in_the_log(tmp_path: Path) -> None:
    """Who has changed what; who could not log in; what others can reach or read."""
    users, data = tmp_path / "users", tmp_path / "data"
    users.write_text("dora=dora-password\n")
    users.chmod(0o644)
    reached = f"PLAINTEXT://0.0.0.0:{free_ports(1)[0]}"
    with Site(data, log_level="info", **{"sasl.users.file": str(users)}) as site:
        site.change("alice", "WRITE TOPIC t")
        site.forget()
        new = UserScramCredentialUpsertion(
            "erik", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"pw"
        )
        gone = UserScramCredentialDeletion("erik", ScramMechanism.SCRAM_SHA_256)
        admin = site.admin()
        for change in (new, gone):
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(10)
        with pytest.raises(AssertionError):
            _log_in_as(site, "mallory")
        lines = site.broker.output()
    rule = "ALLOW User:alice from * WRITE on TOPIC:LITERAL:t"
    assert f"User:{ADMIN} from 127.0.0.1 adds the ACL {rule}" in lines
    assert f"User:{ADMIN} from 127.0.0.1 removes the ACL {rule}" in lines
    for verb in ("sets", "removes"):
        assert f"User:{ADMIN} from 127.0.0.1 {verb} the SCRAM-SHA-256 credential of user 'erik'" in lines
    assert "authentication of 'mallory' by PLAIN from 127.0.0.1" in lines
    assert f"may read or change {users} (mode 644). Type: chmod 600 {users}" in lines
    assert "nothing is encrypted" not in lines
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "scram-credentials.json").stat().st_mode) == 0o600
    with EmbeddedBroker(data, config={"listeners": reached}, log_level="info") as broker:
        assert f"listener {reached}: other machines reach it, and nothing is encrypted" in broker.output()


def _log_in_as(site: Site, user: str) -> None:
    wire = Wire("127.0.0.1", site.port)
    wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    token = f"\0{user}\0wrong".encode()
    assert wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)["error_code"] == 0


# -- what answers leave out ----------------------------------------------------------------------
# What the client may not see or do: what answers leave out, which batches and fetches are refused.

ALICE = Client("User:alice", "127.0.0.1")
MAY_DESCRIBE = [
    (ResourceType.GROUP, "mine"), (ResourceType.TRANSACTIONAL_ID, "mine"), (ResourceType.TOPIC, "t"),
]  # fmt: skip


@pytest.fixture
def authorizer(tmp_path: Path) -> Authorizer:
    made = Authorizer(OsFileSystem(), str(tmp_path))
    made.add([
        Acl(kind, name, Pattern.LITERAL, "User:alice", "*", Operation.DESCRIBE, Permission.ALLOW)
        for kind, name in MAY_DESCRIBE
    ])  # fmt: skip
    return made


def told(authorizer: Authorizer, check: Any, request: dict[str, Any], answer: dict[str, Any]) -> Any:
    mend = check(AccessRequest(authorizer, cast(Audit, Mock()), ALICE, 0, 0, request, cast(Topics, None)))
    return answer if mend is None else mend(answer)


def test_groups_that_may_not_be_described_are_not_listed(authorizer: Authorizer) -> None:
    answer = {"groups": [{"group_id": "mine"}, {"group_id": "secret"}]}
    assert told(authorizer, list_groups.access, {}, answer)["groups"] == [{"group_id": "mine"}]


def test_transactional_ids_that_may_not_be_described_are_not_listed(authorizer: Authorizer) -> None:
    answer = {"transaction_states": [{"transactional_id": "mine"}, {"transactional_id": "secret"}]}
    found = told(authorizer, list_transactions.access, {}, answer)
    assert found["transaction_states"] == [{"transactional_id": "mine"}]


def test_a_transaction_tells_the_topics_that_may_be_seen(authorizer: Authorizer) -> None:
    state = {"transactional_id": "mine", "topics": [{"topic": "t"}, {"topic": "secret"}]}
    request = {"transactional_ids": ["mine"]}
    found = told(authorizer, describe_transactions.access, request, {"transaction_states": [state]})
    assert found["transaction_states"][0]["topics"] == [{"topic": "t"}]


@pytest.mark.parametrize("held", ["assignment", "target_assignment"])
def test_a_group_with_a_topic_that_may_not_be_seen_is_not_told(authorizer: Authorizer, held: str) -> None:
    for topic, code in (("t", None), ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
        nothing: dict[str, Any] = {"topic_partitions": []}
        member = {"assignment": nothing, "target_assignment": nothing}
        member[held] = {"topic_partitions": [{"topic_name": topic}]}
        request = {"group_ids": ["mine"], "include_authorized_operations": False}
        answer = {"groups": [{"group_id": "mine", "members": [member]}]}
        (group,) = told(authorizer, consumer_group_describe.access, request, answer)["groups"]
        assert group.get("error_code") == code and ("members" in group) == (code is None)


def produced(transactional_id: str | None, *, transactional: bool) -> dict[str, Any]:
    records = encode_records([(b"", b"x")], 1, producer_id=1, producer_epoch=0, transactional=transactional)
    part = {"index": 0, "records": records}
    topics = [{"name": "w", "topic_id": bytes(16), "partition_data": [part]}]
    return {"transactional_id": transactional_id, "acks": -1, "topic_data": topics}


@pytest.mark.parametrize(
    ("transactional_id", "transactional", "refused"),
    [("secret", True, True), (None, True, True), ("secret", False, False), (None, False, False)],
)
def test_a_transactional_batch_needs_the_right_to_its_id(
    authorizer: Authorizer, transactional_id: str | None, transactional: bool, refused: bool
) -> None:
    authorizer.add([
        Acl(ResourceType.TOPIC, "w", Pattern.LITERAL, "User:alice", "*", Operation.WRITE, Permission.ALLOW)
    ])  # fmt: skip
    request = produced(transactional_id, transactional=transactional)
    asked = AccessRequest(authorizer, cast(Audit, Mock()), ALICE, 0, 9, request, cast(Topics, None))
    assert isinstance(produce.access(asked), RequestRefused) == refused


@pytest.mark.parametrize(
    ("version", "field"),
    [(12, {"replica_id": 5}), (15, {"replica_state": {"replica_id": 5, "replica_epoch": 1}})],
)
def test_a_follower_needs_the_right_of_brokers(
    authorizer: Authorizer, version: int, field: dict[str, Any]
) -> None:
    authorizer.add([
        Acl(ResourceType.TOPIC, "t", Pattern.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
    ])  # fmt: skip
    topics = Mock(name_of=lambda topic_id: "t")
    body = {"topics": [{"topic": "t", "topic_id": bytes(16), "partitions": [{"partition": 0}]}], **field}
    schema = APIS[ApiKey.FETCH].request
    request, _ = schema.read(version, b"".join(schema.write(version, body)))
    found = fetch.access(AccessRequest(authorizer, cast(Audit, Mock()), ALICE, 1, version, request, topics))
    assert isinstance(found, RequestRefused) and found.answer is not None
    assert found.answer["responses"][0]["partitions"][0]["error_code"] == 29
