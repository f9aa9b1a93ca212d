"""Reading ranges: fetched ahead, cut to the range, nothing skipped without a word, nothing read that is not
visible.
"""

import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.client.records.fetch import fetch, visible
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.errors import OffsetsGone, RetriesExhausted, TopicRecreated
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import CorruptBatch, build_batch, iter_headers
from eoslog.protocol.control import ABORT, COMMIT, control_batch
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.errors import KafkaError
from tests.client.fake_broker import Drop, FakeBroker
from tests.kit.program import until
from tests.protocol.oracle import stamp


class Log:
    """One partition served by Fetch, with the bytes asked for and never more than fits."""

    def __init__(self, records: int = 100, *, a_batch: int = 10, codec: int = 0) -> None:
        self.codec = codec
        self.data = bytearray()
        self.end = self.start = 0
        self.faults: list[int | str] = []
        self.aborted: list[dict[str, int]] = []
        self.whole = True
        for _ in range(records // a_batch):
            self.add(a_batch)

    def add(self, count: int, producer_id: int = -1, **more: Any) -> None:
        values = pa.array([b"%d" % (self.end + i) for i in range(count)])
        for made in encode_batches(None, values, None, 0, codec=self.codec, max_batch_bytes=1 << 30):
            self.append(bytearray().join(made.finish(producer_id, 0, 0, producer_id >= 0)), count)

    def append(self, made: bytearray, count: int) -> None:
        stamp(made, self.end, 0)
        self.data += made
        self.end += count

    def fetch(self, version: int, body: Any) -> Any:
        fault = self.faults.pop(0) if self.faults else 0
        if fault == "drop":
            raise Drop
        wanted = body["topics"][0]["partitions"][0]
        at, code, records = wanted["fetch_offset"], fault if isinstance(fault, int) else 0, b""
        if not code and not self.start <= at <= self.end:
            code = 1
        if not code and fault != "empty":
            records = self._read(at, wanted["partition_max_bytes"])
        part = {"partition_index": 0, "error_code": code, "high_watermark": self.end,
                "last_stable_offset": self.end, "log_start_offset": self.start,
                "aborted_transactions": self.aborted, "records": records}  # fmt: skip
        return {"responses": [{"topic": "t", "partitions": [part]}]}

    def _read(self, at: int, max_bytes: int) -> bytes:
        for pos, header in iter_headers(self.data):
            if header.next_offset > at:
                size = max(max_bytes, header.size) if self.whole else max_bytes
                return bytes(self.data[pos : pos + size])
        return b""


def policy_of(policy: str | int) -> Any:
    """Answers DescribeConfigs with this cleanup.policy, or with an error code."""

    def answer(version: int, body: Any) -> Any:
        found = [{"name": "cleanup.policy", "value": policy}] if isinstance(policy, str) else []
        code = policy if isinstance(policy, int) else 0
        return {"results": [{"resource_type": 2, "resource_name": "t", "error_code": code, "configs": found}]}

    return answer


def values(broker: FakeBroker, start: int, end: int, **more: Any) -> list[bytes]:
    limits = {
        "request_timeout_ms": 2_000,
        "api_timeout_ms": more.pop("api_timeout_ms", 3_000),
        "retry_backoff_ms": 1,
    }
    with Cluster(ClientConfig((("127.0.0.1", broker.port),), **limits)) as c:
        options = {"committed": True, "max_bytes": 700} | more
        return [v for rows in fetch(c, "t", 0, start, end, **options) for v in rows.value.to_pylist()]


def connected(broker: FakeBroker) -> Cluster:
    return Cluster(ClientConfig((("127.0.0.1", broker.port),)))


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % i for i in range(start, end)]


@pytest.mark.parametrize(("start", "end"), [(0, 100), (5, 95), (10, 20), (13, 14), (99, 100), (40, 40)])
def test_exactly_the_range(start: int, end: int) -> None:
    log = Log()
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:
        assert values(broker, start, end) == numbers(start, end)


def test_failures_that_pass_change_nothing() -> None:
    log = Log()
    log.faults = ["drop", 6, 0, "empty", "drop", 9, 5, 0, "empty", 56]
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:
        assert values(broker, 0, 100) == numbers(0, 100)


def test_a_batch_above_max_bytes_is_read() -> None:
    log = Log(records=20)
    log.add(5_000)
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:
        assert values(broker, 0, log.end) == numbers(0, log.end)
        log.whole = False  # a broker that cuts even the first batch is asked for more
        assert values(broker, 0, log.end, max_bytes=200) == numbers(0, log.end)


@pytest.mark.parametrize(("most", "pieces"), [(None, 1), (1 << 20, 1), (10_000, 2), (1, 4)])
def test_compressed_batches_are_unpacked_so_many_at_a_time(most: int | None, pieces: int) -> None:
    """Four batches of some 4.4 kB each; one that is larger than that all the same as a whole."""
    log = Log(1600, a_batch=400, codec=4)
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker, connected(broker) as cluster:
        found = list(fetch(cluster, "t", 0, 0, log.end, committed=True, max_payload=most))
    assert [len(piece) for piece in found] == [1600 // pieces] * pieces
    assert [value for piece in found for value in piece.value.to_pylist()] == numbers(0, 1600)


def test_the_next_request_leaves_before_this_answer_is_decoded() -> None:
    log = Log()
    with (
        FakeBroker({ApiKey.FETCH: log.fetch}) as broker,
        Cluster(ClientConfig((("127.0.0.1", broker.port),))) as c,
    ):
        rows = fetch(c, "t", 0, 0, 100, committed=True, max_bytes=700)
        next(rows)
        until(lambda: len(broker.seen(ApiKey.FETCH)) == 2)
        assert isinstance(rows, Generator)
        rows.close()
        assert not any(c._idle.values()), "a connection with an answer to come was kept"


def test_gone_offsets_say_where_the_log_is() -> None:
    log = Log()
    log.start = 50
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:
        with pytest.raises(OffsetsGone, match=r"offset 10 of t-0.* begins at 50 and ends at 100") as caught:
            values(broker, 10, 100)
        assert caught.value.earliest == 50
        with pytest.raises(OffsetsGone):
            values(broker, 200, 300)


def test_a_refusal_is_raised_and_not_read_as_an_end() -> None:
    log = Log()
    log.faults = [29]
    with (
        FakeBroker({ApiKey.FETCH: log.fetch}) as broker,
        pytest.raises(KafkaError, match="Fetch of t-0 at 0") as refused,
    ):
        values(broker, 0, 100)
    assert refused.value.code == 29


@pytest.mark.parametrize("version", [12, 13])
def test_no_record_of_another_topic_of_the_name_is_read(version: int) -> None:
    """An older broker is asked by name, and serves whichever topic has it now; a newer one by its id."""
    log, now = Log(), bytes(range(16))

    def metadata(version: int, body: Any) -> Any:
        found = broker._metadata(version, body)
        return found | {"topics": [topic | {"topic_id": now} for topic in found["topics"]]}

    def fetched(version: int, body: Any) -> Any:
        if version < 13:
            return log.fetch(version, body)
        topic_id = body["topics"][0]["topic_id"]
        refused = {"partition_index": 0, "error_code": 100, "high_watermark": -1}
        return {"responses": [{"topic_id": topic_id, "partitions": [refused]}]}

    with FakeBroker({ApiKey.FETCH: fetched}, versions={ApiKey.FETCH: (4, version)}) as broker:
        broker.handlers[ApiKey.METADATA] = metadata
        with pytest.raises(
            TopicRecreated, match="topic t was deleted and created again: its id is AAECAwQFBgcICQoLDA0ODw"
        ):
            values(broker, 0, 100, topic_id="A" * 22)


def test_what_was_not_asked_for_is_not_read() -> None:
    """Neither another partition's part of an answer nor another topic's."""
    log = Log()

    def with_others(version: int, body: Any) -> Any:
        (part,) = log.fetch(version, body)["responses"][0]["partitions"]
        other = {**part, "error_code": 1}
        parts = [{**other, "partition_index": 1}, part]
        return {"responses": [{"topic": "u", "partitions": [other]}, {"topic": "t", "partitions": parts}]}

    with FakeBroker({ApiKey.FETCH: with_others}) as broker:
        assert values(broker, 0, 100) == numbers(0, 100)


def test_no_progress_is_an_error_not_an_end() -> None:
    log = Log()
    with (
        FakeBroker({ApiKey.FETCH: log.fetch}) as broker,
        pytest.raises(RetriesExhausted, match=r"t-0 at offset 100: no progress within 300 ms"),
    ):
        values(broker, 90, 120, api_timeout_ms=300)


def test_aborted_and_control_batches_leave_no_rows_and_no_error() -> None:
    log = Log(records=20)
    first = log.end
    log.add(10, producer_id=4)
    log.append(bytearray(control_batch(ABORT, 4, 0, 0, 0)), 1)
    log.aborted = [{"producer_id": 4, "first_offset": first}]
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:
        assert values(broker, 0, log.end) == numbers(0, 20)
        assert values(broker, 20, log.end) == []
        assert values(broker, 25, log.end) == []
        assert values(broker, 0, log.end, committed=False) == numbers(0, 30)


def test_a_damaged_batch_names_partition_and_offset() -> None:
    log = Log()
    log.data[-1] ^= 1
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker, pytest.raises(CorruptBatch, match=r"t-0.*90"):
        values(broker, 0, 100)


def test_batches_that_end_in_a_gap_and_a_range_that_ends_in_one() -> None:
    """Compaction leaves holes: the next batch may begin after the range's end."""
    log = Log(records=20)
    log.end = 50
    log.add(10)
    with FakeBroker({ApiKey.FETCH: log.fetch, ApiKey.DESCRIBE_CONFIGS: policy_of("compact")}) as broker:
        assert values(broker, 0, 40) == numbers(0, 20)
        assert values(broker, 0, 55) == numbers(0, 20) + numbers(50, 55)


def test_readers_of_two_threads_do_not_meet() -> None:
    log, found = Log(), dict[int, list[bytes]]()
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:

        def read(i: int) -> None:
            found[i] = values(broker, i, 100 - i)

        threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert found == {i: numbers(i, 100 - i) for i in range(4)}


def test_a_fetch_asks_as_the_config_says() -> None:
    log = Log()
    config = {"fetch_min_bytes": 7, "fetch_max_wait_ms": 9, "client_rack": "here", "fetch_max_bytes": 500}
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:
        with Cluster(ClientConfig((("127.0.0.1", broker.port),), **config)) as c:  # type: ignore[arg-type]
            assert sum(len(rows) for rows in fetch(c, "t", 0, 0, 100, committed=True)) == 100
        _, body = broker.seen(ApiKey.FETCH)[0]
    assert (body["min_bytes"], body["max_wait_ms"], body["rack_id"], body["max_bytes"]) == (7, 9, "here", 500)
    assert body["topics"][0]["partitions"][0]["partition_max_bytes"] == 500


def test_a_reader_waits_as_long_as_it_was_told() -> None:
    log = Log()
    config = {"poll_timeout_ms": 200, "retry_backoff_ms": 1}
    with (
        FakeBroker({ApiKey.FETCH: log.fetch}) as broker,
        Cluster(ClientConfig((("127.0.0.1", broker.port),), **config)) as c,  # type: ignore[arg-type]
        pytest.raises(RetriesExhausted, match=r"within 200 ms \(kafkaConsumer.pollTimeoutMs\)"),
    ):
        list(fetch(c, "t", 0, 0, 101, committed=True))


class TwoNodes:
    """A leader with records 0..99 that sends readers away to a replica, node 2 (KIP-392)."""

    def __init__(self, near: FakeBroker, *, always: bool = False, named: bool = True) -> None:
        self.log, self.always = Log(), always
        self.leader = FakeBroker({ApiKey.FETCH: self._fetch})
        self.leader.handlers[ApiKey.METADATA] = self._metadata
        self.near, self.named = near, named

    def _metadata(self, version: int, body: Any) -> Any:
        told = self.leader._metadata(version, body)
        replica = {"node_id": 2, "host": "127.0.0.1", "port": self.near.port}
        return {**told, "brokers": [*told["brokers"], *([replica] if self.named else [])]}

    def _fetch(self, version: int, body: Any) -> Any:
        answer = self.log.fetch(version, body)
        if body["rack_id"] or self.always:  # it skips its own log then
            answer["responses"][0]["partitions"][0] |= {"preferred_read_replica": 2, "records": b""}
        return answer

    def read(self, rack: str = "here", **limits: int) -> list[bytes]:
        config: dict[str, Any] = {"request_timeout_ms": 60_000, "api_timeout_ms": 60_000}
        config |= {"retry_backoff_ms": 1} | limits
        with (
            self.near,
            self.leader,
            Cluster(ClientConfig((("127.0.0.1", self.leader.port),), client_rack=rack, **config)) as c,
        ):
            rows = fetch(c, "t", 0, 0, 100, committed=True, max_bytes=700)
            return [value for some in rows for value in some.value.to_pylist()]


def replica(records: int, fault: int | str = 0) -> FakeBroker:
    log = Log(records)

    def fetch(version: int, body: Any) -> Any:
        log.faults = [fault]
        return log.fetch(version, body)

    return FakeBroker({ApiKey.FETCH: fetch})


def test_a_replica_near_by_is_read_where_the_leader_says_so() -> None:
    nodes = TwoNodes(replica(100))
    assert nodes.read() == numbers(0, 100)
    assert len(nodes.leader.seen(ApiKey.FETCH)) == 1 and len(nodes.near.seen(ApiKey.FETCH)) > 1


@pytest.mark.parametrize("records", [0, 30])
def test_what_the_replica_does_not_have_yet_is_read_from_the_leader(records: int) -> None:
    nodes = TwoNodes(replica(records))  # asked for more, it says OFFSET_OUT_OF_RANGE, or nothing
    assert nodes.read() == numbers(0, 100)


@pytest.mark.parametrize("fault", [1, 3, 6, 9, -1, 29, "drop", "empty"])
def test_whatever_fails_at_the_replica_is_read_from_the_leader(fault: int | str) -> None:
    assert TwoNodes(replica(100, fault)).read() == numbers(0, 100)


def test_a_replica_that_nobody_knows_is_not_waited_for() -> None:
    nodes = TwoNodes(replica(100), named=False)
    assert nodes.read() == numbers(0, 100)
    assert not nodes.near.seen(ApiKey.FETCH)


def test_brokers_may_send_a_reader_away_by_a_rule_of_their_own() -> None:
    assert TwoNodes(replica(100), always=True).read(rack="") == numbers(0, 100)


@pytest.mark.parametrize("named", [True, False])
def test_a_leader_that_always_sends_away_to_where_nothing_is_ends_by_the_time_out(named: bool) -> None:
    with pytest.raises(RetriesExhausted, match="no progress within 100 ms"):
        TwoNodes(replica(100, "empty"), always=True, named=named).read(poll_timeout_ms=100)


class Gappy(Log):
    """Offsets 30 to 49 are missing."""

    def __init__(self) -> None:
        super().__init__(30)
        self.end = 50
        for _ in range(5):
            self.add(10)


@pytest.mark.parametrize("max_bytes", [1, 700, 1 << 20])
@pytest.mark.parametrize("start", [0, 29, 30, 45])
def test_offsets_that_no_compaction_took_are_an_error(start: int, max_bytes: int) -> None:
    log, seen = Gappy(), list[int]()
    with FakeBroker({ApiKey.FETCH: log.fetch, ApiKey.DESCRIBE_CONFIGS: policy_of("delete")}) as broker:
        with pytest.raises(OffsetsGone, match="are missing in the midst of its log") as raised:
            for rows in fetch(connected(broker), "t", 0, start, 100, committed=True, max_bytes=max_bytes):
                seen += rows.offset.to_pylist()
        assert seen == list(range(start, 30)) and raised.value.behind == 50
        assert f"offsets {max(start, 30)} to 49 of t-0" in str(raised.value)
        rest = fetch(connected(broker), "t", 0, 50, 100, committed=True)
        assert [at for rows in rest for at in rows.offset.to_pylist()] == list(range(50, 100))


def test_a_gap_at_the_end_of_the_range_is_an_error_too() -> None:
    log = Gappy()
    with FakeBroker({ApiKey.FETCH: log.fetch, ApiKey.DESCRIBE_CONFIGS: policy_of("delete")}) as broker:
        with pytest.raises(OffsetsGone):
            list(fetch(connected(broker), "t", 0, 0, 40, committed=True))
        assert [len(rows) for rows in fetch(connected(broker), "t", 0, 0, 30, committed=True)] == [30]


@pytest.mark.parametrize("policy", ["compact", "delete,compact", 29], ids=["compact", "both", "not told"])
def test_what_compaction_took_is_not_missed(policy: str | int, caplog: pytest.LogCaptureFixture) -> None:
    log = Gappy()
    with FakeBroker({ApiKey.FETCH: log.fetch, ApiKey.DESCRIBE_CONFIGS: policy_of(policy)}) as broker:
        rows = fetch(connected(broker), "t", 0, 0, 100, committed=True)
        assert [at for one in rows for at in one.offset.to_pylist()] == [*range(30), *range(50, 100)]
    assert ("is not known" in caplog.text) == isinstance(policy, int)


# -- which batches readers see -------------------------------------------------------------------
# Which batches readers see: against a plain model that remembers how each transaction ended.

OPEN = -1


@dataclass
class ModelLog:
    """A log written one batch at a time, with what Fetch would tell about it."""

    data: bytearray = field(default_factory=bytearray)
    end: int = 0
    rows: list[tuple[int, int]] = field(default_factory=list)  # offset, transaction number or -1
    outcome: dict[int, int] = field(default_factory=dict)  # transaction number: COMMIT, ABORT or OPEN
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    producer: dict[int, int] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)  # producer: its open transaction

    def write(self, pid: int, count: int, transactional: bool) -> None:
        number = -1
        if transactional:
            number = self.running.setdefault(pid, len(self.outcome))
            self.outcome.setdefault(number, OPEN)
            self.first.setdefault(number, self.end)
            self.producer[number] = pid
        parts = build_batch(
            [b"\x00" * count], count, base_timestamp=0, max_timestamp=0, producer_id=pid, producer_epoch=0,
            base_sequence=0, transactional=transactional,
        )  # fmt: skip
        self._append(bytearray().join(parts), count)
        self.rows += [(self.end - count + i, number) for i in range(count)]

    def finish(self, pid: int, kind: int) -> None:
        number = self.running.pop(pid, None)
        if number is not None:
            self.outcome[number], self.last[number] = kind, self.end
            self._append(bytearray(control_batch(kind, pid, 0, 0, 0)), 1)

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        """As a broker lists them: transactions aborted whose range touches start..end-1."""
        return [
            (self.producer[n], self.first[n])
            for n, kind in self.outcome.items()
            if kind == ABORT and self.last[n] >= start and self.first[n] < end
        ]

    def _append(self, made: bytearray, count: int) -> None:
        stamp(made, self.end, 0)
        self.data += made
        self.end += count


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 3), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("end"), st.integers(1, 3), st.sampled_from([ABORT, COMMIT])),
    ),
    max_size=25,
)


@given(steps=STEPS, cut=st.data())
def test_committed_and_plain_rows_and_no_others(steps: list[tuple[object, ...]], cut: st.DataObject) -> None:
    log = ModelLog()
    for step in steps:
        if step[0] == "write":
            pid, count, transactional = step[1:]
            # a producer with an open transaction may not write outside of it
            log.write(pid, count, transactional or pid in log.running)  # type: ignore[arg-type]
        else:
            log.finish(*step[1:])  # type: ignore[arg-type]
    stable = min((log.first[n] for n in log.running.values()), default=log.end)
    start = cut.draw(st.one_of(st.just(0), st.integers(0, stable)))
    end = cut.draw(st.one_of(st.just(stable), st.integers(start, stable)))
    data = memoryview(bytes(log.data))

    def offsets(aborted: list[tuple[int, int]] | None) -> list[int]:
        seen = visible(data, start, end, aborted)
        return [o for _, h in seen.batches for o in range(h.base_offset, h.next_offset) if start <= o < end]

    inside = [(offset, number) for offset, number in log.rows if start <= offset < end]
    wanted = [offset for offset, number in inside if number < 0 or log.outcome[number] == COMMIT]
    assert offsets(log.aborted(start, end)) == wanted
    assert offsets(None) == [offset for offset, _ in inside]


def test_a_producer_is_seen_again_after_its_aborted_transaction() -> None:
    log = ModelLog()
    for kind in (ABORT, COMMIT, ABORT, COMMIT):
        log.write(1, 2, True)
        log.finish(1, kind)
    seen = visible(bytes(log.data), 0, log.end, log.aborted(0, log.end))
    assert [header.base_offset for _, header in seen.batches] == [3, 9]


def test_a_cut_batch_at_the_end_is_left_for_the_next_answer() -> None:
    log = ModelLog()
    log.write(1, 2, False)
    whole = len(log.data)
    log.write(1, 3, False)
    for size in range(whole, len(log.data)):
        seen = visible(memoryview(bytes(log.data[:size])), 0, 100, [])
        assert (len(seen.batches), seen.next_offset) == (1, 2)
    assert visible(b"", 0, 100, []).next_offset == -1


def test_a_damaged_batch_is_not_passed_over() -> None:
    log = ModelLog()
    log.write(5, 2, True)
    log.finish(5, ABORT)
    damaged = bytearray(log.data)
    damaged[-3] ^= 1
    with pytest.raises(CorruptBatch):
        visible(bytes(damaged), 0, 100, [(5, 0)])
    damaged = bytearray(log.data)
    damaged[60] ^= 1
    with pytest.raises(CorruptBatch):
        visible(bytes(damaged), 0, 100, [(5, 0)])


def test_only_the_rows_of_who_was_aborted_are_hidden() -> None:
    """Others write in between: in transactions of their own, or, with the same id, in none."""
    log = ModelLog()
    for pid in (1, 2, 1, 2):
        log.write(pid, 2, True)
    log.finish(2, COMMIT)
    log.write(3, 2, False)
    log.finish(1, ABORT)
    seen = visible(bytes(log.data), 0, log.end, log.aborted(0, log.end))
    assert [header.producer_id for _, header in seen.batches] == [2, 2, 3]
    plain = ModelLog()
    plain.write(1, 2, False)
    assert len(visible(bytes(plain.data), 0, 2, [(1, 0)]).batches) == 1
