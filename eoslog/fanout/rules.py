"""What the mark of a table means for a batch. Pure.

A table's mark is written in the commit that adds a batch's rows, so it is there if they are. Whoever sets a
table back to an older state takes the rows and leaves the mark: then the mark says so (`Gone`).
Spark numbers a query's batches without gaps, and every batch is committed, also one without rows. So each
table stands at this batch or at the one before; anywhere else, rows have been lost or would be doubled.
"""

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple, Self

from eoslog.connector.checkpoint.spark_logs import VOID, Planned, offsets_of
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.offsets.plan import recreated
from eoslog.errors import EoslogError

_NAMED = 5


class FanoutStopped(EoslogError):
    """A batch cannot be made exact in all places. Nothing more is written; the message says what to do."""


class Content(NamedTuple):
    """The rows that a table was given: how many, and the sum of their hashes modulo 2**63, free of order."""

    rows: int
    checksum: int


class Batch(NamedTuple):
    """A micro-batch: the fan-out's name, the number of its query (`number_of`), and its batch id.

    `ends`: its plan, the entry of Spark's offset log as `Planned.ends` has it. `begins`: the plan of the
    batch before, where it goes on. Empty: not known.
    """

    name: str
    query: int
    number: int
    ends: str = ""
    begins: str = ""

    @property
    def token(self) -> str:
        """The token of its writes to topics."""
        return f"{self.name}-{self.number}"


class Gone(NamedTuple):
    """Why a table does not have the batch of its mark any more, or may not, and how it is brought back.

    `lost`: the batches of the query, under any name, that it surely lacks, with their rows (None: not known).
    `dark`: the last one of which nothing says whether it is there; None: that of the mark; -1: none.
    """

    why: str
    back: str
    lost: Mapping[int, int | None] = MappingProxyType({})
    dark: int | None = None

    def with_others(self, number: int, rows: int, had: Mapping[int, tuple[int, bool]]) -> Self:
        """`number`, `rows`: the marked batch. `had`: the query's batches that its history names: their rows,
        and whether they are there."""
        first = min({*had, number})
        lost: dict[int, int | None] = dict.fromkeys(range(first, number))
        lost |= {at: its for at, (its, _) in had.items() if at < number} | {number: rows}
        there = {at for at, (_, has) in had.items() if has}
        lost = {at: its for at, its in lost.items() if at == number or at not in there}
        return self._replace(lost=lost, dark=first - 1 if first in lost else -1)


class Mark(NamedTuple):
    """The last batch that a table has been given. `ends`: its plan, as in Batch. `gone`: None if the table
    has it still."""

    query: int
    number: int
    content: Content
    ends: str = ""
    gone: Gone | None = None


_NOBODY: Mapping[str, Mark] = MappingProxyType({})
_TURN = (
    "If `order` has offsets, put a column of the table before them that is larger for the rows from now on, "
    "as a number of your own: rows that lack it are older."
)


class Step(Enum):
    """What there is to do for a table."""

    WRITE = "write"
    CHECK = "check"
    """It has the batch: see that it got the same rows."""


def number_of(query_id: str) -> int:
    """A query id as a number that fits into Delta's `txn.version`: 63 bits of its SHA-256."""
    return int.from_bytes(sha256(query_id.encode()).digest()[:8]) >> 1


def step(
    place: str,
    mark: Mark | None,
    batch: Batch,
    since: int | str | None,
    reached: int | None,
    others: Mapping[str, Mark] = _NOBODY,
) -> Step:
    """What to do for a table with this mark. `since`: where it takes part, see `_word`; None: from the first.
    `reached`: the last batch that it has of this query, under any name; None: none. `others`: its marks under
    other names, which count where they are newer.

    Raises FanoutStopped where the table stands neither at this batch nor at the one before, has lost its
    batch, or has got this one under another name. `since` may say that it goes on all the same, with this
    batch or with the next: its word names the loss, so it is no word for another one.
    """
    what = f"fanout {batch.name}, batch {batch.number}, {place}"
    if mark is not None and mark.query != batch.query:
        raise FanoutStopped(_of_another(what, f"its batches 0 to {mark.number}"))
    own = -1 if mark is None else mark.number
    name, newest = newest_mark(mark, others, batch)
    if reached is not None and own < batch.number <= reached:
        raise FanoutStopped(_under_another(what, reached, name, newest))
    if newest is not None and newest.gone is not None:
        return _after_a_loss(what, place, newest, newest.gone, batch, since)
    if newest is not None and own == newest.number == batch.number:
        return Step.CHECK
    if newest is not None and newest.number > batch.number:
        raise FanoutStopped(
            f"{what}: it has batch {newest.number} already, so this checkpoint is an older copy, or another "
            "driver runs the query. Nothing was written. Stop the other driver, or bring back the newest "
            "checkpoint"
        )
    ends = -1 if newest is None else newest.number
    if ends == batch.number - 1 and (own == ends or since == batch.number):
        return Step.WRITE
    has = "it has none of this fan-out's batches" if mark is None else f"it ends at batch {mark.number}"
    if ends == batch.number - 1:
        raise FanoutStopped(
            f"{what}: {has}, and has batch {ends} of this query under the name {name}. Nothing was written. "
            f"Give the fan-out that name again; or, to go on under the new one, say since={batch.number} for "
            "it"
        )
    word = _word_for(place, newest, batch, batch.number)
    if since == word:
        return Step.WRITE
    raise FanoutStopped(
        f"{what}: {has}, but the query has done those before {batch.number}: the table was created again, "
        "was added to the fan-out, is an older copy, or has lost its mark. It lacks "
        f"{_lacks(newest, batch.number)}. Nothing was written. Bring back the table; or, if it is to get the "
        f'rows from this batch on alone, say since="{word}" for it'
    )


def newest_mark(mark: Mark | None, others: Mapping[str, Mark], batch: Batch) -> tuple[str, Mark | None]:
    """The mark of the newest batch that a table has been given of the query, and its name."""
    ours = {name: one for name, one in others.items() if one.query == batch.query}
    if mark is not None:
        ours[batch.name] = mark
    name = max(ours, key=lambda one: (ours[one].number, one == batch.name), default=batch.name)
    return name, ours.get(name)


class TableGone(FanoutStopped):
    """There is no table."""

    def __init__(self, name: str, place: str) -> None:
        """`name`: the fan-out's."""
        way = "Bring it back, or take it out of the fan-out"
        super().__init__(f"fanout {name}, {place}: the table is gone. {way}")


def check_begins(gone: TableGone, place: str, newest: Mark | None, batch: Batch, since: object) -> None:
    """Check that a table that is not there may be made for a batch. `newest`: of what was there, if that is
    known. Raises FanoutStopped."""
    word = _word_for(place, newest, batch, batch.number)
    if batch.number and since != word:
        raise FanoutStopped(
            f'{gone}. Nothing was written. Or say since="{word}" for it: then it is made anew, gets the rows '
            f"from batch {batch.number} on, and lacks {_lacks(newest, batch.number) or 'no batch'}"
        )


def _under_another(what: str, reached: int, name: str, newest: Mark | None) -> str:
    """A batch that the table has been given under another name."""
    begins = f"{what}: this query has brought batch {reached} to it under another name ({name}). Nothing was "
    begins += "written. Give the fan-out that name again"
    if newest is not None and newest.gone is not None:
        return f"{begins}: {newest.gone.why}, and the way on is told under that name"
    return (
        f"{begins}. If another place stops then, give that one a fan-out of its "
        f"own, with a new name. For all places a new name may begin when batch {reached} is done, with "
        f"since={reached + 1} for each table. Two fan-outs of a query do not share a table"
    )


def _word(number: int, batch: Batch, *finding: str) -> str:
    """What a user says to a finding, for the batch of this number. It names the query and the finding, so one
    that is left in the code does not hold for another."""
    said = sha256("\n".join((str(batch.query), *finding)).encode()).hexdigest()
    return f"{number}:{said[:8]}"


def _word_for(place: str, newest: Mark | None, batch: Batch, number: int) -> str:
    """The word by which a table goes on with batch `number`, and lacks what it lacks of those before."""
    why = "" if newest is None or newest.gone is None else newest.gone.why
    last = "" if newest is None else str(newest.number)
    return _word(number, batch, "lacks", place, last, why, _lacks(newest, number))


def _lacks(newest: Mark | None, number: int) -> str:
    """The batches before `number` that a table lacks, or may lack. Empty: none."""
    own, gone = (-1, None) if newest is None else (newest.number, newest.gone)
    lost: dict[int, int | None] = dict.fromkeys(range(own + 1, number))
    dark = -1
    if gone is not None:
        lost |= {at: rows for at, rows in gone.lost.items() if at < number}
        dark = min(own if gone.dark is None else gone.dark, number - 1)
    told = []
    if lost:
        rows = [one for one in lost.values() if one is not None]
        more = "" if len(rows) == len(lost) else " and more"
        told.append(_batches(sorted(lost)) + (f" ({sum(rows)} rows{more})" if rows else ""))
    if dark >= 0:
        counts = newest is not None and dark == own
        its = f"; {newest.content.rows} rows in that one" if newest is not None and counts else ""
        told.append(f"perhaps batches up to {dark} (nothing says whether it has them{its})")
    return ", and ".join(told)


def _batches(numbers: Sequence[int]) -> str:
    """As 'batches 2 to 3, 5'."""
    runs: list[list[int]] = []
    for one in numbers:
        if runs and runs[-1][-1] == one - 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    names = [f"{one[0]} to {one[-1]}" if len(one) > 1 else str(one[0]) for one in runs]
    return f"{'batch' if len(numbers) == 1 else 'batches'} {', '.join(names)}"


def check_topic(place: str, by: str | None, batch: Batch) -> None:
    """Raise FanoutStopped if another query has written the batch's token. `by`: the query, "" if it is not
    known; None: the token is not written."""
    if by and number_of(by) != batch.query:
        what = f"fanout {batch.name}, batch {batch.number}, {place}"
        raise FanoutStopped(_of_another(what, f"a batch {batch.number}"))


def _of_another(what: str, batches: str) -> str:
    return (
        f"{what}: another query (another checkpoint) has written {batches} under this name. A new checkpoint "
        "counts from 0 again, so its batches would be taken for those. Nothing was written. Start with the "
        "old checkpoint, or give the fan-out a new name: then the places get all rows of the new checkpoint, "
        "also those that they have"
    )


def check_order(
    place: str,
    mark: Mark | None,
    batch: Batch,
    since: int | str | None,
    others: Mapping[str, Mark] = _NOBODY,
) -> None:
    """Check, for a merge, that offsets of the batch's changes follow those of the table's. An offset is of
    one log: those of a topic that was made anew, was cut, or has more partitions now may be lower than those
    of older changes, which would then win. `since` is the user's word that `order` holds all the same.
    `others`: the table's marks under other names, which count until this name has the newest of its query.

    Raises FanoutStopped.
    """
    if mark is not None and mark.query != batch.query:
        return  # it goes no further
    name, newest = newest_mark(mark, others, batch)
    if newest is not None and batch.ends and newest.number < batch.number:
        _check_follows(place, newest, batch, since, "" if newest is mark else name)
    if mark is None and batch.ends:
        foreign = {name: one for name, one in others.items() if one.query != batch.query}
        _check_begins(place, batch, since, foreign)


def _check_follows(place: str, mark: Mark, batch: Batch, since: int | str | None, name: str = "") -> None:
    """Compare with the mark of an earlier batch of the query, perhaps under another name. Raises
    FanoutStopped."""
    said = _apart(mark, batch) if mark.ends else None
    if said == [] or (said is None and mark.gone):
        return
    told = _since_then(said, _called(mark, name))
    why = _unordered(place, batch, told)
    if mark.gone is not None or mark.number < batch.number - 1:  # since has one word: for the loss
        its = f"it lacks {_lacks(mark, batch.number)}" if mark.gone is None else mark.gone.why
        back = "Bring back the table that has them" if mark.gone is None else mark.gone.back
        raise FanoutStopped(
            f"{why} Also, {its}. {back}, then start again. Or give the fan-out an empty table"
        )
    word = _word(batch.number, batch, "order", place, _since_then(said, _called(mark, "")))
    if since == word and not name:  # a new name begins with its number: one since does not say two things
        return
    to = f"give the fan-out its name {name} for this batch, and " if name else ""
    later = ". A new name may begin with the next batch" if name else ""
    raise FanoutStopped(
        f"{why} {_TURN} If the query was set back in the same log (eoslog checkpoint rewind), leave `order` "
        f'as it is. Then {to}say since="{word}" for this table{later}'
    )


def _check_begins(place: str, batch: Batch, since: int | str | None, others: Mapping[str, Mark]) -> None:
    """Compare the first batch under a name with other queries' marks: they may be ahead in the same log.
    Raises FanoutStopped."""
    found = []
    for name, mark in sorted(others.items()):
        said = _of_other_logs(mark, batch) if mark.ends else None
        if said != []:
            found.append(_since_then(said, f"{_called(mark, name)} of another query"))
    word = _word(batch.number, batch, "order", place, *found)
    if not found or (batch.number == 0 and since == word):
        return
    why = _unordered(place, batch, "; ".join(found))
    if batch.number:  # its since is no word for this: the table begins with it
        raise FanoutStopped(f"{why} Give the fan-out an empty table")
    raise FanoutStopped(
        f'{why} {_TURN} If it is the same log, leave `order` as it is. Then say since="{word}" for this '
        "table. Or give the fan-out an empty table"
    )


def _called(mark: Mark, name: str) -> str:
    return f"batch {mark.number}" + (f" under the name {name}" if name else "")


def _since_then(said: Sequence[str] | None, since: str) -> str:
    """`said`: None if the plan of then is not known."""
    if said is None:
        return f"nothing says any more what {since} has read"
    return f"{_abridged(said)} since {since}"


def _unordered(place: str, batch: Batch, told: str) -> str:
    return (
        f"fanout {batch.name}, batch {batch.number}, {place}: {told}, so offsets do not say any more which "
        "of two changes of a key is newer. Nothing was written."
    )


def _apart(mark: Mark, batch: Batch) -> list[str]:
    """What shows that a batch's offsets do not follow those of an earlier one of its query."""
    then, now = Planned.parse(mark.number, mark.ends), Planned.parse(batch.number, batch.ends)
    before, after = _reached(then), now.topic_offsets()
    said = _anew(then, now)
    said += [
        f"{t}-{p} ends at {after[t, p]}, and did at {at}"
        for (t, p), at in before.items()
        if after.get((t, p), at) < at
    ]
    begins = Planned.parse(batch.number, batch.begins).topic_offsets() if batch.begins else {}
    said += [
        f"{t}-{p} goes on at {begins[t, p]}, and ended at {at}"
        for (t, p), at in before.items()
        if begins.get((t, p), at) < at <= after.get((t, p), at)
    ]
    return sorted(said + _new_partitions(before, after))


def _of_other_logs(mark: Mark, batch: Batch) -> list[str]:
    """What shows that another query's batch is of another log, or that nothing shows which it is of."""
    then, now = Planned.parse(mark.number, mark.ends), Planned.parse(batch.number, batch.ends)
    before, after = _reached(then), now.topic_offsets()
    both = {topic for topic, _ in before} & {topic for topic, _ in after}
    known = (then.left_ids() | then.topic_ids()).keys() & now.topic_ids().keys()
    said = [f"{topic} may be another topic of that name (no id is known)" for topic in both - known]
    return sorted(said + _anew(then, now) + _new_partitions(before, after))


def _reached(planned: Planned) -> Offsets:
    """Where a query was in each partition, also of topics that it had left out for a while."""
    left = {tp: max(at.values()) for tp, at in planned.each_left().items()}
    return left | planned.topic_offsets()


def _anew(then: Planned, now: Planned) -> list[str]:
    """Topics that are others now. One that was left out for a while may come back as another one."""
    ids = then.left_ids() | then.topic_ids()
    return [f"{topic} is another topic of that name" for topic in recreated(ids, now.topic_ids())]


def _new_partitions(before: Offsets, after: Offsets) -> list[str]:
    read = {topic for topic, _ in before}
    return [f"{t}-{p} is a new partition" for t, p in after.keys() - before.keys() if t in read]


def _after_a_loss(
    what: str, place: str, newest: Mark, gone: Gone, batch: Batch, since: int | str | None
) -> Step:
    """`since` is the user's word that the table has all that it is to have of the batches before it."""
    again = newest.number == batch.number
    word, later = (_word_for(place, newest, batch, number) for number in (batch.number, batch.number + 1))
    before = _lacks(newest, batch.number)
    is_known = bool(gone.lost) and gone.dark is not None and gone.dark < batch.number < newest.number
    is_there = is_known and batch.number not in gone.lost
    if since == word and not is_there:
        return Step.WRITE
    if again and since == later:
        return Step.CHECK
    out = f", but not {before}" if before else ""
    if is_there:
        ways = "bring back the newest checkpoint with it: it has this batch already"
        return _stop(what, gone, newest, batch, f"{gone.back}; or {ways}")
    if again:
        its = f"the {newest.content.rows} rows of this batch"
        ways = f'since="{word}" if it lacks {its} and is to get them{out}, or since="{later}" if it is to '
        ways += "stay as it is"
    else:
        out = ", and those stay out" if newest.number < batch.number else out
        ways = f'since="{word}": it gets the rows from this batch on{out}'
    return _stop(what, gone, newest, batch, f"{gone.back}; or say for it {ways}")


def _stop(what: str, gone: Gone, newest: Mark, batch: Batch, ways: str) -> Step:
    """Raises FanoutStopped."""
    lacks = _lacks(newest, max(batch.number, newest.number + 1))
    raise FanoutStopped(f"{what}: {gone.why}. It lacks {lacks}. Nothing was written. {ways}")


def taking_back(what: str, since: Sequence[str]) -> str:
    """What is lost by setting a table to an older state: the changes that came since then."""
    return f", which takes back what {what} {_abridged(since)} have changed" if since else ""


def compare(place: str, had: Mark, given: Content, batch: Batch) -> None:
    """Raise FanoutStopped if a batch that the table has comes again with other rows."""
    if had.content == given:
        return
    raise FanoutStopped(
        f"fanout {batch.name}, batch {batch.number}, {place}: it has {had.content.rows} rows (checksum "
        f"{had.content.checksum:016x}) of this batch, and is given {given.rows} (checksum "
        f"{given.checksum:016x}) now. Nothing more was written. {_why(had.ends, batch)}"
    )


def other_rows_in(place: str, batch: Batch) -> FanoutStopped:
    """A topic has other rows of a batch: its token says so, and not of which plan they were."""
    return FanoutStopped(
        f"fanout {batch.name}, batch {batch.number}, {place}: it has other rows of this batch than it is "
        f"given now. Nothing more was written. {_why('', batch)}"
    )


def other_rows_word(batch: Batch) -> str:
    """The word by which a batch may have other rows than at its first try: of this query, by this plan."""
    return _word(batch.number, batch, "rows", Planned.parse(0, batch.ends).digest if batch.ends else "")


def _why(then: str, batch: Batch) -> str:
    """Why a batch has other rows than then, as far as its plans tell, and what goes on."""
    accepted = f'once with accept_other_rows="{other_rows_word(batch)}": places that have the batch keep it'
    before, after = (Planned.parse(0, text) if text else None for text in (then, batch.ends))
    if before is None or after is None or before.digest == after.digest:
        is_known = before is not None and after is not None and after.identifies_rows
        changed = "" if is_known else ", or its checkpoint was changed"
        return (
            f"The query does not repeat (rand, uuid, a table read beside the stream){changed}. Start "
            f"{accepted}, and others get the rows of now"
        )
    return (
        "The batch was planned otherwise at first, and the checkpoint has lost that plan. Write it "
        f"again: eoslog checkpoint rebuild CHECKPOINT --fanout {batch.name} --table TABLE. Or start "
        f"{accepted}, and in these {'; '.join(_moved(before, after))}"
    )


def _moved(before: Planned, after: Planned) -> list[str]:
    """What is missing or doubled where rows up to `before` are kept for those up to `after`."""
    missing: dict[str, range] = {}
    doubled: dict[str, range] = {}
    others = []
    for name in sorted(before.by_name.keys() | after.by_name.keys()):
        then, now = before.by_name.get(name, VOID), after.by_name.get(name, VOID)
        had, has = offsets_of(then), offsets_of(now)
        if not had and not has and then != now:
            others.append(f"rows of source {name} differ: it ended at {then}, now {now}")
        for place in sorted(had.keys() | has.keys()):
            old, new = had.get(place, 0), has.get(place, 0)
            if old != new:
                ranges = missing if old < new else doubled
                ranges["-".join(map(str, place))] = range(min(old, new), max(old, new))
    read, reads = _files(before), _files(after)
    for verb, ranges, files in (
        ("are missing", missing, reads - read),
        ("come again in later batches", doubled, read - reads),
    ):
        others += [f"{_told(ranges)} {verb}"] if ranges else []
        others += [f"{len(files)} files ({_abridged(sorted(files))}) {verb}"] if files else []
    return others


def _files(planned: Planned) -> set[str]:
    """The files that a batch reads."""
    return {json.loads(line)["path"] for lines in (planned.entries or {}).values() for line in lines}


def _abridged(names: Sequence[str], what: str = "more") -> str:
    more = [f"{len(names) - _NAMED} {what}"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more])


def _told(ranges: Mapping[str, range]) -> str:
    """How many offsets they are, and which."""
    names = [f"{place} from {one.start} to {one.stop - 1}" for place, one in ranges.items()]
    return f"{sum(map(len, ranges.values()))} offsets ({_abridged(names, 'more partitions')})"
