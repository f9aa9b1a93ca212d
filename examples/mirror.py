"""Mirror topics of one cluster to another, each record once (as KIP-656 has it).

The source position is stored on the target: as offsets of a group there, committed in the transaction that
writes the records. After a kill, the next mirror ends the open transaction of the killed one, asks the target
for the position, and continues there. Nothing is ever written to the source. Keys, values, headers,
timestamps, partitions and their order stay the same; offsets do not.
"""

import argparse
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S = 60.0

Reached = dict[tuple[str, int], int]
"""Source topic and partition -> the offset of the next record to mirror."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topics", nargs="+", help="the topics to mirror")
    parser.add_argument("--source", required=True, metavar="HOST:PORT")
    parser.add_argument("--target", required=True, metavar="HOST:PORT")
    parser.add_argument("--name", default="mirror", help="of the group and the transactions on the target")
    parser.add_argument("--prefix", default="", help="put before the names of the topics on the target")
    parser.add_argument("--round", type=int, default=1000, help="most records in a transaction")
    parser.add_argument("--once", action="store_true", help="stop when all present records are mirrored")
    return parser.parse_args()


def partitions(args: argparse.Namespace) -> list[TopicPartition]:
    """The source's partitions; creates missing topics on the target."""
    source = AdminClient({"bootstrap.servers": args.source}).list_topics(timeout=PATIENCE_S).topics
    admin = AdminClient({"bootstrap.servers": args.target})
    target = admin.list_topics(timeout=PATIENCE_S).topics
    for topic in args.topics:
        if topic not in source:
            raise SystemExit(f"there is no topic {topic} at {args.source}: name one that exists")
        count, name = len(source[topic].partitions), args.prefix + topic
        if name not in target:
            admin.create_topics([NewTopic(name, count)])[name].result(PATIENCE_S)
        elif len(target[name].partitions) < count:
            raise SystemExit(f"{name} at {args.target} has fewer than {count} partitions: add some")
    return [TopicPartition(topic, number) for topic in args.topics for number in source[topic].partitions]


def reached_so_far(args: argparse.Namespace, source: Consumer, wanted: list[TopicPartition]) -> Reached:
    """The offsets that the group on the target has; the beginning for a partition that was never mirrored."""
    # read_committed: waits for an offset whose transaction is still open.
    group = Consumer(
        {"bootstrap.servers": args.target, "group.id": args.name, "isolation.level": "read_committed"}
    )
    asked = [TopicPartition(args.prefix + one.topic, one.partition) for one in wanted]
    reached = {}
    for one, stored in zip(wanted, group.committed(asked, PATIENCE_S), strict=True):
        if stored.error is not None:
            raise KafkaException(stored.error)
        if stored.offset < 0 and group.get_watermark_offsets(stored, PATIENCE_S)[1] > 0:
            raise SystemExit(
                f"{stored.topic}-{stored.partition} at {args.target} was written to, but group {args.name} "
                "has no offset for it (a cluster deletes the offsets of a group that is idle for long): "
                "set the group's offset, or mirror to a topic of another name"
            )
        first = stored.offset if stored.offset >= 0 else source.get_watermark_offsets(one, PATIENCE_S)[0]
        reached[one.topic, one.partition] = first
    group.close()
    return reached


def where(message: Message) -> tuple[str, int, int]:
    """Topic, partition and offset of a message that was read."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return topic, partition, offset


def commit(
    args: argparse.Namespace, source: Consumer, target: Producer, records: list[Message], reached: Reached
) -> None:
    """Write the records, and the next offset of every partition, in one transaction of the target."""
    target.begin_transaction()
    for one in records:
        topic, partition, offset = where(one)
        target.produce(
            args.prefix + topic, one.value(), one.key(), partition,
            timestamp=max(0, one.timestamp()[1]), headers=one.headers() or [],
        )  # fmt: skip
        reached[topic, partition] = offset + 1
    offsets = [TopicPartition(args.prefix + topic, at, offset) for (topic, at), offset in reached.items()]
    target.send_offsets_to_transaction(offsets, source.consumer_group_metadata(), PATIENCE_S)
    target.commit_transaction(PATIENCE_S)


def main() -> int:
    args = arguments()
    wanted = partitions(args)
    target = Producer({"bootstrap.servers": args.target, "transactional.id": args.name, "linger.ms": 5})
    target.init_transactions(PATIENCE_S)  # first end the predecessor's transaction, then ask for its position
    source = Consumer(
        {
            "bootstrap.servers": args.source,
            "group.id": args.name,  # a name only: nothing is committed to it on the source
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",  # deleted records are an error, not skipped
            "enable.partition.eof": True,
        }
    )
    reached = reached_so_far(args, source, wanted)
    source.assign([TopicPartition(*place, offset) for place, offset in reached.items()])
    commit(args, source, target, [], reached)  # store the beginnings too before the first record
    total, ended = 0, set[tuple[str, int]]()
    while not args.once or len(ended) < len(wanted):
        records = []
        for message in source.consume(args.round, timeout=0.2):
            error = message.error()
            if error is None:
                records.append(message)
                ended.discard(where(message)[:2])
            elif error.name() == "_PARTITION_EOF":
                ended.add(where(message)[:2])
            else:
                raise KafkaException(error)
        if records:
            commit(args, source, target, records, reached)
            total += len(records)
    print(f"{total} records mirrored")
    return 0


if __name__ == "__main__":
    sys.exit(main())
