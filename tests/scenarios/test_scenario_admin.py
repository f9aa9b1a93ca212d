"""Scenarios: administration of topics, configs, records, groups, offsets and transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from tests.scenarios.drivers.base import Admin, Client, Place, Refused
from tests.scenarios.steps import everything, plain_producer, put, until, values

Topic = Callable[..., list[Place]]
Seen = Callable[..., None]
BEGIN = 1_600_000_000_000


@pytest.fixture
def admin(client: Client, bootstrap: str) -> Any:
    """The client's admin."""
    with client.admin(bootstrap) as opened:
        yield opened


def _refused(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.name


def _alter_in_new_topic(admin: Any, group: str, offsets: Mapping[Place, int]) -> None:
    """Apache Kafka's coordinator of the group learns of a topic a moment after its creation was answered."""

    def altered() -> bool:
        try:
            admin.alter_offsets(group, offsets)
        except Refused as refused:
            assert refused.name == "UNKNOWN_TOPIC_OR_PARTITION", refused
            return False
        return True

    until(altered, "the group's coordinator knows the topic")


def test_topics_are_created_described_and_deleted(
    client: Client, bootstrap: str, admin: Admin, name: str, seen: Seen
) -> None:
    admin.create_topic(name, 3, validate_only=True)
    assert name not in admin.topics()
    admin.create_topic(name, 3)
    until(lambda: name in admin.topics(), "the topic is there")
    assert admin.partitions(name) == [0, 1, 2]
    refusals = {
        "again": lambda: admin.create_topic(name, 3),
        "again, asked only": lambda: admin.create_topic(name, 3, validate_only=True),
        "no partitions": lambda: admin.create_topic(name + "-2", 0),
        "too many replicas": lambda: admin.create_topic(name + "-3", 1, replicas=3),
        "bad name": lambda: admin.create_topic("no/name"),
        "too long a name": lambda: admin.create_topic("n" * 250),
        "bad config": lambda: admin.create_topic(name + "-4", configs={"cleanup.policy": "burn"}),
        "unknown config": lambda: admin.create_topic(name + "-5", configs={"no.such.config": "1"}),
    }
    found = {what: _refused(call) for what, call in refusals.items()}
    seen(**found)
    assert found == {
        "again": "TOPIC_ALREADY_EXISTS", "again, asked only": "TOPIC_ALREADY_EXISTS",
        "no partitions": "INVALID_PARTITIONS",
        "too many replicas": "INVALID_REPLICATION_FACTOR", "bad name": "INVALID_TOPIC_EXCEPTION",
        "too long a name": "INVALID_TOPIC_EXCEPTION", "bad config": "INVALID_CONFIG",
        "unknown config": "INVALID_CONFIG",
    }  # fmt: skip
    admin.delete_topic(name)
    until(lambda: name not in admin.topics(), "the topic is gone")
    assert _refused(lambda: admin.delete_topic(name)) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_topic_made_anew_is_empty(client: Client, bootstrap: str, admin: Admin, name: str) -> None:
    place = Place(name, 0)
    for value in (b"old", b"new"):
        admin.create_topic(name)
        with plain_producer(client, bootstrap) as producer:
            put(producer, place, value)
        assert values(everything(client, bootstrap, [place])[place]) == [value]
        admin.delete_topic(name)
        until(lambda: name not in admin.topics(), "the topic is gone")


def test_the_cluster(client: Client, cluster: Any, bootstrap: str, admin: Admin, seen: Seen) -> None:
    cluster_id, controller, nodes = admin.cluster()
    seen(controller=controller, nodes=[node for node, _ in nodes], id_size=len(cluster_id or ""))
    assert [port for _, port in nodes] == [cluster.port]
    assert controller in [node for node, _ in nodes]


@pytest.mark.needs("create-partitions")
def test_partitions_are_added(client: Client, bootstrap: str, admin: Any, topic: Topic, seen: Seen) -> None:
    [place] = topic()
    with plain_producer(client, bootstrap) as producer:
        put(producer, place, b"0")
    admin.create_partitions(place.topic, 3)
    until(lambda: admin.partitions(place.topic) == [0, 1, 2], "the partitions are there")
    with plain_producer(client, bootstrap) as producer:
        put(producer, Place(place.topic, 2), b"2")
    found = everything(client, bootstrap, [Place(place.topic, number) for number in range(3)])
    assert [values(records) for records in found.values()] == [[b"0"], [], [b"2"]]
    fewer = _refused(lambda: admin.create_partitions(place.topic, 2))
    unknown = _refused(lambda: admin.create_partitions(place.topic + "-no", 2))
    seen(fewer=fewer, unknown=unknown)
    assert (fewer, unknown) == ("INVALID_PARTITIONS", "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.needs("configs")
def test_configs_of_a_topic(client: Client, admin: Any, topic: Topic, seen: Seen) -> None:
    [place] = topic(retention_ms="86400000")
    before = admin.configs(place.topic)
    assert before["retention.ms"] == ("86400000", False)
    assert before["cleanup.policy"] == ("delete", True)
    admin.alter_configs(place.topic, {"retention.ms": "3600000", "max.message.bytes": "5000"})
    until(lambda: admin.configs(place.topic)["retention.ms"][0] == "3600000", "the config is changed")
    assert admin.configs(place.topic)["max.message.bytes"] == ("5000", False)
    with pytest.raises(Refused) as caught:
        admin.alter_configs(place.topic, {"retention.ms": "soon"})
    seen(bad_value=caught.value.name, names=sorted(before))
    admin.alter_configs(place.topic, {"max.message.bytes": None, "retention.ms": "7200000"})
    until(lambda: admin.configs(place.topic)["max.message.bytes"][1], "the default is back")
    assert admin.configs(place.topic)["retention.ms"] == ("7200000", False)


@pytest.mark.needs("configs")
def test_a_changed_config_counts_at_once(client: Client, bootstrap: str, admin: Any, topic: Topic) -> None:
    [place] = topic()
    with plain_producer(client, bootstrap) as producer:
        put(producer, place, b"x" * 5000)
    admin.alter_configs(place.topic, {"max.message.bytes": "1000"})
    until(lambda: admin.configs(place.topic)["max.message.bytes"][0] == "1000", "the config is changed")
    with plain_producer(client, bootstrap) as producer:
        error = _refused(lambda: producer.send(place.topic, b"x" * 5000).result())
    assert error == "MESSAGE_TOO_LARGE"


@pytest.mark.needs("broker-configs")
def test_configs_of_the_broker(client: Client, admin: Any, seen: Seen) -> None:
    _, node, _ = admin.cluster()
    found = admin.broker_configs(node)
    asked = (
        "log.retention.ms",
        "num.partitions",
        "transaction.max.timeout.ms",
        "offsets.topic.num.partitions",
    )
    seen(**{option: option in found for option in asked})
    assert found["group.min.session.timeout.ms"][0] == "1000"


@pytest.mark.needs("version")
def test_the_broker_s_version(client: Client, admin: Any, seen: Seen) -> None:
    version = admin.version()
    seen(version=version)
    assert version == (4, 3)


@pytest.mark.needs("broker-configs")
def test_what_the_start_gave_is_no_default(client: Client, admin: Any, topic: Topic, seen: Seen) -> None:
    """Not even where its value is the default."""
    [place] = topic()
    _, node, _ = admin.cluster()
    of_broker, of_topic = admin.broker_configs(node), admin.configs(place.topic)
    found = {
        "given": of_broker["auto.create.topics.enable"], "inherited": of_topic["segment.bytes"],
        "default": of_topic["cleanup.policy"],
    }  # fmt: skip
    seen(**found)
    assert found["given"] == ("true", False)
    assert found["inherited"] == (str(1 << 30), False)
    assert found["default"] == ("delete", True)


@pytest.mark.needs("broker-configs")
def test_options_that_a_broker_takes(client: Client, admin: Any, seen: Seen) -> None:
    """Also those that have no effect, and those of nobody, which may be a plug-in's."""
    _, node, _ = admin.cluster()
    relogin = "sasl.kerberos.min.time.before.relogin"
    admin.alter_broker_config(str(node), relogin, "70000")
    until(lambda: admin.broker_configs(node).get(relogin) == ("70000", False), "the option is kept")
    admin.alter_broker_config(str(node), "no.such.option", "1")
    until(lambda: "no.such.option" in admin.broker_configs(node), "the option is kept")
    assert admin.broker_configs(node)["no.such.option"][0] is None
    refused = {
        option: _refused(partial(admin.alter_broker_config, str(node), option, value))
        for option, value in {
            relogin: "soon", "controller.quorum.voters": "1@localhost:1", "log.dirs": "elsewhere",
            "log.retention.hours": "5", "num.io.threads": "many", "ssl.keystore.location": "nowhere",
        }.items()
    }  # fmt: skip
    seen(**refused)
    assert set(refused.values()) == {"INVALID_REQUEST"}


@pytest.mark.needs("delete-records")
def test_records_are_deleted(client: Client, bootstrap: str, admin: Any, topic: Topic, seen: Seen) -> None:
    [place] = topic()
    with plain_producer(client, bootstrap) as producer:
        put(producer, place, *(b"%d" % number for number in range(10)))
    assert admin.delete_records(place, 4) == 4
    with client.consumer(bootstrap) as consumer:
        consumer.assign({place: 4})
        assert consumer.ends(place) == (4, 10)
    beyond = _refused(lambda: admin.delete_records(place, 11))
    seen(beyond=beyond)
    assert beyond == "OFFSET_OUT_OF_RANGE"
    assert admin.delete_records(place, -1) == 10
    with client.consumer(bootstrap) as consumer:
        consumer.assign({place: 10})
        assert consumer.ends(place) == (10, 10)


@pytest.mark.needs("list-offsets")
def test_offsets_are_listed(client: Client, bootstrap: str, admin: Any, topic: Topic, name: str) -> None:
    [place] = topic()
    with (
        plain_producer(client, bootstrap) as plain,
        client.producer(bootstrap, transactional_id=name) as producer,
    ):
        for number in (0, 1, 5, 2):
            plain.send(place.topic, b"%d" % number, timestamp=BEGIN + number * 1000)
            plain.flush()
        producer.init()
        producer.begin()
        producer.send(place.topic, b"open", timestamp=BEGIN)
        producer.flush()
        for committed, end in ((False, 5), (True, 4)):
            asked = ("earliest", "latest", "max-timestamp", BEGIN + 1500, BEGIN + 9000)
            found = [admin.list_offsets(place, what, committed=committed) for what in asked]
            assert found == [0, end, 2, 2, -1]
        producer.abort()


@pytest.mark.needs("groups")
def test_groups_are_described_and_deleted(
    client: Client, bootstrap: str, admin: Any, topic: Topic, name: str, seen: Seen
) -> None:
    places = topic(2)
    with client.consumer(bootstrap, group=name, client_id="one") as consumer:
        consumer.subscribe([places[0].topic])
        until(lambda: consumer.assignment() == set(places), "the only member has all", consumer)
        consumer.commit({places[0]: 3})
        view = admin.group(name)
        assert (view.state, view.protocol) == ("Stable", "range")
        assert dict(view.members) == {"one": frozenset(places)}
        assert admin.groups()[name] == "Stable"
        busy = _refused(lambda: admin.delete_group(name))
    until(lambda: admin.groups()[name] == "Empty", "the group is empty")
    admin.delete_group(name)
    assert name not in admin.groups()
    gone = _refused(lambda: admin.delete_group(name))
    seen(busy=busy, gone=gone)
    assert (busy, gone) == ("NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND")


@pytest.mark.needs("group-offsets")
def test_offsets_of_a_group(client: Client, bootstrap: str, admin: Any, topic: Topic, name: str) -> None:
    first, second, _ = topic(3)
    with client.consumer(bootstrap, group=name) as consumer:
        consumer.assign({first: 0, second: 0})
        consumer.commit({first: 3, second: 4})
        assert admin.group_offsets(name) == {first: 3, second: 4}
    assert admin.group_offsets(name + "-unknown") == {}


@pytest.mark.needs("alter-offsets")
def test_offsets_of_a_group_are_altered(
    client: Client, bootstrap: str, admin: Any, topic: Topic, name: str, seen: Seen
) -> None:
    first, second = topic(2)
    _alter_in_new_topic(admin, name, {first: 7, second: 8})
    assert admin.group_offsets(name) == {first: 7, second: 8}
    with client.consumer(bootstrap, group=name) as consumer:
        consumer.subscribe([first.topic])
        until(lambda: len(consumer.assignment()) == 2, "the only member has all", consumer)
        assert consumer.committed([first]) == {first: 7}
        seen(busy=_refused(lambda: admin.alter_offsets(name, {first: 1})))
    until(lambda: admin.groups()[name] == "Empty", "the group is empty")
    admin.alter_offsets(name, {first: 2})
    assert admin.group_offsets(name) == {first: 2, second: 8}


@pytest.mark.needs("delete-offsets")
def test_offsets_of_a_group_are_deleted(
    client: Client, bootstrap: str, admin: Any, topic: Topic, name: str, seen: Seen
) -> None:
    first, second = topic(2)
    _alter_in_new_topic(admin, name, {first: 7, second: 8})
    with client.consumer(bootstrap, group=name) as consumer:
        consumer.subscribe([first.topic])
        until(lambda: len(consumer.assignment()) == 2, "the only member has all", consumer)
        busy = _refused(lambda: admin.delete_offsets(name, [first]))
    until(lambda: admin.groups()[name] == "Empty", "the group is empty")
    admin.delete_offsets(name, [first])
    assert admin.group_offsets(name) == {second: 8}
    unknown = _refused(lambda: admin.delete_offsets(name + "-no", [first]))
    seen(busy=busy, unknown=unknown)
    assert (busy, unknown) == ("GROUP_SUBSCRIBED_TO_TOPIC", "GROUP_ID_NOT_FOUND")


@pytest.mark.needs("transactions")
def test_transactions_are_listed_and_described(
    client: Client, bootstrap: str, admin: Any, topic: Topic, name: str, seen: Seen
) -> None:
    first, second = topic(2)
    with client.producer(bootstrap, transactional_id=name, transaction_timeout_ms=30_000) as producer:
        producer.init()
        states = [admin.transaction(name).state]
        producer.begin()
        for place in (first, second):
            put(producer, place, b"open", b"too")
        view = admin.transaction(name)
        assert (view.state, view.timeout_ms, view.places) == ("Ongoing", 30_000, {first, second})
        assert admin.transactions()[name] == "Ongoing"
        epoch, sequence, start = admin.producers(first)[view.producer_id]
        assert (epoch, sequence, start) == (view.producer_epoch, 1, 0)
        producer.commit()
        until(lambda: admin.transaction(name).state == "CompleteCommit", "it is complete")
        until(lambda: admin.producers(first)[view.producer_id][2] == -1, "no transaction is open")
        producer.begin()
        put(producer, first, b"again")
        producer.abort()
        until(lambda: admin.transaction(name).state == "CompleteAbort", "it is complete")
    seen(states=states, unknown=_refused(lambda: admin.transaction(name + "-no")))


@pytest.mark.needs("transactions")
def test_a_transaction_is_aborted_by_an_admin(
    client: Client, bootstrap: str, admin: Any, topic: Topic, name: str, seen: Seen
) -> None:
    """KIP-664: a marker for one partition of a transaction that its coordinator knows. Apache Kafka writes it
    and thereby ends the transaction there; eoslog refuses to tear a transaction apart that it ends by itself.
    """
    first, second = topic(2)
    with client.producer(bootstrap, transactional_id=name) as producer:
        producer.init()
        producer.begin()
        put(producer, first, b"1")
        put(producer, second, b"2")
        view = admin.transaction(name)
        epoch, _, start = admin.producers(first)[view.producer_id]
        assert start == 0
        try:
            admin.abort_transaction(first, view.producer_id, epoch, 0)
        except Refused as refused:
            assert refused.name == "INVALID_TXN_STATE"
            seen(abort=refused.name)
            producer.commit()
            visible = everything(client, bootstrap, [first, second])
            assert [values(records) for records in visible.values()] == [[b"1"], [b"2"]]
        else:
            until(lambda: admin.producers(first)[view.producer_id][2] == -1, "it is over there")
            seen(abort="done")


@pytest.mark.needs("fence")
def test_a_producer_is_fenced_by_an_admin(
    client: Client, bootstrap: str, admin: Any, topic: Topic, name: str, seen: Seen
) -> None:
    [place] = topic()
    producer = client.producer(bootstrap, transactional_id=name)
    producer.init()
    producer.begin()
    put(producer, place, b"fenced")
    admin.fence(name)
    error = _refused(producer.commit)
    seen(error=error)
    assert error in client.fenced
    producer.close()
    assert everything(client, bootstrap, [place]) == {place: []}


@pytest.mark.needs("log-dirs")
def test_log_dirs(client: Client, bootstrap: str, admin: Any, topic: Topic) -> None:
    places = topic(2)
    with plain_producer(client, bootstrap) as producer:
        put(producer, places[1], b"x" * 1000)
    found = {place: size for place, size in admin.log_dirs(places[0].topic).items() if place in places}
    assert found[places[0]] == 0
    assert 1000 < found[places[1]] < 1200


@pytest.mark.needs("features")
def test_features(client: Client, admin: Any, seen: Seen) -> None:
    found = admin.features()
    seen(transaction=found["transaction.version"], names=sorted(found))
    assert found["transaction.version"][1] == 2


@pytest.mark.needs("quorum")
def test_the_quorum(client: Client, admin: Any, seen: Seen) -> None:
    _, controller, _ = admin.cluster()
    leader, voters = admin.quorum()
    assert (leader, voters) == (controller, [controller])


@pytest.mark.needs("elect")
def test_leaders_are_elected(client: Client, admin: Any, topic: Topic, seen: Seen) -> None:
    [place] = topic()
    needless = _refused(lambda: admin.elect(place))
    unknown = _refused(lambda: admin.elect(Place(place.topic + "-no", 0)))
    seen(needless=needless, unknown=unknown)
    assert (needless, unknown) == ("ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.needs("reassign")
def test_no_reassignment_goes_on(client: Client, admin: Any, topic: Topic) -> None:
    topic()
    assert admin.reassignments() == {}


@pytest.mark.needs("remove-members")
def test_members_are_removed(client: Client, bootstrap: str, admin: Any, topic: Topic, name: str) -> None:
    [place] = topic()
    with client.consumer(bootstrap, group=name, instance="one", session_ms=30_000) as consumer:
        consumer.subscribe([place.topic])
        until(lambda: consumer.assignment() == {place}, "the only member has all", consumer)
    assert admin.group(name).state == "Stable"
    admin.remove_members(name, ["one"])
    until(lambda: admin.group(name).state == "Empty", "the group is empty")
