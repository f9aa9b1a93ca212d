"""Random lives of a log that is compacted and trimmed, with crashes, held against a dumb model."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from eoslog.broker.log.compaction import ENTRY_BYTES
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.protocol.batch import HEADER_SIZE, build_batch, iter_headers
from eoslog.protocol.control import ABORT, COMMIT, read_control
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.plain_records import encode_records, iter_records
from tests.broker.log.logkit import NOW, Disk, Outcome, PowerLoss, clean

# -- the partition and its model -----------------------------------------------------------------
# A partition that is compacted, trimmed and crashed, beside a dumb model of what it must hold.
#
# The model is the list of what was appended, in order, with the keys and values. From it follows what a
# reader of committed data must see of each key, what a coordinator that replays the log must know, and which
# batches a producer may send again.

HOUR = 3_600_000
Pairs = list[tuple[bytes, bytes | None]]
Table = dict[bytes, bytes]


@dataclass
class Written:
    """One batch of the model; a marker has no pairs."""

    base: int
    pid: int = -1
    transactional: bool = False
    pairs: Pairs = field(default_factory=list)
    commit: bool | None = None
    data: bytes = b""

    @property
    def end(self) -> int:
        return self.base + max(1, len(self.pairs))


def encoded(pairs: Pairs, codec: int, timestamp: int, pid: int, sequence: int, transactional: bool) -> bytes:
    plain = encode_records(list(pairs), timestamp)
    return b"".join(
        build_batch(
            [plain[HEADER_SIZE:]], len(pairs), base_timestamp=timestamp, max_timestamp=timestamp, codec=codec,
            producer_id=pid, producer_epoch=0 if pid >= 0 else -1, base_sequence=sequence,
            transactional=transactional,
        )
    )  # fmt: skip


class UpkeptPartition:
    """See the head of this file. Whatever may be cut short by a crash is in the model before it begins."""

    def __init__(self, settings: LogSettings, seed: int) -> None:
        self.disk = Disk(settings)
        self.random = Random(seed)
        self.now = NOW
        self.log: list[Written] = []
        self.acknowledged = 0
        self.start = 0  # what was told to be deleted
        self.point = 0
        self.partition: Partition = self.disk.open()

    # -- steps ---------------------------------------------------------------------------------

    def put(self, pid: int, pairs: Pairs, transactional: bool, codec: int) -> None:
        state = next((s for s in self.partition.producers() if s.producer_id == pid), None)
        sequence = -1 if pid < 0 else 0 if state is None else state.last_sequence + 1
        data = encoded(pairs, codec, self.now, pid, sequence, transactional and pid >= 0)
        written = Written(self.partition.log_end_offset, pid, transactional and pid >= 0, pairs, None, data)
        self.log.append(written)
        try:
            assert self.partition.append(data, now_ms=self.now).base_offset == written.base
        except KafkaError:
            self.log.pop()  # plain inside of its transaction

    def mark(self, pid: int, commit: bool) -> None:
        self.log.append(Written(self.partition.log_end_offset, pid, True, [], commit))
        self.partition.append_marker(pid, 0, commit, 0, self.now)

    def sync(self) -> None:
        end = self.partition.log_end_offset
        self.disk.sync(self.partition)
        self.acknowledged = end

    def roll(self) -> None:
        if self.partition._log.segments.active.size:
            self.partition._tail.roll()
            self.sync()

    def clean(self, keys: int) -> None:
        clean(self.disk, self.partition, self.now, keys * ENTRY_BYTES)

    def wait(self, hours: int) -> None:
        self.now += hours * HOUR

    def retain(self) -> None:
        self.partition.retain(self.now)
        self.start = self.partition.log_start_offset

    def delete(self, share: float) -> None:
        self.start = self.partition.delete_records(int(share * self.partition.high_watermark))

    def checkpoint(self) -> None:
        self.point = self.partition.recovery_point

    def restart(self, outcome: Outcome | None) -> None:
        if outcome is None:
            self.partition.save()
            self.point = self.acknowledged = self.partition.log_end_offset
            self.partition.close()
        self.disk.fs.crash(outcome or Outcome.NOTHING, self.random)
        self.partition = self.disk.open(clean=outcome is None, point=self.point, now_ms=self.now)
        self.check_after_start()

    # -- checks --------------------------------------------------------------------------------

    def check_after_start(self) -> None:
        partition = self.partition
        assert partition.offline is None, partition.offline
        assert partition.log_end_offset >= self.acknowledged
        assert partition.log_start_offset >= self.start
        left = [name for name in self.disk.fs.list(partition.directory) if name.count(".") > 1]
        assert left == [], "everything is brought to an end at a start"
        del self.log[sum(entry.end <= partition.log_end_offset for entry in self.log) :]
        assert partition.log_end_offset == (self.log[-1].end if self.log else 0)
        self.start, self.acknowledged = partition.log_start_offset, partition.log_end_offset
        self.check()

    def check(self) -> None:
        """Everything durable is as the model says; call it when nothing is in flight."""
        self.sync()
        self.check_contents()
        assert self.reader() == self.expected(), "a reader of committed data"
        assert self.coordinator() == self.expected_replay(), "a coordinator that replays the log"
        self.check_producers()

    def check_contents(self) -> None:
        known = {entry.base + number: pair for entry in self.log for number, pair in enumerate(entry.pairs)}
        before = -1
        for header, data in self.partition.scan():
            assert header.base_offset > before
            before = header.last_offset
            if not header.is_control:
                for record in iter_records(bytes(data), 0, header):
                    assert (record.key, record.value) == known[record.offset]

    def outcomes(self) -> dict[int, bool | None]:
        """How the transaction of each transactional batch ended, by base offset; None: it is open."""
        ended: dict[int, bool | None] = {}
        for number, entry in enumerate(self.log):
            if entry.pairs and entry.transactional:
                later = (e for e in self.log[number:] if e.pid == entry.pid and e.commit is not None)
                ended[entry.base] = next((e.commit for e in later), None)
        return ended

    def expected(self) -> Table:
        ended = self.outcomes()
        last: dict[bytes, tuple[int, bytes | None]] = {}
        stable = self.partition.last_stable_offset
        for entry in self.log:
            for number, (key, value) in enumerate(entry.pairs):
                if entry.base + number < stable and ended.get(entry.base, True):
                    last[key] = (entry.base + number, value)
        return {k: v for k, (offset, v) in last.items() if v is not None and offset >= self.start}

    def reader(self) -> Table:
        """What a client sees who reads committed data from the start, as KIP-98 has it."""
        table: dict[bytes, bytes | None] = {}
        offset, partition = self.partition.log_start_offset, self.partition
        while offset < partition.last_stable_offset:
            result = partition.read(offset, 700, committed=True)
            offset = self._read(bytes(result.records), list(result.aborted or []), offset, table)
        return {key: value for key, value in table.items() if value is not None}

    def _read(
        self, data: bytes, aborted: list[tuple[int, int]], offset: int, table: dict[bytes, bytes | None]
    ) -> int:
        dropped: set[int] = set()
        found = list(iter_headers(data))
        assert found, "nothing to read below the last stable offset"
        for position, header in found:
            dropped |= {pid for pid, first in aborted if first <= header.last_offset}
            if header.is_control:
                if read_control(data, position, header).type == ABORT:
                    dropped.discard(header.producer_id)
                    aborted = [e for e in aborted if e[0] != header.producer_id or e[1] > header.base_offset]
            elif not (header.is_transactional and header.producer_id in dropped):
                for record in iter_records(data, position, header):
                    if record.offset >= offset:
                        assert record.key is not None
                        table[record.key] = record.value
        return found[-1][1].next_offset

    def coordinator(self) -> tuple[Table, dict[int, list[int]]]:
        """What is known after a replay: values, and the offsets of what is pending in open transactions."""
        last: dict[bytes, tuple[int, bytes | None]] = {}
        pending: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
        for header, data in self.partition.scan():
            if header.is_control:
                commit = read_control(bytes(data), 0, header).type == COMMIT
                for offset, key, value in pending.pop(header.producer_id, []):
                    if commit and last.get(key, (-1, None))[0] < offset:
                        last[key] = (offset, value)
                continue
            for record in iter_records(bytes(data), 0, header):
                if record.offset < self.start:
                    continue
                assert record.key is not None
                if header.is_transactional:
                    new = (record.offset, record.key, record.value)
                    pending.setdefault(header.producer_id, []).append(new)
                elif last.get(record.key, (-1, None))[0] < record.offset:
                    last[record.key] = (record.offset, record.value)
        values = {key: value for key, (_, value) in last.items() if value is not None}
        return values, {pid: [offset for offset, *_ in found] for pid, found in pending.items()}

    def expected_replay(self) -> tuple[Table, dict[int, list[int]]]:
        ended = self.outcomes()
        last: dict[bytes, tuple[int, bytes | None]] = {}
        pending: dict[int, list[int]] = {}
        for entry in self.log:
            for number, (key, value) in enumerate(entry.pairs):
                if ended.get(entry.base, True):
                    last[key] = (entry.base + number, value)
                elif ended[entry.base] is None and entry.base + number >= self.start:
                    pending.setdefault(entry.pid, []).append(entry.base + number)
        values = {k: v for k, (o, v) in last.items() if v is not None and o >= self.start}
        return values, pending

    def check_producers(self) -> None:
        ends = {e.pid: e.base for e in self.log if e.commit is not None}
        for pid in {e.pid for e in self.log if e.pid >= 0 and e.pairs}:
            sent = [e for e in self.log if e.pid == pid and e.pairs]
            for entry in sent[-5:]:
                if entry.base > ends.get(pid, -1):
                    again = self.partition.append(entry.data, now_ms=self.now)
                    assert again.base_offset == entry.base
            if sent[-1].base > ends.get(pid, -1):
                continue
            with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
                self.partition.append(sent[-1].data, now_ms=self.now)


def survive(upkept: UpkeptPartition, steps: list[tuple[object, ...]]) -> bool:
    """Do the steps; True if a power loss came in their midst."""
    try:
        for name, *arguments in steps:
            getattr(upkept, str(name))(*arguments)
    except PowerLoss:
        return True
    return False


# -- its lives -----------------------------------------------------------------------------------

STRIDE = int(os.environ.get("EOSLOG_CRASH_STRIDE", "9"))
SEEDS = range(7, 7 + int(os.environ.get("EOSLOG_CRASH_LIVES", "1")))
KEYS = [b"a", b"b", b"c", b"d"]
COMPACTED = LogSettings(
    segment_bytes=1024,
    index_interval_bytes=200,
    compacted=True,
    deleted=False,
    delete_retention_ms=3 * HOUR,
    timestamp_after_max_ms=10**12,
    producer_id_expiration_ms=10**12,
)
BOTH = replace(COMPACTED, deleted=True, retention_bytes=2500, retention_ms=20 * HOUR)
TRIMMED = replace(BOTH, compacted=False)

VALUE = st.one_of(st.none(), st.binary(min_size=1, max_size=200))
PAIRS = st.lists(st.tuples(st.sampled_from(KEYS), VALUE), min_size=1, max_size=4)
PUT = st.tuples(
    st.just("put"), st.sampled_from([-1, 1, 2]), PAIRS, st.booleans(), st.sampled_from([0, 0, 0, 1, 2, 3, 4])
)
STEP = st.one_of(
    PUT,
    PUT,
    PUT,
    st.tuples(st.just("mark"), st.sampled_from([1, 2]), st.booleans()),
    st.tuples(st.just("sync")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from([1, 3, 1000])),
    st.tuples(st.just("wait"), st.integers(1, 4)),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("check")),
    st.tuples(st.just("restart"), st.sampled_from([None, Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX])),
)
FEW = st.lists(st.tuples(st.sampled_from(KEYS[:2]), st.sampled_from([None, b"v"])), min_size=1, max_size=2)
TRANSACTION = st.builds(
    lambda pid, pairs, commit: [("put", pid, pairs, True, 0), ("mark", pid, commit), ("sync",), ("roll",)],
    *(st.sampled_from([1, 2]), FEW, st.booleans()),
)
CLEANED = st.builds(
    lambda keys, hours: [("clean", keys), ("wait", hours)], st.sampled_from([1, 1000]), st.integers(1, 4)
)
TRIM = st.one_of(st.tuples(st.just("retain")), st.tuples(st.just("delete"), st.floats(0, 1)))


def live(limits: LogSettings, steps: list[tuple[object, ...]], seed: int) -> None:
    upkept = UpkeptPartition(limits, seed)
    survive(upkept, [*steps, ("check",), ("roll",), ("clean", 1000), ("check",), ("restart", Outcome.PREFIX)])


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=15, max_size=50), st.integers(0, 2**32))
def test_a_compacted_log_says_what_was_written(steps: list[tuple[object, ...]], seed: int) -> None:
    live(COMPACTED, steps, seed)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(STEP, STEP, TRIM), min_size=15, max_size=50), st.integers(0, 2**32), st.booleans())
def test_a_log_that_is_trimmed_and_compacted_says_what_is_left(
    steps: list[tuple[object, ...]], seed: int, compacted: bool
) -> None:
    live(BOTH if compacted else TRIMMED, steps, seed)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(TRANSACTION, TRANSACTION, CLEANED), min_size=6, max_size=20), st.integers(0, 2**32))
def test_a_log_of_transactions_says_what_they_wrote(pieces: list[list[Any]], seed: int) -> None:
    """Each is ended, sealed and compacted soon: what an earlier run has left behind counts in the next."""
    live(COMPACTED, [step for piece in pieces for step in [*piece, ("check",)]], seed)


def busy(random: Random, trimmed: bool) -> list[tuple[Any, ...]]:
    """A life in which everything happens: transactions over segments, tombstones, several compactions."""
    steps: list[tuple[Any, ...]] = []
    for _ in range(4):
        for _ in range(3):
            pairs = [(random.choice(KEYS), random.choice([None, b"v" * 150, b"w"])) for _ in range(2)]
            steps.append(("put", random.choice([-1, 1, 2]), pairs, random.random() < 0.6, 0))
        steps += [("mark", random.choice([1, 2]), random.random() < 0.5), ("sync",), ("roll",)]
        steps.append(("clean", random.choice([2, 1000])))
        steps.append(("wait", 2))
        if trimmed:
            steps.append(random.choice([("retain",), ("delete", 0.4)]))
    return [*steps, ("mark", 1, True), ("mark", 2, False), ("sync",), ("roll",), ("clean", 1000)]


@pytest.mark.parametrize("limits", [COMPACTED, BOTH, TRIMMED])
@pytest.mark.parametrize("outcome", [Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX])
def test_a_crash_at_every_single_change_of_the_disk(limits: LogSettings, outcome: Outcome) -> None:
    """In the suite at every `STRIDE`th change; `make crash-log` takes all, with several lives."""
    crashes = 0
    for seed in SEEDS:
        steps = busy(Random(seed), limits.deleted)
        for at in range(list(Outcome).index(outcome) % STRIDE, 10**6, STRIDE):
            upkept = UpkeptPartition(limits, at)
            upkept.disk.fs.steps_left = at
            if not survive(upkept, steps):
                break
            upkept.restart(outcome)
            upkept.roll()
            upkept.clean(1000)
            upkept.check()
            crashes += 1
    print(f"{crashes} crash points, {outcome.value} of what was not synced kept")
    assert crashes >= 100 / STRIDE
