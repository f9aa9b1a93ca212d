"""The APIs of groups and offsets as clients send them, at every version that is served."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode as E
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire

K = ApiKey
Answer = dict[str, Any]
NO_ID = bytes(16)


def versions(key: ApiKey, first: int = 0, last: int = 99) -> list[int]:
    api = APIS[key]
    return [v for v in range(api.min_version, api.max_version + 1) if first <= v <= last]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    config = {"group.min.session.timeout.ms": "100", "offsets.topic.num.partitions": "3"}
    with EmbeddedBroker(config=config) as started:
        yield started


@pytest.fixture
def topic_id(wire: Wire, topic: str) -> bytes:
    """The id of the test's own topic of two partitions."""
    new = {"name": topic, "num_partitions": 2, "replication_factor": 1}
    answer = wire.call(K.CREATE_TOPICS, 7, topics=[new], timeout_ms=5000)["topics"][0]
    assert answer["error_code"] == 0
    made: bytes = bytes(answer["topic_id"])
    return made


def commit(
    wire: Wire, version: int, group: str, topic: str, topic_id: bytes, offsets: dict[int, int], **more: Any
) -> dict[int, int]:
    """OffsetCommit; the error of each partition."""
    partitions = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_metadata": more.pop("metadata", "m"),
        }
        for index, offset in offsets.items()
    ]
    asked = {"topic_id": topic_id} if version >= 10 else {"name": topic}
    answer = wire.call(
        K.OFFSET_COMMIT, version, group_id=group, topics=[{**asked, "partitions": partitions}], **more
    )
    (told,) = answer["topics"]
    assert (told["topic_id"] == topic_id) if version >= 10 else (told["name"] == topic)
    return {part["partition_index"]: part["error_code"] for part in told["partitions"]}


def fetch(
    wire: Wire, version: int, group: str, topic: str, topic_id: bytes, *indexes: int, stable: bool = False
) -> dict[int, tuple[int, int]]:
    """OffsetFetch of the partitions, or of all; (offset, error) of each."""
    asked = {"topic_id": topic_id} if version >= 10 else {"name": topic}
    topics = [{**asked, "partition_indexes": list(indexes)}] if indexes else None
    flag = {"require_stable": stable} if version >= 7 else {}
    if version >= 8:
        answer = wire.call(K.OFFSET_FETCH, version, groups=[{"group_id": group, "topics": topics}], **flag)
        (answer,) = answer["groups"]
        assert answer["group_id"] == group
    else:
        answer = wire.call(K.OFFSET_FETCH, version, group_id=group, topics=topics, **flag)
    assert answer["error_code"] == 0
    return {
        part["partition_index"]: (part["committed_offset"], part["error_code"])
        for told in answer["topics"]
        for part in told["partitions"]
    }


def test_offsets_at_every_version(wire: Wire, topic: str, topic_id: bytes) -> None:
    for number, version in enumerate(versions(K.OFFSET_COMMIT)):
        told = commit(wire, version, topic, topic, topic_id, {0: number, 1: number + 100})
        assert told == {0: 0, 1: 0}
        for reading in versions(K.OFFSET_FETCH):
            found = fetch(wire, reading, topic, topic, topic_id, 0, 1)
            assert found == {0: (number, 0), 1: (number + 100, 0)}, reading
            if reading >= 2:
                assert fetch(wire, reading, topic, topic, topic_id) == found
            assert fetch(wire, reading, topic + "-other", topic, topic_id, 0) == {0: (-1, 0)}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offsets_may_be_kept_for_longer_than_a_record_can_say(
    wire: Wire, topic: str, topic_id: bytes, version: int
) -> None:
    told = commit(wire, version, topic, topic, topic_id, {0: 7}, retention_time_ms=2**63 - 1)
    assert told == {0: 0} and fetch(wire, 5, topic, topic, topic_id, 0) == {0: (7, 0)}


@pytest.mark.parametrize("version", versions(K.OFFSET_COMMIT))
def test_commits_that_are_refused(wire: Wire, topic: str, topic_id: bytes, version: int) -> None:
    group = f"{topic}-g"
    assert commit(wire, version, group, topic, topic_id, {0: 1, 7: 1}) == {
        0: 0,
        7: E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    unknown = E.UNKNOWN_TOPIC_ID if version >= 10 else E.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(wire, version, group, "nope", b"\1" * 16, {0: 1}) == {0: unknown}
    wrong = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert commit(wire, version, group, topic, topic_id, {0: 2}, **wrong) == {0: E.UNKNOWN_MEMBER_ID}
    long = {"metadata": "x" * 4097}
    assert commit(wire, version, group, topic, topic_id, {0: 2}, **long) == {0: E.OFFSET_METADATA_TOO_LARGE}
    assert fetch(wire, 9, group, topic, topic_id, 0) == {0: (1, 0)}


def test_a_fetch_of_many_groups_and_of_an_unknown_id(wire: Wire, topic: str, topic_id: bytes) -> None:
    for number in range(5):
        commit(wire, 9, f"{topic}{number}", topic, topic_id, {0: number})
    for version in (8, 9, 10):
        groups = [{"group_id": f"{topic}{number}", "topics": None} for number in range(5)]
        answer = wire.call(K.OFFSET_FETCH, version, groups=groups)
        offsets = [g["topics"][0]["partitions"][0]["committed_offset"] for g in answer["groups"]]
        assert offsets == list(range(5))
    assert fetch(wire, 10, topic, "", b"\1" * 16, 0) == {0: (-1, E.UNKNOWN_TOPIC_ID)}


@pytest.mark.parametrize("version", versions(K.FIND_COORDINATOR))
@pytest.mark.parametrize("key_type", [0, 1])
def test_find_coordinator(broker: EmbeddedBroker, wire: Wire, version: int, key_type: int) -> None:
    here = {"node_id": 1, "host": broker.host, "port": broker.port, "error_code": 0}
    kind = {"key_type": key_type} if version >= 1 else {}
    if version >= 4:
        answer = wire.call(K.FIND_COORDINATOR, version, coordinator_keys=["a", "b"], **kind)
        told = [{key: found[key] for key in here} for found in answer["coordinators"]]
        assert told == [here, here]
        assert [found["key"] for found in answer["coordinators"]] == ["a", "b"]
    else:
        answer = wire.call(K.FIND_COORDINATOR, version, key="a", **kind)
        assert {key: answer[key] for key in here} == here


@pytest.mark.parametrize("version", versions(K.FIND_COORDINATOR, first=1))
def test_find_coordinator_of_share_groups_is_refused(wire: Wire, version: int) -> None:
    key = {"coordinator_keys": ["a"]} if version >= 4 else {"key": "a"}
    answer = wire.call(K.FIND_COORDINATOR, version, key_type=2, **key)
    assert (answer["coordinators"][0] if version >= 4 else answer)["error_code"] == E.INVALID_REQUEST


# Members


def join_request(group: str, member: str = "", instance: str | None = None, **more: Any) -> Answer:
    return {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"meta"}],
        **more,
    }


def join(wire: Wire, version: int, group: str, **more: Any) -> Answer:
    """Join, with the second request that versions from 4 on need."""
    answer = wire.call(K.JOIN_GROUP, version, **join_request(group, **more))
    if answer["error_code"] == E.MEMBER_ID_REQUIRED:
        assert version >= 4
        answer = wire.call(
            K.JOIN_GROUP, version, **join_request(group, **{**more, "member": answer["member_id"]})
        )
    assert answer["error_code"] == 0
    return answer


@pytest.mark.parametrize("version", versions(K.JOIN_GROUP))
def test_one_member_at_every_version(wire: Wire, topic: str, version: int) -> None:
    """Join, sync, heartbeat and leave, each at `version` or the highest it has."""

    def at(key: ApiKey) -> int:
        return min(version, APIS[key].max_version)

    me = join(wire, version, topic)
    member, generation = me["member_id"], me["generation_id"]
    assert (me["leader"], me["protocol_name"], generation) == (member, "range", 1)
    assert member.startswith("wire-")
    assert me["protocol_type"] == ("consumer" if version >= 7 else None)
    assert [(m["member_id"], bytes(m["metadata"])) for m in me["members"]] == [(member, b"meta")]
    who = {"group_id": topic, "member_id": member, "generation_id": generation}
    assignments = [{"member_id": member, "assignment": b"assigned"}]
    names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    synced = wire.call(K.SYNC_GROUP, at(K.SYNC_GROUP), assignments=assignments, **names, **who)
    assert (synced["error_code"], bytes(synced["assignment"])) == (0, b"assigned")
    assert wire.call(K.HEARTBEAT, at(K.HEARTBEAT), **who)["error_code"] == 0
    old = {**who, "generation_id": 0}
    assert wire.call(K.HEARTBEAT, at(K.HEARTBEAT), **old)["error_code"] == E.ILLEGAL_GENERATION
    if at(K.LEAVE_GROUP) >= 3:
        leave: Answer = {"members": [{"member_id": member}, {"member_id": "x"}]}
    else:
        leave = {"member_id": member}
    left = wire.call(K.LEAVE_GROUP, at(K.LEAVE_GROUP), group_id=topic, **leave)
    assert left["error_code"] == 0
    assert [m["error_code"] for m in left["members"]] == (
        [0, E.UNKNOWN_MEMBER_ID] if "members" in leave else []
    )
    again = wire.call(K.LEAVE_GROUP, at(K.LEAVE_GROUP), group_id=topic, **leave)
    errors = [m["error_code"] for m in again["members"]] or [again["error_code"]]
    assert set(errors) == {E.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("version", versions(K.JOIN_GROUP))
def test_refusals_at_every_version(wire: Wire, topic: str, version: int) -> None:
    answer = wire.call(K.JOIN_GROUP, version, **join_request("", session_timeout_ms=10_000))
    assert answer["error_code"] == E.INVALID_GROUP_ID
    answer = wire.call(K.JOIN_GROUP, version, **join_request(topic, session_timeout_ms=1))
    assert answer["error_code"] == E.INVALID_SESSION_TIMEOUT
    answer = wire.call(K.JOIN_GROUP, version, **join_request(topic, "nobody"))
    assert answer["error_code"] == E.UNKNOWN_MEMBER_ID
    who = {"group_id": topic, "member_id": "nobody", "generation_id": 1}
    sync = min(version, APIS[K.SYNC_GROUP].max_version)
    names = {"protocol_type": "consumer", "protocol_name": "range"} if sync >= 5 else {}
    assert wire.call(K.SYNC_GROUP, sync, **names, **who)["error_code"] == E.UNKNOWN_MEMBER_ID


def test_a_join_waits_for_the_others_and_holds_up_no_other_connection(
    broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    first = join(wire, 5, topic)
    who = {"group_id": topic, "member_id": first["member_id"], "generation_id": 1}
    with Wire(broker.host, broker.port) as other:
        answers: list[Answer] = []
        second = threading.Thread(target=lambda: answers.append(join(other, 5, topic)))
        second.start()
        while wire.call(K.HEARTBEAT, 3, **who)["error_code"] != E.REBALANCE_IN_PROGRESS:
            assert second.is_alive()
        again = join(wire, 5, topic, member=first["member_id"])
        second.join(10)
        assert [a["generation_id"] for a in (again, *answers)] == [2, 2]
        assert again["leader"] == answers[0]["leader"] == first["member_id"]
        assert {m["member_id"] for m in again["members"]} == {first["member_id"], answers[0]["member_id"]}
        assert answers[0]["members"] == []


@pytest.mark.parametrize("version", versions(K.JOIN_GROUP, first=5))
def test_a_static_member_restarts(wire: Wire, topic: str, version: int) -> None:
    first = join(wire, version, topic, instance="i")
    who = {"group_id": topic, "member_id": first["member_id"], "generation_id": 1, "group_instance_id": "i"}
    assignments = [{"member_id": first["member_id"], "assignment": b"mine"}]
    assert wire.call(K.SYNC_GROUP, 3, assignments=assignments, **who)["error_code"] == 0
    second = join(wire, version, topic, instance="i")
    assert second["generation_id"] == 1
    assert second["member_id"] != first["member_id"]
    assert second["skip_assignment"] is (version >= 9)
    assert wire.call(K.HEARTBEAT, 3, **who)["error_code"] == E.FENCED_INSTANCE_ID
    who["member_id"] = second["member_id"]
    assert bytes(wire.call(K.SYNC_GROUP, 3, **who)["assignment"]) == b"mine"


@pytest.mark.parametrize("version", versions(K.DESCRIBE_GROUPS))
def test_describe_groups(wire: Wire, topic: str, topic_id: bytes, version: int) -> None:
    group, simple = f"{topic}-g", f"{topic}-simple"
    commit(wire, 9, simple, topic, topic_id, {0: 1})
    me = join(wire, 5, group, instance="i")
    assignments = [{"member_id": me["member_id"], "assignment": b"mine"}]
    who = {"group_id": group, "member_id": me["member_id"], "generation_id": 1, "group_instance_id": "i"}
    wire.call(K.SYNC_GROUP, 3, assignments=assignments, **who)
    asked = [group, "missing", simple, "missing"]
    told = wire.call(K.DESCRIBE_GROUPS, version, groups=asked)["groups"]
    assert [entry["group_id"] for entry in told] == asked
    assert [entry["group_state"] for entry in told] == ["Stable", "Dead", "Empty", "Dead"]
    missing = E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE
    assert [entry["error_code"] for entry in told] == [0, missing, 0, missing]
    (member,) = told[0]["members"]
    assert member["member_id"] == me["member_id"]
    assert member["group_instance_id"] == ("i" if version >= 4 else None)
    assert (member["client_id"], bytes(member["member_metadata"])) == ("wire", b"meta")
    assert bytes(member["member_assignment"]) == b"mine"
    assert (told[0]["protocol_type"], told[0]["protocol_data"]) == ("consumer", "range")


@pytest.mark.parametrize("version", versions(K.LIST_GROUPS))
def test_list_groups(wire: Wire, topic: str, topic_id: bytes, version: int) -> None:
    simple, live = f"{topic}-simple", f"{topic}-live"
    commit(wire, 9, simple, topic, topic_id, {0: 1})
    me = join(wire, 5, live)
    assignments = [{"member_id": me["member_id"], "assignment": b"mine"}]
    who = {"group_id": live, "member_id": me["member_id"], "generation_id": 1}
    wire.call(K.SYNC_GROUP, 3, assignments=assignments, **who)

    def listed(**filters: Any) -> dict[str, Answer]:
        answer = wire.call(K.LIST_GROUPS, version, **filters)
        assert answer["error_code"] == 0
        return {g["group_id"]: g for g in answer["groups"] if g["group_id"].startswith(topic)}

    everything = listed()
    assert {name: entry["protocol_type"] for name, entry in everything.items()} == {
        simple: "",
        live: "consumer",
    }
    if version >= 4:
        assert {name: entry["group_state"] for name, entry in everything.items()} == {
            simple: "Empty",
            live: "Stable",
        }
        assert set(listed(states_filter=["stable"])) == {live}
    if version >= 5:
        assert {entry["group_type"] for entry in everything.values()} == {"classic"}
        assert set(listed(types_filter=["Classic"])) == {simple, live}
        assert listed(types_filter=["consumer"]) == {}


# Transactions


def init(wire: Wire, transactional_id: str) -> tuple[int, int]:
    while True:
        answer = wire.call(
            K.INIT_PRODUCER_ID, 4, transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        if answer["error_code"] != E.CONCURRENT_TRANSACTIONS:
            assert answer["error_code"] == 0
            return answer["producer_id"], answer["producer_epoch"]


def txn_commit(
    wire: Wire, version: int, txn: str, producer: tuple[int, int], group: str, topic: str,
    offsets: dict[int, int], **more: Any,
) -> dict[int, int]:  # fmt: skip
    partitions = [{"partition_index": i, "committed_offset": o} for i, o in offsets.items()]
    answer = wire.call(
        K.TXN_OFFSET_COMMIT, version, transactional_id=txn, group_id=group, producer_id=producer[0],
        producer_epoch=producer[1], topics=[{"name": topic, "partitions": partitions}], **more,
    )  # fmt: skip
    return {part["partition_index"]: part["error_code"] for part in answer["topics"][0]["partitions"]}


@pytest.mark.parametrize("version", versions(K.TXN_OFFSET_COMMIT))
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_in_a_transaction(
    broker: EmbeddedBroker, wire: Wire, topic: str, topic_id: bytes, version: int, committed: bool
) -> None:
    group, txn = f"{topic}-g", f"{topic}-t"
    commit(wire, 9, group, topic, topic_id, {0: 1})
    producer = init(wire, txn)
    who = {"transactional_id": txn, "producer_id": producer[0], "producer_epoch": producer[1]}
    if version < 5:
        refused = E.TRANSACTION_ABORTABLE if version == 4 else E.INVALID_TXN_STATE
        assert txn_commit(wire, version, txn, producer, group, topic, {0: 5}) == {0: refused}
        added = wire.call(K.ADD_OFFSETS_TO_TXN, 3, group_id=group, **who)
        assert added["error_code"] == 0
    assert txn_commit(wire, version, txn, producer, group, topic, {0: 5}) == {0: 0}
    assert fetch(wire, 9, group, topic, topic_id, 0) == {0: (1, 0)}
    assert fetch(wire, 9, group, topic, topic_id, 0, stable=True) == {0: (-1, E.UNSTABLE_OFFSET_COMMIT)}
    ended = wire.call(K.END_TXN, 5 if version >= 5 else 3, committed=committed, **who)
    assert ended["error_code"] == 0
    while (found := fetch(wire, 9, group, topic, topic_id, 0, stable=True))[0][1]:
        assert found == {0: (-1, E.UNSTABLE_OFFSET_COMMIT)}
    assert found == {0: (5 if committed else 1, 0)}
    stale = txn_commit(wire, version, txn, (producer[0], producer[1] - 1), group, topic, {0: 6})
    assert stale == {0: E.INVALID_PRODUCER_EPOCH}


def test_refused_offsets_in_a_transaction(wire: Wire, topic: str, topic_id: bytes) -> None:
    txn = f"{topic}-t"
    producer = init(wire, txn)

    def attempt(offsets: dict[int, int], group: str = "g", name: str = topic, **more: Any) -> dict[int, int]:
        return txn_commit(wire, 5, txn, producer, group, name, offsets, **more)

    assert attempt({0: 1, 9: 1}) == {0: E.UNKNOWN_TOPIC_OR_PARTITION, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert attempt({0: 1}, name="nope") == {0: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert attempt({0: 1}, group="") == {0: E.INVALID_GROUP_ID}
    assert attempt({0: 1}, generation_id=0) == {0: E.ILLEGAL_GENERATION}  # There is no group yet.
    unknown = (producer[0] + 1000, 0)
    assert txn_commit(wire, 5, txn, unknown, "g", topic, {0: 1}) == {0: E.INVALID_PRODUCER_ID_MAPPING}
    fenced = init(wire, txn)
    assert attempt({0: 1}) == {0: E.INVALID_PRODUCER_EPOCH}
    assert txn_commit(wire, 5, txn, fenced, "g", topic, {0: 1}) == {0: 0}


def test_pending_offsets_outlive_a_kill_and_are_settled_after_it(topic: str) -> None:
    with EmbeddedBroker() as broker:
        with Wire(broker.host, broker.port) as wire:
            new = {"name": "t", "num_partitions": 1, "replication_factor": 1}
            made = wire.call(K.CREATE_TOPICS, 7, topics=[new], timeout_ms=5000)["topics"][0]
            topic_id = bytes(made["topic_id"])
            producers = {name: init(wire, name) for name in ("kept", "dropped", "decided")}
            for name, producer in producers.items():
                commit(wire, 9, name, "t", topic_id, {0: 1})
                assert txn_commit(wire, 5, name, producer, name, "t", {0: 5}) == {0: 0}

            def end(wire: Wire, name: str, committed: bool) -> None:
                pid, epoch = producers[name]
                who = {"transactional_id": name, "producer_id": pid, "producer_epoch": epoch}
                assert wire.call(K.END_TXN, 5, committed=committed, **who)["error_code"] == 0

            end(wire, "decided", True)
            broker.kill()
        broker.start()
        with Wire(broker.host, broker.port) as wire:
            while (found := fetch(wire, 9, "decided", "t", topic_id, 0, stable=True))[0][1]:
                assert found == {0: (-1, E.UNSTABLE_OFFSET_COMMIT)}
            assert found == {0: (5, 0)}
            for name in ("kept", "dropped"):
                assert fetch(wire, 9, name, "t", topic_id, 0) == {0: (1, 0)}
                assert fetch(wire, 9, name, "t", topic_id, 0, stable=True) == {
                    0: (-1, E.UNSTABLE_OFFSET_COMMIT)
                }
            end(wire, "kept", True)
            end(wire, "dropped", False)
            for name, offset in (("kept", 5), ("dropped", 1)):
                while (found := fetch(wire, 9, name, "t", topic_id, 0, stable=True))[0][1]:
                    assert found == {0: (-1, E.UNSTABLE_OFFSET_COMMIT)}
                assert found == {0: (offset, 0)}
