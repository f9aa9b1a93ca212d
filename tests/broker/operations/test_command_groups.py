"""`eoslog groups`: what groups have read, and setting it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, TopicPartition

from eoslog.testing import EmbeddedBroker
from tests.broker.operations.run_command import document, failure, ok, run


def consumer(broker: EmbeddedBroker, group: str, **more: object) -> Consumer:
    return Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest", **more}
    )


def commit(broker: EmbeddedBroker, group: str, topic: str, *offsets: int) -> None:
    client = consumer(broker, group)
    places = [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]
    client.commit(offsets=places, asynchronous=False)
    client.close()


@contextmanager
def reading(broker: EmbeddedBroker, group: str, topic: str, **more: object) -> Iterator[None]:
    """A member that has its partitions."""
    client = consumer(broker, group, **{"client.id": "reader", **more})
    client.subscribe([topic])
    deadline = time.monotonic() + 20
    while not client.assignment():
        client.poll(0.1)
        assert time.monotonic() < deadline
    yield
    client.close()


def test_lag(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "lag")
    ok(broker, "produce", "lag", input="a\n" * 10)
    commit(broker, "behind", "lag", 4)
    (group,) = document(broker, "groups", "describe", "behind")
    assert (group["state"], group["members"]) == ("Empty", [])
    (row,) = group["offsets"]
    assert (row["topic"], row["partition"], row["committed"], row["end"], row["lag"]) == ("lag", 0, 4, 10, 6)
    assert "behind" in {row["group"] for row in document(broker, "groups", "list")}
    cells = ok(broker, "groups", "describe", "behind").splitlines()[1].split()
    assert cells == ["behind", "Empty", "lag", "0", "4", "10", "6", "-", "-"]


@pytest.mark.parametrize(
    ("group", "topic", "metadata"),
    [
        ("sink", "__consumer_offsets", "eoslog/1 0 1 00000000 {}"),
        ("sink/attempts", "__consumer_offsets", "some-query"),
        ("moved", "decisions", "eoslog/1 0 1 00000000 {}"),
    ],
)
def test_a_sink_s_notes_have_no_lag(broker: EmbeddedBroker, group: str, topic: str, metadata: str) -> None:
    if topic != "__consumer_offsets":
        ok(broker, "topics", "create", topic)
        ok(broker, "produce", topic, input="a\n" * 9)
    client = consumer(broker, group)
    client.commit(offsets=[TopicPartition(topic, 0, 3, metadata=metadata)], asynchronous=False)
    client.close()
    (found,) = document(broker, "groups", "describe", group)
    (row,) = found["offsets"]
    assert (row["committed"], row["lag"]) == (3, None)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members(broker: EmbeddedBroker, protocol: str) -> None:
    topic, group = f"read-{protocol}", f"readers-{protocol}"
    ok(broker, "topics", "create", topic, "--partitions", "2")
    with reading(broker, group, topic, **{"group.protocol": protocol}):
        (found,) = document(broker, "groups", "describe", group)
        assert (found["state"], found["type"]) == ("Stable", protocol)
        (member,) = found["members"]
        assert member["client"] == "reader"
        assert member["partitions"] == [f"{topic}-0", f"{topic}-1"]
        lines = ok(broker, "groups", "describe", group, "--members").splitlines()
        assert lines[1].split()[-1] == f"{topic}-0,{topic}-1"
        assert "has members (Stable)" in failure(
            broker, "groups", "reset", group, "--all-topics", "--to-earliest", "--execute"
        )
        assert "NON_EMPTY_GROUP" in failure(broker, "groups", "delete", group)


def test_a_group_that_is_not_there(broker: EmbeddedBroker) -> None:
    assert "there is no group nobody" in failure(broker, "groups", "describe", "nobody")
    assert "nobody" in failure(broker, "groups", "delete", "nobody")


def committed(broker: EmbeddedBroker, group: str) -> dict[int, int]:
    (found,) = document(broker, "groups", "describe", group)
    return {row["partition"]: row["committed"] for row in found["offsets"]}


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "7"], 7),
        (["--to-offset", "70"], 10),
        (["--shift-by", "2"], 6),
        (["--shift-by", "-9"], 0),
        (["--to-datetime", "2020-01-01T00:00:00.000+00:00"], 0),
        (["--to-datetime", "2120-01-01T00:00:00.000"], 10),
    ],
)
def test_reset(broker: EmbeddedBroker, target: list[str], wanted: int) -> None:
    ok(broker, "topics", "create", "reset", "--if-not-exists")
    if document(broker, "topics", "describe", "reset")[0]["end"] == 0:
        ok(broker, "produce", "reset", input="a\n" * 10)
    commit(broker, "mover", "reset", 4)
    plan = run(broker, "groups", "reset", "mover", "--topic", "reset", *target, "--dry-run")
    assert plan.exit_code == 0
    assert plan.stdout.splitlines()[1].split()[:5] == ["mover", "reset", "0", "4", str(wanted)]
    assert committed(broker, "mover") == {0: 4}
    ok(broker, "groups", "reset", "mover", "--topic", "reset:0", *target, "--execute")
    assert committed(broker, "mover") == {0: wanted}


def test_reset_to_a_time(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "times")
    ok(broker, "produce", "times", input="a\nb\n")
    time.sleep(0.01)
    middle = datetime.now(UTC).isoformat(timespec="milliseconds")
    time.sleep(0.01)
    ok(broker, "produce", "times", input="c\n")
    ok(broker, "groups", "reset", "timely", "--topic", "times", "--to-datetime", middle, "--execute")
    assert committed(broker, "timely") == {0: 2}


def test_reset_wants_one_target_and_one_scope(broker: EmbeddedBroker) -> None:
    for wrong in (
        ["--all-topics"],
        ["--all-topics", "--to-earliest", "--to-latest"],
        ["--to-earliest"],
        ["--all-topics", "--topic", "reset", "--to-earliest"],
        ["--all-topics", "--to-datetime", "yesterday"],
    ):
        assert run(broker, "groups", "reset", "mover", *wrong).exit_code == 2, wrong


def test_forgetting_offsets_and_groups(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "forget", "--partitions", "2")
    commit(broker, "old", "forget", 0, 0)
    assert ok(broker, "groups", "delete-offsets", "old", "--topic", "forget:1") == "forget-1: forgotten\n"
    assert committed(broker, "old") == {0: 0}
    assert ok(broker, "groups", "delete", "old") == "group old: deleted\n"
    assert "there is no group old" in failure(broker, "groups", "describe", "old")
