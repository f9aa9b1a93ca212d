"""What operators see: /metrics and /healthz, the log on standard error, and docs/operating.md."""

import asyncio
import contextlib
import json
import logging
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from eoslog.broker.metrics import metrics_server
from eoslog.broker.metrics.metrics import BOUNDS, Histogram, Metrics, MetricsSnapshot
from eoslog.broker.metrics.metrics_server import FAMILIES
from eoslog.broker.ports.log_output import LINES, LONGEST, TEXT, WINDOW_S, BoundedLines, JsonLines, TextLines
from eoslog.cli import main
from eoslog.prometheus import COUNTER
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import errors_in
from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.broker.broker_clients import ok
from tests.kit.program import until

# -- /metrics and /healthz -----------------------------------------------------------------------
# /metrics and /healthz of a running broker: what clients did is there, read by Prometheus's own parser.


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
        assert (disk.days_left() is None) == (minute < 31)
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


# -- counters ------------------------------------------------------------------------------------
# The counters: error codes wherever an answer has them, and times in their buckets.

PRODUCE, END_TXN, JOIN = ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.JOIN_GROUP


def produced(*codes: int) -> dict[str, object]:
    parts = [{"index": index, "error_code": code} for index, code in enumerate(codes)]
    return {"responses": [{"name": "orders", "partition_responses": parts}]}


def test_errors_are_counted_where_they_stand() -> None:
    metrics = Metrics()
    for key, answer in (
        (PRODUCE, produced(0, 3, 3, 10)), (END_TXN, {"error_code": 53}), (END_TXN, {"error_code": 0}),
        (PRODUCE, produced(3)),
    ):  # fmt: skip
        metrics.answered(key, 0.001, errors_in(key, answer))
    assert metrics.errors == {(PRODUCE, 3): 3, (PRODUCE, 10): 1, (END_TXN, 53): 1}


def test_a_request_without_an_answer_is_counted_too() -> None:
    metrics = Metrics()
    metrics.answered(PRODUCE, 0.001, errors_in(PRODUCE, None))
    assert sum(metrics.latency[PRODUCE].counts) == 1


def test_buckets_hold_what_is_not_above_their_bound() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1], BOUNDS[-1] * 2):
        histogram.observe(seconds)
    assert histogram.counts[:2] == [2, 1]
    assert histogram.counts[-2:] == [1, 1]


# -- the log -------------------------------------------------------------------------------------
# What the broker writes to standard error: one JSON object a line, or text; at INFO what operators need.


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("eoslog.test", logging.INFO, __file__, 1, message, arguments, None)
    vars(made).update(extra)
    return made


def test_fields_stand_beside_the_message() -> None:
    line = json.loads(JsonLines().format(record("topic %s made", "orders", topic="orders", partitions=2)))
    moment = line.pop("time")
    assert moment.endswith("Z") and len(moment) == len("2026-11-21T10:00:00.000Z")
    assert line == {
        "level": "info",
        "logger": "eoslog.test",
        "message": "topic orders made",
        "topic": "orders",
        "partitions": 2,
    }


def test_an_exception_and_odd_values_stay_one_line() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        made = record("failed", topic=b"\xff", where={1, 2})
        made.exc_info = sys.exc_info()
    text = JsonLines().format(made)
    assert "\n" not in text
    assert "ValueError: first\nsecond" in json.loads(text)["exception"]


def test_clients_cannot_forge_lines() -> None:
    name = "orders\n2026-11-24 INFO eoslog.broker.main: all is well\r\x1b[2J\x85\u2028end"
    text = TextLines(TEXT).format(record("no topic %s", name))
    assert len(text.splitlines()) == 1 and "\x1b" not in text
    assert text.endswith(
        r"no topic orders\n2026-11-24 INFO eoslog.broker.main: all is well\r\x1b[2J\x85\u2028end"
    )
    try:
        raise ValueError("a traceback has its lines")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    assert len(TextLines(TEXT).format(made).splitlines()) > 3


def test_no_line_is_longer_than_somebody_reads() -> None:
    long = record("no topic %s", "x" * 1_000_000)
    for formatter in (TextLines(TEXT), JsonLines()):
        text = formatter.format(long)
        assert len(text) < LONGEST + 300 and "characters more)" in text


def test_clients_cannot_fill_the_disk_with_lines() -> None:
    sparing = BoundedLines()

    def passed(count: int, at: float, name: str = "eoslog.broker.network.connection") -> list[str]:
        made = [record("closing %s", number) for number in range(count)]
        for line in made:
            line.name, line.created = name, at
        return [line.getMessage() for line in made if sparing.filter(line)]

    assert passed(LINES * 3, 0.0) == [f"closing {number}" for number in range(LINES)]
    assert passed(2, WINDOW_S * 2) == [f"closing 0 (and {LINES * 2} lines like this before it)", "closing 1"]
    assert passed(1, WINDOW_S * 4) == ["closing 0"]
    assert len(passed(LINES * 3, 0.0, "eoslog.broker.log.recovery")) == LINES * 3  # each tells of a file


def lines(broker: EmbeddedBroker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in broker.output().splitlines()]


def test_a_brokers_life_in_json() -> None:
    broker = EmbeddedBroker(config={"logging.format": "json"}, log_level="info")
    with broker:
        ok(broker, "topics", "create", "orders", "--partitions", "2")
        ok(broker, "topics", "delete", "orders")
        broker.stop()
        said = lines(broker)
        broker.start()
    texts = [line["message"] for line in said]
    assert "starts as process" in texts[0]
    assert {line.get("topic") for line in said} >= {"orders"}
    assert any("topic orders made with 2 partitions" in text for text in texts)
    assert any("topic orders deleted" in text for text in texts)
    assert texts[-2].startswith("SIGTERM: ")
    assert texts[-1].startswith("ended in order within ")


def test_the_hot_path_is_silent() -> None:
    with EmbeddedBroker(log_level="info") as broker:
        ok(broker, "topics", "create", "busy")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "busy"})
        producer.init_transactions(20)
        before = len(broker.output().splitlines())
        for _ in range(20):
            producer.begin_transaction()
            producer.produce("busy", b"x")
            producer.commit_transaction(20)
        assert len(ok(broker, "consume", "busy", "--from-beginning", "--to-end").splitlines()) == 20
        assert len(broker.output().splitlines()) == before


def test_a_rebalance_is_told() -> None:
    with EmbeddedBroker(log_level="info") as broker:
        ok(broker, "topics", "create", "shared")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "team"})
        consumer.subscribe(["shared"])
        deadline = time.monotonic() + 20
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.1)
        consumer.close()
        assert "group team: generation 1 has 1 members" in broker.output()


# -- docs/operating.md ---------------------------------------------------------------------------
# docs/operating.md: its commands run as they stand there; the tables of transactions.md are the code's.

PAGE = Path(__file__).parents[3] / "docs" / "operating.md"
DETAILS = PAGE.with_name("transactions.md")
ORDERS = "a:one\nb:two\na:three\n"
OFFLINE = ("backup", "broker", "log")


def blocks() -> Iterator[str]:
    """The console blocks, as text."""
    yield from re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


def steps(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block, with the lines it is to print."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, *wanted = part.rstrip("\n").split("\n")
        yield command, wanted


def matches(line: str, wanted: str) -> bool:
    """Whether a line is as wanted, where `...` stands for anything."""
    pattern = ".*".join(map(re.escape, wanted.split("...")))
    return re.fullmatch(pattern, line.rstrip()) is not None


def all_match(lines: list[str], wanted: list[str]) -> bool:
    """The same for several lines, where a line of only `...` stands for any number of them."""
    if not wanted:
        return not lines
    if wanted[0] == "...":
        return any(all_match(lines[skip:], wanted[1:]) for skip in range(len(lines) + 1))
    return bool(lines) and matches(lines[0], wanted[0]) and all_match(lines[1:], wanted[1:])


def run(command: str, broker: EmbeddedBroker) -> list[str]:
    """Run a command line of the page; its output, and its exit status if that is not 0."""
    program, *arguments = shlex.split(command)
    assert program == "eoslog"
    text = None
    if "<" in arguments:
        arguments, text = arguments[: arguments.index("<")], ORDERS
    if arguments[0] not in OFFLINE:
        arguments += ["--bootstrap-server", broker.bootstrap]
    done = CliRunner().invoke(main, arguments, input=text)
    lines: list[str] = done.output.splitlines()
    return lines + ([f"[exit status {done.exit_code}]"] if done.exit_code else [])


def test_every_command_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [step for block in blocks() for step in steps(block)]
    assert len(commands) > 10
    (tmp_path / "alice.password").write_text("open-sesame\n")
    with EmbeddedBroker(tmp_path / "data") as broker:
        for command, wanted in commands:
            lines = run(command, broker)
            assert all_match(lines, wanted), f"{command} printed\n" + "\n".join(lines)


def metrics_table() -> str:
    rows = ["| metric | labels | meaning |", "|---|---|---|"]
    for name, kind, labels, meaning, _ in FAMILIES:
        shown = f"{name}_total" if kind == COUNTER else name
        rows.append(f"| `{shown}` | {', '.join(labels)} | {kind}: {meaning} |")
    return "\n".join(rows)


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    found = re.search(r"<!-- metrics:.*?-->\n(.*?)\n?<!-- end -->", DETAILS.read_text(), re.S)
    assert found is not None
    assert found[1].strip() == metrics_table()


def test_the_table_of_files_names_all_that_a_broker_leaves(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        run("eoslog topics create orders", broker)
        run("eoslog produce orders --transactional-id t < orders.txt", broker)
        run("eoslog groups reset g --topic orders --to-latest --execute", broker)
    page = DETAILS.read_text()
    for path in (tmp_path / "data").rglob("*"):
        known = f"*{path.suffix}" if path.name[:20].isdigit() else path.name
        if path.is_file() and path.name not in ("meta.properties", ".lock"):
            assert f"`{known}`" in page or f"/{known}`" in page, path
