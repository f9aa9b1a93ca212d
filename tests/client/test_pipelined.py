"""Ends and take-overs of many transactions: under way together, each with its own outcome."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from eoslog.client.admin import transactions
from eoslog.client.admin.transactions import AcquiredTransaction
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.pipelined import IN_FLIGHT, at_coordinators
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.run.runner import Runner
from eoslog.errors import RetriesExhausted, UnsupportedByBroker
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.typed import END_TXN
from tests.client.fake_broker import Drop, FakeBroker, Handler

NAMES = [f"sink/1.0/0/w.{number}" for number in range(IN_FLIGHT + 5)]


def cluster(broker: FakeBroker, **more: Any) -> Cluster:
    limits = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 3_000, "retry_backoff_ms": 1} | more
    return Cluster(ClientConfig((("127.0.0.1", broker.port),), **limits))


def ended(version: int, body: Any) -> Any:
    return {"error_code": 0, "producer_id": body["producer_id"], "producer_epoch": body["producer_epoch"] + 1}


def all_of(names: list[str]) -> dict[str, ProducerIdentity]:
    return {name: ProducerIdentity(number, 3) for number, name in enumerate(names)}


def test_requests_are_under_way_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant number of round trips, however many transactions (up to IN_FLIGHT at a time)."""
    waiting: list[int] = []
    real = BrokerConnection.receive

    def receive(self: BrokerConnection, timeout_ms: float | None = None) -> Any:
        waiting.append(self.waiting)
        return real(self, timeout_ms)

    with FakeBroker({ApiKey.END_TXN: ended}) as broker:
        client = cluster(broker)
        client.coordinators("transaction", NAMES)
        monkeypatch.setattr(BrokerConnection, "receive", receive)
        found = transactions.end_txns(client, all_of(NAMES), True)
    assert found == {name: ProducerIdentity(number, 4) for number, name in enumerate(NAMES)}
    assert waiting == [*range(IN_FLIGHT, 0, -1), 5, 4, 3, 2, 1]


def test_each_has_its_own_outcome_and_only_what_may_pass_is_asked_again() -> None:
    tries: dict[str, int] = {}

    def answer(version: int, body: Any) -> Any:
        name = body["transactional_id"]
        tries[name] = tries.get(name, 0) + 1
        if name == "fenced":
            return {"error_code": int(ErrorCode.PRODUCER_FENCED)}
        if name == "busy" and tries[name] < 3:
            return {"error_code": int(ErrorCode.CONCURRENT_TRANSACTIONS)}
        return ended(version, body)

    with FakeBroker({ApiKey.END_TXN: answer}) as broker:
        found = transactions.end_txns(cluster(broker), all_of(["fenced", "busy", "fine"]), False)
    refused = found["fenced"]
    assert isinstance(refused, KafkaError) and refused.code == ErrorCode.PRODUCER_FENCED
    assert found["busy"] == ProducerIdentity(1, 4) and found["fine"] == ProducerIdentity(2, 4)
    assert tries == {"fenced": 1, "busy": 3, "fine": 1}


def test_a_connection_lost_half_way_loses_no_answer_that_came() -> None:
    tries: list[str] = []

    def answer(version: int, body: Any) -> Any:
        tries.append(body["transactional_id"])
        if tries == ["a", "b"]:
            raise Drop
        return ended(version, body)

    with FakeBroker({ApiKey.END_TXN: answer}) as broker:
        found = transactions.end_txns(cluster(broker), all_of(["a", "b", "c"]), True)
    assert found == {name: ProducerIdentity(number, 4) for number, name in enumerate("abc")}
    assert tries == ["a", "b", "b", "c"]


def test_those_that_never_get_through_are_told() -> None:
    def answer(version: int, body: Any) -> Any:
        if body["transactional_id"] == "stuck":
            return {"error_code": int(ErrorCode.CONCURRENT_TRANSACTIONS)}
        return ended(version, body)

    with FakeBroker({ApiKey.END_TXN: answer}) as broker:
        short = cluster(broker, delivery_timeout_ms=200)
        found = transactions.end_txns(short, all_of(["stuck", "fine"]), True)
    assert found["fine"] == ProducerIdentity(1, 4)
    assert isinstance(found["stuck"], RetriesExhausted) and "kafka.delivery.timeout.ms" in str(found["stuck"])


@contextlib.contextmanager
def two_coordinators(first: Handler, second: Handler) -> Iterator[Cluster]:
    """A cluster of two: ids that begin with "one" are coordinated by the first, the others by the second."""
    with FakeBroker({ApiKey.END_TXN: second}) as two, FakeBroker({ApiKey.END_TXN: first}) as one:

        def find(version: int, body: Any) -> Any:
            found = {
                key: (1, one.port) if key.startswith("one") else (2, two.port)
                for key in body["coordinator_keys"]
            }
            where = {"host": "127.0.0.1", "error_code": 0, "error_message": None}
            return {
                "coordinators": [
                    {"key": key, "node_id": node, "port": port, **where}
                    for key, (node, port) in found.items()
                ]
            }

        one.handlers[ApiKey.FIND_COORDINATOR] = find
        yield cluster(one)


def test_no_coordinator_waits_for_another() -> None:
    both = threading.Barrier(2, timeout=10)

    def meeting(version: int, body: Any) -> Any:
        if body["transactional_id"].endswith("first"):
            both.wait()
        return ended(version, body)

    names = ["one-first", "one-second", "two-first", "two-second"]
    with two_coordinators(meeting, meeting) as client:
        found = transactions.end_txns(client, all_of(names), True)
    assert found == {name: ProducerIdentity(number, 4) for number, name in enumerate(names)}


def test_a_coordinator_that_is_lost_stops_no_other() -> None:
    tries: dict[str, int] = {}

    def count(version: int, body: Any) -> Any:
        name = body["transactional_id"]
        tries[name] = tries.get(name, 0) + 1
        return ended(version, body)

    def drop_once(version: int, body: Any) -> Any:
        answer = count(version, body)
        if tries[body["transactional_id"]] == 1:
            raise Drop
        return answer

    many = [f"two-{number}" for number in range(IN_FLIGHT + 5)]
    names = ["one-a", *many]
    with two_coordinators(drop_once, count) as client:
        found = transactions.end_txns(client, all_of(names), True)
    assert found == {name: ProducerIdentity(number, 4) for number, name in enumerate(names)}
    assert tries == {"one-a": 2, **dict.fromkeys(many, 1)}


def test_a_connection_whose_answers_nobody_reads_is_closed() -> None:
    """Its next user would get an answer of ours."""

    def fault(name: str, answer: Any) -> Any:
        raise ZeroDivisionError

    with FakeBroker({ApiKey.END_TXN: ended}) as broker:
        client = cluster(broker)
        connection = client.coordinator("transaction", "a")
        with pytest.raises(ZeroDivisionError):
            at_coordinators(
                client,
                "end",
                ["a", "b"],
                END_TXN,
                lambda connection, name: (
                    {"transactional_id": name, "producer_id": 1, "producer_epoch": 3, "committed": True},
                    4,
                ),
                fault,
            )
        assert connection.closed
        assert client.coordinator("transaction", "a") is not connection


class Together:
    """A broker that ends several transactions in one step, each with the code that `codes` has for it."""

    def __init__(self, **codes: list[ErrorCode]) -> None:
        self.codes = codes
        self.asked: list[list[str]] = []

    def __call__(self, version: int, body: Any) -> Any:
        others = body.get("together", [])
        self.asked.append([one["transactional_id"] for one in (body, *others)])
        answer = self.one(body)
        return answer | ({"together": [self.one(other) for other in others]} if others else {})

    def one(self, named: Any) -> Any:
        codes, epoch = self.codes.get(named["transactional_id"]), named["producer_epoch"] + 1
        done = {"error_code": 0, "producer_id": named["producer_id"], "producer_epoch": epoch}
        answer = {"error_code": int(codes.pop(0))} if codes else done
        return answer | {"transactional_id": named["transactional_id"]}

    def broker(self, **more: Any) -> FakeBroker:
        return FakeBroker({ApiKey.END_TXN: self._without_the_name}, ends_together=True, **more)

    def _without_the_name(self, version: int, body: Any) -> Any:
        answer = self(version, body)
        del answer["transactional_id"]
        return answer


def test_one_request_where_the_broker_ends_them_together() -> None:
    answers = Together()
    with answers.broker() as broker:
        found = transactions.end_txns(cluster(broker), all_of(NAMES), True)
    assert found == {name: ProducerIdentity(number, 4) for number, name in enumerate(NAMES)}
    assert answers.asked == [NAMES]


def test_of_those_that_end_together_only_what_may_pass_is_asked_again() -> None:
    busy, fenced = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED
    answers = Together(busy=[busy, busy], busier=[busy, busy, busy], fenced=[fenced])
    with answers.broker() as broker:
        found = transactions.end_txns(cluster(broker), all_of(["busy", "fenced", "fine", "busier"]), False)
    refused = found.pop("fenced")
    assert isinstance(refused, KafkaError) and refused.code == fenced
    assert found == {
        "busy": ProducerIdentity(0, 4),
        "fine": ProducerIdentity(2, 4),
        "busier": ProducerIdentity(3, 4),
    }
    assert answers.asked == [
        ["busy", "fenced", "fine", "busier"],
        ["busy", "busier"],
        ["busy", "busier"],
        ["busier"],
    ]


def test_those_that_are_left_out_of_the_answer_are_asked_alone() -> None:
    """As where the first one is denied, or the field is lost on the way."""
    asked: list[str] = []

    def answer(version: int, body: Any) -> Any:
        asked.append(body["transactional_id"])
        return ended(version, body)

    with FakeBroker({ApiKey.END_TXN: answer}, ends_together=True) as broker:
        found = transactions.end_txns(cluster(broker), all_of(["a", "b", "c"]), True)
    assert found == {name: ProducerIdentity(number, 4) for number, name in enumerate("abc")}
    assert asked == ["a", "b", "c"]


def test_an_answer_that_is_lost_is_asked_for_again_in_the_same_way() -> None:
    answers = Together()

    def lost(version: int, body: Any) -> Any:
        answer = answers._without_the_name(version, body)
        if len(answers.asked) == 1:
            raise Drop
        return answer

    with FakeBroker({ApiKey.END_TXN: lost}, ends_together=True) as broker:
        found = transactions.end_txns(cluster(broker), all_of(["a", "b"]), True)
    assert found == {"a": ProducerIdentity(0, 4), "b": ProducerIdentity(1, 4)}
    assert answers.asked == [["a", "b"], ["a", "b"]]


@pytest.mark.parametrize(
    "offered", [{"ends_together": False}, {"ends_together": True, "transaction_version": 1}]
)
def test_elsewhere_each_has_a_request_of_its_own(offered: dict[str, Any]) -> None:
    with FakeBroker({ApiKey.END_TXN: ended}, **offered) as broker:
        transactions.end_txns(cluster(broker), all_of(["a", "b"]), True)
        bodies = [body for _, body in broker.seen(ApiKey.END_TXN)]
    assert [(body["transactional_id"], body["together"]) for body in bodies] == [("a", []), ("b", [])]


def test_one_alone_is_asked_alone() -> None:
    answers = Together()
    with answers.broker() as broker:
        transactions.end_txns(cluster(broker), all_of(["a"]), True)
    assert answers.asked == [["a"]]


def test_an_open_transaction_is_taken_over() -> None:
    def answer(version: int, body: Any) -> Any:
        assert version == 6 and body["enable2_pc"] and body["keep_prepared_txn"]
        open_ = body["transactional_id"] == "open"
        wrote = {"ongoing_txn_producer_id": 7, "ongoing_txn_producer_epoch": 3} if open_ else {}
        return {"error_code": 0, "producer_id": 7, "producer_epoch": 4, **wrote}

    with FakeBroker({ApiKey.INIT_PRODUCER_ID: answer}) as broker:
        found = transactions.keep_prepared(cluster(broker), ["open", "at rest"], 60_000)
    assert found == {
        "open": AcquiredTransaction(ProducerIdentity(7, 4), ProducerIdentity(7, 3)),
        "at rest": AcquiredTransaction(ProducerIdentity(7, 4), None),
    }


def test_a_broker_without_the_request_is_not_asked() -> None:
    with FakeBroker(versions={ApiKey.INIT_PRODUCER_ID: (0, 5)}) as broker:
        found = transactions.keep_prepared(cluster(broker), ["x"], 60_000)
        assert isinstance(found["x"], UnsupportedByBroker)
        assert broker.seen(ApiKey.INIT_PRODUCER_ID) == []


SEAL = c.Seal((Participant("x", ProducerIdentity(7, 3)), Participant("y", ProducerIdentity(8, 3))))


def asking(command: c.Command[Any]) -> c.Rules[Any]:
    answer: Any = yield command
    return answer


def test_of_a_broker_without_the_request_the_rules_are_told_that_it_is_not_offered() -> None:
    with FakeBroker(versions={ApiKey.INIT_PRODUCER_ID: (0, 5)}) as broker:
        answers = Runner(cluster(broker), 60_000).run(asking(SEAL))
    assert {type(answer) for answer in answers.values()} == {c.NotOffered}


def test_who_raises_the_epoch_says_who_it_is() -> None:
    """So nobody else's sink is taken from it."""
    given = {"error_code": 0, "producer_id": 7, "producer_epoch": 4}
    with FakeBroker({ApiKey.INIT_PRODUCER_ID: lambda *_: dict(given)}) as broker:
        assert Runner(cluster(broker), 60_000).run(
            asking(c.Acquire("x", ProducerIdentity(7, 3)))
        ) == ProducerIdentity(7, 4)
        ((_, body),) = broker.seen(ApiKey.INIT_PRODUCER_ID)
    assert (body["producer_id"], body["producer_epoch"]) == (7, 3)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_what_the_rules_have_asked_for(commit: bool) -> None:
    end = c.End(commit, (Participant("x", ProducerIdentity(7, 3)),))
    with FakeBroker({ApiKey.END_TXN: ended}) as broker:
        assert Runner(cluster(broker), 60_000).run(asking(end)) == {"x": ProducerIdentity(7, 4)}
        ((_, body),) = broker.seen(ApiKey.END_TXN)
    assert body["committed"] is commit


def test_the_rules_are_told_who_wrote_and_who_holds() -> None:
    kept = {"error_code": 0, "producer_id": 7, "producer_epoch": 4,
            "ongoing_txn_producer_id": 7, "ongoing_txn_producer_epoch": 3}  # fmt: skip
    with FakeBroker({ApiKey.INIT_PRODUCER_ID: lambda *_: dict(kept)}) as broker:
        answers = Runner(cluster(broker), 60_000).run(asking(SEAL))
    assert answers == dict.fromkeys(
        "xy", c.Sealed(holder=ProducerIdentity(7, 4), wrote=ProducerIdentity(7, 3))
    )


def test_who_does_not_answer_has_not_refused() -> None:
    """The request may have reached the broker: what came of it is unknown."""

    def lost(version: int, body: Any) -> Any:
        raise Drop

    with FakeBroker({ApiKey.INIT_PRODUCER_ID: lost}) as broker:
        answers = Runner(cluster(broker, delivery_timeout_ms=20), 60_000).run(asking(SEAL))
    assert {type(answer) for answer in answers.values()} == {c.Unknown}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, c.NotOffered),
        (ErrorCode.UNSUPPORTED_VERSION, c.NotOffered),
        (ErrorCode.INVALID_REQUEST, c.Refused),
    ],
)
def test_what_the_rules_are_told(code: ErrorCode, kind: type, caplog: pytest.LogCaptureFixture) -> None:
    """And the user, once, where nothing is sealed."""
    caplog.set_level("INFO", "eoslog")
    with FakeBroker({ApiKey.INIT_PRODUCER_ID: lambda *_: {"error_code": int(code)}}) as broker:
        runner = Runner(cluster(broker), 60_000)
        for _ in range(2):
            assert {type(answer) for answer in runner.run(asking(SEAL)).values()} == {kind}
    assert caplog.text.count("no two-phase commit here") == (1 if kind is c.NotOffered else 0)
