"""Aborts below transaction.version 2: under the next epoch, and of exactly what is open under an identity."""

from typing import Any

import pytest

from eoslog.client.admin import transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.errors import RetriesExhausted, UnsupportedByBroker
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.client.fake_broker import FakeBroker

ME = ProducerIdentity(7, 3)
RAISED = ProducerIdentity(7, 4)
BUSY = int(ErrorCode.CONCURRENT_TRANSACTIONS)
State = tuple[str, ProducerIdentity]
OPEN: State = ("Ongoing", ME)
DONE: State = ("CompleteAbort", RAISED)


class Coordinator(FakeBroker):
    """Tells one state after another, the last one for ever. Answers InitProducerId and EndTxn with codes."""

    def __init__(
        self,
        *states: State,
        init: int = BUSY,
        end: int = 0,
        level: int = 1,
        held_ms: int = 500,
        **more: Any,
    ) -> None:
        self.states, self.held_ms = list(states), held_ms
        handlers: dict[ApiKey, Any] = {
            ApiKey.DESCRIBE_TRANSACTIONS: self._describe,
            ApiKey.INIT_PRODUCER_ID: lambda version, body: {"error_code": init},
            ApiKey.END_TXN: lambda version, body: {"error_code": end},
        }
        super().__init__(handlers, transaction_version=level, **more)

    def _describe(self, version: int, body: Any) -> Any:
        (state, who), *later = self.states
        self.states = later or self.states
        told = {"error_code": 0, "transaction_state": state, "transaction_timeout_ms": self.held_ms,
                "transaction_start_time_ms": 6, "producer_id": who.producer_id,
                "producer_epoch": who.epoch, "topics": []}  # fmt: skip
        return {"transaction_states": [told | {"transactional_id": n} for n in body["transactional_ids"]]}

    def count(self, key: ApiKey) -> int:
        return len(self.seen(key))


def end(broker: FakeBroker, *, commit: bool = False, **more: Any) -> ProducerIdentity:
    limits: dict[str, Any] = {
        "request_timeout_ms": 2_000,
        "delivery_timeout_ms": 3_000,
        "retry_backoff_ms": 1,
    } | more
    with Cluster(ClientConfig((("127.0.0.1", broker.port),), **limits)) as cluster:
        return transactions.end_txn(cluster, "x", ME, commit)


@pytest.mark.parametrize("level", [0, 1])
def test_what_is_open_is_aborted_by_who_has_it_under_the_next_epoch(level: int) -> None:
    with Coordinator(OPEN, DONE, level=level) as broker:
        assert end(broker) == RAISED
        ((version, body),) = broker.seen(ApiKey.INIT_PRODUCER_ID)
        assert broker.count(ApiKey.END_TXN) == 0, "its marker would carry the old epoch"
    assert 3 <= version <= 5 and (body["producer_id"], body["producer_epoch"]) == ME
    assert body["transaction_timeout_ms"] == 500


def test_the_abort_is_certain_before_its_markers_are_written() -> None:
    with Coordinator(OPEN, ("PrepareAbort", RAISED)) as broker:
        assert end(broker) == RAISED
        assert broker.count(ApiKey.DESCRIBE_TRANSACTIONS) == 2


def test_a_coordinator_that_is_busy_with_another_change_is_asked_again() -> None:
    with Coordinator(OPEN, OPEN, OPEN, DONE) as broker:
        assert end(broker) == RAISED
        assert broker.count(ApiKey.INIT_PRODUCER_ID) == 3


def test_no_time_out_is_longer_than_a_broker_may_allow() -> None:
    """What was open may be open for longer; the request is about the next transaction, which never is."""
    with Coordinator(OPEN, DONE, held_ms=900_000) as broker:
        end(broker)
        ((_, body),) = broker.seen(ApiKey.INIT_PRODUCER_ID)
    assert body["transaction_timeout_ms"] == 60_000


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (("CompleteCommit", ME), ErrorCode.INVALID_TXN_STATE),
        (("PrepareCommit", ME), ErrorCode.INVALID_TXN_STATE),
        (("Ongoing", RAISED), ErrorCode.PRODUCER_FENCED),
        (("Ongoing", ProducerIdentity(8, 3)), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_nothing_else_is_touched(state: State, code: ErrorCode) -> None:
    """InitProducerId would hide how it ended, or abort another owner's transaction: Kafka compares only the
    producer id where one is open. EndTxn is refused, or is that of a sealed transaction's holder."""
    with Coordinator(state, end=int(code)) as broker, pytest.raises(KafkaError) as refused:
        end(broker)
    assert refused.value.code == code
    assert (broker.count(ApiKey.INIT_PRODUCER_ID), broker.count(ApiKey.END_TXN)) == (0, 1)


@pytest.mark.parametrize(
    "after", [("Empty", ProducerIdentity(7, 5)), ("CompleteCommit", ME), ("CompleteAbort", ME)]
)
def test_another_end_than_this_abort_is_no_success(after: State) -> None:
    with Coordinator(OPEN, after) as broker, pytest.raises(KafkaError, match=f"it is {after[0]}") as refused:
        end(broker)
    assert refused.value.code == ErrorCode.PRODUCER_FENCED


def test_a_refusal_is_raised() -> None:
    denied = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with Coordinator(OPEN, init=denied) as broker, pytest.raises(KafkaError, match="next epoch") as refused:
        end(broker)
    assert refused.value.code == denied


def test_a_broker_that_would_not_look_whose_it_is_is_not_asked() -> None:
    older = {ApiKey.INIT_PRODUCER_ID: (0, 2)}
    with Coordinator(OPEN, versions=older) as broker, pytest.raises(UnsupportedByBroker):
        end(broker)
    assert broker.count(ApiKey.INIT_PRODUCER_ID) == broker.count(ApiKey.END_TXN) == 0


def test_a_transaction_that_stays_open_is_given_up_after_the_delivery_timeout() -> None:
    said = r"abort of 'x'.*300 ms \(kafka\.delivery\.timeout\.ms\)"
    with Coordinator(OPEN) as broker, pytest.raises(RetriesExhausted, match=said):
        end(broker, delivery_timeout_ms=300)


def test_commits_and_version_2_end_as_ever() -> None:
    for level, commit in ((1, True), (2, False)):
        with Coordinator(OPEN, level=level) as broker:
            end(broker, commit=commit)
            assert broker.count(ApiKey.INIT_PRODUCER_ID) == broker.count(ApiKey.DESCRIBE_TRANSACTIONS) == 0
            assert broker.count(ApiKey.END_TXN) == 1


def test_several_are_aborted_together_and_the_others_ended() -> None:
    names = ["a", "b", "c"]
    with Coordinator(OPEN, DONE) as broker:
        with Cluster(ClientConfig((("127.0.0.1", broker.port),))) as cluster:
            theirs = {name: ME for name in names} | {"c": ProducerIdentity(7, 2)}
            found = transactions.end_txns(cluster, theirs, commit=False)
        asked = [body["transactional_id"] for _, body in broker.seen(ApiKey.INIT_PRODUCER_ID)]
        ((_, ended),) = broker.seen(ApiKey.END_TXN)
        assert broker.count(ApiKey.DESCRIBE_TRANSACTIONS) == 2
    assert asked == ["a", "b"] and ended["transactional_id"] == "c"
    assert found == {"a": RAISED, "b": RAISED, "c": ProducerIdentity(7, 2)}
