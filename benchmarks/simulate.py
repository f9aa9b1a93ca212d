"""`make simulate`: foretells micro-batches from the costs of single commands, then measures them.

On the bundled broker, one Apache Kafka node and three: commands are measured alone (calibrate.py), whole
micro-batches of 10, 100 and 1,000 tasks beside them, in turns. A figure that was foretold wrong by more
than 25 % (and more than 3 ms) makes it fail. Costs and figures go to docs/simulated.json, from which
docs/scale.md's tables are made.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from benchmarks.many_tasks import DECISIONS
from benchmarks.peers import ApacheKafka, ThreeNodes
from benchmarks.simulation.calibrate import MANY, Calibration
from benchmarks.simulation.model import MicroBatch, Setting, foretell, offset_records
from benchmarks.simulation.query import Query, counted, ends, in_part_ms
from benchmarks.simulation.tables import COUNTED, Found, compared, filled, wrongly_foretold
from benchmarks.starts import PARTITIONS
from eoslog.testing import EmbeddedBroker

SIZES = {10: 6, 100: 3, 1000: 1}
"""Tasks, and micro-batches of so many in a turn."""
WORKERS = 4
JSON = Path(__file__).parents[1] / "docs" / "simulated.json"
PAGE = JSON.with_name("scale.md")


class Subject(NamedTuple):
    """A cluster that runs. `together`: the bundled broker ends a coordinator's transactions in one step."""

    bootstrap: str
    pids: list[int]
    together: bool = False


@contextmanager
def bundled(kafka: Path) -> Iterator[Subject]:
    """The bundled broker."""
    with EmbeddedBroker(config=DECISIONS) as broker:
        yield Subject(broker.bootstrap, [broker.pid], together=True)


@contextmanager
def one(kafka: Path) -> Iterator[Subject]:
    """One Apache Kafka node."""
    with ApacheKafka(kafka, DECISIONS) as node:
        yield Subject(node.bootstrap, [node.pid])


@contextmanager
def three(kafka: Path) -> Iterator[Subject]:
    """Three, with three copies of everything."""
    with ThreeNodes(kafka, DECISIONS) as nodes:
        yield Subject(nodes.bootstrap, [nodes.pid(n) for n in nodes.nodes])


SUBJECTS: Mapping[str, Callable[[Path], AbstractContextManager[Subject]]] = {
    "bundled broker": bundled,
    "one Kafka node": one,
    "three Kafka nodes": three,
}


def measure(subject: Subject, turns: int) -> Found:
    """Costs and measured figures, in turns; then what the costs foretell."""
    figures: dict[int, dict[str, list[float]]] = {tasks: defaultdict(list) for tasks in SIZES}
    with ExitStack() as stack:
        apart = stack.enter_context(Query(subject.bootstrap, "alone", workers=WORKERS))
        queries = {
            tasks: stack.enter_context(Query(subject.bootstrap, f"tasks-{tasks}", workers=WORKERS))
            for tasks in SIZES
        }
        for query, tasks in ((apart, MANY), *((query, tasks) for tasks, query in queries.items())):
            for _ in range(5 if tasks > COUNTED else 20):  # names, coordinators and compilers
                query.micro_batch(tasks)
        calibration = Calibration(apart, subject.pids, together=subject.together)
        for _ in range(turns):
            calibration.turn()
            for tasks, times in SIZES.items():
                for _ in range(times):
                    _once(queries[tasks], tasks, figures[tasks], together=subject.together)
        costs = calibration.costs()
        leaders = calibration.leaders()
        count = counted(queries[COUNTED], COUNTED, dict)
    setting = Setting(leaders, WORKERS, PARTITIONS, subject.together)
    return {
        "leaders": [leaders[n] for n in sorted(leaders)],
        "together": subject.together,
        "written": [count.state_records, count.offset_records, count.markers],
        "to_write": _to_write(count.chunks, sealed=subject.together),
        "costs": costs.as_json(),
        "measured": {
            str(tasks): {figure: round(statistics.median(values), 1) for figure, values in found.items()}
            for tasks, found in figures.items()
        },
        "foretold": {
            str(tasks): {k: round(v, 1) for k, v in asdict(foretell(tasks, setting, costs)).items()}
            for tasks in SIZES
        },
    }


def _to_write(chunks: int, *, sealed: bool) -> list[int]:
    batch = MicroBatch(COUNTED, sealed=sealed)
    return [batch.state_records, offset_records(chunks), batch.markers]


def _once(query: Query, tasks: int, figures: dict[str, list[float]], *, together: bool) -> None:
    before = ends(query.cluster, query.topic)
    took = query.micro_batch(tasks)
    if not together:  # else all is visible in one moment
        figures["in_part"].append(in_part_ms(query.cluster, query.topic, before))
    for figure, value in took._asdict().items():
        figures[figure].append(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", type=Path, default=Path(".peers/kafka-4.3.1"))
    parser.add_argument("--on", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"into {JSON.name}")
    given = parser.parse_args()
    wrong = []
    for name in given.on:
        with SUBJECTS[name](given.kafka) as subject:
            found = measure(subject, given.turns)
        print(json.dumps(found["costs"]))
        for tasks, figure, said, was in compared(found):
            ratio = f"{said / was:.2f}" if was else "-"
            print(f"| {name} | {tasks} | {figure} | {said} | {was} | {ratio} |", flush=True)
        print("records written:", found["written"])
        wrong += wrongly_foretold(name, found)
        if given.write:
            all_ = json.loads(JSON.read_text()) if JSON.exists() else {}
            all_ = {subject: (all_ | {name: found}).get(subject) for subject in SUBJECTS}
            JSON.write_text(json.dumps(all_, indent=1) + "\n")
            if all(all_.values()):
                PAGE.write_text(filled(PAGE.read_text(), all_))
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
