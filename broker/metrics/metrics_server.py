"""The pages `/metrics` (Prometheus's text format), `/healthz` and `/readyz`, served by a thread of their own.

Imported only where metrics.listen is set. For a request the event loop takes one snapshot of the broker; the
thread makes the text. `FAMILIES` is the one table of what is shown; docs/transactions.md repeats it.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import TimeoutError as LoopTooSlow
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import Metric

from eoslog.broker.metrics.metrics import Metrics
from eoslog.prometheus import COUNTER, GAUGE, HISTOGRAM, Family, Sample, prometheus
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import info

if TYPE_CHECKING:
    from eoslog.broker.metrics.metrics import MetricsSnapshot

PATIENCE = 10.0
"""Seconds that the event loop has for a snapshot. A broker that needs longer is not healthy."""

_PARTITION = ("topic", "partition")
_LAG = ("group", "topic", "partition")

FAMILIES: tuple[Family, ...] = (
    Family("eoslog_uptime_seconds", GAUGE, (), "time since the start"),
    Family("eoslog_request_seconds", HISTOGRAM, ("api",), "time from a request's begin to its answer"),
    Family("eoslog_request_errors", COUNTER, ("api", "error"),
           "error codes in answers, one a partition or group"),
    Family("eoslog_received_bytes", COUNTER, (), "bytes received from clients"),
    Family("eoslog_sent_bytes", COUNTER, (), "bytes sent to clients"),
    Family("eoslog_connections", GAUGE, (), "open connections"),
    Family("eoslog_connections_opened", COUNTER, (), "connections accepted since the start"),
    Family("eoslog_connections_refused", COUNTER, (), "connections closed because of something they did"),
    Family("eoslog_sync_seconds", HISTOGRAM, (), "time that syncing a partition's files to the disk took"),
    Family("eoslog_sync_failures", COUNTER, (), "syncs that failed; each takes a partition offline"),
    Family("eoslog_disk_bytes", GAUGE, (), "size of the volume that has the data directory"),
    Family("eoslog_disk_free_bytes", GAUGE, (), "bytes of it that the broker may still fill"),
    Family("eoslog_disk_days_left", GAUGE, (),
           "days until it is full at the rate of the last hour; absent while it does not fill"),
    Family("eoslog_partitions_offline", GAUGE, (),
           "partitions that a disk error or damage has taken offline"),
    Family("eoslog_segments_damaged", GAUGE, (),
           "segments in which damage was found; readers get an error there"),
    Family("eoslog_scrub_bytes_left", GAUGE, (), "bytes that the search for damage has still to read"),
    Family("eoslog_log_start_offset", GAUGE, _PARTITION, "first offset that is still there"),
    Family("eoslog_log_end_offset", GAUGE, _PARTITION, "offset of the next record"),
    Family("eoslog_log_size_bytes", GAUGE, _PARTITION, "bytes of the segments"),
    Family("eoslog_log_unsynced_records", GAUGE, _PARTITION,
           "offsets written and not yet shown to readers"),
    Family("eoslog_last_stable_offset_lag", GAUGE, _PARTITION,
           "offsets that open transactions hold back from readers of committed data"),
    Family("eoslog_transactional_ids", GAUGE, ("state",),
           "transactional ids by the state of their transaction"),
    Family("eoslog_open_transactions", GAUGE, (), "transactions that are open or being ended"),
    Family("eoslog_oldest_transaction_seconds", GAUGE, (),
           "age of the oldest open transaction, 0 without one"),
    Family("eoslog_groups", GAUGE, ("state",), "groups by state"),
    Family("eoslog_group_committed_offset", GAUGE, _LAG, "offset that a group has committed"),
    Family("eoslog_group_lag", GAUGE, _LAG, "offsets between that and the high watermark"),
)  # fmt: skip


_WATCHED_S = 1800
"""A shorter look would take one large file for a rate."""


class FillRate:
    """How fast a disk fills: what `free` bytes it had during the last hour, once a minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=61)

    def saw(self, now: float, free: int) -> None:
        """Note what is free at `now`, in seconds of any clock."""
        if not self._seen or now - self._seen[-1][0] >= 60:
            self._seen.append((now, free))

    def days_left(self) -> float | None:
        """Days until nothing is free. None: it does not fill, or was not watched for half an hour."""
        (began, before), (now, free) = (self._seen[0], self._seen[-1]) if self._seen else ((0, 0), (0, 0))
        if now - began < _WATCHED_S:
            return None
        filled = (before - free) / (now - began)
        return free / filled / 86_400 if filled > 0 else None


class MetricsServer:
    """An HTTP server with the three pages. Make and close it on the event loop whose broker it shows."""

    def __init__(
        self,
        address: str,
        metrics: Metrics,
        connections: Callable[[], int],
        look: Callable[[], MetricsSnapshot],
    ) -> None:
        """`address` is HOST:PORT; `look` is called on the loop. Raises OSError, ValueError: the address."""
        host, _, port = address.rpartition(":")
        self._loop = asyncio.get_running_loop()
        self._metrics, self._connections, self._take = metrics, connections, look
        self._disk = FillRate()
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        self._metrics_app = make_wsgi_app(registry)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        kind = type("Server", (_Server,), {"address_family": family})
        self._server: WSGIServer = make_server(host.strip("[]"), int(port), self._app, kind, _Quiet)
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """End the server."""
        await self._loop.run_in_executor(None, self._server.shutdown)
        self._server.server_close()

    # In the server's threads

    def look(self) -> MetricsSnapshot:
        """A snapshot of the broker. Raises LoopTooSlow."""

        async def take() -> MetricsSnapshot:
            return self._take()

        return asyncio.run_coroutine_threadsafe(take(), self._loop).result(PATIENCE)

    def collect(self) -> Iterator[Metric]:
        """All families of the table; called by prometheus_client for each scrape."""
        found = self.look()
        self._disk.saw(found.uptime, found.disk_free_bytes)
        samples = _samples(self._metrics, self._connections(), found)
        left = self._disk.days_left()
        samples["eoslog_disk_days_left"] = [] if left is None else [((), left)]
        yield from prometheus(FAMILIES, (Sample(name, *one) for name, of in samples.items() for one in of))

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not look at a broker that is still starting."""
        return ()

    def _app(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path in ("/healthz", "/readyz"):
            status, text = self._health(path == "/readyz")
        elif path == "/metrics":
            try:
                page: Iterable[bytes] = self._metrics_app(environ, start_response)
                return page
            except LoopTooSlow:
                status, text = "503 Service Unavailable", _TOO_SLOW
        else:
            status, text = "404 Not Found", "there are /metrics, /healthz and /readyz\n"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [text.encode()]

    def _health(self, ready: bool) -> tuple[str, str]:
        """`ready`: whether it has to take records, too."""
        try:
            found = self.look()
        except LoopTooSlow:
            return "503 Service Unavailable", _TOO_SLOW
        if found.healthy and (found.has_room or not ready):
            return "200 OK", "ok\n"
        lines = [f"partition {p.topic}-{p.partition} is offline\n" for p in found.partitions if p.offline]
        lines += [f"the coordinator of {name} is not available\n" for name in found.unavailable]
        if ready and not found.has_room:
            lines.append(f"the disk is full: {found.disk_free_bytes:,} bytes are free\n")
        return "503 Service Unavailable", "".join(lines)


_TOO_SLOW = f"the broker did not answer within {PATIENCE:.0f} s\n"


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds that a client may take to send its request

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: scrapes are routine."""


Samples = list[tuple[tuple[str, ...], Any]]


def _samples(metrics: Metrics, connections: int, look: MetricsSnapshot) -> dict[str, Samples]:
    """(label values, value) by name of the family."""

    def partitions(value: Callable[[Any], int]) -> Samples:
        return [((p.topic, str(p.partition)), value(p)) for p in look.partitions]

    def lags(value: Callable[[Any], int]) -> Samples:
        return [((entry.group, entry.topic, str(entry.partition)), value(entry)) for entry in look.lags]

    def api(key: int) -> str:
        return APIS[ApiKey(key)].name

    return {
        "eoslog_uptime_seconds": [((), look.uptime)],
        "eoslog_request_seconds": [
            ((api(key),), found.classes) for key, found in list(metrics.latency.items())
        ],
        "eoslog_request_errors": [
            ((api(key), info(code).name), count) for (key, code), count in list(metrics.errors.items())
        ],
        "eoslog_received_bytes": [((), metrics.bytes_in)],
        "eoslog_sent_bytes": [((), metrics.bytes_out)],
        "eoslog_connections": [((), connections)],
        "eoslog_connections_opened": [((), metrics.connections_opened)],
        "eoslog_connections_refused": [((), metrics.connections_refused)],
        "eoslog_sync_seconds": [((), metrics.syncs.classes)],
        "eoslog_sync_failures": [((), metrics.failed_syncs)],
        "eoslog_disk_bytes": [((), look.disk_bytes)],
        "eoslog_disk_free_bytes": [((), look.disk_free_bytes)],
        "eoslog_partitions_offline": [((), sum(p.offline for p in look.partitions))],
        "eoslog_segments_damaged": [((), sum(p.damaged for p in look.partitions))],
        "eoslog_scrub_bytes_left": [((), sum(p.unchecked for p in look.partitions))],
        "eoslog_log_start_offset": partitions(lambda p: p.start),
        "eoslog_log_end_offset": partitions(lambda p: p.end),
        "eoslog_log_size_bytes": partitions(lambda p: p.size),
        "eoslog_log_unsynced_records": partitions(lambda p: p.end - p.high_watermark),
        "eoslog_last_stable_offset_lag": partitions(lambda p: p.high_watermark - p.last_stable_offset),
        "eoslog_transactional_ids": [((state,), count) for state, count in look.transactions.items()],
        "eoslog_open_transactions": [((), look.open_transactions)],
        "eoslog_oldest_transaction_seconds": [((), look.oldest_transaction)],
        "eoslog_groups": [((state,), count) for state, count in look.groups.items()],
        "eoslog_group_committed_offset": lags(lambda entry: entry.committed),
        "eoslog_group_lag": lags(lambda entry: entry.lag),
    }
