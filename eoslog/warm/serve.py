"""The warm process: imports what Spark's Python processes need, and forks itself for whoever asks.

It has one thread, keeps no secret and no connection but those of who asks, and ends with its JVM. Its forks
need nothing of it: killed, it takes nobody with it, and the next process of Spark's begins another.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from eoslog.warm.ask import GO, WAIT, YES, peer, wanted
from eoslog.warm.request import Request, begun_with, decode, differences
from eoslog.warm.sparks_zip import prefer_installed
from eoslog.warm.stages import PANDAS, STAGES

ORPHAN_SECONDS = 10.0
"""How long a fork may outlive Spark's JVM, which it notices by its own connections."""
_LARGEST = 1 << 20
_LONGEST = 1000
"""Characters of a refusal."""
_HELD = 3
"""Standard streams that come with a request."""


class Job(NamedTuple):
    """What a fork is for, and what it was given."""

    request: Request
    streams: list[int]
    connection: socket.socket


class Guest:
    """Who asks: Spark's process, which waits for an answer, then for the end of its fork."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.job: Job | None = None
        self.is_promised = False
        self.fork = 0


class Warm:
    """Answers, and forks. `jvm` is a descriptor of Spark's JVM that can be read when it has ended."""

    def __init__(self, listening: socket.socket, jvm: int, like: Request) -> None:
        self._listening, self._jvm, self._like = listening, jvm, like
        self._guests: dict[int, Guest] = {}
        self._forks: dict[int, Guest] = {}
        self._workers: set[str] = set()
        self._is_ready = False
        self._poll = select.poll()
        for descriptor in (listening.fileno(), jvm):
            self._poll.register(descriptor, select.POLLIN)

    def serve(self) -> Job | None:
        """Returns in each fork, with what it is to do; None when Spark's JVM has ended."""
        for _ in self._imports():
            ended, job = self._answer(0.0)
            if job or ended:
                return job
        while True:
            ended, job = self._answer(None)
            if job or ended:
                return job

    def _imports(self) -> Iterator[None]:
        """Import stage by stage; yields whenever somebody may have been waiting."""
        gc.disable()
        for stage in STAGES:
            for module in stage.modules:
                with contextlib.suppress(ImportError) if module == PANDAS else contextlib.nullcontext():
                    importlib.import_module(module)
                self._answer_who_waits()
                yield
            gc.freeze()
            self._workers |= stage.workers or set()
            self._is_ready = stage.workers is None
            self._answer_who_waits()
            yield
        gc.enable()

    def _answer(self, seconds: float | None) -> tuple[bool, Job | None]:
        """Whether the JVM has ended; and what to do, in a fork."""
        for descriptor, _ in self._poll.poll(None if seconds is None else seconds * 1000):
            if descriptor == self._jvm:
                self._end_orphans()
                return True, None
            if descriptor == self._listening.fileno():
                self._welcome()
            elif descriptor in self._forks:
                self._tell_end(descriptor)
            elif descriptor in self._guests:
                job = self._hear(self._guests[descriptor])
                if job is not None:
                    return False, job
        return False, None

    def _welcome(self) -> None:
        connection, _ = self._listening.accept()
        if peer(connection)[1] != os.geteuid():
            connection.close()
            return
        self._guests[connection.fileno()] = Guest(connection)
        self._poll.register(connection, select.POLLIN)

    def _hear(self, guest: Guest) -> Job | None:
        """Something came from a guest, or its end. Returns in a fork with its job."""
        try:
            if guest.job is None:
                self._consider(guest)
            elif guest.connection.recv(16) == GO and guest.is_promised and not guest.fork:
                return self._fork(guest)
            elif guest.fork:
                os.kill(guest.fork, signal.SIGTERM)  # Spark has killed who stood for it
                self._poll.unregister(guest.connection)
            else:
                self._leave(guest)
        except OSError:
            self._leave(guest)
        return None

    def _consider(self, guest: Guest) -> None:
        message, streams, _, _ = socket.recv_fds(guest.connection, _LARGEST, _HELD)
        try:
            request = decode(message)
            found = differences(self._like, request)
        except (ValueError, TypeError):
            found = ["what is asked"]
        if len(streams) != _HELD:
            found = ["standard streams"]
        if _threads() != 1:
            found = ["a library has begun a thread, which a fork would lose"]
        if found:
            for stream in streams:
                os.close(stream)
            with contextlib.suppress(OSError):
                guest.connection.send(f"{', '.join(found)[:_LONGEST]} (differs)".encode())
            self._leave(guest)
            return
        guest.job = Job(request, list(streams), guest.connection)
        self._answer_who_waits()

    def _answer_who_waits(self) -> None:
        """A fork is promised to whom it would have all that it needs; others are told to wait on."""
        for guest in list(self._guests.values()):
            if guest.job is None or guest.is_promised:
                continue
            guest.is_promised = self._is_ready or guest.job.request.worker() in self._workers
            try:
                guest.connection.send(YES if guest.is_promised else WAIT)
            except OSError:
                self._leave(guest)

    def _fork(self, guest: Guest) -> Job | None:
        job = guest.job
        assert job is not None
        fork = os.fork()
        if not fork:
            self._forget_all_but(job)
            return job
        guest.fork = fork
        self._close_streams(guest)
        descriptor = os.pidfd_open(fork)
        self._forks[descriptor] = guest
        self._poll.register(descriptor, select.POLLIN)
        return None

    def _tell_end(self, descriptor: int) -> None:
        guest = self._forks.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(guest.fork, 0)
        with contextlib.suppress(OSError):
            guest.connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        self._leave(guest)

    def _leave(self, guest: Guest) -> None:
        self._guests.pop(guest.connection.fileno(), None)
        with contextlib.suppress(KeyError):
            self._poll.unregister(guest.connection)
        self._close_streams(guest)
        guest.connection.close()

    @staticmethod
    def _close_streams(guest: Guest) -> None:
        while guest.job is not None and guest.job.streams:
            os.close(guest.job.streams.pop())

    def _forget_all_but(self, job: Job) -> None:
        """In a fork: it holds nothing that belongs to the warm process or to other forks."""
        self._listening.close()
        for descriptor in (self._jvm, *self._forks):
            os.close(descriptor)
        for guest in self._guests.values():
            if guest.connection is not job.connection:
                self._close_streams(guest)
                guest.connection.close()

    def _end_orphans(self) -> None:
        """Forks end by themselves: the JVM's ends of their connections are closed. The others are ended."""
        until = time.monotonic() + ORPHAN_SECONDS
        while self._forks and time.monotonic() < until:
            for descriptor, _ in self._poll.poll(100):
                if descriptor in self._forks:
                    self._tell_end(descriptor)
                elif descriptor != self._jvm:
                    time.sleep(0.01)
        for guest in self._forks.values():
            os.kill(guest.fork, signal.SIGKILL)


def main(listening: int, jvm: int) -> None:
    """Serve until the JVM with this process id has ended; in a fork, become what was asked for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prefer_installed(sys.path)
    with socket.socket(fileno=listening) as connections:
        connections.listen(socket.SOMAXCONN)  # says anew whose it is: who began it did so first
        like = wanted("", [])
        like = like._replace(environment=begun_with(like.environment))
        os.register_at_fork(after_in_child=_draw_anew)
        job = Warm(connections, os.pidfd_open(jvm), like).serve()
    if job is not None:
        _become(job, jvm)


def _become(job: Job, jvm: int) -> None:
    """In a fork: be what Python would be that Spark started so."""
    from eoslog.connector import memory

    request = job.request
    os.environ.clear()
    os.environ.update(request.environment)
    os.umask(request.umask)
    signal.signal(signal.SIGINT, signal.SIG_IGN if request.ignores_interrupts else signal.default_int_handler)
    for standard, stream in enumerate(job.streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.register_at_fork(after_in_child=job.connection.close)  # a daemon's workers do not stand for it
    memory.driver_is(jvm)
    gc.enable()
    gc.freeze()
    sys.modules.pop(request.module, None)  # it runs anew, as __main__
    sys.argv = [request.module, *request.arguments]
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


def _draw_anew() -> None:
    """Forks draw other numbers from NumPy than their parent, as Python sees to for `random`."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))
