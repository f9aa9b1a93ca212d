"""`eoslog topics` and `groups`, the small producer and consumer, and how tables are printed."""

import io
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from eoslog.cli import main
from eoslog.commands.output import show
from eoslog.commands.session import in_our_terms
from eoslog.connector.options.table import TABLE, Use
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import document, failure, ok, run

# -- topics, records -----------------------------------------------------------------------------
# `eoslog topics`, and the small producer and consumer.


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
    place = ["--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2"]
    result = CliRunner().invoke(main, ["topics", "list", *place])
    assert result.exit_code == 1
    assert "127.0.0.1:1: Connection refused" in result.stderr
    assert "--bootstrap-server" in result.stderr and "kafka." not in result.stderr
    wrong = CliRunner().invoke(main, ["topics", "list", "--bootstrap-server", "here"])
    assert wrong.exit_code == 2


def test_errors_name_options_as_a_command_takes_them() -> None:
    said = {
        "set kafka.bootstrap.servers, kafka.sasl.mechanism": "set --bootstrap-server, sasl.mechanism",
        "kafka.example.org:9093: Connection refused": "kafka.example.org:9093: Connection refused",
        "kafka.sasl.mechanism.example.org: no such host": "kafka.sasl.mechanism.example.org: no such host",
        "set kafka.transaction.timeout.ms=5 on the sink": "set kafka.transaction.timeout.ms=5 on the sink",
    }  # fmt: skip
    assert {text: in_our_terms(text) for text in said} == said
    for option in TABLE:
        theirs = in_our_terms(option.name)
        if option.use is not Use.ALL or not option.name.startswith("kafka."):
            assert theirs == option.name, "an option of a query's source or sink"
        else:
            assert theirs.startswith("--") or f"kafka.{theirs}" == option.name


@pytest.mark.parametrize(
    "line",
    ["batch.sise=5", "batch.size=x", "transaction.timeout.ms=x", "sasl.mechanism=PLAIN", "ssl.provider=x"],
)
def test_a_property_is_named_as_the_file_has_it(tmp_path: Path, line: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{line}\n")
    place = ("--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2", "--command-config", str(file))
    result = CliRunner().invoke(main, ["topics", "list", *place])
    assert result.exit_code == 1
    assert "kafka." not in result.stderr, result.stderr


def test_the_environment_names_the_cluster_of_commands(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(*more: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["topics", "list", "--timeout", "0.2", *more])
        return done.exit_code, done.output

    ok(broker, "topics", "create", "of-the-environment")
    named, away = tmp_path / "named.properties", "127.0.0.1:1"
    named.write_text(f"bootstrap.servers={broker.bootstrap}\n")
    nothing = tmp_path / "nothing.properties"
    nothing.write_text("client.id=me\n")
    monkeypatch.setenv("EOSLOG_BOOTSTRAP_SERVERS", broker.bootstrap)
    assert listed()[0] == listed("--command-config", str(nothing))[0] == 0
    status, said = listed("--bootstrap-server", away)
    assert status == 1 and "check --bootstrap-server and" in said, "the command line counts first"
    monkeypatch.setenv("EOSLOG_BOOTSTRAP_SERVERS", away)
    status, said = listed()
    assert status == 1 and "check EOSLOG_BOOTSTRAP_SERVERS and" in said
    assert listed("--command-config", str(named))[0] == 0, "a file that is named counts before it"
    monkeypatch.setenv("EOSLOG_COMMAND_CONFIG", str(named))
    assert listed()[0] == 1, "the variable counts before the file that a variable names"
    monkeypatch.setenv("EOSLOG_BOOTSTRAP_SERVERS", "")
    assert listed()[0] == 0
    named.write_text(f"bootstrap.servers={away}\n")
    assert f"check bootstrap.servers in {named} (EOSLOG_COMMAND_CONFIG) and" in listed()[1]
    monkeypatch.setenv("EOSLOG_BOOTSTRAP_SERVERS", "here")
    assert "EOSLOG_BOOTSTRAP_SERVERS: 'here' is not host:port" in listed()[1]
    for command in (["topics", "list"], ["audit"], ["rehearse"]):
        text = " ".join(CliRunner().invoke(main, [*command, "--help"]).output.split())
        assert "[default: EOSLOG_BOOTSTRAP_SERVERS, else 127.0.0.1:9092]" in text
        assert "[default: EOSLOG_COMMAND_CONFIG]" in text


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
    assert said == "1,000 records written to lines\n"
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


# -- groups --------------------------------------------------------------------------------------
# `eoslog groups`: what groups have read, and setting it.


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


# -- tables --------------------------------------------------------------------------------------
# Tables: for eyes at a terminal, for pipes, for programs.

ROWS = [
    {"topic": "orders", "isr": [1, 2], "end": 10, "member": None},
    {"topic": "[bold]x[/bold]", "isr": [], "end": 5, "member": b"\xff"},
]
COLUMNS = ["topic", "isr", "end", "member"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, COLUMNS, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC           ISR  END  MEMBER",
        "orders          1,2  10   -",
        r"[bold]x[/bold]  -    5    \xff",
    ]


def test_a_table_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    show(ROWS, COLUMNS, as_json=False)
    said = terminal.getvalue()
    assert "TOPIC" in said and "orders" in said and "─" in said
    assert "[bold]x[/bold]" in said  # names are text, not markup


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, COLUMNS, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found[0] == ROWS[0]
    assert found[1]["member"] == "\\xff"
