"""Spark's checkpoint, read: ids, logs, source offsets, and what cannot be read."""

from pathlib import Path

import pytest

from eoslog.connector.checkpoint import Checkpoint, CheckpointUnreadable, Planned


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


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "{}/"])
def test_paths_and_uris(root: Path, form: str) -> None:
    checkpoint = Checkpoint.at(form.format(root))
    assert checkpoint.query_id() == "3f2b"
    assert checkpoint.newest_completed() == 9
    planned = checkpoint.newest_planned()
    assert planned == Planned(10, ('{"t":{"0":5,"1":7}}', "-"))
    assert planned.topic_offsets() == {("t", 0): 5, ("t", 1): 7}


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
        "[1]",
        '{"shards":{"0":{"n":1}}}',
    )
    assert Planned(0, others).topic_offsets() == {}


def test_two_sources_of_one_topic_commit_the_lower_offset() -> None:
    planned = Planned(0, ('{"t":{"0":5,"1":7}}', '{"t":{"0":6,"1":3},"u":{"0":1}}'))
    assert planned.topic_offsets() == {("t", 0): 5, ("t", 1): 3, ("u", 0): 1}


def test_the_digest_is_that_of_the_source_offsets() -> None:
    assert Planned(1, ("a", "b")).digest == Planned(2, ("a", "b")).digest != Planned(1, ("a", "c")).digest


@pytest.mark.parametrize(
    ("location", "says"),
    [("/nowhere/at/all", "metadata"), ("s4://bucket/x", "s4"), ("nonsense://x", "nonsense")],
)
def test_what_cannot_be_read_is_said(location: str, says: str) -> None:
    with pytest.raises(CheckpointUnreadable, match=says):
        Checkpoint.at(location).query_id()


@pytest.mark.parametrize("text", ["v2\n{}\n{}", "", "v1"])
def test_other_formats_are_refused(root: Path, text: str) -> None:
    (root / "offsets" / "10").write_text(text)
    with pytest.raises(CheckpointUnreadable, match="offsets/10"):
        Checkpoint.at(str(root)).newest_planned()


def test_damaged_metadata(root: Path) -> None:
    (root / "metadata").write_text("{}")
    with pytest.raises(CheckpointUnreadable, match="metadata"):
        Checkpoint.at(str(root)).query_id()
