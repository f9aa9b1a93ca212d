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
from typing import NamedTuple

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
    """Why a table does not have the batch of its mark any more, or may not, and how it is brought back."""

    why: str
    back: str


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


def step(place: str, mark: Mark | None, batch: Batch, since: int | None, reached: int | None) -> Step:
    """What to do for a table with this mark. `since`: the batch from which on it takes part; None: the first.
    `reached`: the last batch that it has of this query, under any name; None: none.

    Raises FanoutStopped where the table stands neither at this batch nor at the one before, has lost its
    batch, or has got this one under another name. `since` may say that it goes on all the same, with this
    batch or with the next.
    """
    what = f"fanout {batch.name}, batch {batch.number}, {place}"
    if mark is not None and mark.query != batch.query:
        raise FanoutStopped(_of_another(what, f"its batches 0 to {mark.number}"))
    own = -1 if mark is None else mark.number
    if reached is not None and own < batch.number <= reached:
        raise FanoutStopped(
            f"{what}: this query has brought batch {reached} to it under another name. Nothing was written. "
            "Give the fan-out that name again. If another place stops then, give that one a fan-out of its "
            f"own, with a new name. For all places a new name may begin when batch {reached} is done, with "
            f"since={reached + 1} for each table. Two fan-outs of a query do not share a table"
        )
    if mark is not None and mark.gone is not None:
        return _after_a_loss(what, mark, mark.gone, batch, since)
    if mark is not None and mark.number == batch.number:
        return Step.CHECK
    if mark is not None and mark.number > batch.number:
        raise FanoutStopped(
            f"{what}: it has batch {mark.number} already, so this checkpoint is an older copy, or another "
            "driver runs the query. Nothing was written. Stop the other driver, or bring back the newest "
            "checkpoint"
        )
    if batch.number in (0 if mark is None else mark.number + 1, since):
        return Step.WRITE
    has = "it has none of this fan-out's batches" if mark is None else f"it ends at batch {mark.number}"
    raise FanoutStopped(
        f"{what}: {has}, but the query has done those before {batch.number}: the table was created again, "
        f"was "
        "added to the fan-out, or has lost its mark. Nothing was written. Bring back the table; or, if it "
        f"is to get the rows from this batch on alone, say since={batch.number} for it"
    )


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
    place: str, mark: Mark | None, batch: Batch, since: int | None, others: Mapping[str, Mark] = _NOBODY
) -> None:
    """Check, for a merge, that offsets of the batch's changes follow those of the table's. An offset is of
    one log: those of a topic that was made anew, was cut, or has more partitions now may be lower than those
    of older changes, which would then win. `since` is the user's word that `order` holds all the same.
    `others`: the table's marks under other names, which count until this name has the newest of its query.

    Raises FanoutStopped.
    """
    own = -1 if mark is None else mark.number
    if mark is not None and mark.query != batch.query:
        return  # it goes no further
    if mark is not None and batch.ends and own < batch.number and (mark.gone or batch.number != since):
        _check_follows(place, mark, batch)
    ours = {name: one for name, one in others.items() if one.query == batch.query}
    newest = max(ours, key=lambda name: ours[name].number, default="")
    if newest and batch.ends and own < ours[newest].number < batch.number:
        _check_follows(place, ours[newest], batch, newest)
    if mark is None and batch.ends:
        foreign = {name: one for name, one in others.items() if one.query != batch.query}
        _check_begins(place, batch, since, foreign)


def _check_follows(place: str, mark: Mark, batch: Batch, name: str = "") -> None:
    """Compare with the mark of an earlier batch of the query, perhaps under another name. Raises
    FanoutStopped."""
    said = _apart(mark, batch) if mark.ends else None
    if said == [] or (said is None and mark.gone):
        return
    why = _unordered(place, batch, said, _called(mark, name))
    if mark.gone:  # a since would be the word for the loss as well
        raise FanoutStopped(
            f"{why} Also, {mark.gone.why}. {mark.gone.back}, then start again. Or give the fan-out an empty "
            "table"
        )
    to = f"give the fan-out its name {name} for this batch, and " if name else ""
    later = ". A new name may begin with the next batch" if name else ""
    raise FanoutStopped(
        f"{why} {_TURN} If the query was set back in the same log (eoslog checkpoint rewind), leave `order` "
        f"as it is. Then {to}say since={batch.number} for this table{later}"
    )


def _check_begins(place: str, batch: Batch, since: int | None, others: Mapping[str, Mark]) -> None:
    """Compare the first batch under a name with other queries' marks: they may be ahead in the same log.
    Raises FanoutStopped."""
    if batch.number == since == 0:
        return
    for name, mark in sorted(others.items()):
        said = _of_other_logs(mark, batch) if mark.ends else None
        if said == []:
            continue
        why = _unordered(place, batch, said, f"{_called(mark, name)} of another query")
        if batch.number:  # its since is no word for this: the table begins with it
            raise FanoutStopped(f"{why} Give the fan-out an empty table")
        raise FanoutStopped(
            f"{why} {_TURN} If it is the same log, leave `order` as it is. Then say since=0 for this table, "
            "and take that out again later. Or give the fan-out an empty table"
        )


def _called(mark: Mark, name: str) -> str:
    return f"batch {mark.number}" + (f" under the name {name}" if name else "")


def _unordered(place: str, batch: Batch, said: Sequence[str] | None, since: str) -> str:
    """`said`: None if the plan of then is not known."""
    what = f"{_abridged(said or [])} since {since}"
    if said is None:
        what = f"nothing says any more what {since} has read"
    return (
        f"fanout {batch.name}, batch {batch.number}, {place}: {what}, so offsets do not say any more which "
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


def _after_a_loss(what: str, mark: Mark, gone: Gone, batch: Batch, since: int | None) -> Step:
    """`since` is the user's word that the table has all that it is to have of the batches before it."""
    rows, again = mark.content.rows, mark.number == batch.number
    if since == batch.number:
        return Step.WRITE
    if again and since == batch.number + 1:
        return Step.CHECK
    if again:
        word = f"since={batch.number} if it lacks the {rows} rows of this batch and is to get them, "
        word += f"or since={batch.number + 1} if it is to stay as it is"
    else:
        word = f"since={batch.number}: it gets the rows from this batch on, and what it lacks of batches "
        word += f"up to {mark.number} (of that one {rows} rows) stays out"
    raise FanoutStopped(f"{what}: {gone.why}. Nothing was written. {gone.back}; or say for it {word}")


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


def _why(then: str, batch: Batch) -> str:
    """Why a batch has other rows than then, as far as its plans tell, and what goes on."""
    accepted = f"once with accept_other_rows={batch.number}: places that have the batch keep it"
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
