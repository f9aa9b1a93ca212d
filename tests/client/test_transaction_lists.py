"""What coordinators and leaders are asked: lists of transactions, markers, groups, numbers of rows."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import google_crc32c
import pytest

from eoslog.client.admin.transaction_states import (
    LOOKS,
    STATE_TOPIC,
    Listing,
    PendingListing,
    list_transactions,
)
from eoslog.client.records.fetch import count_rows
from eoslog.client.wire import retry
from eoslog.client.wire.cluster import Cluster, close_shared
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.commands import HeldBack
from eoslog.connector.commit.faults import StartsElsewhere
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.offsets.offsets import COMMITTED, Offsets
from eoslog.connector.options.source_options import source_options
from eoslog.connector.run import markers
from eoslog.connector.run.runner import Runner
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import build_batch
from eoslog.protocol.control import ABORT, control_batch
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.plain_records import _encode
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.client.fake_broker import Drop, FakeBroker, Handler
from tests.client.test_fetch import Log, connected, policy_of, values

# -- lists of transactions -----------------------------------------------------------------------
# A list of transactions while coordinators move from one broker to another between two answers.

PATIENCE_SECONDS = 30
HELD = Listing("sink/1", 7, "Ongoing")


class Two:
    """Two brokers. One of them coordinates the transaction, and it moves when it is looked for. The second
    broker answers after the first one. `told`: whether clients may know who coordinates."""

    def __init__(self, moves: int, told: bool = True) -> None:
        self.home, self.moves, self.told = 2, moves, told
        self.first_answered = threading.Event()
        self.asked = 0
        self.second_told = threading.Event()
        made = [FakeBroker({ApiKey.METADATA: self._metadata}) for _ in range(2)]
        self.brokers = dict(enumerate(sorted(made, key=lambda broker: broker.port), 1))
        for broker, handler in zip(self.brokers.values(), (self._first, self._second), strict=True):
            broker.handlers[ApiKey.LIST_TRANSACTIONS] = handler
        self.brokers[2].handlers[ApiKey.METADATA] = self._told_by_the_second

    def _metadata(self, version: int, body: Any) -> Any:
        nodes = [
            {"node_id": n, "host": "127.0.0.1", "port": broker.port} for n, broker in self.brokers.items()
        ]
        part = {"error_code": 0, "partition_index": 0, "leader_id": self.home, "replica_nodes": [1, 2]}
        topics = [
            {"error_code": 0, "name": topic["name"], "partitions": [part | {"isr_nodes": [1, 2]}]}
            if self.told
            else {"error_code": 29, "name": topic["name"], "partitions": []}
            for topic in body["topics"] or ()
        ]
        return {"brokers": nodes, "topics": topics}

    def _told_by_the_second(self, version: int, body: Any) -> Any:
        answer = self._metadata(version, body)
        self.second_told.set()
        return answer

    def _listed(self, number: int) -> Any:
        held = {"transactional_id": HELD[0], "producer_id": HELD[1], "transaction_state": HELD[2]}
        found = [held] if self.home == number else []
        return {"error_code": 0, "unknown_state_filters": [], "transaction_states": found}

    def _first(self, version: int, body: Any) -> Any:
        self.asked += 1
        answer = self._listed(1)
        if self.moves:
            assert self.second_told.wait(PATIENCE_SECONDS), "both have told who coordinates, before it moves"
            self.moves -= 1
            self.home = 3 - self.home
        self.first_answered.set()
        return answer

    def _second(self, version: int, body: Any) -> Any:
        assert self.first_answered.wait(PATIENCE_SECONDS)
        self.first_answered.clear()
        return self._listed(2)

    def client(self) -> Cluster:
        limits: dict[str, Any] = {"request_timeout_ms": 1000 * PATIENCE_SECONDS, "retry_backoff_ms": 1}
        return Cluster(ClientConfig((("127.0.0.1", self.brokers[1].port),), **limits))

    def list(self) -> list[Listing]:
        with self.client() as cluster:
            return listed(cluster)

    def asked_about(self) -> int:
        """How often the first broker was asked who coordinates."""
        asked = [body for _, body in self.brokers[1].seen(ApiKey.METADATA)]
        return [topic["name"] for body in asked for topic in body["topics"] or ()].count(STATE_TOPIC)


def dropped(version: int, body: Any) -> Any:
    raise Drop


def listed(cluster: Cluster) -> list[Listing]:
    return list_transactions(cluster, "sink/", ["Ongoing"])


@pytest.fixture
def servers() -> Iterator[list[FakeBroker]]:
    started: list[FakeBroker] = []
    yield started
    for broker in started:
        broker.__exit__()


@pytest.mark.parametrize("told", [True, False])
def test_a_transaction_that_moves_away_from_who_is_asked_next_is_found(
    servers: list[FakeBroker], told: bool
) -> None:
    """From the second broker to the first one, which has answered already."""
    two = Two(moves=1, told=told)
    servers += two.brokers.values()
    assert two.list() == [HELD]


def test_nothing_is_asked_twice_while_nothing_moves(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()
    with two.client() as cluster:
        assert listed(cluster) == [HELD] and two.asked == 1
        before = two.asked_about()
        assert listed(cluster) == [HELD] and two.asked == 2
    assert two.asked_about() == before + 2, "before the list and after it, in the same round trip"


def test_a_broker_that_has_joined_since_is_asked(servers: list[FakeBroker]) -> None:
    """It coordinates, and the client has known the cluster without it."""
    two = Two(moves=0)
    servers += two.brokers.values()
    (joins,) = (number for number in two.brokers if number != 1)
    later = two.brokers.pop(joins)
    with two.client() as cluster:
        two.home = 1
        assert listed(cluster) == [HELD]
        two.brokers[joins], two.home = later, joins
        assert listed(cluster) == [HELD]


def test_a_broker_that_has_gone_since_is_not_waited_for(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers.append(two.brokers[1])
    two.home = 1
    with two.client() as cluster:
        assert listed(cluster) == [HELD]
        two.brokers.pop(2).__exit__()
        assert listed(cluster) == [HELD]


def test_a_list_that_was_asked_ahead_is_read_later(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()
    with two.client() as cluster:
        assert PendingListing.ahead(cluster, "sink/", ["Ongoing"]) is None, "no connection is made for it"
        assert listed(cluster) == [HELD]
        asked = PendingListing.ahead(cluster, "sink/", ["Ongoing"])
        assert asked is not None
        cluster.metadata([])  # what else is asked does not wait for it
        assert list_transactions(cluster, "sink/", ["Ongoing"], ahead=asked) == [HELD] and two.asked == 2
        assert PendingListing.ahead(cluster, "sink/", ["Ongoing"]) is not None, (
            "its connections are used again"
        )


def test_nothing_is_asked_ahead_of_some_brokers_only(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()
    with two.client() as cluster:
        listed(cluster)
        busy = cluster.take(("127.0.0.1", two.brokers[2].port))
        assert PendingListing.ahead(cluster, "sink/", ["Ongoing"]) is None
        cluster.give_back(busy)
        assert PendingListing.ahead(cluster, "sink/", ["Ongoing"]) is not None


def test_the_driver_lists_what_readers_wait_for(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()

    def rules() -> c.Rules[c.Listed]:
        yield c.ListOngoing("sink/")
        yield c.AskOngoing("sink/")
        found: c.Listed = yield c.ListOngoing("sink/", asked=True)
        return found

    with two.client() as cluster:
        assert Runner(cluster, 60_000).run(rules()) == c.Listed((HELD.transactional_id,))
    asked = [body for broker in two.brokers.values() for _, body in broker.seen(ApiKey.LIST_TRANSACTIONS)]
    assert [body["state_filters"] for body in asked] == [["Ongoing", "PrepareCommit", "PrepareAbort"]] * 4


def test_a_list_that_was_asked_ahead_and_is_not_wanted(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()
    with two.client() as cluster:
        listed(cluster)
        asked = PendingListing.ahead(cluster, "sink/", ["Ongoing"])
        assert asked is not None
        asked.drop()
        assert all(broker.closed for broker in asked.brokers), "its answers would be taken for others"
        assert listed(cluster) == [HELD]


@pytest.mark.parametrize("when", ["before it is asked", "before it has answered"])
def test_a_broker_that_dies_with_a_list_asked_ahead(servers: list[FakeBroker], when: str) -> None:
    two = Two(moves=0)
    servers.append(two.brokers[1])
    two.home = 1
    with two.client() as cluster:
        listed(cluster)
        if when == "before it has answered":
            two.brokers[2].handlers[ApiKey.LIST_TRANSACTIONS] = dropped
        else:
            two.brokers.pop(2).__exit__()
        asked = PendingListing.ahead(cluster, "sink/", ["Ongoing"])
        two.brokers.pop(2, None)  # the cluster knows by now
        assert list_transactions(cluster, "sink/", ["Ongoing"], ahead=asked) == [HELD]


def test_a_coordinator_that_moves_while_a_list_is_under_way(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()
    with two.client() as cluster:
        listed(cluster)
        two.moves = 1
        asked = PendingListing.ahead(cluster, "sink/", ["Ongoing"])
        assert list_transactions(cluster, "sink/", ["Ongoing"], ahead=asked) == [HELD]


def test_a_cluster_that_does_not_come_to_rest_is_not_asked_for_ever(servers: list[FakeBroker]) -> None:
    two = Two(moves=1_000)
    servers += two.brokers.values()
    assert two.list() == [HELD] and two.asked == LOOKS


# -- markers -------------------------------------------------------------------------------------
# Markers that are written from outside, and what partitions are asked before: by a broker made for it.

MINE = Participant("mine", ProducerIdentity(7, 3))
HELD_BACK = HeldBack(("t", 1), MINE, 5)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "PATIENCE_MS", 1)
    monkeypatch.setattr(retry, "BRIEF_MS", 1)


def cluster(broker: FakeBroker) -> Cluster:
    return Cluster(ClientConfig((("127.0.0.1", broker.port),), retry_backoff_ms=1))


def written(code: int) -> Any:
    part = {"partition_index": 1, "error_code": code}
    topics = [{"name": "t", "partitions": [part]}]
    return lambda version, body: {"markers": [{"producer_id": 7, "topics": topics}]}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_that_of_just_this_transaction(commit: bool) -> None:
    with FakeBroker({ApiKey.WRITE_TXN_MARKERS: written(0)}) as broker:
        markers.write_markers(cluster(broker), [HELD_BACK], commit=commit)
        ((_, body),) = broker.seen(ApiKey.WRITE_TXN_MARKERS)
    (marker,) = body["markers"]
    assert (marker["producer_id"], marker["producer_epoch"]) == (7, 3)
    assert marker["transaction_result"] is commit and marker["coordinator_epoch"] == 5
    assert marker["topics"] == [{"name": "t", "partition_indexes": [1]}]


@pytest.mark.usefixtures("impatient")
def test_a_refused_marker_is_not_written() -> None:
    with (
        FakeBroker({ApiKey.WRITE_TXN_MARKERS: written(31)}) as broker,
        pytest.raises(KafkaError, match="WriteTxnMarkers on t-1"),
    ):
        markers.write_markers(cluster(broker), [HELD_BACK], commit=True)


def producers(code: int = 0) -> Any:
    """Who is known on each partition: open, another id's, and idle."""

    def handle(version: int, body: Any) -> Any:
        states = [
            {"producer_id": pid, "producer_epoch": epoch, "current_txn_start_offset": start,
             "coordinator_epoch": 5}
            for pid, epoch, start in ((7, 3, 10), (8, 0, 11), (7, 2, -1))
        ]  # fmt: skip
        parts = [
            {"partition_index": number, "error_code": code, "active_producers": states}
            for number in body["topics"][0]["partition_indexes"]
        ]
        return {"topics": [{"name": "t", "partitions": parts}]}

    return handle


@pytest.mark.usefixtures("impatient")
def test_what_is_open_of_a_producer_id_is_found_and_nothing_else() -> None:
    with FakeBroker({ApiKey.DESCRIBE_PRODUCERS: producers()}) as broker:
        assert markers.find_open(cluster(broker), "t", [1], "mine", 7) == (HELD_BACK,)
        others = [Participant("mine", ProducerIdentity(7, 2)), Participant("mine", ProducerIdentity(7, 4))]
        assert markers.find_held(cluster(broker), [("t", 1)], [MINE, *others]) == (HELD_BACK,)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("code", [29, 3])
def test_who_may_not_look_or_finds_no_topic_believes_the_coordinator(code: int) -> None:
    with FakeBroker({ApiKey.DESCRIBE_PRODUCERS: producers(code)}) as broker:
        assert markers.find_held(cluster(broker), [("t", 1)], [MINE]) == ()


@pytest.mark.usefixtures("impatient")
def test_brokers_that_cannot_tell_are_believed() -> None:
    with FakeBroker() as broker:
        del broker.versions[ApiKey.DESCRIBE_PRODUCERS]
        assert markers.find_held(cluster(broker), [("t", 1)], [MINE]) == ()
        assert markers.find_open(cluster(broker), "t", [1], "mine", 7) == ()


# -- where a group stands ------------------------------------------------------------------------
# A query that begins where a group stands (startingOffsets=committed): what it waits for, and says.

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


# -- rows are counted ----------------------------------------------------------------------------
# Rows counted by batch headers are those that fetch() reads, wherever the range cuts a batch.


def counted(broker: FakeBroker, start: int, end: int, **more: Any) -> int:
    with connected(broker) as cluster:
        return sum(rows for rows, _ in count_rows(cluster, "t", 0, start, end, **{"committed": True} | more))


@pytest.mark.parametrize(("start", "end"), [(0, 100), (5, 95), (10, 20), (13, 14), (99, 100), (40, 40)])
def test_exactly_the_range(start: int, end: int) -> None:
    log = Log()
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:
        assert counted(broker, start, end) == end - start


def test_aborted_and_control_records_do_not_count() -> None:
    log = Log(records=20)
    log.add(10, producer_id=7)
    log.append(bytearray(control_batch(ABORT, 7, 0, 0, 0)), 1)
    log.add(10)
    log.aborted = [{"producer_id": 7, "first_offset": 20}]
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:
        assert counted(broker, 15, 35) == 9 == len(values(broker, 15, 35))
        assert counted(broker, 15, 35, committed=False) == 19


def test_a_compacted_batch_that_the_range_cuts() -> None:
    """It has the offsets 0 to 9, and of them the records 0, 5, 8 and 9."""
    log = Log(records=0)
    section = b"".join(_encode(offset, None, b"%d" % offset) for offset in (0, 5, 8, 9))
    made = bytearray().join(build_batch([section], 10, base_timestamp=0, max_timestamp=0))
    made[57:61] = (4).to_bytes(4, "big")
    log.append(_resealed(made), 10)
    log.add(10)
    with FakeBroker({ApiKey.FETCH: log.fetch, ApiKey.DESCRIBE_CONFIGS: policy_of("compact")}) as broker:
        for start, end in ((0, 20), (0, 10), (1, 20), (5, 9), (6, 8), (9, 12)):
            assert counted(broker, start, end) == len(values(broker, start, end)), (start, end)
        assert counted(broker, 0, 20) == 14


def _resealed(made: bytearray) -> bytearray:
    """The batch with the CRC that it needs."""
    made[17:21] = google_crc32c.value(bytes(made[21:])).to_bytes(4, "big")
    return made
