"""What a coordinator keeps of its ids, and how it forgets those that nobody uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.broker.coordinator.transactions import transaction_journal
from eoslog.broker.coordinator.transactions.transaction_journal import (
    TransactionEntries,
    TransactionEntry,
    decode,
    encode,
    encode_forgotten,
)
from eoslog.broker.coordinator.transactions.transaction_state import (
    NEVER_PERSISTED,
    TV1,
    TV2,
    TransactionMetadata,
    TransactionState,
    complete,
    prepare,
    remembered_epoch,
)
from eoslog.broker.log.partition import Partition
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.internal_topics.coordinator_records import java_string_hash, partition_of
from eoslog.protocol.plain_records import Record, iter_records
from eoslog.protocol.schema import ProtocolError
from tests.broker.coordinator.transactions.transaction_machine import (
    CONFIG,
    Client,
    Machine,
    PowerCut,
    after_crash,
    fresh_disk,
)
from tests.broker.log.logkit import Directory, Outcome

# -- state -----------------------------------------------------------------------------------------
# Transactional ids as they are kept: records of `__transaction_state`, their partition, the table in
# memory.


# -- records -------------------------------------------------------------------------------------
# Records of `__transaction_state`, byte by byte as Kafka's definition of them has it, and there and back.


def test_an_empty_id() -> None:
    known = TransactionMetadata("ab", 7, 60_000, 1234, producer_epoch=3, previous_producer_id=7)
    key, value = encode(known)
    assert key == pack(">hh2s", 0, 2, b"ab")
    tagged = b"\x01" + b"\x00\x08" + pack(">q", 7)  # one tagged field: 0, 8 bytes, the previous producer id
    assert value == pack(">hqhib", 1, 7, 3, 60_000, 0) + b"\x00" + pack(">qq", 1234, -1) + tagged


def test_a_decision_under_tv2_with_a_new_producer_id() -> None:
    known = TransactionMetadata(
        "x", 7, 60_000, 1234, producer_epoch=32767, previous_producer_id=7, next_producer_id=9,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset({("b", 1), ("a", 2), ("b", 0)}), start_ms=1200,
        client_version=TV2,
    )  # fmt: skip
    topics = b"\x03" + b"\x02a\x02" + pack(">i", 2) + b"\x00" + b"\x02b\x03" + pack(">ii", 0, 1) + b"\x00"
    tagged = b"\x03" + b"\x00\x08" + pack(">q", 7) + b"\x01\x08" + pack(">q", 9) + b"\x02\x02" + pack(">h", 2)
    value = pack(">hqhib", 1, 7, 32767, 60_000, 2) + topics + pack(">qq", 1234, 1200) + tagged
    assert encode(known)[1] == value


def test_a_kept_transaction() -> None:
    """KIP-939: the holder is in the tagged fields 1 and 3, the writer where an older broker looks for it."""
    known = TransactionMetadata(
        "x", 7, 2**31 - 1, 1234, producer_epoch=4, previous_producer_id=7, next_producer_id=7,
        next_producer_epoch=6, state=TransactionState.ONGOING,
        partitions=frozenset({("a", 2)}), start_ms=1200,
        client_version=TV2,
    )  # fmt: skip
    topics = b"\x02" + b"\x02a\x02" + pack(">i", 2) + b"\x00"
    tagged = b"\x04" + b"\x00\x08" + pack(">q", 7) + b"\x01\x08" + pack(">q", 7)
    tagged += b"\x02\x02" + pack(">h", 2) + b"\x03\x02" + pack(">h", 6)
    value = pack(">hqhib", 1, 7, 4, 2**31 - 1, 1) + topics + pack(">qq", 1234, 1200) + tagged
    key, encoded = encode(known)
    assert encoded == value
    decoded = decode(Record(0, 0, key, value, []))
    assert decoded == ("x", known)


def test_an_expired_id() -> None:
    assert encode_forgotten("ab") == (pack(">hh2s", 0, 2, b"ab"), None)


def test_a_tv1_client_leaves_no_version() -> None:
    known = TransactionMetadata(
        "x", 7, 1, 2, producer_epoch=0, state=TransactionState.COMPLETE_ABORT, start_ms=2
    )
    assert known.client_version == TV1
    assert encode(known)[1] == pack(">hqhib", 1, 7, 0, 1, 5) + b"\x01" + pack(">qq", 2, 2) + b"\x00"


int64 = st.integers(0, 2**63 - 1)
metadata = st.builds(
    TransactionMetadata,
    st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()),
    int64,
    st.integers(1, 2**31 - 1),
    int64,
    producer_epoch=st.integers(0, 2**15 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_epoch=st.integers(-1, 2**15 - 1),
    state=st.sampled_from(
        [state for state in TransactionState if state not in NEVER_PERSISTED | {TransactionState.EMPTY}]
    ),
    partitions=st.frozensets(st.tuples(st.sampled_from(["a", "b", "long.name"]), st.integers(0, 9))),
    start_ms=st.integers(-1, 2**63 - 1),
    client_version=st.sampled_from([TV1, TV2]),
)


@given(metadata)
def test_there_and_back(known: TransactionMetadata) -> None:
    key, value = encode(known)
    expected = replace(known, last_epoch=remembered_epoch(known.state, known.holder[1], known.client_version))
    assert decode(Record(0, 0, key, value, [])) == (known.transactional_id, expected)
    assert decode(Record(0, 0, key, None, [])) == (known.transactional_id, None)


@pytest.mark.parametrize("state", sorted(NEVER_PERSISTED))
def test_passing_states_are_never_written(state: TransactionState) -> None:
    with pytest.raises(ValueError, match="never persisted"):
        encode(TransactionMetadata("x", 1, 1, 1, producer_epoch=0, state=state))


def test_a_record_without_a_key() -> None:
    with pytest.raises(ProtocolError, match="without a key"):
        decode(Record(0, 0, None, b"", []))


# -- the partition of an id ----------------------------------------------------------------------
# Java's string hash and the partition made from it. The values are those that a JVM gives.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello world", 1794106052),
        ("polygenelubricants", -(2**31)),
        ("q-0.1-0-3-17", -2034552461),
        ("fl\u00fcge-\u2708", -636052529),
        ("\U0001f600", 1772899),  # one character, two UTF-16 units
    ],
)
def test_java_string_hash(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_partition_is_the_absolute_value_not_the_low_bits() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    negative = next(f"id-{i}" for i in range(1000) if java_string_hash(f"id-{i}") < 0)
    assert partition_of(negative, 50) == -java_string_hash(negative) % 50


# -- the table -----------------------------------------------------------------------------------
# The table of transactional ids: who is active, and who owns a producer's transaction.

A, B = ("a", 0), ("b", 0)
EMPTY = TransactionMetadata("x", 7, 1000, 1, producer_epoch=32766)
OPEN = replace(EMPTY, state=TransactionState.ONGOING, partitions=frozenset({A}), start_ms=1)


def active(entries: TransactionEntries) -> list[str]:
    return [entry.id for entry in entries.active()]


def test_a_life() -> None:
    """From rest to open, prepared, complete under a new producer id, and forgotten."""
    entries, entry = TransactionEntries(), TransactionEntry("x")
    entries.add(entry)
    assert (entries.get("x"), len(entries), active(entries)) == (entry, 1, [])
    entries.take_over(entry, EMPTY)
    assert (active(entries), entries.owner_of(7, A)) == ([], None)
    entries.take_over(entry, OPEN)
    assert (active(entries), entries.owner_of(7, A)) == (["x"], "x")
    assert entries.owner_of(7, B) is None, "a partition that is not in it"
    assert entries.owner_of(8, A) is None
    prepared = prepare(OPEN, TransactionState.PREPARE_COMMIT, TV2, 2, 9)
    entries.take_over(entry, prepared)
    assert (active(entries), entries.owner_of(7, A)) == (["x"], "x")
    done = complete(prepared, 3)
    assert done.holder == (9, 0)
    entries.take_over(entry, done)
    assert (active(entries), entries.owner_of(7, A), entries.owner_of(9, A)) == ([], None, None)
    entries.forget(entry)
    assert (entries.get("x"), len(entries), list(entries), entry.metadata) == (None, 0, [], None)


def test_a_kept_transaction_belongs_to_its_writer() -> None:
    entries, entry = TransactionEntries(), TransactionEntry("x")
    entries.take_over(entry, replace(OPEN, next_producer_id=9, next_producer_epoch=0))
    assert (entries.owner_of(7, A), entries.owner_of(9, A)) == ("x", None)


def test_who_was_made_anew_is_not_forgotten_with_the_old_one() -> None:
    entries, old, new = TransactionEntries(), TransactionEntry("x"), TransactionEntry("x")
    entries.take_over(old, EMPTY)
    entries.add(new)
    entries.forget(old)
    assert entries.get("x") is new


# -- expiry ----------------------------------------------------------------------------------------
# Transactional ids expire: the record first, then memory; never one that is in use; faults of the disk.


FORGOTTEN, LOG = ("a", 0), ("__transaction_state", 0)
WEEK_MS = 604_800_000

Test = Callable[[Machine], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def disk() -> Directory:
    return fresh_disk("a")


@pytest.fixture
def life(disk: Directory) -> Callable[[Test], None]:
    def run(test: Test) -> None:
        async def live() -> None:
            machine = Machine(PowerCut(disk))
            await asyncio.wait_for(test(machine), 30)
            machine.close()

        asyncio.run(live())

    return run


async def rest(machine: Machine, *names: str) -> None:
    for name in names:
        await Client(machine, name, True).init()


def last_words(machine: Machine) -> dict[str, bool]:
    """What the log says last of each id: whether it is known."""
    said = {}
    for header, data in machine.partition(LOG).scan():
        for record in iter_records(data, 0, header):
            decoded = transaction_journal.decode(record)
            assert decoded is not None
            said[decoded[0]] = decoded[1] is not None
    return said


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_one_millisecond_decides(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        await rest(machine, "x")
        machine.clock.now += WEEK_MS - 1
        await rest(machine, "y")
        await machine.transactions.forget_idle()
        assert last_words(machine) == {"x": True, "y": True}
        machine.clock.now += 1
        await machine.transactions.forget_idle()
        assert last_words(machine) == {"x": False, "y": True}
        assert [one.transactional_id for one in machine.transactions.list()] == ["y"]
        before = machine.partition(LOG).log_end_offset
        await machine.transactions.forget_idle()
        assert machine.partition(LOG).log_end_offset == before

    life(test)


def test_the_record_comes_first_and_the_id_is_busy_until_it_is_durable(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        await rest(machine, "x")
        old = machine.transactions.describe("x")
        assert old is not None
        machine.clock.now += WEEK_MS
        machine.flush.hold()
        forgetting = asyncio.create_task(machine.transactions.forget_idle())
        await turns()
        assert last_words(machine) == {"x": False}
        assert machine.transactions.describe("x") is not None, "not durable, so not true yet"
        with pytest.raises(KafkaError, match="Dead is on its way") as caught:
            await machine.transactions.init_producer_id("x", 1000)
        assert caught.value.code is E.CONCURRENT_TRANSACTIONS
        write = machine.transactions.verify_partition(
            "x", old.producer_id, old.producer_epoch, *FORGOTTEN, True
        )
        assert write is not None
        joining = asyncio.ensure_future(write)
        await turns()
        machine.flush.go_on()
        await forgetting
        with pytest.raises(KafkaError) as caught:
            await joining
        assert caught.value.code is E.INVALID_PRODUCER_ID_MAPPING, "who waited finds that it is gone"
        assert machine.transactions.describe("x") is None
        new = await machine.transactions.init_producer_id("x", 1000)
        assert new == (old.producer_id + 1, 0)

    life(test)


def test_a_change_on_its_way_holds_it_off(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        await rest(machine, "x")
        machine.clock.now += WEEK_MS
        machine.flush.hold()
        init = asyncio.create_task(machine.transactions.init_producer_id("x", 1000))
        await turns()
        await machine.transactions.forget_idle()
        machine.flush.go_on()
        assert (await init)[1] == 1
        assert last_words(machine) == {"x": True}

    life(test)


def test_what_is_open_or_prepared_does_not_expire(
    life: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise KafkaError(E.KAFKA_STORAGE_ERROR, "no space")

    async def test(machine: Machine) -> None:
        open_, ending = Client(machine, "open", True), Client(machine, "ending", True)
        for number, client in enumerate((open_, ending)):
            await client.init()
            await client.write(number, [FORGOTTEN])
        monkeypatch.setattr(Partition, "append_marker", failing)
        with pytest.raises(KafkaError, match="no space"):
            await machine.transactions.end_txn("ending", *ending.producer, True, bump=True)
        machine.clock.now += 2 * WEEK_MS
        await machine.transactions.forget_idle()
        assert last_words(machine) == {"open": True, "ending": True}

    life(test)


@pytest.mark.parametrize("outcome", [Outcome.NOTHING, Outcome.ALL])
def test_after_a_crash_it_is_known_or_not_but_never_half(disk: Directory, outcome: Outcome) -> None:
    """The power goes before the record is durable: the old producer is still fenced, or a stranger."""

    async def test() -> None:
        machine = Machine(PowerCut(disk))
        names = [f"id-{number}" for number in range(5)]
        await rest(machine, *names)
        machine.clock.now += WEEK_MS
        machine.flush.hold()
        forgetting = asyncio.create_task(machine.transactions.forget_idle())
        await turns()
        root = after_crash(machine.fs.root, outcome, 0)
        machine.flush.go_on()
        await forgetting
        machine.close()
        again = Machine(PowerCut(root), clock=machine.clock)
        known = {one.transactional_id for one in again.transactions.list()}
        assert known == (set(names) if outcome is Outcome.NOTHING else set())
        pid, epoch = await again.transactions.init_producer_id("id-0", 1000)
        assert (pid, epoch) == ((0, 1) if known else (pid, 0))
        assert known or pid > 4
        again.close()

    asyncio.run(test())


def test_a_full_disk_leaves_it_as_it_was(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        await rest(machine, "x")
        machine.clock.now += WEEK_MS
        machine.fs.capacity = 0
        await machine.transactions.forget_idle()
        assert machine.transactions.describe("x") is not None
        machine.fs.capacity = None
        await machine.transactions.forget_idle()
        assert machine.transactions.describe("x") is None

    life(test)


def test_after_a_failed_sync_nothing_is_told(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        await rest(machine, "x")
        machine.clock.now += WEEK_MS
        machine.fs.fail_sync = "__transaction_state"
        await machine.transactions.forget_idle()
        for ask in (
            lambda: machine.transactions.describe("x"),
            lambda: machine.transactions.list(),
        ):
            with pytest.raises(KafkaError) as caught:
                ask()
            assert caught.value.code is E.COORDINATOR_NOT_AVAILABLE

    life(test)


def test_each_partition_of_the_log_is_told_of_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIG, "transaction.state.log.num.partitions", "3")
    disk = fresh_disk("a")

    async def test() -> None:
        machine = Machine(PowerCut(disk))
        await rest(machine, *(f"id-{number}" for number in range(12)))
        machine.clock.now += WEEK_MS
        await machine.transactions.forget_idle()
        root = after_crash(machine.fs.root, Outcome.NOTHING, 0)
        machine.close()
        again = Machine(PowerCut(root), clock=machine.clock)
        assert again.transactions.list() == []
        again.close()

    asyncio.run(test())


def test_many_ids_expire_in_few_batches(life: Callable[[Test], None]) -> None:
    async def test(machine: Machine) -> None:
        names = [f"{number:04d}" + "n" * 1000 for number in range(600)]
        await asyncio.gather(*(Client(machine, name, True).init() for name in names))
        machine.clock.now += WEEK_MS
        before = sum(1 for _ in machine.partition(LOG).scan())
        await machine.transactions.forget_idle()
        batches = list(machine.partition(LOG).scan())[before:]
        assert len(batches) == 3
        assert max(header.size for header, _ in batches) < 2**18 + 2000
        assert machine.transactions.list() == []
        assert set(last_words(machine).values()) == {False}

    life(test)
