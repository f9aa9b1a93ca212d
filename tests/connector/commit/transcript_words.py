"""Commands of the rules and what is answered, in words: the lines of a transcript.

A command that names several transactions is one line for the first and a line with `+` for each other one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.decision import ANCHOR, Decision, Stored, decode
from eoslog.connector.commit.places import PartitionState
from eoslog.connector.commit.task_reports import Decided, Empty, Prepared, Report
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.protocol.producer_identity import ProducerIdentity

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
    c.ListOngoing: "ListTransactions",
    c.Describe: "DescribeTransactions",
    c.AwaitMarkers: "DescribeTransactions until complete",
    c.FindHeld: "DescribeProducers",
    c.FindOpen: "DescribeProducers",
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
        case c.ListOngoing() if isinstance(answer, tuple):
            return _told(answer)
        case c.FindHeld() | c.FindOwn() if isinstance(answer, tuple):
            return f"open: {_told_held(answer)}"
        case c.FindOpen() if isinstance(answer, Mapping):
            return _told(f"{topic}-{at}: {_state(answer[topic, at])}" for topic, at in answer)
        case c.AwaitMarkers() if isinstance(answer, tuple):
            return f"not yet: {_told(answer)}" if answer else "complete"
        case c.AskOngoing():
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
