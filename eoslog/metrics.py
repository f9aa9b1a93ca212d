"""Metrics of the queries of a Spark application, for Prometheus (`serve`) and OpenTelemetry (`instrument`).

Spark tells a listener of each micro-batch: its time by steps, its rows, how far its sources are. The sink's
processes on the driver's machine tell the rest in datagrams (connector/progress): rows and bytes written, the
steps of the commit, dead letters, what was tried again. `FAMILIES` is the one table of what is shown;
docs/monitoring.md repeats it. Nothing here asks a broker.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import socket
import struct
import sys
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eoslog.connector.progress import SourceLag, address, offsets_behind_latest, offsets_of
from eoslog.connector.spark.processes import identity_of
from eoslog.prometheus import COUNTER, GAUGE, HISTOGRAM, Classes, Family, Sample, prometheus
from eoslog.protocol.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

__all__ = ["Served", "SourceLag", "Watch", "instrument", "offsets_behind_latest", "serve"]

logger = logging.getLogger(__name__)

_MOMENT_S = 0.5
"""For what another thread is about to do when the program ends."""
_QUERY = ("query",)
_PLACE = ("query", "topic", "partition")


FAMILIES: tuple[Family, ...] = (
    Family("eoslog_query_info", GAUGE, ("query", "id", "run"), "1; the query's id and that of its run", "1"),
    Family("eoslog_query_running", GAUGE, _QUERY, "1 while the query runs, 0 after its end", "1"),
    Family("eoslog_query_failures", COUNTER, _QUERY, "runs that an error has ended", "does not grow"),
    Family("eoslog_query_error", GAUGE, ("query", "error"), "1; the error that ended the last run", "absent"),
    Family("eoslog_query_batch", GAUGE, _QUERY, "number of the last micro-batch", "grows"),
    Family("eoslog_query_batches", COUNTER, _QUERY, "micro-batches that ended", "grows"),
    Family("eoslog_query_batch_seconds", HISTOGRAM, _QUERY, "time of a micro-batch", "below the trigger's"),
    Family("eoslog_query_step_seconds", COUNTER, ("query", "step"), "time of the micro-batches, by step",
           "tasks take most of it"),
    Family("eoslog_query_rows_read", COUNTER, _QUERY, "rows that the sources gave", "grows"),
    Family("eoslog_query_rows_written", COUNTER, _QUERY, "rows of committed batches", "grows"),
    Family("eoslog_query_bytes_written", COUNTER, _QUERY, "bytes of them as sent, compressed", "grows"),
    Family("eoslog_query_dead_letters", COUNTER, _QUERY, "rows of them in the dead letter topic",
           "does not grow"),
    Family("eoslog_query_batches_replayed", COUNTER, _QUERY,
           "micro-batches that an earlier run had decided", "grows only after a kill"),
    Family("eoslog_query_tasks_aborted", COUNTER, _QUERY, "tasks of micro-batches that failed",
           "does not grow"),
    Family("eoslog_query_commit_retries", COUNTER, _QUERY, "requests of commits that were sent again",
           "grows only while a broker restarts"),
    Family("eoslog_query_lag_records", GAUGE, _PLACE,
           "offsets between what is read and the log's end; markers count too", "does not grow for long"),
    Family("eoslog_query_lag_seconds", GAUGE, _PLACE,
           "seconds since the query first saw the oldest unread offset",
           "a few trigger intervals at most"),
    Family("eoslog_query_last_decision_timestamp_seconds", GAUGE, _QUERY,
           "when the last batch was committed, in seconds since 1970", "moves with the rows"),
    Family("eoslog_query_last_trigger_timestamp_seconds", GAUGE, _QUERY,
           "when Spark last reported of the query, idle or not", "no longer ago than a batch takes"),
    Family("eoslog_source_held_back_seconds", GAUGE, ("topic", "partition"),
           "how long an open transaction has kept a source from reading on", "absent"),
    Family("eoslog_metrics_lost_messages", COUNTER, (),
           "messages from the sink that did not arrive: the sink's figures lack them", "0"),
)  # fmt: skip
STEPS = {
    "plan": "ends of the sources looked up, the plan made",
    "checkpoint": "Spark's notes written",
    "begin": "the sink made ready",
    "tasks": "rows read, computed and written",
    "commit": "the batch decided and its transactions ended",
    "markers": "waited until readers see all of it",
}
"""The values of the label `step`. Where the sink tells nothing (Connect, other sinks), tasks have it."""

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the classes of `eoslog_query_batch_seconds`, in seconds."""
_PLAN = ("latestOffset", "getOffset", "getBatch", "queryPlanning")
_CHECKPOINT = ("walCommit", "commitOffsets", "commitBatch")
_FORGOTTEN_AFTER = 2.5
"""A source that is held back says so each minute: one that is silent for this many times that is not."""
_OURS, _SPARKS = re.compile(r"\beoslog(?:\.\w+)*\.([A-Z]\w+)"), re.compile(r"\[([A-Z][A-Z_.]+)\]")


@dataclass
class _Query:
    """What is known of a query, over all of its runs in this application."""

    name: str
    run: str = ""
    running: bool = True
    error: str | None = None
    batch: int | None = None
    decided: float | None = None
    seen: float | None = None
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    steps: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    times: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    told: dict[int, dict[str, float]] = field(default_factory=dict)
    """Milliseconds that the sink has told of batches of which Spark has not reported yet."""
    behind: dict[TopicPartition, _Behind] = field(default_factory=dict)


class _Behind:
    """How far a partition is behind. `_ends`: the ends of its log that were seen and are not read yet."""

    def __init__(self) -> None:
        self.records = self._end = 0
        self._ends: list[tuple[float, int]] = []

    def saw(self, now: float, reached: int, end: int) -> None:
        """A batch has read up to `reached`, and the log ends at `end`."""
        if end < self._end:  # the topic was made anew
            self._ends = []
        if end != self._end:
            self._ends.append((now, end))
        self._end, self.records = end, max(end - reached, 0)
        self._ends = [(at, seen) for at, seen in self._ends if seen > reached]

    def seconds(self, now: float) -> float:
        """How long ago the first end was seen that is not read."""
        return max(now - self._ends[0][0], 0.0) if self._ends else 0.0


class QueryMetrics:
    """What is known of an application's queries. Any thread may call it.

    `clock` returns seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._held: dict[TopicPartition, tuple[float, float]] = {}
        self._lost = 0
        self._unshown, self._change = set[str](), threading.Condition(self._lock)

    def started(self, query_id: str, run: str, name: str | None) -> None:
        """A run of a query began. Queries without a name are shown by their id."""
        with self._lock:
            query = self._known(query_id)
            query.name, query.run, query.running, query.error = name or query_id, run, True, None
            query.seen = self._clock()
            self._unshown.discard(query_id)

    def ended(self, query_id: str, error: str | None) -> None:
        """A run of a query ended; `error`: Spark's text, None if it was stopped in order."""
        with self._lock:
            query = self._known(query_id)
            query.running, query.behind = False, {}
            if error is not None:
                query.sums["eoslog_query_failures"] += 1
                query.error = error_name(error)
                self._unshown.add(query_id)
            self._change.notify_all()

    def shown(self) -> None:
        """Somebody has read the samples: no error waits to be seen."""
        with self._lock:
            self._unshown.clear()
            self._change.notify_all()

    def wait_until_shown(self, seconds: float) -> bool:
        """Wait until each error that has ended a query was shown, so long at most. Whether it was.

        Spark tells of an end a moment after the program sees it: queries that run are given that moment.
        """
        with self._lock:
            self._change.wait_for(lambda: not any(q.running for q in self._queries.values()), _MOMENT_S)
            return self._change.wait_for(lambda: not self._unshown, seconds)

    def idle(self, query_id: str) -> None:
        """A trigger found no rows."""
        with self._lock:
            self._known(query_id).seen = self._clock()

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """A micro-batch ended; `progress` is Spark's report of it (StreamingQueryProgress.json)."""
        now = self._clock()
        with self._lock:
            query = self._known(progress["id"])
            query.seen = now
            for source in progress["sources"]:
                reached, ends = offsets_of(source["endOffset"]), offsets_of(source.get("latestOffset"))
                for tp in reached.keys() & ends.keys():
                    query.behind.setdefault(tp, _Behind()).saw(now, reached[tp], ends[tp])
            if "addBatch" not in progress["durationMs"]:
                return  # a trigger without a batch
            query.batch = progress["batchId"]
            query.sums["eoslog_query_batches"] += 1
            query.sums["eoslog_query_rows_read"] += progress["numInputRows"]
            self._add_times(query, progress["durationMs"])

    def _add_times(self, query: _Query, ms: Mapping[str, int]) -> None:
        seconds = ms.get("triggerExecution", 0) / 1000
        query.times[bisect_left(BOUNDS, seconds)] += 1
        query.sums["eoslog_query_batch_seconds"] += seconds
        sinks = query.told.pop(query.batch or 0, {})
        query.told = {batch: told for batch, told in query.told.items() if batch > (query.batch or 0)}
        spent = dict(sinks, plan=sum(ms.get(name, 0) for name in _PLAN))
        spent["checkpoint"] = sum(ms.get(name, 0) for name in _CHECKPOINT)
        spent["tasks"] = max(ms["addBatch"] - sum(sinks.values()), 0)
        for step, taken in spent.items():
            query.steps[step] += taken / 1000

    def told(self, message: Mapping[str, Any]) -> None:
        """A message of a Python process of Spark's (connector/progress.tell)."""
        with self._lock:
            self._lost += message["lost"]
            if message["event"] == "held":
                self._hold(message["partitions"], message["every"])
                return
            if message["event"] == "moved":
                for topic, partition in message["partitions"]:
                    self._held.pop((topic, partition), None)
                return
            query = self._known(message["query"])
            if message["event"] == "aborted":
                query.sums["eoslog_query_tasks_aborted"] += message["tasks"]
                return
            told = query.told.setdefault(message["batch"], {})
            if message["event"] == "begun":
                told["begin"] = told.get("begin", 0.0) + message["ms"]
                return
            query.decided = self._clock()
            for figure, family in _COUNTED.items():
                query.sums[family] += message[figure]
            told["markers"] = message["ms"].get("markers", 0.0)
            told["commit"] = sum(message["ms"].values()) - told["markers"]

    def _hold(self, places: Iterable[tuple[str, int]], every: float) -> None:
        now = self._clock()
        for topic, partition in places:
            tp = (topic, partition)
            since, until = self._held.get(tp, (0.0, 0.0))
            self._held[tp] = (since if until >= now else now - every, now + every * _FORGOTTEN_AFTER)

    def _known(self, query_id: str) -> _Query:
        return self._queries.setdefault(query_id, _Query(query_id))

    def samples(self) -> Iterator[Sample]:
        """All values of this moment."""
        with self._lock:
            now = self._clock()
            found = [sample for id_, query in self._queries.items() for sample in _of_query(id_, query, now)]
            for (topic, partition), (since, until) in self._held.items():
                if until >= now:
                    labels = (topic, str(partition))
                    found.append(Sample("eoslog_source_held_back_seconds", labels, now - since))
            found.append(Sample("eoslog_metrics_lost_messages", (), self._lost))
        return iter(found)


_COUNTED = {
    "rows": "eoslog_query_rows_written",
    "bytes": "eoslog_query_bytes_written",
    "dead": "eoslog_query_dead_letters",
    "retries": "eoslog_query_commit_retries",
    "replayed": "eoslog_query_batches_replayed",
}
"""The figures of a committed batch that are added up."""
_SUMMED = tuple(one.name for one in FAMILIES if one.kind == COUNTER and one.labels == _QUERY)


def _of_query(query_id: str, query: _Query, now: float) -> Iterator[Sample]:
    name = (query.name,)
    yield Sample("eoslog_query_info", (query.name, query_id, query.run), 1)
    yield Sample("eoslog_query_running", name, float(query.running))
    if query.error is not None:
        yield Sample("eoslog_query_error", (query.name, query.error), 1)
    for family in _SUMMED:
        yield Sample(family, name, query.sums[family])
    times = Classes(BOUNDS, tuple(query.times), query.sums["eoslog_query_batch_seconds"])
    yield Sample("eoslog_query_batch_seconds", name, times)
    for step, seconds in query.steps.items():
        yield Sample("eoslog_query_step_seconds", (query.name, step), seconds)
    moments = {
        "eoslog_query_batch": query.batch,
        "eoslog_query_last_decision_timestamp_seconds": query.decided,
        "eoslog_query_last_trigger_timestamp_seconds": query.seen,
    }
    for family, value in moments.items():
        if value is not None:
            yield Sample(family, name, value)
    for (topic, partition), behind in query.behind.items():
        place = (query.name, topic, str(partition))
        yield Sample("eoslog_query_lag_records", place, behind.records)
        yield Sample("eoslog_query_lag_seconds", place, behind.seconds(now))


def error_name(text: str) -> str:
    """The error that Spark's text tells of: the last class of eoslog in it, else Spark's last condition."""
    found = _OURS.findall(text) or _SPARKS.findall(text)
    return found[-1] if found else "other"


def _listener(metrics: QueryMetrics) -> StreamingQueryListener:
    """Hands on what Spark tells of its queries. The class is made here: other parts need no PySpark."""
    from pyspark import SparkContext
    from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener

    class FromJava(JStreamingQueryListener):
        """PySpark's own asks the JVM for each field of a report: 26 ms of CPU, where one question does."""

        def onQueryProgress(self, jevent: Any) -> None:
            metrics.progressed(json.loads(jevent.json())["progress"])

    class Listener(StreamingQueryListener):
        @cached_property
        def _jlistener(self) -> Any:  # of a classic session; of Connect, nobody asks for it
            streaming: Any = SparkContext._jvm.org.apache.spark.sql.streaming  # type: ignore[union-attr]
            return streaming.PythonStreamingQueryListenerWrapper(FromJava(self))

        def onQueryStarted(self, event: QueryStartedEvent) -> None:
            metrics.started(str(event.id), str(event.runId), event.name)

        def onQueryProgress(self, event: QueryProgressEvent) -> None:
            metrics.progressed(json.loads(event.progress.json))

        def onQueryIdle(self, event: QueryIdleEvent) -> None:
            metrics.idle(str(event.id))

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
            metrics.ended(str(event.id), event.exception)

    return Listener()


_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of a message's sender
_LARGEST = 1 << 16


class _Hearing:
    """Receives what the application's Python processes tell, in a thread, until it is closed."""

    def __init__(self, jvm: int, heard: Callable[[Mapping[str, Any]], None]) -> None:
        """Raises OSError if this application's are heard already."""
        self._heard = heard
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(address(identity_of(jvm)))
        except OSError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._run, name="eoslog metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            room = socket.CMSG_SPACE(_CREDENTIALS.size)
            message, notes, _, _ = self._socket.recvmsg(_LARGEST, room)
            sender = [
                _CREDENTIALS.unpack(data)[1] for _, kind, data in notes if kind == socket.SCM_CREDENTIALS
            ]
            if sender != [os.geteuid()]:
                continue  # another user's, whatever it says
            if not message:
                return
            self._heard(json.loads(message))

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()


class Watch:
    """Watches all queries of a session's application until `close`."""

    def __init__(self, spark: SparkSession) -> None:
        """Raises RuntimeError if the program already watches this application."""
        self.metrics = QueryMetrics()
        self._spark, self._listener = spark, _listener(self.metrics)
        self._hearing = _hear(spark, self.metrics)
        spark.streams.addListener(self._listener)
        for query in spark.streams.active:
            self.metrics.started(str(query.id), str(query.runId), query.name)

    def close(self) -> None:
        """Stop watching."""
        self._spark.streams.removeListener(self._listener)
        if self._hearing is not None:
            self._hearing.close()


def _hear(spark: SparkSession, metrics: QueryMetrics) -> _Hearing | None:
    jvm = vars(spark).get("_jvm")  # a session of Connect has none
    if jvm is None or sys.platform != "linux":
        logger.info(
            "the sink's figures (rows written, steps of the commit) are not heard here: they need a classic "
            "session on Linux. What Spark itself reports is shown"
        )
        return None
    try:
        return _Hearing(jvm.java.lang.ProcessHandle.current().pid(), metrics.told)
    except OSError as error:
        raise RuntimeError(
            f"this application's queries are watched already ({error}). Close that Watch or Served first, or "
            "use its metrics"
        ) from error


class Served:
    """Metrics that are served: `address` is where, `metrics` what."""

    def __init__(self, watch: Watch, stop: Callable[[], None], address: tuple[str, int]) -> None:
        self._watch, self._stop, self.address, self.metrics = watch, stop, address, watch.metrics

    def at_exit(self, linger: float) -> None:
        """At the end of the program: wait until a query's error was read."""
        if self.metrics.wait_until_shown(0):
            return
        if self.metrics.wait_until_shown(linger):
            time.sleep(_MOMENT_S)  # the page is on its way, by a thread that ends with the program
        else:
            logger.warning("nobody has read within %g s which error has ended a query", linger)

    def close(self) -> None:
        """Stop serving and watching."""
        atexit.unregister(self.at_exit)
        self._stop()
        self._watch.close()


def address_of(listen: str) -> tuple[str, int]:
    """HOST:PORT as host and port. Raises ValueError."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{listen!r} is no address to listen on: give HOST:PORT, for example 127.0.0.1:9187")
    return host.strip("[]"), int(port)


def serve(
    spark: SparkSession,
    listen: str = "127.0.0.1:9187",
    registry: CollectorRegistry | None = None,
    linger: float = 30,
) -> Served:
    """Serve metrics of all streaming queries of the session's application at `http://HOST:PORT/metrics`,
    without authentication.

    `listen`: HOST:PORT, port 0: any free one. `registry`: metrics of the program's own, served beside these.
    `linger`: how many seconds the end of a program with a failed query waits for the page to be read. Needs
    `eoslog[metrics]`. Raises ValueError, OSError (address in use), RuntimeError (served already).
    """
    from prometheus_client import CollectorRegistry, start_http_server

    host, port = address_of(listen)
    shown = CollectorRegistry() if registry is None else registry
    watch = Watch(spark)
    try:
        collector = _Collector(watch.metrics)
        shown.register(collector)
        server, thread = start_http_server(port, host, shown)
    except BaseException:
        watch.close()
        raise

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()
        shown.unregister(collector)

    served = Served(watch, stop, (host, server.server_port))
    atexit.register(served.at_exit, linger)
    return served


class _Collector:
    """The metrics in the form of prometheus_client."""

    def __init__(self, metrics: QueryMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterator[Any]:
        yield from prometheus(FAMILIES, ())

    def collect(self) -> Iterator[Any]:
        yield from prometheus(FAMILIES, self._metrics.samples())
        self._metrics.shown()


def instrument(spark: SparkSession, provider: MeterProvider | None = None) -> Watch:
    """Give the metrics of `serve` to OpenTelemetry, as observable instruments of the meter `eoslog`.

    `provider`: None for the program's own. Names and labels are those of Prometheus, without `_total`; of
    batch_seconds the sum, a counter. Needs `eoslog[metrics]`. Raises RuntimeError (watched already).
    """
    from opentelemetry.metrics import Observation, get_meter_provider

    watch = Watch(spark)
    meter = (provider or get_meter_provider()).get_meter("eoslog")

    def observe(family: Family) -> Callable[[Any], Iterator[Observation]]:
        def observed(_: Any) -> Iterator[Observation]:
            for name, labels, value in watch.metrics.samples():
                if name == family.name:
                    number = value.sum if isinstance(value, Classes) else value
                    yield Observation(number, dict(zip(family.labels, labels, strict=True)))

        return observed

    for family in FAMILIES:
        unit = "s" if family.name.endswith("seconds") else ""
        create = meter.create_observable_gauge if family.kind == GAUGE else meter.create_observable_counter
        create(family.name, [observe(family)], unit=unit, description=family.meaning)
    return watch
