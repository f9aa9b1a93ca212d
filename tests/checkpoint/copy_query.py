"""A query that copies a topic, without Spark: eoslog's source and sink in this process, on its two logs."""

from __future__ import annotations

import itertools
import json
import os
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.run import abandoned_run, run_memory, source_ends
from eoslog.connector.sink import task_writer
from eoslog.connector.sink.committer import begin_stream, commit_stream
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.processes import ProcessIdentity
from eoslog.connector.spark.versions import ReadAllAvailable
from tests.checkpoint.checkpointkit import SETTINGS
from tests.connector.brokers import Kafka

_drivers = itertools.count()


class Killed(Exception):
    """The driver is dead."""


@dataclass(frozen=True)
class CopyQuery:
    """`sink` and `reads`: options beside those of the topics and the cluster."""

    place: Path
    kafka: Kafka
    source: str
    target: str
    sink: Mapping[str, str]
    patch: pytest.MonkeyPatch
    reads: Mapping[str, str] = field(default_factory=dict)

    def on(self, kafka: Kafka, place: Path | None = None, **options: str) -> CopyQuery:
        """The same query on another cluster, or with another checkpoint. `options`: more, of the sink."""
        given = {name.replace("_", "."): text for name, text in options.items()}
        return replace(self, kafka=kafka, place=place or self.place, sink={**self.sink, **given})

    def puts(self, first: int, count: int = 10) -> None:
        """Give the source so many rows, which are numbered."""
        self.kafka.put(self.source, [b"r%d" % number for number in range(first, first + count)])

    def start(self, *, killed: bool = False, empty: bool = False) -> bool:
        """A new driver runs one batch with all there is. Returns whether there was anything. `killed`: when
        the batch is begun. `empty`: a batch without rows counts, as in a query with state."""
        _as_a_new_driver(self.patch)
        for folder in ("offsets", "commits"):
            (self.place / folder).mkdir(parents=True, exist_ok=True)
        if not (self.place / "metadata").exists():
            (self.place / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        address = {"kafka.bootstrap.servers": self.kafka.bootstrap}
        wanted = {"subscribe": self.source, "startingOffsets": "earliest", **address, **self.reads}
        reader = StreamReader(source_options(wanted, stream=True))
        done, planned = self._newest("commits"), self._newest("offsets")
        begin = self._end(done) if done >= 0 else reader.initialOffset()
        if planned == done:
            end = reader.latestOffset(begin, ReadAllAvailable())
            if end == begin and not empty:
                return False
            (self.place / "offsets" / str(done + 1)).write_text(SETTINGS + json.dumps(end))
        self._write(reader, begin, done + 1, address, killed)
        (self.place / "commits" / str(done + 1)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        return True

    def _write(
        self, reader: StreamReader, begin: Any, batch: int, address: Mapping[str, str], killed: bool
    ) -> None:
        where = {"topic": self.target, "checkpointLocation": str(self.place), **address}
        options = sink_options({**where, **self.sink}, stream=True)
        begun = begin_stream(options)
        if killed:
            raise Killed
        query = json.loads((self.place / "metadata").read_text())["id"]
        reports = []
        parts = [reader.read(part) for part in reader.partitions(begin, self._end(batch))]
        for task, part in enumerate(parts or [iter(())]):
            found = [pa.record_batch({"key": one["key"], "value": one["value"]}) for one in part]
            written = task_writer.write_rows(options, begun, Attempt(query, batch, task), iter(found))
            reports.append(written.report)
        commit_stream(options, reports, batch)

    def _newest(self, log: str) -> int:
        names = [path.name for path in (self.place / log).iterdir() if path.name.isdigit()]
        return max(map(int, names), default=-1)

    def _end(self, batch: int) -> Any:
        return json.loads((self.place / "offsets" / str(batch)).read_text().splitlines()[-1])

    @property
    def astray(self) -> dict[str, int]:
        """How many rows of the source lack in the target, and how many are there too often."""
        source, target = (
            Counter(row[3] for row in self.kafka.rows(topic)) for topic in (self.source, self.target)
        )
        return {"lost": (source - target).total(), "doubled": (target - source).total()}


EXACT = {"lost": 0, "doubled": 0}


def _as_a_new_driver(patch: pytest.MonkeyPatch) -> None:
    """What earlier starts in this process remember is not seen, as by another process."""
    number = next(_drivers)
    patch.setattr(run_memory, "driver_token", lambda: f"driver-{number}")
    patch.setattr(source_ends, "driver_process", lambda: ProcessIdentity(os.getpid(), f"driver-{number}"))
    patch.setattr(task_writer, "_slots", task_writer._Slots(-1, "", {}))
    for name in ("watch", "watch_once"):
        patch.setattr(abandoned_run, name, lambda *_given: None)
