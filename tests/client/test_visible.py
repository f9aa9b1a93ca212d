"""Which batches readers see: against a plain model that remembers how each transaction ended."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.client.records.read_committed import visible
from eoslog.protocol.batch import CorruptBatch, build_batch
from eoslog.protocol.control import ABORT, COMMIT, control_batch
from tests.protocol.stamp import stamp

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
