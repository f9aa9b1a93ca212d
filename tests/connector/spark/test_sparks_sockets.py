"""Delayed acknowledgements: a sender like Spark's waits 40 ms for them, and not for ours."""

import os
import pickle
import socket
import statistics
import sys
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from eoslog.connector.offsets import plan
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.sink import task_writer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.source.reader import BatchReader, StreamReader
from eoslog.connector.spark import calls, sockets
from eoslog.connector.spark.sockets import acknowledge, acknowledging

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK is Linux's")

STALL_SECONDS = 0.035
"""Linux delays an acknowledgement by 40 ms."""
ROUNDS = 12


class Pair:
    """A connection as between a JVM and its Python process."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.jvm = socket.create_connection(server.getsockname())
            self.ours, _ = server.accept()
        for _ in range(20):  # no longer new: acknowledgements ride on answers
            self.jvm.sendall(b"ask")
            self.ours.recv(3)
            self.ours.sendall(b"answer")
            self.jvm.recv(6)

    def pieces(self) -> Iterator[bytes]:
        """What comes after a first small piece, in two more. Each waits until the one before is
        acknowledged."""
        for _ in range(3):
            self.jvm.sendall(b"x" * 10)
        for _ in range(3):
            yield self.ours.recv(10)

    def close(self) -> None:
        self.jvm.close()
        self.ours.close()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(sockets, "is_sparks", lambda: True)
    monkeypatch.setattr(sockets, "_sockets", sockets._Sockets(-1, ()))
    made = Pair()
    yield made
    made.close()


def seconds(pair: Pair, *, ours: bool) -> float:
    """The median of some rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        pieces = pair.pieces()
        assert list(acknowledging(pieces) if ours else pieces) == [b"x" * 10] * 3
        pair.ours.sendall(b"done")
        pair.jvm.recv(4)
        found.append(time.monotonic() - began)
    return statistics.median(found)


def test_the_next_piece_comes_at_once(pair: Pair) -> None:
    assert seconds(pair, ours=False) > STALL_SECONDS, "this machine acknowledges at once by itself"
    assert seconds(pair, ours=True) < STALL_SECONDS / 2


def test_our_own_small_pieces_go_at_once(pair: Pair) -> None:
    acknowledge()
    assert pair.ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_fork_looks_for_its_own_connections(pair: Pair) -> None:
    acknowledge()
    before = sockets._sockets
    child = os.fork()
    if not child:
        acknowledge()
        os._exit(0 if sockets._sockets.process == os.getpid() != before.process else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_closed_or_no_connection_is_passed_over(pair: Pair) -> None:
    acknowledge()
    pair.ours.close()
    acknowledge()
    with open(os.devnull) as other:  # the number comes again, for something else
        acknowledge()
        assert other.read() == ""


def test_tasks_acknowledge_before_they_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """When what to run has come, before each piece of rows, and at their end."""
    told: list[str] = []
    monkeypatch.setattr(calls, "acknowledge", lambda: told.append("called"))
    monkeypatch.setattr(sockets, "acknowledge", lambda: told.append("piece"))
    given = {"kafka.bootstrap.servers": "nowhere:9092", "subscribe": "t"}
    for made, stream in ((BatchReader, False), (StreamReader, True)):
        told.clear()
        read = pickle.loads(pickle.dumps(made(source_options(given, stream=stream))))
        assert told == ["called"]
        assert list(read.read(plan.Range("t", 0, 5, 5))) == []
        assert told == ["called", "piece", "called"]
    told.clear()
    to = {"kafka.bootstrap.servers": "nowhere:9092", "topic": "t", "processing.guarantee": "at_least_once"}
    rows = iter([pa.record_batch({"value": pa.array([], pa.binary())})] * 3)
    task_writer.write_rows(sink_options(to, stream=False), None, Attempt("q", 0, 0), rows)
    assert told == ["called", *["piece"] * 4]


def test_nothing_is_touched_in_a_process_that_is_not_sparks(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "is_sparks", lambda: False)
    calls.called()
    assert sockets._sockets.process == -1
    assert not pair.ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
