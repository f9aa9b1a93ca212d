"""`eoslog topics`, and the small producer and consumer."""

import re
from pathlib import Path

from confluent_kafka import Producer

from eoslog.testing import EmbeddedBroker
from tests.broker.operations.run_command import document, failure, ok, run


def test_a_topics_life(broker: EmbeddedBroker) -> None:
    said = ok(broker, "topics", "create", "life", "--partitions", "2", "--config", "retention.ms=5000")
    assert said == "topic life: made\n"
    assert {"topic": "life", "partitions": 2, "internal": False} in document(broker, "topics", "list")
    rows = document(broker, "topics", "configs", "life")
    assert rows == [{"name": "retention.ms", "value": "5000", "source": "topic"}]
    ok(broker, "topics", "configs", "life", "--set", "max.message.bytes=2000", "--unset", "retention.ms")
    assert [row["name"] for row in document(broker, "topics", "configs", "life")] == ["max.message.bytes"]
    ok(broker, "topics", "alter", "life", "--partitions", "3")
    assert [row["partition"] for row in document(broker, "topics", "describe", "life")] == [0, 1, 2]
    assert ok(broker, "topics", "delete", "life") == "topic life: deleted\n"
    assert "life" not in {row["topic"] for row in document(broker, "topics", "list")}


def test_offsets_in_a_description(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "offsets")
    ok(broker, "produce", "offsets", input="a\nb\nc\n")
    (row,) = document(broker, "topics", "describe", "offsets")
    assert (row["start"], row["end"], row["stable"], row["leader"], row["isr"]) == (0, 3, 3, 1, [1])


def test_plain_columns_where_nobody_looks(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "plain", "--partitions", "2")
    lines = ok(broker, "topics", "list").splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITIONS"]
    assert ["plain", "2"] in [line.split() for line in lines]


def test_refusals_are_told_and_change_the_exit_status(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "there")
    assert "TOPIC_ALREADY_EXISTS" in failure(broker, "topics", "create", "there")
    assert "nothing to do" in ok(broker, "topics", "create", "there", "--if-not-exists")
    both = run(broker, "topics", "delete", "there", "not-there")
    assert both.exit_code == 1
    assert "topic there: deleted" in both.stdout
    assert "topic not-there" in both.stderr and "UNKNOWN_TOPIC_OR_PARTITION" in both.stderr
    assert "nothing to do" in ok(broker, "topics", "delete", "not-there", "--if-exists")
    assert "not-there" in failure(broker, "topics", "describe", "not-there")
    assert "INVALID_CONFIG" in failure(broker, "topics", "create", "odd", "--config", "no.such.config=1")


def test_a_broker_that_is_not_there() -> None:
    from click.testing import CliRunner

    from eoslog.cli import main

    place = ["--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2"]
    result = CliRunner().invoke(main, ["topics", "list", *place])
    assert result.exit_code == 1
    assert "127.0.0.1:1: Connection refused" in result.stderr
    assert "--bootstrap-server" in result.stderr and "kafka." not in result.stderr
    wrong = CliRunner().invoke(main, ["topics", "list", "--bootstrap-server", "here"])
    assert wrong.exit_code == 2


def test_client_properties(broker: EmbeddedBroker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    options = ["topics", "list", "--command-config", str(file)]
    file.write_text("client.id=admin\nrequest.timeout.ms=5000\nsecurity.protocol=PLAINTEXT\n")
    ok(broker, *options)
    file.write_text("request.timeout=5000\n")
    assert "unknown option request.timeout: did you mean" in failure(broker, *options)
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    assert "sasl" in failure(broker, *options)


def test_lines_in_and_lines_out(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "lines", "--partitions", "3")
    lines = [f"key{number % 7}:value {number}" for number in range(1000)]
    said = ok(
        broker, "produce", "lines", "--key-separator", ":", "--compression", "zstd", input="\n".join(lines)
    )
    assert said == "1000 records written to lines\n"
    read = ok(broker, "consume", "lines", "--from-beginning", "--to-end", "--print-key").splitlines()
    assert sorted(read) == sorted(line.replace(":", "\t") for line in lines)
    shown = [f"--print-{part}" for part in ("key", "headers", "offset", "partition", "timestamp")]
    line = ok(broker, "consume", "lines:1", "--from-beginning", "--max-messages", "1", *shown).rstrip("\n")
    assert re.fullmatch(r"CreateTime:\d{13}\tPartition:1\tOffset:0\tNO_HEADERS\tkey\d\tvalue \d+", line)
    some = ok(broker, "consume", "lines", "--from-beginning", "--max-messages", "5", "--json").splitlines()
    assert len(some) == 5
    assert (
        "no ':' in the line 'bare'"
        in run(broker, "produce", "lines", "--key-separator", ":", input="bare\n").stderr
    )


def test_headers_are_shown(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "headed")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("headed", b"v", key=b"k", headers=[("a", b"1"), ("b", None)])
    assert producer.flush(30) == 0
    read = ["consume", "headed", "--from-beginning", "--to-end"]
    assert ok(broker, *read, "--print-headers", "--print-key") == "a:1,b:null\tk\tv\n"
    assert '"headers": [{"key": "a", "value": "1"}, {"key": "b", "value": null}]' in ok(
        broker, *read, "--json"
    )


def test_a_transaction_of_lines_is_seen_whole_or_not_at_all(broker: EmbeddedBroker) -> None:
    ok(broker, "topics", "create", "atomic")
    options = ["produce", "atomic", "--transactional-id", "lines", "--key-separator", ":"]
    ok(broker, *options, input="k:a\nk:b\n")
    long_enough_to_be_sent = f"k:{'x' * 1000}\n" * 1500
    for lines in (long_enough_to_be_sent, ""):
        refused = run(broker, *options, input=lines + "bare\n")
        assert (refused.exit_code, "in the line 'bare'" in refused.stderr) == (1, True), refused.stderr
    assert ok(broker, "consume", "atomic", "--from-beginning", "--to-end") == "a\nb\n"
    dirty = ok(broker, "consume", "atomic", "--from-beginning", "--to-end", "--read-uncommitted")
    assert len(dirty.splitlines()) > 1000


def test_a_cluster_with_users(tmp_path: Path) -> None:
    users, client = tmp_path / "users", tmp_path / "client.properties"
    users.write_text("alice=wonderland\n")
    login = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\n"
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.users.file": str(users),
    }
    with EmbeddedBroker(config=config) as broker:
        client.write_text(login + "sasl.password=wonderland\n")
        ok(broker, "topics", "create", "guarded", "--command-config", str(client))
        client.write_text(login + "sasl.password=looking-glass\n")
        said = failure(broker, "topics", "list", "--command-config", str(client))
        assert "SASL_AUTHENTICATION_FAILED" in said and "looking-glass" not in said
        assert "wonderland" not in broker.output() and "looking-glass" not in broker.output()
