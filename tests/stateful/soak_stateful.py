"""Stateful queries killed at random: `make soak-stateful`. Prints what was killed where, and what was seen.

The queries run together in an application, first undisturbed and then killed again and again. Both outputs
are compared, with each other and with a computation in plain Python. With `--guarantee at_least_once`
duplicates are expected, and their absence is the failure: then the kills do not hit.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.stateful.stateful_input import CASES, PARTITIONS, Case, Seen, Verdict, batches, judge, publish
from tests.stateful.stateful_run import Application, Hit, Ordeal, Server, strikes


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


class Bench:
    """The queries that run together, their input, a broker, and a folder."""

    def __init__(self, args: argparse.Namespace, broker: Server, place: Path) -> None:
        self._args, self._broker, self._place = args, broker, place
        self._kafka, self._topics = Kafka(broker.bootstrap), f"s-{uuid.uuid4().hex[:8]}"
        self.cases = {query: CASES[query](args.batches, args.seed) for query in args.queries}
        for query, case in self.cases.items():
            publish(self._kafka, f"{self._topics}-{query}", case)

    def application(self, run: str, *more: str) -> Application:
        """A first application, with empty targets."""
        for query in self.cases:
            self._kafka.topic(PARTITIONS, name=f"{self._topics}-{query}-{run}")
        (self._place / run).mkdir()
        bootstrap = self._broker.bootstrap
        return Application(list(self.cases), bootstrap, self._topics, run, self._place / run, *more)

    def saving(self) -> list[str]:
        """Arguments for queries that save their state."""
        if not self._args.lose:
            return []
        topic = self._kafka.topic(name=f"{self._topics}-state", cleanup_policy="compact")
        return ["--state-topic", topic, "--every", str(self._args.every)]

    def endure(self, application: Application, kills: int) -> list[Hit]:
        """Run to the end, killed by a random plan."""
        args, random = self._args, Random(self._args.seed)
        batches, losing = args.batches * len(self.cases), args.lose
        plan = strikes(kills, batches, random, args.guarantee, losing=losing) if kills else []
        return Ordeal(application, self._broker, plan, args.batches, random).run()

    def seen(self, query: str, run: str) -> Seen:
        """What is in the target."""
        return Seen.of(self._kafka, f"{self._topics}-{query}-{run}")


def run(bench: Bench, args: argparse.Namespace) -> list[str]:
    """Both runs; answers the queries that are not as they have to be."""
    began = time.monotonic()
    calm = bench.application("undisturbed")
    bench.endure(calm, 0)
    print(
        f"undisturbed: {calm.starts} starts, {calm.done()} batches, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    began = time.monotonic()
    killed = bench.application("killed", "--guarantee", args.guarantee, *bench.saving()).watched()
    for hit in bench.endure(killed, args.kills):
        print(f"    {hit}")
    print(f"killed: {killed.starts} starts, {time.monotonic() - began:.0f} s", flush=True)
    bad = []
    for query, case in bench.cases.items():
        calm_cuts, cuts_now = batches(calm.checkpoint(query)), batches(killed.checkpoint(query))
        cuts = bool(cuts_now) and calm_cuts | cuts_now == calm_cuts
        cuts = cuts and (args.lose or len(calm_cuts) == len(cuts_now))
        before, after = bench.seen(query, "undisturbed"), bench.seen(query, "killed")
        if not (_compared(query, case, before, after, args.guarantee) and cuts):
            bad.append(query)
        print(f"    same batches: {cuts}", flush=True)
    return bad


def _compared(query: str, case: Case, calm: Seen, killed: Seen, guarantee: str) -> bool:
    alone, verdict = (judge(seen, case.expected, ordered=case.ordered) for seen in (calm, killed))
    same = Counter(calm.rows) == Counter(killed.rows)
    print(f"{query}: {len(calm.rows)} rows undisturbed, {_told(alone)}")
    print(f"    killed: {len(killed.rows)} rows, {_told(verdict)}; as undisturbed: {same}")
    print(f"    written and taken back: {killed.taken_back} rows")
    if guarantee == "at_least_once":
        return alone.holds and verdict.doubled > 0 and not verdict.lost and not verdict.strange
    return alone.holds and verdict.holds and same


def _told(verdict: Verdict) -> str:
    return (
        f"{verdict.lost} lost, {verdict.doubled} doubled, {verdict.strange} strange, "
        f"{len(verdict.disordered)} keys out of order, held back: {verdict.held_back or 'nothing'}"
    )


def main() -> int:
    """Exit status 0 if all queries are as they have to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=6, help="each hits all queries")
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--queries", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--broker", choices=("eoslog", "kafka"), default="eoslog")
    parser.add_argument("--guarantee", choices=("exactly_once", "at_least_once"), default="exactly_once")
    parser.add_argument("--lose", action="store_true", help="delete the checkpoints at every other kill")
    parser.add_argument("--every", type=int, default=3, help="with --lose: batches between two saves")
    args = parser.parse_args()
    # So that the processes below end with this one, however it is ended.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    print(f"seed {args.seed}, {args.kills} kills, broker {args.broker}, {args.guarantee}", flush=True)
    with (
        server(args.broker) as broker,
        tempfile.TemporaryDirectory(prefix="stateful-", ignore_cleanup_errors=True) as place,
    ):
        bad = run(Bench(args, broker, Path(place)), args)
    print(f"NOT as it has to be: {', '.join(bad)}" if bad else "all as it has to be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
