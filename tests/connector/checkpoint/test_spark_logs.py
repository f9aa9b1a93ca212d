"""Spark's checkpoint: its formats as Spark writes them, damaged, and of a later Spark; and what is read of
it.
"""

import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.checkpoint_view import CheckpointView
from eoslog.connector.checkpoint.files import (
    ArrowFiles,
    Files,
    LocalFiles,
    arrows_uri,
    files_at,
    place_of,
    without_options,
)
from eoslog.connector.checkpoint.spark_logs import (
    FormatError,
    Planned,
    ReadBy,
    check_commit,
    is_eoslog,
    read_by,
    reading_only,
    with_ends,
)
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.offsets.offsets import to_json
from eoslog.doctor.rules import LIGHT, MANAGER
from tests.connector.brokers import Kafka

# -- formats -------------------------------------------------------------------------------------
# The formats of Spark's checkpoint: as Spark 4.3 writes them, damaged, and of a later Spark.

V2 = 'v2\n{"batchWatermarkMs":0,"conf":{},"sourceMetadataInfo":{}}\n'
ORDERS = '{"t":{"0":5,"1":7},"cluster-id:c":{}}'
SINK = {"sinkName": "s", "commitOffset": "-", "providerName": "p", "apiVersion": "v2", "isActive": True}


def test_a_line_for_some_topics_says_where_the_others_were_left() -> None:
    """A message names it: a topic that is named again later goes on there."""
    line = to_json({("in", 0): 3, ("in2", 0): 1}, {"in": "a", "in2": "b"}, "c", {("in2", 0): 7})
    given = json.loads(reading_only(json.dumps(line), {("in", 0)}, {}))
    assert given == {
        "in": {"0": 3},
        "topic-id:in:a": {},
        "cluster-id:c": {},
        "left-at:in2:1:0": {},
        "left-id:in2:b": {},
        "left-epoch:in2:7:0": {},
    }


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


# -- what is read --------------------------------------------------------------------------------
# Spark's checkpoint, read: ids, logs, source offsets, and what cannot be read.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "metadata").write_text('{"id":"3f2b"}')
    for log, batches in {"offsets": (8, 9, 10), "commits": (8, 9)}.items():
        (tmp_path / log).mkdir()
        for number in batches:
            (tmp_path / log / str(number)).write_text('v1\n{"batchWatermarkMs":0}\n{"t":{"0":5,"1":7}}\n-')
        (tmp_path / log / f".{max(batches)}.crc").write_text("")
        (tmp_path / log / ".11.5a-tmp").write_text("v1")
    return tmp_path


def test_the_batch_before_the_planned_one_is_done_though_its_note_is_lost(root: Path) -> None:
    """A power cut took commits/9 and not offsets/10: Spark runs batch 10 next."""
    checkpoint = Checkpoint.at(str(root))
    os.utime(root / "offsets" / "10", (7, 7))
    os.utime(root / "commits" / "9", (5, 5))
    assert checkpoint.completed_at(9) == 5
    (root / "commits" / "9").unlink()
    view = CheckpointView.of(checkpoint)
    assert (view.completed, view.batch.batch_id) == (9, 10)
    assert checkpoint.completed_at(9) == 7


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "{}/"])
def test_paths_and_uris(root: Path, form: str) -> None:
    checkpoint = Checkpoint.at(form.format(root))
    assert isinstance(files_at(form.format(root)), LocalFiles)
    assert checkpoint.query_id() == "3f2b"
    assert checkpoint.newest_completed() == 9
    planned = checkpoint.newest_planned()
    assert planned == Planned(10, ('{"t":{"0":5,"1":7}}', "-"))
    assert planned.topic_offsets() == {("t", 0): 5, ("t", 1): 7}


@pytest.mark.parametrize(
    ("sparks", "arrows"),
    [
        ("s3a://b/c:d", "s3://b/c:d"),
        ("gs://b/c", "gs://b/c?retry_limit_seconds=60"),
        ("GS://b/c?a=b", "gs://b/c?a=b&retry_limit_seconds=60"),
        ("gs://b/c?retry_limit_seconds=5", "gs://b/c?retry_limit_seconds=5"),
        ("S3A://b/c", "s3://b/c"),
        ("wasbs://c@a.blob.core.windows.net/d", "abfss://c@a.dfs.core.windows.net/d"),
        ("abfs://c@a.dfs.core.windows.net/d", "abfs://c@a.dfs.core.windows.net/d"),
        ("abfs://:key@a.blob.core.windows.net/c/d", "abfs://:key@a.blob.core.windows.net/c/d"),
        ("s3://c@a.blob.x/d", "s3://c@a.blob.x/d"),
    ],
)
def test_hadoops_names_of_file_systems(sparks: str, arrows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eoslog.connector.checkpoint.files.ArrowFiles", lambda uri: uri)
    assert str(files_at(sparks)) == arrows


@pytest.mark.parametrize("scheme", ["wasb", "wasbs", "abfs", "abfss"])
@pytest.mark.parametrize("host", ["blob", "dfs"])
def test_arrow_looks_into_the_container(scheme: str, host: str) -> None:
    uri = f"{scheme}://box@account.{host}.core.windows.net/a/folder"
    assert fs.FileSystem.from_uri(arrows_uri(uri))[1].rstrip("/") == "box/a/folder"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3a://b/c", "s3://b/c/?endpoint_override=http://127.0.0.1:1"),
        ("file:/x/y", "/x/y/"),
        ("file:///x/y", "/x/./y"),
        ("gs://b/c", "GS://b/c"),
    ],
)
def test_one_place_under_several_names(one: str, other: str) -> None:
    assert place_of(one) == place_of(other) != place_of(f"{one}z")


def test_spark_is_told_no_options_of_arrow() -> None:
    assert without_options("s3a://b/c?endpoint_override=x") == "s3a://b/c"
    assert without_options("/a?b") == "/a?b"


def test_a_new_checkpoint_has_no_batches(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"new"}')
    checkpoint = Checkpoint.at(str(tmp_path))
    assert checkpoint.newest_planned() is None and checkpoint.newest_completed() is None


def test_other_sources_have_no_topic_offsets() -> None:
    others = (
        '{"logOffset":3}',
        "17",
        "-",
        '{"a":{"x":1}}',
        '{"a":{"0":null}}',
        '{"a":{"0":-1}}',
        '{"a":{"0":1.5}}',
        '{"a":{"-1":1}}',
        "[1]",
        '{"shards":{"0":{"n":1}}}',
    )
    assert Planned(0, others).topic_offsets() == {}


def test_two_sources_of_one_topic_commit_the_lower_offset() -> None:
    planned = Planned(0, ('{"t":{"0":5,"1":7}}', '{"t":{"0":6,"1":3},"u":{"0":1}}'))
    assert planned.topic_offsets() == {("t", 0): 5, ("t", 1): 3, ("u", 0): 1}


def test_the_digest_is_that_of_the_source_offsets() -> None:
    assert Planned(1, ("a", "b")).digest == Planned(2, ("a", "b")).digest != Planned(1, ("a", "c")).digest


def test_a_batch_that_spark_has_removed_is_told_from_one_that_is_there(root: Path) -> None:
    checkpoint = Checkpoint.at(str(root))
    assert checkpoint.planned_if_kept(8) == checkpoint.planned(8)
    assert checkpoint.planned_if_kept(7) is None
    (root / "offsets" / "9").write_text("nonsense")
    with pytest.raises(CheckpointUnreadable, match="offsets/9"):
        checkpoint.planned_if_kept(9)


def test_the_clusters_of_all_sources_are_told() -> None:
    sources = ('{"t":{"0":5},"cluster-id:one":{}}', '{"u":{"0":1}}', "-", '{"v":{"0":1},"cluster-id:two":{}}')
    assert Planned(0, sources).clusters() == {"one", "two"}


@pytest.mark.parametrize(
    ("location", "says"),
    [("/nowhere/at/all", "metadata"), ("s4://bucket/x", "s4"), ("nonsense://x", "nonsense")],
)
def test_what_cannot_be_read_is_said(location: str, says: str) -> None:
    with pytest.raises(CheckpointUnreadable, match=says):
        Checkpoint.at(location).query_id()


NAMED = 'v2\n{"batchWatermarkMs":0}\norders:{"t":{"0":5,"1":7}}\nnone_yet:-'


def test_sources_with_names(root: Path) -> None:
    """As Spark 4.3 writes them (spark.sql.streaming.queryEvolution.enableSourceEvolution)."""
    (root / "offsets" / "11").write_text(NAMED)
    planned = Checkpoint.at(str(root)).newest_planned()
    assert planned == Planned(11, ('{"t":{"0":5,"1":7}}', "-"), ("orders", "none_yet"))
    assert planned.topic_offsets() == {("t", 0): 5, ("t", 1): 7}
    assert planned.digest != Planned(11, planned.sources).digest


@pytest.mark.parametrize("text", ["v3\n{}\norders:{}", "v2\n{}", "v2\n{}\norders", "", "v1"])
def test_other_formats_are_refused(root: Path, text: str) -> None:
    (root / "offsets" / "10").write_text(text)
    with pytest.raises(CheckpointUnreadable, match=r"offsets/10: .*restore it from a copy") as caught:
        Checkpoint.at(str(root)).newest_planned()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_commit_log_is_of_a_known_format(root: Path) -> None:
    checkpoint = Checkpoint.at(str(root))
    checkpoint.check_completed(8)
    (root / "commits" / "9").write_text("v4\n{}")
    with pytest.raises(CheckpointUnreadable, match=r"commits/9: .*a later Spark has written it"):
        checkpoint.check_completed(9)


def test_damaged_metadata(root: Path) -> None:
    (root / "metadata").write_text("{}")
    with pytest.raises(CheckpointUnreadable, match="metadata"):
        Checkpoint.at(str(root)).query_id()


def test_the_epochs_are_those_of_the_offsets_that_count() -> None:
    """Where two sources read a partition the lower offset is committed, and its epoch with it."""
    texts = [
        json.dumps(to_json({("t", 0): at, ("t", 1): 5}, epochs={("t", 0): epoch, ("t", 1): 2}))
        for at, epoch in ((30, 4), (20, 3))
    ]
    planned = Planned(0, (*texts, "-", json.dumps({"u": {"0": 1}})))
    assert planned.topic_offsets() == {("t", 0): 20, ("t", 1): 5, ("u", 0): 1}
    assert planned.epochs() == {("t", 0): 3, ("t", 1): 2}


class NothingMoves:
    """Arrow's file system of an Azure account without folders."""

    def __init__(self) -> None:
        self._files = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def move(self, *_: str) -> None:
        raise pa.ArrowNotImplementedError("FileSystem::Move() is not implemented")


@pytest.fixture(params=["local", "arrow", "without folders"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """A folder's files, by Python's own means and by Arrow's, which another file system takes."""
    if request.param == "local":
        return LocalFiles(str(tmp_path))
    found = ArrowFiles(f"file://{tmp_path}/")
    if request.param == "without folders":
        found._files = NothingMoves()
    return found


def test_files_are_the_same_wherever_they_are(files: Files, tmp_path: Path) -> None:
    assert files.names("notes") == files.walk() == []
    assert not files.is_there("notes/a") and files.modified("notes/a") is None
    began = time.time()
    files.put("notes", "a", b"one")
    files.put("notes", "a", b"two")
    assert files.names("notes") == ["a"] == os.listdir(tmp_path / "notes"), "no draft is left"
    assert files.read("notes/a") == b"two" and files.is_there("notes/a")
    files.put("", "top", b"")
    files.put("notes/more", "b", b"")
    assert files.walk() == ["notes/a", "notes/more/b", "top"]
    written = files.modified("notes/a")
    assert written is not None and began - 2 <= written <= time.time() + 2


def test_what_is_wrong_with_files_is_an_os_error(files: Files, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for wrong in (
        lambda: files.read("not/there"),
        lambda: files.names("taken"),
        lambda: files.put("taken", "a", b""),
    ):
        with pytest.raises(OSError, match=r"not/there|taken"):
            wrong()


def test_a_batch_of_a_log_is_changed_and_removed_with_its_checksum(tmp_path: Path) -> None:
    """Hadoop's checksum of the old text would make Spark refuse the new one."""
    checkpoint = Checkpoint.at(str(tmp_path))
    (tmp_path / "offsets").mkdir()
    for name in ("3", ".3.crc", "4", ".4.crc"):
        (tmp_path / "offsets" / name).write_text("v1")
    checkpoint.change("offsets", 3, "v1\n{}\n-")
    checkpoint.change("offsets", 4, None)
    checkpoint.change("offsets", 5, None)
    assert os.listdir(tmp_path / "offsets") == ["3"]
    assert checkpoint.text("offsets/3") == "v1\n{}\n-" and checkpoint.text("offsets/4") is None
    assert checkpoint.batches("offsets") == [3] and checkpoint.batches("commits") == []


@pytest.mark.parametrize("files_of", [LocalFiles, lambda root: ArrowFiles(f"file://{root}")])
def test_a_file_is_removed_alone_and_once_more_without_error(
    root: Path, files_of: Callable[[str], Files]
) -> None:
    files = files_of(str(root))
    assert files.is_there("offsets/10")
    files.remove("offsets/10")
    assert not (root / "offsets" / "10").exists()
    assert (root / "offsets" / "9").exists() and (root / "commits" / "9").exists()
    files.remove("offsets/10")
    files.remove("nothing/1")


# -- the file manager of docs/starts.md ----------------------------------------------------------
# The file manager that docs/starts.md recommends for checkpoints on a local disk.


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_checkpoint_goes_on_under_either(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """At each restart the other one; every row is there once. Spark does take the one that it is told."""
    source, target, sent = kafka.topic(2), kafka.topic(), list[bytes]()
    to, place = {"kafka.bootstrap.servers": kafka.bootstrap}, tmp_path / "checkpoint"
    try:
        for number in range(4):
            spark.conf.unset(MANAGER)
            if number % 2:
                spark.conf.set(MANAGER, LIGHT)
            more = [b"%d" % (number * 10 + at) for at in range(10)]
            kafka.put(source, more, partition=number % 2)
            sent += more
            read = spark.readStream.format("eoslog").options(**to, startingOffsets="earliest")
            writer = read.option("subscribe", source).load().select("value").writeStream.format("eoslog")
            writer = writer.options(**to, topic=target, checkpointLocation=str(place))
            assert writer.trigger(availableNow=True).start().awaitTermination(300)
            assert sorted(row[3] for row in kafka.rows(target)) == sorted(sent)
        spark.conf.set(MANAGER, f"{LIGHT}er")
        with pytest.raises(Exception, match=f"{LIGHT}er"):
            writer.start().awaitTermination(300)
    finally:
        spark.conf.unset(MANAGER)
