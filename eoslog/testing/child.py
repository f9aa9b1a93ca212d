"""A broker in a process of its own: `python -m eoslog.testing.child DESCRIPTOR [ARGUMENT ...]`.

The descriptor is one end of a private socket pair, inherited from the parent. When the parent ends, so does
the broker. With arguments it is `eoslog broker` with them. Without any it has faults. Then each line of JSON
is a message: the first one says what to run, later ones are commands (see `switchboard`), each with an
answer. The ready line goes to standard output, as for `eoslog broker`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from typing import Any

from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.broker.main import Node, StartError
from eoslog.broker.ports import log_output
from eoslog.commands import broker
from eoslog.testing.rules import Switchboard


def main() -> None:
    """Run until SIGTERM, SIGINT, a power loss, or the end of the parent."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    if arguments := sys.argv[2:]:
        threading.Thread(target=_end_with_parent, args=(channel,), daemon=True).start()
        broker.command(arguments, prog_name="eoslog broker")
    try:
        asyncio.run(_run(channel))
    except (StartError, ConfigError) as error:
        print(f"eoslog broker: {error}", file=sys.stderr)
        sys.exit(1)


def _end_with_parent(channel: socket.socket) -> None:
    channel.recv(1)  # nothing is ever sent: it returns when the parent's end is closed
    os.kill(os.getpid(), signal.SIGTERM)


async def _run(channel: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=channel)
    order = json.loads(await reader.readline())
    config = BrokerConfig.from_options(order["options"])
    log_output.begin(config.operations.logging_level, config.operations.logging_format)
    board = Switchboard(config.storage.log_dirs)
    for command in order["commands"]:
        board.carry_out(command)
    node = Node(config, board.fs, board.requests)
    await node.start()
    board.cut = node.server.cut
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    listener = asyncio.create_task(_listen(board, reader, writer))
    print(node.ready_line, flush=True)
    await asyncio.wait((listener, asyncio.create_task(ended.wait())), return_when=asyncio.FIRST_COMPLETED)
    await node.finish()
    await node.close()


async def _listen(board: Switchboard, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        command = json.loads(line)
        if command["do"] == "lose":
            board.carry_out(command)
            os.kill(os.getpid(), signal.SIGKILL)
        writer.write(json.dumps(_answer(board, command)).encode() + b"\n")
        await writer.drain()


def _answer(board: Switchboard, command: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": board.carry_out(command)}
    except Exception as error:  # the parent's mistake: reported there
        return {"error": repr(error)}


if __name__ == "__main__":
    main()
