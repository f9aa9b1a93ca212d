"""The broker as a process: from its options to the ready line, and from a signal to its clean end."""

from __future__ import annotations

import asyncio
import errno
import gc
import signal
from collections.abc import Callable, Sequence

from eoslog.broker.broker import Broker
from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.broker.log.data_dir import DataDirError
from eoslog.broker.server import Server

GRACE = 5.0
"""Seconds that begun requests have to end after a signal."""


class StartError(Exception):
    """The broker cannot start; the text says why and what to do."""


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
        broker.start()
        await server.serve(broker)
        # What start-up made stays for ever: keep the garbage collector from walking it again and again.
        gc.collect()
        gc.freeze()
        where = f"{config.host}:{port}"
        on_ready(f"eoslog broker ready at {where} (data {config.log_dirs}, flush {config.flush})")
        await ended.wait()
        await server.stop(GRACE)
    finally:
        await broker.close()


def _open(config: BrokerConfig) -> Broker:
    try:
        return Broker(config)
    except DataDirError as error:
        raise StartError(f"{error} (give another --data?)") from error
    except OSError as error:
        raise StartError(
            f"data directory {config.log_dirs} cannot be used ({error}): mend that or give another --data"
        ) from error


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
