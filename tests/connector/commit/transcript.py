"""Transcripts: stories of the commit protocol as text, told by the rules themselves on the model's cluster.

A line that begins at the margin is an act of somebody; indented lines below it are what came of it, and are
written anew each time. `#` is a comment. What may be said:

    cluster: transaction.version 2[, keeps transactions]
    driver 1 begins batch 0[ of r][, on.lost.transaction=replay][, other source offsets]
    task 0 of driver 1[, attempt 2,] writes a b        ("writes nothing": it has no rows)
    driver 1 commits batch 0[, in-0 at 5 for group dashboards]
    driver 1 ends batch 0                              (Spark calls abort)
    driver 1 leaves the sink                           (the query goes on without this sink)
    Spark notes batch 0[ of r]                         (in its commit log: commit() has returned)
    driver 1 is killed                                 (between two acts)
    topic out is deleted and created again
    15 minutes pass
    look

An act in brackets is done, and only what came out is told. After an act may stand what strikes the first
request that begins so: `; killed before REQUEST`, `; killed after REQUEST`, `; no answer to REQUEST` (it is
done), `; loss of REQUEST` (it is not). `?` says that an act could not be done: no transcript may have it.
"""

import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.abandon import end_run, run_of
from eoslog.connector.commit.decide import SourceOffsets, commit
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.finish import await_readable
from eoslog.connector.commit.leave_sink import leave
from eoslog.connector.commit.prepare import withdraw_if_late
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.task_reports import Batch, Begun, Prepared, Report
from tests.connector.commit import transcript_words as words
from tests.connector.commit.model_bench import Bench, Crash
from tests.connector.commit.model_broker import ModelBroker


def told_anew(text: str) -> str:
    """The same acts, with what comes of them now."""
    story, lines = Story(), []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            quiet = line.startswith("(")
            story.act(line[1:-1] if quiet else line)
            lines += [told for told in story.taken() if told[2] in "=!?" or not quiet]
    return "\n".join(lines) + "\n"


@dataclass
class Driver:
    """A process of a query: what it remembers, and the reports of its tasks."""

    bench: Bench
    query: str = "q"
    begun: Begun | None = None
    tasks: int = 0
    reports: dict[int, Report] = field(default_factory=dict)

    def all_reports(self) -> list[Report | None]:
        """As Spark hands them over: None for a task that has sent none."""
        return [self.reports.get(partition) for partition in range(self.tasks)]


class Story:
    """What has happened so far."""

    def __init__(self) -> None:
        self._broker = ModelBroker()
        self._drivers: dict[str, Driver] = {}
        self._noted: dict[str, int] = {}
        self._topic_id = 1
        self._strike = ""
        self._lines: list[str] = []
        self._sink = Bench().sink

    def taken(self) -> list[str]:
        """What came of the last act."""
        lines, self._lines = self._lines, []
        return lines

    def act(self, line: str) -> None:
        """Do what the line says. Raises ValueError if nobody knows what that is."""
        what, _, self._strike = line.partition("; ")
        for pattern, done in _ACTS:
            found = re.fullmatch(pattern, what)
            if found:
                done(self, **{name: text or "" for name, text in found.groupdict().items()})
                break
        else:
            raise ValueError(f"nobody knows what this is: {line!r}")
        if self._strike:
            self._say(f"? it never came to that: {self._strike}")

    # -- acts -----------------------------------------------------------------------------------

    def cluster(self, version: str, keeps: str) -> None:
        self._broker = ModelBroker(int(version), keeps=bool(keeps))

    def begins(self, who: str, number: str, query: str, more: str) -> None:
        driver = self._driver(who)
        driver.query = query or driver.query
        driver.reports, driver.tasks, driver.begun = {}, 0, None
        bench = driver.bench
        if "on.lost.transaction=replay" in more:
            bench.on_lost = OnLost.REPLAY
        options: dict[str, Any] = {"digest": "another"} if "other source offsets" in more else {}
        run, done = getattr(bench, "remembered", None), self._noted.get(driver.query)
        with self._struck(bench, who):
            driver.begun = bench.begin(int(number), driver.query, run, completed=done, **options)
            self._say(_begun(driver.begun))

    def writes(self, partition: str, who: str, attempt: str, rows: str) -> None:
        driver, number = self._drivers[who], int(partition)
        if driver.begun is None:
            self._say(f"? {who} has begun nothing")
            return
        driver.tasks = max(driver.tasks, number + 1)
        given = [] if rows == "nothing" else rows.split()
        made = driver.bench.prepare(driver.begun, number, given, f"w{number}{attempt and 'x' + attempt}")
        with self._struck(driver.bench, f"task {partition}"):
            if isinstance(made, Prepared):
                made = replace(made, topic_ids=(("out", str(self._topic_id)),))
                late = driver.bench.run(withdraw_if_late(made.stamp, made.participant))
                if late is not None:
                    self._say(f"= {late}")
            driver.reports.setdefault(number, made)
            self._say(f"= {words.report(made)}")

    def commits(self, who: str, number: str, offsets: str, group: str) -> None:
        driver, source = self._drivers[who], None
        if group:
            places = (one.split(" at ") for one in offsets.split(" and "))
            source = SourceOffsets(group, {_place(place): (int(at), "") for place, at in places})
        with self._struck(driver.bench, who):
            last = driver.bench.run(commit(self._sink, driver.all_reports(), int(number), source))
            if last is None:
                self._say("= nothing to carry out")
                return
            driver.bench.run(await_readable(last))
            self._say(f"= {last.batch} is done: decision {last.sequence}")

    def ends(self, who: str, number: str) -> None:
        driver = self._drivers[who]
        run = run_of(driver.all_reports(), driver.begun)
        if run is None or run.batch.batch_id != int(number):
            self._say(f"? {who} has not begun it")
            return
        with self._struck(driver.bench, who):
            ended = driver.bench.run(end_run(self._sink, run))
            self._say(f"= {ended.outcome.value}")
            for left in ended.left:
                self._say(f"= left: {left}")

    def leaves(self, who: str) -> None:
        driver = self._driver(who)
        done = self._noted.get(driver.query)
        batch = Batch(driver.query, 0 if done is None else done + 1)
        with self._struck(driver.bench, who):
            driver.bench.run(leave(self._sink, batch, done))

    def notes(self, number: str, query: str) -> None:
        self._noted[query or "q"] = int(number)

    def killed(self, who: str) -> None:
        del self._drivers[who]

    def created_again(self) -> None:
        self._topic_id += 1

    def pass_by(self, minutes: str) -> None:
        self._broker.now_ms += int(minutes) * 60_000
        for name in self._broker.mortal(""):
            txn = self._broker.transactions[name]
            if txn.start_ms + txn.timeout_ms <= self._broker.now_ms:
                self._broker.expire(name)
                self._say(f"{name} times out: {txn.state} {txn.identity}")

    def look(self) -> None:
        self._say(f"readers see: {' '.join(self._broker.visible()) or 'nothing'}")
        self._say(f"open: {', '.join(self._broker.ongoing('')) or 'nothing'}")
        for group, offsets in self._broker.groups.items():
            if not group.startswith(self._sink.group):
                self._say(f"group {group}: {words.told_offsets(offsets)}")

    # -- how it is done and told ----------------------------------------------------------------

    def _driver(self, who: str) -> Driver:
        driver = self._drivers.setdefault(who, Driver(Bench()))
        driver.bench.broker, driver.bench.told = self._broker, self._tell
        return driver

    @contextmanager
    def _struck(self, bench: Bench, who: str) -> Iterator[None]:
        """Within it the act is done, and what stops it is told."""
        bench.intercept = self._striking(bench) if self._strike else None
        try:
            yield
        except Crash:
            self._say(f"= {who} is killed")
            self._drivers.pop(who, None)
        except CommitFault as fault:
            told = f"! {type(fault).__name__}: {_first_sentence(str(fault))}"
            self._lines += textwrap.wrap(told, 100, initial_indent="  ", subsequent_indent="    ")
        bench.intercept = None

    def _striking(self, bench: Bench) -> Callable[[c.Command[Any]], Any]:
        """What stands for the cluster until the strike is done."""
        kind, asked = _strike_of(self._strike)

        def intercept(command: c.Command[Any]) -> Any:
            for single in words.singles(command):
                if not words.request(self._sink, single).startswith(asked):
                    continue
                bench.intercept, self._strike = None, ""
                if kind == "no answer to":
                    bench._perform(command)
                if kind in ("no answer to", "loss of"):
                    return _unanswered(command)
                self._do_in_part(bench, command, single, including=kind == "killed after")
                raise Crash
            return None

        return intercept

    def _do_in_part(self, bench: Bench, command: c.Command[Any], until: object, *, including: bool) -> None:
        """One transaction after another, as the driver that dies sends them."""
        for single in words.singles(command):
            if single == until and not including:
                return
            self._tell(single, bench._perform(single))
            if single == until:
                return

    def _say(self, line: str) -> None:
        self._lines.append(f"  {line}")

    def _tell(self, command: c.Command[Any], answer: Any) -> None:
        self._lines += words.lines_of(self._sink, command, answer)


_ACTS: tuple[tuple[str, Callable[..., None]], ...] = (
    (r"cluster: transaction.version (?P<version>[12])(?P<keeps>, keeps transactions)?", Story.cluster),
    (r"Spark notes batch (?P<number>\d+)(?: of (?P<query>\w+))?", Story.notes),
    (r"(?P<who>driver \d) is killed", Story.killed),
    (r"topic out is deleted and created again", Story.created_again),
    (r"(?P<minutes>\d+) minutes pass", Story.pass_by),
    (r"look", Story.look),
    (
        r"(?P<who>driver \d) begins batch (?P<number>\d+)(?: of (?P<query>\w+))?"
        r"(?P<more>(?:, (?:on.lost.transaction=replay|other source offsets))*)",
        Story.begins,
    ),
    (
        r"task (?P<partition>\d) of (?P<who>driver \d)(?:, attempt (?P<attempt>\d),)? writes (?P<rows>.+)",
        Story.writes,
    ),
    (
        r"(?P<who>driver \d) commits batch (?P<number>\d+)"
        r"(?:, (?P<offsets>.+) for group (?P<group>\w+))?",
        Story.commits,
    ),
    (r"(?P<who>driver \d) ends batch (?P<number>\d+)", Story.ends),
    (r"(?P<who>driver \d) leaves the sink", Story.leaves),
)


def _strike_of(strike: str) -> tuple[str, str]:
    found = re.fullmatch(r"(killed before|killed after|no answer to|loss of) (.+)", strike)
    if found is None:
        raise ValueError(f"nobody knows what this is: {strike!r}")
    return found[1], found[2]


def _unanswered(command: c.Command[Any]) -> Any:
    lost = c.Unknown("no answer")
    if isinstance(command, c.End | c.Seal):
        return {participant.name: lost for participant in command.participants}
    return lost


def _first_sentence(text: str) -> str:
    first, *more = re.split(r"(?<=\.) (?=[A-Z])", text)
    return f"{first} [...]" if more else first


def _begun(begun: Begun) -> str:
    decided, number = begun.decided, begun.sequence
    last = f"behind decision {number}: {decided} is decided" if decided else "nothing is decided"
    lost = f", to be written again: {', '.join(f'partition {p}' for p in begun.lost)}" if begun.lost else ""
    return f"= begun as {begun.identity}, {last}{lost}"


def _place(text: str) -> tuple[str, int]:
    topic, _, partition = text.rpartition("-")
    return topic, int(partition)
