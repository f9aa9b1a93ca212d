"""Everything that clients who mean harm can do, at once and for long; how long a good client waits meanwhile.

The harms are those of `HARMS`, each in a process of its own. The good client writes, reads and asks in turn,
one after another, and says how long each took; what it was told to be written is there once at the end. The
broker's memory and the size of its log are watched. Run by `make soak-hostile`.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import randbytes, random
from statistics import quantiles
from typing import Any

import psutil

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import HEADER_SIZE, build_batch
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create, read_all
from tests.broker.security.securitykit import STANDARD, Pki, free_ports, plain_jaas

MB = 1 << 20
PATIENCE = 20.0
ZSTD = 4
MANY = 20_000
ANSWERS = 64 * MB
REQUESTS = 64 * MB
MOST_MEMORY = 600 * MB
"""Of the broker: idle, the two limits, one largest request and answer, and what they take to make."""
MOST_WAIT_MS = 100.0
MOST_LOG_RATE = 100_000
"""Bytes a second."""

USER, PASSWORD = "carol", "carol-password"


class Place:
    """Where the broker is, as each process needs it."""

    def __init__(self, host: str, ports: dict[str, int]) -> None:
        self.host, self.ports = host, ports

    def wire(self, listener: str = "plain") -> Wire:
        return Wire(self.host, self.ports[listener], PATIENCE)

    def socket(self, listener: str) -> socket.socket:
        return socket.create_connection((self.host, self.ports[listener]), PATIENCE)


# Harms: each is done again and again until its process is ended


def denied(place: Place) -> None:
    """A large request of what is not allowed: each refusal is judged, and told in the log."""
    with place.wire("sasl") as wire:
        wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        topics = [{"name": f"not-yours\n{number}"} for number in range(MANY)]
        while True:
            wire.call(ApiKey.METADATA, 9, topics=topics)


def questions(place: Place) -> None:
    """Requests that name many things, and one thing many times."""
    names = [f"n{number}" for number in range(MANY)]
    with place.wire() as wire:
        while True:
            wire.call(ApiKey.DESCRIBE_GROUPS, 5, groups=names)
            named = [{"name": name} for name in names]
            wire.call(ApiKey.METADATA, 9, topics=named, allow_auto_topic_creation=False)
            resources = [{"resource_type": 2, "resource_name": "good"}] * MANY
            wire.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources)
            wire.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=names, key_type=0)


def lists(place: Place) -> None:
    """The longest lists that a request may have, of the shortest names, and longer ones."""
    partitions = [{"partition": number, "fetch_offset": 0} for number in range(99_999)]
    with place.wire() as wire:
        while True:
            wire.call(
                ApiKey.FETCH, 12, max_wait_ms=0, session_epoch=-1,
                topics=[{"topic": "not-there", "partitions": partitions}],
            )  # fmt: skip
            wire.call(ApiKey.LIST_OFFSETS, 7, topics=[{"name": "", "partitions": []}] * 100_000)
            wire.call(ApiKey.DELETE_TOPICS, 5, topic_names=[""] * MANY, timeout_ms=1000)
            with contextlib.suppress(OSError), place.wire() as longer:
                longer.call(ApiKey.LIST_OFFSETS, 7, topics=[{"name": "", "partitions": []}] * 1_000_000)


def bombs(place: Place) -> None:
    """A few kilobytes that unpack to a quarter of a gigabyte, for a topic whose records are looked at."""
    records = encode_records([(b"k", bytes(250 * MB))], 1)[HEADER_SIZE:]
    data = b"".join(build_batch([records], 1, base_timestamp=1, max_timestamp=1, codec=ZSTD))
    del records
    with place.wire() as wire:
        while True:
            part = {"index": 0, "records": data}
            wire.call(
                ApiKey.PRODUCE, 9, acks=-1, topic_data=[{"name": "compacted", "partition_data": [part]}]
            )


def deaf(place: Place) -> None:
    """Ask for much and read nothing."""
    while True:
        with contextlib.ExitStack() as stack:
            for _ in range(60):
                wire = stack.enter_context(place.wire())
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                for _ in range(10):
                    partition = {"partition": 0, "partition_max_bytes": 1 << 30}
                    wire.send(
                        ApiKey.FETCH, 12, max_wait_ms=1, min_bytes=1, max_bytes=1 << 30,
                        topics=[{"topic": "large", "partitions": [partition]}],
                    )  # fmt: skip
            time.sleep(5)


def guesses(place: Place) -> None:
    """Wrong passwords by SCRAM, as fast as they are refused."""
    while True:
        with contextlib.suppress(OSError), place.wire("sasl") as wire:
            wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
            first = f"n,,n=user{random()},r=nonce".encode()
            told = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=first)["auth_bytes"]
            nonce = told.split(b",")[0]
            final = b"c=biws," + nonce + b",p=" + b64encode(randbytes(32))
            wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=final)


def handshakes(place: Place) -> None:
    """TLS connections that say nothing, and some that say nonsense."""
    while True:
        held = []
        with contextlib.suppress(OSError):
            for number in range(200):
                held.append(place.socket("tls"))
                if number % 3 == 0:
                    held[-1].sendall(randbytes(200))
        time.sleep(2)
        for one in held:
            one.close()


def garbage(place: Place) -> None:
    """Bytes that are no request, or the beginning of a large one that does not go on."""
    while True:
        with contextlib.suppress(OSError), place.socket("plain") as raw:
            raw.sendall(struct.pack(">i", 90 * MB) + randbytes(MB) if random() < 0.5 else randbytes(5000))
            raw.settimeout(1)
            raw.recv(1)


def console(place: Place) -> None:
    """Wrong passwords, and headers that are no text."""
    while True:
        with contextlib.suppress(OSError), place.socket("console") as raw:
            word = b64encode(f"admin:{random()}".encode()) if random() < 0.5 else randbytes(50)
            raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + word + b"\r\n\r\n")
            raw.recv(1000)


HARMS: tuple[Callable[[Place], None], ...] = (
    denied, questions, lists, bombs, deaf, guesses, handshakes, garbage, console,
)  # fmt: skip


def _harm(harm: Callable[[Place], None], place: Place) -> None:
    """Do it until the end, whatever comes in between."""
    os.nice(15)  # the machine's time is not what is attacked
    while True:
        with contextlib.suppress(OSError, ConnectionError):
            harm(place)
        time.sleep(0.1)


# The good client


class Good(threading.Thread):
    """Writes, reads and asks in turn; `waits`: (milliseconds, what) of each since they were taken."""

    def __init__(self, place: Place) -> None:
        super().__init__(daemon=True)
        self._wire = place.wire()
        self.waits: list[tuple[float, str]] = []
        self.told: list[bytes] = []
        self.on = True
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            number = 0
            while self.on:
                number += 1
                self._timed("write", partial(self._write, b"%09d" % number))
                self._timed("read", self._read)
                self._timed("ask", lambda: self._wire.call(ApiKey.METADATA, 9, topics=[{"name": "good"}]))
                time.sleep(0.01)
        except BaseException as error:
            self.failure = error

    def _timed(self, what: str, do: Callable[[], Any]) -> None:
        begun = time.perf_counter()
        do()
        self.waits.append(((time.perf_counter() - begun) * 1000, what))

    def _write(self, value: bytes) -> None:
        part = {"index": 0, "records": encode_records([(b"", value)], int(time.time() * 1000))}
        answer = self._wire.call(
            ApiKey.PRODUCE, 9, acks=-1, topic_data=[{"name": "good", "partition_data": [part]}]
        )
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer
        self.told.append(value)

    def _read(self) -> None:
        partition = {"partition": 0, "partition_max_bytes": MB, "fetch_offset": len(self.told) - 1}
        answer = self._wire.call(
            ApiKey.FETCH, 12, max_wait_ms=20_000, min_bytes=1, max_bytes=MB,
            topics=[{"topic": "good", "partitions": [partition]}],
        )  # fmt: skip
        assert answer["responses"][0]["partitions"][0]["records"], answer

    def take(self) -> list[tuple[float, str]]:
        """The waits since the last call."""
        taken, self.waits = self.waits, []
        return taken


# The soak


@contextlib.contextmanager
def attacked(
    directory: Path, harms: tuple[Callable[[Place], None], ...]
) -> Iterator[tuple[EmbeddedBroker, Place]]:
    """A broker with all its doors open, and who does harm."""
    pki = Pki(directory)
    sasl, tls, door = free_ports(3)
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{sasl},SSL://127.0.0.1:{tls}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas(
            **{USER: PASSWORD, "admin": "secret"}
        ),
        "ssl.keystore.location": str(pki.broker),
        "authorizer.class.name": STANDARD,
        "super.users": "User:ANONYMOUS;User:admin",
        "console.listen": f"127.0.0.1:{door}",
        "queued.max.response.bytes": str(ANSWERS),
        "queued.max.request.bytes": str(REQUESTS),
        "connections.max.stalled.ms": "5000",
    }
    with EmbeddedBroker(directory / "data", config=config, log_level="info") as broker:
        ports = {"plain": broker.port, "sasl": sasl, "tls": tls, "console": door}
        place = Place(broker.host, ports)
        _prepare(broker, place)
        begun = [multiprocessing.Process(target=_harm, args=(harm, place), daemon=True) for harm in harms]
        for process in begun:
            process.start()
        try:
            yield broker, place
        finally:
            for process in begun:
                process.kill()
                process.join()


def _prepare(broker: EmbeddedBroker, place: Place) -> None:
    create(broker.bootstrap, "good", 1)
    create(broker.bootstrap, "compacted", 1, **{"cleanup.policy": "compact"})
    create(broker.bootstrap, "large", 1)
    with place.wire() as wire:
        for _ in range(60):
            part = {"index": 0, "records": encode_records([(b"", bytes(900_000))], 1)}
            wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[{"name": "large", "partition_data": [part]}])


def main() -> int:
    """Soak; the exit status says whether the good client was served in time and nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", default="", help="harms by name, with commas")
    arguments = parser.parse_args()
    chosen = tuple(harm for harm in HARMS if not arguments.only or harm.__name__ in arguments.only.split(","))
    print("harms:", ", ".join(harm.__name__ for harm in chosen), flush=True)
    with tempfile.TemporaryDirectory(prefix="eoslog-hostile-") as directory:
        return _soak(Path(directory), chosen, arguments.minutes * 60)


def _soak(directory: Path, harms: tuple[Callable[[Place], None], ...], seconds: float) -> int:
    wrong: list[str] = []
    with attacked(directory, harms) as (broker, place):
        process = psutil.Process(broker.pid)
        time.sleep(3)
        good = Good(place)
        good.start()
        everything: list[float] = []
        most, logged, begun = 0, _log_of(broker).stat().st_size, time.monotonic()
        while time.monotonic() < begun + seconds and good.failure is None:
            until = min(time.monotonic() + 15, begun + seconds)
            peak = 0
            while time.monotonic() < until:
                peak = max(peak, process.memory_info().rss)
                time.sleep(0.05)
            waits = good.take()
            everything += [wait for wait, _ in waits]
            most = max(most, peak)
            _tell(time.monotonic() - begun, waits, peak, _log_of(broker).stat().st_size - logged)
        spent = time.monotonic() - begun
        good.on = False
        good.join(PATIENCE)
        if good.failure is not None:
            wrong.append(f"the good client failed: {good.failure!r}")
        p99 = quantiles(everything, n=100)[98] if len(everything) > 1 else float("inf")
        if p99 > MOST_WAIT_MS:
            wrong.append(f"its p99 was {p99:.0f} ms, more than {MOST_WAIT_MS:.0f}")
        if most > MOST_MEMORY:
            wrong.append(f"the broker took {most / MB:.0f} MB, more than {MOST_MEMORY / MB:.0f}")
        if (rate := (_log_of(broker).stat().st_size - logged) / spent) > MOST_LOG_RATE:
            wrong.append(f"{rate:.0f} bytes of log a second, more than {MOST_LOG_RATE}")
        if b"Traceback" in _log_of(broker).read_bytes():
            wrong.append("a traceback in the log")
        seen = [message.value() for message in read_all(broker.bootstrap, "good")]
        if seen[: len(good.told)] != good.told or len(seen) > len(good.told) + 1:
            wrong.append(f"{len(good.told)} records were told to be written, {len(seen)} are there")
    print(
        f"{len(everything)} requests in {spent:.0f} s: p99 {p99:.1f} ms, longest {max(everything):.0f}; "
        f"the broker took {most / MB:.0f} MB; {rate:.0f} bytes of log a second"
    )
    for text in wrong:
        print("WRONG:", text)
    return int(bool(wrong))


def _log_of(broker: EmbeddedBroker) -> Path:
    """All that it has logged; `output` is the first megabyte."""
    return Path(f"/proc/{broker.pid}/fd/2")


def _tell(at: float, waits: list[tuple[float, str]], peak: int, logged: int) -> None:
    if len(waits) < 2:
        print(f"{at:5.0f} s: {len(waits)} requests", flush=True)
        return
    times = [wait for wait, _ in waits]
    longest, what = max(waits)
    print(
        f"{at:5.0f} s: {len(waits)} requests, p50 {quantiles(times, n=2)[0]:.1f} ms, p99 "
        f"{quantiles(times, n=100)[98]:.1f}, longest {longest:.0f} ({what}); {peak / MB:.0f} MB; "
        f"{logged} bytes logged",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
