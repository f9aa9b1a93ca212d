"""Topics and partitions that a broker does not know of, or cannot describe, just now: they are not gone."""

from typing import Any

import pytest

from eoslog.client.wire.cluster import close_shared
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import KafkaError
from tests.client.fake_broker import FakeBroker


def found(codes: list[int], pattern: str = "a-.*", internal: str = "") -> list[tuple[str, int]]:
    """Partitions of the pattern's topics, where the broker has an error for a-2 in its first answers."""

    def metadata(version: int, body: Any) -> Any:
        told = broker._metadata(version, {"topics": [{"name": name} for name in ("a-1", "a-2", "b-1")]})
        for topic in told["topics"]:
            topic["is_internal"] = topic["name"] == internal
        if codes:
            told["topics"][1] = {"error_code": codes.pop(0), "name": "a-2", "partitions": []}
        return told

    with FakeBroker({ApiKey.METADATA: metadata}) as broker:
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "subscribePattern": pattern}
        options = source_options(given | {"kafka.retry.backoff.ms": "1"}, stream=True)
        try:
            return SourceTopics(options).partitions()
        finally:
            close_shared(options.client)


@pytest.mark.parametrize("code", [3, 5, 6])
def test_a_topic_that_cannot_be_described_for_a_moment_is_not_gone(code: int) -> None:
    """Left out, it would be a loss; with failOnDataLoss=false it would be read again from its beginning."""
    assert found([code, code]) == [("a-1", 0), ("a-1", 1), ("a-2", 0), ("a-2", 1)]


def test_one_that_never_can_be_is_said() -> None:
    with pytest.raises(KafkaError, match="Metadata of a-2: TOPIC_AUTHORIZATION_FAILED"):
        found([29] * 1000)


def test_a_pattern_is_that_of_whole_names() -> None:
    assert found([], "a") == [] and found([], "-1") == []
    assert found([], "a-1|b") == [("a-1", 0), ("a-1", 1)]


def test_internal_topics_are_not_read() -> None:
    assert found([], internal="a-1") == [("a-2", 0), ("a-2", 1)]


@pytest.mark.parametrize("stale", [1, 2])
def test_a_partition_that_a_broker_has_not_heard_of_is_not_gone(stale: int) -> None:
    """The query stands at 5 in both; the first answers are of a broker that knows only one."""

    def metadata(version: int, body: Any) -> Any:
        broker.partitions = 1 if len(broker.seen(ApiKey.METADATA)) <= stale else 2
        return broker._metadata(version, body)

    def ends(version: int, body: Any) -> Any:
        parts = [{**part, "offset": 9} for topic in body["topics"] for part in topic["partitions"]]
        answers = [{"partition_index": p["partition_index"], "offset": p["offset"]} for p in parts]
        return {"topics": [{"name": "a", "partitions": answers}]}

    with FakeBroker({ApiKey.METADATA: metadata, ApiKey.LIST_OFFSETS: ends}) as broker:
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "subscribe": "a"}
        given |= {"fetchOffset.retryIntervalMs": "1"}
        options = source_options(given, stream=True)
        try:
            found = SourceTopics(options).latest({("a", 0): 5, ("a", 1): 5})
        finally:
            close_shared(options.client)
    assert found == {("a", 0): 9, ("a", 1): 9}
