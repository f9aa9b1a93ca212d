"""A query that runs is not edited: its driver lives here, or what it does is seen while one looks."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.standing import check_rests, standing
from eoslog.client.admin.transactions import init_producer_id
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.commit.task_reports import Batch, Run
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run import run_memory
from eoslog.connector.spark.processes import ProcessIdentity, this_process
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.testing import EmbeddedBroker

WATCH_SECONDS = 0.6
RUN = Run(ProducerIdentity(7, 0), ProducerIdentity(7, 3), Batch("q", 1, "digest"))


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where drivers keep notes: of this test alone."""
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(run_memory, "driver_process", this_process)
    return folder


@pytest.fixture
def cluster(broker: EmbeddedBroker) -> Cluster:
    return Cluster(ClientConfig((("127.0.0.1", broker.port),)))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (tmp_path / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"orders":{"0":1}}')
    (tmp_path / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return Checkpoint.at(str(tmp_path))


def looked_at(cluster: Cluster, checkpoint: Checkpoint, meanwhile: Callable[[], object] = int) -> None:
    """Look whether the query rests; something happens meanwhile."""
    found = standing(cluster, checkpoint)
    later = threading.Timer(WATCH_SECONDS / 3, meanwhile)
    later.start()
    try:
        check_rests(cluster, found, WATCH_SECONDS)
    finally:
        later.join()


def test_a_driver_that_lives_on_this_machine(cluster: Cluster, checkpoint: Checkpoint) -> None:
    run_memory.keep(RUN, "key")
    with pytest.raises(NotEditable, match=rf"lives on this machine \(pid {os.getpid()}\)"):
        looked_at(cluster, checkpoint)


def test_one_that_has_ended(
    cluster: Cluster, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_memory, "driver_process", lambda: ProcessIdentity(os.getpid(), "before"))
    run_memory.keep(RUN, "key")
    looked_at(cluster, checkpoint)


def test_one_of_another_query(cluster: Cluster, checkpoint: Checkpoint) -> None:
    run_memory.keep(replace(RUN, batch=Batch("another", 1, "digest")), "key")
    looked_at(cluster, checkpoint)


def test_a_note_that_does_not_name_its_driver_is_warned_of(
    cluster: Cluster, checkpoint: Checkpoint, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_memory.keep(RUN, "key")
    (note,) = notes.glob("*/*.run")
    for text in ("{", json.dumps({"form": 0, "batch": ["q", 1, "digest"]})):
        note.write_text(text)
        caplog.clear()
        looked_at(cluster, checkpoint)
        assert f"{note} does not name a driver" in caplog.text


def test_a_query_elsewhere_that_plans_a_batch(cluster: Cluster, checkpoint: Checkpoint) -> None:
    with pytest.raises(NotEditable, match="have just changed"):
        looked_at(cluster, checkpoint, lambda: checkpoint.change("offsets", 1, 'v1\n{}\n{"orders":{"0":2}}'))


def test_one_whose_sink_is_at_work(cluster: Cluster, checkpoint: Checkpoint) -> None:
    sink = Sink(f"sink-{time.time_ns()}")
    NotedSink(sink.id, None, 0).write(checkpoint)
    looked_at(cluster, checkpoint)
    with pytest.raises(NotEditable, match="have just changed"):
        looked_at(cluster, checkpoint, lambda: init_producer_id(cluster, sink.coordinator, 60_000))
