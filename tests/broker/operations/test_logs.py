"""What the broker writes to standard error: one JSON object a line, or text; at INFO what operators need."""

import json
import logging
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer

from eoslog.broker.ports.log_output import LINES, LONGEST, TEXT, WINDOW_S, BoundedLines, JsonLines, TextLines
from eoslog.testing import EmbeddedBroker
from tests.broker.operations.run_command import ok


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
    assert (
        len(passed(LINES * 3, 0.0, "eoslog.broker.log.recovery.recovery")) == LINES * 3
    )  # each tells of a file


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
