"""Batch writes with a token: each is written once; other rows under the same token are an error.

A write that runs again finds its token in the last decision of its sink, or among the tokens that this
decision remembers (write_token.py). Then its rows are not written but counted, and compared with those of the
first run.

A finished write is noted beside the decision: brokers forget idle transactional ids, and a forgotten
transaction must not be taken for a lost one. So the note is written last, after every winner is committed.
"""

from collections.abc import Sequence
from typing import NamedTuple

from eoslog.connector.commit.begin import LAST_EPOCH, Owned, acquire, left_by, make_ready, raise_epoch
from eoslog.connector.commit.commands import (
    AskOngoing,
    CommitOffsets,
    Describe,
    FetchStored,
    Rules,
    ask,
    demand,
)
from eoslog.connector.commit.decide import Namer, count, decide
from eoslog.connector.commit.decision import ANCHOR, Decision, Stored, decode
from eoslog.connector.commit.faults import (
    CheckpointOlder,
    CommitFault,
    OtherRowsInBatch,
    TokenForgotten,
)
from eoslog.connector.commit.finish import finish
from eoslog.connector.commit.prepare import stamp_of
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.seal import TwoPhase, check_offered
from eoslog.connector.commit.sink_transaction import fetch_stored
from eoslog.connector.commit.task_reports import Batch, Begun, Report, Run
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import Content, RememberedTokens, Token

_OF_BEFORE = 0
"""A finished write's note of earlier versions, where each token had its own sink. Decisions begin at 1."""


def begin_write(
    sink: Sink,
    token: str,
    *,
    last_run: Run | None = None,
    two_phase: TwoPhase = TwoPhase.AUTO,
    on_lost: OnLost = OnLost.STOP,
) -> Rules[tuple[Begun, Run]]:
    """Make the sink of the token's stem ready for the tasks of the write.

    `last_run`: what this driver remembers of the stem's last write. Returns what tasks need, and what to
    remember. Raises CommitFault.

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
    known = last.last_of(token) if last is not None else None
    batch = known or Batch(token, last.batch.batch_id + 1 if last is not None else 0)
    is_complete = last is not None and (yield from is_finished(sink, last))
    begun = yield from make_ready(sink, owned, last, batch, is_complete=is_complete, on_lost=on_lost)
    if last is not None and known is None and last.tokens.forgot(Token.of(token)):
        raise TokenForgotten(
            f"sink {sink.id}: whether write.token={token} was written is no longer known: only the last "
            f"{len(last.tokens.kept)} tokens of {Token.of(token).stem!r} are remembered, and number "
            f"{last.tokens.floor} was forgotten. Nothing was written. {TokenForgotten.advice}"
        )
    return begun, Run(owned.incarnation, owned.identity, batch)


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
        identity = yield from raise_epoch(sink, identity)
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
    stored = yield from ask(FetchStored(sink.group))
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

    content: Content
    last: Decision
    passed: bool


def commit_within(
    begun: Begun, reports: Sequence[Report | None], where: str, two_phase: TwoPhase
) -> Rules[Within]:
    """Make a batch write of foreachBatch visible, unless it was written before.

    That it is one only its tasks know. So begin gave their transactions the names of a sink that says nothing
    about the batch. `begun`: what begin_write made ready since, under what stands for the token. Its sink
    decides and remembers. `where`: the topic, for messages. Raises CommitFault.
    """
    sink, token = Sink(begun.sink_id), begun.batch.query_id
    stamp = next((report.stamp for report in reports if report is not None), stamp_of(begun))
    named_by = Sink(stamp.sink_id)
    ballot = count(named_by, reports, stamp.batch.batch_id)
    last = decode(sink, (yield from fetch_stored(sink, begun.identity)).chunks)
    counted = (ballot.winners, ballot.written, ballot.rows, ballot.checksums)
    decision = Decision(begun.sequence + 1, begun.batch, stamp.incarnation, *counted, names=named_by.id)
    decision = decision._replace(left=None if last is None else last.left)
    if last is not None and last.last_of(token) is not None:
        _check_same(stamp.within, where, last.content_of(token), decision.content)
        return Within(decision.content, last, True)
    later = None if last is None else last.tokens.later_than(Token.of(token))
    if later is not None:  # a user's tokens may come in any order, a query's batches do not
        raise CheckpointOlder(
            f"{stamp.within}: a df.write of foreachBatch has written batch {later} of this query to {where} "
            "before, so the checkpoint was set back, and rows would be written again. Nothing was written. "
            "Bring the right checkpoint back; or, if these rows are to be written, give the write a token: "
            '.option("write.token", f"NAME-{batch_id}")'
        )
    own_last = decode(named_by, (yield from fetch_stored(named_by, stamp.identity)).chunks)
    tokens = last.tokens if last is not None else RememberedTokens()
    decision = decision._replace(tokens=tokens.after(Token.of(token), decision.content))
    namer = Namer(named_by, stamp, own_last)
    done = yield from decide(sink, decision, stamp_of(begun), None, two_phase, last, namer=namer)
    yield from finish(done)
    return Within(decision.content, done, False)


def _check_same(batch: Batch | None, where: str, then: Content, now: Content) -> None:
    if then.differs(now):
        raise OtherRowsInBatch(
            f"{batch}: a df.write of foreachBatch without write.token has written {then} to {where} before, "
            f"and was given {now} now, which are not the same. They were not written. "
            f"{OtherRowsInBatch.advice}"
        )


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
