"""The sources of a batch are compared before it is written: with the batch before, and with what runs."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.checkpoint_view import CheckpointView
from eoslog.connector.checkpoint.source_changes import SourcesChanged
from eoslog.connector.commit.faults import CheckpointMismatch
from eoslog.connector.commit.task_reports import Batch, Begun
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run.source_ends import SourceEnd
from eoslog.connector.sink.source_check import check_begins, check_sources, takes_over
from eoslog.protocol.producer_identity import ProducerIdentity


class Ground(NamedTuple):
    """A checkpoint of a query with two sources, whose batch 0 is done."""

    folder: Path

    def plan(self, batch: int, **ends: int) -> None:
        """Plan a batch: the end of each source, which has a topic of its name's first letter."""
        lines = [f'{name}:{{"{name[0]}":{{"0":{end}}},"cluster-id:c":{{}}}}' for name, end in ends.items()]
        (self.folder / "offsets").mkdir(exist_ok=True)
        (self.folder / "offsets" / str(batch)).write_text("\n".join(["v2", "{}", *lines]))

    def check(
        self, decided: int | None = None, lost: tuple[int, ...] = (), accepted: str = "nothing"
    ) -> None:
        values = {"kafka.bootstrap.servers": "nowhere:1", "topic": "t", "start.accepted": accepted}
        values["commit.source.offsets"] = "false"  # there is no cluster to ask for a group
        options = sink_options(values | {"checkpointLocation": str(self.folder)}, stream=True)
        view = CheckpointView.of(Checkpoint.at(str(self.folder)))
        own = ProducerIdentity(1, 1)
        done = None if decided is None else Batch("q", decided)
        check_sources(options, view, "q", Begun("q", own, own, 0, 1, view.batch, done, lost=lost))


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (tmp_path / "notes").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "notes"))
    made = Ground(tmp_path)
    made.plan(0, orders=5, returns=7)
    return made


def end(name: str, at: int) -> dict[str, dict[str, int]]:
    return {name[0]: {"0": at}, "cluster-id:c": {}}


def test_all_sources_of_a_batch_have_to_run(ground: Ground) -> None:
    ground.plan(1, orders=6, returns=9)
    orders, returns = SourceEnd(), SourceEnd()
    orders.note(end("orders", 6))
    with pytest.raises(SourcesChanged, match="runs again without returns"):
        ground.check()
    ground.check(accepted="without-sources:1")
    returns.note(end("returns", 9))
    ground.check()
    returns.forget()
    with pytest.raises(SourcesChanged):
        ground.check(decided=0)
    ground.check(decided=1)
    with pytest.raises(SourcesChanged):
        ground.check(decided=1, lost=(0,))


def test_where_removed_sources_ended_is_noted(ground: Ground) -> None:
    sources = {name: SourceEnd() for name in ("orders", "refunded")}
    ground.plan(1, orders=6)
    sources["orders"].note(end("orders", 6))
    ground.check()
    ground.plan(2, orders=6)
    ground.check()
    for at in (9, 7):
        ground.plan(3, orders=6, refunded=at)
        sources["refunded"].note(end("refunded", at))
        if at == 9:
            with pytest.raises(
                SourcesChanged, match="r-0 ends its first batch at 9, a former source ended at 7"
            ):
                ground.check()
    ground.check()


def test_only_a_new_source_takes_over(ground: Ground) -> None:
    """As long as it has no new rows, its line says where it began."""
    taken = '"offsets-of:q:g":{}'
    for batch, wanted in ((0, True), (1, True), (2, False)):
        (ground.folder / "offsets" / str(batch)).write_text(
            f'v2\n{{}}\nr{min(batch, 1)}:{{"r":{{"0":7}},{taken}}}'
        )
        assert takes_over(CheckpointView.of(Checkpoint.at(str(ground.folder)))) is wanted
    ground.plan(3, orders=5)
    assert not takes_over(CheckpointView.of(Checkpoint.at(str(ground.folder))))


def test_a_damaged_note_stops(ground: Ground) -> None:
    (ground.folder / "eoslog").mkdir()
    (ground.folder / "eoslog" / "sources").write_text('{"version":9}')
    ground.plan(1, orders=5)
    with pytest.raises(CheckpointUnreadable, match=r"eoslog/sources is .*later version of eoslog"):
        ground.check()


def test_at_least_once_is_compared_as_well(ground: Ground) -> None:
    ground.plan(1, orders=6, returns=7)
    values = {"kafka.bootstrap.servers": "nowhere:1", "topic": "t", "processing.guarantee": "at_least_once"}
    options = replace(sink_options(values, stream=True), checkpoint_location=str(ground.folder))
    with pytest.raises(SourcesChanged, match="without orders"):
        check_sources(options, CheckpointView.of(Checkpoint.at(str(ground.folder))), "q", None)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_sources_that_are_exchanged_stop(ground: Ground, version: str) -> None:
    """Whether they have names or are known by their order."""
    for batch, topics in ((0, "or"), (1, "ro")):
        lines = [f'{{"{topic}":{{"0":{5 + batch}}},"cluster-id:c":{{}}}}' for topic in topics]
        if version == "v2":
            lines = [f"{name}:{line}" for name, line in zip("ab", lines, strict=True)]
        (ground.folder / "offsets" / str(batch)).write_text("\n".join([version, "{}", *lines]))
    with pytest.raises(SourcesChanged, match="were sources exchanged"):
        ground.check()
    with pytest.raises(SourcesChanged, match="were sources exchanged"):
        ground.check(decided=0)
    if version == "v1":
        ground.check(accepted="new-source:0:1,new-source:1:1")
        ground.check(decided=1)


class Files(Ground):
    """A checkpoint of a query whose sources read files: each batch has one entry in each source's log."""

    def read(self, batch: int, **paths: str) -> None:
        lines = []
        for name, listed in paths.items():
            log = self.folder / "sources" / name
            log.mkdir(parents=True, exist_ok=True)
            entries = [json.dumps({"path": p, "timestamp": 1, "batchId": batch}) for p in listed.split()]
            (log / str(batch)).write_text("\n".join(["v1", *entries]))
            lines.append(f'{name}:{{"logOffset":{batch}}}')
        (self.folder / "offsets" / str(batch)).write_text("\n".join(["v2", "{}", *lines]))


def test_sources_of_files_that_are_exchanged_stop(ground: Ground) -> None:
    files = Files(ground.folder)
    files.read(0, a="/a/1 /a/2", b="/b/1")
    files.read(1, a="/a/3", b="/b/2")
    files.check()
    files.read(2, a="/b/1 /b/2 /b/3", b="/a/1")
    says = (
        r"source a read /b/1, which source b has read; /b/2.*Remove offsets/2, sources/a/2, sources/b/2 from"
    )
    with pytest.raises(SourcesChanged, match=says):
        files.check()
    with pytest.raises(SourcesChanged, match="source b read /a/1"):
        files.check(accepted="new-source:a:2")
    files.check(accepted="new-source:a:2,new-source:b:2")
    files.read(2, a="/c/1", b="/b/3")
    files.check()


def test_a_source_of_files_that_was_renamed_reads_nothing_twice(ground: Ground) -> None:
    files = Files(ground.folder)
    files.read(0, a="/a/1", b="/b/1")
    files.read(1, a="/a/2", c="/b/1")
    with pytest.raises(SourcesChanged, match="source c read /b/1, which source b has read"):
        files.check()
    files.read(1, a="/a/2")
    files.check()
    files.read(2, a="/a/3", c="/b/1")
    with pytest.raises(SourcesChanged, match="source c read /b/1, which source b has read"):
        files.check()


def test_two_sources_of_one_folder_may_be_ahead_of_each_other(ground: Ground) -> None:
    files = Files(ground.folder)
    files.read(0, a="/f/1", b="/f/1 /f/2 /g/1")
    files.read(1, a="/f/2 /g/1", b="/f/3")
    files.check()


def test_a_compacted_log_of_files_has_those_of_all_entries(ground: Ground) -> None:
    files = Files(ground.folder)
    files.read(0, a="/a/1", b="/b/1")
    for batch in (1, 2):
        files.read(batch, a=f"/a/{batch}1", b=f"/b/{batch}1")
    log = ground.folder / "sources" / "b"
    lines = [line for n in (0, 1) for line in (log / str(n)).read_text().splitlines()[1:]]
    for number in (0, 1):
        (log / str(number)).unlink()
    (log / "1.compact").write_text("\n".join(["v1", *lines]))
    files.read(3, a="/b/1", b="/b/4")
    with pytest.raises(SourcesChanged, match="source a read /b/1, which source b has read"):
        files.check()
    assert Checkpoint.at(str(ground.folder)).files_read("b", 1, 1) == {"/b/11"}


def test_a_batch_begins_where_the_batch_before_ends(ground: Ground) -> None:
    """It does not if the checkpoint was edited while the query had nothing to read."""
    source = SourceEnd()
    ground.plan(1, orders=9, returns=7)
    view = CheckpointView.of(Checkpoint.at(str(ground.folder)))
    check_begins(view, ())  # nobody says where it begins
    source.note(end("orders", 9), end("orders", 5))
    check_begins(view, ())
    source.note(end("orders", 9), end("orders", 4))
    with pytest.raises(CheckpointMismatch, match=r"edited while the query ran.*Start the query again"):
        check_begins(view, ())
    another = SourceEnd()
    another.note(end("orders", 9), end("orders", 5))  # of two queries one is right
    check_begins(view, ())
