"""`eoslog log`: dump, verify and repair."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from eoslog.broker.log import files
from eoslog.cli import main
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import ok
from tests.broker.operations.verify_kit import (
    CONFIG,
    Damage,
    an_entry_of_a_committed_one,
    begins_too_late,
    cut_a_compacted_segment,
    cut_behind_a_batch,
    drop_a_batch,
    drop_a_segment,
    drop_all,
    drop_the_directory,
    drop_the_first,
    drop_the_first_of_a_log_that_was_trimmed,
    drop_the_last,
    ends_far_away,
    fill,
    flip,
    forgotten,
    gaps,
    named,
    no_entry,
    no_transaction_index,
    no_transaction_index_of_a_trimmed_log,
    of_another_producer,
    of_another_version,
    only,
    open_no_more,
    open_too_long,
    rows,
    scribble_cleaned,
    scribble_points,
    scribble_starts,
    snapshot_past_the_end,
    stable_too_high,
    state,
    time_that_ends_early,
    time_that_is_late,
    time_too_high,
    torn_entry,
    torn_index,
    torn_snapshot,
    transaction,
    transactional,
    with_aborts,
    with_aborts_of_a_copy,
    wrong_epoch,
    wrong_position,
    wrong_sequence,
)
from tests.broker.operations.verify_kit import findings as findings_of_repair
from tests.broker.operations.verify_kit import log as log_of_repair
from tests.broker.operations.verify_kit import segments as segments_of_repair
from tests.kit.program import until

# -- dump and verify -------------------------------------------------------------------------------
# `eoslog log`: what is in the files, and whether they fit together; each kind of damage is found.


FIRST = "0" * 20


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a broker leaves that was closed in order: three segments, an aborted transaction, offsets."""
    place = tmp_path_factory.mktemp("log") / "data"
    with EmbeddedBroker(place, config={"log.index.interval.bytes": "200"}) as broker:
        ok(broker, "topics", "create", "orders", "--config", "segment.bytes=20000")
        ok(broker, "produce", "orders", input=f"{0:01000d}\n")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
        producer.init_transactions(20)
        producer.begin_transaction()
        for _ in range(60):
            producer.produce("orders", b"x" * 1000)
            producer.flush(20)
        producer.abort_transaction(20)
        ok(broker, "groups", "reset", "readers", "--topic", "orders", "--to-latest", "--execute")
    return place


@pytest.fixture
def copy(data: Path, tmp_path: Path) -> Path:
    place = tmp_path / "copy"
    shutil.copytree(data, place)
    return place


def log(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["log", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def segments(place: Path, suffix: str = ".log") -> list[Path]:
    return sorted((place / "orders-0").glob(f"*{suffix}"))


def findings(place: Path) -> str:
    result = log("verify", str(place))
    assert result.exit_code == 1, result.output
    return result.stdout


def test_a_log_in_order(data: Path) -> None:
    assert len(segments(data)) > 2
    result = log("verify", str(data))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "all is well"), result.output
    assert log("verify", str(data / "orders-0")).exit_code == 0
    assert log("verify", str(segments(data)[0])).exit_code == 0


def test_verify_changes_nothing(data: Path) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in data.rglob("*")}

    before = state()
    log("verify", str(data))
    log("dump", str(data))
    assert state() == before


def test_a_flipped_bit(copy: Path) -> None:
    path = segments(copy)[1]
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    assert f"{path}, position 0: batch of offset" in findings(copy)
    assert "wrong CRC" in findings(copy)
    dumped = log("dump", str(path))
    assert dumped.exit_code == 1
    assert "isvalid: false" in dumped.stdout


def test_a_torn_end(copy: Path) -> None:
    path = segments(copy)[-1]
    path.write_bytes(path.read_bytes()[:-10])
    assert str(path) in findings(copy)


def test_a_lost_end_that_was_durable(copy: Path) -> None:
    for path in segments(copy)[2:]:
        path.unlink()
    assert "was durable once" in findings(copy)


def test_a_segment_in_the_wrong_place(copy: Path) -> None:
    last = segments(copy)[-1]
    last.rename(last.with_name(FIRST[:-1] + "1.log"))
    assert "begins at offset 1, but the segment before it ends at" in findings(copy)


def test_an_offset_index_that_is_wrong(copy: Path) -> None:
    path = segments(copy, ".index")[0]
    content = path.read_bytes()
    assert content
    path.write_bytes(content[:4] + (7).to_bytes(4, "big") + content[8:])
    assert "where no batch begins" in findings(copy)
    path.write_bytes(content + b"x")
    assert "not a multiple" in findings(copy)
    path.write_bytes(content + (90000).to_bytes(4, "big") * 2)
    assert "after the segment's end" in findings(copy)


def test_a_time_index_that_is_wrong(copy: Path) -> None:
    path = segments(copy, ".timeindex")[0]
    content = path.read_bytes()
    path.write_bytes(content[:-12] + (2**62).to_bytes(8, "big") + content[-4:])
    assert "whose batch is older" in findings(copy)


def test_a_transaction_index_that_lacks_an_entry(copy: Path) -> None:
    (path,) = [p for p in segments(copy, ".txnindex") if p.stat().st_size]
    path.write_bytes(b"")
    assert "aborted at offset" in findings(copy)


def test_a_damaged_snapshot(copy: Path) -> None:
    path = segments(copy, ".snapshot")[-1]
    path.write_bytes(path.read_bytes()[:-1])
    assert str(path) in findings(copy)


def test_an_empty_directory_is_no_log(tmp_path: Path) -> None:
    assert "no partition's directory" in findings(tmp_path)


def test_dump_in_kafkas_words(data: Path) -> None:
    lines = log("dump", str(segments(data)[0])).stdout.splitlines()
    assert lines[0].startswith("Dumping ")
    assert lines[1].startswith(
        "baseOffset: 0 lastOffset: 0 count: 1 baseSequence: 0 lastSequence: 0 producerId: "
    )
    assert lines[1].endswith("isvalid: true")


def test_dump_of_records_and_markers(data: Path) -> None:
    entries = [
        json.loads(line)
        for line in log("dump", str(data / "orders-0"), "--print-data-log", "--json").stdout.splitlines()
    ]
    assert {"x" * 1000, f"{0:01000d}"} <= {entry.get("payload") for entry in entries}
    assert [entry["endTxnMarker"] for entry in entries if "endTxnMarker" in entry] == ["ABORT"]
    assert [entry["lastOffset"] for entry in entries if "lastStableOffset" in entry] == [
        entry["offset"] for entry in entries if "endTxnMarker" in entry
    ]


def test_dump_of_the_brokers_own_topics(data: Path) -> None:
    offsets = "".join(
        log("dump", str(place), "--print-data-log").stdout for place in data.glob("__consumer_offsets-*")
    )
    assert "readers" in offsets and "orders" in offsets
    transactions = "".join(
        log("dump", str(place), "--print-data-log").stdout for place in data.glob("__transaction_state-*")
    )
    assert "COMPLETE_ABORT" in transactions


def test_dump_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("x")
    result = log("dump", str(path))
    assert (result.exit_code, "not one of the files" in result.stderr) == (1, True)


# -- repair ----------------------------------------------------------------------------------------
# `eoslog log verify`: what it finds of each kind of damage, what --repair mends, and a broker beside it.
#
# What is mended is served afterwards by a real broker: committed rows, and no aborted ones.


@pytest.fixture(scope="module")
def data_of_repair(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


@pytest.fixture
def copy_of_repair(data_of_repair: Path, tmp_path: Path) -> Path:
    place = tmp_path / "copy"
    shutil.copytree(data_of_repair, place)
    return place


def test_a_log_in_order_needs_no_repair(data_of_repair: Path) -> None:
    result = log_of_repair("verify", str(data_of_repair))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "all is well"), result.output
    for topic in ("orders", "tables", "tails"):
        assert len(segments_of_repair(data_of_repair, topic)) > 1
        assert findings_of_repair(data_of_repair / f"{topic}-0") == []
        assert all(findings_of_repair(path) == [] for path in segments_of_repair(data_of_repair, topic))


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
def test_damage_of_records_is_found_and_left_alone(copy_of_repair: Path, damage: Damage, words: str) -> None:
    damage(copy_of_repair)
    found = only(copy_of_repair, words)
    assert found["repair"] is None and ("copy" in found["text"])
    before = state(copy_of_repair)
    assert log_of_repair("verify", str(copy_of_repair), "--repair").exit_code == 1
    assert state(copy_of_repair) == before


def test_a_wrong_offset_is_told_once_and_where_the_others_go_on(copy_of_repair: Path) -> None:
    """The CRC does not cover it. What comes after it is in order, and its indexes are not to blame."""
    path = segments_of_repair(copy_of_repair)[1]
    content = bytearray(path.read_bytes())
    second = 12 + int.from_bytes(content[8:12], "big")
    content[second] ^= 1
    path.write_bytes(content)
    texts = [(one["path"], one["text"]) for one in findings_of_repair(copy_of_repair)]
    assert [place for place, _ in texts] == [str(path)] * 2, texts
    assert "are missing before the batch" in texts[0][1] and "must follow" in texts[1][1]


def test_a_torn_tail_is_what_the_next_start_mends(tmp_path: Path) -> None:
    place = tmp_path / "killed"
    with EmbeddedBroker(place) as broker:
        ok(broker, "topics", "create", "orders")
        ok(broker, "produce", "orders", input="a\nb\n")
        broker.kill()
    path = segments_of_repair(place)[0]
    path.write_bytes(path.read_bytes() + path.read_bytes()[:-1])
    assert "the next start cuts off this tail" in only(place, "file ends at")["text"]
    assert rows(place, "orders") == ["a", "b"]
    assert findings_of_repair(place) == []


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
    assert findings_of_repair(place) == []


MENDED = [
    (no_entry, "aborted at offset", "rewritten"),
    (no_transaction_index, "aborted at offset", "rewritten"),
    (no_transaction_index_of_a_trimmed_log, "aborted at offset", "rewritten"),
    (an_entry_of_a_committed_one, "there is no marker that aborts it", "removed"),
    (begins_too_late, "but it begins at", "rewritten"),
    (stable_too_high, "which is too high", "rewritten"),
    (of_another_producer, "but the marker there has producer id", "rewritten"),
    (of_another_version, "version is not 0", "rewritten"),
    (ends_far_away, "it is missing", "rewritten"),
    (torn_entry, "bytes follow the last entry", "rewritten"),
    (wrong_position, "where no batch begins", "removed"),
    (torn_index, "not a multiple", "removed"),
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
def test_what_is_made_of_the_logs_is_mended(
    copy_of_repair: Path, damage: Damage, words: str, done: str
) -> None:
    damage(copy_of_repair)
    found = findings_of_repair(copy_of_repair)
    assert any(words in one["text"] for one in found), found
    logs = {name: content for name, (_, content) in state(copy_of_repair).items() if name.endswith(".log")}
    repaired = findings_of_repair(copy_of_repair, "--repair")
    assert [one["path"] for one in repaired] == [one["path"] for one in found]
    assert done in {one["repair"] for one in repaired if words in one["text"]}
    after = state(copy_of_repair)
    assert {name: content for name, (_, content) in after.items() if name.endswith(".log")} == logs
    assert findings_of_repair(copy_of_repair, "--repair") == [] and state(copy_of_repair) == after, (
        "twice changes nothing more"
    )


COMMITTED = [f"{name}-True-{number}" for name in ("first", "second") for number in range(12)]


def test_after_a_repair_a_broker_serves_the_right_rows(copy_of_repair: Path) -> None:
    """All damage that can be mended, each in the log of its own."""
    for damage in (no_transaction_index, an_entry_of_a_committed_one, wrong_position, time_too_high):
        damage(copy_of_repair)
    for damage in (wrong_epoch, scribble_points, scribble_cleaned, no_transaction_index_of_a_trimmed_log):
        damage(copy_of_repair)
    result = log_of_repair("verify", str(copy_of_repair), "--repair")
    assert result.exit_code == 0 and "findings repaired" in result.stdout, result.output
    assert rows(copy_of_repair, "orders") == COMMITTED
    assert set(rows(copy_of_repair, "tails")) <= set(COMMITTED)
    assert set(rows(copy_of_repair, "tables")) <= set(COMMITTED)
    assert findings_of_repair(copy_of_repair) == []


@pytest.mark.parametrize("number", range(3))
def test_without_the_repair_it_would_not(copy_of_repair: Path, number: int) -> None:
    """The damage does harm, and the repair takes it away."""
    damage = (no_entry, an_entry_of_a_committed_one, begins_too_late)[number]
    damage(copy_of_repair)
    wrong = rows(shutil.copytree(copy_of_repair, copy_of_repair.with_name("other")), "orders")
    assert wrong != COMMITTED
    assert log_of_repair("verify", str(copy_of_repair), "--repair").exit_code == 0
    assert rows(copy_of_repair, "orders") == COMMITTED


def test_a_damaged_log_keeps_its_transaction_index(copy_of_repair: Path) -> None:
    """What damage has taken may have been aborted rows: their entry must not go with them."""
    index = with_aborts(copy_of_repair)
    content = bytearray(segments_of_repair(copy_of_repair)[0].read_bytes())
    content[500] ^= 1
    segments_of_repair(copy_of_repair)[0].write_bytes(content)
    before = index.read_bytes()
    log_of_repair("verify", str(copy_of_repair), "--repair")
    assert index.read_bytes() == before


def test_another_directory_is_not_repaired(tmp_path: Path) -> None:
    result = log_of_repair("verify", "--repair", str(tmp_path))
    assert (result.exit_code, "no data directory of eoslog" in result.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_one_segment_alone(copy_of_repair: Path) -> None:
    """Its transactions are known by the snapshot at its beginning."""
    no_entry(copy_of_repair)
    segment = with_aborts_of_a_copy(copy_of_repair)
    [one] = findings_of_repair(segment)
    assert "aborted at offset" in one["text"] and one["repair"] == "rewrite"
    assert (
        "does not begin with an offset" in findings_of_repair(named(copy_of_repair, "notes.log"))[0]["text"]
    )


@pytest.mark.parametrize("kind", ["log", "index"])
def test_a_compaction_cut_short_is_what_the_next_start_ends(copy_of_repair: Path, kind: str) -> None:
    path = segments_of_repair(copy_of_repair, "tables", f".{kind}")[0]
    path.rename(path.with_name(path.name + ".swap"))
    only(copy_of_repair, "the next start finishes it")
    assert set(rows(copy_of_repair, "tables")) <= set(COMMITTED)
    assert findings_of_repair(copy_of_repair) == []


def test_a_bar_on_a_terminal_and_nothing_else(data_of_repair: Path) -> None:
    def shown(*options: str) -> tuple[bytes, bytes]:
        mine, its = os.openpty()
        command = [sys.executable, "-m", "eoslog", "log", "verify", str(data_of_repair), *options]
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
    assert out.endswith(b"all is well\n")
    assert re.search(rb"reading.*[^\d.]([\d.]+)/\1 kB", bar), "at its end all bytes are read"
    out, bar = shown("--json")
    assert json.loads(out)["findings"] == [] and bar == b""


def test_a_running_broker_is_not_repaired(copy_of_repair: Path) -> None:
    with EmbeddedBroker(copy_of_repair):
        no_entry(copy_of_repair)
        before = state(copy_of_repair / "orders-0")
        for path in (copy_of_repair, copy_of_repair / "orders-0", segments_of_repair(copy_of_repair)[0]):
            result = log_of_repair("verify", "--repair", str(path))
            assert (result.exit_code, "a broker is running" in result.stderr) == (1, True)
        assert state(copy_of_repair / "orders-0") == before
        shown = log_of_repair("verify", str(copy_of_repair)).stdout
        assert f"a broker is running on {copy_of_repair}" in shown and "aborted at offset" in shown


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
                assert findings_of_repair(tmp_path / "data") == []
                looks += 1
        finally:
            stop.set()
            for worker in workers:
                worker.join()
    assert not (tmp_path / "data" / "plain-0" / files.offset_name(0, ".log")).exists(), (
        "retention was at work"
    )
    assert gaps(tmp_path / "data" / "table-0"), "compaction was at work"
    assert findings_of_repair(tmp_path / "data") == []
