"""What the tests of `eoslog log verify` share: logs of transactions, each kind of damage, what is found."""

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from eoslog.broker.log import files, producer_snapshot
from eoslog.broker.log.index import TXN_ENTRY
from eoslog.broker.rules.producer_state import ProducerState
from eoslog.cli import main
from eoslog.protocol.batch import BatchHeader, iter_headers
from eoslog.testing import EmbeddedBroker

CONFIG = {
    "log.index.interval.bytes": "200",
    "log.cleaner.backoff.ms": "50",
    "log.retention.check.interval.ms": "50",
}


Damage = Callable[[Path], object]


def transaction(producer: Producer, topic: str, values: list[str], commit: bool, pad: int = 1000) -> None:
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value.ljust(pad, "."), key=str(number % 7))
        producer.flush(20)
    (producer.commit_transaction if commit else producer.abort_transaction)(20)


def transactional(broker: EmbeddedBroker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(20)
    return producer


def fill(broker: EmbeddedBroker, topic: str) -> None:
    """Two transactions each of two producers, in turns: of each the first is aborted."""
    first, second = transactional(broker, f"{topic}-1"), transactional(broker, f"{topic}-2")
    for commit in (False, True):
        transaction(first, topic, [f"first-{commit}-{n}" for n in range(12)], commit)
        transaction(second, topic, [f"second-{commit}-{n}" for n in range(12)], commit)


def headers(path: Path) -> list[tuple[int, BatchHeader]]:
    return list(iter_headers(path.read_bytes()))


def segments(place: Path, topic: str = "orders", suffix: str = ".log") -> list[Path]:
    return sorted((place / f"{topic}-0").glob(f"{'[0-9]' * 20}{suffix}"))


def gaps(directory: Path) -> bool:
    """Whether compaction has taken batches out of a log."""
    found = [header for path in sorted(directory.glob("*.log")) for _, header in headers(path)]
    return any(a.next_offset < b.base_offset for a, b in pairwise(found))


def log(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["log", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def findings(place: Path, *options: str) -> list[dict[str, Any]]:
    result = log("verify", "--json", str(place), *options)
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    assert result.exit_code == any(one["repair"] not in ("removed", "rewritten") for one in found)
    return found


def only(place: Path, words: str) -> dict[str, Any]:
    """The finding, which is the only one about its file, that has these words."""
    found = findings(place)
    assert found, "nothing was found"
    [one] = [one for one in found if words in one["text"]]
    return one


def rows(place: Path, topic: str) -> list[str]:
    """What a reader of committed data gets of a broker that is started on the directory."""
    with EmbeddedBroker(place) as broker:
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True}
        )
        try:
            low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)
            consumer.assign([TopicPartition(topic, 0, low)])
            return list(values(consumer))
        finally:
            consumer.close()


def values(consumer: Consumer) -> Iterator[str]:
    while True:
        message = consumer.poll(20)
        assert message is not None, "the broker does not answer"
        error = message.error()
        if error is None:
            yield (message.value() or b"").decode().rstrip(".")
        elif error.name() == "_PARTITION_EOF":
            return
        else:
            raise KafkaException(error)


def state(place: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(p.relative_to(place)): (p.stat().st_mtime_ns, p.read_bytes())
        for p in place.rglob("*")
        if p.is_file() and p.name != ".lock"
    }


def drop_a_batch(place: Path) -> None:
    path = segments(place)[1]
    at, header = headers(path)[2]
    content = path.read_bytes()
    path.write_bytes(content[:at] + content[at + header.size :])


def cut_behind_a_batch(place: Path) -> None:
    path = segments(place)[1]
    path.write_bytes(path.read_bytes()[: headers(path)[-1][0]])


def drop_a_segment(place: Path) -> None:
    segments(place)[1].unlink()


def drop_the_first(place: Path) -> None:
    segments(place)[0].unlink()


def drop_the_first_of_a_log_that_was_trimmed(place: Path) -> None:
    segments(place, "tails")[0].unlink()


def drop_all(place: Path) -> None:
    for path in segments(place):
        path.unlink()


def drop_the_last(place: Path) -> None:
    segments(place)[-1].unlink()


def drop_the_directory(place: Path) -> None:
    shutil.rmtree(place / "orders-0")


def cut_a_compacted_segment(place: Path) -> None:
    path = segments(place, "tables")[0]
    path.write_bytes(path.read_bytes()[: headers(path)[-1][0]])


def flip(place: Path) -> None:
    path = segments(place)[1]
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)


def scribble_starts(place: Path) -> None:
    (place / files.LOG_STARTS).write_text("nonsense")


def with_aborts(place: Path, topic: str = "orders") -> Path:
    return next(path for path in segments(place, topic, ".txnindex") if path.stat().st_size)


def no_entry(place: Path) -> None:
    with_aborts(place).write_bytes(b"")


def no_transaction_index(place: Path) -> None:
    with_aborts(place).unlink()


def no_transaction_index_of_a_trimmed_log(place: Path) -> None:
    with_aborts(place, "tails").unlink()


def an_entry_of_a_committed_one(place: Path) -> None:
    """The last marker of the log, which commits: readers would not see its rows."""
    path = segments(place)[-1]
    markers = [header for _, header in headers(path) if header.is_control]
    end = markers[-1]
    with path.with_suffix(".txnindex").open("ab") as file:
        first = end.base_offset - 12
        file.write(TXN_ENTRY.pack(0, end.producer_id, first, end.base_offset, end.base_offset + 1))


def changed_entry(place: Path, **changes: int) -> None:
    path = with_aborts(place)
    names = ("version", "producer_id", "first", "last", "stable")
    entry = dict(zip(names, TXN_ENTRY.unpack(path.read_bytes()[: TXN_ENTRY.size]), strict=True))
    entry |= {name: entry[name] + change for name, change in changes.items()}
    path.write_bytes(TXN_ENTRY.pack(*entry.values()) + path.read_bytes()[TXN_ENTRY.size :])


def begins_too_late(place: Path) -> None:
    changed_entry(place, first=3)


def stable_too_high(place: Path) -> None:
    changed_entry(place, stable=10**6)


def of_another_producer(place: Path) -> None:
    changed_entry(place, producer_id=1)


def of_another_version(place: Path) -> None:
    changed_entry(place, version=1)


def ends_far_away(place: Path) -> None:
    changed_entry(place, last=10**6)


def torn_entry(place: Path) -> None:
    path = with_aborts(place)
    path.write_bytes(path.read_bytes() + b"x")


def wrong_position(place: Path) -> None:
    path = segments(place, suffix=".index")[0]
    content = path.read_bytes()
    path.write_bytes(content[:4] + (7).to_bytes(4, "big") + content[8:])


def torn_index(place: Path) -> None:
    path = segments(place, suffix=".index")[0]
    path.write_bytes(path.read_bytes() + b"x")


def time_too_high(place: Path) -> None:
    path = segments(place, suffix=".timeindex")[0]
    content = path.read_bytes()
    path.write_bytes(content[:-12] + (2**62).to_bytes(8, "big") + content[-4:])


def time_that_ends_early(place: Path) -> None:
    """Retention would take the segment too early."""
    path = next(path for path in segments(place, suffix=".timeindex") if path.stat().st_size > 24)
    path.write_bytes(path.read_bytes()[:-12])


def time_that_is_late(place: Path) -> None:
    path = next(path for path in segments(place, suffix=".timeindex") if path.stat().st_size > 24)
    content = path.read_bytes()
    path.write_bytes(content[:8] + content[-4:] + content[-12:-4] + b"\0\0\0\0")


def torn_snapshot(place: Path) -> None:
    path = segments(place, suffix=".snapshot")[-1]
    path.write_bytes(path.read_bytes()[:-1])


def snapshot_of(place: Path, number: int, change: Callable[[list[ProducerState]], object]) -> None:
    path = segments(place, suffix=".snapshot")[number]
    states = producer_snapshot.decode(path.read_bytes())
    change(states)
    path.write_bytes(producer_snapshot.encode(states))


def wrong_epoch(place: Path) -> None:
    snapshot_of(place, -1, lambda states: setattr(states[0], "epoch", 77))


def wrong_sequence(place: Path) -> None:
    snapshot_of(
        place, -1, lambda states: states[0].batches.append(states[0].batches[-1]._replace(last_sequence=5))
    )


def open_too_long(place: Path) -> None:
    snapshot_of(place, -1, lambda states: setattr(states[0], "transaction_start", 3))


def open_no_more(place: Path) -> None:
    def close(states: list[ProducerState]) -> None:
        for one in states:
            one.transaction_start = -1

    snapshot_of(place, 1, close)


def forgotten(place: Path) -> None:
    snapshot_of(place, 1, list.clear)


def snapshot_past_the_end(place: Path) -> None:
    path = segments(place, suffix=".snapshot")[-1]
    shutil.copy(path, path.with_name(files.offset_name(10**6, ".snapshot")))


def scribble_points(place: Path) -> None:
    (place / files.RECOVERY_POINTS).write_text("nonsense")


def scribble_cleaned(place: Path) -> None:
    (place / files.CLEANER_OFFSETS).write_text("nonsense")


def with_aborts_of_a_copy(copy: Path) -> Path:
    """The segment whose transaction index has become empty."""
    return next(p.with_suffix(".log") for p in segments(copy, suffix=".txnindex") if not p.stat().st_size)


def named(place: Path, name: str) -> Path:
    (place / name).write_bytes(b"")
    return place / name
