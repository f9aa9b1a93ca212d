"""Judges a sink's decisions by what the logs hold: is each batch there, whole, once? Pure.

What was found is `wrong` if the logs contradict the decisions. It is `unknown` if something is gone that
would tell: decisions that compaction took, rows that retention took. What is unknown is never proven.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from eoslog.connector.checkpoint.spark_logs import FormatError, Planned
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.faults import DecisionDamaged
from eoslog.connector.commit.places import Place, by_partition, made_anew
from eoslog.connector.commit.task_reports import Batch, Left
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.winner import Winner
from eoslog.connector.source.past_batches import Stored
from eoslog.errors import EoslogError
from eoslog.protocol.names_by_sink import sink_of
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.prove.logs import PartitionLog, Written


class NoProof(EoslogError):
    """Nothing can be proven, or a document is none, or not as it was written."""


class Decided(NamedTuple):
    """A decision, and when it was made (ms since 1970)."""

    decision: Decision
    time_ms: int

    @property
    def sequence(self) -> int:
        """Its number among the sink's decisions."""
        return self.decision.sequence

    @property
    def query(self) -> str:
        """The query of its batch."""
        return self.decision.batch.query_id


class History(NamedTuple):
    """The decisions that the log still has, in order. `twice`: numbers that two different ones have."""

    decided: tuple[Decided, ...]
    twice: tuple[int, ...]

    @classmethod
    def of(cls, sink: Sink, stored: Iterable[Stored]) -> "History":
        """Those of which the log has all parts."""
        found, twice = dict[int, Decided](), set[int]()
        for one in stored:
            try:
                decision = decode(sink, one.chunks)
            except DecisionDamaged:
                continue
            if decision is None:
                continue
            known = found.setdefault(decision.sequence, Decided(decision, one.time_ms))
            if known.decision != decision:
                twice.add(decision.sequence)
        return cls(tuple(found[number] for number in sorted(found)), tuple(sorted(twice)))

    @property
    def last(self) -> int:
        """The newest decision's number; 0: there is none."""
        return self.decided[-1].sequence if self.decided else 0

    def judged_since(self, first: int) -> list[Decided]:
        """The decisions from `first` on, and earlier ones of their batches."""
        batches = {one.decision.batch[:2] for one in self.decided if one.sequence >= first}
        return [one for one in self.decided if one.decision.batch[:2] in batches]

    def first_since(self, batch: int | None, time_ms: int | None) -> int:
        """The first decision that was made from then on; without both, the sink's first one. Raises NoProof
        if no batch of the last query has this number here."""
        if time_ms is not None:
            return max((one.sequence for one in self.decided if one.time_ms < time_ms), default=0) + 1
        if batch is None:
            return 1
        queries = [one for one in self.decided if not one.decision.is_write]
        last = [one for one in queries if one.query == queries[-1].query]
        found = [one.sequence for one in last if one.decision.batch.batch_id == batch]
        if not found:
            known = ", ".join(str(one.decision.batch) for one in (last[:1] + last[-1:]))
            raise NoProof(
                f"--since {batch}: the log has no decision of this batch. It has those from here to there: "
                f"{known or 'none'}. Brokers compact former decisions away: give another batch"
            )
        return found[0]


@dataclass
class Line:
    """What is said of one decision. `own`: the rows of its transactions, by partition. `source`: what its
    batch read, by source, topic and partition: from, None: not known, and to below."""

    decided: Decided
    own: dict[TopicPartition, list[Written]]
    source: dict[str, dict[str, dict[str, list[int | None]]]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def committed(self, where: TopicPartition) -> list[Written]:
        """The rows there that readers see."""
        return [one for one in self.own[where] if one.committed]


@dataclass
class Judged:
    """A line for each decision, and what belongs to none. `foreign`: rows that others wrote among the sink's,
    and `unnamed`: of them those of transactions of which nobody knows the writer."""

    lines: list[Line]
    wrong: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """What is judged: the decisions first..last of `history`, which may have later ones, and the logs of
    their topics. `names`: the transactional ids of producers of which no decision knows."""

    sink: Sink
    history: History
    first: int
    last: int
    logs: Mapping[TopicPartition, PartitionLog]
    names: Mapping[int, str]

    @cached_property
    def missing(self) -> set[int]:
        """The numbers up to the last one of which the log has no decision."""
        return {*range(1, self.last + 1)} - {one.sequence for one in self.history.decided}


def judge(case: Case) -> Judged:
    """Judge all."""
    there = _by_writer(case.logs)
    lines = {
        one.sequence: Line(one, _own(one, there))
        for one in case.history.decided
        if case.first <= one.sequence <= case.last
    }
    judged, reach = Judged(list(lines.values())), _Reach(case)
    _numbers(case, judged)
    for group in _batches(case):
        if group[-1].sequence in lines:
            _rows(case, group, there, reach, lines[group[-1].sequence])
    for line in lines.values():
        _places(case, line)
    _sources(case, lines)
    _others(case, judged, reach)
    return judged


# -- decisions -------------------------------------------------------------------------------------

_There = Mapping[ProducerIdentity, Sequence[tuple[TopicPartition, Written]]]


def _by_writer(logs: Mapping[TopicPartition, PartitionLog]) -> _There:
    found: dict[ProducerIdentity, list[tuple[TopicPartition, Written]]] = {}
    for where, log in logs.items():
        for one in log.transactions:
            found.setdefault(one.writer, []).append((where, one))
    return found


def _own(one: Decided, there: _There) -> dict[TopicPartition, list[Written]]:
    own: dict[TopicPartition, list[Written]] = {}
    for writer in _writers_of(one.decision):
        for where, written in there.get(writer, ()):
            own.setdefault(where, []).append(written)
    return dict(sorted(own.items()))


def _writers_of(decision: Decision) -> list[ProducerIdentity]:
    """Whose transactions have its rows: the tasks', and the sink's own, where a take-over has added rows."""
    sinks = (place.writer for place in decision.places)
    own = dict.fromkeys(one for one in sinks if one.producer_id == decision.incarnation.producer_id)
    return [*(winner.participant.identity for winner in decision.winners), *own]


def _batches(case: Case) -> list[list[Decided]]:
    """The decisions up to the last one, by batch: rows that were lost are written again under a second one,
    and a sink that is left gets one more."""
    found: dict[tuple[str, int], list[Decided]] = {}
    for one in case.history.decided:
        if one.sequence <= case.last:
            found.setdefault(one.decision.batch[:2], []).append(one)
    return list(found.values())


def _numbers(case: Case, judged: Judged) -> None:
    gone = sorted(number for number in case.missing if number >= case.first)
    for _, run in groupby(enumerate(gone), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        judged.unknown.append(
            f"{_range('decision', numbers[0], numbers[-1])}: not in the log as a whole. Brokers compact "
            "former decisions away"
        )
    for number in case.history.twice:
        judged.wrong.append(
            f"two decisions have the number {number}: the sink's group was deleted, or the brokers were put "
            "back to an older copy"
        )


def _range(noun: str, first: int, last: int) -> str:
    return f"{noun} {first}" if first == last else f"{noun}s {first} to {last}"


# -- rows ------------------------------------------------------------------------------------------


class _Try(NamedTuple):
    """A transaction of a Spark partition, and its rows by partition of the topics."""

    decided: Decided
    winner: Winner
    there: Sequence[tuple[TopicPartition, Written]]

    @property
    def seen(self) -> int:
        """How many rows readers see."""
        return sum(one.rows for _, one in self.there if one.committed)

    def unseen(self, committed: bool | None) -> list[TopicPartition]:
        """Where rows stand that they do not see, as they were aborted, or never ended."""
        return [where for where, one in self.there if one.committed is committed]


def _rows(case: Case, group: Sequence[Decided], there: _There, reach: "_Reach", line: Line) -> None:
    """Each Spark partition's rows have to be visible under one transaction of the batch's decisions."""
    tries: dict[int, list[_Try]] = {}
    for one in group:
        for winner in one.decision.winners:
            found = _Try(one, winner, there.get(winner.participant.identity, ()))
            tries.setdefault(winner.partition, []).append(found)
    last = next((one.decision for one in reversed(group) if one.decision.rows), group[-1].decision)
    for partition in sorted({*range(len(last.rows)), *tries}):
        each, wanted = tries.get(partition, []), last.rows_of(partition)
        good = [one for one in each if one.seen]
        if len(good) > 1:
            numbers = " and ".join(str(one.decided.sequence) for one in good)
            line.wrong.append(f"task {partition} is doubled: its rows are visible of decisions {numbers}")
        elif each:
            _task(case, (good or each)[-1], wanted, reach, line)
        elif wanted:
            before = group[0].sequence - 1
            said = f"task {partition} had {wanted} rows, and no decision that is known names its transaction"
            (line.unknown if before in {0, *case.missing} else line.wrong).append(said)


def _task(case: Case, one: _Try, wanted: int | None, reach: "_Reach", line: Line) -> None:
    name = f"task {one.winner.partition}, {one.winner.participant.name}"
    if aborted := one.unseen(False):
        line.wrong.append(f"{name}: its rows in {_named(aborted)} were aborted")
    if opened := [where for where in one.unseen(None) if not case.logs[where].compacted]:
        line.wrong.append(f"{name}: {_named(opened)} has no marker that ends it")
    if wanted is None:
        line.unknown.append(f"{name}: the decision does not say how many rows it had")
    if aborted or opened or one.seen == (one.seen if wanted is None else wanted):
        return
    said = f"{name}: {one.seen} of {wanted} rows are in the log"
    if wanted is not None and one.seen > wanted:
        line.wrong.append(said)
        return
    wrong, unknown = _why_lacking(case, one.decided, reach)
    (line.wrong if wrong or not unknown else line.unknown).append("; ".join([said, *wrong, *unknown]))


def _named(places: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in places)


def _why_lacking(case: Case, one: Decided, reach: "_Reach") -> tuple[list[str], list[str]]:
    """Why rows of a decision are not there: what is wrong, and what explains it without a wrong."""
    wrong, unknown = [], []
    for where in one.decision.written:
        name, log = f"{where[0]}-{where[1]}", case.logs.get(where)
        if log is None:
            wrong.append(f"{name} does not exist any more")
            continue
        at = by_partition(one.decision.places).get(where)
        anew = made_anew(where[0], at.topic_id, log.topic_id) if at is not None else ""
        if anew:
            wrong.append(anew)
        elif at is not None and at.offset >= log.ends:
            wrong.append(f"{name} ends at {log.ends}, and its rows went to offset {at.offset}")
        elif log.compacted:
            unknown.append(f"topic {where[0]} is compacted")
        elif log.begins > reach.before(where, one.sequence) + 1:
            unknown.append(
                f"{name} begins at {log.begins}: retention, or somebody, has removed what was before"
            )
    return list(dict.fromkeys(wrong)), list(dict.fromkeys(unknown))


def _places(case: Case, line: Line) -> None:
    """The last row that the decision names has to be the transaction's last one."""
    for place in line.decided.decision.places:
        where = (place.topic, place.partition)
        log = case.logs.get(where)
        own = [one for one in line.own.get(where, ()) if one.writer == place.writer]
        if log is None or log.compacted or not own:
            continue
        if (own[-1].last, own[-1].time_ms) != (place.offset, place.time_ms):
            line.wrong.append(
                f"{where[0]}-{where[1]}: the last row of {place.writer} is at {own[-1].last}, of time "
                f"{own[-1].time_ms}; the decision says {place.offset}, of time {place.time_ms}"
            )


class _Reach:
    """How far the sink's rows go in each partition, as far as decisions and logs tell."""

    def __init__(self, case: Case) -> None:
        self._known: dict[TopicPartition, list[tuple[int, int]]] = {}
        left = ((one.sequence, one.decision.left) for one in case.history.decided)
        self._left = [number for number, to in left if to is not None and not to.sink]
        decided = {writer: one for one in case.history.decided for writer in _writers_of(one.decision)}
        for where, log in case.logs.items():
            rows = (one for one in log.transactions if one.writer in decided)
            self._known[where] = [(decided[one.writer].sequence, one.last) for one in rows]
        self._there = {where: tuple(found) for where, found in self._known.items()}
        for each in case.history.decided:
            for place in each.decision.known_rows:
                self._add(case, each.sequence, place)

    def _add(self, case: Case, sequence: int, place: Place) -> None:
        where = (place.topic, place.partition)
        log = case.logs.get(where)
        if log is not None and not made_anew(place.topic, place.topic_id, log.topic_id):
            self._known[where].append((sequence, place.offset))

    def before(self, where: TopicPartition, sequence: int) -> int:
        """The last offset that is known of rows of earlier decisions; -1: of none."""
        return max((at for number, at in self._known.get(where, ()) if number < sequence), default=-1)

    def between(self, where: TopicPartition, rows: Written, last: int) -> range:
        """The numbers of the decisions of which these rows can be, if no decision that is known has them."""
        known = self._known.get(where, ())
        lower = max((number for number, at in known if at < rows.first), default=0)
        upper = min((number for number, at in known if at >= rows.last), default=last + 1)
        return range(lower + 1, upper)

    def was_left(self, where: TopicPartition, offset: int) -> bool:
        """Whether the sink may have been left for at_least_once when what stands here was written: after all
        of its rows before, and before those behind."""
        there = self._there.get(where, ())
        lower = max((number for number, at in there if at < offset), default=0)
        upper = min((number for number, at in there if at >= offset), default=math.inf)
        return any(lower <= number < upper for number in self._left)


# -- others' rows ----------------------------------------------------------------------------------


def unknown_producers(history: History, logs: Mapping[TopicPartition, PartitionLog]) -> set[int]:
    """The producers of transactions of which no decision knows."""
    known = _writers(history)
    return {
        one.writer.producer_id for log in logs.values() for one in log.transactions if one.writer not in known
    }


def _writers(history: History) -> set[ProducerIdentity]:
    return {writer for one in history.decided for writer in _writers_of(one.decision)}


def _others(case: Case, judged: Judged, reach: _Reach) -> None:
    decided = _writers(case.history)
    producers = {one.producer_id for one in decided}
    for where, log in case.logs.items():
        own = [one.first for line in judged.lines for one in line.own.get(where, ()) if one.committed]
        since = min(own, default=log.stable)
        name, behind = f"{where[0]}-{where[1]}", [one for one in log.plain if one[0] > since]
        maybe = sum(rows for first, rows in behind if reach.was_left(where, first))
        if plain := sum(rows for _, rows in behind) - maybe:
            judged.foreign.append(f"{name}: {_several(plain)} without a transaction")
        if maybe:
            judged.unknown.append(
                f"{name}: {_several(maybe)} without a transaction, perhaps of batches written with "
                "at_least_once, which promises no row once"
            )
        for one in log.transactions:
            if one.writer in decided or not one.committed or one.first >= log.stable:
                continue
            writer = case.names.get(one.writer.producer_id, "")
            said = f"{name}: {_several(one.rows)} from offset {one.first} on"
            if one.writer.producer_id in producers or sink_of(writer) == case.sink.id:
                _undecided(case, judged, reach.between(where, one, case.last), f"{said} of the sink")
            elif one.first > since:
                judged.foreign.append(f"{said} of {writer or one.writer}")
                judged.unnamed += (
                    [] if writer else [f"{said} of {one.writer}: whose, the cluster does not know"]
                )


def _undecided(case: Case, judged: Judged, numbers: range, said: str) -> None:
    """Rows of the sink that no decision knows. If one is missing, they may be its rows."""
    missing = sorted(case.missing.intersection(numbers))
    if not missing:
        judged.wrong.append(f"{said}, and no decision knows them")
    elif missing[-1] >= case.first or numbers[-1] >= case.first:
        judged.unknown.append(f"{said}, perhaps of {_range('decision', missing[0], missing[-1])}")


def _several(rows: int) -> str:
    return f"{rows:,} row{'' if rows == 1 else 's'}"


# -- sources ---------------------------------------------------------------------------------------

_Ends = Mapping[TopicPartition, Mapping[str, int]]


def _sources(case: Case, lines: Mapping[int, Line]) -> None:
    """What each batch read. It begins where the batch before ends."""
    before: tuple[Decided, Planned, _Ends] | None = None
    read = dict[TopicPartition, _Read]()
    for one in case.history.decided:
        if one.decision.is_write or one.sequence > case.last:
            continue
        line = lines.get(one.sequence, Line(one, {}))
        planned = _planned(one.decision, line)
        if planned is None:
            before = None
            read.clear()
            continue
        if before is not None and case.missing.intersection(range(before[0].sequence, one.sequence)):
            before = None
            read.clear()
        starts = _starts(one, planned, before, line, case.first)
        if before is not None and before[0].query != one.query:
            _check_follows(starts, planned, read, line, before[0].decision.left)
        _say_source(line, planned, starts)
        before = (one, planned, starts)
        ids = planned.topic_ids()
        read |= {w: _Read(at, ids.get(w[0]), one.decision.batch) for w, at in planned.topic_offsets().items()}


def _planned(decision: Decision, line: Line) -> Planned | None:
    if not decision.ends:
        line.unknown.append("the decision does not say what was read")
        return None
    try:
        return Planned.parse(decision.batch.batch_id, decision.ends)
    except FormatError as error:
        line.unknown.append(f"what was read cannot be told: {error}")
        return None


def _starts(
    one: Decided, planned: Planned, before: tuple[Decided, Planned, _Ends] | None, line: Line, first: int
) -> _Ends:
    """Where the batch began, by partition and source, as far as that is known. `first`: decision to judge."""
    began = planned.each_beginning()
    if before is None:
        return began
    last, then, starts = before
    same = {
        topic
        for topic, number in planned.topic_ids().items()
        if then.topic_ids().get(topic, number) == number
    }
    unnamed = {topic for topic, _ in planned.each_end()} - planned.topic_ids().keys()
    ends = {where: each for where, each in then.each_end().items() if where[0] in same | unnamed}
    if last.query != one.query:
        if not one.decision.winners:  # a take-over ends where the query before has ended, and reads nothing
            stays = {w: each for w, each in planned.each_end().items() if each == ends.get(w, {})}
            began = {**stays, **began}
        return began
    number, known = one.decision.batch.batch_id, last.decision.batch.batch_id
    if number == known:
        if planned.sources != then.sources:
            line.wrong.append("it was planned twice, and its source ranges differ")
        return starts
    if number > known + 1:
        which, left = _range("batch", known + 1, number - 1).replace("batchs", "batches"), last.decision.left
        if left is None:
            line.wrong.append(f"{which}: no decision has it")
        elif last.sequence >= first:
            line.unknown.append(f"{which}: {_elsewhere(left)}")
        return began
    if number < known:
        line.wrong.append(f"it follows batch {known}: what was read before may be read again")
        return began
    for where, each in planned.each_end().items():
        for name, end in each.items():
            start = ends.get(where, {}).get(name, end)
            if end < start:
                line.wrong.append(
                    f"source {where[0]}-{where[1]} goes back from {start} to {end}: ranges overlap"
                )
    return {where: {**began.get(where, {}), **each} for where, each in (began | ends).items()}


def _elsewhere(left: Left) -> str:
    """Why the sink has no decision of the batches after it was left."""
    if left.sink:
        return f"the sink was left for {left.sink}, or for another cluster: prove that one, too"
    return "written with at_least_once, which promises no row once"


class _Read(NamedTuple):
    """How far a partition was read by the sink's batches, of a topic with this id, and which was the last."""

    end: int
    topic_id: str | None
    batch: Batch


def _check_follows(
    began: _Ends, planned: Planned, read: Mapping[TopicPartition, _Read], line: Line, left: Left | None
) -> None:
    """Another query begins: in each partition where those before it have ended, whichever was the last to
    read it, unless its topic was made anew since. `left`: the sink was, so more may have been read."""
    ids = planned.topic_ids()
    for where in sorted(planned.each_end().keys() & read.keys()):
        ended, name = read[where], f"source {where[0]}-{where[1]}"
        if made_anew(where[0], ended.topic_id, ids.get(where[0])):
            continue
        if where not in began:
            line.unknown.append(f"{name}: where its query began is not told, and another one read it before")
        for start in began.get(where, {}).values():
            if start != ended.end:
                how = "overlap" if start < ended.end else "leave a gap"
                said = f"{name} begins at {start}, and {ended.batch} ended at {ended.end}: ranges {how}"
                if left is None or start < ended.end:
                    line.wrong.append(said)
                else:
                    line.unknown.append(f"{said}: {_elsewhere(left)}")


def _say_source(line: Line, planned: Planned, starts: _Ends) -> None:
    for where, each in sorted(planned.each_end().items()):
        for name, end in each.items():
            start = starts.get(where, {}).get(name)
            line.source.setdefault(name, {}).setdefault(where[0], {})[str(where[1])] = [start, end]


def others_read(lines: Iterable[Line]) -> Iterator[str]:
    """The names of sources that read no topics: what they read is not judged."""
    named = set[str]()
    for line in lines:
        planned = (
            _planned(line.decided.decision, Line(line.decided, {})) if line.decided.decision.ends else None
        )
        named |= set() if planned is None else {*planned.without_topics()}
    yield from sorted(named)
