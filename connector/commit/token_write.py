"""Batch writes with a token: each is written once; other rows under the same token are an error.

A write that runs again finds its token in the last decision of its sink, or among the tokens that this
decision remembers (write_token.py). Then its rows are not written but counted, and compared with those of the
first run.

A finished write is noted beside the decision: brokers forget idle transactional ids, and a forgotten
transaction must not be taken for a lost one. So the note is written last, after every winner is committed.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple
from urllib.parse import quote

from eoslog.connector.commit.begin import LAST_EPOCH, Owned, acquire, left_by, make_ready, raise_epoch
from eoslog.connector.commit.commands import (
    AskOngoing,
    CommitOffsets,
    Describe,
    Failure,
    FetchStored,
    FindBehind,
    FindTopics,
    Refused,
    Rules,
    Unknown,
    ask,
    demand,
    look_up,
)
from eoslog.connector.commit.decide import Namer, Noting, count, decide
from eoslog.connector.commit.decision import ANCHOR, Decision, Stored, decode
from eoslog.connector.commit.faults import (
    CheckpointOlder,
    CommitFault,
    DecisionGone,
    OtherRowsInBatch,
    RowsGone,
    SinkChanged,
    StartsElsewhere,
    TakenOver,
    TokenForgotten,
)
from eoslog.connector.commit.finish import finish
from eoslog.connector.commit.leave_sink import fence
from eoslog.connector.commit.places import Places, made_anew
from eoslog.connector.commit.prepare import stamp_of
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.seal import TwoPhase, check_offered
from eoslog.connector.commit.sink_transaction import fetch_stored, shows_use
from eoslog.connector.commit.task_reports import Batch, Begun, Left, Report, Run, Stamp
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import (
    BatchWrite,
    BatchWrites,
    Token,
    TopicIds,
    sink_of_query,
)
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import NOBODY

Accept = Callable[[str], str | None]
"""The option that accepts a finding, by its word. None: it is accepted."""


def nothing_accepted(word: str) -> str | None:
    """The option, of a user who has accepted nothing."""
    return f"start.accepted={word}"


_OF_BEFORE = 0
"""A finished write's note of earlier versions, where each token had its own sink. Decisions begin at 1."""


def begin_write(
    sink: Sink,
    token: str,
    *,
    last_run: Run | None = None,
    two_phase: TwoPhase = TwoPhase.AUTO,
    on_lost: OnLost = OnLost.STOP,
    accept: Accept = nothing_accepted,
) -> Rules[tuple[Begun, Run]]:
    """Make the sink of the token's stem ready for the tasks of the write.

    `last_run`: what this driver remembers of the stem's last write. Returns what tasks need, and what to
    remember. Raises CommitFault; RowsGone if the token is known and its topics are not those of then.

    The sink's decisions count the batches, not the tokens' numbers, which may come in any order. So the next
    batch always has the other half of the names.
    """
    owned = None
    if last_run is not None:
        owned = yield from _go_on(sink, last_run)
    if owned is None:
        owned = yield from acquire(sink)
        if two_phase is TwoPhase.REQUIRE:
            yield from check_offered(sink)
    last = decode(sink, owned.stored.chunks)
    known, gone = last.last_of(token) if last is not None else None, NOTHING_GONE
    if last is not None and known is not None:
        gone = yield from find_gone(last.tokens.topics_of(Token.of(token)), accept)
        known = None if gone.again else known
    batch = known or Batch(token, last.batch.batch_id + 1 if last is not None else 0)
    is_complete = last is not None and (yield from is_finished(sink, last))
    begun = yield from make_ready(sink, owned, last, batch, is_complete=is_complete, on_lost=on_lost)
    if last is not None and gone.said:
        written = last.content_of(token)
        raise RowsGone(f"sink {sink.id}: write.token={token} has written {written} before, {gone.said}")
    if last is not None and known is None and last.tokens.forgot(Token.of(token)):
        raise TokenForgotten(
            f"sink {sink.id}: whether write.token={token} was written is no longer known: only the last "
            f"{len(last.tokens.kept)} tokens of {Token.of(token).stem!r} are remembered, and number "
            f"{last.tokens.floor} was forgotten. Nothing was written. {TokenForgotten.advice}"
        )
    if last is not None and known is None and owned.acquired_now:
        what, word = f"write.token={token}", f"decisions-gone:{quote(token, safe='')}:{last.sequence}"
        yield from _check_behind(sink, last, last.everywhere, what, accept(word))
    return begun, Run(owned.incarnation, owned.identity, batch)


def _check_behind(sink: Sink, last: Decision, places: Places, what: str, accept: str | None) -> Rules[None]:
    """Check that readers see no rows of the sink behind those of its last decision: only decided rows become
    visible, so its group has lost decisions, and one of them may be that of `what`, which is to be written.
    `accept`: the option that accepts them; None: it is given. Raises DecisionGone."""
    if not places or accept is None:
        return
    unseen = f"sink {sink.id}: whether {what} was written cannot be seen in the log"
    behind = yield from demand(FindBehind(sink.id, places, last.incarnation), unseen)
    if behind:
        why = f"Rows of the sink are visible behind its last decision ({'; '.join(behind[:5])})"
        raise DecisionGone(_unknown(f"sink {sink.id}", what, f"{why}: {_DECISIONS_LOST}", accept))


_DECISIONS_LOST = "brokers have lost decisions. Nothing was written"


def _unknown(where: str, what: str, why: str, accept: str) -> str:
    """What to say of a write, `what`, that may have been written. `why`: what shows that its decision is
    lost; `accept`: the option that writes it all the same."""
    return (
        f"{where}: whether {what} was written is not known. {why}. Look for this write's rows in the topic "
        "with a reader of committed data. If they are there, leave this write out, once; if a part is, "
        f"publish the rest yourself, too. If none is there, set {accept}"
    )


class Gone(NamedTuple):
    """What became of rows that were written. `again`: they are to be written again. `said`: what
    to tell of them; "": they are there, or it is accepted that they are not."""

    again: bool = False
    said: str = ""


NOTHING_GONE = Gone()


def find_gone(topics: TopicIds, accept: Accept) -> Rules[Gone]:
    """Whether rows that were written are gone with their topics. `topics`: to which they went. Raises
    CommitFault."""
    if not topics:
        return NOTHING_GONE
    now = yield from demand(FindTopics(tuple(topic for topic, _ in topics)), "a topic's id cannot be read")
    gone = {topic: old for topic, old in topics if topic not in now or now[topic] not in (None, old)}
    if not gone:
        return NOTHING_GONE
    leave, again = (_words(kind, gone.values(), accept) for kind in ("rows-gone", "write-again"))
    there = ", ".join(topic for topic, _ in topics if topic not in gone)
    if not leave:
        return NOTHING_GONE
    if not again and not there:
        return Gone(again=True)
    told = "; ".join(
        made_anew(topic, old, now.get(topic)) or f"topic {topic} was deleted (its id was {old})"
        for topic, old in gone.items()
    )
    way = f"To write them again, set {accept(again)}" if again else ""
    if there:
        way = f"Those in {there} are there: to write the others again, give them alone another write.token"
    return Gone(
        said=f"and rows are gone: {told}. Nothing was written. {way}. If they are not wanted any more, set "
        f"{accept(leave)}"
    )


def _words(kind: str, ids: Iterable[str], accept: Accept) -> str:
    """The words of start.accepted about topics of these ids, as far as they are not given."""
    return ",".join(word for old in ids if accept(word := f"{kind}:{old}") is not None)


def _go_on(sink: Sink, run: Run) -> Rules[Owned | None]:
    """Keep the sink, with the incarnation of this driver's last write. None: it must be acquired again.

    A stream does the same (begin.py), but here the driver's own decision must be the newest: threads of one
    driver may begin writes at the same time, and of two under one identity the later decision would replace
    the earlier one in the same transaction. Other drivers may write in between, which is no error.
    """
    yield from ask(AskOngoing(sink.prefix))
    states = yield from demand(Describe((sink.coordinator,)), f"sink {sink.id} cannot be looked up")
    state = states[sink.coordinator]
    stored = yield from fetch_stored(sink, run.identity)
    if state is None or not left_by(run, state, decode(sink, stored.chunks)):
        return None
    if state.identity.epoch > LAST_EPOCH:
        return None
    identity = state.identity
    if identity == run.identity:  # transaction.version 1, or nothing was decided since
        used = shows_use(state) or bool(stored.chunks)
        identity = yield from raise_epoch(sink, identity, used)
    return Owned(run.incarnation, identity, stored, False)


def begin_before(
    sink: Sink,
    token: str,
    topics: frozenset[str],
    *,
    two_phase: TwoPhase = TwoPhase.AUTO,
    on_lost: OnLost = OnLost.STOP,
) -> Rules[Begun | None]:
    """Begin the write in the token's own sink, which it had before the tokens of a stem shared one.

    `topics`: the topics of this write; empty if each row names its own. None: that sink did not decide this
    write and has nothing open. If it wrote to other topics, that was another write, which is finished here.
    Raises CommitFault.
    """
    what = f"whether write.token={token} was written by an earlier version cannot be read"
    states = yield from demand(Describe((sink.coordinator,)), what)
    known = states[sink.coordinator] is not None
    stored = yield from look_up(sink.group)
    if isinstance(stored, Stored):
        last = decode(sink, stored.chunks)
        if not known if last is None else last.batch.query_id != token:
            return None
    elif not known:
        raise CommitFault(f"{what}: {stored}. Fix that, then start the query again")
    # Otherwise a driver died in the middle of its decision, which is pending until the sink is acquired.
    begun, _ = yield from begin_write(sink, token, two_phase=two_phase, on_lost=on_lost)
    last = decode(sink, (yield from fetch_stored(sink, begun.identity)).chunks)
    if last is None:
        return None
    written = {topic for topic, _ in last.written}
    return None if topics and written and not topics & written else begun


class Within(NamedTuple):
    """A write without a token in foreachBatch. `last`: its sink's last decision. `passed`: the rows were
    written before and equal these, which nobody may commit."""

    written: BatchWrite
    last: Decision
    passed: bool


def begin_within(query_id: str, two_phase: TwoPhase) -> Rules[Begun]:
    """Make a query's sink ready to decide a write without a token in foreachBatch. Raises CommitFault."""
    sink = sink_of_query(query_id)
    owned = yield from acquire(sink)
    if two_phase is TwoPhase.REQUIRE:
        yield from check_offered(sink)
    last = decode(sink, owned.stored.chunks)
    batch = Batch(query_id, 0 if last is None else last.batch.batch_id + 1)
    is_complete = False if last is None else (yield from is_finished(sink, last))
    return (yield from make_ready(sink, owned, last, batch, is_complete=is_complete))


def commit_within(
    begun: Begun,
    reports: Sequence[Report | None],
    place: str,
    two_phase: TwoPhase,
    *,
    claimed: Collection[str] | None = None,
    others: Sequence[BatchWrite] = (),
    accept: Accept = nothing_accepted,
    starts: bool = False,
) -> Rules[Within]:
    """Make a batch write of foreachBatch visible, unless it was written before.

    That it is one only its tasks know. So begin gave their transactions the names of a sink that says nothing
    about the batch. `begun`: what begin_within made ready since. The query's sink decides and remembers.
    `place`: as in BatchWrite. `claimed`: what this run of the query has written of this batch, or found
    written (BatchWrite.known_by); None: that is not known. `others`: what was written with tokens. `starts`:
    an earlier run may have written this batch. Raises CommitFault.
    """
    sink = Sink(begun.sink_id)
    stamp = next((report.stamp for report in reports if report is not None), stamp_of(begun))
    named_by, number = Sink(stamp.sink_id), 0 if stamp.within is None else stamp.within.batch_id
    ballot = count(named_by, reports, stamp.batch.batch_id)
    last = decode(sink, (yield from fetch_stored(sink, begun.identity)).chunks)
    counted = (ballot.winners, ballot.written, ballot.rows, ballot.checksums)
    decision = Decision(begun.sequence + 1, begun.batch, stamp.incarnation, *counted, names=named_by.id)
    decision = decision._replace(write_of=begun.batch.query_id)
    now, writes = BatchWrite(number, place, decision.content, ballot.topics), BatchWrites()
    if last is not None:
        decision, writes = decision._replace(left=last.left), last.within
    known = writes.get(number, place)
    if last is not None and known is not None:
        gone = yield from find_gone(known.topics, accept)
        if gone.said:
            raise RowsGone(
                f"{stamp.within}: {_HAS_WRITTEN} {known.content} to {known.where} before, {gone.said}"
            )
        if not gone.again:
            _check_same(stamp.within, known, now)
            return Within(now, last, True)
    else:
        _check_newest(stamp.within, writes.newest, number)
        _check_elsewhere(stamp.within, _not_claimed(writes, now, claimed), now, accept)
        yield from check_renamed(stamp.within, (*others, *writes.kept), now, claimed, accept)
        yield from _check_in_order(now, others, accept)
    own_last = decode(named_by, (yield from fetch_stored(named_by, stamp.identity)).chunks)
    _check_same_query(named_by, stamp.within, own_last, accept)
    decision = decision._replace(within=writes.after(now), places=ballot.places)
    if last is not None:
        decision = decision._replace(older=last.older_of_write(ballot.places, ballot.written))
    if own_last is not None and last is not None and known is None and starts:
        places = (*last.everywhere, *own_last.everywhere)
        word = f"decisions-gone:{named_by.id}:{number}:{own_last.sequence}"
        yield from _check_behind(named_by, own_last, places, str(stamp.within), accept(word))
    namer = Namer(named_by, stamp, own_last)
    rows = ballot.open_rows
    done = yield from decide(
        sink, decision, stamp_of(begun), None, two_phase, last, namer=namer, open_rows=rows
    )
    yield from finish(done)
    return Within(now, done, False)


_HAS_WRITTEN = "a df.write of foreachBatch without write.token has written"
_OLDER_COPY = " Was the checkpoint restored from an older copy? Bring the right checkpoint back."
"""Of a batch whose rows are others now."""


def _check_same(batch: Batch | None, then: BatchWrite, now: BatchWrite) -> None:
    if then.content.differs(now.content):
        raise OtherRowsInBatch(
            f"{batch}: {_HAS_WRITTEN} {then.content} to {then.where} before, and was given {now.content} "
            f"now, which are not the same. They were not written. {OtherRowsInBatch.advice}"
        )


def _check_newest(batch: Batch | None, newest: int, number: int) -> None:
    """Raise CheckpointOlder if the query has written a later batch: a user's tokens may come in any order, a
    query's batches do not."""
    if newest > number:
        raise CheckpointOlder(
            f"{batch}: a df.write of foreachBatch has written batch {newest} of this query before, so the "
            "checkpoint was set back, and rows would be written again. Nothing was written. "
            "Bring the right checkpoint back; or, if these rows are to be written, give the write a token: "
            '.option("write.token", f"NAME-{batch_id}")'
        )


def _not_claimed(writes: BatchWrites, now: BatchWrite, claimed: Collection[str] | None) -> list[BatchWrite]:
    """The writes that an earlier run has made of this batch, and this one has not yet: the function names
    another place for them now. The rows may be others, as those of an older copy of the checkpoint are. Two
    places to which it has written in one batch before are two writes; one after the other, as if the day
    named the topic, they are not.
    """
    if claimed is None:
        return []
    return [
        one
        for one in writes.kept
        if one.batch == now.batch
        and one.place not in claimed
        and (_share(one, now) or _may_have_moved(writes.kept, one, now))
    ]


def _may_have_moved(
    writes: Iterable[BatchWrite], one: BatchWrite, now: BatchWrite, late: bool = False
) -> bool:
    """Whether a write of this batch may be this one, in another place or under another name: no other batch
    has both, or several tokens of one line. `late`: what this run has written of the batch is not known any
    more."""
    if late or not (now.content.rows and one.content.rows):
        return bool(now.content.rows and one.content == now.content)
    if one.same_line(now):  # the token's number is another one, or written in another way
        return one.content == now.content or not _is_of_loop(writes, one, now)
    before = {write.batch for write in writes if write.same_line(one)} - {now.batch}
    return not any(write.batch in before for write in writes if write.same_line(now))


def _is_of_loop(writes: Iterable[BatchWrite], one: BatchWrite, now: BatchWrite) -> bool:
    """Whether a line of the function writes several tokens of one stem in a batch, and these two of a batch
    have in common what those of each other batch had: all but the digits that count them. If they differ in
    more, as by a date, the batch has got other tokens than it had. If the stem is the batch's own, none has
    to be in common."""
    lines = defaultdict[tuple[int, str], list[str]](list)
    for other in writes:
        if other.token and other.batch != now.batch and (other.place, other.name) == (now.place, now.name):
            lines[other.batch, other.stem].append(Token.of(other.token).digits)
    loops = [line for line in lines if len(lines[line]) > 1]
    if now.stem not in {stem for _, stem in lines}:
        return bool(loops)
    common = [_common(lines[line]) for line in loops if line[1] == now.stem]
    first, last = (min(sizes) for sizes in zip(*common, strict=True)) if common else (0, 0)
    own_first, own_last = _common([Token.of(each.token).digits for each in (one, now)])
    return bool(first or last) and own_first >= first and own_last >= last


def _common(numbers: Sequence[str]) -> tuple[int, int]:
    """How many first and last digits these numbers have in common."""
    from_the_end = [each[::-1] for each in numbers]
    columns = (zip(*each, strict=False) for each in (numbers, from_the_end))
    first, last = (sum(1 for _ in takewhile(lambda column: len({*column}) == 1, each)) for each in columns)
    return first, last


def _share(one: BatchWrite, other: BatchWrite) -> bool:
    """Whether rows of the one went where the other's option names the topic, or the other way round."""
    return any(a.place and not b.place and a.place in dict(b.topics) for a, b in ((one, other), (other, one)))


def _check_elsewhere(batch: Batch | None, found: list[BatchWrite], now: BatchWrite, accept: Accept) -> None:
    """Raise SinkChanged for writes that have gone to other places, unless that is accepted."""
    for one in found:
        if (accepting := accept(_word_elsewhere(one))) is not None:
            same = one.content == now.content
            rows, older = ("them", "") if same else (now.content, _OLDER_COPY)
            raise SinkChanged(
                f"{batch}: {_HAS_WRITTEN} {one.content} to {one.where} before, and is to write {rows} to "
                f"{now.where} now. Nothing was written.{older} Was the option topic changed? Give the old "
                f"one back until this batch is done. Are the rows to be in both? Set {accepting}"
            )


def _word_elsewhere(one: BatchWrite) -> str:
    return f"sink-changed:{one.place}:{one.batch}"


def _check_same_query(sink: Sink, batch: Batch | None, last: Decision | None, accept: Accept) -> None:
    """Raise StartsElsewhere if another query uses the sink that names a write's transactions, unless that is
    accepted: with a new checkpoint the query has another id, and knows nothing of what it has written."""
    if batch is None or last is None or last.used_by in ("", batch.query_id):
        return
    if (accepting := accept(f"new-checkpoint:{last.word}")) is not None:
        raise StartsElsewhere(
            f"{batch}: query {last.used_by} was the last to write under transactional.id={sink.id}, and rows "
            "that it has written would be written again. Nothing was written. Was its checkpoint lost or "
            "exchanged? Bring it back; or begin where it ended (startingOffsets of the source), with a new "
            f"checkpoint, and set {accepting} of this write. Do both run? Give each a transactional.id of "
            "its own"
        )


class Notes(NamedTuple):
    """What a query has noted of its writes in foreachBatch with a token. `last`: None: nothing."""

    group: str
    anchors: int
    last: Decision | None

    @property
    def writes(self) -> BatchWrites:
        """Those of the last two micro-batches with such writes."""
        return BatchWrites() if self.last is None else self.last.within

    @property
    def stream(self) -> str:
        """The sink in which the query's stream has decided its batches; "": none is noted."""
        return "" if self.last is None else self.last.names

    @property
    def left(self) -> Left | None:
        """Where the query has gone on since; None: here."""
        return None if self.last is None else self.last.left

    def with_left(self, query_id: str, left: Left | None) -> Noting:
        """The notes of a query that goes on elsewhere; None: that is back here."""
        batch = Batch(query_id, 0) if self.last is None else self.last.batch
        noted = Decision(self._next, batch, NOBODY, (), (), names=self.stream, within=self.writes, left=left)
        return Noting(self.group, self.anchors, noted)

    def with_write(self, write: BatchWrite, stamp: Stamp) -> Noting:
        """The notes with one more write, which the sink of this stamp decides."""
        assert stamp.within is not None, "only a micro-batch has notes"
        noted = Decision(self._next, stamp.within, stamp.incarnation, (), (), names=self.stream)
        return Noting(self.group, self.anchors, noted._replace(within=self.writes.after(write, older=0)))

    def with_stream(self, sink: Sink, batch: Batch) -> Noting:
        """The notes with the sink of the query's stream, which is about to decide the batch."""
        noted = Decision(self._next, batch, NOBODY, (), (), names=sink.id, within=self.writes)
        return Noting(self.group, self.anchors, noted)

    @property
    def _next(self) -> int:
        return 1 if self.last is None else self.last.sequence + 1


def read_notes(query_id: str) -> Rules[Notes | None]:
    """What the query has noted. None: the user may not read it, and can note nothing. Raises CommitFault.

    A write under another token may have died in the middle of its decision. Its next begin or the time-out
    ends that one, and until then it has written nothing: nobody waits for it.
    """
    sink = sink_of_query(query_id)
    stored = yield from look_up(sink.writes_group)
    if isinstance(stored, Refused) and stored.code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        stored = yield from look_up(sink.writes_group, stable=False)
    found = _readable(stored, f"what query {query_id} has written in foreachBatch")
    return None if found is None else Notes(sink.writes_group, found.anchors, decode(sink, found.chunks))


def read_writes(query_id: str) -> Rules[Sequence[BatchWrite]]:
    """What the query has written without a token in foreachBatch. Raises CommitFault."""
    last = yield from _last_of(sink_of_query(query_id), f"what query {query_id} has written without a token")
    return () if last is None else last.within.kept


def batch_write(reports: Sequence[Report | None], place: str, token: str, name: str) -> BatchWrite:
    """The write that the tasks of a micro-batch have made under a token. Raises CommitFault unless their
    reports belong together."""
    stamp = next(report.stamp for report in reports if report is not None)
    assert stamp.within is not None, "it is of a micro-batch"
    ballot = count(Sink(stamp.sink_id), reports, stamp.batch.batch_id)
    topics = dict.fromkeys((topic for topic, _ in ballot.written), "") | dict(ballot.topics)
    return BatchWrite(stamp.within.batch_id, place, ballot.content, tuple(topics.items()), token, name)


def check_renamed(
    batch: Batch | None,
    writes: Collection[BatchWrite],
    now: BatchWrite,
    claimed: Collection[str] | None,
    accept: Accept,
    *,
    late: bool = False,
) -> Rules[None]:
    """Check that a write's rows are not those that an earlier run of the query has written of this batch to
    the same topic, under another token, another transactional.id beside it, or none. `claimed`: as in
    commit_within. `late`: this run has written a later batch. Raises SinkChanged unless that is accepted:
    then the other one is finished, for nobody writes under its name again."""
    known = () if claimed is None else [one for one in writes if one.known_by not in (now.known_by, *claimed)]
    older = _under_another_name(writes, known, now, late)
    moved = [one for one in known if one.batch == now.batch and one.shares_topic(now)]
    again = [
        one
        for one in moved
        if _may_have_moved(writes, one, now, late) and one.stem not in {other.stem for other in older}
    ]
    for one in (*older, *again):
        if (accepting := accept(_word_elsewhere(one))) is None:
            query_id = "" if batch is None else batch.query_id
            if one.sink(query_id) != now.sink(query_id):  # which its own begin has finished
                yield from fence(one.sink(query_id))
            continue
        same = one.batch == now.batch and one.content == now.content
        before = f"before, in batch {one.batch}" if one.batch != now.batch else "before"
        under = one.under.replace("without write.token", "without a token")
        under += " and no transactional.id" if now.name and one.token and not one.name else ""
        elsewhere = bool(one.place and now.place) and one.place != now.place
        under += f" to {one.where}" if elsewhere else ""
        raise SinkChanged(
            f"{batch}: a df.write of foreachBatch {one.under} has written {one.content} to {one.where} "
            f"{before}, and one {now.under}{f' to {now.where}' if elsewhere else ''} was given "
            f"{'the same rows' if same else 'other rows'} now. "
            f"Nothing was written.{'' if same else _OLDER_COPY} Leave that write {under} until batch "
            f"{one.batch} is done. Are the rows to be there twice? Set {accepting}"
        )


def check_remembered(
    batch: Batch,
    writes: Iterable[BatchWrite],
    now: BatchWrite,
    accept: Accept,
    others: Iterable[BatchWrite] = (),
) -> Rules[None]:
    """Check a write whose token its sink does not remember: its query must not have noted it, or such a write
    of a later batch, as batches come in order. `writes`: what the query has noted. `others`: all that it has
    written, if an earlier run may have done so since. Raises DecisionGone, CheckpointOlder."""
    same = [one for one in writes if _alike(one, now) and (one.place, one.name) == (now.place, now.name)]
    later = [one for one in same if one.batch > now.batch]
    again = [one for one in same if (one.batch, one.token) == (now.batch, now.token)]
    newest = max(later or again, key=lambda one: one.batch, default=None)
    if newest is None:
        yield from _check_in_order(now, others, accept)
        return
    if (yield from find_gone(newest.topics, accept)).again:
        return
    word = f"decisions-gone:{quote(now.token, safe='')}:{newest.batch}"
    if (accepting := accept(word)) is not None:
        why = f"The query has written batch {newest.batch} {newest.under}: {_DECISIONS_LOST}"
        if later:
            why += ". The checkpoint was set back: bring the right checkpoint back if you have it"
        raise DecisionGone(_unknown(str(batch), f"write.token={now.token}", why, accepting))


def _check_in_order(now: BatchWrite, writes: Iterable[BatchWrite], accept: Accept) -> Rules[None]:
    """Check that no line of the function has written a later batch: not each line writes in each batch, so
    this one may write rows now that came since. Raises CheckpointOlder unless that is accepted."""
    newest = max(writes, key=lambda one: one.batch, default=None)
    if newest is None or newest.batch <= now.batch:
        return
    if (yield from find_gone(newest.topics, accept)).again:
        return
    if (accepting := accept(_word_elsewhere(newest))) is not None:
        raise CheckpointOlder(
            f"a df.write of foreachBatch {now.under} to {now.where} is of batch {now.batch}, and one "
            f"{newest.under} to {newest.where} has written batch {newest.batch} of this query before. So the "
            "checkpoint was set back, and rows would be written again. Nothing was written. Bring the right "
            f"checkpoint back. Are these rows to be written? Set {accepting}"
        )


def _under_another_name(
    writes: Iterable[BatchWrite], known: Iterable[BatchWrite], now: BatchWrite, late: bool
) -> list[BatchWrite]:
    """The newest write of tokens like this one, of this batch or a later one, if none is known to the same
    topic with the same transactional.id; or any write to its topic of a later batch: an older copy of the
    checkpoint runs again, with a name or a topic that was changed."""
    if any(one.same_line(now) for one in writes):
        return []
    return [
        one
        for one in known
        if (_alike(one, now) and one.batch >= now.batch)
        or (not late and one.batch > now.batch and one.shares_topic(now))
    ][-1:]


def _alike(one: BatchWrite, now: BatchWrite) -> bool:
    """Whether it has a token of the same stem."""
    return bool(one.token and now.token) and one.stem == now.stem


def newest_write(query_id: str) -> Rules[tuple[BatchWrite | None, Notes | None]]:
    """What the query has written last in foreachBatch, with a token or without; and its notes. Raises
    CommitFault."""
    notes = yield from read_notes(query_id)
    without = yield from read_writes(query_id)
    writes = (*without, *(() if notes is None else notes.writes.kept))
    return max(writes, key=lambda one: one.batch, default=None), notes


def _finish_writes(batch: Batch, notes: Notes | None) -> Rules[None]:
    """Finish what foreachBatch has written of a batch, or since: nobody writes there again."""
    without = yield from read_writes(batch.query_id)
    writes = (*without, *(() if notes is None else notes.writes.kept))
    for sink in sorted({one.sink(batch.query_id) for one in writes if one.batch >= batch.batch_id}):
        yield from fence(sink)


def check_not_in_foreach(batch: Batch, accept: Accept) -> Rules[Notes | None]:
    """Check that a stream's batch was not written by a df.write of foreachBatch: its code was another one
    then. Returns the query's notes. Raises SinkChanged unless that is accepted."""
    one, notes = yield from newest_write(batch.query_id)
    if one is None or one.batch < batch.batch_id:
        return notes
    if (accepting := accept(f"sink-changed:foreachBatch:{one.batch}")) is not None:
        raise SinkChanged(
            f"{batch}: a df.write of foreachBatch {one.under} has written {one.content} to {one.where} "
            f"in batch {one.batch}, and the query has no foreachBatch now. Nothing was written. Start it "
            f"with its former code until batch {one.batch} is done. Are the rows to be written again? "
            f"Set {accepting}"
        )
    yield from _finish_writes(batch, notes)
    return notes


def note_stream(sink: Sink, batch: Batch, notes: Notes | None) -> Rules[None]:
    """Note in which sink the query's stream decides, before it does, unless every df.write knows that name.
    Raises CommitFault."""
    if notes is None or sink.id in (batch.query_id, notes.stream):
        return
    noting = notes.with_stream(sink, batch)
    what = f"that {batch} is decided in sink {sink.id} cannot be noted for its foreachBatch"
    for group, offsets in noting.parts():
        answer = yield from ask(CommitOffsets(group, offsets))
        if isinstance(answer, Refused) and answer.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return  # a user who may see the group and not write to it has no foreachBatch
        if isinstance(answer, (Refused, Unknown)):
            raise CommitFault(f"{what}: {answer}. Fix that, then start the query again")


def note_moved_away(query_id: str, left: Left | None) -> Rules[None]:
    """Note for the df.write of its foreachBatch that the query has gone on on another cluster; `left` None:
    that it is back here, if that was noted. Raises CommitFault."""
    notes = yield from read_notes(query_id)
    if notes is None or (left is None and notes.left is None):
        return
    for group, offsets in notes.with_left(query_id, left).parts():
        what = f"that query {query_id} goes on on another cluster cannot be noted for its foreachBatch"
        yield from demand(CommitOffsets(group, offsets), what)


def _check_stayed(batch: Batch, left: Left, accept: Accept) -> Rules[None]:
    """Raise TakenOver if the query has gone on on another cluster, unless that is accepted: it is back
    then."""
    if (accepting := accept(f"left:{left.word}")) is not None:
        raise TakenOver(
            f"{batch}: the query has gone on on another cluster since batch {left.batch_id}, at {left.time}, "
            "and the df.write of its foreachBatch would write rows again here. Nothing was written. Go on "
            "there with the checkpoint that was moved; if the move was taken back, or rows may be there "
            f"twice, set {accepting}"
        )
    yield from note_moved_away(batch.query_id, None)


def go_on_in_run(batch: Batch, accept: Accept) -> Rules[Notes | None]:
    """Before a df.write that a run makes in foreachBatch: what the query has noted. Raises TakenOver if it
    has gone on on another cluster."""
    notes = yield from read_notes(batch.query_id)
    if notes is None or notes.left is None:
        return notes
    yield from _check_stayed(batch, notes.left, accept)
    return (yield from read_notes(batch.query_id))


def begin_in_run(batch: Batch, name: str, accept: Accept) -> Rules[Notes | None]:
    """The same before the run's first one. `name`: the write's transactional.id, "": none. Raises SinkChanged
    if a stream has decided the batch."""
    notes = yield from go_on_in_run(batch, accept)
    for sink in sorted({batch.query_id, name, "" if notes is None else notes.stream} - {""}):
        yield from check_not_in_stream(Sink(sink), batch, accept)
    return notes


def check_not_in_stream(sink: Sink, batch: Batch, accept: Accept) -> Rules[None]:
    """Check that a df.write of foreachBatch is not of a batch that the query's stream has decided in this
    sink, when it had no foreachBatch. Raises SinkChanged unless that is accepted."""
    last = yield from _last_of(sink, f"what sink {sink.id} has decided")
    decided = None if last is None else last.last_of(batch.query_id)
    if decided is None or decided.batch_id < batch.batch_id:
        return
    if (accepting := accept(f"sink-changed:{sink.id}:{decided.batch_id}")) is not None:
        raise SinkChanged(
            f"{batch}: sink {sink.id} has decided batch {decided.batch_id} of this query before, without "
            "foreachBatch. Nothing was written. Start the query with its former code until that batch is "
            f"done. Are the rows to be written again? Set {accepting}"
        )
    yield from fence(sink)  # its stream does not come back to finish it


def _last_of(sink: Sink, what: str) -> Rules[Decision | None]:
    """A sink's last decision. None: there is none, or the user may not read it, and has written none.
    Raises CommitFault."""
    found = _readable((yield from look_up(sink.group)), what)
    return None if found is None else decode(sink, found.chunks)


def _readable(stored: Stored | Failure, what: str) -> Stored | None:
    """What a group holds. None: the user may not read it. Raises CommitFault."""
    if isinstance(stored, Refused) and stored.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return None
    if isinstance(stored, (Refused, Unknown)):
        raise CommitFault(f"{what} cannot be read: {stored}. Fix that, then start the query again")
    return stored


def is_finished(sink: Sink, last: Decision) -> Rules[bool]:
    """Whether the sink's last decision is noted as finished. Raises CommitFault."""
    what = f"whether the write with token {last.batch.query_id} is done cannot be read"
    stored = yield from demand(FetchStored(sink.finished_group), what)
    number, token = stored.chunks.get(0, (-1, ""))
    return number in (last.sequence, _OF_BEFORE) and token == last.batch.query_id


def note_finished(sink: Sink, last: Decision) -> Rules[None]:
    """Note that the sink's last decision is finished. Raises CommitFault if that fails: the rows are visible
    all the same, and the same token can safely be written again."""
    token = last.batch.query_id
    what = f"the write with token {token} is visible, but that could not be noted; running it again is safe"
    note = {(ANCHOR, 0): (last.sequence, token)}
    yield from demand(CommitOffsets(sink.finished_group, note), what)
