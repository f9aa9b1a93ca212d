"""A broker made for tests: one thread a connection, answers from a table, faults on demand."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Self

from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.batch import read_header
from eoslog.protocol.frames import decode_request_header, encode_response
from eoslog.protocol.schema import Message


class Drop(Exception):
    """Raised by a handler: close the connection without an answer."""


class Silence(Exception):
    """Raised by a handler: never answer, but keep the connection."""


Handler = Callable[[int, Message], Message]


class FakeBroker:
    """Serves `handlers`; knows every topic asked for, with `partitions` partitions, all led by itself."""

    def __init__(
        self,
        handlers: dict[ApiKey, Handler] | None = None,
        *,
        partitions: int = 2,
        transaction_version: int = 2,
        versions: dict[ApiKey, tuple[int, int]] | None = None,
        ends_together: bool = False,
    ) -> None:
        self.handlers: dict[ApiKey, Handler] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            **(handlers or {}),
        }
        self.partitions, self.transaction_version = partitions, transaction_version
        self.ends_together = ends_together
        self.versions = {key: (api.min_version, api.max_version) for key, api in APIS.items()} | (
            versions or {}
        )
        self.requests: list[tuple[ApiKey, int, Message]] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()
        self.drop_all()

    def drop_all(self) -> None:
        """Cut every connection, as a restart does."""
        for peer in self._open:
            with contextlib.suppress(OSError):  # the other side may have closed it
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()
        self._open.clear()

    def seen(self, key: ApiKey) -> list[tuple[int, Message]]:
        """Version and body of the requests for one API."""
        return [(version, body) for api, version, body in self.requests if api == key]

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            while True:
                frame = _read(peer, struct.unpack(">i", _read(peer, 4))[0])
                header, pos = decode_request_header(frame)
                key = ApiKey(header.api_key)
                try:
                    answer = self._answer(key, header.api_version, frame, pos)
                except Silence:
                    continue
                parts = encode_response(
                    key, answer.pop("_version", header.api_version), header.correlation_id, answer
                )
                peer.sendall(b"".join(parts))
        except (OSError, Drop):
            peer.close()

    def _answer(self, key: ApiKey, version: int, frame: bytes, pos: int) -> Message:
        lowest, highest = self.versions.get(key, (0, -1))
        if not lowest <= version <= highest:
            assert key == ApiKey.API_VERSIONS, f"{key!r} v{version} was never offered"
            return {**self._api_versions(0, {}), "error_code": 35, "_version": 0}
        body, _ = APIS[key].request.read(version, frame, pos)
        self.requests.append((key, version, body))
        return self.handlers[key](version, body)

    def _api_versions(self, version: int, body: Message) -> Message:
        keys = [
            {"api_key": int(k), "min_version": a, "max_version": b} for k, (a, b) in self.versions.items()
        ]
        feature = {"name": "transaction.version", "max_version_level": self.transaction_version,
                   "min_version_level": self.transaction_version}  # fmt: skip
        extra: Message = (
            {"finalized_features_epoch": 1, "finalized_features": [feature]} if version >= 3 else {}
        ) | {"ends_together": self.ends_together}
        return {"error_code": 0, "api_keys": keys, **extra}

    def _metadata(self, version: int, body: Message) -> Message:
        topics = [
            {
                "error_code": 0,
                "name": topic["name"],
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": p,
                        "leader_id": 1,
                        "replica_nodes": [1],
                        "isr_nodes": [1],
                    }
                    for p in range(self.partitions)
                ],
            }
            for topic in body["topics"] or ()
        ]
        return {"brokers": [{"node_id": 1, "host": "127.0.0.1", "port": self.port}], "topics": topics}

    def _find_coordinator(self, version: int, body: Message) -> Message:
        where = {"node_id": 1, "host": "127.0.0.1", "port": self.port, "error_code": 0, "error_message": None}
        return {"coordinators": [{"key": key, **where} for key in body["coordinator_keys"]]}


class FakeLog:
    """Partitions that take batches by the rules of idempotence (KIP-98), and faults in the order given.

    Faults: `lost request`, `lost answer`, `not leader` (nothing applied), `not taken` (the answer says so).
    """

    def __init__(self, faults: list[str] | None = None, codes: dict[int, int] | None = None) -> None:
        self.faults = list(faults or ())
        self.codes = dict(codes or {})
        self.batches: dict[int, list[tuple[int, int]]] = {}

    def produce(self, version: int, body: Message) -> Message:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "lost request":
            raise Drop
        answers = []
        for topic in body["topic_data"]:
            parts = [self._partition(p["index"], bytes(p["records"]), fault) for p in topic["partition_data"]]
            answers.append({"name": topic["name"], "partition_responses": parts})
        if fault == "lost answer":
            raise Drop
        return {"responses": answers, "throttle_time_ms": 0}

    def _partition(self, index: int, records: bytes, fault: str) -> dict[str, Any]:
        header = read_header(records)
        assert header.size == len(records), "one batch a partition"
        taken = self.batches.setdefault(index, [])
        code, offset = (6 if fault == "not leader" else self.codes.pop(index, 0)), -1
        if not code:
            code, offset = self._append(taken, header.base_sequence, header.count)
        return {"index": index, "error_code": code, "base_offset": offset}

    @staticmethod
    def _append(taken: list[tuple[int, int]], sequence: int, count: int) -> tuple[int, int]:
        if sequence < 0:
            taken.append((sequence, count))
            return 0, 0
        if (sequence, count) in taken[-5:]:
            return 0, sequence
        # A producer that the partition does not know yet may begin anywhere: so Kafka takes it.
        if taken and sequence != sum(taken[-1]):
            return 45, -1
        taken.append((sequence, count))
        return 0, sequence


def _read(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise OSError("closed")
        data += piece
    return bytes(data)
