"""`eoslog log verify`: what it finds of each kind of damage, what --repair mends, and a broker beside it.

What is mended is served afterwards by a real broker: committed rows, and no aborted ones.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from run_command import ok

from eoslog.broker.log import files, snapshot
from eoslog.broker.log.index import TXN_ENTRY
from eoslog.cli import main
from eoslog.protocol.batch import BatchHeader, iter_headers
from eoslog.testing import EmbeddedBroker

CONFIG = {
    "log.index.interval.bytes": "200",
    "log.cleaner.backoff.ms": "50",
    "log.retention.check.interval.ms": "50",
}
Damage = Callable[[Path], object]


def transaction(producer: Producer, topic: str, values: list[str], commit: bool, pad: int = 1000) -> None:
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value.ljust(pad, "."), key=str(number % 7))
        producer.flush(20)
    (producer.commit_transaction if commit else producer.abort_transaction)(20)


def transactional(broker: EmbeddedBroker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(20)
    return producer


def fill(broker: EmbeddedBroker, topic: str) -> None:
    """Two transactions each of two producers, in turns: of each the first is aborted."""
    first, second = transactional(broker, f"{topic}-1"), transactional(broker, f"{topic}-2")
    for commit in (False, True):
        transaction(first, topic, [f"first-{commit}-{n}" for n in range(12)], commit)
        transaction(second, topic, [f"second-{commit}-{n}" for n in range(12)], commit)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Closed in order: `orders`, some segments; `tables`, compacted; `tails`, whose first segments went."""
    place = tmp_path_factory.mktemp("log") / "data"
    with EmbeddedBroker(place, config=CONFIG) as broker:
        ok(broker, "topics", "create", "orders", "--config", "segment.bytes=10000")
        compact = ("--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0.01")
        ok(broker, "topics", "create", "tables", "--config", "segment.bytes=10000", *compact)
        ok(broker, "topics", "create", "tails", "--config", "segment.bytes=10000")
        for topic in ("orders", "tables", "tails"):
            fill(broker, topic)
        ok(broker, "topics", "configs", "tails", "--set", "retention.bytes=25000")
        until(lambda: not (place / "tails-0" / files.offset_name(0, ".log")).exists())
        until(lambda: gaps(place / "tables-0"))
    return place


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def copy(data: Path, tmp_path: Path) -> Path:
    place = tmp_path / "copy"
    shutil.copytree(data, place)
    return place


def headers(path: Path) -> list[tuple[int, BatchHeader]]:
    return list(iter_headers(path.read_bytes()))


def segments(place: Path, topic: str = "orders", suffix: str = ".log") -> list[Path]:
    return sorted((place / f"{topic}-0").glob(f"{'[0-9]' * 20}{suffix}"))


def gaps(directory: Path) -> bool:
    """Whether compaction has taken batches out of a log."""
    found = [header for path in sorted(directory.glob("*.log")) for _, header in headers(path)]
    return any(a.next_offset < b.base_offset for a, b in pairwise(found))


def log(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["log", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def findings(place: Path, *options: str) -> list[dict[str, str]]:
    result = log("verify", "--json", str(place), *options)
    found: list[dict[str, str]] = json.loads(result.stdout)["findings"]
    assert result.exit_code == any(one["repair"] not in ("removed", "rewritten") for one in found)
    return found


def only(place: Path, words: str) -> dict[str, str]:
    """The finding, which is the only one about its file, that has these words."""
    found = findings(place)
    assert found, "nothing was found"
    [one] = [one for one in found if words in one["text"]]
    return one


def rows(place: Path, topic: str) -> list[str]:
    """What a reader of committed data gets of a broker that is started on the directory."""
    with EmbeddedBroker(place) as broker:
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True}
        )
        try:
            low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)
            consumer.assign([TopicPartition(topic, 0, low)])
            return list(values(consumer))
        finally:
            consumer.close()


def values(consumer: Consumer) -> Iterator[str]:
    while True:
        message = consumer.poll(20)
        assert message is not None, "the broker does not answer"
        error = message.error()
        if error is None:
            yield message.value().decode().rstrip(".")
        elif error.name() == "_PARTITION_EOF":
            return
        else:
            raise KafkaException(error)


def state(place: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(p.relative_to(place)): (p.stat().st_mtime_ns, p.read_bytes())
        for p in place.rglob("*")
        if p.is_file() and p.name != ".lock"
    }


# -- what is found --------------------------------------------------------------------------------


def test_a_log_in_order(data: Path) -> None:
    result = log("verify", str(data))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "all is well"), result.output
    for topic in ("orders", "tables", "tails"):
        assert len(segments(data, topic)) > 1
        assert findings(data / f"{topic}-0") == []
        assert all(findings(path) == [] for path in segments(data, topic))


def drop_a_batch(place: Path) -> None:
    path = segments(place)[1]
    at, header = headers(path)[2]
    content = path.read_bytes()
    path.write_bytes(content[:at] + content[at + header.size :])


def cut_behind_a_batch(place: Path) -> None:
    path = segments(place)[1]
    path.write_bytes(path.read_bytes()[: headers(path)[-1][0]])


def drop_a_segment(place: Path) -> None:
    segments(place)[1].unlink()


def drop_the_first(place: Path) -> None:
    segments(place)[0].unlink()


def drop_the_first_of_a_log_that_was_trimmed(place: Path) -> None:
    segments(place, "tails")[0].unlink()


def drop_all(place: Path) -> None:
    for path in segments(place):
        path.unlink()


def drop_the_last(place: Path) -> None:
    segments(place)[-1].unlink()


def drop_the_directory(place: Path) -> None:
    shutil.rmtree(place / "orders-0")


def cut_a_compacted_segment(place: Path) -> None:
    path = segments(place, "tables")[0]
    path.write_bytes(path.read_bytes()[: headers(path)[-1][0]])


def flip(place: Path) -> None:
    path = segments(place)[1]
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)


def scribble_starts(place: Path) -> None:
    (place / files.LOG_STARTS).write_text("nonsense")


@pytest.mark.parametrize(
    "damage, words",
    [
        (drop_a_batch, "are missing before the batch of offset"),
        (cut_behind_a_batch, "are missing"),
        (drop_a_segment, "are missing"),
        (drop_the_first, "but the log at 0: offsets 0 to"),
        (drop_the_first_of_a_log_that_was_trimmed, "the first segment begins at offset"),
        (drop_all, "no segment is left, but offsets up to"),
        (drop_the_last, "was durable once"),
        (drop_the_directory, "the directory is missing"),
        (cut_a_compacted_segment, "are missing"),
        (flip, "wrong CRC"),
        (scribble_starts, "put it back from a copy"),
    ],
)
def test_damage_of_records_is_found_and_left_alone(copy: Path, damage: Damage, words: str) -> None:
    damage(copy)
    found = only(copy, words)
    assert found["repair"] is None and ("copy" in found["text"])
    before = state(copy)
    assert log("verify", str(copy), "--repair").exit_code == 1
    assert state(copy) == before


def test_a_torn_tail_is_what_the_next_start_mends(tmp_path: Path) -> None:
    place = tmp_path / "killed"
    with EmbeddedBroker(place) as broker:
        ok(broker, "topics", "create", "orders")
        ok(broker, "produce", "orders", input="a\nb\n")
        broker.kill()
    path = segments(place)[0]
    path.write_bytes(path.read_bytes() + path.read_bytes()[:-1])
    assert "the next start cuts this tail off" in only(place, "file ends at")["text"]
    assert rows(place, "orders") == ["a", "b"]
    assert findings(place) == []


def test_a_segment_that_a_crash_has_left_empty(tmp_path: Path) -> None:
    """The power went before the rest of the segment before it was on the disk."""
    place = tmp_path / "killed"
    with EmbeddedBroker(place, flush="os") as broker:
        ok(broker, "topics", "create", "orders")
        ok(broker, "produce", "orders", input="a\nb\n")
        broker.kill()
    named(place / "orders-0", files.offset_name(5, ".log"))
    assert "the next start removes it" in only(place, "no valid batch follows")["text"]
    assert rows(place, "orders") == ["a", "b"]
    assert findings(place) == []


# -- what is mended -------------------------------------------------------------------------------


def with_aborts(place: Path, topic: str = "orders") -> Path:
    return next(path for path in segments(place, topic, ".txnindex") if path.stat().st_size)


def no_entry(place: Path) -> None:
    with_aborts(place).write_bytes(b"")


def no_transaction_index(place: Path) -> None:
    with_aborts(place).unlink()


def no_transaction_index_of_a_trimmed_log(place: Path) -> None:
    with_aborts(place, "tails").unlink()


def an_entry_of_a_committed_one(place: Path) -> None:
    """The last marker of the log, which commits: readers would not see its rows."""
    path = segments(place)[-1]
    markers = [header for _, header in headers(path) if header.is_control]
    end = markers[-1]
    with path.with_suffix(".txnindex").open("ab") as file:
        first = end.base_offset - 12
        file.write(TXN_ENTRY.pack(0, end.producer_id, first, end.base_offset, end.base_offset + 1))


def changed_entry(place: Path, **changes: int) -> None:
    path = with_aborts(place)
    names = ("version", "producer_id", "first", "last", "stable")
    entry = dict(zip(names, TXN_ENTRY.unpack(path.read_bytes()[: TXN_ENTRY.size]), strict=True))
    entry |= {name: entry[name] + change for name, change in changes.items()}
    path.write_bytes(TXN_ENTRY.pack(*entry.values()) + path.read_bytes()[TXN_ENTRY.size :])


def begins_too_late(place: Path) -> None:
    changed_entry(place, first=3)


def stable_too_high(place: Path) -> None:
    changed_entry(place, stable=10**6)


def of_another_producer(place: Path) -> None:
    changed_entry(place, producer_id=1)


def of_another_version(place: Path) -> None:
    changed_entry(place, version=1)


def ends_far_away(place: Path) -> None:
    changed_entry(place, last=10**6)


def torn_entry(place: Path) -> None:
    path = with_aborts(place)
    path.write_bytes(path.read_bytes() + b"x")


def wrong_position(place: Path) -> None:
    path = segments(place, suffix=".index")[0]
    content = path.read_bytes()
    path.write_bytes(content[:4] + (7).to_bytes(4, "big") + content[8:])


def torn_index(place: Path) -> None:
    path = segments(place, suffix=".index")[0]
    path.write_bytes(path.read_bytes() + b"x")


def time_too_high(place: Path) -> None:
    path = segments(place, suffix=".timeindex")[0]
    content = path.read_bytes()
    path.write_bytes(content[:-12] + (2**62).to_bytes(8, "big") + content[-4:])


def time_that_ends_early(place: Path) -> None:
    """Retention would take the segment too early."""
    path = next(path for path in segments(place, suffix=".timeindex") if path.stat().st_size > 24)
    path.write_bytes(path.read_bytes()[:-12])


def time_that_is_late(place: Path) -> None:
    path = next(path for path in segments(place, suffix=".timeindex") if path.stat().st_size > 24)
    content = path.read_bytes()
    path.write_bytes(content[:8] + content[-4:] + content[-12:-4] + b"\0\0\0\0")


def torn_snapshot(place: Path) -> None:
    path = segments(place, suffix=".snapshot")[-1]
    path.write_bytes(path.read_bytes()[:-1])


def snapshot_of(place: Path, number: int, change: Callable[[list[snapshot.ProducerState]], object]) -> None:
    path = segments(place, suffix=".snapshot")[number]
    states = snapshot.decode(path.read_bytes())
    change(states)
    path.write_bytes(snapshot.encode(states))


def wrong_epoch(place: Path) -> None:
    snapshot_of(place, -1, lambda states: setattr(states[0], "epoch", 77))


def wrong_sequence(place: Path) -> None:
    snapshot_of(
        place, -1, lambda states: states[0].batches.append(states[0].batches[-1]._replace(last_sequence=5))
    )


def open_too_long(place: Path) -> None:
    snapshot_of(place, -1, lambda states: setattr(states[0], "transaction_start", 3))


def open_no_more(place: Path) -> None:
    snapshot_of(place, 1, lambda states: [setattr(one, "transaction_start", -1) for one in states])


def forgotten(place: Path) -> None:
    snapshot_of(place, 1, list.clear)


def snapshot_past_the_end(place: Path) -> None:
    path = segments(place, suffix=".snapshot")[-1]
    shutil.copy(path, path.with_name(files.offset_name(10**6, ".snapshot")))


def scribble_points(place: Path) -> None:
    (place / files.RECOVERY_POINTS).write_text("nonsense")


def scribble_cleaned(place: Path) -> None:
    (place / files.CLEANER_OFFSETS).write_text("nonsense")


MENDED = [
    (no_entry, "aborted at offset", "rewritten"),
    (no_transaction_index, "aborted at offset", "rewritten"),
    (no_transaction_index_of_a_trimmed_log, "aborted at offset", "rewritten"),
    (an_entry_of_a_committed_one, "no marker is there that aborts it", "removed"),
    (begins_too_late, "but it is from", "rewritten"),
    (stable_too_high, "which is too high", "rewritten"),
    (of_another_producer, "but the marker there is of producer id", "rewritten"),
    (of_another_version, "another version", "rewritten"),
    (ends_far_away, "it is missing", "rewritten"),
    (torn_entry, "bytes follow the last entry", "rewritten"),
    (wrong_position, "where no batch begins", "removed"),
    (torn_index, "no multiple", "removed"),
    (time_too_high, "whose batch is older", "removed"),
    (time_that_ends_early, "it ends with time", "removed"),
    (time_that_is_late, "came before", "removed"),
    (torn_snapshot, "CRC is wrong", "removed"),
    (wrong_epoch, "has epoch", "removed"),
    (wrong_sequence, "has last sequence 5", "removed"),
    (open_too_long, "has a transaction open from 3 on", "removed"),
    (open_no_more, "has no open transaction", "removed"),
    (forgotten, "is missing, but has a transaction open", "removed"),
    (snapshot_past_the_end, "but the log ends at", "removed"),
    (scribble_points, "checkpoint", "removed"),
    (scribble_cleaned, "checkpoint", "rewritten"),
]


@pytest.mark.parametrize("damage, words, done", MENDED, ids=[damage.__name__ for damage, _, _ in MENDED])
def test_what_is_made_of_the_logs_is_mended(copy: Path, damage: Damage, words: str, done: str) -> None:
    damage(copy)
    found = findings(copy)
    assert any(words in one["text"] for one in found), found
    logs = {name: content for name, (_, content) in state(copy).items() if name.endswith(".log")}
    repaired = findings(copy, "--repair")
    assert [one["path"] for one in repaired] == [one["path"] for one in found]
    assert done in {one["repair"] for one in repaired if words in one["text"]}
    after = state(copy)
    assert {name: content for name, (_, content) in after.items() if name.endswith(".log")} == logs
    assert findings(copy, "--repair") == [] and state(copy) == after, "twice changes nothing more"


COMMITTED = [f"{name}-True-{number}" for name in ("first", "second") for number in range(12)]


def test_after_a_repair_a_broker_serves_the_right_rows(copy: Path) -> None:
    """All damage that can be mended, each in the log of its own."""
    for damage in (no_transaction_index, an_entry_of_a_committed_one, wrong_position, time_too_high):
        damage(copy)
    for damage in (wrong_epoch, scribble_points, scribble_cleaned, no_transaction_index_of_a_trimmed_log):
        damage(copy)
    result = log("verify", str(copy), "--repair")
    assert result.exit_code == 0 and "findings repaired" in result.stdout, result.output
    assert rows(copy, "orders") == COMMITTED
    assert set(rows(copy, "tails")) <= set(COMMITTED)
    assert set(rows(copy, "tables")) <= set(COMMITTED)
    assert findings(copy) == []


@pytest.mark.parametrize("number", range(3))
def test_without_the_repair_it_would_not(copy: Path, number: int) -> None:
    """The damage does harm, and the repair takes it away."""
    damage = (no_entry, an_entry_of_a_committed_one, begins_too_late)[number]
    damage(copy)
    wrong = rows(shutil.copytree(copy, copy.with_name("other")), "orders")
    assert wrong != COMMITTED
    assert log("verify", str(copy), "--repair").exit_code == 0
    assert rows(copy, "orders") == COMMITTED


def test_a_damaged_log_keeps_its_transaction_index(copy: Path) -> None:
    """What damage has taken may have been aborted rows: their entry must not go with them."""
    index = with_aborts(copy)
    content = bytearray(segments(copy)[0].read_bytes())
    content[500] ^= 1
    segments(copy)[0].write_bytes(content)
    before = index.read_bytes()
    log("verify", str(copy), "--repair")
    assert index.read_bytes() == before


def test_another_directory_is_not_repaired(tmp_path: Path) -> None:
    result = log("verify", "--repair", str(tmp_path))
    assert (result.exit_code, "no data directory of eoslog" in result.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_one_segment_alone(copy: Path) -> None:
    """Its transactions are known by the snapshot at its beginning."""
    no_entry(copy)
    segment = with_aborts_of_a_copy(copy)
    [one] = findings(segment)
    assert "aborted at offset" in one["text"] and one["repair"] == "rewrite"
    assert "does not begin with an offset" in findings(named(copy, "notes.log"))[0]["text"]


def with_aborts_of_a_copy(copy: Path) -> Path:
    """The segment whose transaction index has become empty."""
    return next(p.with_suffix(".log") for p in segments(copy, suffix=".txnindex") if not p.stat().st_size)


def named(place: Path, name: str) -> Path:
    (place / name).write_bytes(b"")
    return place / name


@pytest.mark.parametrize("kind", ["log", "index"])
def test_a_compaction_cut_short_is_what_the_next_start_ends(copy: Path, kind: str) -> None:
    path = segments(copy, "tables", f".{kind}")[0]
    path.rename(path.with_name(path.name + ".swap"))
    only(copy, "the next start ends it")
    assert set(rows(copy, "tables")) <= set(COMMITTED)
    assert findings(copy) == []


def test_a_bar_on_a_terminal_and_nothing_else(data: Path) -> None:
    def shown(*options: str) -> tuple[bytes, bytes]:
        mine, its = os.openpty()
        command = [sys.executable, "-m", "eoslog", "log", "verify", str(data), *options]
        try:
            out = subprocess.run(command, stdout=subprocess.PIPE, stderr=its, timeout=120, check=True).stdout
        finally:
            os.close(its)
        try:
            return out, os.read(mine, 1 << 16)
        except OSError:  # of a terminal on which nothing was written
            return out, b""
        finally:
            os.close(mine)

    out, bar = shown()
    assert out.endswith(b"all is well\n") and b"reading" in bar and b"100%" in bar
    out, bar = shown("--json")
    assert json.loads(out)["findings"] == [] and bar == b""


# -- beside a running broker ----------------------------------------------------------------------


def test_a_running_broker_is_not_repaired(copy: Path) -> None:
    with EmbeddedBroker(copy):
        no_entry(copy)
        before = state(copy / "orders-0")
        for path in (copy, copy / "orders-0", segments(copy)[0]):
            result = log("verify", "--repair", str(path))
            assert (result.exit_code, "a broker is running" in result.stderr) == (1, True)
        assert state(copy / "orders-0") == before
        shown = log("verify", str(copy)).stdout
        assert f"a broker is running on {copy}" in shown and "aborted at offset" in shown


def at_work(broker: EmbeddedBroker, topic: str, stop: threading.Event) -> None:
    producer = transactional(broker, topic)
    turn = 0
    while not stop.is_set():
        turn += 1
        transaction(producer, topic, [f"{turn}-{n}" for n in range(10)], commit=turn % 3 > 0, pad=300)


def test_beside_a_broker_at_work_nothing_is_found(tmp_path: Path) -> None:
    """Small segments that come and go, by retention and by compaction, and aborted transactions."""
    stop, looks = threading.Event(), 0
    small = ("--config", "segment.bytes=10000", "--config", "file.delete.delay.ms=0")
    with EmbeddedBroker(
        tmp_path / "data", config=CONFIG | {"log.flush.offset.checkpoint.interval.ms": "200"}
    ) as broker:
        ok(broker, "topics", "create", "plain", *small, "--config", "retention.bytes=30000")
        compact = ("--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0.01")
        ok(broker, "topics", "create", "table", *small, *compact)
        workers = [
            threading.Thread(target=at_work, args=(broker, topic, stop)) for topic in ("plain", "table")
        ]
        for worker in workers:
            worker.start()
        try:
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline or looks < 3:
                assert findings(tmp_path / "data") == []
                looks += 1
        finally:
            stop.set()
            for worker in workers:
                worker.join()
    assert not (tmp_path / "data" / "plain-0" / files.offset_name(0, ".log")).exists(), (
        "retention was at work"
    )
    assert gaps(tmp_path / "data" / "table-0"), "compaction was at work"
    assert findings(tmp_path / "data") == []
