"""Micro-batches of many tasks without Spark: the driver's rules and the tasks' client alone, each task a
transaction of ten rows.

`make simulate` foretells micro-batches from the costs of single commands, then measures them. On the
bundled broker, one Apache Kafka node and three: commands are measured alone (calibrate.py), whole
micro-batches of 10, 100 and 1,000 tasks beside them, in turns. A figure that was foretold wrong by more
than 25 % (and more than 3 ms) makes it fail. Costs and figures go to docs/simulated.json, from which
docs/scale.md's tables are made.

--lose-a-node: what a node that dies costs the batch that is being committed, reckoned, and measured on
three nodes. A node that dies without a word is fenced when the controller has not heard of it for
`broker.session.timeout.ms`. Until then its coordinators and leaders are nowhere, and each append that it
should copy waits for it.

`make bench-participants` (--participants) measures what begin and commit take, and after a kill. Of each
number of participants: begin and commit of a running query (the third batch and later; commit until readers
see all of it), how long a reader sees a part of the batch only, the begin of a new driver after a kill
before the decision (it aborts what is open) and right after it (it commits what is decided), and what is
left in the cluster: transactional ids and groups.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.many_tasks import DECISIONS
from benchmarks.simulation.calibrate import MANY, Calibration
from benchmarks.simulation.model import MicroBatch, Setting, foretell, offset_records
from benchmarks.simulation.query import COORDINATOR_TIMEOUT_MS, Query, counted, ends, in_part_ms
from benchmarks.simulation.tables import BOUND, COUNTED, Found, compared, filled, wrongly_foretold
from benchmarks.starts import PARTITIONS
from eoslog.client.admin import transaction_states
from eoslog.client.admin.groups import list_groups
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.commit.commands import Command, End
from eoslog.connector.commit.task_reports import Begun, Prepared
from eoslog.connector.run.runner import Runner
from eoslog.testing import EmbeddedBroker
from tests.kit.kafka_nodes import ApacheKafka, ThreeNodes

# -- foretold and measured -------------------------------------------------------------------------

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


# -- a lost node -----------------------------------------------------------------------------------

SESSION_MS, HEARTBEAT_MS = 9_000, 2_000
"""Defaults of broker.session.timeout.ms and broker.heartbeat.interval.ms."""
LOST_TASKS = 100


def stall_ms(
    config: ClientConfig, session_ms: float = SESSION_MS, heartbeat_ms: float = HEARTBEAT_MS
) -> float:
    """How long a commit waits: the last heartbeat was half an interval ago, and the driver, which tries again
    after pauses, notices half a pause later. At most half of both more or less."""
    return session_ms - heartbeat_ms / 2 + config.retry_backoff_max_ms / 2


def commits_without_a_node(kafka: Path, times: int) -> list[float]:
    """Commits of 100 tasks; a node is killed right before. The controller is a process of its own."""
    took = []
    with (
        ThreeNodes(kafka, DECISIONS, controller_apart=True) as cluster,
        Query(cluster.bootstrap, "lost") as query,
    ):
        for _ in range(3):
            query.micro_batch(LOST_TASKS)
        for number in range(times):
            reports = query.tasks(query.begin(), LOST_TASKS)
            node = cluster.nodes[number % 3]
            cluster.kill(node)
            started = time.perf_counter()
            query.commit(reports)
            took.append((time.perf_counter() - started) * 1000)
            print(f"node {node} killed: commit took {took[-1]:,.0f} ms", flush=True)
            cluster.start_again(node)
            cluster.wait_until_healthy()
    return took


def lose_a_node(kafka: Path, times: int) -> None:
    """Print what was foretold and measured; fail outside the bound."""
    was = statistics.median(commits_without_a_node(kafka, times))
    said = stall_ms(ClientConfig(()))
    print(f"foretold {said:,.0f} ms, measured {was:,.0f} ms, ratio {said / was:.2f}")
    if abs(said - was) > BOUND * was:
        sys.exit("foretold wrong")


# -- killed drivers --------------------------------------------------------------------------------

WARM_UP, MEASURED = 2, 3
"""Micro-batches: each name is used in every second one, so in the third all coordinators are known."""


class Left(NamedTuple):
    """Milliseconds, and what is left."""

    begin: float
    commit: float
    in_part: float
    undecided: float
    decided: float
    ids: int
    groups: int


class Killed(BaseException):
    """The driver has died."""


def begun_again(query: Query) -> tuple[Begun, float]:
    """A new driver replays the last batch of the one before, as Spark does; and its milliseconds."""
    query.start()
    started = time.perf_counter()
    begun = query.begin()
    return begun, (time.perf_counter() - started) * 1000


def die_behind_the_decision(query: Query, reports: list[Prepared]) -> None:
    """The decision is made, and nobody carries it out."""

    def dies(command: Command[Any]) -> None:
        if isinstance(command, End) and command.participants[0].name == query.sink.coordinator:
            raise Killed

    query.runner = Runner(query.cluster, COORDINATOR_TIMEOUT_MS, after=dies)
    try:
        query.commit(reports)
    except Killed:
        return
    raise AssertionError("it was not killed")


def measure_kills(bootstrap: str, participants: int) -> Left:
    """A query of its own."""
    batches, parts = [], []
    with Query(bootstrap, f"many-{participants}") as query:
        for _ in range(WARM_UP + MEASURED):
            before = ends(query.cluster, query.topic)
            batches.append(query.micro_batch(participants))
            parts.append(in_part_ms(query.cluster, query.topic, before))
        query.tasks(query.begin(), participants)
        begun, undecided = begun_again(query)
        die_behind_the_decision(query, query.tasks(begun, participants))
        _, decided = begun_again(query)
        left = transaction_states.list_transactions(query.cluster, query.sink.coordinator)
        groups = [one for one in list_groups(query.cluster) if one.group.startswith(query.sink.group)]
    begins, _, commits = zip(*batches[WARM_UP:], strict=True)
    middle = [statistics.median(values) for values in (begins, commits, parts[WARM_UP:])]
    return Left(middle[0], middle[1], middle[2], undecided, decided, len(left), len(groups))


def kill_drivers(kafka: Path, counts: Sequence[int]) -> None:
    """Print the table."""
    with ExitStack() as stack:
        subjects = {name: stack.enter_context(start(kafka)).bootstrap for name, start in SUBJECTS.items()}
        print(
            "| participants | on | begin, ms | commit, ms | a participant | seen in part, ms "
            "| begin after a kill before the decision, ms | after it, ms | transactional ids | groups |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
        for participants in counts:
            for name, bootstrap in subjects.items():
                found = measure_kills(bootstrap, participants)
                each = f"{found.commit / participants:.2f}"
                figures = [f"{value:,.0f}" for value in found]
                row = (f"{participants:,}", name, *figures[:2], each, *figures[2:])
                print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", type=Path, default=Path(".peers/kafka-4.3.1"))
    parser.add_argument("--on", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--lose-a-node", action="store_true", help="measure only what that costs a commit")
    parser.add_argument("--times", type=int, default=3, help="of a lost node")
    parser.add_argument("--participants", type=int, nargs="+", help="measure only these, with kills")
    parser.add_argument("--write", action="store_true", help=f"into {JSON.name}")
    given = parser.parse_args()
    if given.lose_a_node:
        return lose_a_node(given.kafka, given.times)
    if given.participants:
        return kill_drivers(given.kafka, given.participants)
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
