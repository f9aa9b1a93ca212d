"""/metrics and /healthz of a running broker: what clients did is there, read by Prometheus's own parser."""

import asyncio
import contextlib
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from eoslog.broker.metrics import metrics_server
from eoslog.broker.metrics.metrics import Metrics
from eoslog.broker.metrics.metrics_server import FAMILIES
from eoslog.broker.metrics.metrics_snapshot import MetricsSnapshot
from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.broker.operations.run_command import ok
from tests.kit.waiting import until


class Measured(NamedTuple):
    broker: EmbeddedBroker
    address: str

    @classmethod
    def of(cls, broker: EmbeddedBroker) -> "Measured":
        """The pages of a broker with `PAGES`, where its log says that they are."""
        found = re.search(r"metrics at http://(\S+)/metrics", broker.output())
        assert found, broker.output()
        return cls(broker, found[1])

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def value(self, sample: str, **labels: str) -> float | None:
        """A sample's value; None if it is not on the page."""
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for found in family.samples:
                if found.name == sample and found.labels == labels:
                    return float(found.value)
        return None


PAGES = {"metrics.listen": "127.0.0.1:0"}  # no port that was free a moment ago


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    with EmbeddedBroker(config=PAGES, log_level="info") as broker:
        yield Measured.of(broker)


def test_every_family_of_the_table_is_there(measured: Measured) -> None:
    names = {family.name for family in text_string_to_metric_families(measured.get("/metrics")[1])}
    assert {name for name, *_ in FAMILIES} <= names
    size, free = (measured.value(f"eoslog_disk_{what}") or 0 for what in ("bytes", "free_bytes"))
    assert size >= free > 0
    assert {"process_resident_memory_bytes", "process_open_fds"} <= names


def test_healthz(measured: Measured) -> None:
    assert measured.get("/healthz") == (200, "ok\n")
    assert measured.get("/readyz") == (200, "ok\n")
    assert measured.get("/")[0] == 404


def test_requests_bytes_and_syncs(measured: Measured) -> None:
    broker = measured.broker
    ok(broker, "topics", "create", "counted")
    before = measured.value("eoslog_request_seconds_count", api="Produce") or 0
    received = measured.value("eoslog_received_bytes_total") or 0
    synced = measured.value("eoslog_sync_seconds_count") or 0
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(5):
        producer.produce("counted", b"x" * 10_000)
        producer.flush(20)
    assert measured.value("eoslog_request_seconds_count", api="Produce") == before + 5
    assert measured.value("eoslog_request_seconds_bucket", api="Produce", le="+Inf") == before + 5
    assert (measured.value("eoslog_received_bytes_total") or 0) > received + 50_000
    assert (measured.value("eoslog_sent_bytes_total") or 0) > 0
    assert (measured.value("eoslog_sync_seconds_count") or 0) > synced
    assert measured.value("eoslog_log_end_offset", topic="counted", partition="0") == 5
    assert (measured.value("eoslog_log_size_bytes", topic="counted", partition="0") or 0) > 50_000


def test_errors_by_api(measured: Measured) -> None:
    assert "TOPIC_ALREADY_EXISTS" not in measured.get("/metrics")[1]
    ok(measured.broker, "topics", "create", "twice")
    ok(measured.broker, "topics", "create", "twice", "--if-not-exists")
    error = {"api": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}
    assert measured.value("eoslog_request_errors_total", **error) == 1


def test_connections(measured: Measured) -> None:
    def step(more: int) -> bool:
        """So many more while they are open. Clients of the tests before may be about to leave: try again."""
        before = measured.value("eoslog_connections") or 0
        with contextlib.ExitStack() as opened:
            for _ in range(more):
                opened.enter_context(socket.create_connection((measured.broker.host, measured.broker.port)))
            return measured.value("eoslog_connections") == before + more

    until(lambda: step(1))
    until(lambda: step(20))
    until(lambda: (measured.value("eoslog_connections") or 0) < 20, "they are gone")
    refused = measured.value("eoslog_connections_refused_total") or 0
    with socket.create_connection((measured.broker.host, measured.broker.port)) as garbage:
        garbage.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert garbage.recv(1) == b""
    assert measured.value("eoslog_connections_refused_total") == refused + 1


def test_open_transactions_hold_readers_back(measured: Measured) -> None:
    broker = measured.broker
    ok(broker, "topics", "create", "held")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "held"})
    producer.init_transactions(20)
    assert measured.value("eoslog_open_transactions") == 0
    assert measured.value("eoslog_oldest_transaction_seconds") == 0
    producer.begin_transaction()
    for _ in range(3):
        producer.produce("held", b"x")
    producer.flush(20)
    assert measured.value("eoslog_open_transactions") == 1
    assert measured.value("eoslog_transactional_ids", state="Ongoing") == 1
    until(lambda: (measured.value("eoslog_oldest_transaction_seconds") or 0) > 0.05)
    assert measured.value("eoslog_last_stable_offset_lag", topic="held", partition="0") == 3
    producer.commit_transaction(20)
    assert measured.value("eoslog_last_stable_offset_lag", topic="held", partition="0") == 0
    assert measured.value("eoslog_open_transactions") == 0


def test_groups_and_their_lag(measured: Measured) -> None:
    broker = measured.broker
    ok(broker, "topics", "create", "lagging")
    ok(broker, "produce", "lagging", input="a\n" * 8)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "slow"})
    consumer.commit(offsets=[TopicPartition("lagging", 0, 3)], asynchronous=False)
    consumer.close()
    where = {"group": "slow", "topic": "lagging", "partition": "0"}
    assert measured.value("eoslog_group_committed_offset", **where) == 3
    assert measured.value("eoslog_group_lag", **where) == 5
    assert (measured.value("eoslog_groups", state="Empty") or 0) >= 1
    decision = TopicPartition("lagging", 0, 3, metadata="eoslog/1 0 1 00000000 {}")
    sink = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "a-sink"})
    sink.commit(offsets=[decision], asynchronous=False)
    sink.close()
    assert measured.value("eoslog_group_lag", **(where | {"group": "a-sink"})) is None


def test_damage_is_no_health(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", config=PAGES, log_level="info") as broker:
        ok(broker, "topics", "create", "hurt")
        ok(broker, "produce", "hurt", input="a\n")
        assert broker.stop() == 0, broker.output()
        (broker.data / "hurt-0" / f"{0:020d}.log").write_bytes(b"")
        measured = Measured.of(broker.start())
        assert measured.get("/healthz") == (503, "partition hurt-0 is offline\n")
        assert measured.value("eoslog_partitions_offline") == 1


def test_a_full_disk_is_alive_and_not_ready() -> None:
    found = MetricsSnapshot(0.0, [], disk_bytes=1 << 40, disk_free_bytes=4096)

    def ask(port: int, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    async def asked() -> list[tuple[int, str]]:
        pages = metrics_server.MetricsServer("127.0.0.1:0", Metrics(), lambda: 0, lambda: found)
        loop = asyncio.get_running_loop()
        answers = [
            await loop.run_in_executor(None, ask, pages.port, path) for path in ("/healthz", "/readyz")
        ]
        await pages.close()
        return answers

    assert asyncio.run(asked()) == [(200, "ok\n"), (503, "the disk is full: 4,096 bytes are free\n")]


def test_days_that_a_disk_has_left() -> None:
    disk = metrics_server.FillRate()
    for minute in range(100):
        assert (disk.days_left() is None) == (minute < 2)
        disk.saw(minute * 60.0, (100 - minute) * 1440)
        disk.saw(minute * 60.0 + 30, 0)  # one in a minute is enough
    assert disk.days_left() == pytest.approx(1 / 1440)  # of a minute, which is all that it has
    disk.saw(100 * 60.0, 1 << 40)
    assert disk.days_left() is None


def test_an_address_that_cannot_be_used(measured: Measured) -> None:
    for address in (measured.address, "127.0.0.1", "nowhere.invalid:1"):
        with pytest.raises(BrokerFailed, match="cannot serve metrics at"):
            EmbeddedBroker(config={"metrics.listen": address}).start()


def test_a_broker_without_them_does_not_wait_for_their_library() -> None:
    code = "import sys, eoslog.cli, eoslog.commands.broker, eoslog.broker.main, eoslog.broker.handlers; "
    code += (
        "from eoslog.broker.config.option_sources import gather; gather(None, ['node.id=1'], {}).config(); "
    )
    done = subprocess.run(
        [sys.executable, "-c", code + "print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    heavy = {"prometheus_client", "javaproperties", "rich", "eoslog.connector", "eoslog.client", "pyarrow"}
    assert not heavy & set(done.stdout.split())


def test_a_loop_that_is_stuck_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "PATIENCE", 0.2)

    def ask(port: int) -> list[int]:
        codes = []
        for path in ("/healthz", "/metrics"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20)
            codes.append(caught.value.code)
        return codes

    async def stuck() -> list[int]:
        pages = metrics_server.MetricsServer(
            "127.0.0.1:0", Metrics(), lambda: 0, lambda: MetricsSnapshot(0.0, [])
        )
        asked = asyncio.get_running_loop().run_in_executor(None, ask, pages.port)
        await asyncio.sleep(0)
        time.sleep(2)  # nothing else runs on the loop
        answers = await asked
        await pages.close()
        return answers

    assert asyncio.run(stuck()) == [503, 503]
