"""A transactional producer that speaks single requests, each in the version asked for, and says the codes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire
from tests.kit.program import until

GROUP, TRANSACTION = 0, 1
QUICK = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
"""A broker that looks often for time-outs."""
STARTING = (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR)


class Cluster:
    """One broker, alone. `kafka`: Apache Kafka's, which answers EndTxn before the markers are written."""

    def __init__(self, host: str, port: int, *, kafka: bool = False) -> None:
        self.host, self.port, self.kafka = host, port, kafka
        self.wire = Wire(host, port, 30)
        self.topics = [f"{name}-{os.getpid()}-{time.time_ns()}" for name in "ab"]
        topics = [
            {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
            for name in self.topics
        ]
        made = self.wire.call(
            ApiKey.CREATE_TOPICS, 5, topics=topics, timeout_ms=10_000, validate_only=False
        )  # fmt: skip
        assert [topic["error_code"] for topic in made["topics"]] == [0, 0]
        until(lambda: all(self._coordinator(kind) == 0 for kind in (TRANSACTION, GROUP)))
        first = Producer(self, "first")
        until(lambda: first.init() == 0)
        for place in [(topic, index) for topic in (0, 1) for index in (0, 1)]:
            until(partial(_written, first, place))

    def reconnect(self) -> None:
        """Connect anew: the broker was restarted."""
        self.wire.socket.close()
        self.wire = Wire(self.host, self.port, 30)

    def _coordinator(self, kind: int) -> int:
        answer = self.wire.call(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=kind)
        return int(answer["error_code"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.socket.close()


def _written(producer: Producer, place: tuple[int, int]) -> bool:
    return producer.produce(transactional=False, place=place) == 0


@contextmanager
def cluster_under_test(
    config: Mapping[str, str], data: Path | None = None, fill: Callable[[Path], None] = lambda _: None
) -> Iterator[Cluster]:
    """The broker of EOSLOG_TEST_BOOTSTRAP; else a bundled one of this configuration, on a folder that `fill`
    has filled."""
    given = os.environ.get("EOSLOG_TEST_BOOTSTRAP")
    if given:
        host, _, port = given.rpartition(":")
        with Cluster(host, int(port), kafka=True) as opened:
            yield opened
        return
    if data is not None:
        fill(data)
    with EmbeddedBroker(data, config=dict(config)) as broker, Cluster(broker.host, broker.port) as opened:
        yield opened


class Producer:
    """Requests under one transactional id. `pid` and `epoch` are what it was told last."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.pid, self.epoch = -1, -1
        self.last: dict[str, Any] = {}

    @property
    def wire(self) -> Wire:
        """The connection of the cluster, the newest."""
        return self.cluster.wire

    # -- one request each; the answer is its error code ------------------------------------------

    def init(self, version: int = 4, timeout_ms: int = 60_000, **more: Any) -> int:
        body = {"transactional_id": self.name, "transaction_timeout_ms": timeout_ms, **more}
        self.last = self.wire.call(ApiKey.INIT_PRODUCER_ID, version, **body)
        return self._take()

    def _take(self) -> int:
        if self.last["error_code"] == 0:
            self.pid, self.epoch = self.last["producer_id"], self.last["producer_epoch"]
        return int(self.last["error_code"])

    def who(self, pid: int | None, epoch: int | None) -> dict[str, int]:
        return {
            "producer_id": self.pid if pid is None else pid,
            "producer_epoch": self.epoch if epoch is None else epoch,
        }

    def add(
        self, *partitions: tuple[int, int], version: int = 3, pid: int | None = None,
        epoch: int | None = None, verify: bool = False, name: str | None = None,
    ) -> int | list[int]:  # fmt: skip
        """AddPartitionsToTxn of (number of the topic, index). One code, or all if they differ."""
        places = partitions or ((0, 0),)
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            title = self.cluster.topics[topic] if topic >= 0 else "no-such-topic"
            topics.setdefault(title, []).append(index)
        named = [{"name": title, "partitions": indexes} for title, indexes in topics.items()]
        who = self.who(pid, epoch)
        mine = self.name if name is None else name
        if version < 4:
            answer = self.wire.call(
                ApiKey.ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id=mine,
                v3_and_below_topics=named,
                **{f"v3_and_below_{key}": value for key, value in who.items()},
            )  # fmt: skip
            results = answer["results_by_topic_v3_and_below"]
        else:
            answer = self.wire.call(
                ApiKey.ADD_PARTITIONS_TO_TXN, version,
                transactions=[{"transactional_id": mine, "topics": named, "verify_only": verify, **who}],
            )  # fmt: skip
            assert answer["error_code"] == 0
            results = answer["results_by_transaction"][0]["topic_results"]
        codes = {
            (topic["name"], line["partition_index"]): line["partition_error_code"]
            for topic in results
            for line in topic["results_by_partition"]
        }
        found = [codes[title, index] for title, indexes in topics.items() for index in indexes]
        return found[0] if len(set(found)) == 1 else found

    def end(
        self, commit: bool, version: int = 3, *, pid: int | None = None, epoch: int | None = None,
        name: str | None = None, through: bool = True,
    ) -> int:  # fmt: skip
        """EndTxn; after a success wait until it is `through`, as Kafka answers before that."""
        self.last = self.wire.call(
            ApiKey.END_TXN, version, transactional_id=self.name if name is None else name,
            committed=commit, **self.who(pid, epoch),
        )  # fmt: skip
        code = int(self.last["error_code"])
        if code == 0 and through:
            self.settle()
            if version >= 5:
                self._take()
        return code

    def settle(self) -> None:
        """Wait until nothing is prepared any more."""
        until(lambda: not self.state().startswith("Prepare"))

    def produce(
        self, sequence: int = 0, version: int = 9, *, pid: int | None = None, epoch: int | None = None,
        transactional: bool = True, name: str | None = "", place: tuple[int, int] = (0, 0), count: int = 1,
    ) -> int:  # fmt: skip
        """Produce one batch; `name`: a transactional id other than its own."""
        who = self.who(pid, epoch)
        batch = encode_records(
            [(b"", b"x")] * count, int(time.time() * 1000), base_sequence=sequence,
            transactional=transactional, **who,
        )  # fmt: skip
        mine = self.name if name == "" else name
        partition = {"index": place[1], "records": batch}
        topic = {"name": self.cluster.topics[place[0]], "partition_data": [partition]}
        self.last = self.wire.call(
            ApiKey.PRODUCE, version, transactional_id=mine if transactional else None, acks=-1,
            timeout_ms=10_000, topic_data=[topic],
        )["responses"][0]["partition_responses"][0]  # fmt: skip
        return int(self.last["error_code"])

    def offsets(self, version: int = 3, *, pid: int | None = None, epoch: int | None = None) -> int:
        """TxnOffsetCommit of one partition, to the group named as the transactional id."""
        partition = {
            "partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1,
            "committed_metadata": "",
        }  # fmt: skip
        topic = {"name": self.cluster.topics[0], "partitions": [partition]}
        answer = self.wire.call(
            ApiKey.TXN_OFFSET_COMMIT, version, transactional_id=self.name, group_id=self.name,
            generation_id=-1, member_id="", group_instance_id=None, topics=[topic], **self.who(pid, epoch),
        )  # fmt: skip
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    def add_offsets(self, version: int = 3, *, pid: int | None = None, epoch: int | None = None) -> int:
        answer = self.wire.call(
            ApiKey.ADD_OFFSETS_TO_TXN, version, transactional_id=self.name, group_id=self.name,
            **self.who(pid, epoch),
        )  # fmt: skip
        return int(answer["error_code"])

    # -- questions -------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        answer = self.wire.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.name])
        found: dict[str, Any] = answer["transaction_states"][0]
        return found

    def state(self) -> str:
        """Its state's name, empty if the id is not known."""
        return str(self.describe()["transaction_state"])

    def partition_view(self, place: tuple[int, int] = (0, 0)) -> dict[str, Any] | None:
        """What a partition knows of its producer id (DescribeProducers)."""
        asked = {"name": self.cluster.topics[place[0]], "partition_indexes": [place[1]]}
        answer = self.wire.call(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[asked])
        for line in answer["topics"][0]["partitions"][0]["active_producers"]:
            if line["producer_id"] == self.pid:
                return dict(line)
        return None

    def log_end(self, place: tuple[int, int] = (0, 0), *, committed: bool = False) -> int:
        """Where readers of all, or of committed data, stop in a partition (ListOffsets)."""
        asked = {
            "partition_index": place[1],
            "timestamp": -1,
            "current_leader_epoch": -1,
        }
        answer = self.wire.call(
            ApiKey.LIST_OFFSETS, 5, replica_id=-1, isolation_level=int(committed),
            topics=[{"name": self.cluster.topics[place[0]], "partitions": [asked]}],
        )  # fmt: skip
        return int(answer["topics"][0]["partitions"][0]["offset"])

    def marker(
        self, commit: bool, *, epoch: int | None = None, coordinator_epoch: int = 0, version: int = 1,
        transaction_version: int = 0, place: tuple[int, int] = (0, 0), topic: str | None = None,
    ) -> int:  # fmt: skip
        """WriteTxnMarkers for one partition."""
        named = {"name": topic or self.cluster.topics[place[0]], "partition_indexes": [place[1]]}
        marker = {
            "transaction_result": commit, "topics": [named], "coordinator_epoch": coordinator_epoch,
            "transaction_version": transaction_version, **self.who(None, epoch),
        }  # fmt: skip
        answer = self.wire.call(ApiKey.WRITE_TXN_MARKERS, version, markers=[marker])
        return int(answer["markers"][0]["topics"][0]["partitions"][0]["error_code"])

    def list(self, version: int = 2, **filters: Any) -> dict[str, str]:
        """ListTransactions: transactional id -> state, or the error as the value of ''."""
        body = {"state_filters": [], "producer_id_filters": [], **filters}
        self.last = self.wire.call(ApiKey.LIST_TRANSACTIONS, version, **body)
        if self.last["error_code"]:
            return {"": E(self.last["error_code"]).name}
        return {one["transactional_id"]: one["transaction_state"] for one in self.last["transaction_states"]}

    # -- ways into the states --------------------------------------------------------------------

    def begin(self, state: str, tv2: bool) -> None:
        """A fresh id in Empty, Ongoing, CompleteCommit or CompleteAbort, by a client of TV1 or TV2.

        The epoch is at least 1, so that there is one below it.
        """
        assert self.init() == self.init() == 0
        if state == "Empty":
            return
        if tv2:
            assert self.produce(version=12) == 0
        else:
            assert self.add() == 0
            assert self.produce() == 0
        if state != "Ongoing":
            assert self.end(state == "CompleteCommit", 5 if tv2 else 3) == 0
        assert self.state() == state
