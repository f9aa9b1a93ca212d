"""The formats of Spark's checkpoint: as Spark 4.3 writes them, damaged, and of a later Spark."""

import json
from pathlib import Path

import pytest

from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.spark_logs import (
    FormatError,
    Planned,
    ReadBy,
    check_commit,
    is_eoslog,
    read_by,
    with_ends,
)
from eoslog.connector.commit.task_reports import Batch

V2 = 'v2\n{"batchWatermarkMs":0,"conf":{},"sourceMetadataInfo":{}}\n'
ORDERS = '{"t":{"0":5,"1":7},"cluster-id:c":{}}'
SINK = {"sinkName": "s", "commitOffset": "-", "providerName": "p", "apiVersion": "v2", "isActive": True}


def test_version_2_has_a_name_for_each_source_and_version_1_its_number() -> None:
    named = Planned.parse(7, f"{V2}orders:{ORDERS}\nnone_yet:-\nrates:17")
    assert named.by_name == {"orders": ORDERS, "rates": "17"}
    assert named.names == ("orders", "none_yet", "rates")
    assert named.topic_offsets() == {("t", 0): 5, ("t", 1): 7}
    assert Planned.parse(7, f"v1\n\n{ORDERS}\n-").by_name == {"0": ORDERS}
    assert Planned.parse(7, f"v1\n{{}}\n{ORDERS}").names == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "version is ''.*damaged"),
        ("v1", "ends after its version"),
        ("v2", "ends after its version"),
        ("v3\n{}\norders:{}", "'v3', and eoslog knows v1, v2: a later Spark"),
        ("1\n{}\n-", "damaged"),
        ("v2\n{}", "no sources"),
        ("v2\n\norders:-", "settings '' cannot be read"),
        ("v2\n[]\norders:-", r"settings are '\[\]'"),
        ('v2\n{"conf":\norders:-', "settings"),
        (f"{V2}orders", "names no source"),
        (f"{V2}:-", "names no source"),
        (f"{V2}orders:-\norders:{ORDERS}", "two lines"),
        (f'{V2}orders:{{"t":{{"0":5', "offsets .* cannot be read"),
        ('v1\n{}\n{"t":{"0":5', "offsets .* cannot be read"),
        ('v1\n{"conf":\n-', "settings"),
    ],
)
def test_a_file_of_the_offset_log_that_is_damaged_or_too_new(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        Planned.parse(7, text)


@pytest.mark.parametrize(
    "text",
    [
        "v1\n{}",
        "v1",
        'v1\n{"nextBatchWatermarkMs":233}',
        'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a"]]}}',
        f"v3\n{json.dumps({'nextBatchWatermarkMs': 0, 'sinkMetadataMap': {'s': SINK}})}",
        f"v3\n{json.dumps({'sinkMetadataMap': {'s': SINK, 'former': SINK | {'isActive': False}}})}",
    ],
)
def test_files_of_the_commit_log(text: str) -> None:
    check_commit(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "damaged"),
        ("v4\n{}", "'v4', and eoslog knows v1, v2, v3: a later Spark"),
        ("v2", "settings"),
        ('v2\n{"nextBatch', "settings"),
        ("v3\n{}", "0 of its sinks are active"),
        ('v3\n{"sinkMetadataMap":[]}', "0 of its sinks are active"),
        (f"v3\n{json.dumps({'sinkMetadataMap': {'s': SINK, 't': SINK}})}", "2 of its sinks are active"),
    ],
)
def test_a_file_of_the_commit_log_that_is_damaged_or_too_new(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        check_commit(text)


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (ORDERS, True),
        ('{"t":{"0":5},"topic-id:t:x":{}}', True),
        ('{"t":{"0":5}}', False),
        ("-", False),
        ("5", False),
    ],
)
def test_whose_offsets_they_are(text: str, ours: bool) -> None:
    assert is_eoslog(text) is ours


def test_where_the_sources_of_a_first_batch_began() -> None:
    """Together; a source that does not say it counts with its end."""
    says, silent = '{"t":{"0":9,"1":4},"began-at:t:2:0-1":{}}', '{"t":{"0":1},"u":{"0":5}}'
    found = Planned.parse(0, "\n".join(("v1", "{}", says, silent, "-")))
    assert found.beginnings() == {("t", 0): 1, ("t", 1): 2, ("u", 0): 5}
    assert found.topic_offsets() == {("t", 0): 1, ("t", 1): 4, ("u", 0): 5}


def test_other_ends_leave_the_rest_of_a_file_as_it_is() -> None:
    assert with_ends(f"{V2}orders:{ORDERS}\nrates:17", ["{}", "17"]) == f"{V2}orders:{{}}\nrates:17"
    assert with_ends(f"v1\n{{}}\n{ORDERS}\n-", ["{}", "-"]) == "v1\n{}\n{}\n-"


DELTA = (  # ends as Spark 4.0.1 has written them with Delta 4.0.0, Iceberg 1.10.0 and its own sources
    '{"sourceVersion":1,"reservoirId":"5c3a24c8-a64e-4cf5-abf7-3aae9597b9aa","reservoirVersion":1,'
    '"index":-1,"isStartingVersion":false}'
)


@pytest.mark.parametrize(
    ("end", "by"),
    [
        ("-", ReadBy.END),
        ("{}", ReadBy.END),
        (ORDERS, ReadBy.END),
        ('{"offset":7,"timestamp":1795780000000}', ReadBy.END),
        (DELTA, ReadBy.END),
        ('{"version":1,"snapshot_id":1369320633864130153,"position":1,"scan_all_files":false}', ReadBy.END),
        ('{"logOffset":3}', ReadBy.ENTRIES),
        ("17", ReadBy.ROWS),
        ('"2026-11-27"', ReadBy.ROWS),
        ('{"page":7}', ReadBy.ROWS),
        ('{"reservoirId":"a","page":7}', ReadBy.ROWS),
        ('{"offset": 7, "timestamp": 1795780000000}', ReadBy.ROWS),  # as PySpark writes a Python source's end
        ('{"logOffset": 3}', ReadBy.ROWS),
        ("anything", ReadBy.ROWS),
    ],
)
def test_what_says_which_rows_a_source_reads(end: str, by: ReadBy) -> None:
    assert read_by(end) is by
    assert Planned(0, (ORDERS, end)).identifies_rows is (by is ReadBy.END)


def log_line(path: str, at: int) -> str:
    return f'{{"path":"{path}","timestamp":{at},"batchId":{at}}}'


def file_query(folder: Path, ends: list[int], *, last: int) -> Checkpoint:
    """A checkpoint of a query of files. Its source's log is at `last`, compacted at 9, as Spark does."""
    for name in ("offsets", "sources/0"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for batch, end in enumerate(ends):
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"conf":{{}}}}\n{{"logOffset":{end}}}')
    lines = [log_line(f"file:/{at}", at) for at in range(last + 1)]
    for at in range(last + 1):
        text = "\n".join(lines[: at + 1] if at == 9 else [lines[at]])
        (folder / "sources/0" / ("9.compact" if at == 9 else str(at))).write_text(f"v1\n{text}")
    return Checkpoint.at(str(folder))


def test_the_digest_is_of_the_files_that_a_batch_reads(tmp_path: Path) -> None:
    checkpoint = file_query(tmp_path, [0, 1, 9, 12], last=12)
    found = [checkpoint.planned(batch) for batch in range(4)]
    assert found[2].entries == {f"sources/0/{at}": [log_line(f"file:/{at}", at)] for at in range(2, 10)}
    for at in range(9):
        (tmp_path / "sources/0" / str(at)).unlink()  # Spark removes what is compacted
    assert [checkpoint.planned(batch).digest for batch in range(4)] == [one.digest for one in found]
    assert all(Planned.parse(one.batch_id, one.ends).digest == one.digest for one in found)
    (tmp_path / "sources/0/12").write_text("v1\n" + log_line("file:/other", 12))
    now = [checkpoint.planned(batch) for batch in range(4)]
    assert [a.digest == b.digest for a, b in zip(now, found, strict=True)] == [True, True, True, False]


def test_a_digest_of_before_is_of_the_ends_alone(tmp_path: Path) -> None:
    """What an older version has decided is known again: it did not look into the source's log."""
    planned = file_query(tmp_path, [0], last=0).planned(0)
    old, other = Planned(0, planned.sources).digest, Planned(0, ('{"logOffset":1}',)).digest
    assert Batch("q", 0, planned.digest).repeats(Batch("q", 0, old))
    assert not Batch("q", 0, planned.digest).repeats(Batch("q", 0, other))
    (tmp_path / "sources/0/0").write_text("v1\n" + log_line("file:/other", 0))
    replaced = Checkpoint.at(str(tmp_path)).planned(0)
    assert not Batch("q", 0, planned.digest).repeats(Batch("q", 0, replaced.digest))


def test_without_the_batch_before_it_is_not_known_what_a_batch_reads(tmp_path: Path) -> None:
    checkpoint = file_query(tmp_path, [0, 1], last=1)
    (tmp_path / "offsets/0").unlink()
    assert checkpoint.planned(1).entries is None and not checkpoint.planned(1).identifies_rows
