"""Stories of the commit protocol as text, reviewed by eye: commands and answers."""

import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.abandon import end_run, run_of
from eoslog.connector.commit.decide import SourceOffsets, commit
from eoslog.connector.commit.decision import ANCHOR, Decision, Stored, decode
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.finish import await_readable
from eoslog.connector.commit.leave_sink import leave
from eoslog.connector.commit.places import PartitionState
from eoslog.connector.commit.prepare import withdraw_if_late
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Empty, Prepared, Report
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.commit import rules_broken as broken
from tests.connector.commit import test_model_sees as sees
from tests.connector.commit.model_bench import Bench, Crash
from tests.connector.commit.model_broker import ModelBroker

# -- words ---------------------------------------------------------------------------------------
# Commands of the rules and what is answered, in words: the lines of a transcript.
#
# A command that names several transactions is one line for the first and a line with `+` for each other one.

_ANSWERS_AT = 62


def lines_of(sink: Sink, command: c.Command[Any], answer: Any) -> Iterator[str]:
    """What was asked, and the answer; nothing of what takes no request."""
    if isinstance(command, (c.ReadClock, c.TransactionVersion)):
        return
    first, *others = singles(command)
    yield _line(">", request(sink, first), _answer_of(sink, first, answer))
    for single in others:
        yield _line("+", _names(single), _answer_of(sink, single, answer))
    if isinstance(command, c.StageOffsets) and command.group == sink.group:
        made = decode(sink, {at: put for (_, at), put in command.offsets.items()})
        assert made is not None
        yield f"      {_decision(made)}, winners {_told_winners(made)}"


def _line(sign: str, asked: str, answered: str) -> str:
    line = f"  {sign} {asked}"
    return f"{line:<{_ANSWERS_AT}}  < {answered}" if answered else line


def singles(command: c.Command[Any]) -> list[Any]:
    """The command for each transaction that it names, alone."""
    if isinstance(command, (c.End, c.Seal)):
        return [replace(command, participants=(one,)) for one in command.participants]
    if isinstance(command, c.Describe):
        return [replace(command, names=(one,)) for one in command.names]
    return [command]


def request(sink: Sink, command: c.Command[Any]) -> str:
    """The request to Kafka that a command is, of one transaction."""
    return " ".join(word for word in (_api(command), _names(command), _object(sink, command)) if word)


def _api(command: c.Command[Any]) -> str:
    match command:
        case c.End(commit):
            return f"EndTxn({'commit' if commit else 'abort'})"
        case c.WriteMarkers(_, commit):
            return f"WriteTxnMarkers({'commit' if commit else 'abort'})"
    return _APIS.get(type(command), "")


_APIS: dict[type, str] = {
    c.Acquire: "InitProducerId",
    c.Seal: "InitProducerId(keepPreparedTxn)",
    c.FetchStored: "OffsetFetch",
    c.StageOffsets: "TxnOffsetCommit",
    c.CommitOffsets: "OffsetCommit",
    c.AskOngoing: "ListTransactions ahead",
    c.AskOpen: "DescribeProducers and OffsetFetch ahead",
    c.ListOngoing: "ListTransactions",
    c.Describe: "DescribeTransactions",
    c.AwaitMarkers: "DescribeTransactions until complete",
    c.FindHeld: "DescribeProducers",
    c.FindOpen: "DescribeProducers",
    c.FindSettled: "OffsetFetch of what is staged",
    c.FindOwn: "DescribeProducers",
}


def _names(command: c.Command[Any]) -> str:
    """The transaction or the group that it is about."""
    match command:
        case c.Acquire(name, current):
            return f"{name} as {current}" if current else name
        case c.End(_, ((name, identity),)):
            return f"{name} as {identity}"
        case c.Seal(((name, _),)):
            return name
        case c.Describe((name,)):
            return name
        case c.FetchStored(group):
            return f"group {group}"
        case c.StageOffsets((name, identity), group):
            return f"{name} as {identity}, group {group}"
        case c.CommitOffsets(group):
            return f"group {group}"
        case c.AskOngoing(prefix) | c.ListOngoing(prefix):
            return f"{prefix}..."
        case c.FindOwn(name, producer_id):
            return f"{ANCHOR}, producer id {producer_id} of {name}"
    return ""


def _object(sink: Sink, command: c.Command[Any]) -> str:
    """What else there is to say of it."""
    match command:
        case c.StageOffsets(_, group, offsets):
            return "" if group == sink.group else told_offsets(offsets)
        case c.CommitOffsets(_, offsets):
            return told_offsets(offsets)
        case c.ListOngoing(_, asked):
            return "(asked ahead)" if asked else ""
        case c.FindHeld(places) | c.FindOpen(places):
            return _told(f"{topic}-{number}" for topic, number in places)
        case c.AwaitMarkers(names):
            return f"of {len(names)}"
        case c.WriteMarkers(held):
            return _told_held(held)
    return ""


def told_offsets(offsets: c.Offsets) -> str:
    """Offsets, and a note beside them."""
    told = [
        f"{topic}-{at} at {offset}{f' ({note})' if note else ''}"
        for (topic, at), (offset, note) in offsets.items()
    ]
    return _told(told)


def _answer_of(sink: Sink, command: c.Command[Any], answer: Any) -> str:
    match command:
        case c.End(_, ((name, _),)) | c.Seal(((name, _),)) | c.Describe((name,)) if isinstance(
            answer, Mapping
        ):
            return "nobody knows it" if answer[name] is None else _said(answer[name])
        case c.FetchStored(group) if isinstance(answer, Stored) and group == sink.group:
            return _last(sink, answer)
        case c.FetchStored() if isinstance(answer, Stored):
            return told_offsets({(ANCHOR, at): put for at, put in answer.chunks.items()})
        case c.ListOngoing() if isinstance(answer, c.Listed):
            return _told(answer.ongoing)
        case c.FindHeld() | c.FindOwn() if isinstance(answer, tuple):
            return f"open: {_told_held(answer)}"
        case c.FindOpen() if isinstance(answer, Mapping):
            return _told(f"{topic}-{at}: {_state(answer[topic, at])}" for topic, at in answer)
        case c.FindSettled() if isinstance(answer, tuple):
            return f"settled: {_told(answer)}" if answer else "pending"
        case c.AwaitMarkers() if isinstance(answer, tuple):
            return f"not yet: {_told(answer)}" if answer else "complete"
        case c.AskOngoing() | c.AskOpen():
            return ""
    return _said(answer)


def _said(answer: Any) -> str:
    match answer:
        case c.Refused(_, text):
            return f"refused: {text}"
        case c.Unknown(text):
            return text
        case c.NotOffered():
            return "not offered"
        case c.Sealed(holder, wrote):
            return f"{holder} holds what {wrote} wrote" if wrote else f"{holder}, nothing was open"
        case c.Description(state, identity):
            return f"{state} {identity}"
        case ProducerIdentity():
            return str(answer)
        case None:
            return "done"
    raise AssertionError(f"no words for {answer!r}")


def _state(state: PartitionState) -> str:
    return "not told" if state.begins < 0 else f"begins at {state.begins}"


def _told_held(held: Iterable[c.HeldBack]) -> str:
    return _told(
        f"{h.place[0]}-{h.place[1]} by {h.participant.name} as {h.participant.identity}" for h in held
    )


def _told(words: Iterable[str]) -> str:
    return ", ".join(words) or "none"


def _last(sink: Sink, stored: Stored) -> str:
    last = decode(sink, stored.chunks)
    return _decision(last) if last is not None else "no decision"


def _decision(made: Decision) -> str:
    return f"decision {made.sequence}: {made.batch}"


def _told_winners(made: Decision) -> str:
    """By their names' last part, which tells worker and number."""
    return _told(
        f"{w.participant.name.rsplit('/', 1)[1]} as {w.participant.identity}"
        + (f" held by {w.holder}" if w.holder else "")
        for w in made.winners
    )


def report(made: Report) -> str:
    """What a task tells the driver."""
    match made:
        case Prepared(participant=(name, identity), rows=rows):
            return f"Prepared: {rows} rows by {name} as {identity}"
        case Decided(rows=rows):
            return f"Decided: its {rows} rows pass, they are visible already"
        case Empty():
            return "Empty: nothing is written"


# -- a transcript --------------------------------------------------------------------------------
# Transcripts: stories of the commit protocol as text, told by the rules themselves on the model's cluster.
#
# A line that begins at the margin is an act of somebody; indented lines below it are what came of it, and are
# written anew each time. `#` is a comment. What may be said:
#
#     cluster: transaction.version 2[, keeps transactions]
#     driver 1 begins batch 0[ of r][, on.lost.transaction=replay][, other source offsets]
#     task 0 of driver 1[, attempt 2,] writes a b        ("writes nothing": it has no rows)
#     driver 1 commits batch 0[, in-0 at 5 for group dashboards]
#     driver 1 ends batch 0                              (Spark calls abort)
#     driver 1 leaves the sink                           (the query goes on without this sink)
#     Spark notes batch 0[ of r]                         (in its commit log: commit() has returned)
#     driver 1 is killed                                 (between two acts)
#     topic out is deleted and created again
#     15 minutes pass
#     look
#
# An act in brackets is done, and only what came out is told. After an act may stand what strikes the first
# request that begins so: `; killed before REQUEST`, `; killed after REQUEST`, `; no answer to REQUEST` (it is
# done), `; loss of REQUEST` (it is not). `?` says that an act could not be done: no transcript may have it.


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
            self._say(f"= {report(made)}")

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
                self._say(f"group {group}: {told_offsets(offsets)}")

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
            for single in singles(command):
                if not request(self._sink, single).startswith(asked):
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
        for single in singles(command):
            if single == until and not including:
                return
            self._tell(single, bench._perform(single))
            if single == until:
                return

    def _say(self, line: str) -> None:
        self._lines.append(f"  {line}")

    def _tell(self, command: c.Command[Any], answer: Any) -> None:
        self._lines += lines_of(self._sink, command, answer)


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


# -- those that are kept -------------------------------------------------------------------------
# Requests and answers of the commit protocol, as stories to read: transcripts/*.txt, first_start.txt first.
#
#     EOSLOG_REWRITE=1 python -m pytest tests/connector/commit/test_transcripts.py
#
# writes them as the rules are now. Read the difference before it is committed.

_FOLDER = Path(__file__).parent / "transcripts"
_REWRITE = "EOSLOG_REWRITE"
_BREAKS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (sees.no_roll_forward, "killed_after_the_decision"),
    (sees.left_overs_cleared_before_the_roll_forward, "killed_after_the_decision"),
    (sees.leftovers_not_cleared, "killed_after_prepare"),
    (sees.parity_ignored, "batches_tv2"),
    (broken.acquired_without_a_look, "first_start"),
    (broken.begin_never_goes_on, "batches_tv2"),
    (broken.epoch_not_raised, "batches_tv1"),
    (broken.winners_not_verified, "timed_out_before_the_decision"),
    (broken.not_sealed, "sealing"),
    (broken.partitions_not_asked, "killed_in_finish"),
    (broken.earlier_queries_forgotten, "new_checkpoint"),
]


def difference(text: str) -> str:
    """From what a transcript tells to what the rules do; "": there is none."""
    lines, now = text.splitlines(), told_anew(text).splitlines()
    return "\n".join(unified_diff(lines, now, "as told", "as the rules do", lineterm=""))


@pytest.mark.parametrize("path", sorted(_FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    if os.environ.get(_REWRITE):
        path.write_text(told_anew(path.read_text()))
    text = path.read_text()
    assert text.startswith("# "), "a head says what is told"
    assert "\n  ? " not in text, "an act that could not be done"
    found = difference(text)
    assert not found, f"{path.name} tells it otherwise. If that is meant: {_REWRITE}=1, and read it\n{found}"


@pytest.mark.parametrize(("rule", "name"), _BREAKS, ids=lambda told: getattr(told, "__name__", told))
def test_a_broken_rule_makes_another_story(
    monkeypatch: pytest.MonkeyPatch, rule: Callable[[pytest.MonkeyPatch], None], name: str
) -> None:
    rule(monkeypatch)
    assert difference((_FOLDER / f"{name}.txt").read_text())


@pytest.mark.parametrize("act", ["driver 1 does as it likes", "driver 1 begins batch 0; struck by lightning"])
def test_an_act_that_nobody_knows_is_refused(act: str) -> None:
    with pytest.raises(ValueError, match="nobody knows what this is"):
        told_anew(f"# A story\n{act}\n")


def test_an_act_that_could_not_be_done_is_told() -> None:
    told = told_anew(
        "driver 1 begins batch 0; killed before EndTxn(commit) sink\nlook; killed after EndTxn\n"
    )
    assert told.count("\n  ? it never came to that") == 2
    fenced = "driver 1 begins batch 0\ndriver 2 begins batch 1\ndriver 1 begins batch 1\n"
    assert "\n  ? driver 1 has begun nothing" in told_anew(f"{fenced}task 0 of driver 1 writes a\n")
    assert "\n  ? driver 1 has not begun it" in told_anew(f"{fenced}driver 1 ends batch 1\n")
