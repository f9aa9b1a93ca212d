"""Where nobody listens, a query says so after first.contact.timeout.ms, whatever Spark asks of it first."""

import socket
import time
from collections.abc import Callable

import pytest

from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.reader import BatchReader, StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import BrokerUnreachable


def nobody() -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    return {
        "kafka.bootstrap.servers": address,
        "subscribe": "orders",
        "first.contact.timeout.ms": "300",
        "kafka.request.timeout.ms": "20000",
    }


FIRST_CALLS: dict[str, Callable[[StreamReader], object]] = {
    "a new query": lambda reader: reader.initialOffset(),
    "availableNow": lambda reader: reader.prepareForTriggerAvailableNow(),
    "after a restart": lambda reader: reader.latestOffset({"orders": {"0": 1}}, ReadAllAvailable()),
    "a planned batch": lambda reader: reader.partitions({"orders": {"0": 1}}, {"orders": {"0": 2}}),
}


@pytest.mark.parametrize("first", FIRST_CALLS.values(), ids=FIRST_CALLS)
def test_a_stream_gives_up_soon(first: Callable[[StreamReader], object]) -> None:
    reader, began = StreamReader(source_options(nobody(), stream=True)), time.monotonic()
    with pytest.raises(BrokerUnreachable, match=r"first\.contact\.timeout\.ms"):
        first(reader)
    assert time.monotonic() - began < 5


def test_a_batch_gives_up_soon() -> None:
    began = time.monotonic()
    with pytest.raises(BrokerUnreachable, match=r"first\.contact\.timeout\.ms"):
        BatchReader(source_options(nobody(), stream=False)).partitions()
    assert time.monotonic() - began < 5
