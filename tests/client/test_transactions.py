"""Transactions: versions by TV1 and TV2, repeats that are safe, refusals that are raised, aborts by epoch."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from eoslog.client.admin import transaction_states, transactions
from eoslog.client.admin.groups import StillPending, at_once, commit_plain, fetch_committed
from eoslog.client.admin.topics import EARLIEST, LATEST, list_offsets
from eoslog.client.admin.transaction_states import Listing
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.retry import retrying
from eoslog.errors import BrokerUnreachable, RetriesExhausted, UnsupportedByBroker
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.client.fake_broker import Drop, FakeBroker, Handler

ME = ProducerIdentity(7, 3)


def cluster(broker: FakeBroker, **more: Any) -> Cluster:
    limits = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 3_000, "retry_backoff_ms": 1} | more
    return Cluster(ClientConfig((("127.0.0.1", broker.port),), **limits))


def scripted(*answers: Any) -> Handler:
    """Answers one after another; an exception is raised, a number is an error code."""
    left: Iterator[Any] = iter(answers)

    def handle(version: int, body: Any) -> Any:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return {"error_code": answer} if isinstance(answer, int) else dict(answer)

    return handle


@pytest.mark.parametrize(
    ("level", "version", "after"), [(2, 5, ProducerIdentity(7, 4)), (1, 4, ME), (0, 4, ME)]
)
def test_end_txn_by_transaction_version(level: int, version: int, after: ProducerIdentity) -> None:
    handler = scripted({"error_code": 0, "producer_id": 7, "producer_epoch": 4})
    with FakeBroker({ApiKey.END_TXN: handler}, transaction_version=level) as broker:
        assert transactions.end_txn(cluster(broker), "x", ME, True) == after
        ((used, body),) = broker.seen(ApiKey.END_TXN)
    assert used == version
    who = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 3}
    assert body == who | {"committed": True, "together": []}


def test_end_txn_is_repeated_at_one_version_over_new_connections() -> None:
    """A repeat at another version would be refused: brokers answer repeats by version and old epoch."""

    def lost(version: int, body: Any) -> Any:
        broker.transaction_version = 1  # what a new connection would choose by
        broker.handlers[ApiKey.END_TXN] = scripted(
            51, 16, {"error_code": 0, "producer_id": 7, "producer_epoch": 4}
        )
        raise Drop

    with FakeBroker({ApiKey.END_TXN: lost}) as broker:
        assert transactions.end_txn(cluster(broker), "x", ME, False) == ProducerIdentity(7, 4)
        tries = broker.seen(ApiKey.END_TXN)
    assert [version for version, _ in tries] == [5] * 4
    assert all(body == tries[0][1] for _, body in tries)


def test_a_moved_coordinator_is_looked_for_again() -> None:
    with FakeBroker({ApiKey.END_TXN: scripted(16, 0)}) as broker:
        transactions.end_txn(cluster(broker), "x", ME, True)
        assert len(broker.seen(ApiKey.FIND_COORDINATOR)) == 2


@pytest.mark.parametrize("code", [47, 48, 49, 90, 120])
def test_refusals_are_raised_at_once(code: int) -> None:
    with (
        FakeBroker({ApiKey.END_TXN: scripted(code)}) as broker,
        pytest.raises(KafkaError, match="commit of 'x'") as caught,
    ):
        transactions.end_txn(cluster(broker), "x", ME, True)
    assert caught.value.code == code


def test_retries_are_bounded_by_the_delivery_timeout() -> None:
    said = r"EndTxn\(commit\).*300 ms \(kafka\.delivery\.timeout\.ms\)"
    busy = scripted(*[51] * 100_000)
    with FakeBroker({ApiKey.END_TXN: busy}) as broker, pytest.raises(RetriesExhausted, match=said):
        transactions.end_txn(cluster(broker, delivery_timeout_ms=300), "x", ME, True)


def test_init_producer_id_repeats_and_names_a_refused_timeout() -> None:
    good = {"error_code": 0, "producer_id": 9, "producer_epoch": 0}
    with FakeBroker({ApiKey.INIT_PRODUCER_ID: scripted(Drop(), 51, 14, good, good)}) as broker:
        c = cluster(broker)
        assert transactions.init_producer_id(c, "x", 1000) == ProducerIdentity(9, 0)
        assert transactions.init_producer_id(c, None, 1000) == ProducerIdentity(9, 0)
        assert len(broker.seen(ApiKey.INIT_PRODUCER_ID)) == 5
    with (
        FakeBroker({ApiKey.INIT_PRODUCER_ID: scripted(50)}) as broker,
        pytest.raises(KafkaError, match="'x' with time-out 99 ms"),
    ):
        transactions.init_producer_id(cluster(broker), "x", 99)


def offset_answer(*codes: int) -> dict[str, Any]:
    parts = [{"partition_index": i, "error_code": code} for i, code in enumerate(codes)]
    return {"topics": [{"name": "t", "partitions": parts}]}


OFFSETS = {("t", 0): (5, "five"), ("t", 1): (6, "")}


def test_offsets_in_a_transaction_by_transaction_version() -> None:
    handlers = {
        ApiKey.TXN_OFFSET_COMMIT: scripted(offset_answer(0, 0)),
        ApiKey.ADD_OFFSETS_TO_TXN: scripted(0),
    }
    for level, version, added in ((2, 5, 0), (1, 4, 1)):
        fresh = {**handlers, ApiKey.TXN_OFFSET_COMMIT: scripted(offset_answer(0, 0))}
        with FakeBroker(fresh, transaction_version=level) as broker:
            transactions.commit_offsets(cluster(broker), "x", ME, "g", OFFSETS)
            ((used, body),) = broker.seen(ApiKey.TXN_OFFSET_COMMIT)
            assert used == version and len(broker.seen(ApiKey.ADD_OFFSETS_TO_TXN)) == added
        assert body["generation_id"] == -1 and body["member_id"] == ""
        assert [p["committed_metadata"] for p in body["topics"][0]["partitions"]] == ["five", ""]


def test_a_partly_refused_commit_is_refused() -> None:
    with (
        FakeBroker({ApiKey.TXN_OFFSET_COMMIT: scripted(offset_answer(0, 12))}) as broker,
        pytest.raises(KafkaError, match="'g': refused for t-1") as caught,
    ):
        transactions.commit_offsets(cluster(broker), "x", ME, "g", OFFSETS)
    assert caught.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    with (
        FakeBroker({ApiKey.TXN_OFFSET_COMMIT: scripted(offset_answer(0))}) as broker,
        pytest.raises(KafkaError, match="no answer for t-1"),
    ):
        transactions.commit_offsets(cluster(broker), "x", ME, "g", OFFSETS)


def test_a_refusal_that_passes_is_repeated_and_one_that_stays_wins() -> None:
    answers = scripted(offset_answer(14, 0), offset_answer(51, 51), offset_answer(0, 0))
    with FakeBroker({ApiKey.TXN_OFFSET_COMMIT: answers}) as broker:
        transactions.commit_offsets(cluster(broker), "x", ME, "g", OFFSETS)
    with (
        FakeBroker({ApiKey.TXN_OFFSET_COMMIT: scripted(offset_answer(14, 48))}) as broker,
        pytest.raises(KafkaError) as caught,
    ):
        transactions.commit_offsets(cluster(broker), "x", ME, "g", OFFSETS)
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE


def listed(*rows: tuple[str, int, str], code: int = 0) -> dict[str, Any]:
    states = [{"transactional_id": i, "producer_id": p, "transaction_state": s} for i, p, s in rows]
    return {"error_code": code, "unknown_state_filters": [], "transaction_states": states}


def test_listing_quotes_the_prefix_filters_and_waits_for_loading_coordinators() -> None:
    answers = scripted(
        listed(code=14), listed(("a.b-2", 2, "Ongoing"), ("axb-1", 1, "Ongoing"), ("a.b-1", 1, "Empty"))
    )
    with FakeBroker({ApiKey.LIST_TRANSACTIONS: answers}) as broker:
        found = transaction_states.list_transactions(cluster(broker), "a.b-", ["Ongoing", "Empty"])
        assert [body["transactional_id_pattern"] for _, body in broker.seen(ApiKey.LIST_TRANSACTIONS)] == [
            r"a\.b\-.*"
        ] * 2
    assert found == [Listing("a.b-1", 1, "Empty"), Listing("a.b-2", 2, "Ongoing")]
    older = {ApiKey.LIST_TRANSACTIONS: (0, 0)}
    with FakeBroker(
        {ApiKey.LIST_TRANSACTIONS: scripted(listed(("b", 1, "x"), ("a", 2, "x")))}, versions=older
    ) as broker:
        assert transaction_states.list_transactions(cluster(broker), "a") == [Listing("a", 2, "x")]


def test_describe_tells_unknown_ids() -> None:
    def state(name: str, code: int) -> dict[str, Any]:
        return {"error_code": code, "transactional_id": name, "transaction_state": "Ongoing",
                "transaction_timeout_ms": 5, "transaction_start_time_ms": 6, "producer_id": 7,
                "producer_epoch": 3,
                "topics": [{"topic": "t", "partitions": [1, 0]}]}  # fmt: skip

    answers = scripted({"transaction_states": [state("a", 0), state("b", 105)]})
    with FakeBroker({ApiKey.DESCRIBE_TRANSACTIONS: answers}) as broker:
        found = transaction_states.describe(cluster(broker), ["a", "b"])
    assert found == {
        "a": transaction_states.TransactionDescription("Ongoing", ME, 5, 6, [("t", 1), ("t", 0)]),
        "b": None,
    }


def test_a_lost_answer_of_describe_keeps_what_was_learnt() -> None:
    def one(version: int, body: Any) -> Any:
        (name,) = body["transactional_ids"]
        if name == "b" and broker.connections < 4:
            raise Drop
        return {"transaction_states": [{"error_code": 105, "transactional_id": name}]}

    with FakeBroker({ApiKey.DESCRIBE_TRANSACTIONS: one}) as broker:
        c = cluster(broker)
        assert transaction_states.describe(c, ["a"]) == {"a": None}
        assert transaction_states.describe(c, ["b"]) == {"b": None}


def test_committed_offsets() -> None:
    parts: list[dict[str, Any]]
    parts = [{"partition_index": 0, "committed_offset": 5, "metadata": "m", "error_code": 0},
             {"partition_index": 1, "committed_offset": -1, "metadata": None, "error_code": 0}]  # fmt: skip
    answers = scripted(
        {"error_code": 0, "topics": [{"name": "t", "partitions": [{**parts[0], "error_code": 88}]}]},
        {"error_code": 0, "topics": [{"name": "t", "partitions": parts}]},
    )
    with FakeBroker({ApiKey.OFFSET_FETCH: answers}) as broker:
        assert fetch_committed(cluster(broker), "g", [("t", 0), ("t", 1)]) == {("t", 0): (5, "m")}
        assert all(body["require_stable"] for _, body in broker.seen(ApiKey.OFFSET_FETCH))
    with FakeBroker(versions={ApiKey.OFFSET_FETCH: (1, 6)}) as broker, pytest.raises(UnsupportedByBroker):
        fetch_committed(cluster(broker), "g", None)


def test_plain_commit_raises_for_any_partition() -> None:
    with FakeBroker({ApiKey.OFFSET_COMMIT: scripted(offset_answer(14, 0), offset_answer(0, 0))}) as broker:
        commit_plain(cluster(broker), "g", OFFSETS)
    with (
        FakeBroker({ApiKey.OFFSET_COMMIT: scripted(offset_answer(0, 25))}) as broker,
        pytest.raises(KafkaError, match="t-1 to group 'g'"),
    ):
        commit_plain(cluster(broker), "g", OFFSETS)


def test_listing_offsets_by_leader_and_isolation() -> None:
    def answer(*rows: tuple[int, int, int]) -> dict[str, Any]:
        parts = [{"partition_index": p, "error_code": code, "offset": at} for p, code, at in rows]
        return {"topics": [{"name": "t", "partitions": parts}]}

    answers = scripted(answer((0, 6, -1), (1, 0, 9)), answer((0, 0, 3), (1, 0, 9)))
    with FakeBroker({ApiKey.LIST_OFFSETS: answers}) as broker:
        found = list_offsets(cluster(broker), {("t", 0): EARLIEST, ("t", 1): LATEST}, committed=True)
        asked = broker.seen(ApiKey.LIST_OFFSETS)
    assert found == {("t", 0): 3, ("t", 1): 9}
    assert all(body["isolation_level"] == 1 for _, body in asked)
    assert [p["timestamp"] for p in asked[0][1]["topics"][0]["partitions"]] == [-2, -1]


def test_who_goes_on_is_told_only_to_a_broker_that_understands() -> None:
    """An older one would leave it out, give the id to anybody, and fence the driver that has it."""
    good = {"error_code": 0, "producer_id": 7, "producer_epoch": 4}
    with FakeBroker({ApiKey.INIT_PRODUCER_ID: scripted(good)}) as broker:
        assert transactions.init_producer_id(cluster(broker), "x", 1000, ME) == ProducerIdentity(7, 4)
        ((version, body),) = broker.seen(ApiKey.INIT_PRODUCER_ID)
        assert version >= 3 and (body["producer_id"], body["producer_epoch"]) == (7, 3)
    with FakeBroker(
        {ApiKey.INIT_PRODUCER_ID: scripted(good, good)}, versions={ApiKey.INIT_PRODUCER_ID: (0, 2)}
    ) as broker:
        with pytest.raises(UnsupportedByBroker):
            transactions.init_producer_id(cluster(broker), "x", 1000, ME)
        assert broker.seen(ApiKey.INIT_PRODUCER_ID) == []
        assert transactions.init_producer_id(cluster(broker), "x", 1000) == ProducerIdentity(7, 4)


def test_a_broker_that_cannot_enlist_offsets_gets_none_in_version_2() -> None:
    """They would be committed at once, outside of the transaction."""
    with FakeBroker(
        {ApiKey.TXN_OFFSET_COMMIT: scripted(offset_answer(0, 0))}, versions={ApiKey.TXN_OFFSET_COMMIT: (0, 4)}
    ) as broker:
        with pytest.raises(UnsupportedByBroker):
            transactions.commit_offsets(cluster(broker), "x", ME, "g", OFFSETS)
        assert broker.seen(ApiKey.TXN_OFFSET_COMMIT) == []


def described(name: str, code: int = 0, state: str = "Ongoing") -> dict[str, Any]:
    return {"error_code": code, "transactional_id": name, "transaction_state": state,
            "transaction_timeout_ms": 5, "transaction_start_time_ms": 6, "producer_id": 7,
            "producer_epoch": 3, "topics": []}  # fmt: skip


def test_what_a_coordinator_has_told_is_not_asked_again() -> None:
    """Of many transactions one is being loaded: the others' states stay those of one look."""
    first = [described("a"), described("b", code=14)]
    answers = scripted({"transaction_states": first}, {"transaction_states": [described("b", state="Empty")]})
    with FakeBroker({ApiKey.DESCRIBE_TRANSACTIONS: answers}) as broker:
        found = transaction_states.describe(cluster(broker), ["a", "b"])
        asked = [body["transactional_ids"] for _, body in broker.seen(ApiKey.DESCRIBE_TRANSACTIONS)]
    assert asked == [["a", "b"], ["b"]]
    assert [found[name].state for name in ("a", "b")] == ["Ongoing", "Empty"]  # type: ignore[union-attr]


def test_an_id_that_a_coordinator_leaves_out_is_not_taken_for_unknown() -> None:
    answers = scripted({"transaction_states": [described("a")]})
    with (
        FakeBroker({ApiKey.DESCRIBE_TRANSACTIONS: answers}) as broker,
        pytest.raises(KafkaError, match=r"DescribeTransactions left out \['b'\]"),
    ):
        transaction_states.describe(cluster(broker), ["a", "b"])


def test_markers_are_waited_for() -> None:
    """Of those alone that have them still to come; what timed out or is unknown is not waited for."""
    looks = [
        [described("a", state="PrepareCommit"), described("b", state="CompleteCommit"),
         described("c", state="PrepareAbort"), described("d", code=105)],
        [described("a", state="PrepareCommit"), described("c", state="CompleteAbort")],
        [described("a", state="CompleteCommit")],
    ]  # fmt: skip
    answers = scripted(*({"transaction_states": states} for states in looks))
    with FakeBroker({ApiKey.DESCRIBE_TRANSACTIONS: answers}) as broker:
        assert transaction_states.await_markers(cluster(broker), ["a", "b", "c", "d"]) == ()
        asked = [body["transactional_ids"] for _, body in broker.seen(ApiKey.DESCRIBE_TRANSACTIONS)]
    assert asked == [["a", "b", "c", "d"], ["a", "c"], ["a"]]


def test_markers_that_do_not_come_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_states, "MARKERS_SECONDS", 0.05)
    states = ["PrepareCommit"] * 30 + ["CompleteCommit"]
    answers = scripted(*({"transaction_states": [described("a", state=state)]} for state in states))
    with FakeBroker({ApiKey.DESCRIBE_TRANSACTIONS: answers}) as broker:
        began = time.monotonic()
        assert transaction_states.await_markers(cluster(broker), ["a"]) == ("a",)
        assert time.monotonic() - began >= 0.05


def test_who_ends_several_in_one_step_has_written_the_markers() -> None:
    with FakeBroker(ends_together=True) as broker:
        assert transaction_states.await_markers(cluster(broker), ["a"]) == ()
        assert broker.seen(ApiKey.DESCRIBE_TRANSACTIONS) == []


def pending_for(seconds: float) -> Handler:
    """A group whose offset is pending for a while, from the first question on."""
    since: list[float] = []

    def handle(version: int, body: Any) -> Any:
        since.append(time.monotonic())
        code = 88 if since[-1] - since[0] < seconds else 0
        part = {"partition_index": 0, "committed_offset": 5, "metadata": "m", "error_code": code}
        return {"error_code": 0, "topics": [{"name": "t", "partitions": [part]}]}

    return handle


def test_pending_offsets_are_waited_for_and_told_in_time() -> None:
    found = {("t", 0): (5, "m")}
    with FakeBroker({ApiKey.OFFSET_FETCH: pending_for(0.1)}) as broker:
        assert fetch_committed(cluster(broker), "g", list(found), pending_ms=60_000) == found
    with (
        FakeBroker({ApiKey.OFFSET_FETCH: pending_for(60)}) as broker,
        pytest.raises(StillPending, match="for 0"),
    ):
        fetch_committed(cluster(broker, api_timeout_ms=30_000), "g", list(found), pending_ms=50)


def test_a_start_from_the_groups_offsets_waits_longer_than_other_requests() -> None:
    """A driver that was killed in its decision leaves them pending for up to a minute."""
    found = {("t", 0): (5, "m")}
    with FakeBroker({ApiKey.OFFSET_FETCH: pending_for(0.3)}) as broker:
        short = cluster(broker, api_timeout_ms=50)
        assert fetch_committed(short, "g", list(found), least_ms=60_000) == found
    with FakeBroker({ApiKey.OFFSET_FETCH: pending_for(60)}) as broker, pytest.raises(RetriesExhausted):
        fetch_committed(cluster(broker, api_timeout_ms=50), "g", list(found))


def test_a_group_that_may_not_be_read_does_not_look_empty() -> None:
    """Empty, it would be a query that begins anew."""
    answers = scripted({"error_code": 30, "topics": []})
    with (
        FakeBroker({ApiKey.OFFSET_FETCH: answers}) as broker,
        pytest.raises(KafkaError, match="OffsetFetch of group 'g'"),
    ):
        fetch_committed(cluster(broker), "g", None)


def test_addresses_where_nobody_ever_answered_are_not_waited_for() -> None:
    tries: list[int] = []

    def attempt() -> None:
        tries.append(1)
        raise BrokerUnreachable("nobody there")

    nowhere = Cluster(ClientConfig((("127.0.0.1", 1),), retry_backoff_ms=1, api_timeout_ms=50))
    for reached, least in ((False, 1), (True, 2)):
        nowhere.reached = reached
        tries.clear()
        with pytest.raises((BrokerUnreachable, RetriesExhausted)):
            retrying(nowhere, "x", attempt)
        assert len(tries) >= least and (reached or len(tries) == 1)


@pytest.mark.parametrize("text", ["", "\u20ac" * 4_000])
def test_offsets_go_in_parts_that_a_broker_takes_at_once(text: str) -> None:
    offsets = {("t" * 249, partition): (partition, text) for partition in range(4_000)}
    parts = list(at_once("g", offsets))
    assert {place: offset for part in parts for place, offset in part.items()} == offsets
    for part in parts:
        assert sum(350 + len(metadata.encode()) for _, metadata in part.values()) < 1_048_588
    assert len(parts) < 100 and list(at_once("g", {})) == [{}]


# -- aborts below transaction.version 2 ----------------------------------------------------------
# Aborts below transaction.version 2: under the next epoch, and of exactly what is open under an identity.

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
