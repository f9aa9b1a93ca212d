"""On the way of a Produce to the disk the header of a batch is read once, and handed on."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from eoslog.protocol import batch
from eoslog.protocol.apis import ApiKey
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create
from tests.broker.log.logkit import sequenced


class Counting:
    """Reads and makes headers as `layout` does, and counts how many are read."""

    def __init__(self, layout: struct.Struct) -> None:
        self._layout, self.read = layout, 0

    def unpack_from(self, buf: batch.Buffer, pos: int) -> tuple[Any, ...]:
        self.read += 1
        return self._layout.unpack_from(buf, pos)

    def pack(self, *values: int) -> bytes:
        return self._layout.pack(*values)


@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
def test_a_produce_reads_each_header_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamped: str
) -> None:
    with EmbeddedBroker(data=tmp_path, in_thread=True) as broker:
        create(broker.bootstrap, "t", **{"message.timestamp.type": stamped})
        host, _, port = broker.bootstrap.rpartition(":")
        with Wire(host, int(port)) as wire:
            parts = [{"index": 0, "records": sequenced(7, 0, 2)}]
            counting = Counting(batch._HEADER)
            monkeypatch.setattr(batch, "_HEADER", counting)
            told = wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[{"name": "t", "partition_data": parts}])
            assert counting.read == 1
    (answer,) = told["responses"][0]["partition_responses"]
    assert (answer["error_code"], answer["base_offset"]) == (0, 0)
    data = (tmp_path / "t-0" / "00000000000000000000.log").read_bytes()
    ((at, header),) = batch.iter_headers(data)
    assert batch.crc_ok(data, at, header) and header.log_append_time is (stamped == "LogAppendTime")
