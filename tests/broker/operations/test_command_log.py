"""`eoslog log`: what is in the files, and whether they fit together; each kind of damage is found."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from eoslog.cli import main
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import ok

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
