"""The broker as a process: from its options to the ready line, and from a signal to its orderly end."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from eoslog.broker.config import LISTENER_PREFIX, BrokerConfig, ConfigError
from eoslog.broker.coordinator.groups import consumer_group_state
from eoslog.broker.coordinator.transactions.transaction_journal import DamagedTransactionLog
from eoslog.broker.core.broker import Broker
from eoslog.broker.log.data_dir import DataDirError
from eoslog.broker.log.files import BadFile
from eoslog.broker.network.connection import FaultDecider
from eoslog.broker.network.dispatch import handlers
from eoslog.broker.network.server import Server
from eoslog.broker.ports import FileSystem
from eoslog.broker.security.listeners import Listener, listeners_of
from eoslog.protocol import compression
from eoslog.protocol.apis import APIS
from eoslog.protocol.errors import KafkaError
from eoslog.version import __version__

if TYPE_CHECKING:
    from eoslog.broker.console.server import Console
    from eoslog.broker.metrics.metrics_server import MetricsServer
    from eoslog.broker.security.tls import ListenerTls


logger = logging.getLogger(__name__)

_OPEN = "listener %s: other machines reach it, and nothing is encrypted (%s). See docs/security.md#listeners"


SWITCH_INTERVAL = 0.001
"""Seconds that a thread which reads something large may block the event loop; Python's default is 5 ms."""


class StartError(Exception):
    """The broker cannot start, or cannot end in order; the text says why and what to do."""


# Errors about damaged data that opening may raise; their texts say which file and what is wrong.
_DAMAGE = (DamagedTransactionLog, BadFile, KafkaError)


def run(config: BrokerConfig, on_ready: Callable[[str], None]) -> None:
    """Run a broker until SIGTERM or SIGINT. `on_ready` gets the ready line. Raises StartError."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    asyncio.run(_run(config, on_ready))


async def _run(config: BrokerConfig, on_ready: Callable[[str], None]) -> None:
    ended, begun = asyncio.Event(), time.monotonic()
    raise_limit()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(_on_signal, number, ended))
    logger.info("eoslog %s starts as process %d on %s", __version__, os.getpid(), config.storage.log_dirs)
    node = Node(config)
    await node.start()
    try:
        _log_ready(node, time.monotonic() - begun)
        on_ready(node.ready_line)
        # Objects made at the start stay for ever: keep the garbage collector from scanning them each time.
        gc.collect()
        gc.freeze()
        await ended.wait()
        begun = time.monotonic()
        await node.finish()
    finally:
        await node.close()
    logger.info("ended in order within %.2f s", time.monotonic() - begun)


def _on_signal(number: signal.Signals, ended: asyncio.Event) -> None:
    """The first signal starts an orderly end; a second one ends the process at once."""
    if ended.is_set():
        _end_at_once(number)
    logger.info(
        "%s: begun requests may end, then the logs are closed; a second signal ends at once", number.name
    )
    ended.set()


def _end_at_once(number: signal.Signals) -> NoReturn:
    logger.warning(
        "%s again: ends at once; nothing acknowledged is lost, the next start checks the logs", number.name
    )
    os._exit(128 + number)


def _log_ready(node: Node, seconds: float) -> None:
    topics = node.broker.topics
    partitions = sum(
        len(topic.partitions) for name in topics.names() if (topic := topics.get(name)) is not None
    )
    facts = {"seconds": round(seconds, 3), "topics": len(topics.names()), "partitions": partitions}
    text = "ready after %.2f s: %d topics, %d partitions, %d findings of the recovery"
    logger.info(text, seconds, len(topics.names()), partitions, len(topics.report), extra=facts)


class Node:
    """A broker and its listeners on the running event loop."""

    def __init__(
        self, config: BrokerConfig, fs: FileSystem | None = None, faults: FaultDecider | None = None
    ) -> None:
        """`fs` and `faults` are for tests, see `broker.network.connection.FaultDecider`."""
        self.config, self._fs = config, fs
        self.server = Server(faults)
        self.broker: Broker
        self._pages: MetricsServer | None = None
        self.console: Console | None = None
        """The web console, if console.listen is set."""
        self.listeners: list[Listener] = []
        """Where it listens, with the actual ports."""

    @property
    def ready_line(self) -> str:
        """The line that a process which starts the broker waits for."""
        first, config = self.listeners[0], self.config
        settings = f"data {config.storage.log_dirs}, flush {config.storage.flush}"
        if len(self.listeners) > 1 or first.protocol != "PLAINTEXT":
            settings += f", listeners {', '.join(map(str, self.listeners))}"
        return f"eoslog broker ready at {first.place} ({settings})"

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.listeners[0].port

    async def start(self) -> None:
        """Bind the addresses, open the data directory, serve. Raises StartError; then nothing stays open."""
        try:
            load_late_imports()
        except ImportError as error:
            raise StartError(
                f"{error.name or error} cannot be imported ({error}): install eoslog again"
            ) from error
        try:
            self.listeners = await _bind_all(self.server, self.config)
            for listener in self.listeners:
                if listener.open_to_others:
                    logger.warning(_OPEN, listener, listener.protocol)
            self.broker = _open(self.config, self._fs)
        except BaseException:
            await self.server.stop(0)
            raise
        self.broker.flush.on_sync = self.server.metrics.synced
        try:
            self.server.tls = _contexts(self.listeners, self.broker)
            self._pages = _open_pages(self)
            self.console = await _open_console(self)
            await self.broker.transactions.complete()  # so no reader sees a part of what ends together
            self.broker.topics.reserve.fill()
            self.broker.options.checks.append(self.server.check_options)  # before a client can change them
            self.broker.options.followers.append(self.server.options_changed)
            await self.server.serve(self.broker)
        except BaseException:
            await self.server.stop(0)
            await self.close()
            raise

    async def finish(self, grace: float | None = None) -> None:
        """Start no more requests, give running ones `grace` seconds to end, close all connections.

        None: shutdown.grace.ms.
        """
        grace = self.config.operations.shutdown_grace_ms / 1000 if grace is None else grace
        self.broker.groups.close()  # Joins wait for other members: do not wait for joins.
        await self.server.stop(grace)

    async def close(self) -> None:
        """Save everything. Call after `finish`. Raises StartError if that is not possible."""
        if self.console is not None:
            await self.console.close()
            self.console = None
        if self._pages is not None:
            await self._pages.close()
            self._pages = None
        await _close(self.broker)


def _open_pages(node: Node) -> MetricsServer | None:
    """Serve /metrics, /healthz and /readyz if metrics.listen is set. Raises StartError."""
    address = node.config.operations.metrics_listen
    if not address:
        return None
    from eoslog.broker.metrics.metrics import look

    try:
        from eoslog.broker.metrics.metrics_server import MetricsServer
    except ModuleNotFoundError as error:
        raise StartError(f"metrics.listen needs {error.name}: pip install 'eoslog[metrics]'") from error
    metrics = node.server.metrics
    try:
        pages = MetricsServer(address, metrics, node.server.__len__, partial(look, node.broker, metrics))
    except (OSError, ValueError, OverflowError) as error:
        raise StartError(
            f"cannot serve metrics at {address} ({error}): give HOST:PORT of a free port"
        ) from error
    logger.info(
        "metrics at http://%s:%d/metrics", address.rpartition(":")[0], pages.port, extra={"port": pages.port}
    )
    return pages


async def _open_console(node: Node) -> Console | None:
    """Serve the web console if console.listen is set. Raises StartError."""
    address = node.config.operations.console_listen
    if not address:
        return None
    from eoslog.broker.console.start import open_console

    try:
        return await open_console(node.broker, node.listeners, node.server.metrics)
    except ModuleNotFoundError as error:
        raise StartError(f"console.listen needs {error.name}: pip install 'eoslog[console]'") from error
    except ConfigError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartError(
            f"cannot serve the console at {address} ({reason}): give HOST:PORT of a free port"
        ) from error


def _open(config: BrokerConfig, fs: FileSystem | None) -> Broker:
    data = config.storage.log_dirs
    try:
        broker = Broker(config, fs=fs)
        broker.start()
        return broker
    except _DAMAGE as error:
        raise StartError(f"damaged data in {data}: {error}. Put it back from a copy") from error
    except DataDirError as error:
        raise StartError(f"{error} (give another --data?)") from error
    except ConfigError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        advice = "repair it or give another --data"
        if error.errno == errno.ENOSPC:
            advice = "grow its volume or free 1 MiB of other files there, then start again"
        raise StartError(f"data directory {data} cannot be used ({error}): {advice}") from error


async def _close(broker: Broker) -> None:
    try:
        await broker.close()
    except OSError as error:
        raise StartError(f"not all was saved ({error}): the next start recovers it from the logs") from error


async def _bind_all(server: Server, config: BrokerConfig) -> list[Listener]:
    """Bind all addresses. Raises StartError."""
    try:
        wanted = listeners_of(config)
    except ConfigError as error:
        raise StartError(str(error)) from error
    return [await _bind(server, listener) for listener in wanted]


async def _bind(server: Server, listener: Listener) -> Listener:
    try:
        return await server.bind(listener)
    except OSError as error:
        where = f"{listener.host}:{listener.port}"
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"address {where} is in use: stop the program that has it, or give another --listen"
                " (port 0 picks a free one)"
            ) from error
        reason = error.strerror or str(error)
        raise StartError(f"cannot listen on {where} ({reason}): give another --listen") from error


def _contexts(listeners: Sequence[Listener], broker: Broker) -> dict[str, ListenerTls]:
    """The TLS of each listener that has it, by name, with the stored options too. Raises StartError."""
    wanted = [listener for listener in listeners if listener.tls]
    if not wanted:
        return {}
    from eoslog.broker.security.tls import ListenerTls  # slow to import, and rarely needed

    try:
        return {listener.name: ListenerTls(listener, broker.config) for listener in wanted}
    except ConfigError as error:
        changed = sorted(name for name in broker.options.own if name.startswith(LISTENER_PREFIX))
        hint = (
            f" (set while the broker ran, in {broker.configs.path}: {', '.join(changed)})" if changed else ""
        )
        raise StartError(f"{error}{hint}") from error


def load_late_imports() -> None:
    """Import what the broker's files import late, so that nothing is imported while it serves. Takes 0.2 s.
    Raises ImportError.

    They import it late because commands and tests import those files too, and need neither NumPy nor pyarrow.
    An import takes up to half a second, in which no client is served, and it may fail.
    """
    import encodings.utf_16_le  # noqa: F401 (texts of committed offsets, which Kafka counts in these units)
    import json  # noqa: F401 (the log, with log.format=json)
    import shutil  # noqa: F401 (topics that are deleted)

    from eoslog.broker.log import cleaning  # noqa: F401
    from eoslog.protocol import walk  # noqa: F401

    compression.load()
    consumer_group_state.load()
    for key in handlers():
        assert APIS[key].request and APIS[key].response  # a module an API


FEW = 4096
"""With fewer than these a broker of many partitions and connections may run out."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:
            logger.warning(
                "the limit of open files stays %d, it cannot be raised to %d: %s", soft, hard, error
            )
    if 0 <= soft < FEW:
        logger.warning(
            "only %d files may be open: each partition and connection needs one. Raise it: ulimit -Hn", soft
        )
    return soft
