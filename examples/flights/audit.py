"""The auditor of the demo: what a reader of the topics sees, against a plain computation from the file.

It shares no code with the connector: it reads with confluent-kafka (read_committed) and knows only the
flights themselves.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from examples.flights.data import airlines, flights, is_late, key

READ_TIMEOUT_SECONDS = 60.0
ROUTES = ("flights_late", "flights_other")
GROUPS = ("route", "count")


@dataclass
class Verdict:
    """What the audit found; `holds` only if there is nothing to complain about."""

    flights: int = 0
    published: int = 0
    lost: int = 0
    doubled: int = 0
    misrouted: int = 0
    disordered: int = 0
    damaged: int = 0
    wrong_counts: list[str] = field(default_factory=list)
    uncommitted_offsets: list[str] = field(default_factory=list)
    publish_faults: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every check passed."""
        return not (
            self.lost
            or self.doubled
            or self.misrouted
            or self.disordered
            or self.damaged
            or self.wrong_counts
            or self.uncommitted_offsets
            or self.publish_faults
        )


class Reader:
    """Reads whole topics at read_committed, up to their last stable offsets at the time of the call."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "flights-auditor",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,  # an end is told by an empty answer: not half a second later
                "auto.offset.reset": "error",
            }
        )

    def ends(self, topic: str) -> dict[int, int]:
        """Partition -> end offset, as seen by a read_committed reader."""
        partitions = self.consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return {
            p: self.consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1]
            for p in partitions
        }

    def records(self, topic: str) -> Iterator[Message]:
        """Every committed record of the topic, in order within each partition."""
        waiting = {p for p, end in self.ends(topic).items() if end > 0}
        self.consumer.assign([TopicPartition(topic, p, 0) for p in waiting])
        heard = time.monotonic()
        while waiting:
            messages = self.consumer.consume(5_000, timeout=0.2)  # it waits the whole time for the number
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > READ_TIMEOUT_SECONDS:
                raise TimeoutError(f"{topic}: partitions {sorted(waiting)} did not end in time")
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.name() == "_PARTITION_EOF":
                    waiting.discard(message.partition())
                else:
                    raise RuntimeError(f"{topic}: {error}")


def audit_published(reader: Reader, verdict: Verdict, expected: list[dict[str, object]]) -> None:
    """Topic `flights` holds each flight of the file once, under its aircraft's key."""
    seen: Counter[int] = Counter()
    for record in reader.records("flights"):
        number = json.loads(record.value() or b"")["id"]
        seen[number] += 1
        if record.key() != key(expected[number]):
            verdict.publish_faults.append(f"flight {number} has key {record.key()!r}")
    verdict.published = len(seen)
    if any(n != 1 for n in seen.values()) or len(seen) != len(expected):
        verdict.publish_faults.append(f"{len(seen)} of {len(expected)} flights, {seen.total()} records")


def audit_routes(reader: Reader, verdict: Verdict, expected: list[dict[str, object]]) -> None:
    """Each flight stands once, in the right topic, with its airline's name, in its aircraft's order."""
    names = airlines()
    seen: Counter[int] = Counter()
    for topic in ROUTES:
        latest: dict[tuple[int | None, bytes | None], int] = {}
        for record in reader.records(topic):
            row = json.loads(record.value() or b"")
            number, flight = row["id"], expected[row["id"]]
            seen[number] += 1
            verdict.misrouted += is_late(flight) != (topic == "flights_late")
            verdict.damaged += (row["carrier"], row["flight"], row["airline"]) != (
                flight["carrier"],
                flight["flight"],
                names[str(flight["carrier"])],
            ) or record.key() != key(flight)
            if record.key() is not None and seen[number] == 1:
                place = (record.partition(), record.key())
                verdict.disordered += latest.get(place, -1) > number
                latest[place] = number
    verdict.flights = len(seen)
    verdict.lost = len(expected) - len(seen)
    verdict.doubled = sum(n - 1 for n in seen.values())


def audit_counts(reader: Reader, verdict: Verdict, expected: list[dict[str, object]]) -> None:
    """The last count of each carrier equals a plain count; counts never fall."""
    truth = Counter(str(flight["carrier"]) for flight in expected)
    latest: dict[str, int] = {}
    for record in reader.records("carrier_counts"):
        row = json.loads(record.value() or b"")
        if row["count"] < latest.get(row["carrier"], 0):
            verdict.wrong_counts.append(f"{row['carrier']}: {row['count']} after {latest[row['carrier']]}")
        latest[row["carrier"]] = row["count"]
    for carrier, count in truth.items():
        if latest.get(carrier) != count:
            verdict.wrong_counts.append(f"{carrier}: {latest.get(carrier)}, should be {count}")


def committed(bootstrap: str, group: str, topic: str, partitions: list[int]) -> dict[int, int]:
    """The offsets that the group has committed, by partition."""
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in partitions])]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_consumer_group_offsets(asked)[group].result(30)
    return {p.partition: p.offset for p in found.topic_partitions}


def audit_offsets(reader: Reader, verdict: Verdict) -> None:
    """Both queries' groups stand at the end of topic `flights`."""
    ends = reader.ends("flights")
    for group in GROUPS:
        offsets = committed(reader.bootstrap, group, "flights", sorted(ends))
        for partition, end in ends.items():
            if offsets.get(partition, -1) != end:
                verdict.uncommitted_offsets.append(
                    f"group {group}, flights-{partition}: {offsets.get(partition)}, end is {end}"
                )


def audit(bootstrap: str, limit: int | None = None) -> Verdict:
    """Runs every check."""
    expected = list(flights())[:limit]
    verdict, reader = Verdict(), Reader(bootstrap)
    audit_published(reader, verdict, expected)
    audit_routes(reader, verdict, expected)
    audit_counts(reader, verdict, expected)
    audit_offsets(reader, verdict)
    reader.consumer.close()
    return verdict


def main() -> int:
    """Prints the verdict as JSON; exit status 0 only if all holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--limit", type=int, default=None)
    args = parser.parse_args()
    verdict = audit(args.bootstrap, args.limit)
    print(json.dumps({**asdict(verdict), "holds": verdict.holds}))
    return 0 if verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
