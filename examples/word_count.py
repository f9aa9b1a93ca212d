"""Word count with plain confluent-kafka: sentences in, counts out, each sentence counted once.

The classic loop of consume, transform, produce. The counts of some sentences and the offsets after these
sentences are committed in one transaction: both or neither, whenever the process dies. Each record of the
target has a word and how often it occurred in one round; the sum of a word's records is its count.
"""

import argparse
import sys
from collections import Counter

from confluent_kafka import Consumer, KafkaException, Message, Producer

PATIENCE_S = 60.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--source", default="sentences")
    parser.add_argument("--target", default="word_counts")
    parser.add_argument("--group", default="word-count")
    parser.add_argument(
        "--instance", default="1", help="a name for each of several processes that share the work"
    )
    parser.add_argument("--round", type=int, default=500, help="most sentences in a transaction")
    parser.add_argument("--once", action="store_true", help="stop when all sentences are read")
    return parser.parse_args()


def clients(args: argparse.Namespace) -> tuple[Consumer, Producer]:
    """The clients. A restarted process has the same names, so it replaces the dead one without waiting."""
    name = f"{args.group}-{args.instance}"
    both = {"bootstrap.servers": args.bootstrap, "metadata.recovery.strategy": "none"}
    producer = Producer(both | {"transactional.id": name, "linger.ms": 5})
    producer.init_transactions(PATIENCE_S)  # ends what the dead one left open, and fences it
    consumer = Consumer(
        both
        | {
            "group.id": args.group,
            "group.instance.id": name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([args.source])
    return consumer, producer


def write(args: argparse.Namespace, consumer: Consumer, producer: Producer, sentences: list[Message]) -> None:
    """Write counts and offsets in one transaction. Any error ends the process; the next one starts afresh."""
    words = (word for one in sentences for word in (one.value() or b"").decode().lower().split())
    producer.begin_transaction()
    for word, count in Counter(words).items():
        producer.produce(args.target, key=word, value=str(count))
    offsets = [one for one in consumer.position(consumer.assignment()) if one.offset >= 0]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)


def main() -> int:
    args = arguments()
    consumer, producer = clients(args)
    total, ended = 0, set[int | None]()
    while not (args.once and ended and ended >= {one.partition for one in consumer.assignment()}):
        sentences = []
        for message in consumer.consume(args.round, timeout=0.2):
            error = message.error()
            if error is None:
                sentences.append(message)
                ended.discard(message.partition())
            elif error.name() == "_PARTITION_EOF":
                ended.add(message.partition())
            else:
                raise KafkaException(error)
        if sentences:
            write(args, consumer, producer, sentences)
            total += len(sentences)
    consumer.close()
    print(f"{total} sentences counted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
