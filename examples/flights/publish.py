"""Publishes the flights to topic `flights` with confluent-kafka's idempotent producer, at an even pace.

The producer lives through a broker that is killed and started again: librdkafka sends again what was
not acknowledged, and the broker knows what it has already.
"""

import argparse
import itertools
import sys
import time

from confluent_kafka import KafkaError, Message, Producer

from examples.flights.data import flights, key, value

TICK_SECONDS = 0.05


def publish(bootstrap: str, topic: str, rate: int, limit: int | None) -> int:
    """Sends every flight once, about `rate` a second; returns how many were acknowledged."""
    acknowledged = 0
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "compression.type": "lz4",
            "message.timeout.ms": 120_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
        }
    )
    started, sent = time.monotonic(), 0
    for flight in itertools.islice(flights(), limit):
        producer.produce(topic, value(flight), key(flight), on_delivery=on_delivery)
        sent += 1
        if sent % max(1, int(rate * TICK_SECONDS)) == 0:
            producer.poll(max(0.0, started + sent / rate - time.monotonic()))
    producer.flush(120)
    if failures or acknowledged != sent:
        raise SystemExit(f"{sent - acknowledged} of {sent} flights were not acknowledged: {failures[:1]}")
    return acknowledged


def main() -> int:
    """Command line of the publisher."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--rate", type=int, default=8000)
    parser.add_argument("--limit", type=int, default=None)
    args = parser.parse_args()
    print(publish(args.bootstrap, args.topic, args.rate, args.limit))
    return 0


if __name__ == "__main__":
    sys.exit(main())
