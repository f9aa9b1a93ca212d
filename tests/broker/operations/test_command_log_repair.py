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
from pathlib import Path

import pytest

from eoslog.broker.log import files
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
    findings,
    flip,
    forgotten,
    gaps,
    log,
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
    segments,
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
from tests.kit.waiting import until


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


@pytest.fixture
def copy(data: Path, tmp_path: Path) -> Path:
    place = tmp_path / "copy"
    shutil.copytree(data, place)
    return place


def test_a_log_in_order(data: Path) -> None:
    result = log("verify", str(data))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "all is well"), result.output
    for topic in ("orders", "tables", "tails"):
        assert len(segments(data, topic)) > 1
        assert findings(data / f"{topic}-0") == []
        assert all(findings(path) == [] for path in segments(data, topic))


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


def test_a_wrong_offset_is_told_once_and_where_the_others_go_on(copy: Path) -> None:
    """The CRC does not cover it. What comes after it is in order, and its indexes are not to blame."""
    path = segments(copy)[1]
    content = bytearray(path.read_bytes())
    second = 12 + int.from_bytes(content[8:12], "big")
    content[second] ^= 1
    path.write_bytes(content)
    texts = [(one["path"], one["text"]) for one in findings(copy)]
    assert [place for place, _ in texts] == [str(path)] * 2, texts
    assert "are missing before the batch" in texts[0][1] and "must follow" in texts[1][1]


def test_a_torn_tail_is_what_the_next_start_mends(tmp_path: Path) -> None:
    place = tmp_path / "killed"
    with EmbeddedBroker(place) as broker:
        ok(broker, "topics", "create", "orders")
        ok(broker, "produce", "orders", input="a\nb\n")
        broker.kill()
    path = segments(place)[0]
    path.write_bytes(path.read_bytes() + path.read_bytes()[:-1])
    assert "the next start cuts off this tail" in only(place, "file ends at")["text"]
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


@pytest.mark.parametrize("kind", ["log", "index"])
def test_a_compaction_cut_short_is_what_the_next_start_ends(copy: Path, kind: str) -> None:
    path = segments(copy, "tables", f".{kind}")[0]
    path.rename(path.with_name(path.name + ".swap"))
    only(copy, "the next start finishes it")
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
