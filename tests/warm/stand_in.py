"""A process named java that starts Python as Spark's JVM does: one JSON command a line, one answer a line.

Run as `java stand_in.py`; nothing but the standard library.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

started: dict[int, subprocess.Popen[bytes]] = {}


def start(command: list[str], environment: dict[str, str], ignoring: bool) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignoring else signal.SIG_DFL)  # is inherited
    one = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}
    )
    started[one.pid] = one
    return one.pid


def read(pid: int, size: int) -> str:
    stdout = started[pid].stdout
    assert stdout is not None
    return (stdout.read(size) if size else stdout.read()).hex()


def close(pid: int) -> None:
    stdin = started[pid].stdin
    assert stdin is not None
    stdin.close()


def wait(pid: int) -> int:
    return started[pid].wait(30)


COMMANDS: dict[str, Callable[..., object]] = {"start": start, "read": read, "close": close, "wait": wait}

if __name__ == "__main__":
    for line in sys.stdin:
        name, *given = json.loads(line)
        print(json.dumps(COMMANDS[name](*given)), flush=True)
