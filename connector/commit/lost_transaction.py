"""Finds out why the sink's own transaction is no longer open when its batch is to be decided.

SinkFenced: another driver has acquired the sink, or is about to. BatchRefused: the transaction timed out.
"""

from eoslog.connector.commit.commands import (
    Describe,
    Description,
    ReadClock,
    Refused,
    Rules,
    Unknown,
    ask,
    demand,
)
from eoslog.connector.commit.faults import BatchRefused, CommitFault
from eoslog.connector.commit.finish import is_aborted, lost_to
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Participant, Sink


def why_refused(
    sink: Sink, own: Participant, batch: Batch, began_ms: int, fault: CommitFault
) -> Rules[CommitFault]:
    """The error for a refused request: `fault` if the sink is still ours or its state is unknown.

    Call it before anything is aborted: an abort changes the state that the coordinator reports.
    """
    states = yield from ask(Describe((own.name,)))
    if isinstance(states, (Refused, Unknown)):
        return fault
    state = states[own.name]
    if state is not None and state.identity == own.identity:
        return fault
    return (yield from why_gone(sink, own, batch, began_ms, state))


def why_gone(
    sink: Sink, own: Participant, batch: Batch, began_ms: int, state: Description | None
) -> Rules[CommitFault]:
    """The error that says what ended the transaction. `began_ms` was read before it was opened.

    A time-out aborts the transaction and raises the epoch by one. Another driver's InitProducerId does the
    same, and gets its identity a moment later. But an abort before `timeout_ms` cannot be a time-out.
    """
    if state is not None and state.identity == own.identity:
        return BatchRefused(
            f"{batch} was not decided: the sink's own transaction {own.name} is {state.state}. It is safe to "
            "start the query again"
        )
    if state is not None and is_aborted(state, own):
        open_ms = (yield from demand(ReadClock(), "the clock cannot be read")) - began_ms
        if open_ms >= state.timeout_ms:
            return BatchRefused(
                f"{batch} was not decided: the sink's own transaction {own.name} timed out after "
                f"{state.timeout_ms} ms, and its commit took {open_ms} ms so far. Did the machine stand "
                "still, or did the brokers not answer? It is safe to start the query again"
            )
    return lost_to(sink, own.identity, state)
