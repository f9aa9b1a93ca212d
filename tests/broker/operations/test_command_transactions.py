"""`eoslog transactions`: looking at them, ending what nobody else will end (KIP-664), who holds back
readers.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer

from eoslog.broker.config import BrokerConfig
from eoslog.broker.core.broker import Broker
from eoslog.client.admin import transaction_states, transactions
from eoslog.client.admin.producers import ActiveProducer, Holder
from eoslog.client.admin.transaction_states import TransactionDescription
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.session import client_config
from eoslog.connector.commit.task_reports import Report
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.plain_records import encode_records
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import document, failure, ok, run

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


# -- holders -------------------------------------------------------------------------------------
# `eoslog transactions holders`: who holds back readers of committed data, since when, and what to do.

HOLDERS = ("transactions", "holders")
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    data = tmp_path_factory.mktemp("hung")
    asyncio.run(write_what_no_coordinator_knows(data))
    config = {"transaction.two.phase.commit.enable": "true"}
    with EmbeddedBroker(data, config=config, log_level="error") as started:
        yield started


def test_nothing_is_held_back(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "free", "--partitions", "2")
    ok(broker, "produce", "free", input="value\n")
    assert ok(broker, *HOLDERS, "free") == "free: nothing is held back\n"
    assert document(broker, *HOLDERS, "free:1") == []
    assert "there is no topic nope" in failure(broker, *HOLDERS, "nope")


def test_an_open_transaction_is_named_with_all_that_is_known(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "held", "--partitions", "2")
    begin(broker, "before", "held").commit_transaction(20)
    before = time.time()
    producer = begin(broker, "holder", "held")
    (row,) = document(broker, *HOLDERS, "held")
    since = row.pop("open_since")
    assert before - 2 < time.mktime(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone < before + 20
    (known,) = document(broker, "transactions", "describe", "holder")
    assert row == {
        "topic": "held", "partition": 0, "stable": 2, "end": 3, "transactional_id": "holder",
        "producer_id": known["producer_id"], "epoch": known["epoch"], "state": "Ongoing",
        "timeout_ms": MINUTE_MS, "sealed": False, "sink": None, "query": None, "decided": False,
        "what_to_do": "it ends when its producer or its time-out ends it; to end it now, "
        "eoslog transactions abort --transactional-id holder",
    }  # fmt: skip
    head, line, *said = ok(broker, *HOLDERS, "held").splitlines()
    assert head.split() == [
        "TOPIC", "PARTITION", "STABLE", "END", "TRANSACTIONAL-ID", "PRODUCER-ID", "EPOCH", "STATE",
        "OPEN-SINCE", "TIMEOUT", "SINK",
    ]  # fmt: skip
    assert line.split()[:5] == ["held", "0", "2", "3", "holder"] and line.split()[-2:] == ["60000", "-"]
    assert said == [f"held-0: {row['what_to_do']}"]
    assert ok(broker, *HOLDERS, "held:1") == "held:1: nothing is held back\n"
    producer.commit_transaction(20)
    assert document(broker, *HOLDERS, "held") == []


def begin_query(broker: EmbeddedBroker, directory: Path, name: str) -> tuple[str, SinkOptions, Report | None]:
    """A micro-batch of a query whose driver died before, or after, it decided."""
    query = str(uuid.uuid4())
    directory.mkdir()
    (directory / "metadata").write_text(json.dumps({"id": query}))
    (directory / "offsets").mkdir()
    (directory / "offsets" / "0").write_text("v1\n{}\n" + json.dumps({"orders": {"0": 1}}))
    options = sink_options(
        {
            "kafka.bootstrap.servers": broker.bootstrap, "topic": name, "transactional.id": f"to/{name}",
            "two.phase.commit": "require", "checkpointLocation": str(directory),
        },
        stream=True,
    )  # fmt: skip
    begun = committer.begin_stream(options)
    rows = iter([pa.record_batch({"value": pa.array([b"row"])})])
    return query, options, write_rows(options, begun, Attempt(query, 0, 0), rows).report


def test_a_query_s_transaction_is_named_with_its_sink(broker: EmbeddedBroker, tmp_path: Path) -> None:
    ok(broker, "topics", "create", "copy")
    begin_query(broker, tmp_path / "checkpoint", "copy")
    (row,) = document(broker, *HOLDERS, "copy")
    assert (row["sink"], row["sealed"], row["decided"]) == ("to/copy", False, False)
    assert row["transactional_id"].startswith("to%2Fcopy/")
    with Cluster(client_config(broker.bootstrap, None, 20)) as cluster:
        name = row["transactional_id"]
        assert isinstance(
            transactions.keep_prepared(cluster, [name], MINUTE_MS)[name], transactions.AcquiredTransaction
        )
    (row,) = document(broker, *HOLDERS, "copy")
    assert (row["sealed"], row["timeout_ms"], row["sink"]) == (True, None, "to/copy")
    assert row["what_to_do"] == (
        "it is sealed for a two-phase commit and never times out: start the query of sink to/copy again, "
        f"which ends it; if that never happens, eoslog transactions abort --transactional-id {name} --force"
    )
    assert " sealed " in ok(broker, *HOLDERS, "copy")


def test_a_decided_batch_is_not_to_be_aborted(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(broker, "topics", "create", "decided")
    query, options, report = begin_query(broker, tmp_path / "checkpoint", "decided")
    end = transactions.end_txns

    def dies(cluster: Cluster, identities: dict[str, ProducerIdentity], commit: bool) -> object:
        if any("/" in name for name in identities):
            raise SystemExit("the driver dies between the decision and the commits")
        return end(cluster, identities, commit)

    monkeypatch.setattr(transactions, "end_txns", dies)
    with pytest.raises(SystemExit):
        committer.commit_stream(options, [report], 0)
    (row,) = document(broker, *HOLDERS, "decided")
    assert (row["sink"], row["query"], row["decided"]) == ("to/decided", query, True)
    assert row["what_to_do"] == (
        f"its batch is decided, and an abort would lose its rows: start the query of sink to/decided again "
        f"(query {query}), which commits it"
    )


def test_what_no_coordinator_knows_is_aborted_by_its_place(broker: EmbeddedBroker) -> None:
    (row,) = document(broker, *HOLDERS, "hung")
    assert (row["producer_id"], row["transactional_id"], row["state"]) == (HUNG_ID, None, None)
    command = "transactions abort --topic hung --partition 0 --start-offset 0"
    assert row["what_to_do"].endswith(f"eoslog {command}")
    assert "no coordinator will end it" in row["what_to_do"]
    ok(broker, *command.split())
    assert document(broker, *HOLDERS, "hung") == []


def test_one_that_ends_between_two_looks_does_not_seem_to_hang(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(broker, "topics", "create", "quick")
    producer, ask = begin(broker, "quick-1", "quick"), transaction_states.list_transactions

    def ends_before(*arguments: Any, **options: Any) -> object:
        producer.commit_transaction(20)
        return ask(*arguments, **options)

    monkeypatch.setattr(transaction_states, "list_transactions", ends_before)
    (row,) = document(broker, *HOLDERS, "quick")
    assert (row["transactional_id"], row["what_to_do"]) == (
        None, "the transaction that held it back has just ended: run this again"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "partitions", "says"),
    [
        ("PrepareCommit", [("t", 0)], "its coordinator is ending it"),
        ("Ongoing", [("t", 0)], "it ends when its producer or its time-out ends it"),
        ("Ongoing", [("t", 1)], "no coordinator will end it"),
        ("CompleteCommit", [], "no coordinator will end it"),
    ],
)
def test_each_state_has_its_way_out(state: str, partitions: list[tuple[str, int]], says: str) -> None:
    known = ActiveProducer(("t", 0), 7, 1, 0, 0, 1000, 5)
    holder = Holder(known, "a", TransactionDescription(state, ProducerIdentity(7, 1), 1000, 1000, partitions))
    assert holder.way_out().startswith(says)
