"""The sink, with a driver that is killed at a point of a batch: data source `halting`.

It has two options more than `eoslog`: `halt.at`, one of POINTS, and `halt.batch`. The process in which Spark
commits is killed there; and what Spark would do with the sink afterwards is not done, as if all of the
application were dead. Pickled by value, for Spark's Python processes cannot import it.
"""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.stream_writer import StreamWriter
from eoslog.connector.sink.task_message import reports_of

OWN_TIMEOUT_MS = 15_000
"""Of the sink's own transaction, which holds back the group's offsets when its driver is killed."""


def _is_decision(command: c.Command[Any], sink_id: str) -> bool:
    return isinstance(command, c.End) and command.commit and command.participants[0].name == sink_id


POINTS: dict[str, Callable[[c.Command[Any], str], bool]] = {
    "all sealed, nothing staged": lambda command, sink_id: isinstance(command, c.StageOffsets),
    "decision and offsets staged": _is_decision,
    "decided, no winner finished": lambda command, sink_id: (
        isinstance(command, c.End) and command.commit and not _is_decision(command, sink_id)
    ),
}


class HaltingWriter(StreamWriter):
    """Commits as ever, until its batch comes."""

    def __init__(self, options: SinkOptions, schema: StructType, at: str, batch: int) -> None:
        super().__init__(options, schema)
        self._at, self._batch = at, batch

    def _begin(self) -> Begun | None:
        return committer.begin_stream(self._options, self._runner(-1))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver."""
        committer.commit_stream(self._options, reports_of(messages), batchId, self._runner(batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the application is dead."""

    def _runner(self, batch: int) -> Runner:
        point, sink_id = POINTS[self._at], str(self._options.transactional_id)

        def watch(command: c.Command[Any]) -> None:
            if batch == self._batch and point(command, sink_id):
                os.kill(os.getpid(), signal.SIGKILL)

        return Runner(shared_cluster(self._options.client), OWN_TIMEOUT_MS, before=watch)


class HaltingDataSource(EoslogDataSource):
    """eoslog under another name."""

    @classmethod
    def name(cls) -> str:
        """The name given to format()."""
        return "halting"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A sink that is killed."""
        given = dict(self.options)
        at, batch = given.pop("halt.at"), int(given.pop("halt.batch"))
        return HaltingWriter(sink_options(given, stream=True), schema, at, batch)
