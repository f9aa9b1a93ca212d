"""Each request of the connector, answered with each error that brokers have for it: tried again, or raised.

What is expected stands in error_pairs.py, and is compared with kio's table of Kafka's codes, not with ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from eoslog.client.admin import transaction_states, transactions
from eoslog.client.admin.group_offsets import commit_plain, fetch_committed
from eoslog.client.admin.list_offsets import LATEST, list_offsets
from eoslog.client.records.fetch import fetch
from eoslog.client.records.produce import Producer
from eoslog.client.wire import retry
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.commit.commands import HeldBack
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.run import markers
from eoslog.connector.sink import task_writer
from eoslog.errors import OffsetsGone, ProduceFailed, RetriesExhausted, UnknownTopic
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.encode import EncodedBatch, encode_batches
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.client.error_pairs import PAIRS, Pair
from tests.client.fake_broker import FakeBroker, Handler
from tests.protocol.stamp import stamp

AMPLE_MS = 60_000
ME = ProducerIdentity(7, 3)
OFFSETS = {("t", 0): (5, "five")}


@dataclass(frozen=True)
class Asked:
    """How a request is brought about, and the broker's answer to it with an error code."""

    api: ApiKey
    call: Callable[[Cluster], object]
    answer: Callable[[FakeBroker, int, Any], Any]
    level: int = 2
    """transaction.version"""


def a_batch() -> EncodedBatch:
    (made,) = encode_batches(None, pa.array([b"x"]), None, 0, codec=0, max_batch_bytes=1 << 20)
    return made


def produce(cluster: Cluster) -> None:
    with Producer(cluster, identity=ME, transactional_id="x") as producer:
        producer.send("t", 0, a_batch())
        producer.flush()


def describe_producers(cluster: Cluster) -> object:
    return markers.find_held(cluster, [("t", 0)], [Participant("x", ProducerIdentity(7, 3))])


def write_markers(cluster: Cluster) -> None:
    markers.write_markers(
        cluster, [HeldBack(("t", 0), Participant("x", ProducerIdentity(7, 3)), 0)], commit=True
    )


def flat(_: FakeBroker, code: int, body: Any) -> Any:
    return {"error_code": code}


def nested(topics: str, parts: str, *, error: str = "error_code", **more: Any) -> Callable[..., Any]:
    """An answer with one partition of one topic."""
    index = "index" if topics == "responses" and "base_offset" in more else "partition_index"
    name = "topic" if "records" in more else "name"

    def answer(_: FakeBroker, code: int, body: Any) -> Any:
        return {topics: [{name: "t", parts: [{index: 0, error: code} | more]}]}

    return answer


def coordinators(broker: FakeBroker, code: int, body: Any) -> Any:
    found = broker._find_coordinator(4, body)
    return {"coordinators": [{**one, "error_code": code} for one in found["coordinators"]]}


def metadata(broker: FakeBroker, code: int, body: Any) -> Any:
    found = broker._metadata(9, body)
    return found if not code else {**found, "topics": [{"error_code": code, "name": "t", "partitions": []}]}


def fetched(broker: FakeBroker, code: int, body: Any) -> Any:
    record = bytearray().join(a_batch().finish())
    stamp(record, 0, 0)
    part: dict[str, Any]
    part = {"high_watermark": 1, "last_stable_offset": 1, "log_start_offset": 0, "aborted_transactions": [],
            "records": b"" if code else bytes(record)}  # fmt: skip
    answer: Any = nested("responses", "partitions", **part)(broker, code, body)
    return answer


def described(_: FakeBroker, code: int, body: Any) -> Any:
    state = {"error_code": code, "transactional_id": "x", "transaction_state": "Ongoing", "producer_id": 7,
             "transaction_timeout_ms": 5, "transaction_start_time_ms": 6, "producer_epoch": 3,
             "topics": []}  # fmt: skip
    return {"transaction_states": [state]}


def marked(_: FakeBroker, code: int, body: Any) -> Any:
    parts = [{"partition_index": 0, "error_code": code}]
    return {"markers": [{"producer_id": 7, "topics": [{"name": "t", "partitions": parts}]}]}


ADDED = nested("results_by_topic_v3_and_below", "results_by_partition", error="partition_error_code")
REQUESTS = {
    "Produce": Asked(ApiKey.PRODUCE, produce, nested("responses", "partition_responses", base_offset=0)),
    "InitProducerId": Asked(
        ApiKey.INIT_PRODUCER_ID, lambda c: transactions.init_producer_id(c, "x", 1_000), flat
    ),
    "AddPartitionsToTxn": Asked(
        ApiKey.ADD_PARTITIONS_TO_TXN, lambda c: transactions.add_partitions(c, "x", ME, [("t", 0)]), ADDED, 1
    ),
    "AddOffsetsToTxn": Asked(
        ApiKey.ADD_OFFSETS_TO_TXN, lambda c: transactions.commit_offsets(c, "x", ME, "g", OFFSETS), flat, 1
    ),
    "TxnOffsetCommit": Asked(
        ApiKey.TXN_OFFSET_COMMIT,
        lambda c: transactions.commit_offsets(c, "x", ME, "g", OFFSETS),
        nested("topics", "partitions"),
    ),
    "EndTxn": Asked(ApiKey.END_TXN, lambda c: transactions.end_txn(c, "x", ME, True), flat),
    "FindCoordinator": Asked(
        ApiKey.FIND_COORDINATOR, lambda c: transactions.init_producer_id(c, "x", 1_000), coordinators
    ),
    "Metadata": Asked(ApiKey.METADATA, lambda c: task_writer._partitions_of(c)("t"), metadata),
    "ListOffsets": Asked(
        ApiKey.LIST_OFFSETS,
        lambda c: list_offsets(c, {("t", 0): LATEST}, committed=True),
        nested("topics", "partitions", offset=5),
    ),
    "Fetch": Asked(ApiKey.FETCH, lambda c: list(fetch(c, "t", 0, 0, 1, committed=True)), fetched),
    "OffsetFetch": Asked(
        ApiKey.OFFSET_FETCH,
        lambda c: fetch_committed(c, "g", [("t", 0)]),
        nested("topics", "partitions", committed_offset=5, metadata=""),
    ),
    "OffsetCommit": Asked(
        ApiKey.OFFSET_COMMIT, lambda c: commit_plain(c, "g", OFFSETS), nested("topics", "partitions")
    ),
    "DescribeTransactions": Asked(
        ApiKey.DESCRIBE_TRANSACTIONS, lambda c: transaction_states.describe(c, ["x"]), described
    ),
    "ListTransactions": Asked(
        ApiKey.LIST_TRANSACTIONS,
        lambda c: transaction_states.list_transactions(c, "x"),
        lambda _, code, body: {"error_code": code, "unknown_state_filters": [], "transaction_states": []},
    ),
    "WriteTxnMarkers": Asked(ApiKey.WRITE_TXN_MARKERS, write_markers, marked),
    "DescribeProducers": Asked(
        ApiKey.DESCRIBE_PRODUCERS, describe_producers, nested("topics", "partitions", active_producers=[])
    ),
}


def ask(asked: Asked, code: int, times: int, **limits: int) -> tuple[object, int]:
    """What comes of the request where its first `times` answers are the error; and how often it was sent."""
    left = times
    broker: FakeBroker

    def answer(version: int, body: Any) -> Any:
        nonlocal left
        left -= 1
        return asked.answer(broker, code if left >= 0 else 0, body)

    handlers: dict[ApiKey, Handler]
    handlers = {ApiKey.INIT_PRODUCER_ID: lambda version, body: flat(broker, 0, body)}
    handlers |= {ApiKey.ADD_OFFSETS_TO_TXN: lambda version, body: flat(broker, 0, body)}
    handlers |= {ApiKey.TXN_OFFSET_COMMIT: lambda v, body: nested("topics", "partitions")(broker, 0, body)}
    config: dict[str, Any] = {
        "request_timeout_ms": AMPLE_MS, "delivery_timeout_ms": AMPLE_MS, "api_timeout_ms": AMPLE_MS,
        "retry_backoff_ms": 1, "retry_backoff_max_ms": 1, **limits,
    }  # fmt: skip
    with FakeBroker({**handlers, asked.api: answer}, transaction_version=asked.level) as broker:
        with Cluster(ClientConfig((("127.0.0.1", broker.port),), **config)) as cluster:
            try:
                result: object = asked.call(cluster)
            except (KafkaError, ProduceFailed, OffsetsGone, RetriesExhausted, UnknownTopic) as error:
                result = error
        return result, len(broker.seen(asked.api))


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is believed after a moment is believed after the second answer."""
    monkeypatch.setattr(retry, "BRIEF_MS", 0)


def named(pair: Pair) -> str:
    return f"{pair.request}-{pair.error}"


@pytest.mark.parametrize("pair", PAIRS, ids=named)
def test_what_one_error_does(pair: Pair) -> None:
    result, sent = ask(REQUESTS[pair.request], ErrorCode[pair.error], 1)
    failed = isinstance(result, Exception)
    if pair.outcome == "refused":
        assert failed and not isinstance(result, RetriesExhausted) and sent == 1
        assert pair.error in str(result), "the code's name"
    elif pair.outcome == "answer" and "after 2 s" not in pair.why:
        assert (not failed or isinstance(result, OffsetsGone)) and sent == 1
    else:
        assert not failed, result
        assert sent >= 2


@pytest.mark.usefixtures("no_patience")
def test_a_partition_that_stays_unknown_holds_nothing() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    result, sent = ask(REQUESTS["DescribeProducers"], unknown, 1 << 60, api_timeout_ms=20)
    assert result == () and sent >= 1


FOREVER = [pair for pair in PAIRS if pair.outcome == "again" and pair.request != "Metadata"]


@pytest.mark.parametrize("pair", FOREVER, ids=named)
def test_no_error_is_tried_again_without_end(pair: Pair) -> None:
    asked = REQUESTS[pair.request]
    result, sent = ask(asked, ErrorCode[pair.error], 1 << 60, delivery_timeout_ms=20, api_timeout_ms=20)
    assert isinstance(result, (RetriesExhausted, ProduceFailed)), result
    assert sent >= 1 and "timeout.ms" in str(result)


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize("pair", [p for p in PAIRS if p.outcome == "briefly"], ids=named)
def test_what_a_broker_may_not_know_yet_is_believed_soon(pair: Pair) -> None:
    result, _ = ask(REQUESTS[pair.request], ErrorCode[pair.error], 1 << 60, api_timeout_ms=20)
    assert isinstance(result, KafkaError) and result.code.name == pair.error


@pytest.mark.parametrize("pair", PAIRS, ids=named)
def test_the_lines_are_kafkas_but_for_those_with_a_reason(pair: Pair) -> None:
    """kio's table is made from Kafka's; what a client makes of a retriable error is to try again."""
    again = pair.outcome in ("again", "briefly")
    handled_apart = (pair.request, pair.error) in {
        ("Fetch", "CORRUPT_MESSAGE"),  # FetchCollector raises it, retriable as it is
        ("Fetch", "UNKNOWN_SERVER_ERROR"),  # FetchCollector warns and goes on
    }
    retriable = KioErrorCode(int(ErrorCode[pair.error])).retriable
    assert again == retriable or handled_apart or pair.departs
    assert pair.why or not pair.departs


def test_every_departure_of_the_connector_has_its_line() -> None:
    lines = {(REQUESTS[pair.request].api, ErrorCode[pair.error]) for pair in PAIRS}
    assert set(retry.DEPARTURES) <= lines
    assert {pair.request for pair in PAIRS} == set(REQUESTS)
    assert len(lines) == len(PAIRS), "a pair twice"


def test_a_code_of_tomorrow_is_refused_with_its_number() -> None:
    for name in ("FindCoordinator", "EndTxn", "Produce", "ListOffsets", "TxnOffsetCommit"):
        result, sent = ask(REQUESTS[name], 999, 1)
        assert isinstance(result, (KafkaError, ProduceFailed)) and "999" in str(result) and sent == 1, name


def test_a_topic_that_is_not_ready_is_waited_for_and_not_called_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eoslog.client.wire.cluster._CREATION_PATIENCE_MS", 0)
    result, sent = ask(REQUESTS["Metadata"], ErrorCode.LEADER_NOT_AVAILABLE, 5)
    assert result == 2 and sent == 6
    result, _ = ask(REQUESTS["Metadata"], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1 << 60)
    assert isinstance(result, UnknownTopic)
