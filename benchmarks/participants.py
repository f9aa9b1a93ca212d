"""`make bench-participants`: what begin and commit take for a micro-batch of many tasks, and after a kill.

Without Spark: the driver's rules and the tasks' client alone, each task a transaction of ten rows, on the
bundled broker, on one Apache Kafka node and on three. Of each number of participants: begin and commit of a
running query (the third batch and later; commit until readers see all of it), how long a reader sees a part
of the batch only, the begin of a new driver after a kill before the decision (it aborts what is open) and
right after it (it commits what is decided), and what is left in the cluster: transactional ids and groups.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.simulate import SUBJECTS
from benchmarks.simulation.query import COORDINATOR_TIMEOUT_MS, Query, ends, in_part_ms
from eoslog.client.admin import transaction_states
from eoslog.client.admin.groups import list_groups
from eoslog.connector.commit.commands import Command, End
from eoslog.connector.commit.task_reports import Begun, Prepared
from eoslog.connector.run.runner import Runner

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


def measure(bootstrap: str, participants: int) -> Left:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--participants", type=int, nargs="+", default=[10, 100, 1000, 4000])
    parser.add_argument("--kafka", type=Path, default=Path(".peers/kafka-4.3.1"))
    given = parser.parse_args()
    with ExitStack() as stack:
        subjects = {
            name: stack.enter_context(start(given.kafka)).bootstrap for name, start in SUBJECTS.items()
        }
        print(
            "| participants | on | begin, ms | commit, ms | a participant | seen in part, ms "
            "| begin after a kill before the decision, ms | after it, ms | transactional ids | groups |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
        for participants in given.participants:
            for name, bootstrap in subjects.items():
                found = measure(bootstrap, participants)
                each = f"{found.commit / participants:.2f}"
                figures = [f"{value:,.0f}" for value in found]
                row = (f"{participants:,}", name, *figures[:2], each, *figures[2:])
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
