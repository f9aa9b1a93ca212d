"""`eoslog transactions`: looking at them, and ending what nobody else will end (KIP-664)."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from eoslog.broker.config import BrokerConfig
from eoslog.broker.core.broker import Broker
from eoslog.client.admin import transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.session import client_config
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.plain_records import encode_records
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.testing import EmbeddedBroker
from tests.broker.operations.run_command import document, failure, ok, run

HUNG_ID = 77
HOUR_MS = 3_600_000


async def write_what_no_coordinator_knows(data: Path) -> None:
    """A partition with an open transaction an hour old, as a fault of long ago may have left it."""
    broker = Broker(BrokerConfig.from_options({"log.dirs": str(data)}))
    broker.start()
    (partition,) = broker.topics.create("hung", 1).partitions
    then = int(time.time() * 1000) - HOUR_MS
    records = [(b"key", b"value")]
    batch = encode_records(
        records, then, producer_id=HUNG_ID, producer_epoch=0, base_sequence=0, transactional=True
    )
    partition.append(batch, now_ms=then, coordinator=True)
    await broker.close()


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    data = tmp_path_factory.mktemp("hung")
    asyncio.run(write_what_no_coordinator_knows(data))
    with EmbeddedBroker(data, log_level="error") as started:
        yield started


def begin(broker: EmbeddedBroker, name: str, topic: str) -> Producer:
    """A transaction with a record, left open."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    producer.flush(20)
    return producer


def test_an_open_transaction_is_shown(hung: EmbeddedBroker) -> None:
    ok(hung, "topics", "create", "shown")
    producer = begin(hung, "shown-1", "shown")
    assert "shown-1" in {r["transactional_id"] for r in document(hung, "transactions", "list")}
    (found,) = document(hung, "transactions", "describe", "shown-1")
    assert (found["state"], found["partitions"]) == ("Ongoing", ["shown-0"])
    assert 0 <= found["age_seconds"] < 20
    (known,) = document(hung, "transactions", "producers", "shown")
    assert (known["producer_id"], known["start_offset"]) == (found["producer_id"], 0)
    producer.commit_transaction(20)
    (found,) = document(hung, "transactions", "describe", "shown-1")
    assert (found["state"], found["age_seconds"]) == ("CompleteCommit", None)
    states = [r["state"] for r in document(hung, "transactions", "list", "--prefix", "shown-")]
    assert states == ["CompleteCommit"]
    assert document(hung, "transactions", "list", "--prefix", "shown-", "--state", "Ongoing") == []


def test_abort_by_name_fences_the_producer(hung: EmbeddedBroker) -> None:
    ok(hung, "topics", "create", "named")
    producer = begin(hung, "named-1", "named")
    assert "aborted" in ok(hung, "transactions", "abort", "--transactional-id", "named-1")
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)
    assert ok(hung, "consume", "named", "--from-beginning", "--to-end") == ""
    assert ok(hung, "consume", "named", "--from-beginning", "--to-end", "--read-uncommitted") == "value\n"
    assert "has no open transaction" in failure(
        hung, "transactions", "abort", "--transactional-id", "named-1"
    )


def test_a_transaction_that_somebody_has_open_is_not_torn_apart(hung: EmbeddedBroker) -> None:
    ok(hung, "topics", "create", "alive")
    producer = begin(hung, "alive-1", "alive")
    place = ["--topic", "alive", "--partition", "0", "--start-offset", "0"]
    assert "does not hang, alive-1 has it open" in failure(hung, "transactions", "abort", *place)
    producer.commit_transaction(20)
    assert ok(hung, "consume", "alive", "--from-beginning", "--to-end") == "value\n"


def test_a_hanging_transaction_is_found_and_aborted(hung: EmbeddedBroker) -> None:
    ok(hung, "topics", "create", "young")
    producer = begin(hung, "young-1", "young")
    for limit in ("15", "0"):  # 0: also one that has just begun is looked at, and is known to its coordinator
        (found,) = document(hung, "transactions", "find-hanging", "--max-transaction-timeout", limit)
        assert (found["topic"], found["partition"], found["producer_id"]) == ("hung", 0, HUNG_ID)
        assert 59 <= found["minutes"] <= 61
    assert document(hung, "transactions", "find-hanging", "--topic", "young") == []
    producer.abort_transaction(20)

    ok(hung, "produce", "hung", input="after\n")
    assert ok(hung, "consume", "hung", "--from-beginning", "--to-end") == ""  # held back
    place = ["--topic", "hung", "--partition", "0", "--start-offset"]
    assert "no transaction" in failure(hung, "transactions", "abort", *place, "1")
    assert f"producer id {HUNG_ID} is aborted" in ok(hung, "transactions", "abort", *place, "0")
    assert document(hung, "transactions", "find-hanging") == []
    assert ok(hung, "consume", "hung", "--from-beginning", "--to-end") == "after\n"


def test_what_is_not_there_and_what_makes_no_sense(hung: EmbeddedBroker) -> None:
    assert "there is no transactional id x" in failure(hung, "transactions", "describe", "x")
    assert "there is no transactional id x" in failure(
        hung, "transactions", "abort", "--transactional-id", "x"
    )
    assert run(hung, "transactions", "abort").exit_code == 2
    assert run(hung, "transactions", "abort", "--topic", "hung", "--partition", "0").exit_code == 2
    assert "there is no topic nope" in failure(hung, "transactions", "producers", "nope")


def test_a_two_phase_commit_is_not_aborted_by_mistake() -> None:
    """Its outcome may be decided elsewhere: aborting it would lose what was decided (KIP-939)."""
    with EmbeddedBroker(config={"transaction.two.phase.commit.enable": "true"}) as broker:
        ok(broker, "topics", "create", "ledger")
        with Cluster(client_config(broker.bootstrap, None, 20)) as cluster:
            asked = {"transactional_id": "ledger-1", "transaction_timeout_ms": 60_000, "enable2_pc": True}
            connection = cluster.coordinator("transaction", "ledger-1")
            made = connection.call(APIS[ApiKey.INIT_PRODUCER_ID], asked, version=6)
            assert made["error_code"] == 0
            identity = ProducerIdentity(made["producer_id"], made["producer_epoch"])
            transactions.add_partitions(cluster, "ledger-1", identity, [("ledger", 0)])
        abort = ["transactions", "abort", "--transactional-id", "ledger-1"]
        assert "two-phase commit" in failure(broker, *abort)
        assert document(broker, "transactions", "describe", "ledger-1")[0]["state"] == "Ongoing"
        assert "aborted" in ok(broker, *abort, "--force")
