"""Requests of the connector, answered with each error that brokers have: tried again, or raised."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from eoslog.client.admin import transaction_states, transactions
from eoslog.client.admin.groups import commit_plain, fetch_committed
from eoslog.client.admin.topics import LATEST, list_offsets
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
from tests.client.fake_broker import FakeBroker, Handler
from tests.protocol.oracle import stamp

# -- one line a pair -----------------------------------------------------------------------------
# What each of the connector's requests makes of each error that brokers answer it with: one line a pair.
#
# Written from what Apache Kafka's own clients do (trunk: TransactionManager's handlers and Sender for the
# producer's requests, ConsumerCoordinator, OffsetFetcher and FetchCollector for the reader's, the admin
# client for the rest) and from the KIPs, not from the connector's tables. A star marks a line in which the
# connector means to do something else than those clients; the reason stands behind it.
#
# again: sent once more until a time-out. briefly: the same, for 2 s. refused: raised, not sent again. answer:
# no error, but what was asked.


class Pair(NamedTuple):
    """One line. `departs`: from what Apache Kafka's client does."""

    request: str
    error: str
    outcome: str
    departs: bool
    why: str


_LINES = """
Produce CORRUPT_MESSAGE again the batch was damaged on its way
Produce UNKNOWN_TOPIC_OR_PARTITION again the broker may not have heard of the topic yet
Produce LEADER_NOT_AVAILABLE again
Produce NOT_LEADER_OR_FOLLOWER again ambiguous: a leader may step down after it has written (KIP-98 sequence)
Produce REQUEST_TIMED_OUT again ambiguous: the sequence number tells a repetition (KIP-98)
Produce NETWORK_EXCEPTION again ambiguous, the same
Produce NOT_ENOUGH_REPLICAS again nothing was written
Produce NOT_ENOUGH_REPLICAS_AFTER_APPEND again ambiguous: written, to too few; the sequence tells a repetition
Produce KAFKA_STORAGE_ERROR again ambiguous: KIP-112, another replica may lead
Produce CONCURRENT_TRANSACTIONS again KIP-890: the last transaction's markers are on their way
Produce COORDINATOR_LOAD_IN_PROGRESS again KIP-890: the partition is verified with the coordinator
Produce COORDINATOR_NOT_AVAILABLE again KIP-890
Produce NOT_COORDINATOR again KIP-890
Produce FENCED_LEADER_EPOCH again KIP-320
Produce UNKNOWN_LEADER_EPOCH again KIP-320
Produce THROTTLING_QUOTA_EXCEEDED again KIP-599
Produce UNKNOWN_TOPIC_ID again KIP-516: looked up again, where a topic created again is noticed
Produce DUPLICATE_SEQUENCE_NUMBER answer Sender completes the batch: it was written
Produce OUT_OF_ORDER_SEQUENCE_NUMBER refused of the oldest batch: what was acknowledged is lost (KIP-360)
Produce UNKNOWN_PRODUCER_ID refused * Java may begin its sequences anew; here the whole task is tried again
Produce MESSAGE_TOO_LARGE refused * Java splits the batch; here rows are told from too large ones before
Produce RECORD_LIST_TOO_LARGE refused
Produce INVALID_RECORD refused
Produce INVALID_TIMESTAMP refused
Produce INVALID_PRODUCER_EPOCH refused KIP-588: the transaction is aborted
Produce PRODUCER_FENCED refused
Produce INVALID_PRODUCER_ID_MAPPING refused
Produce INVALID_TXN_STATE refused KIP-890
Produce TRANSACTION_ABORTABLE refused KIP-890: the transaction is aborted
Produce TOPIC_AUTHORIZATION_FAILED refused
Produce CLUSTER_AUTHORIZATION_FAILED refused
Produce TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
Produce UNSUPPORTED_FOR_MESSAGE_FORMAT refused
Produce UNSUPPORTED_COMPRESSION_TYPE refused
Produce INVALID_REQUIRED_ACKS refused
Produce INVALID_TOPIC_EXCEPTION refused
Produce UNKNOWN_SERVER_ERROR refused ambiguous: the task's transaction is aborted, and the task tried again
InitProducerId NOT_COORDINATOR again
InitProducerId COORDINATOR_NOT_AVAILABLE again
InitProducerId COORDINATOR_LOAD_IN_PROGRESS again
InitProducerId CONCURRENT_TRANSACTIONS again KIP-98: the open transaction is being aborted
InitProducerId REQUEST_TIMED_OUT again ambiguous: an epoch is raised twice at worst
InitProducerId NOT_ENOUGH_REPLICAS again
InitProducerId UNKNOWN_TOPIC_OR_PARTITION again
InitProducerId TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
InitProducerId CLUSTER_AUTHORIZATION_FAILED refused
InitProducerId INVALID_PRODUCER_EPOCH refused KIP-360: somebody else has it
InitProducerId PRODUCER_FENCED refused
InitProducerId INVALID_TRANSACTION_TIMEOUT refused
InitProducerId UNSUPPORTED_VERSION refused KIP-939
InitProducerId INVALID_PRODUCER_ID_MAPPING refused
InitProducerId TRANSACTION_ABORTABLE refused
InitProducerId UNKNOWN_SERVER_ERROR refused
AddPartitionsToTxn COORDINATOR_NOT_AVAILABLE again
AddPartitionsToTxn NOT_COORDINATOR again
AddPartitionsToTxn COORDINATOR_LOAD_IN_PROGRESS again
AddPartitionsToTxn CONCURRENT_TRANSACTIONS again
AddPartitionsToTxn UNKNOWN_TOPIC_OR_PARTITION again the topic may be new
AddPartitionsToTxn REQUEST_TIMED_OUT again
AddPartitionsToTxn INVALID_PRODUCER_EPOCH refused
AddPartitionsToTxn PRODUCER_FENCED refused
AddPartitionsToTxn TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
AddPartitionsToTxn INVALID_TXN_STATE refused
AddPartitionsToTxn INVALID_PRODUCER_ID_MAPPING refused
AddPartitionsToTxn TOPIC_AUTHORIZATION_FAILED refused
AddPartitionsToTxn OPERATION_NOT_ATTEMPTED refused
AddPartitionsToTxn UNKNOWN_PRODUCER_ID refused
AddPartitionsToTxn TRANSACTION_ABORTABLE refused
AddOffsetsToTxn COORDINATOR_NOT_AVAILABLE again
AddOffsetsToTxn NOT_COORDINATOR again
AddOffsetsToTxn COORDINATOR_LOAD_IN_PROGRESS again
AddOffsetsToTxn CONCURRENT_TRANSACTIONS again
AddOffsetsToTxn REQUEST_TIMED_OUT again
AddOffsetsToTxn UNKNOWN_PRODUCER_ID refused
AddOffsetsToTxn INVALID_PRODUCER_EPOCH refused
AddOffsetsToTxn PRODUCER_FENCED refused
AddOffsetsToTxn TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
AddOffsetsToTxn INVALID_TXN_STATE refused
AddOffsetsToTxn INVALID_PRODUCER_ID_MAPPING refused
AddOffsetsToTxn GROUP_AUTHORIZATION_FAILED refused
AddOffsetsToTxn TRANSACTION_ABORTABLE refused
TxnOffsetCommit COORDINATOR_NOT_AVAILABLE again
TxnOffsetCommit NOT_COORDINATOR again
TxnOffsetCommit REQUEST_TIMED_OUT again
TxnOffsetCommit COORDINATOR_LOAD_IN_PROGRESS again
TxnOffsetCommit CONCURRENT_TRANSACTIONS again KIP-890
TxnOffsetCommit NOT_ENOUGH_REPLICAS again
TxnOffsetCommit UNKNOWN_TOPIC_OR_PARTITION briefly * Java goes on for long; the source topic is deleted
TxnOffsetCommit GROUP_AUTHORIZATION_FAILED refused
TxnOffsetCommit TOPIC_AUTHORIZATION_FAILED refused
TxnOffsetCommit FENCED_INSTANCE_ID refused
TxnOffsetCommit TRANSACTION_ABORTABLE refused KIP-890
TxnOffsetCommit UNKNOWN_MEMBER_ID refused the group has members
TxnOffsetCommit ILLEGAL_GENERATION refused
TxnOffsetCommit GROUP_ID_NOT_FOUND refused
TxnOffsetCommit STALE_MEMBER_EPOCH refused
TxnOffsetCommit INVALID_PRODUCER_EPOCH refused
TxnOffsetCommit PRODUCER_FENCED refused
TxnOffsetCommit INVALID_TXN_STATE refused
TxnOffsetCommit INVALID_PRODUCER_ID_MAPPING refused
TxnOffsetCommit TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
TxnOffsetCommit UNSUPPORTED_FOR_MESSAGE_FORMAT refused
TxnOffsetCommit OFFSET_METADATA_TOO_LARGE refused
TxnOffsetCommit INVALID_COMMIT_OFFSET_SIZE refused
TxnOffsetCommit INVALID_GROUP_ID refused
TxnOffsetCommit UNKNOWN_SERVER_ERROR refused ambiguous: the sink's transaction is aborted
EndTxn COORDINATOR_NOT_AVAILABLE again
EndTxn NOT_COORDINATOR again
EndTxn COORDINATOR_LOAD_IN_PROGRESS again
EndTxn CONCURRENT_TRANSACTIONS again KIP-890: an earlier try is being carried out
EndTxn REQUEST_TIMED_OUT again ambiguous: the same version and epoch tell a repetition (KIP-890)
EndTxn NOT_ENOUGH_REPLICAS again
EndTxn NETWORK_EXCEPTION again ambiguous, the same
EndTxn INVALID_PRODUCER_EPOCH refused
EndTxn PRODUCER_FENCED refused
EndTxn TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
EndTxn INVALID_TXN_STATE refused
EndTxn INVALID_PRODUCER_ID_MAPPING refused
EndTxn UNKNOWN_PRODUCER_ID refused
EndTxn TRANSACTION_ABORTABLE refused
EndTxn UNKNOWN_SERVER_ERROR refused ambiguous: whoever sent it asks what became of it
FindCoordinator COORDINATOR_NOT_AVAILABLE again
FindCoordinator COORDINATOR_LOAD_IN_PROGRESS again
FindCoordinator REQUEST_TIMED_OUT again
FindCoordinator TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
FindCoordinator GROUP_AUTHORIZATION_FAILED refused
FindCoordinator TRANSACTION_ABORTABLE refused
FindCoordinator INVALID_REQUEST refused
FindCoordinator INVALID_GROUP_ID refused
FindCoordinator UNKNOWN_SERVER_ERROR refused
Metadata LEADER_NOT_AVAILABLE again the topic is being made
Metadata REPLICA_NOT_AVAILABLE again
Metadata UNKNOWN_TOPIC_OR_PARTITION again then UnknownTopic: waited for a second, or five to be made
Metadata INVALID_TOPIC_EXCEPTION refused
Metadata TOPIC_AUTHORIZATION_FAILED refused
Metadata UNKNOWN_SERVER_ERROR refused
ListOffsets UNKNOWN_TOPIC_OR_PARTITION again
ListOffsets NOT_LEADER_OR_FOLLOWER again
ListOffsets REPLICA_NOT_AVAILABLE again
ListOffsets LEADER_NOT_AVAILABLE again
ListOffsets KAFKA_STORAGE_ERROR again
ListOffsets OFFSET_NOT_AVAILABLE again KIP-207: the new leader's end is not known yet
ListOffsets FENCED_LEADER_EPOCH again KIP-320
ListOffsets UNKNOWN_LEADER_EPOCH again KIP-320
ListOffsets TOPIC_AUTHORIZATION_FAILED refused
ListOffsets UNSUPPORTED_FOR_MESSAGE_FORMAT refused * Java leaves the partition out; offsets would be missing
ListOffsets UNKNOWN_SERVER_ERROR refused
ListOffsets INVALID_REQUEST refused
Fetch NOT_LEADER_OR_FOLLOWER again
Fetch REPLICA_NOT_AVAILABLE again
Fetch KAFKA_STORAGE_ERROR again
Fetch FENCED_LEADER_EPOCH again KIP-320
Fetch UNKNOWN_LEADER_EPOCH again KIP-320
Fetch OFFSET_NOT_AVAILABLE again
Fetch UNKNOWN_TOPIC_OR_PARTITION again
Fetch UNKNOWN_TOPIC_ID again KIP-516: looked up again, where a topic created again is noticed
Fetch INCONSISTENT_TOPIC_ID again KIP-516
Fetch FETCH_SESSION_ID_NOT_FOUND again KIP-227
Fetch UNKNOWN_SERVER_ERROR again FetchCollector warns and goes on
Fetch OFFSET_OUT_OF_RANGE answer OffsetsGone, as with auto.offset.reset=none
Fetch CORRUPT_MESSAGE refused FetchCollector raises it
Fetch TOPIC_AUTHORIZATION_FAILED refused
Fetch UNSUPPORTED_COMPRESSION_TYPE refused
OffsetFetch COORDINATOR_LOAD_IN_PROGRESS again
OffsetFetch COORDINATOR_NOT_AVAILABLE again
OffsetFetch NOT_COORDINATOR again
OffsetFetch UNSTABLE_OFFSET_COMMIT again KIP-447
OffsetFetch UNKNOWN_TOPIC_OR_PARTITION briefly * Java raises at once; a new broker may not know
OffsetFetch GROUP_AUTHORIZATION_FAILED refused
OffsetFetch TOPIC_AUTHORIZATION_FAILED refused
OffsetFetch UNKNOWN_MEMBER_ID refused
OffsetFetch STALE_MEMBER_EPOCH refused
OffsetFetch UNKNOWN_SERVER_ERROR refused never taken for "no offsets"
OffsetCommit COORDINATOR_LOAD_IN_PROGRESS again
OffsetCommit COORDINATOR_NOT_AVAILABLE again
OffsetCommit NOT_COORDINATOR again
OffsetCommit REQUEST_TIMED_OUT again ambiguous: the same offsets once more change nothing
OffsetCommit UNKNOWN_TOPIC_OR_PARTITION briefly * Java goes on for long
OffsetCommit GROUP_AUTHORIZATION_FAILED refused
OffsetCommit TOPIC_AUTHORIZATION_FAILED refused
OffsetCommit OFFSET_METADATA_TOO_LARGE refused
OffsetCommit INVALID_COMMIT_OFFSET_SIZE refused
OffsetCommit FENCED_INSTANCE_ID refused
OffsetCommit REBALANCE_IN_PROGRESS refused
OffsetCommit UNKNOWN_MEMBER_ID refused
OffsetCommit ILLEGAL_GENERATION refused
OffsetCommit UNKNOWN_SERVER_ERROR refused
DescribeTransactions COORDINATOR_LOAD_IN_PROGRESS again
DescribeTransactions COORDINATOR_NOT_AVAILABLE again
DescribeTransactions NOT_COORDINATOR again
DescribeTransactions TRANSACTIONAL_ID_NOT_FOUND answer
DescribeTransactions TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
DescribeTransactions INVALID_REQUEST refused
DescribeTransactions UNKNOWN_SERVER_ERROR refused never taken for "unknown id"
ListTransactions COORDINATOR_LOAD_IN_PROGRESS again an empty list is no proof
ListTransactions COORDINATOR_NOT_AVAILABLE again * Java takes it for an empty list; that is no proof
ListTransactions CLUSTER_AUTHORIZATION_FAILED refused
ListTransactions INVALID_REGULAR_EXPRESSION refused
ListTransactions UNKNOWN_SERVER_ERROR refused never taken for "none"
WriteTxnMarkers NOT_LEADER_OR_FOLLOWER again
WriteTxnMarkers REPLICA_NOT_AVAILABLE again
WriteTxnMarkers NOT_ENOUGH_REPLICAS_AFTER_APPEND again ambiguous: the same marker twice changes nothing
WriteTxnMarkers REQUEST_TIMED_OUT again ambiguous, the same
WriteTxnMarkers UNKNOWN_TOPIC_OR_PARTITION briefly * Java goes on for long
WriteTxnMarkers CLUSTER_AUTHORIZATION_FAILED refused
WriteTxnMarkers INVALID_PRODUCER_EPOCH refused
WriteTxnMarkers TRANSACTION_COORDINATOR_FENCED refused a newer coordinator is at work
WriteTxnMarkers UNKNOWN_SERVER_ERROR refused
DescribeProducers NOT_LEADER_OR_FOLLOWER again
DescribeProducers UNKNOWN_TOPIC_OR_PARTITION answer after 2 s * Java goes on; what is gone holds nothing
DescribeProducers TOPIC_AUTHORIZATION_FAILED answer * Java raises it; here the coordinator is believed
DescribeProducers INVALID_TOPIC_EXCEPTION refused
DescribeProducers UNKNOWN_SERVER_ERROR refused
"""


def _pair(line: str) -> Pair:
    request, error, outcome, *rest = line.split(maxsplit=3)
    why = rest[0] if rest else ""
    return Pair(request, error, outcome, "*" in why, why.replace("* ", ""))


PAIRS = tuple(map(_pair, filter(None, _LINES.splitlines())))
"""Every pair that is judged."""


# -- each is tried -------------------------------------------------------------------------------
# Each request of the connector, answered with each error that brokers have for it: tried again, or raised.
#
# What is expected stands above, and is compared with kio's table of Kafka's codes, not with ours.

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
