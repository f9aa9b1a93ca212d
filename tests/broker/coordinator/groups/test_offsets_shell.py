"""Committed offsets over real logs, and the records of `__consumer_offsets` byte for byte."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path

import pytest

from eoslog.broker.coordinator.groups.classic_group_state import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
)
from eoslog.broker.coordinator.groups.committed_offsets import (
    NO_TOPIC_ID,
    NOTHING,
    Committed,
    Committer,
    Fetched,
)
from eoslog.broker.coordinator.groups.group_offsets import TransactionalCommit
from eoslog.broker.coordinator.groups.group_records import (
    GroupRecord,
    OffsetRecord,
    decode,
    encode_group,
    encode_group_tombstone,
    encode_offset,
    encode_offset_tombstone,
)
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import for_version
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages.group_records import OFFSET_COMMIT_KEY
from eoslog.protocol.plain_records import Record, encode_records
from eoslog.protocol.schema import ProtocolError
from tests.broker.coordinator.groups.groupkit import Shell, on_loop, run

P = ("t", 0)


def code(error: pytest.ExceptionInfo[KafkaError]) -> E:
    return error.value.code


@on_loop
async def test_a_commit_is_there_after_a_crash(data: Path) -> None:
    first = Shell(data)
    assert await first.commit("g", "m", p0=5, p1=6) == {("t", 0): E.NONE, ("t", 1): E.NONE}
    await first.commit("g", p0=7)
    await first.commit("h", p0=1)
    for shell in (first, first.crashed()):
        assert await shell.offset("g") == 7
        assert await shell.fetch("g", ("t", 1)) == {("t", 1): Fetched(6, -1, "m")}
        assert await shell.offset("h") == 1
        assert await shell.fetch("unknown", P) == {P: NOTHING}
        assert set(await shell.fetch("g")) == {("t", 0), ("t", 1)}


@on_loop
async def test_too_long_metadata_refuses_its_partition_only(data: Path) -> None:
    shell = Shell(data)
    offsets = [*shell.new("x" * 4097, p0=1), *shell.new("x" * 4096, p1=2)]
    results = await shell.groups.commit_offsets(Committer("g"), offsets)
    assert results == {("t", 0): E.OFFSET_METADATA_TOO_LARGE, ("t", 1): E.NONE}
    assert await shell.offset("g", 0) == -1
    before = shell.partition().log_end_offset
    assert await shell.commit("g", "x" * 4097, p0=1) == {P: E.OFFSET_METADATA_TOO_LARGE}
    assert shell.partition().log_end_offset == before


@on_loop
async def test_nothing_is_told_before_it_is_durable(data: Path) -> None:
    shell = Shell(data, flush=False)
    commit = asyncio.ensure_future(shell.commit("g", p0=5))
    await asyncio.sleep(0.02)
    fetch = asyncio.ensure_future(shell.offset("g"))
    await asyncio.sleep(0.02)
    assert not commit.done(), "acknowledged before it was on the disk"
    assert not fetch.done(), "shown before it was on the disk"
    shell.flush.start()
    assert await commit == {P: E.NONE}
    assert await fetch == 5


@on_loop
async def test_commits_keep_the_order_in_which_they_were_asked_for(data: Path) -> None:
    shell = Shell(data)
    pending = [shell.groups.commit_offsets(Committer("g"), shell.new(p0=n)) for n in range(20)]
    for waiting in reversed(pending):
        await waiting
    assert await shell.offset("g") == 19
    assert await shell.crashed().offset("g") == 19


@on_loop
async def test_a_commit_that_cannot_be_written_changes_nothing(data: Path) -> None:
    shell = Shell(data)
    await shell.commit("g", p0=1)
    partition = shell.partition()
    append = partition.append
    for error, told in (
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
    ):

        def fail(*_: object, code: E = error, **__: object) -> None:
            raise KafkaError(code, "says the test")

        partition.append = fail  # type: ignore[method-assign,assignment]
        with pytest.raises(KafkaError) as refused:
            await shell.commit("g", p0=2)
        assert code(refused) is told
        assert await shell.offset("g") == 1
    partition.append = append  # type: ignore[method-assign]
    await shell.commit("g", p0=3)
    assert await shell.offset("g") == 3


@on_loop
async def test_a_failed_disk_acknowledges_and_shows_nothing(data: Path) -> None:
    shell = Shell(data, flush=False)
    commit = asyncio.ensure_future(shell.commit("g", p0=5))
    await asyncio.sleep(0.02)
    fetch = asyncio.ensure_future(shell.offset("g"))
    await asyncio.sleep(0.02)
    partition = shell.partition()
    partition.durability.end_flush(partition.durability.begin_flush()[0], OSError("says the test"))
    for waiting in (commit, fetch):
        with pytest.raises(KafkaError) as refused:
            await waiting
        assert code(refused) is E.NOT_COORDINATOR
    with pytest.raises(KafkaError) as refused:
        await shell.fetch("g", P)
    assert code(refused) is E.COORDINATOR_NOT_AVAILABLE, "what may be lost was shown"


# Transactions


@on_loop
async def test_a_transaction_s_offsets_show_with_its_commit(data: Path) -> None:
    first = Shell(data)
    await first.commit("g", p0=1)
    assert await first.txn_commit("g", p0=5, p1=6) == {("t", 0): E.NONE, ("t", 1): E.NONE}
    second = first.crashed()
    for shell in (first, second):
        assert await shell.offset("g") == 1
        unstable = Fetched(error=E.UNSTABLE_OFFSET_COMMIT)
        assert await shell.fetch("g", P, ("t", 1), stable=True) == {P: unstable, ("t", 1): unstable}
        assert set((await shell.fetch("g", stable=True)).values()) == {unstable}
        assert set(await shell.fetch("g", stable=False)) == {P}
    second.marker("g", commit=True)
    for shell in (second, second.crashed()):
        assert await shell.offset("g") == 5
        assert (await shell.fetch("g", ("t", 1), stable=True))["t", 1].offset == 6


@on_loop
async def test_a_transaction_s_offsets_never_show_after_its_abort(data: Path) -> None:
    shell = Shell(data)
    await shell.commit("g", p0=1)
    await shell.txn_commit("g", p0=5)
    shell.marker("g", commit=False)
    for each in (shell, shell.crashed()):
        assert (await each.fetch("g", P, stable=True))[P].offset == 1


@on_loop
async def test_the_newer_record_wins_over_the_later_marker(data: Path) -> None:
    shell = Shell(data)
    await shell.txn_commit("g", p0=5)
    await shell.commit("g", p0=9)
    shell.marker("g", commit=True)
    for each in (shell, shell.crashed()):
        assert (await each.fetch("g", P, stable=True))[P].offset == 9


@on_loop
async def test_the_partition_refuses_a_fenced_producer(data: Path) -> None:
    shell = Shell(data)
    await shell.txn_commit("g", epoch=0, p0=5)
    shell.marker("g", commit=False, epoch=1)
    with pytest.raises(KafkaError) as refused:
        await shell.txn_commit("g", epoch=0, p0=6)
    assert code(refused) is E.INVALID_PRODUCER_EPOCH
    assert (await shell.fetch("g", P, stable=True))[P] == NOTHING


@on_loop
async def test_the_append_comes_only_after_the_partition_has_joined(data: Path) -> None:
    shell = Shell(data)
    shell.transactions.gate = asyncio.Event()
    end = shell.partition().log_end_offset
    commit = asyncio.ensure_future(shell.txn_commit("g", p0=5))
    await asyncio.sleep(0.02)
    assert shell.partition().log_end_offset == end
    # Meanwhile the transaction is ended from elsewhere: its marker stands, nothing may follow it.
    shell.transactions.error = E.INVALID_PRODUCER_EPOCH
    shell.transactions.gate.set()
    with pytest.raises(KafkaError) as refused:
        await commit
    assert code(refused) is E.INVALID_PRODUCER_EPOCH
    assert shell.partition().log_end_offset == end, "offsets were appended after their transaction's end"


@pytest.mark.parametrize(
    ("version", "error", "told"),
    [
        (0, None, E.INVALID_TXN_STATE),
        (3, None, E.INVALID_TXN_STATE),
        (4, None, E.TRANSACTION_ABORTABLE),
        (5, None, E.NONE),
        (1, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_NOT_AVAILABLE),
        (3, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS),
        (5, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (3, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        (5, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (5, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
    ],
)
def test_what_each_version_hears_of_a_refused_transaction(
    tmp_path: Path, version: int, error: E | None, told: E
) -> None:
    async def attempt() -> E:
        shell = Shell(tmp_path / "data")
        shell.transactions.error = error
        try:
            results = await shell.txn_commit("g", version=version, p0=5)
        except KafkaError as refused:
            assert shell.partition().log_end_offset == 0
            return for_version(ApiKey.TXN_OFFSET_COMMIT, version, refused.code)
        assert set(shell.transactions.asked) == {version >= 5}
        return results[P]

    assert run(attempt()) is told


@on_loop
async def test_who_may_not_commit(data: Path) -> None:
    shell = Shell(data)
    await shell.commit("g", p0=1)
    txn = TransactionalCommit("tx", 7, 0, 5)
    for who, plain, transactional in (
        (Committer(""), None, E.INVALID_GROUP_ID),
        (Committer("none", generation=0), E.GROUP_ID_NOT_FOUND, E.GROUP_ID_NOT_FOUND),
        (Committer("none", "m", None, 3), E.GROUP_ID_NOT_FOUND, E.GROUP_ID_NOT_FOUND),
        (Committer("g", generation=0), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
        (Committer("g", "m", None, 3), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
    ):
        if plain is not None:
            with pytest.raises(KafkaError) as refused:
                await shell.groups.commit_offsets(who, shell.new(p0=1))
            assert code(refused) is plain
        with pytest.raises(KafkaError) as refused:
            await shell.groups.txn_commit_offsets(txn, who, shell.new(p0=1))
        assert code(refused) is transactional


# Topics, damage


@on_loop
async def test_a_deleted_topic_takes_its_offsets_with_it(data: Path) -> None:
    shell = Shell(data)
    shell.topic("u")
    await shell.commit("g", p0=1)
    await shell.commit("h", p0=1)
    await shell.txn_commit("g", p1=2)
    shell.topics.delete("t")
    shell.groups.on_topic_deleted("t")
    shell.marker("g", commit=True)
    shell.topic("t")
    for each in (shell, shell.crashed()):
        assert await each.fetch("g") == {}
        assert await each.offset("g", 1) == -1
        assert await each.offset("h") == -1
        assert each.groups.list_groups() == []


@on_loop
async def test_a_topic_made_anew_has_no_offsets_even_if_the_deletion_was_cut_short(data: Path) -> None:
    shell = Shell(data)
    await shell.commit("g", p0=1)
    shell.topics.delete("t")  # and the broker dies before its offsets are deleted
    after = shell.crashed()
    after.topic("t")
    assert await after.offset("g") == -1
    await after.commit("g", p0=0)
    assert await after.offset("g") == 0


@on_loop
async def test_a_partition_that_cannot_be_read_refuses_its_groups(data: Path) -> None:
    first = Shell(data)
    await first.commit("g", p0=1)
    partition = first.partition("g")
    other = next(f"g{n}" for n in range(99) if first.partition(f"g{n}") is not partition)
    await first.commit(other, p0=2)
    key = coordinator_records.encode(OFFSET_COMMIT_KEY, 1, {"group": "g", "topic": "t", "partition": 0})
    now = first.clock.now_ms()
    partition.append(encode_records([(key, b"\0\4garbage")], now), now_ms=now, coordinator=True)
    shell = first.crashed()
    assert await shell.offset(other) == 2
    for refused in (
        lambda: shell.groups.fetch_offsets("g", [(P, None)], False),
        lambda: shell.groups.commit_offsets(Committer("g"), shell.new(p0=9)),
        lambda: shell.groups.describe("g"),
        lambda: shell.groups.list_groups(),
        lambda: shell.groups.group_partition("g"),
    ):
        with pytest.raises(KafkaError, match=f"__consumer_offsets-{partition.index}") as error:
            refused()
        assert code(error) is E.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("seed", range(5))
def test_a_restart_at_any_moment_changes_nothing(tmp_path: Path, seed: int) -> None:
    """Random commits, transactions, markers, deletions; crashes in between lose and bring back nothing."""
    chance = random.Random(seed)

    async def everything(shell: Shell) -> list[object]:
        return [await shell.fetch(g, stable=stable) for g in "abc" for stable in (False, True)]

    async def live() -> None:
        shell = Shell(tmp_path / "data")
        epochs = dict.fromkeys(range(3), 0)
        for step in range(60):
            group, producer = chance.choice("abc"), chance.randrange(3)
            what = chance.choice(["plain", "plain", "txn", "txn", "txn", "end", "delete", "crash"])
            offsets = {f"p{chance.randrange(2)}": step}
            if what == "plain":
                await shell.commit(group, **offsets)
            elif what == "txn":
                await shell.txn_commit(group, producer, epochs[producer], **offsets)
            elif what == "end":
                commit = chance.random() < 0.6
                for partition in {shell.partition(g) for g in "abc"}:
                    partition.append_marker(producer, epochs[producer], commit, 0, shell.clock.now_ms())
                    shell.groups.on_marker(partition, producer, epochs[producer], commit)
                epochs[producer] += chance.random() < 0.5
            elif what == "delete" and chance.random() < 0.3:
                shell.topic()
                shell.topics.delete("t")
                shell.groups.on_topic_deleted("t")
            elif what == "crash":
                before = await everything(shell)
                shell = shell.crashed()
                assert await everything(shell) == before

    run(live())


# -- records -------------------------------------------------------------------------------------
# Records of `__consumer_offsets` byte for byte as Kafka lays them out, and what other kinds become.

TOPIC_ID = bytes(range(16))
VALUE = Committed(77, 3, "më", 1_700_000_000_000, 9, TOPIC_ID)
OFFSET_KEY = b"\0\1" + b"\0\1g" + b"\0\5topic" + b"\0\0\0\2"
GROUP_KEY = b"\0\2" + b"\0\1g"
MEMBER = ClassicGroupMember("m-1", "i", "c", "/h", 6000, 60000, (("range", b"sub"), ("x", b"y")), b"assigned")
GROUP = ClassicGroup("g", ClassicGroupState.STABLE, 4, "consumer", "range", "m-1", {"m-1": MEMBER})


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(9, 0, key, value, [])


def test_an_offset() -> None:
    key, value = encode_offset("g", ("topic", 2), VALUE)
    assert key == OFFSET_KEY
    assert value == (
        struct.pack(">hqi", 4, 77, 3)
        + b"\4m\xc3\xab"  # compact string: length + 1
        + struct.pack(">q", 1_700_000_000_000)
        + b"\1\0\x10"  # one tagged field: tag 0 of 16 bytes
        + TOPIC_ID
    )
    assert decode(record(key, value)) == OffsetRecord("g", ("topic", 2), VALUE)


def test_an_offset_as_older_kafka_wrote_it() -> None:
    value = struct.pack(">hqi", 3, 77, 3) + b"\0\3m\xc3\xab" + struct.pack(">q", 1_700_000_000_000)
    expected = Committed(77, 3, "më", 1_700_000_000_000, 9, NO_TOPIC_ID)
    assert decode(record(OFFSET_KEY, value)) == OffsetRecord("g", ("topic", 2), expected)
    assert decode(record(b"\0\0" + OFFSET_KEY[2:], value)) == OffsetRecord("g", ("topic", 2), expected)


def test_deletions() -> None:
    assert encode_offset_tombstone("g", ("topic", 2)) == (OFFSET_KEY, None)
    assert decode(record(OFFSET_KEY, None)) == OffsetRecord("g", ("topic", 2), None)
    assert encode_group_tombstone("g") == (GROUP_KEY, None)
    assert decode(record(GROUP_KEY, None)) == GroupRecord("g", None)


def test_a_group() -> None:
    key, value = encode_group(GROUP, 1_700_000_000_000)
    assert key == GROUP_KEY
    assert value == (
        b"\0\3" + b"\0\x08consumer" + struct.pack(">i", 4) + b"\0\5range" + b"\0\3m-1"
        + struct.pack(">q", 1_700_000_000_000) + struct.pack(">i", 1)
        + b"\0\3m-1" + b"\0\1i" + b"\0\1c" + b"\0\2/h" + struct.pack(">ii", 60000, 6000)
        + b"\0\0\0\3sub" + b"\0\0\0\x08assigned"
    )  # fmt: skip
    decoded = decode(record(key, value))
    assert isinstance(decoded, GroupRecord) and decoded.group is not None
    group = decoded.group
    assert (group.state, group.generation, group.protocol_type) == (ClassicGroupState.STABLE, 4, "consumer")
    assert (group.protocol, group.leader) == ("range", "m-1")
    only_chosen = (("range", b"sub"),)
    assert group.members == {
        "m-1": ClassicGroupMember("m-1", "i", "c", "/h", 6000, 60000, only_chosen, b"assigned"),
    }


def test_an_empty_group() -> None:
    key, value = encode_group(ClassicGroup("g", generation=5, protocol_type="consumer"), 1)
    null = b"\xff\xff"
    assert value == (
        b"\0\3" + b"\0\x08consumer" + struct.pack(">i", 5) + null + null + struct.pack(">qi", 1, 0)
    )
    assert decode(record(key, value)) == GroupRecord(
        "g", ClassicGroup("g", generation=5, protocol_type="consumer")
    )


def test_a_group_of_before_rebalance_time_outs() -> None:
    value = (
        b"\0\0" + b"\0\x08consumer" + struct.pack(">i", 4) + b"\0\5range" + b"\0\3m-1" + struct.pack(">i", 1)
        + b"\0\3m-1" + b"\0\1c" + b"\0\2/h" + struct.pack(">i", 6000) + b"\0\0\0\3sub" + b"\0\0\0\0"
    )  # fmt: skip
    decoded = decode(record(GROUP_KEY, value))
    assert isinstance(decoded, GroupRecord) and decoded.group is not None
    assert decoded.group.members["m-1"].rebalance_timeout_ms == 6000


def test_other_kinds_and_garbage() -> None:
    assert decode(record(b"\0\3" + b"\0\1g", b"\0\0whatever")) is None
    for key, value in [
        (None, b""),
        (b"\0", b""),
        (OFFSET_KEY[:-1], None),
        (OFFSET_KEY + b"\0", None),
        (OFFSET_KEY, b"\0\x09"),
        (OFFSET_KEY, b"\0\4\0\0"),
        (GROUP_KEY, b""),
    ]:
        with pytest.raises(ProtocolError):
            decode(record(key, value))
