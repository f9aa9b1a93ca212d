"""A query that begins where a group stands (startingOffsets=committed): what it waits for, and says."""

import time
from typing import Any

import pytest

from eoslog.client.wire.cluster import close_shared
from eoslog.connector.commit.faults import StartsElsewhere
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.offsets.offsets import COMMITTED, Offsets
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.protocol.apis import ApiKey
from tests.client.fake_broker import FakeBroker, Handler

BY_US = Note("ours", "q", 4).text()


def start(notes: list[str], pending_seconds: float = 0) -> Offsets:
    """Where the group stands; its offset in each partition is 5, and pending for so long."""
    since: list[float] = []

    def committed(version: int, body: Any) -> Any:
        since.append(time.monotonic())
        code = 88 if since[-1] - since[0] < pending_seconds else 0
        parts = [
            {"partition_index": p, "committed_offset": 5, "metadata": note, "error_code": code}
            for p, note in enumerate(notes)
        ]
        return {"error_code": 0, "topics": [{"name": "t", "partitions": parts}]}

    def ends(version: int, body: Any) -> Any:
        parts = body["topics"][0]["partitions"]
        found = [
            {"partition_index": p["partition_index"], "offset": 0 if p["timestamp"] == -2 else 9}
            for p in parts
        ]
        return {"topics": [{"name": "t", "partitions": found}]}

    handlers: dict[ApiKey, Handler] = {ApiKey.OFFSET_FETCH: committed, ApiKey.LIST_OFFSETS: ends}
    with FakeBroker(handlers, partitions=len(notes)) as broker:
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "subscribe": "t"}
        given |= {"startingOffsets": "committed", "kafka.group.id": "g"}
        options = source_options(given | {"kafka.default.api.timeout.ms": "50"}, stream=True)
        try:
            return SourceTopics(options).resolve("startingOffsets", COMMITTED)
        finally:
            close_shared(options.client)


def test_the_lowest_end_of_several_sources_is_nobodys_beginning() -> None:
    """Which of them this source is, it cannot tell: each is told where it goes on."""
    apart = Note("ours", "q", 4, apart=(("0", 7), ("1", 5)))
    says = r'different offsets \(7 in source 0, 5 in source 1\).*\{"t": \{"0": 5, "1": 7\}\} for'
    with pytest.raises(StartsElsewhere, match=says):
        start([BY_US, apart.text()])
    assert start([apart._replace(decided=False).text()]) == {("t", 0): 5}, "rows may come again"


def test_a_decision_on_its_way_is_waited_for() -> None:
    """Longer than for other requests: the driver may have been killed in it."""
    assert start([BY_US], pending_seconds=0.3) == {("t", 0): 5}


@pytest.mark.parametrize(
    ("notes", "says"),
    [
        ([BY_US, BY_US], ""),
        (["", ""], ""),
        ([BY_US, ""], "those of the sink ours, but not in t-1"),
        ([BY_US, Note("theirs", "q", 4).text()], "by several sinks, ours, theirs"),
    ],
)
def test_offsets_that_are_no_one_place_are_said(
    notes: list[str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert start(notes) == {("t", 0): 5, ("t", 1): 5}
    assert [says in record.message for record in caplog.records] == [True] * bool(says)
