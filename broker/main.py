"""The broker as a process: from its options to the ready line, and from a signal to its clean end."""

from __future__ import annotations

import asyncio
import errno
import gc
import signal
from collections.abc import Callable, Sequence

from eoslog.broker.broker import Broker
from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.broker.coordinator.transaction_journal import DamagedTransactionLog
from eoslog.broker.log.data_dir import DataDirError
from eoslog.broker.log.files import BadFile
from eoslog.broker.server import Server
from eoslog.protocol.errors import KafkaError

GRACE = 5.0
"""Seconds that begun requests have to end after a signal."""


class StartError(Exception):
    """The broker cannot start, or not end in order; the text says why and what to do."""


# What opening the rooms may raise about damaged data; their texts say which file and what is wrong.
_DAMAGE = (DamagedTransactionLog, BadFile, KafkaError)


def configure(data: str, listen: str, flush: str, settings: Sequence[str]) -> BrokerConfig:
    """The config for these options; `settings` are NAME=VALUE and win. Raises StartError."""
    host, colon, port = listen.rpartition(":")
    if not colon:
        raise StartError(f"--listen {listen}: give HOST:PORT, for instance 127.0.0.1:9092")
    options = {"log.dirs": data, "listen.host": host.strip("[]"), "listen.port": port, "flush.mode": flush}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise StartError(f"--config {setting}: give NAME=VALUE, for instance num.partitions=4")
        options[name.strip()] = value.strip()
    try:
        return BrokerConfig.from_options(options)
    except ConfigError as error:
        raise StartError(str(error)) from error


def run(config: BrokerConfig, on_ready: Callable[[str], None]) -> None:
    """Run a broker until SIGTERM or SIGINT; `on_ready` gets the line that says where. Raises StartError."""
    asyncio.run(_run(config, on_ready))


async def _run(config: BrokerConfig, on_ready: Callable[[str], None]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    server = Server()
    port = await _bind(server, config)
    broker = _open(config)
    try:
        await server.serve(broker)
        # What start-up made stays for ever: keep the garbage collector from walking it again and again.
        gc.collect()
        gc.freeze()
        where = f"{config.host}:{port}"
        on_ready(f"eoslog broker ready at {where} (data {config.log_dirs}, flush {config.flush})")
        await ended.wait()
        await server.stop(GRACE)
    finally:
        await _close(broker)


def _open(config: BrokerConfig) -> Broker:
    try:
        broker = Broker(config)
        broker.start()
        return broker
    except _DAMAGE as error:
        raise StartError(f"damaged data in {config.log_dirs}: {error}. Put it back from a copy") from error
    except DataDirError as error:
        raise StartError(f"{error} (give another --data?)") from error
    except OSError as error:
        raise StartError(
            f"data directory {config.log_dirs} cannot be used ({error}): mend that or give another --data"
        ) from error


async def _close(broker: Broker) -> None:
    try:
        await broker.close()
    except OSError as error:
        raise StartError(f"not all was saved ({error}): the next start recovers it from the logs") from error


async def _bind(server: Server, config: BrokerConfig) -> int:
    try:
        return await server.bind(config.host, config.port)
    except OSError as error:
        where = f"{config.host}:{config.port}"
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"address {where} is in use: stop the program that has it, or give another --listen"
                " (port 0 picks a free one)"
            ) from error
        reason = error.strerror or str(error)
        raise StartError(f"cannot listen on {where} ({reason}): give another --listen") from error
