"""Consumer groups (KIP-848) over the wire: at every version, beside classic groups, by confluent-kafka."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer

from eoslog.protocol.apis import ApiKey as K
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages.groups import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
)
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire
from tests.broker.broker_clients import create as create_topic
from tests.broker.coordinator.groups.groupkit import assignment, subscription

Answer = dict[str, Any]
CONFIG = {
    "offsets.topic.num.partitions": "2",
    "group.min.session.timeout.ms": "100",
    "group.consumer.max.size": "3",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=CONFIG) as started:
        yield started


@pytest.fixture
def topic_id(wire: Wire, topic: str) -> bytes:
    """The id of the test's own topic of four partitions."""
    return create(wire, topic, 4)


def create(wire: Wire, name: str, partitions: int) -> bytes:
    new = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    answer = wire.call(K.CREATE_TOPICS, 7, topics=[new], timeout_ms=5000)["topics"][0]
    assert answer["error_code"] == 0
    return bytes(answer["topic_id"])


def beat(wire: Wire, group: str, member: str, epoch: int, version: int = 1, **more: Any) -> Answer:
    return wire.call(
        K.CONSUMER_GROUP_HEARTBEAT, version, group_id=group, member_id=member, member_epoch=epoch, **more
    )


def join(wire: Wire, group: str, member: str, *topics: str, version: int = 1, **more: Any) -> Answer:
    wanted = {"subscribed_topic_names": list(topics), "topic_partitions": [], "rebalance_timeout_ms": 60_000}
    return beat(wire, group, member, 0, version, **{**wanted, **more})


def parts(answer: Answer) -> set[int]:
    return {index for topic in answer["assignment"]["topic_partitions"] for index in topic["partitions"]}


def owning(topic_id: bytes, indexes: set[int]) -> list[Answer]:
    return [{"topic_id": topic_id, "partitions": sorted(indexes)}] if indexes else []


def settle(wire: Wire, group: str, topic_id: bytes, members: dict[str, Answer]) -> dict[str, set[int]]:
    """Let members (by id, their last answers) heartbeat until each has what it is to have."""
    reading = {member: parts(answer) for member, answer in members.items()}
    epochs = {member: answer["member_epoch"] for member, answer in members.items()}
    for _ in range(6):
        for member in members:
            answer = beat(
                wire, group, member, epochs[member], topic_partitions=owning(topic_id, reading[member])
            )
            assert answer["error_code"] == 0
            epochs[member] = answer["member_epoch"]
            if answer["assignment"] is not None:
                reading[member] = parts(answer)
        members.update({member: {"member_epoch": epoch} for member, epoch in epochs.items()})
    return reading


@pytest.mark.parametrize("version", [0, 1])
def test_a_life_in_a_group(wire: Wire, topic: str, topic_id: bytes, version: int) -> None:
    first = join(wire, topic, "" if version == 0 else "m1", topic, version=version)
    assert first["error_code"] == 0 and first["heartbeat_interval_ms"] == 5_000
    member = first["member_id"]
    assert (len(member) == 22) if version == 0 else (member == "m1")
    assert (first["member_epoch"], parts(first)) == (2, {0, 1, 2, 3})
    silent = beat(wire, topic, member, 2, version)
    assert (silent["member_epoch"], silent["assignment"]) == (2, None)
    assert beat(wire, topic, member, 3, version)["error_code"] == E.FENCED_MEMBER_EPOCH
    left = beat(wire, topic, member, -1, version)
    assert (left["error_code"], left["member_epoch"]) == (0, -1)
    assert beat(wire, topic, member, 1, version)["error_code"] == E.UNKNOWN_MEMBER_ID
    assert beat(wire, topic + "-none", member, 1, version)["error_code"] == E.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("member", "epoch", "changes", "error"),
    [
        ("", 0, {}, E.INVALID_REQUEST),
        ("m", 0, {"group_id": ""}, E.INVALID_REQUEST),
        ("m", 0, {"instance_id": " "}, E.INVALID_REQUEST),
        ("m", 0, {"rack_id": ""}, E.INVALID_REQUEST),
        ("m", 0, {"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
        ("m", 0, {"topic_partitions": None}, E.INVALID_REQUEST),
        ("m", 0, {"topic_partitions": [{"topic_id": b"\1" * 16, "partitions": [0]}]}, E.INVALID_REQUEST),
        ("m", 0, {"subscribed_topic_names": None}, E.INVALID_REQUEST),
        ("m", -2, {}, E.INVALID_REQUEST),
        ("m", -3, {}, E.INVALID_REQUEST),
        ("m", 0, {"server_assignor": "best"}, E.UNSUPPORTED_ASSIGNOR),
        ("m", 0, {"subscribed_topic_regex": "("}, E.INVALID_REGULAR_EXPRESSION),
        ("m", 5, {}, E.GROUP_ID_NOT_FOUND),
        ("m", -1, {}, E.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_makes_no_sense(wire: Wire, member: str, epoch: int, changes: Answer, error: E) -> None:
    request = {
        "group_id": "odd",
        "rebalance_timeout_ms": 1000,
        "topic_partitions": [],
        "subscribed_topic_names": ["t"],
    }
    body = {**request, **changes}
    answer = wire.call(K.CONSUMER_GROUP_HEARTBEAT, 1, member_id=member, member_epoch=epoch, **body)
    assert answer["error_code"] == error
    assert answer["error_message"]
    (described,) = wire.call(K.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["odd"])["groups"]
    assert described["error_code"] == E.GROUP_ID_NOT_FOUND, "a refused member leaves no trace"


def test_two_members_and_what_is_told_of_them(wire: Wire, topic: str, topic_id: bytes) -> None:
    members = {"m1": join(wire, topic, "m1", topic, instance_id="i1")}
    members["m2"] = join(wire, topic, "m2", subscribed_topic_names=None, subscribed_topic_regex=topic + ".?")
    members["m3"] = join(wire, topic, "m3", topic, server_assignor="range")
    assert join(wire, topic, "m4", topic)["error_code"] == E.GROUP_MAX_SIZE_REACHED
    reading = settle(wire, topic, topic_id, members)
    assert sorted(index for indexes in reading.values() for index in indexes) == [0, 1, 2, 3]
    for version in (0, 1):
        answer = wire.call(K.CONSUMER_GROUP_DESCRIBE, version, group_ids=[topic, "none", ""])["groups"]
        errors = {group["group_id"]: group["error_code"] for group in answer}
        assert errors == {topic: 0, "none": E.GROUP_ID_NOT_FOUND, "": E.INVALID_GROUP_ID}
        (group,) = (group for group in answer if group["group_id"] == topic)
        assert (group["group_state"], group["assignor_name"]) == ("Stable", "range")
        assert group["group_epoch"] == group["assignment_epoch"] == members["m1"]["member_epoch"]
        told = {member["member_id"]: member for member in group["members"]}
        assert (told["m1"]["instance_id"], told["m2"]["subscribed_topic_regex"]) == ("i1", topic + ".?")
        for member, indexes in reading.items():
            (assigned,) = told[member]["assignment"]["topic_partitions"] or [{"partitions": []}]
            assert set(assigned["partitions"]) == indexes
            assert told[member]["assignment"] == told[member]["target_assignment"]
            assert told[member]["member_type"] == (1 if version == 1 else -1)


def test_groups_are_listed_by_type_and_state(wire: Wire, topic: str, topic_id: bytes) -> None:
    join(wire, topic, "m1", topic)
    commit(wire, f"{topic}-simple", topic, 1)

    def listed(**filters: list[str]) -> dict[str, tuple[str, str, str]]:
        wanted = {"states_filter": [], "types_filter": [], **filters}
        answer = wire.call(K.LIST_GROUPS, 5, **wanted)
        return {
            g["group_id"]: (g["group_type"], g["group_state"], g["protocol_type"])
            for g in answer["groups"]
            if g["group_id"].startswith(topic)
        }

    mine = {topic: ("consumer", "Stable", "consumer")}
    simple = {f"{topic}-simple": ("classic", "Empty", "")}
    assert listed() == {**mine, **simple}
    assert listed(types_filter=["Consumer"]) == mine
    assert listed(types_filter=["classic"]) == simple
    assert listed(states_filter=["STABLE"]) == mine
    assert listed(states_filter=["Assigning", "Reconciling"]) == {}
    for version in range(5):
        more: dict[str, list[str]] = {"states_filter": []} if version == 4 else {}
        names = {g["group_id"] for g in wire.call(K.LIST_GROUPS, version, **more)["groups"]}
        assert names >= {topic, f"{topic}-simple"}
    (described,) = wire.call(K.DESCRIBE_GROUPS, 6, groups=[topic])["groups"]
    assert (described["group_state"], described["error_code"]) == ("Dead", E.GROUP_ID_NOT_FOUND)


def commit(wire: Wire, group: str, topic: str, offset: int, version: int = 9, **who: Any) -> int:
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
    topics = [{"name": topic, "partitions": partitions}]
    answer = wire.call(K.OFFSET_COMMIT, version, group_id=group, topics=topics, **who)
    error: int = answer["topics"][0]["partitions"][0]["error_code"]
    return error


def fetch(wire: Wire, group: str, topic: str, **who: Any) -> tuple[int, int]:
    """The committed offset of partition 0 and the group's error."""
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}], **who}
    (answer,) = wire.call(K.OFFSET_FETCH, 9, groups=[asked])["groups"]
    if answer["error_code"]:
        return -2, answer["error_code"]
    return answer["topics"][0]["partitions"][0]["committed_offset"], 0


def test_offsets_are_committed_with_epochs(wire: Wire, topic: str, topic_id: bytes) -> None:
    join(wire, topic, "m1", topic)
    member: dict[str, Any] = {"member_id": "m1", "generation_id_or_member_epoch": 2}
    assert commit(wire, topic, topic, 5, **member) == 0
    assert commit(wire, topic, topic, 6, version=8, **member) == E.UNSUPPORTED_VERSION
    newer = {**member, "generation_id_or_member_epoch": 3}
    assert commit(wire, topic, topic, 6, **newer) == E.STALE_MEMBER_EPOCH
    assert commit(wire, topic, topic, 6, **{**member, "member_id": "m9"}) == E.UNKNOWN_MEMBER_ID
    assert commit(wire, topic, topic, 6) == E.UNKNOWN_MEMBER_ID
    none: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert commit(wire, topic + "-none", topic, 6, **none) == E.GROUP_ID_NOT_FOUND
    assert commit(wire, topic + "-none", topic, 6, version=8, **none) == E.ILLEGAL_GENERATION
    assert fetch(wire, topic, topic) == (5, 0)
    assert fetch(wire, topic, topic, member_id="m1", member_epoch=2) == (5, 0)
    assert fetch(wire, topic, topic, member_id="m1", member_epoch=3) == (-2, E.STALE_MEMBER_EPOCH)
    assert fetch(wire, topic, topic, member_id="m9", member_epoch=1) == (-2, E.UNKNOWN_MEMBER_ID)
    beat(wire, topic, "m1", -1)
    assert commit(wire, topic, topic, 9) == 0, "nobody is in it: an administrator may"


# Deletion


@pytest.mark.parametrize("version", [0, 1, 2])
def test_groups_are_deleted(wire: Wire, topic: str, topic_id: bytes, version: int) -> None:
    join(wire, topic, "m1", topic)
    commit(wire, f"{topic}-simple", topic, 1)
    asked = [topic, "none", f"{topic}-simple", topic]
    answer = wire.call(K.DELETE_GROUPS, version, groups_names=asked)["results"]
    assert {told["group_id"]: told["error_code"] for told in answer} == {
        topic: E.NON_EMPTY_GROUP,
        "none": E.GROUP_ID_NOT_FOUND,
        f"{topic}-simple": 0,
    }
    assert fetch(wire, f"{topic}-simple", topic) == (-1, 0)
    commit(wire, topic, topic, 4, member_id="m1", generation_id_or_member_epoch=2)
    beat(wire, topic, "m1", -1)
    (told,) = wire.call(K.DELETE_GROUPS, version, groups_names=[topic])["results"]
    assert told["error_code"] == 0
    assert fetch(wire, topic, topic) == (-1, 0)
    assert topic not in {g["group_id"] for g in wire.call(K.LIST_GROUPS, 4, states_filter=[])["groups"]}


def delete_offsets(wire: Wire, group: str, *places: tuple[str, int]) -> dict[tuple[str, int], int] | int:
    topics = [{"name": name, "partitions": [{"partition_index": index}]} for name, index in places]
    answer = wire.call(K.OFFSET_DELETE, 0, group_id=group, topics=topics)
    if answer["error_code"]:
        error: int = answer["error_code"]
        return error
    return {
        (t["name"], p["partition_index"]): p["error_code"] for t in answer["topics"] for p in t["partitions"]
    }


def test_offsets_are_deleted(wire: Wire, topic: str, topic_id: bytes) -> None:
    other = f"{topic}-other"
    create(wire, other, 1)
    for name in (topic, other):
        commit(wire, topic, name, 7)
    assert delete_offsets(wire, topic, (topic, 0), (topic, 9), ("none", 0)) == {
        (topic, 0): 0,
        (topic, 9): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (fetch(wire, topic, topic), fetch(wire, topic, other)) == ((-1, 0), (7, 0))
    assert delete_offsets(wire, "none", (topic, 0)) == E.GROUP_ID_NOT_FOUND
    join(wire, topic, "m1", topic)
    assert delete_offsets(wire, topic, (topic, 0), (other, 0)) == {
        (topic, 0): E.GROUP_SUBSCRIBED_TO_TOPIC,
        (other, 0): 0,
    }
    assert fetch(wire, topic, other) == (-1, 0)


# Members of the classic protocol


def assigned(data: bytes) -> set[int]:
    _, body = coordinator_records.decode(CONSUMER_PROTOCOL_ASSIGNMENT, bytes(data))
    return {index for topic in body["assigned_partitions"] for index in topic["partitions"]}


def classic_join(wire: Wire, group: str, topic: str, member: str = "", **more: Any) -> Answer:
    request = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(topic)}],
    }
    return wire.call(K.JOIN_GROUP, 5, **{**request, **more})


def classic_sync(wire: Wire, group: str, joined: Answer, **assignments: bytes) -> Answer:
    given = [{"member_id": member, "assignment": data} for member, data in assignments.items()]
    return wire.call(
        K.SYNC_GROUP,
        5,
        group_id=group,
        generation_id=joined["generation_id"],
        member_id=joined["member_id"],
        protocol_type="consumer",
        protocol_name="range",
        assignments=given,
    )


def classic_beat(wire: Wire, group: str, joined: Answer) -> int:
    error: int = wire.call(
        K.HEARTBEAT,
        4,
        group_id=group,
        generation_id=joined["generation_id"],
        member_id=joined["member_id"],
    )["error_code"]
    return error


def classic_group(wire: Wire, group: str, topic: str) -> Answer:
    """A classic group with one member that has all four partitions; its join."""
    asked = classic_join(wire, group, topic)
    assert asked["error_code"] == E.MEMBER_ID_REQUIRED
    joined = classic_join(wire, group, topic, asked["member_id"])
    assert joined["error_code"] == 0 and joined["leader"] == joined["member_id"]
    everything = {joined["member_id"]: assignment(topic, 0, 1, 2, 3)}
    assert assigned(classic_sync(wire, group, joined, **everything)["assignment"]) == {0, 1, 2, 3}
    return joined


def described(wire: Wire, group: str) -> Answer:
    answer: Answer = wire.call(K.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group])["groups"][0]
    return answer


def test_a_consumer_group_takes_no_classic_members(wire: Wire, topic: str, topic_id: bytes) -> None:
    join(wire, topic, "m1", topic, instance_id="i")
    join(wire, topic, "m2", topic)
    before = described(wire, topic)
    assert classic_join(wire, topic, topic)["error_code"] == E.INCONSISTENT_GROUP_PROTOCOL
    assert classic_join(wire, topic, topic, "m2")["error_code"] == E.INCONSISTENT_GROUP_PROTOCOL
    for member, instance, error in (
        ("m2", None, E.UNKNOWN_MEMBER_ID),
        ("nobody", None, E.UNKNOWN_MEMBER_ID),
        ("nobody", "i", E.FENCED_INSTANCE_ID),
        ("nobody", "j", E.UNKNOWN_MEMBER_ID),
    ):
        who = {"group_id": topic, "generation_id": 1, "member_id": member, "group_instance_id": instance}
        assert wire.call(K.HEARTBEAT, 4, **who)["error_code"] == error
        assert wire.call(K.SYNC_GROUP, 4, **who)["error_code"] == error
    assert described(wire, topic) == before


def test_a_classic_group_takes_no_consumer_members(wire: Wire, topic: str, topic_id: bytes) -> None:
    joined = classic_group(wire, topic, topic)
    for answer in (join(wire, topic, "m1", topic), beat(wire, topic, "m1", 1)):
        assert answer["error_code"] == E.GROUP_ID_NOT_FOUND
        assert answer["error_message"]
    assert described(wire, topic)["error_code"] == E.GROUP_ID_NOT_FOUND
    assert classic_beat(wire, topic, joined) == E.NONE


def test_members_of_a_consumer_group_are_removed(wire: Wire, topic: str, topic_id: bytes) -> None:
    join(wire, topic, "m1", topic, instance_id="i")
    join(wire, topic, "m2", topic)
    join(wire, topic, "m3", topic, instance_id="j")
    members = [
        {"member_id": "", "group_instance_id": "i"},
        {"member_id": "m2"},
        {"member_id": "m1", "group_instance_id": "j"},
        {"member_id": "", "group_instance_id": "none"},
        {"member_id": "nobody"},
    ]
    left = wire.call(K.LEAVE_GROUP, 5, group_id=topic, members=members)["members"]
    errors = [member["error_code"] for member in left]
    assert errors == [0, 0, E.FENCED_INSTANCE_ID, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
    assert [member["member_id"] for member in described(wire, topic)["members"]] == ["m3"]


def test_empty_groups_change_their_protocol(wire: Wire, topic: str, topic_id: bytes) -> None:
    joined = classic_group(wire, topic, topic)
    commit(wire, topic, topic, 8, version=9, member_id=joined["member_id"], generation_id_or_member_epoch=1)
    wire.call(K.LEAVE_GROUP, 5, group_id=topic, members=[{"member_id": joined["member_id"]}])
    assert parts(join(wire, topic, "m1", topic)) == {0, 1, 2, 3}
    assert fetch(wire, topic, topic) == (8, 0)
    (told,) = wire.call(K.DESCRIBE_GROUPS, 5, groups=[topic])["groups"]
    assert told["group_state"] == "Dead"
    beat(wire, topic, "m1", -1)
    assert described(wire, topic)["group_state"] == "Empty"
    classic_group(wire, topic, topic)
    assert described(wire, topic)["error_code"] == E.GROUP_ID_NOT_FOUND
    assert fetch(wire, topic, topic) == (8, 0)


def test_a_group_has_times_of_its_own(wire: Wire, topic: str, topic_id: bytes) -> None:
    change = {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "6000"}
    resource = {"resource_type": 32, "resource_name": topic, "configs": [change]}
    (told,) = wire.call(K.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])["responses"]
    assert told["error_code"] == 0
    assert join(wire, topic, "m1", topic)["heartbeat_interval_ms"] == 6_000
    assert join(wire, f"{topic}-other", "m1", topic)["heartbeat_interval_ms"] == 5_000


def test_the_end_does_not_wait_for_parked_joins(topic: str) -> None:
    patient = CONFIG | {"shutdown.grace.ms": "60000"}
    with EmbeddedBroker(config=patient) as broker, Wire(broker.host, broker.port) as wire:
        create(wire, topic, 4)
        classic_group(wire, "g", topic)
        with Wire(broker.host, broker.port) as other:
            asked = classic_join(other, "g", topic)
            parked = threading.Thread(target=classic_join, args=(other, "g", topic, asked["member_id"]))
            parked.start()
            time.sleep(0.2)
            assert parked.is_alive(), "it waits for the other member to join again"
            begun = time.monotonic()
            broker.stop()
            assert time.monotonic() - begun < 40, "the grace of a minute is for requests that get on"
            parked.join(40)
            assert not parked.is_alive()


# -- confluent-kafka's consumers -----------------------------------------------------------------
# confluent-kafka's consumers in groups, beyond the scenarios: members that stop polling, topics by regular
# expression, and groups of both protocols that outlive crashes of the broker.

QUICK = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.min.session.timeout.ms": "1000",
}
QUIET = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100}


@pytest.fixture(scope="module")
def quick_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=QUICK) as started:
        yield started


class Member:
    """A consumer and what it has seen; it commits what it has seen with each poll that brings something."""

    def __init__(self, broker: EmbeddedBroker, group: str, *topics: str, **config: object) -> None:
        self.seen: list[Message] = []
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
            **config,
        }
        self.consumer = Consumer(settings)
        self.consumer.subscribe(list(topics))

    @property
    def partitions(self) -> set[int]:
        return {found.partition for found in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.seen.append(message)

    def commit(self) -> None:
        if self.consumer.assignment():
            self.consumer.commit(asynchronous=False)


def poll_until(members: list[Member], done: Callable[[], bool], timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, [(m.partitions, len(m.seen)) for m in members]
        for member in members:
            member.poll()


def fill(broker: EmbeddedBroker, topic: str, count: int, partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(20) == 0


def seen(members: list[Member]) -> Counter[tuple[str | None, int | None, int | None]]:
    return Counter((m.topic(), m.partition(), m.offset()) for member in members for m in member.seen)


def test_a_member_that_polls_no_more_is_replaced(quick_broker: EmbeddedBroker, topic: str) -> None:
    create_topic(quick_broker.bootstrap, topic, 4)
    first, second = Member(quick_broker, topic, topic), Member(quick_broker, topic, topic)
    poll_until([first, second], lambda: len(first.partitions) == len(second.partitions) == 2)
    third = Member(quick_broker, topic, topic, **{"max.poll.interval.ms": 1000})
    poll_until([first, second, third], lambda: len(third.partitions) == 1)
    poll_until([first, second], lambda: len(first.partitions) == len(second.partitions) == 2)
    for member in (first, second, third):
        member.consumer.close()


def test_topics_by_regular_expression_and_topics_that_come(quick_broker: EmbeddedBroker, topic: str) -> None:
    create_topic(quick_broker.bootstrap, f"{topic}-1", 1)
    fill(quick_broker, f"{topic}-1", 5, partitions=1)
    member = Member(quick_broker, topic, f"^{topic}-[0-9]")
    poll_until([member], lambda: len(member.seen) == 5)
    create_topic(quick_broker.bootstrap, f"{topic}-2", 2)
    fill(quick_broker, f"{topic}-2", 6, partitions=2)
    poll_until([member], lambda: len(member.seen) == 11)
    member.consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_outlives_crashes(protocol: str) -> None:
    group = {"group.protocol": protocol}
    with EmbeddedBroker(config=QUICK) as broker:
        create_topic(broker.bootstrap, "t", 4)
        members = [Member(broker, "g", "t", **group) for _ in range(2)]
        # Who is alone at first reads what the other, who comes later, reads from the beginning again.
        poll_until(members, lambda: sorted(len(member.partitions) for member in members) == [2, 2])
        total = 0
        for _ in range(3):
            fill(broker, "t", 40)
            total += 40
            poll_until(members, lambda: len(seen(members)) == total)  # noqa: B023
            for member in members:
                member.commit()
            broker.kill()
            broker.start()
        fill(broker, "t", 40)
        poll_until(members, lambda: len(seen(members)) == total + 40)
        assert sorted(len(member.partitions) for member in members) == [2, 2]
        assert set(seen(members).values()) == {1}, "nobody was thrown out, nothing was read twice"
        for member in members:
            member.commit()
            member.consumer.close()
        late = Member(broker, "g", "t", **group)
        fill(broker, "t", 4)
        poll_until([late], lambda: len(late.seen) == 4)
        late.consumer.close()
