"""`eoslog audit` on a cluster: what it finds, what it says, and how it leaves."""

from __future__ import annotations

import io
import json
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.audit import bounds, command, read, run
from eoslog.audit.spill import Spill
from eoslog.cli import main
from eoslog.commands.output import shown
from eoslog.testing import EmbeddedBroker
from tests.audit.auditkit import HURTS, cluster_at, create, fill, hurt, split, wait_until_seen

WAIT_S = 60.0
Message = (
    tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
)


def audit(broker: Any, source: str, target: str, *more: str) -> Result:
    arguments = ["--from", source, "--to", target, "--bootstrap-server", broker.bootstrap]
    return CliRunner().invoke(main, ["audit", *arguments, "--timeout", "60", *more])


def report(broker: Any, source: str, target: str, *more: str) -> Any:
    result = audit(broker, source, target, "--output", "json", *more)
    assert result.exit_code in (0, 1), result.output
    found = json.loads(result.stdout)
    assert found["right"] == (result.exit_code == 0)
    return found


def counts(broker: Any, source: str, target: str, *more: str) -> dict[str, int]:
    """How many of each kind that there are any of, without what is the same in every right audit."""
    found: dict[str, int] = report(broker, source, target, *more)["counts"]
    return {kind: n for kind, n in found.items() if n and kind not in ("source", "target", "matched")}


def topic(broker: Any, parts: int = 1) -> str:
    """A new topic's name."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, parts, 1)])[name].result(WAIT_S)
    return name


def write(broker: Any, name: str, messages: Sequence[Message], partition: int = 0, **config: str) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, **{k.replace("_", "."): v for k, v in config.items()}}
    )
    for key, value, *headers in messages:
        given: list[tuple[str, str | bytes | None]] = [*headers[0]] if headers else []
        producer.produce(name, value, key, partition, headers=given or None)
    assert producer.flush(WAIT_S) == 0


def written(broker: Any, *parts: Sequence[Message], **config: str) -> str:
    """A new topic with these messages in its partitions."""
    name = topic(broker, len(parts))
    for number, messages in enumerate(parts):
        write(broker, name, messages, number, **config)
    return name


@contextmanager
def open_transaction(broker: Any, name: str) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"open-{name}"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    yield producer
    producer.abort_transaction(WAIT_S)
    seen(broker, name)


def seen(broker: Any, name: str) -> None:
    """Wait until the first partition has no transaction that ends only just now."""
    with cluster_at(broker.bootstrap) as cluster:
        wait_until_seen(cluster, name, 1)


@pytest.fixture(scope="module")
def thousand(cluster_broker: Any) -> str:
    """A topic of a thousand records, in transactions, one of them aborted."""
    with cluster_at(cluster_broker.bootstrap) as cluster:
        create(cluster, "thousand")
        fill(cluster, "thousand", split(1000))
    return "thousand"


@pytest.mark.parametrize("how", HURTS)
def test_a_copy_is_judged_right_or_what_is_wrong_is_found(
    cluster_broker: Any, thousand: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = f"copy-{how}"
    parts = split(1000)
    parts[2] = hurt(how, parts[2])
    with cluster_at(cluster_broker.bootstrap) as cluster:
        create(cluster, copy)
        fill(cluster, copy, parts, codec=4)
    kind = {"swapped": "reordered"}.get(how, how)
    monkeypatch.setattr(read, "_PAYLOAD_BYTES", 1)  # batch by batch, and records in pieces
    monkeypatch.setattr(read, "_PIECE_BYTES", 5000)
    for options in ([], ["--key"]):
        found = report(cluster_broker, thousand, copy, *options)
        assert found["counts"]["source"] == 1000
        assert found["right"] == (how == "nothing")
        kinds = {k: found["counts"][k] for k in ("lost", "doubled", "reordered", "foreign")}
        assert kinds == {k: int(k == kind) for k in kinds}


def test_the_right_copy_is_told_in_words(cluster_broker: Any, thousand: str) -> None:
    copy = "told-in-words"
    with cluster_at(cluster_broker.bootstrap) as cluster:
        create(cluster, copy, 3)
        fill(cluster, copy, [np.arange(first, 1000, 3) for first in range(3)])
    result = audit(cluster_broker, thousand, copy)
    assert result.exit_code == 0
    assert "source: 1,000 records (thousand-0 " in result.output
    assert "right: 1,000 records are in the target exactly once, in order" in result.output
    assert result.stderr == ""  # no bar where there is no terminal


def test_what_is_wrong_is_told_with_its_places(cluster_broker: Any) -> None:
    source = written(cluster_broker, [(b"%d" % n, b"v") for n in range(6)])
    target = written(cluster_broker, [(b"%d" % n, b"v") for n in (1, 0, 3, 4, 4, 5, 9)])
    result = audit(cluster_broker, source, target)
    assert result.exit_code == 1
    s, t = f"{source}-0 offset", f"{target}-0 offset"
    assert f"lost: 1 of the source, not in the target\n  {s} 2\n" in result.output
    assert f"  {t} 4 repeats {t} 3, both are {s} 4\n" in result.output
    assert f"  {t} 1 (from {s} 0) is after {t} 0 (from {s} 1)\n" in result.output
    assert f"  {t} 6\n" in result.output
    assert result.output.endswith("WRONG: 1 lost, 1 doubled, 1 reordered, 1 foreign\n")


def test_a_long_list_is_cut_and_says_so(cluster_broker: Any) -> None:
    source = written(cluster_broker, [(b"%d" % n, b"v") for n in range(30)])
    result = audit(cluster_broker, source, topic(cluster_broker), "--show", "2")
    assert f"  {source}-0 offset 0\n  {source}-0 offset 1\n  ... and 28 more\n" in result.output
    assert "compare by --key or --header" in result.output


def test_records_that_were_changed_are_compared_by_what_they_kept(cluster_broker: Any) -> None:
    old: list[Message] = [(b"k%d" % (n % 3), b"%d" % n, [("id", b"%d" % n)]) for n in range(20)]
    new: list[Message] = [(b"k%d" % (n % 3), b"new %d" % n, [("id", b"%d" % n)]) for n in range(20)]
    source, target = written(cluster_broker, old), written(cluster_broker, new)
    assert counts(cluster_broker, source, target) == {"lost": 20, "foreign": 20}
    assert counts(cluster_broker, source, target, "--key") == {}
    assert counts(cluster_broker, source, target, "--header", "id") == {}
    assert counts(cluster_broker, source, target, "--header", "id", "--key") == {}
    other_headers = written(cluster_broker, [(b"k%d" % (n % 3), b"%d" % n, []) for n in range(20)])
    assert counts(cluster_broker, source, other_headers) == {}
    assert counts(cluster_broker, source, other_headers, "--all-headers") == {"lost": 20, "foreign": 20}
    assert counts(cluster_broker, source, other_headers, "--header", "id") == {"lost": 20, "foreign": 20}


def test_a_source_without_what_is_compared_cannot_be_audited(cluster_broker: Any) -> None:
    source = written(cluster_broker, [(b"k", b"v"), (None, b"v")])
    result = audit(cluster_broker, source, topic(cluster_broker), "--key")
    assert result.exit_code == 2
    assert f"the record at offset 1 of {source}-0 has no key" in result.stderr
    assert audit(cluster_broker, source, topic(cluster_broker), "--header", "id").exit_code == 2
    assert counts(cluster_broker, source, written(cluster_broker, [(b"k", b"v"), (None, b"v")])) == {}


def test_records_that_are_alike_are_counted(cluster_broker: Any) -> None:
    alike: list[Message] = [(None, b"same")] * 5
    source = written(cluster_broker, alike, [(None, b"other")])
    assert counts(cluster_broker, source, written(cluster_broker, [*alike, (None, b"other")])) == {}
    assert (
        counts(cluster_broker, source, written(cluster_broker, [*alike[1:], (None, b"other")]))["lost"] == 1
    )
    assert (
        counts(cluster_broker, source, written(cluster_broker, [*alike, *alike, (None, b"other")]))["doubled"]
        == 5
    )


def test_order_is_kept_by_partition_or_by_key(cluster_broker: Any) -> None:
    rows: list[Message] = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    source = written(cluster_broker, rows)
    keys_apart = written(cluster_broker, [rows[1], rows[0], rows[2]])
    assert counts(cluster_broker, source, keys_apart) == {"reordered": 1}
    assert counts(cluster_broker, source, keys_apart, "--order", "key") == {}
    key_torn = written(cluster_broker, [rows[2], rows[1], rows[0]])
    assert counts(cluster_broker, source, key_torn, "--order", "key") == {"reordered": 1}
    assert counts(cluster_broker, source, key_torn, "--order", "none") == {}
    routed_elsewhere = written(cluster_broker, [rows[2]], rows[:2])
    assert counts(cluster_broker, source, routed_elsewhere) == {}


def test_several_topics_on_either_side(cluster_broker: Any) -> None:
    a = written(cluster_broker, [(b"a", b"%d" % n) for n in range(5)])
    b = written(cluster_broker, [(b"b", b"%d" % n) for n in range(5)])
    one = written(
        cluster_broker, [*((b"b", b"%d" % n) for n in range(5)), *((b"a", b"%d" % n) for n in range(5))]
    )
    assert counts(cluster_broker, a, one, "--from", b) == {}
    assert counts(cluster_broker, one, a, "--to", b) == {}
    assert counts(cluster_broker, a, one) == {"foreign": 5}
    assert audit(cluster_broker, a, one, "--allow-foreign").exit_code == 0


def test_what_is_open_or_aborted_is_not_there_unless_asked_for(cluster_broker: Any) -> None:
    rows: list[Message] = [(b"%d" % n, b"v") for n in range(4)]
    source, target = written(cluster_broker, rows), written(cluster_broker, rows[:3])
    with open_transaction(cluster_broker, target) as producer:
        producer.produce(target, b"v", b"3", 0)
        assert producer.flush(WAIT_S) == 0
        found = report(cluster_broker, source, target)
        assert found["counts"]["lost"] == 1
        assert found["target"][0]["hidden_by_open_transactions"] == 1
        assert "hidden by an open transaction" in audit(cluster_broker, source, target).output
        assert counts(cluster_broker, source, target, "--read-uncommitted") == {}
    assert counts(cluster_broker, source, target) == {"lost": 1}
    assert counts(cluster_broker, source, target, "--read-uncommitted") == {}


def test_bounds_by_offset_and_by_time(cluster_broker: Any) -> None:
    rows: list[Message] = [(b"%d" % n, b"v") for n in range(10)]
    source, target = written(cluster_broker, rows), written(cluster_broker, rows[2:8])
    part = ["--from-start", "0:2", "--from-end", "0:8"]
    assert counts(cluster_broker, source, target, *part) == {}
    assert counts(cluster_broker, source, target, "--from-start", f"{source}:0:2") == {"lost": 2}
    assert counts(cluster_broker, source, target, *part, "--to-end", "0:3") == {"lost": 3}
    assert counts(cluster_broker, source, target, "--from-start", "2100-01-01T00:00:00Z") == {"foreign": 6}
    assert counts(cluster_broker, source, target, *part, "--to-start", "2000-01-01") == {}
    assert counts(cluster_broker, source, target, *part, "--to-start", "latest") == {"lost": 6}


def test_what_may_still_be_on_its_way_is_not_lost(cluster_broker: Any) -> None:
    source = written(cluster_broker, [(b"%d" % n, b"v") for n in range(10)])
    target = written(cluster_broker, [(b"0", b"v")])
    assert counts(cluster_broker, source, target, "--grace", "3600") == {"pending": 9}
    assert audit(cluster_broker, source, target, "--grace", "3600").exit_code == 0
    assert "pending: 9 of the source" in audit(cluster_broker, source, target, "--grace", "3600").output


def test_what_is_copied_while_the_audit_begins_is_not_foreign(
    cluster_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target's end is fixed first: what is copied behind it has its record before the source's end."""
    rows: list[Message] = [(b"%d" % n, b"v") for n in range(3)]
    source, target = written(cluster_broker, rows[:1]), written(cluster_broker, rows[:1])
    fix = bounds.places
    calls = []

    def fix_and_copy(*arguments: Any, **more: Any) -> Any:
        found = fix(*arguments, **more)
        calls.append(found)
        for name in (source, target):
            write(cluster_broker, name, [rows[len(calls)]])
        return found

    monkeypatch.setattr(command, "places", fix_and_copy)
    assert counts(cluster_broker, source, target, "--grace", "3600") == {"pending": 1}
    assert len(calls) == 2


def test_a_topic_that_is_made_anew_in_between_cannot_be_audited(
    cluster_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Message] = [(b"%d" % n, b"v") for n in range(5)]
    source, target = written(cluster_broker, rows), written(cluster_broker, rows)
    go = run.audit

    def make_anew_and_go(*arguments: Any, **more: Any) -> Any:
        admin = AdminClient({"bootstrap.servers": cluster_broker.bootstrap})
        admin.delete_topics([source])[source].result(WAIT_S)
        end = time.monotonic() + WAIT_S
        while True:  # the name is free when the deletion is done everywhere
            try:
                admin.create_topics([NewTopic(source, 1, 1)])[source].result(WAIT_S)
                break
            except KafkaException:
                assert time.monotonic() < end, "the topic cannot be created again"
        write(cluster_broker, source, rows)
        return go(*arguments, **more)

    monkeypatch.setattr(command, "audit", make_anew_and_go)
    result = audit(cluster_broker, source, target)
    assert result.exit_code == 2, result.output
    assert "created again" in result.stderr


def test_a_log_that_begins_late_and_one_with_gaps(cluster_broker: Any) -> None:
    rows: list[Message] = [(b"%d" % n, b"v" * 50) for n in range(20)]
    source, target = written(cluster_broker, rows, compression_type="lz4"), topic(cluster_broker)
    admin, where = AdminClient({"bootstrap.servers": cluster_broker.bootstrap}), TopicPartition(source, 0, 15)
    admin.delete_records([where])[where].result(WAIT_S)
    producer = Producer({"bootstrap.servers": cluster_broker.bootstrap, "transactional.id": target})
    producer.init_transactions(WAIT_S)
    for key, value, *_ in rows[15:]:  # markers and what was aborted between any two records
        for end, row in ((producer.abort_transaction, b"never seen"), (producer.commit_transaction, value)):
            producer.begin_transaction()
            producer.produce(target, row, key, 0)
            assert producer.flush(WAIT_S) == 0
            end(WAIT_S)
    seen(cluster_broker, target)
    assert counts(cluster_broker, source, target) == {}


def test_two_clusters(cluster_broker: Any, tmp_path: Path) -> None:
    rows: list[Message] = [(b"%d" % n, b"v") for n in range(10)]
    here = written(cluster_broker, rows)
    with EmbeddedBroker(in_thread=True, timeout=60) as other:
        there = written(other, rows)
        assert counts(cluster_broker, here, there, "--to-bootstrap-server", other.bootstrap) == {}
        config = tmp_path / "client.properties"
        config.write_text(f"bootstrap.servers={cluster_broker.bootstrap}\n")
        arguments = ["--from", here, "--from-command-config", str(config), "--to", there]
        result = CliRunner().invoke(main, ["audit", *arguments, "--to-bootstrap-server", other.bootstrap])
        assert result.exit_code == 0, result.output


def test_a_restored_copy_beside_its_original(tmp_path: Path) -> None:
    rows: list[Message] = [(b"%d" % n, b"v") for n in range(10)]
    with EmbeddedBroker(tmp_path / "data", in_thread=True, timeout=60) as original:
        name = written(original, rows)
        copied = CliRunner().invoke(main, ["backup", str(tmp_path / "data"), str(tmp_path / "copy")])
        assert copied.exit_code == 0, copied.output
        with EmbeddedBroker(tmp_path / "copy", in_thread=True, timeout=60) as copy:
            to = ("--to-bootstrap-server", copy.bootstrap)
            assert counts(original, name, name, *to) == {}
            write(original, name, [(b"more", b"v")])
            assert counts(original, name, name, *to) == {"lost": 1}
        other = original.bootstrap.replace("127.0.0.1", "localhost")  # the same broker by another name
        arguments = ["--from", name, "--to", name, "--bootstrap-server", original.bootstrap]
        result = CliRunner().invoke(main, ["audit", *arguments, "--to-bootstrap-server", other])
        assert result.exit_code == 2 and "is on both sides" in result.output


BAD = [
    (["--from", "nowhere", "--to", "nowhere-else"], "topic 'nowhere-else' does not exist"),
    (["--from", "thousand", "--to", "thousand"], "is on both sides"),
    (["--from", "thousand"], "Missing option '--to'"),
    (["--from", "thousand", "--to", "x", "--key", "--content"], "give either --key"),
    (["--from", "thousand", "--to", "x", "--from-start", "soon"], "--from-start soon: give earliest"),
    (["--from", "x", "--to", "thousand", "--to-start", "7:0"], "no partition thousand-7"),
    (["--from", "x", "--to", "thousand", "--to-end", "0:99999999"], "99999999 of thousand-0 does not exist"),
    (["--from", "a", "--to", "b", "--to-bootstrap-server", "nohost"], "not host:port"),
    (["--from", "a", "--to", "b", "--command-config", "/no/such/file"], "/no/such/file"),
    (["--from", "a", "--to", "b", "--colour"], "No such option"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), BAD)
def test_bad_input_is_told_and_nothing_is_said_of_records(
    cluster_broker: Any, thousand: str, arguments: list[str], says: str
) -> None:
    result = CliRunner().invoke(main, ["audit", "--bootstrap-server", cluster_broker.bootstrap, *arguments])
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unreachable_cluster_is_told() -> None:
    arguments = ["--from", "a", "--to", "b", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2"]
    result = CliRunner().invoke(main, ["audit", *arguments])
    assert result.exit_code == 2
    assert "no broker reached" in result.stderr


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ZeroDivisionError()]
)
def test_whatever_goes_wrong_in_between_is_not_taken_for_a_verdict(
    cluster_broker: Any, thousand: str, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Spill, "add", fail)
    result = audit(cluster_broker, thousand, topic(cluster_broker))
    assert result.exit_code == 2
    assert result.stdout == "" and result.stderr != ""


def test_a_bar_is_shown_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with shown() as watch:
        watch.begin("reading orders-0", 10)
        watch.advance(4)
    assert "reading orders-0" in terminal.getvalue() and "4/10" in terminal.getvalue()
