"""The warm process: imports what Spark's Python processes need, and forks itself on request.

It has one thread, keeps no secrets and only its clients' connections, and ends with its JVM. Its forks do not
depend on it: if it is killed, they live on, and Spark's next process starts another one.
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
from collections.abc import Iterator, Set
from enum import Enum, auto
from typing import NamedTuple

from eoslog.warm.ask import GO, LONGEST, WAIT, YES, peer
from eoslog.warm.request import SOURCE_RUNNER, Request, decode, differences

_SINKS = "eoslog.connector.sink.stream_writer", "eoslog.connector.sink.batch_writer"


class Stage(NamedTuple):
    """Modules to import. `workers`: whose processes need only these and the earlier stages'; None: all
    processes'.
    """

    modules: tuple[str, ...]
    workers: Set[str] | None


STAGES = (
    Stage(
        ("pyspark.daemon", "pyspark.sql.worker.lookup_data_sources", "pyspark_eoslog"),
        {"pyspark.sql.worker.lookup_data_sources"},
    ),
    Stage(
        (
            "pyspark.sql.worker.create_data_source",
            "eoslog.connector.spark.columns",
            "eoslog.connector.source.reader",
            "eoslog.client.records.fetch_small",
            "eoslog.connector.source.read_range",
            "eoslog.connector.sink.task_writer",
            "encodings.idna",
            SOURCE_RUNNER,
            *_SINKS,
            "pyspark.sql.worker.write_into_data_source",
            "pyspark.sql.worker.commit_data_source_write",
            "pyspark.sql.worker.python_streaming_sink_runner",
        ),
        {
            "pyspark.sql.worker.create_data_source",
            "pyspark.sql.worker.write_into_data_source",
            "pyspark.sql.worker.commit_data_source_write",
            "pyspark.sql.worker.python_streaming_sink_runner",
            SOURCE_RUNNER,
        },
    ),
    Stage(
        (
            "pandas",
            "pyspark.sql.worker.plan_data_source_read",
            "pyspark.sql.classic.dataframe",
            "pyspark.worker",
        ),
        None,
    ),
)


ORPHAN_SECONDS = 10.0
"""Seconds that a fork may outlive Spark's JVM, whose end it notices by its own connections."""
_LARGEST = 1 << 20
_STREAMS = 3
"""The number of standard streams that come with a request."""


class GuestStep(Enum):
    """How far a guest has come."""

    ASKS = auto()
    WAITS = auto()
    PROMISED = auto()
    FORKED = auto()


class Guest:
    """A process that Spark has started: it waits for an answer, then for the end of its fork.

    `request` is set from WAITS on, `fork` (a process id) from FORKED on; `streams` are set until then.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.step = GuestStep.ASKS
        self.request: Request | None = None
        self.streams: list[int] = []
        self.fork = 0

    def close_streams(self) -> None:
        """Close the streams here, after the fork has its own copies."""
        while self.streams:
            os.close(self.streams.pop())

    def close(self) -> None:
        """Close its streams and its connection."""
        self.close_streams()
        self.connection.close()


class WarmServer:
    """Answers guests, and forks. `jvm` is a descriptor of Spark's JVM that becomes readable when the JVM
    ends.
    """

    def __init__(self, listening: socket.socket, jvm: int, like: Request) -> None:
        self._listening, self._jvm, self._like = listening, jvm, like
        self._guests: dict[int, Guest] = {}
        self._forks: dict[int, Guest] = {}
        self._workers: set[str] = set()
        self._is_ready = False
        self._poll = select.poll()
        for descriptor in (listening.fileno(), jvm):
            self._poll.register(descriptor, select.POLLIN)

    def serve(self) -> Guest | None:
        """Return in each fork, with its guest; in the warm process only when Spark's JVM has ended, with
        None.
        """
        for milliseconds in self._imports_and_then():
            for descriptor, _ in self._poll.poll(milliseconds):
                if descriptor == self._jvm:
                    self._end_orphans()
                    return None
                guest = self._answer(descriptor)
                if guest is not None:
                    return guest
        return None

    def _imports_and_then(self) -> Iterator[int | None]:
        """Import stage by stage. Yields how long to wait for guests: 0 until everything is imported."""
        gc.disable()
        for stage in STAGES:
            for module in stage.modules:
                with contextlib.suppress(ImportError):  # a process that needs the module reports it missing
                    importlib.import_module(module)
                self._answer_waiting()
                yield 0
            gc.freeze()
            self._workers |= stage.workers or set()
            self._is_ready = stage.workers is None
            self._answer_waiting()
        gc.enable()
        while True:
            yield None

    def _answer(self, descriptor: int) -> Guest | None:
        """Handle what can be read on a descriptor. Returns a guest only in its fork."""
        if descriptor == self._listening.fileno():
            self._welcome()
        elif descriptor in self._forks:
            self._report_end(descriptor)
        elif descriptor in self._guests:
            return self._hear(self._guests[descriptor])
        return None

    def _welcome(self) -> None:
        connection, _ = self._listening.accept()
        if peer(connection)[1] != os.geteuid():
            connection.close()
            return
        self._guests[connection.fileno()] = Guest(connection)
        self._poll.register(connection, select.POLLIN)

    def _hear(self, guest: Guest) -> Guest | None:
        """Handle a message from a guest, or its end. Returns a guest only in its fork."""
        try:
            if guest.step is GuestStep.ASKS:
                self._consider(guest)
            elif guest.step is GuestStep.FORKED:
                os.kill(guest.fork, signal.SIGTERM)  # Spark has killed the process that the fork runs for
                self._poll.unregister(guest.connection)
            elif guest.step is GuestStep.PROMISED and guest.connection.recv(LONGEST) == GO:
                return self._fork(guest)
            else:
                self._leave(guest)
        except OSError:
            self._leave(guest)
        return None

    def _consider(self, guest: Guest) -> None:
        message, guest.streams, _, _ = socket.recv_fds(guest.connection, _LARGEST, _STREAMS)
        try:
            guest.request = decode(message)
        except (ValueError, TypeError) as error:
            self._refuse(guest, f"the request is not valid: {error}")
            return
        if found := differences(self._like, guest.request):
            self._refuse(guest, f"libraries may have been imported with other settings: {', '.join(found)}")
        elif len(guest.streams) != _STREAMS:
            self._refuse(guest, "standard streams are missing")
        elif len(os.listdir("/proc/self/task")) != 1:
            self._refuse(guest, "a library has started a thread, which a fork would lose")
        else:
            guest.step = GuestStep.WAITS
            self._answer_waiting()

    def _refuse(self, guest: Guest, why: str) -> None:
        with contextlib.suppress(OSError):
            guest.connection.send(why.encode(errors="replace")[:LONGEST])
        self._leave(guest)

    def _answer_waiting(self) -> None:
        """Promise a fork to each guest for which everything is imported; tell the others to keep waiting."""
        for guest in [one for one in self._guests.values() if one.step is GuestStep.WAITS]:
            assert guest.request is not None
            has_all = self._is_ready or guest.request.worker() in self._workers
            try:
                guest.connection.send(YES if has_all else WAIT)
            except OSError:
                self._leave(guest)
            else:
                guest.step = GuestStep.PROMISED if has_all else GuestStep.WAITS

    def _fork(self, guest: Guest) -> Guest | None:
        guest.fork = os.fork()
        if not guest.fork:
            self._forget_all_but(guest)
            return guest
        guest.step = GuestStep.FORKED
        guest.close_streams()
        descriptor = os.pidfd_open(guest.fork)
        self._forks[descriptor] = guest
        self._poll.register(descriptor, select.POLLIN)
        return None

    def _forget_all_but(self, guest: Guest) -> None:
        """In a fork: close all that belongs to other forks."""
        for descriptor in (self._jvm, *self._forks):
            os.close(descriptor)
        for other in self._guests.values():
            if other is not guest:
                other.close()

    def _report_end(self, descriptor: int) -> None:
        guest = self._forks.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(guest.fork, 0)
        with contextlib.suppress(OSError):
            guest.connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        self._leave(guest)

    def _leave(self, guest: Guest) -> None:
        self._guests.pop(guest.connection.fileno(), None)
        with contextlib.suppress(KeyError):  # the fork was told to end
            self._poll.unregister(guest.connection)
        guest.close()

    def _end_orphans(self) -> None:
        """Wait for the forks: they end by themselves, since the JVM's end closes their connections. Kill the
        rest.
        """
        until = time.monotonic() + ORPHAN_SECONDS
        ends = select.poll()
        for descriptor in self._forks:
            ends.register(descriptor, select.POLLIN)
        while self._forks and (left := until - time.monotonic()) > 0:
            for descriptor, _ in ends.poll(left * 1000):
                ends.unregister(descriptor)
                self._report_end(descriptor)
        for guest in self._forks.values():
            os.kill(guest.fork, signal.SIGKILL)


def reseed_numpy() -> None:
    """Seed NumPy again, so that a fork's random numbers differ from its parent's; Python does so for
    `random`.
    """
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()


def become(guest: Guest, jvm: int) -> None:
    """Do what Python would do if Spark had started it so. Returns when that has run."""
    from eoslog.connector.spark import processes

    request = guest.request
    assert request is not None
    with open("/proc/self/comm", "w") as name:
        name.write(request.name())
    os.environ.clear()
    os.environ.update(request.environment)
    os.umask(request.umask)
    signal.signal(signal.SIGINT, signal.SIG_IGN if request.ignores_interrupts else signal.default_int_handler)
    for standard, stream in enumerate(guest.streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.register_at_fork(after_in_child=guest.connection.close)  # a daemon's workers do not keep it
    processes.driver_is(jvm)
    gc.enable()
    gc.freeze()
    sys.modules.pop(request.module, None)  # it runs again, as __main__
    sys.argv = [request.module, *request.arguments]
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)
