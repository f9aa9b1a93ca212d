"""The handlers of the transactional APIs: versions, their error codes, batches, answers by their schema."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from eoslog.broker import handlers
from eoslog.broker.core.broker import Broker
from eoslog.broker.requests import RequestContext
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.frames import RequestHeader
from eoslog.protocol.schema import Message
from tests.broker.coordinator.transactions.transaction_machine import (
    CONFIG,
    Client,
    Machine,
    PowerCut,
    fresh_disk,
)
from tests.broker.log.logkit import Directory

INIT, ADD, OFFSETS, END, MARKERS, DESCRIBE, LIST, PRODUCERS = (
    ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_PRODUCERS,
)  # fmt: skip
HANDLERS = {module.KEY: module.handle for module in handlers.ALL}
A, B = ("a", 0), ("b", 0)


class Server:
    """Calls handlers as the dispatch does; request and answer go through their schemas."""

    def __init__(self, disk: Directory) -> None:
        self.machine = Machine(PowerCut(disk))

    async def call(self, key: ApiKey, version: int, /, **body: Any) -> Message:
        api = APIS[key]
        sent = b"".join(api.request.write(version, body))
        request, _ = api.request.read(version, sent)
        header = RequestHeader(key, version, 1, "test")
        context = RequestContext(cast(Broker, self.machine), header, "127.0.0.1")
        answer = HANDLERS[key](context, request)
        if isinstance(answer, Awaitable):
            answer = await answer
        assert answer is not None
        answered: dict[str, Any]
        answered, _ = api.response.read(version, b"".join(api.response.write(version, answer)))
        return answered

    async def client(self, name: str = "x", tv2: bool = True) -> Client:
        client = Client(self.machine, name, tv2)
        await client.init()
        return client


Test = Callable[[Server], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def disk() -> Directory:
    return fresh_disk("a", "b")


@pytest.fixture
def serve(disk: Directory) -> Callable[[Test], None]:
    def run(test: Test) -> None:
        async def live() -> None:
            server = Server(disk)
            await asyncio.wait_for(test(server), 20)
            server.machine.close()

        asyncio.run(live())

    return run


def versions(key: ApiKey, lowest: int = 0) -> range:
    return range(max(APIS[key].min_version, lowest), APIS[key].max_version + 1)


@pytest.mark.parametrize("version", versions(INIT))
def test_init_producer_id(serve: Callable[[Test], None], version: int) -> None:
    async def test(server: Server) -> None:
        def ask(name: str | None, timeout: int = 1000, **more: int) -> Awaitable[Message]:
            return server.call(INIT, version, transactional_id=name, transaction_timeout_ms=timeout, **more)

        first = await ask("x")
        assert (first["error_code"], first["producer_epoch"]) == (0, 0)
        again = await ask("x")
        assert (again["producer_id"], again["producer_epoch"]) == (first["producer_id"], 1)
        one, two = await ask(None), await ask(None)
        assert len({one["producer_id"], two["producer_id"], first["producer_id"]}) == 3
        for timeout in (0, -1, 900_001):
            assert (await ask("x", timeout))["error_code"] == E.INVALID_TRANSACTION_TIMEOUT
        assert (await ask(""))["error_code"] == E.INVALID_REQUEST
        if version >= 3:
            fenced = await ask("x", producer_id=first["producer_id"], producer_epoch=0)
            assert fenced["error_code"] == (E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH)
            assert (fenced["producer_id"], fenced["producer_epoch"]) == (-1, -1)
            went_on = await ask("x", producer_id=first["producer_id"], producer_epoch=1)
            assert (went_on["error_code"], went_on["producer_epoch"]) == (0, 2)

    serve(test)


def test_two_phase_commit(serve: Callable[[Test], None]) -> None:
    async def test(server: Server) -> None:
        body: dict[str, Any] = {"transactional_id": "x", "transaction_timeout_ms": 1000}
        first = await server.call(INIT, 6, **body, enable2_pc=True)
        client = await server.client("y")
        coordinator = server.machine.transactions
        await coordinator.add_partitions("x", first["producer_id"], first["producer_epoch"], [A])
        await coordinator.add_partitions("y", *client.producer, [A])
        server.machine.clock.now += 10**12
        await coordinator.tick()
        states = {known.transactional_id: known.state.text for known in coordinator.list()}
        assert states == {"x": "Ongoing", "y": "CompleteAbort"}
        described = await server.call(DESCRIBE, 0, transactional_ids=["x"])
        assert described["transaction_states"][0]["transaction_timeout_ms"] == 2**31 - 1

    serve(test)


def test_two_phase_commit_switched_off(
    serve: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(server: Server) -> None:
        body: dict[str, Any] = {"transactional_id": "x", "transaction_timeout_ms": 1000}
        refused = await server.call(INIT, 6, **body, enable2_pc=True)
        assert refused["error_code"] == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (refused["producer_id"], refused["ongoing_txn_producer_id"]) == (-1, -1)
        assert (await server.call(INIT, 6, **body))["error_code"] == 0

    monkeypatch.setitem(CONFIG, "transaction.two.phase.commit.enable", "false")
    serve(test)


@pytest.mark.parametrize("version", versions(END))
@pytest.mark.parametrize("commit", [False, True])
def test_a_prepared_transaction_is_kept(serve: Callable[[Test], None], commit: bool, version: int) -> None:
    """KIP-939: a new user takes it over by its old (producer id, epoch) and ends it under its own."""

    async def test(server: Server) -> None:
        body: dict[str, Any] = {"transactional_id": "x", "transaction_timeout_ms": 1000, "enable2_pc": True}
        none = await server.call(INIT, 6, **body, keep_prepared_txn=True)
        assert (none["error_code"], none["producer_epoch"]) == (0, 0)
        assert (none["ongoing_txn_producer_id"], none["ongoing_txn_producer_epoch"]) == (-1, -1)
        client = await server.client("x")
        pid, epoch = client.producer
        await client.write(7, [A, B], offsets=True)
        for times in (1, 2):
            kept = await server.call(INIT, 6, **body, keep_prepared_txn=True)
            assert (kept["error_code"], kept["producer_id"]) == (0, pid)
            assert kept["producer_epoch"] == epoch + times
            assert (kept["ongoing_txn_producer_id"], kept["ongoing_txn_producer_epoch"]) == (pid, epoch)
        described = (await server.call(DESCRIBE, 0, transactional_ids=["x"]))["transaction_states"][0]
        assert described["transaction_state"] == "Ongoing"
        assert (described["producer_id"], described["producer_epoch"]) == (pid, epoch)
        end: dict[str, Any] = {"transactional_id": "x", "producer_id": pid, "committed": commit}
        fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
        for stale in (epoch, epoch + 1):
            assert (await server.call(END, version, **end, producer_epoch=stale))["error_code"] == fenced
        with pytest.raises(KafkaError, match="is fenced"):
            await client.produce(A, 8)
        client.producer = (pid, epoch + 2)
        with pytest.raises(KafkaError, match="commit or abort it first") as caught:
            await client.produce(A, 8)
        assert caught.value.code is E.INVALID_TXN_STATE
        done = await server.call(END, version, **end, producer_epoch=epoch + 2)
        assert done["error_code"] == 0
        goes_on = epoch + 3 if version >= 5 else epoch + 2
        if version >= 5:
            assert (done["producer_id"], done["producer_epoch"]) == (pid, goes_on)
        assert (await server.call(END, version, **end, producer_epoch=epoch + 2)) == done
        assert [line[1:] for line in server.machine.marked[-3:]] == [(pid, epoch + 1, commit)] * 3
        client.producer = (pid, goes_on)
        client.sequences.clear()
        await client.write(9, [A])

    serve(test)


@pytest.mark.parametrize("version", versions(END))
def test_end_txn(serve: Callable[[Test], None], version: int) -> None:
    async def test(server: Server) -> None:
        client = await server.client(tv2=False)
        await client.write(1, [A])
        pid, epoch = client.producer

        def ask(commit: bool, by: int = 0, name: str = "x", to: int = 0) -> Awaitable[Message]:
            producer: dict[str, Any] = {"producer_id": pid + to, "producer_epoch": epoch + by}
            return server.call(END, version, transactional_id=name, committed=commit, **producer)

        fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
        assert (await ask(True, by=1))["error_code"] == fenced
        assert (await ask(True, name="unknown"))["error_code"] == E.INVALID_PRODUCER_ID_MAPPING
        assert (await ask(True, to=1))["error_code"] == E.INVALID_PRODUCER_ID_MAPPING
        assert (await ask(True, name=""))["error_code"] == E.INVALID_REQUEST
        done = await ask(True)
        assert done["error_code"] == 0
        if version >= 5:
            assert (done["producer_id"], done["producer_epoch"]) == (pid, epoch + 1)
        assert await ask(True) == done
        assert (await ask(False))["error_code"] == E.INVALID_TXN_STATE

    serve(test)


@pytest.mark.parametrize("version", versions(OFFSETS))
def test_add_offsets_to_txn(serve: Callable[[Test], None], version: int) -> None:
    async def test(server: Server) -> None:
        client = await server.client(tv2=False)
        pid, epoch = client.producer

        def ask(group: str, by: int = 0) -> Awaitable[Message]:
            producer: dict[str, Any] = {"producer_id": pid, "producer_epoch": epoch + by}
            return server.call(OFFSETS, version, transactional_id="x", group_id=group, **producer)

        assert (await ask("g"))["error_code"] == 0
        partition = server.machine.groups.group_partition("g")
        known = server.machine.transactions.describe("x")
        assert known is not None
        assert known.partitions == [("__consumer_offsets", partition.index)]
        fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
        assert (await ask("g", by=-1))["error_code"] == fenced
        assert (await ask(""))["error_code"] == E.INVALID_GROUP_ID

    serve(test)


def topics(*places: tuple[str, int]) -> list[Message]:
    return [{"name": name, "partitions": [index]} for name, index in places]


def results(lines: list[Message]) -> dict[tuple[str, int], int]:
    return {
        (topic["name"], line["partition_index"]): line["partition_error_code"]
        for topic in lines
        for line in topic["results_by_partition"]
    }


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_to_txn_from_clients(serve: Callable[[Test], None], version: int) -> None:
    async def test(server: Server) -> None:
        client = await server.client(tv2=False)
        pid, epoch = client.producer

        async def ask(*places: tuple[str, int], by: int = 0) -> dict[tuple[str, int], int]:
            answer = await server.call(
                ADD, version, v3_and_below_transactional_id="x", v3_and_below_producer_id=pid,
                v3_and_below_producer_epoch=epoch + by, v3_and_below_topics=topics(*places),
            )  # fmt: skip
            return results(answer["results_by_topic_v3_and_below"])

        unknown, forbidden, skipped = (
            E.UNKNOWN_TOPIC_OR_PARTITION, E.TOPIC_AUTHORIZATION_FAILED, E.OPERATION_NOT_ATTEMPTED
        )  # fmt: skip
        assert await ask(A, ("none", 0)) == {A: skipped, ("none", 0): unknown}
        assert await ask(A, ("a", 9)) == {A: skipped, ("a", 9): unknown}
        for name in ("__transaction_state", "__consumer_offsets"):
            assert await ask(A, (name, 0)) == {A: skipped, (name, 0): forbidden}
        known = server.machine.transactions.describe("x")
        assert known is not None
        assert known.partitions == [], "all or nothing"
        assert await ask(A, B) == {A: 0, B: 0}
        fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
        assert await ask(A, B, by=1) == {A: fenced, B: fenced}

    serve(test)


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_to_txn_in_batches(serve: Callable[[Test], None], version: int) -> None:
    async def test(server: Server) -> None:
        await server.client("x")
        second = await server.client("y")

        async def ask(*transactions: Message) -> dict[str, dict[tuple[str, int], int]]:
            answer = await server.call(ADD, version, transactions=list(transactions))
            assert answer["error_code"] == 0
            found = answer["results_by_transaction"]
            return {one["transactional_id"]: results(one["topic_results"]) for one in found}

        def transaction(
            name: str, producer: tuple[int, int], verify: bool, *places: tuple[str, int]
        ) -> Message:
            return {
                "transactional_id": name,
                "producer_id": producer[0],
                "producer_epoch": producer[1],
                "verify_only": verify,
                "topics": topics(*places),
            }

        y = second.producer
        assert await ask(transaction("x", y, False, A), transaction("y", y, False, A)) == {
            "x": {A: E.INVALID_PRODUCER_ID_MAPPING},
            "y": {A: 0},
        }
        absent = E.TRANSACTION_ABORTABLE if version >= 5 else E.INVALID_TXN_STATE
        assert await ask(transaction("y", y, True, A, B)) == {"y": {A: 0, B: absent}}
        fenced = (y[0], y[1] + 1)
        assert await ask(transaction("y", fenced, True, A)) == {"y": {A: E.PRODUCER_FENCED}}
        assert await ask(transaction("", y, True, A)) == {"": {A: E.INVALID_REQUEST}}
        offsets = ("__consumer_offsets", 0)
        assert await ask(transaction("y", y, True, offsets)) == {"y": {offsets: absent}}
        log = ("__transaction_state", 0)
        assert await ask(transaction("y", y, False, log)) == {"y": {log: E.TOPIC_AUTHORIZATION_FAILED}}

    serve(test)


def test_describe_transactions(serve: Callable[[Test], None]) -> None:
    async def test(server: Server) -> None:
        client = await server.client()
        await client.write(1, [A, B])
        answer = await server.call(DESCRIBE, 0, transactional_ids=["x", "unknown", ""])
        one, two, three = answer["transaction_states"]
        assert one == {
            "error_code": 0, "transactional_id": "x", "transaction_state": "Ongoing",
            "transaction_timeout_ms": 60_000, "transaction_start_time_ms": server.machine.clock.now_ms(),
            "producer_id": client.producer[0], "producer_epoch": client.producer[1],
            "topics": [{"topic": "a", "partitions": [0]}, {"topic": "b", "partitions": [0]}],
        }  # fmt: skip
        assert (two["transactional_id"], two["error_code"]) == ("unknown", E.TRANSACTIONAL_ID_NOT_FOUND)
        assert (three["transactional_id"], three["error_code"]) == ("", E.INVALID_REQUEST)

    serve(test)


def test_nothing_is_told_that_is_not_known(serve: Callable[[Test], None]) -> None:
    async def test(server: Server) -> None:
        client = await server.client()
        server.machine.fs.fail_sync = "__transaction_state"
        ended = await server.call(
            END, 5, transactional_id="x", producer_id=client.producer[0], producer_epoch=0, committed=False
        )
        unknown = E.COORDINATOR_NOT_AVAILABLE
        assert ended["error_code"] == unknown
        (one,) = (await server.call(DESCRIBE, 0, transactional_ids=["x"]))["transaction_states"]
        assert one["error_code"] == unknown
        listed = await server.call(LIST, 2, state_filters=[], producer_id_filters=[])
        assert (listed["error_code"], listed["transaction_states"]) == (unknown, [])

    serve(test)


@pytest.mark.parametrize("version", versions(LIST))
def test_list_transactions(serve: Callable[[Test], None], version: int) -> None:
    async def test(server: Server) -> None:
        old = await server.client("q-1.0-a")
        await old.write(1, [A])
        server.machine.clock.now += 5000
        young = await server.client("q-1.0-b")
        await young.write(2, [A])
        await server.client("q-1x0-b")

        async def ask(states: list[str] | None = None, **more: Any) -> set[str]:
            body = {"state_filters": states or [], "producer_id_filters": [], **more}
            answer = await server.call(LIST, version, **body)
            assert answer["error_code"] == 0
            return {one["transactional_id"] for one in answer["transaction_states"]}

        assert await ask() == {"q-1.0-a", "q-1.0-b", "q-1x0-b"}
        assert await ask(["Ongoing"]) == {"q-1.0-a", "q-1.0-b"}
        assert await ask(["Empty", "Bogus"]) == {"q-1x0-b"}
        assert await ask(["Bogus"]) == set(), "an unknown state is no missing filter"
        assert await ask(producer_id_filters=[old.producer[0]]) == {"q-1.0-a"}
        answer = await server.call(LIST, version, state_filters=["Dead", "Bogus"], producer_id_filters=[])
        assert answer["unknown_state_filters"] == ["Bogus"]
        if version >= 1:
            assert await ask(["Ongoing"], duration_filter=4999) == {"q-1.0-a"}
            assert await ask(["Ongoing"], duration_filter=5000) == set()
            assert await ask(["Ongoing"], duration_filter=0) == {"q-1.0-a"}
        if version >= 2:
            for pattern, found in [
                ("q-1.0-a", {"q-1.0-a"}),
                ("q", set()),
                (re.escape("q-1.0-") + ".*", {"q-1.0-a", "q-1.0-b"}),
                (r"\Qq-1.0-\E.*", {"q-1.0-a", "q-1.0-b"}),
                (r"\Qq-1.0-a", {"q-1.0-a"}),
                ("q-1.0-a|q-1x0-b", {"q-1.0-a", "q-1x0-b"}),
                ("", {"q-1.0-a", "q-1.0-b", "q-1x0-b"}),
            ]:
                assert await ask(transactional_id_pattern=pattern) == found, pattern
            answer = await server.call(
                LIST, 2, state_filters=[], producer_id_filters=[], transactional_id_pattern="q-("
            )
            assert answer["error_code"] == E.INVALID_REGULAR_EXPRESSION

    serve(test)


@pytest.mark.parametrize("version", versions(MARKERS))
def test_write_txn_markers(serve: Callable[[Test], None], version: int) -> None:
    async def test(server: Server) -> None:
        client = await server.client()
        await client.write(1, [A])
        pid, epoch = client.producer

        async def ask(producer_id: int, producer_epoch: int, *indexes: int) -> list[int]:
            marker = {
                "producer_id": producer_id, "producer_epoch": producer_epoch, "transaction_result": True,
                "topics": [{"name": "a", "partition_indexes": list(indexes)}], "coordinator_epoch": 0,
            }  # fmt: skip
            answer = await server.call(MARKERS, version, markers=[marker])
            (one,) = answer["markers"]
            assert one["producer_id"] == producer_id
            (topic,) = one["topics"]
            assert [line["partition_index"] for line in topic["partitions"]] == list(indexes)
            return [line["error_code"] for line in topic["partitions"]]

        assert await ask(pid, epoch, 0, 9) == [E.INVALID_TXN_STATE, E.UNKNOWN_TOPIC_OR_PARTITION]
        assert await ask(4711, 5, 0) == [0]
        assert await ask(4711, 4, 0) == [E.INVALID_PRODUCER_EPOCH]
        partition = server.machine.partition(A)
        assert partition.high_watermark == partition.log_end_offset, "answered when durable"

    serve(test)


def test_describe_producers(serve: Callable[[Test], None]) -> None:
    async def test(server: Server) -> None:
        client = await server.client()
        await client.write(1, [A])
        answer = await server.call(PRODUCERS, 0, topics=[{"name": "a", "partition_indexes": [0, 9]}])
        one, two = answer["topics"][0]["partitions"]
        (producer,) = one["active_producers"]
        assert (producer["producer_id"], producer["producer_epoch"]) == client.producer
        assert (producer["last_sequence"], producer["current_txn_start_offset"]) == (0, 0)
        assert two["error_code"] == E.UNKNOWN_TOPIC_OR_PARTITION
        await client.end(True)
        answer = await server.call(PRODUCERS, 0, topics=[{"name": "a", "partition_indexes": [0]}])
        (producer,) = answer["topics"][0]["partitions"][0]["active_producers"]
        assert (producer["producer_epoch"], producer["current_txn_start_offset"]) == (client.producer[1], -1)

    serve(test)
