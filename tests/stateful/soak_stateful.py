"""Stateful queries killed at random: `make soak-stateful`. Prints what was killed where, and what was seen.

Each query runs undisturbed first and then killed again and again; both outputs are compared, with each other
and with a computation in plain Python. With `--guarantee at_least_once` duplicates are expected, and their
absence is the failure: then the kills do not hit.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent / "connector"), str(_HERE.parents[1])]

from stateful_input import CASES, PARTITIONS  # noqa: E402
from stateful_judge import Seen, Verdict, batches, judge, publish  # noqa: E402
from stateful_run import Application, Ordeal, Server, strikes  # noqa: E402
from stock_kafka import Kafka  # noqa: E402

from eoslog.testing import EmbeddedBroker  # noqa: E402


@contextlib.contextmanager
def server(kind: str) -> Iterator[Server]:
    """The bundled broker, or a node of Apache Kafka."""
    if kind == "eoslog":
        with EmbeddedBroker() as broker:
            yield broker
        return
    from tests.scenarios.apache_kafka import ApacheKafka

    with ApacheKafka({}) as node:
        yield node


def run_undisturbed(query: str, broker: Server, topics: str, place: Path) -> tuple[Seen, Application]:
    """The product as a user runs it."""
    kafka = Kafka(broker.bootstrap)
    target = kafka.topic(PARTITIONS, name=f"{topics}-undisturbed")
    place.mkdir()
    application = Application(query, broker.bootstrap, topics, target, place)
    Ordeal(application, broker, []).run()
    assert application.starts == 1, application.tail()
    return Seen.of(kafka, target), application


def run_killed(
    query: str, broker: Server, topics: str, place: Path, args: argparse.Namespace, random: Random
) -> tuple[Seen, Application]:
    """The same with a random plan of kills."""
    kafka = Kafka(broker.bootstrap)
    target = kafka.topic(PARTITIONS, name=f"{topics}-killed")
    place.mkdir()
    more = ("--guarantee", args.guarantee)
    application = Application(query, broker.bootstrap, topics, target, place, *more).watched()
    plan = strikes(args.kills, args.batches, random, args.guarantee)
    for hit in Ordeal(application, broker, plan).run():
        print(f"    {hit}", flush=True)
    return Seen.of(kafka, target), application


def run(query: str, broker: Server, place: Path, args: argparse.Namespace) -> bool:
    """One query with all that belongs to it; whether it is as it has to be."""
    began, topics = time.monotonic(), f"{query}-{uuid.uuid4().hex[:8]}"
    case = CASES[query](args.batches, args.seed)
    publish(Kafka(broker.bootstrap), topics, case)
    calm, calm_run = run_undisturbed(query, broker, topics, place / "undisturbed")
    print(f"{query}: undisturbed, {len(calm.rows)} rows in {calm_run.completed() + 1} batches", flush=True)
    killed, killed_run = run_killed(query, broker, topics, place / "killed", args, Random(args.seed))
    alone, verdict = (judge(seen, case.expected, ordered=case.ordered) for seen in (calm, killed))
    same = Counter(calm.rows) == Counter(killed.rows)
    cuts = batches(calm_run.checkpoint) == batches(killed_run.checkpoint)
    seconds = time.monotonic() - began
    print(f"    {killed_run.starts} starts, {killed.taken_back} rows written and taken back, {seconds:.0f} s")
    print(f"    {_told(verdict)}; as undisturbed: {same}; same batches: {cuts}", flush=True)
    if not alone.holds:
        print(f"    UNDISTURBED: {_told(alone)}", flush=True)
    if args.guarantee == "at_least_once":
        return alone.holds and verdict.doubled > 0 and not verdict.lost and not verdict.strange and cuts
    return alone.holds and verdict.holds and same and cuts


def _told(verdict: Verdict) -> str:
    return (
        f"{verdict.lost} lost, {verdict.doubled} doubled, {verdict.strange} strange, "
        f"{len(verdict.disordered)} keys out of order, held back: {verdict.held_back or 'nothing'}"
    )


def main() -> int:
    """Each query in turn; 0 if all are as they have to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=6, help="of each query")
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--queries", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--broker", choices=("eoslog", "kafka"), default="eoslog")
    parser.add_argument("--guarantee", choices=("exactly_once", "at_least_once"), default="exactly_once")
    args = parser.parse_args()
    print(f"seed {args.seed}, {args.kills} kills a query, broker {args.broker}, {args.guarantee}", flush=True)
    bad = []
    with server(args.broker) as broker:
        for query in args.queries:
            with tempfile.TemporaryDirectory(prefix="stateful-", ignore_cleanup_errors=True) as place:
                if not run(query, broker, Path(place), args):
                    bad.append(query)
    print(f"NOT as it has to be: {', '.join(bad)}" if bad else "all as it has to be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
