"""A round of the soak: queries over one source, all of it killed at random, then judged.

What is drawn comes from the round's seed; the rest is what the machine makes of it.
"""

from __future__ import annotations

import contextlib
import heapq
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.protocol.apis import ApiKey
from tests.kills.kill_brokers import Brokers, Way, ways
from tests.kills.kill_feed import Feed, ends_of, left_open, verdict_of
from tests.kills.kill_posts import Found, Post, Tally
from tests.kills.kill_query import Job, Life, Running
from tests.kills.kill_spark import Spark, SparkRunning
from tests.kills.kill_steps import Victim, victims
from tests.scenarios.cutting_proxy import CuttingProxy
from tests.soaks.copy_audit import Verdict, audit

PARTITIONS, TARGET_PARTITIONS = 3, 2
CALM_SECONDS = 180.0
"""How long all queries may be without a batch, once nobody disturbs them; Spark needs more for its start."""
AIM_SECONDS, AGAIN_SECONDS = 2.0, 0.04
"""How long is waited for a step that is aimed at; and how often is looked who is there."""
LOOK = 0.02

TIMEOUTS = {
    "kafka.request.timeout.ms": "4000",
    "kafka.default.api.timeout.ms": "15000",
    "kafka.delivery.timeout.ms": "12000",
    "kafka.transaction.timeout.ms": "12000",
}
LONGER = (13.0, 17.0)
"""Seconds, longer than all of them."""
CUT_AT = (
    ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.INIT_PRODUCER_ID, ApiKey.OFFSET_FETCH,
    ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.FETCH, ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
)  # fmt: skip

KINDS = ("stream", "stream", "tokens")
ACTS = ("hand-over", "restore", "stop", "broker-restore")
"""Acts that can be left out."""


@dataclass
class Setting:
    """What a round is made of."""

    seed: int
    kills: int
    folder: Path
    kinds: tuple[str, ...] = KINDS
    acts: tuple[str, ...] = ACTS
    rate: float = 300.0
    pace: float = 0.5  # seconds between two strikes, on average
    harm: str = ""  # what is broken on purpose


@contextlib.contextmanager
def _jobs(setting: Setting, brokers: Brokers) -> Iterator[tuple[list[Job], list[Way]]]:
    """Topics, networks and queries of a round."""
    name = f"r{setting.seed}"
    source, twice = f"{name}-source", f"{name}-twice"
    with ways(brokers.ports, 2 * len(setting.kinds)) as networks:
        jobs = []
        for number, kind in enumerate(setting.kinds):
            own = f"{name}-{kind}{number}"
            options = {**TIMEOUTS, "transactional.id": own, "kafka.max.request.size": "4000"}
            if kind == "stream" and not brokers.seals:
                options["on.lost.transaction"] = "replay"
            way = (networks[2 * number].bootstrap, networks[2 * number + 1].bootstrap)
            read = twice if kind == "spark-dedup" else source
            names = (read, f"{own}-target", f"{own}-group")
            jobs.append(Job(own, kind, *names, way, setting.folder, options, setting.harm))
        jobs[0].steps.mkdir(parents=True)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
        topics = [NewTopic(topic, PARTITIONS, brokers.replicas) for topic in (source, twice)]
        topics += [NewTopic(job.target, TARGET_PARTITIONS, brokers.replicas) for job in jobs]
        for made in admin.create_topics(topics).values():
            made.result(60)
        yield jobs, networks
        for gone in admin.delete_topics([topic.topic for topic in topics]).values():
            gone.result(60)


def run(setting: Setting, brokers: Brokers, tally: Tally, spark: Spark | None = None) -> list[str]:
    """One round; a line for each query's verdict. `spark`: where its queries run that are Spark's.

    Raises Found.
    """
    with _jobs(setting, brokers) as (jobs, networks):
        return _Round(setting, brokers, jobs, networks, tally, spark).run()


class _Round:
    def __init__(
        self,
        setting: Setting,
        brokers: Brokers,
        jobs: list[Job],
        networks: list[Way],
        tally: Tally,
        spark: Spark | None,
    ) -> None:
        self.setting, self.brokers, self.tally, self.spark = setting, brokers, tally, spark
        self.networks = [proxy for way in networks for proxy in way.proxies]
        self.draw = Random(setting.seed)
        self.posts = [Post(job, Random(self.draw.randrange(1 << 30)), tally, self._start) for job in jobs]
        self.steps = jobs[0].steps
        self.source, twice = f"r{setting.seed}-source", f"r{setting.seed}-twice"
        dedup = twice if "spark-dedup" in setting.kinds else None
        self.feed = Feed(brokers.bootstrap, self.source, PARTITIONS, setting.rate, dedup)
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._copies: dict[str, list[Path]] = {}
        self._data: Path | None = None  # a copy of the broker's directory
        self._seen: set[str] = set()

    def _start(self, job: Job, life: Life) -> Running | SparkRunning:
        if not job.kind.startswith("spark"):
            return Running(job, life)
        assert self.spark is not None, "a query of Spark's needs an application"
        return SparkRunning(self.spark, job, life)

    def run(self) -> list[str]:
        self.feed.start()
        try:
            self._strikes()
            self._calm()
            if "stop" in self.setting.acts:
                self._stop(signal.SIGUSR1, "in mid-batch")
                for post in self.posts:
                    post.wanted(True)
            rows = self.feed.end()
            self._to_the_end(rows)
            self._stop(signal.SIGTERM, "between batches")
            lines = self._judge(rows)
            if self._data is not None:
                self._restore_broker(self._data, rows)
            return lines
        finally:
            self._end()

    def _end(self) -> None:
        """Leave no process behind."""
        self._wake()
        for post in self.posts:
            post.wanted(False)
            post.kill()
            for other in post.others:
                other.kill()
        for victim in victims(self.steps):
            victim.kill()
        with contextlib.suppress(AssertionError):  # told already, or the round has failed for another reason
            self.feed.end()

    # -- time ---------------------------------------------------------------------------------

    def _in(self, seconds: float, what: Callable[[], object]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), what))

    def _pass(self, seconds: float) -> None:
        """Let time go by; what is due is done, and who has died is started again."""
        until = time.monotonic() + seconds
        while True:
            while self._later and self._later[0][0] <= time.monotonic():
                heapq.heappop(self._later)[2]()
            for post in self.posts:
                post.look()
            if time.monotonic() >= until:
                return
            time.sleep(LOOK)

    def _wake(self) -> None:
        """All that was to happen later happens now: what sleeps or is dead comes back."""
        while self._later:
            heapq.heappop(self._later)[2]()

    # -- strikes ------------------------------------------------------------------------------

    def _strikes(self) -> None:
        weapons: list[tuple[int, Callable[[], object]]] = [
            *(self._of_processes() if not all(p.job.kind.startswith("spark") for p in self.posts) else []),
            (8, self._broker),
            (3, self._everything),
            (2, self._freeze_task),
            (1, self._freeze_broker),
            (1, self._full),
            (4, self._cut),
            (2, self._hold),
            (6, self._lose),
            *(self._of_spark() if self.spark is not None else []),
            *([(5, self._hand_over)] if "hand-over" in self.setting.acts else []),
            *([(4, self._copy_broker)] if "broker-restore" in self.setting.acts else []),
            *([(3, self._restore), (4, self._copy)] if "restore" in self.setting.acts else []),
        ]
        self._until(lambda: all(post.batches() for post in self.posts), "no first batch is noted", 600)
        before = self.tally.killed
        while self.tally.killed - before < self.setting.kills:
            self._pass(self.draw.expovariate(1 / self.setting.pace))
            (weapon,) = self.draw.choices([w for _, w in weapons], [weight for weight, _ in weapons])
            weapon()

    def _of_processes(self) -> list[tuple[int, Callable[[], object]]]:
        return [
            (24, lambda: self._kill("driver")),
            (24, lambda: self._kill("task")),
            (2, self._freeze_driver),
        ]

    def _of_spark(self) -> list[tuple[int, Callable[[], object]]]:
        spark, draw = self.spark, self.draw
        assert spark is not None
        return [
            (24, lambda: self._kill("worker")),
            (4, lambda: self._kill("planner")),
            (2, lambda: self._note("executor", spark.kill_executor(draw))),
            (1, lambda: self._note("Spark driver", spark.kill())),
        ]

    def _pick(self, kind: str) -> Victim | None:
        found = victims(self.steps, kind)
        return self.draw.choice(found) if found else None

    def _kill(self, kind: str) -> None:
        """One of a kind; every second time when it is at a step that is drawn from those seen so far."""
        victim = self._pick(kind)
        if victim is None:
            return
        self._seen.add(victim.step())
        if self.draw.random() < 0.6:
            victim = self._aim(kind) or victim
        self._note(kind, victim.kill())
        if kind == "driver" and self.draw.random() < 0.5:
            for task in victims(self.steps, "task", victim.of):
                self._note("task", task.kill())

    def _aim(self, kind: str) -> Victim | None:
        wanted = self.draw.choice(sorted(step for step in self._seen if step.startswith(kind)) or ["?"])
        until = time.monotonic() + AIM_SECONDS
        while time.monotonic() < until:
            there, looks = victims(self.steps, kind), time.monotonic() + AGAIN_SECONDS
            while time.monotonic() < looks:
                for victim in there:
                    step = victim.step()
                    self._seen.add(step)
                    if step == wanted:
                        return victim
                time.sleep(0.001)
        return None

    def _note(self, kind: str, step: str | None) -> None:
        if step is not None:
            self.tally.kills[kind, step] += 1

    def _broker(self) -> None:
        killed = self.brokers.strike(self.draw)
        if killed is not None:
            self._note("broker", killed)
            self._in(self.draw.uniform(0, 1.5), self.brokers.come_back)

    def _everything(self) -> None:
        self._broker()
        for victim in victims(self.steps):
            self._note(victim.kind, victim.kill())
        self._act("all at once")

    def _freeze_driver(self) -> None:
        """Longer than all time-outs; half of them are taken for dead, and wake beside their successor."""
        post = self.draw.choice([post for post in self.posts if not post.job.kind.startswith("spark")])
        if post.running is None or post.others:
            return
        frozen = post.running
        seconds = self.draw.uniform(*LONGER)
        frozen.send(signal.SIGSTOP)
        self._in(seconds, lambda: frozen.send(signal.SIGCONT))
        if self.draw.random() < 0.5:
            post.replace()
            self._act("driver frozen for longer than time-outs, and replaced")
        else:
            self._act("driver frozen for longer than time-outs")

    def _freeze_task(self) -> None:
        victim = self._pick("task") or self._pick("worker")
        if victim is not None and victim.send(signal.SIGSTOP):
            self._in(self.draw.uniform(0.5, LONGER[1]), lambda: victim.send(signal.SIGCONT))
            self._act("task frozen")

    def _freeze_broker(self) -> None:
        if self.brokers.freeze(self.draw):
            self._in(self.draw.uniform(1, 6), self.brokers.come_back)
            self._act("broker frozen")

    def _full(self) -> None:
        if self.brokers.fill_disk(self.draw):
            self._in(self.draw.uniform(0.5, 3), self.brokers.come_back)
            self._act("broker's disk full")

    def _network(self) -> CuttingProxy:
        return self.draw.choice(self.networks)

    def _cut(self) -> None:
        self._network().cut_all()
        self._act("connections cut")

    def _hold(self) -> None:
        network = self._network()
        network.pause()
        self._in(self.draw.uniform(0.5, 6), network.go_on)
        self._act("network dead for seconds")

    def _lose(self) -> None:
        key, before = self.draw.choice(CUT_AT), self.draw.random() < 0.5
        self._network().cut_at(key, before=before, skip=self.draw.randrange(3))
        self._act("a request lost" if before else "an answer lost")

    def _act(self, what: str) -> None:
        self.tally.acts[what] += 1

    # -- checkpoints --------------------------------------------------------------------------

    def _streams(self) -> list[Post]:
        return [post for post in self.posts if post.job.has_group and not post.others]

    def _hand_over(self) -> None:
        streams = self._streams()
        if streams:
            stop = self.draw.random() < 0.3
            self.draw.choice(streams).hand_over(stop=stop)
            self._act("hand-over, the old driver killed" if stop else "hand-over from a living driver")

    def _copy(self) -> None:
        streams = [post for post in self._streams() if post.has_noted]
        if streams:
            post = self.draw.choice(streams)
            copies = self._copies.setdefault(post.job.name, [])
            place = self.setting.folder / f"copy-{post.job.name}-{len(copies)}" / post.checkpoint.name
            post.copy(place)
            copies.append(place)

    def _restore(self) -> None:
        """Of the checkpoint that is in use, an older copy."""
        streams = self._streams()
        if streams:
            post = self.draw.choice(streams)
            copies = [c for c in self._copies.get(post.job.name, []) if c.name == post.checkpoint.name]
            if copies:
                post.restore(self.draw.choice(copies[: 1 + len(copies) // 2]))
                self._act("checkpoint restored from an older copy")

    def _copy_broker(self) -> None:
        """Once a round, in one of three."""
        if self._data is None and self.setting.seed % 3 == 0:
            place = self.setting.folder / "broker-copy"
            if self.brokers.copy(place):
                self._data = place

    def _restore_broker(self, copy: Path, rows: int) -> None:
        """The broker's data is that of an older copy, and its source grows past its end again, before the
        queries start or after: each has to say that something is wrong. Raises Found."""
        self.brokers.restore(copy)
        grows = Feed(self.brokers.bootstrap, self.source, PARTITIONS, 20 * self.setting.rate, first=rows)
        self.feed = grows
        grows.start()
        late = self.draw.random() < 0.5
        if late:
            self._pass(4)
            grows.end()
        before = [post.batches() for post in self.posts]
        for post in self.posts:
            post.ground_lost()
        self._act(f"broker restored from an older copy, its log {'grown past the end' if late else 'short'}")

        def loud() -> bool:
            for post, batches in zip(self.posts, before, strict=True):
                if post.batches() > batches:
                    raise Found(f"the broker was restored from an older copy, and {post.job.name} goes on")
            return all(post.loud for post in self.posts)

        self._until(loud, "queries on a restored broker neither stop nor go on")

    # -- the end ------------------------------------------------------------------------------

    def _calm(self) -> None:
        """Nothing happens any more, and all that sleeps comes back."""
        self._wake()
        self.brokers.come_back()
        self.brokers.settle()
        self._pass(self.draw.uniform(0.5, 3))

    def _stop(self, number: signal.Signals, when: str) -> None:
        """Every query in order, then what is left open. Raises Found."""
        for post in self.posts:
            post.stop(number)
        self._until(lambda: all(post.over for post in self.posts), f"the queries do not stop ({when})")
        self.tally.acts[f"stopped in order, {when}"] += len(self.posts)
        found = left_open(self.brokers.bootstrap, [post.job.name for post in self.posts])
        if found:
            raise Found(f"stopped {when}, and these transactions are open, for so many seconds: {found}")

    def _to_the_end(self, rows: int) -> None:
        """Until each query has read and noted all that there is."""
        wanted = audit(self.brokers.bootstrap, self.source, rows, PARTITIONS)
        if not wanted.right:
            raise Found(f"the source itself is wrong: {wanted}")
        sources = {post.job.source for post in self.posts}
        ends = {source: ends_of(self.brokers.bootstrap, source, PARTITIONS) for source in sources}
        self._until(lambda: all(post.at_end(ends[post.job.source]) for post in self.posts), "no end comes")

    def _until(self, condition: Callable[[], bool], what: str, seconds: float = CALM_SECONDS) -> None:
        """Wait for it, for as long as batches go on to be noted, and so many seconds longer."""
        noted, deadline = -1, 0.0
        while not condition():
            if (now := sum(post.batches() for post in self.posts)) != noted:
                noted, deadline = now, time.monotonic() + seconds
            if time.monotonic() > deadline:
                doing = {f"{v.kind} of {v.of}": v.step() for v in victims(self.steps)}
                raise Found(f"{what}, nor any batch for {seconds} s: {doing}; {dict(self.tally.stops)}")
            self._pass(0.1)

    def _judge(self, rows: int) -> list[str]:
        lines = []
        for post in self.posts:
            verdict = verdict_of(post.job, self.brokers.bootstrap, rows, PARTITIONS)
            lines.append(f"{post.job.name}: {said(verdict)}, {post.batches()} batches")
            self.tally.batches += post.batches()
            self.tally.rows += verdict.rows
            if not verdict.right:
                raise Found("\n".join([*lines, *verdict.samples]))
        return lines


def said(v: Verdict) -> str:
    """A verdict in a line."""
    return (
        f"{v.rows} rows, {v.lost} lost, {v.doubled} doubled, {v.reordered} out of order, "
        f"{v.damaged} damaged, {v.held_back} held back, group off in {v.group_off}"
    )
