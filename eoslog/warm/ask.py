"""What Spark starts when warm processes are wanted: asks for a fork, and lives as long as the fork does."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
import zlib
from typing import NoReturn

from eoslog.version import __version__
from eoslog.warm.request import RUNS, Request, begins, for_imports, has_threads

ANSWER_SECONDS = 4.0
"""If the warm process sends nothing for this long, this process runs by itself, and has time left for that:
Spark gives it ten seconds. While the warm process imports, it sends a message after each module. It is killed
if it has not even worked.
"""
_BIND_SECONDS = 1.0
"""How long another of Spark's processes may take between binding the name of a warm process and listening."""
_QUEUE = 64
LONGEST = 4096
"""The most bytes in an answer."""
WAIT, YES, GO = b"wait", b"yes", b"go"
STANDARD = 0, 1, 2


OFF = "EOSLOG_WARM"
"""The variable that turns `at_start` off: EOSLOG_WARM=0."""


def at_start(arguments: list[str]) -> None:
    """What a start of Python with `-m pyspark...` does where pip has installed eoslog (packaging/eoslog.pth).

    It is silent, and begins a warm process only where Spark looks for Python data sources: a program that has
    none gets none.
    """
    if os.environ.get(OFF) != "0":
        hand_over(arguments, by_itself=True)


def hand_over(arguments: list[str], *, by_itself: bool = False) -> None:
    """Have a fork of the JVM's warm process run `python *arguments`, and end as it ends.

    Returns if that is not possible: Spark does not start this for itself, or it wants threads; our parent is
    not Spark's JVM, the system is not Linux, or there is no warm process. `by_itself`: nobody has asked for
    it, so it is silent and begins none where no data source is looked for.
    """
    if arguments[:1] != ["-m"] or len(arguments) < 2 or arguments[1] not in RUNS or has_threads(os.environ):
        return
    jvm = os.getppid()
    name = address(jvm)
    if name is None:
        return
    global _silent
    _silent = by_itself
    request = wanted(arguments[1], arguments[2:])
    try:
        connection = _connect(name)
        if connection is None and (not by_itself or begins(request)):
            connection = _begin(name, jvm) or _connect(name, _BIND_SECONDS)
        if connection is not None and _is_taken(connection, request):
            _live_as_long(connection)
    except OSError as error:
        _report(str(error))


def address(jvm: int) -> str | None:
    """Where the JVM's warm process listens: an abstract name, without a file, which is free once its owner
    ends.
    """
    if sys.platform != "linux":
        return None
    try:
        with open(f"/proc/{jvm}/stat") as file:
            command, _, rest = file.read().rpartition(")")
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None
    if not command.endswith("(java"):
        return None
    like = zlib.crc32("\0".join((sys.executable, sys.version, __version__)).encode())
    return f"\0eoslog-warm-{os.geteuid()}-{space}-{jvm}-{rest.split()[19]}-{like:08x}"


def wanted(module: str, arguments: list[str]) -> Request:
    """The request for the process that this one would be."""
    umask = os.umask(0o077)
    os.umask(umask)
    ignores = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    return Request(module, arguments, dict(os.environ), os.getcwd(), umask, ignores)


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process id and user id of the peer."""
    size = 12  # three ints: process, user, group
    credentials = memoryview(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)).cast("i")
    return credentials[0], credentials[1]


def _connect(name: str, patience: float = 0.0) -> socket.socket | None:
    until = time.monotonic() + patience
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(name)
        except ConnectionRefusedError:
            connection.close()
        else:
            if peer(connection)[1] == os.geteuid():
                return connection
            connection.close()  # another user has taken the name
            return None
        if time.monotonic() >= until:
            return None
        time.sleep(0.005)


def _begin(name: str, jvm: int) -> socket.socket | None:
    """Start the warm process, and connect to it. None if another process has just done so."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        try:
            listening.bind(name)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        listening.listen(_QUEUE)
        listening.set_inheritable(True)
        command = [sys.executable, "-m", "eoslog.warm", str(listening.fileno()), str(jvm)]
        nothing = os.open(os.devnull, os.O_RDWR)
        streams = [(os.POSIX_SPAWN_DUP2, nothing, 0), (os.POSIX_SPAWN_DUP2, nothing, 1)]
        os.posix_spawn(sys.executable, command, for_imports(os.environ), file_actions=streams)
        os.close(nothing)
        return _connect(name)


def _is_taken(connection: socket.socket, request: Request) -> bool:
    """Whether a fork starts in our place. True: it has started. False: it never will."""
    connection.settimeout(ANSWER_SECONDS)
    process, _ = peer(connection)
    worked = _processor_time(process)
    try:
        socket.send_fds(connection, [request.encode()], STANDARD)
        while (answer := connection.recv(LONGEST)) == WAIT:
            pass
        if answer != YES:
            _report(answer.decode(errors="replace") or "the warm process has ended")
            connection.close()
            return False
        connection.send(GO)
        connection.settimeout(None)
        return True
    except TimeoutError:
        connection.close()
        if _processor_time(process) == worked:
            _end_the_stuck(process)
        else:
            _report(f"the warm process {process} has much to do")
    except OSError:
        connection.close()
    return False


def _processor_time(process: int) -> list[str]:
    """What the system has counted of it so far, in user and system mode."""
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[11:13]


def _end_the_stuck(process: int) -> None:
    """Kill it, so that no other process waits for it. Its forks live on: they do not need it."""
    with open(f"/proc/{process}/cmdline", "rb") as file:
        is_warm = b"eoslog.warm" in file.read()
    if is_warm:
        _report(f"the warm process {process} has not answered within {ANSWER_SECONDS:g} s and is killed")
        os.kill(process, signal.SIGKILL)


_silent = False


def _report(why: str) -> None:
    if _silent:
        return
    print(f"eoslog-python: {' '.join(sys.argv[1:])} is no fork of a warm process: {why}", file=sys.stderr)


def _live_as_long(connection: socket.socket) -> NoReturn:
    """Wait for the fork's end, and end in the same way: for Spark, this process is the one it wanted. If this
    process is killed, the warm process notices at its end of the connection.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        ended = connection.recv(16)
    except OSError:
        ended = b""
    status = int(ended) if ended else 1  # no status: the warm process, which would send it, has ended too
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
