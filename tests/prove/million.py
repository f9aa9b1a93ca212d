"""A sink of a million rows in 200 batches: proven, and copied right or with one row lost. make prove-million.

The command runs in a process of its own; its time and the most memory that it had are measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from eoslog.testing import EmbeddedBroker
from tests.audit.million import MEGABYTES, SECONDS, measured
from tests.connector.brokers import Kafka
from tests.prove.provekit import Hurt, mirrored, stream

BATCHES = 200


def judged(name: str, bootstrap: str, arguments: list[str], wrong: int) -> bool:
    """Run the command, print; whether it says what it should, in time."""
    command = ["prove", *arguments, "--bootstrap-server", bootstrap, "--json"]
    said, status, cost = measured(command)
    found = said["wrong"]
    print(
        f"{name:<10} {cost.seconds:5.1f} s {cost.megabytes:4.0f} MB  {'; '.join(found) or 'right'}",
        flush=True,
    )
    right = (len(found), status) == (wrong, int(bool(wrong)))
    return right and cost.seconds < SECONDS and cost.megabytes < MEGABYTES


def lost(parts: list[list[object]]) -> None:
    del parts[1][len(parts[1]) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    count = parser.parse_args().records
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as folder:
        kafka, file = Kafka(broker.bootstrap), str(Path(folder) / "proof.jsonl")
        with stream(kafka, topics=1) as made:
            made.batches(BATCHES, count // BATCHES // 6)  # two partitions of each of three tasks
            fine = [judged("proven", kafka.bootstrap, [made.sink.id, "--out", file], 0)]
            hurts: dict[str, Hurt] = {"copied": lambda _: None, "one lost": lost}
            for name, hurt in hurts.items():
                copies = [f"--topic={topic}={copy}" for topic, copy in mirrored(made, kafka, hurt).items()]
                wrong = int(hurt is lost)
                fine.append(judged(name, kafka.bootstrap, ["--check", file, *copies], wrong))
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
