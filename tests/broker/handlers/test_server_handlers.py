"""The data APIs by the wire, at every version: what stock clients never send must be answered right too."""

import os
import struct
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from eoslog.broker.network import dispatch
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.batch import HEADER_SIZE, build_batch, iter_headers
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire
from tests.protocol.oracle import with_right_crc

Answer = dict[str, Any]
REPO = Path(__file__).parents[3]

NOW = int(time.time() * 1000)
BOUND_S = 20.0
"""What may pass on a machine that stands still for a while, and is far from the longest wait asked for."""


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def batch(*values: bytes, **how: Any) -> bytes:
    return encode_records([(None, value) for value in values], NOW, **how)


def create(wire: Wire, topic: str, partitions: int = 1) -> bytes:
    """Make a topic; answers its id."""
    wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
    (made,) = wire.call(ApiKey.CREATE_TOPICS, 7, topics=[wanted])["topics"]
    assert made["error_code"] == 0, made
    topic_id: bytes = made["topic_id"]
    return topic_id


def produce(wire: Wire, version: int, topic: str, topic_id: bytes, records: Any, **how: Any) -> Answer:
    data = {"name": topic, "topic_id": topic_id, "partition_data": [{"index": 0, "records": records}]}
    (answer,) = wire.call(ApiKey.PRODUCE, version, **{"acks": -1, "topic_data": [data], **how})["responses"]
    return part(answer, "partition_responses")


def part(topic: Answer, key: str) -> Answer:
    (one,) = topic[key]
    found: Answer = one
    return found


def fetch_request(topic: str, topic_id: bytes, offset: int = 0, **how: Any) -> Answer:
    inner = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    inner |= {name: how.pop(name) for name in ("current_leader_epoch", "partition_max_bytes") if name in how}
    wanted = [{"topic": topic, "topic_id": topic_id, "partitions": [inner]}]
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": wanted, **how}


def fetch(wire: Wire, version: int, topic: str, topic_id: bytes, offset: int = 0, **how: Any) -> Answer:
    answer = wire.call(ApiKey.FETCH, version, **fetch_request(topic, topic_id, offset, **how))
    assert (answer["error_code"], answer["session_id"]) == (0, 0)
    return part(part(answer, "responses"), "partitions")


def test_produce_and_fetch_at_every_version(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)
    count = 0
    for version in versions(ApiKey.PRODUCE):
        answer = produce(wire, version, topic, topic_id, batch(b"a", b"b"))
        assert (answer["error_code"], answer["base_offset"]) == (0, count)
        count += 2
    for version in versions(ApiKey.FETCH):
        answer = fetch(wire, version, topic, topic_id)
        ends = answer["high_watermark"], answer["last_stable_offset"]
        assert (answer["error_code"], *ends) == (0, count, count)
        assert sum(header.count for _, header in iter_headers(answer["records"])) == count
        assert answer["aborted_transactions"] is None
        assert fetch(wire, version, topic, topic_id, isolation_level=1)["aborted_transactions"] == []


def test_metadata_at_every_version(broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic, 2)
    for version in versions(ApiKey.METADATA):
        answer = wire.call(ApiKey.METADATA, version, topics=[{"name": topic}])
        assert [(b["node_id"], b["host"], b["port"]) for b in answer["brokers"]] == [
            (1, "127.0.0.1", broker.port)
        ]
        (found,) = answer["topics"]
        assert (found["name"], found["error_code"], found["is_internal"]) == (topic, 0, False)
        assert [(p["partition_index"], p["leader_id"], p["isr_nodes"]) for p in found["partitions"]] == [
            (0, 1, [1]), (1, 1, [1]),
        ]  # fmt: skip
        epochs = {p["leader_epoch"] for p in found["partitions"]}
        assert len(epochs) == 1 and ((min(epochs) > 0) if version >= 7 else epochs == {-1})
        assert found["topic_id"] == (topic_id if version >= 10 else bytes(16))
        everything = wire.call(ApiKey.METADATA, version, topics=[] if version == 0 else None)
        assert topic in [one["name"] for one in everything["topics"]]
    (by_id,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": None, "topic_id": topic_id}])["topics"]
    assert by_id["name"] == topic
    (unknown,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": None, "topic_id": b"x" * 16}])["topics"]
    assert (unknown["error_code"], unknown["name"]) == (100, None)
    (bad,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": "a/b"}])["topics"]
    assert bad["error_code"] == 17
    (absent,) = wire.call(
        ApiKey.METADATA, 12, topics=[{"name": topic + "-no"}], allow_auto_topic_creation=False
    )["topics"]
    assert absent["error_code"] == 3
    assert wire.call(ApiKey.METADATA, 12, topics=[])["topics"] == []
    asked = wire.call(
        ApiKey.METADATA, 10, topics=[{"name": topic}], include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )  # fmt: skip
    assert asked["cluster_authorized_operations"] == 8096
    assert asked["topics"][0]["topic_authorized_operations"] == 3576


def test_api_versions(wire: Wire) -> None:
    for version in versions(ApiKey.API_VERSIONS):
        answer = wire.call(
            ApiKey.API_VERSIONS, version, client_software_name="a-b.c", client_software_version="1.0"
        )
        assert answer["error_code"] == 0
        told = {api["api_key"]: (api["min_version"], api["max_version"]) for api in answer["api_keys"]}
        assert told == {key: (api.named_from, api.versions.last) for key, api in dispatch.served().items()}
        assert told[ApiKey.PRODUCE][0] == told[ApiKey.JOIN_GROUP][0] == 0
        if version >= 3:
            levels = {one["name"]: one["max_version_level"] for one in answer["finalized_features"]}
            assert levels == {"group.version": 1, "transaction.version": 2}
            assert not answer["ends_together"], "what is our own is for our own client"
            ours = wire.call(
                ApiKey.API_VERSIONS, version, client_software_name="eoslog", client_software_version="1.0"
            )
            assert ours == answer | {"ends_together": True}
    bad = wire.call(ApiKey.API_VERSIONS, 3, client_software_name="-no", client_software_version="1")
    assert bad["error_code"] == 42


def test_produce_refuses(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)
    good = batch(b"a")

    def code(records: Any, version: int = 9, **how: Any) -> int:
        answer = produce(wire, version, topic, topic_id, records, **how)
        assert answer["base_offset"] == -1
        number: int = answer["error_code"]
        return number

    flipped = bytearray(good)
    flipped[-1] ^= 1
    zstd = bytearray(good)
    zstd[22] |= 4
    zstd = bytearray(with_right_crc(bytes(zstd)))
    assert code(flipped) == 2
    assert code(good[:-1]) == code(good[:30]) == 87
    assert code(b"") == code(None) == 87
    assert code(good + good) == 87
    assert code(zstd, 6) == 76
    assert code(good, acks=7) == 21
    control = b"".join(build_batch([b"x"], 1, base_timestamp=NOW, max_timestamp=NOW, control=True))
    assert code(control) == 87
    transactional = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    assert code(transactional) == 53
    assert code(transactional, transactional_id="nobody") != 0
    late = encode_records([(None, b"a")], NOW + 7_200_000)
    assert code(late) == 32
    for version, wanted in ((9, 3), (13, 100)):
        assert produce(wire, version, topic + "-no", b"x" * 16, good)["error_code"] == wanted
    far = {"name": topic, "partition_data": [{"index": 9, "records": good}]}
    (answer,) = wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[far])["responses"]
    assert part(answer, "partition_responses")["error_code"] == 3
    wire.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    assert produce(wire, 9, "__consumer_offsets", bytes(16), good)["error_code"] == 17
    assert fetch(wire, 12, topic, topic_id)["high_watermark"] == 0


def test_a_repeated_batch_gets_its_first_offset(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)
    made = wire.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000)
    pid = made["producer_id"]

    def send(sequence: int) -> tuple[int, int]:
        records = batch(b"a", b"b", producer_id=pid, producer_epoch=0, base_sequence=sequence)
        answer = produce(wire, 9, topic, topic_id, records)
        return answer["error_code"], answer["base_offset"]

    assert [send(0), send(2), send(0), send(2), send(4)] == [(0, 0), (0, 2), (0, 0), (0, 2), (0, 4)]
    assert send(7)[0] == 45
    assert fetch(wire, 12, topic, topic_id)["high_watermark"] == 6


def test_a_transaction_of_kip_890_begins_at_sequence_zero(wire: Wire, topic: str) -> None:
    """A first batch that was lost on the way must not be skipped; below version 12 any start is taken."""
    name = f"from-zero-{topic}"
    made = wire.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=10_000)
    topic_id = create(wire, f"{topic}-zero")

    def code(version: int, sequence: int) -> int:
        records = batch(
            b"a", producer_id=made["producer_id"], producer_epoch=made["producer_epoch"],
            base_sequence=sequence, transactional=True,
        )  # fmt: skip
        answer = produce(wire, version, f"{topic}-zero", topic_id, records, transactional_id=name)
        return int(answer["error_code"])

    assert code(12, 3) == 45
    assert code(12, 0) == 0
    assert code(12, 1) == 0


def test_some_partitions_may_fail_while_others_do_not(wire: Wire, topic: str) -> None:
    create(wire, topic, 3)
    records = [batch(b"a"), b"garbage", batch(b"c")]
    data = {"name": topic, "partition_data": [{"index": i, "records": r} for i, r in enumerate(records)]}
    (answer,) = wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[data])["responses"]
    assert [one["error_code"] for one in answer["partition_responses"]] == [0, 87, 0]


def test_acks_0_has_no_answer_and_an_error_closes(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)

    def send(records: bytes) -> None:
        data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
        wire.send(ApiKey.PRODUCE, 9, acks=0, topic_data=[data])

    send(batch(b"a"))
    assert fetch(wire, 12, topic, topic_id, max_wait_ms=5000)["high_watermark"] == 1
    send(b"garbage")
    with pytest.raises(ConnectionError):
        wire.exactly(4)


def test_fetch_waits_for_data_and_no_longer(broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)
    begun = time.monotonic()
    assert len(fetch(wire, 12, topic, topic_id, max_wait_ms=300)["records"]) == 0
    assert 0.28 < time.monotonic() - begun < BOUND_S
    with Wire(broker.host, broker.port) as other:
        timer = threading.Timer(0.3, lambda: produce(other, 9, topic, topic_id, batch(b"a")))
        timer.start()
        begun = time.monotonic()
        assert len(fetch(wire, 12, topic, topic_id, max_wait_ms=60_000)["records"]) > HEADER_SIZE
        assert 0.28 < time.monotonic() - begun < BOUND_S
        timer.join()
        begun = time.monotonic()
        wanted = {"max_wait_ms": 500, "min_bytes": 10_000}
        assert len(fetch(wire, 12, topic, topic_id, **wanted)["records"]) > HEADER_SIZE
        assert 0.48 < time.monotonic() - begun < BOUND_S


def test_fetch_limits(wire: Wire, topic: str) -> None:
    create(wire, topic, 3)
    one = batch(b"x" * 1000)
    for _ in range(5):
        data = {"name": topic, "partition_data": [{"index": i, "records": one} for i in range(3)]}
        wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[data])

    def sizes(max_bytes: int, partition_max_bytes: int) -> list[int]:
        parts = [
            {"partition": i, "fetch_offset": 0, "partition_max_bytes": partition_max_bytes} for i in range(3)
        ]
        (answer,) = wire.call(
            ApiKey.FETCH, 12, max_wait_ms=0, min_bytes=1, max_bytes=max_bytes,
            topics=[{"topic": topic, "partitions": parts}],
        )["responses"]  # fmt: skip
        assert [found["high_watermark"] for found in answer["partitions"]] == [5, 5, 5]
        return [len(found["records"]) for found in answer["partitions"]]

    size = len(one)
    assert sizes(1 << 20, 1 << 20) == [5 * size] * 3
    assert sizes(1, 1 << 20) == [size, 0, 0]  # the first whole batch comes whatever the limits (KIP-74)
    assert sizes(1, 1) == [size, 0, 0]
    assert sum(sizes(7 * size, 1 << 20)) == 7 * size
    assert sizes(1 << 20, size + 1)[0] <= size + 1


def leader_epoch(wire: Wire, topic: str) -> int:
    """The epoch of the broker's life."""
    (found,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": topic}])["topics"]
    number: int = found["partitions"][0]["leader_epoch"]
    return number


def test_fetch_refuses(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)
    produce(wire, 9, topic, topic_id, batch(b"a"))

    def code(
        version: int = 12, offset: int = 0, name: str = topic, number: bytes = topic_id, **how: Any
    ) -> int:
        found: int = fetch(wire, version, name, number, offset, max_wait_ms=8000, **how)["error_code"]
        return found

    assert code(offset=2) == code(offset=-1) == 1
    assert code(name=topic + "-no") == 3
    assert code(version=13, number=b"x" * 16) == 100
    now = leader_epoch(wire, topic)
    assert code(current_leader_epoch=now) == 0
    assert code(current_leader_epoch=now + 1) == 75
    assert code(current_leader_epoch=now - 1) == 74
    assert code(version=12, replica_id=2) == 6
    assert code(version=16, replica_state={"replica_id": 2, "replica_epoch": 0}) == 6
    for session_id, epoch, wanted in ((0, -1, 0), (5, -1, 0), (5, 1, 70), (0, 3, 70)):
        answer = wire.call(
            ApiKey.FETCH, 12, **fetch_request(topic, topic_id), session_id=session_id, session_epoch=epoch
        )
        assert (answer["error_code"], answer["session_id"]) == (wanted, 0)


def test_list_offsets(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)
    for second in (5, 1, 3):
        produce(wire, 9, topic, topic_id, encode_records([(None, b"a")], 1_600_000_000_000 + second * 1000))

    def ask(version: int, timestamp: int, **how: Any) -> tuple[int, int, int]:
        inner = {"partition_index": 0, "timestamp": timestamp, **how}
        (answer,) = wire.call(
            ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=[{"name": topic, "partitions": [inner]}]
        )["topics"]
        found = part(answer, "partitions")
        return found["error_code"], found["timestamp"], found["offset"]

    for version in versions(ApiKey.LIST_OFFSETS):
        assert ask(version, -1) == (0, -1, 3)
        assert ask(version, -2) == (0, -1, 0)
        assert ask(version, -3) == ((0, 1_600_000_005_000, 0) if version >= 7 else (35, -1, -1))
        assert ask(version, -4) == ((0, -1, 0) if version >= 8 else (35, -1, -1))
        assert ask(version, -5) == ((0, -1, -1) if version >= 9 else (35, -1, -1))
        assert ask(version, -6) == ((0, -1, -1) if version >= 11 else (35, -1, -1))
        assert ask(version, 1_600_000_002_000) == (0, 1_600_000_005_000, 0)
        assert ask(version, 1_600_000_009_000) == (0, -1, -1)
    assert ask(4, -1, current_leader_epoch=leader_epoch(wire, topic) + 1)[0] == 75
    twice = [{"partition_index": 0, "timestamp": -1}] * 2 + [{"partition_index": 9, "timestamp": -1}]
    (answer,) = wire.call(
        ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": topic, "partitions": twice}]
    )["topics"]
    assert [found["error_code"] for found in answer["partitions"]] == [42, 42, 3]


def test_create_topics(wire: Wire, topic: str) -> None:
    def code(version: int, name: str, partitions: int = 1, factor: int = 1, **how: Any) -> int:
        validate = how.pop("validate_only", False)
        wanted = {"name": name, "num_partitions": partitions, "replication_factor": factor, **how}
        answer = wire.call(ApiKey.CREATE_TOPICS, version, topics=[wanted], validate_only=validate)
        (found,) = answer["topics"]
        number: int = found["error_code"]
        assert (number == 0) == (found["error_message"] is None)
        return number

    for version in versions(ApiKey.CREATE_TOPICS):
        name = f"{topic}-{version}"
        assert code(version, name, validate_only=True) == 0
        assert code(version, name) == 0
        assert code(version, name) == 36
    assert code(5, topic + "-d", -1, -1) == 0
    assert code(5, topic + "-x", 0) == 37
    assert code(5, topic + "-x", 1, 2) == code(5, topic + "-x", 1, 0) == 38
    assert code(5, "") == code(5, "..") == code(5, "x" * 250) == 17
    bad = [{"name": "no.such.config", "value": "1"}]
    assert code(5, topic + "-x", configs=bad) == code(5, topic + "-x", configs=bad, validate_only=True) == 40
    good = [{"partition_index": i, "broker_ids": [1]} for i in (1, 0)]
    assert code(5, topic + "-a", -1, -1, assignments=good) == 0
    assert code(5, topic + "-b", 2, 1, assignments=good) == 42
    assert code(5, topic + "-b", -1, -1, assignments=good[:1]) == 39
    assert code(5, topic + "-b", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [2]}]) == 39
    (found,) = wire.call(ApiKey.METADATA, 9, topics=[{"name": topic + "-a"}])["topics"]
    assert len(found["partitions"]) == 2
    twice = [{"name": topic + "-t", "num_partitions": 1, "replication_factor": 1}] * 2
    answer = wire.call(ApiKey.CREATE_TOPICS, 5, topics=twice)
    assert [one["error_code"] for one in answer["topics"]] == [42]


def test_delete_topics(wire: Wire, topic: str) -> None:
    for version in versions(ApiKey.DELETE_TOPICS):
        old = create(wire, topic)
        produce(wire, 9, topic, old, batch(b"a"))
        if version >= 6:
            body: Answer = {"topics": [{"name": topic}, {"name": None, "topic_id": b"x" * 16}]}
        else:
            body = {"topic_names": [topic, topic + "-no"]}
        answer = wire.call(ApiKey.DELETE_TOPICS, version, **body)
        assert [one["error_code"] for one in answer["responses"]] == [0, 100 if version >= 6 else 3]
        new = create(wire, topic)
        assert new != old
        assert fetch(wire, 13, topic, old)["error_code"] == 100
        assert produce(wire, 13, topic, old, batch(b"a"))["error_code"] == 100
        assert fetch(wire, 13, topic, new)["high_watermark"] == 0
        by_id = wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": new}])
        assert [(one["error_code"], one["name"]) for one in by_id["responses"]] == [(0, topic)]
    wire.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    answer = wire.call(ApiKey.DELETE_TOPICS, 5, topic_names=["__consumer_offsets"])
    assert answer["responses"][0]["error_code"] == 44


def test_describe_cluster(broker: EmbeddedBroker, wire: Wire) -> None:
    for version in versions(ApiKey.DESCRIBE_CLUSTER):
        answer = wire.call(ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True)
        assert [(b["broker_id"], b["port"]) for b in answer["brokers"]] == [(1, broker.port)]
        assert answer["cluster_authorized_operations"] == 8096
        assert answer["cluster_id"] == wire.call(ApiKey.METADATA, 9, topics=[])["cluster_id"]
    assert wire.call(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=2)["error_code"] == 114
    assert wire.call(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=7)["error_code"] == 115


def test_pipelined_requests_are_answered_in_order(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch(b"a")}]}
    for _ in range(200):
        wire.send(ApiKey.PRODUCE, 9, acks=-1, topic_data=[data])
    wire.send(ApiKey.FETCH, 12, **fetch_request(topic, topic_id, 200, max_wait_ms=100))
    wire.send(ApiKey.METADATA, 9, topics=[])
    offsets = []
    for number in range(200):
        (size,) = struct.unpack(">i", wire.exactly(4))
        frame = wire.exactly(size)
        assert struct.unpack_from(">i", frame)[0] == number + 2
        (answer,) = APIS[ApiKey.PRODUCE].response.read(9, frame, 5)[0]["responses"]
        offsets.append(part(answer, "partition_responses")["base_offset"])
    assert offsets == list(range(200))
    found = part(wire.receive(ApiKey.FETCH, 12)["responses"][0], "partitions")
    assert (found["error_code"], found["high_watermark"]) == (0, 200)
    assert wire.receive(ApiKey.METADATA, 9)["topics"] == []


def test_the_handlers_are_found_in_a_jar_too(tmp_path: Path) -> None:
    archive = tmp_path / "eoslog.jar"
    with zipfile.ZipFile(archive, "w") as jar:
        for package in ("eoslog", "eoslog/broker", "eoslog/protocol"):
            for file in (REPO / package).rglob("*.py"):
                jar.write(file, file.relative_to(REPO))
    asked = "from eoslog.broker import handlers; print(handlers.__file__, len(handlers.ALL))"
    environment = os.environ | {"PYTHONPATH": str(archive)}
    ran = [sys.executable, "-c", asked]
    told = subprocess.run(ran, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
    where, found = told.stdout.split()
    assert where.startswith(str(archive)) and int(found) == len(ApiKey)
