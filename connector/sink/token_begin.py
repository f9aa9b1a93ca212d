"""Begins a batch write with a token, on the driver: finds its sink and the run that it continues."""

from typing import NamedTuple

from eoslog.connector.checkpoint.accepted_differences import acceptable
from eoslog.connector.commit.move_decision import give_up
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.task_reports import Begun, Run
from eoslog.connector.commit.token_write import begin_before, begin_write
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import WRITER, Token, id_before
from eoslog.connector.options.sink_options import SinkOptions
from eoslog.connector.run import run_memory
from eoslog.connector.run.runner import Runner


class StartedWrite(NamedTuple):
    """A batch write that has begun. `key`: its run is kept under it (memory.py) for the next write of its
    stem; None: it is not kept."""

    begun: Begun
    run: Run
    key: tuple[str, ...] | None = None


def begin_token(options: SinkOptions, text: str, runner: Runner) -> StartedWrite:
    """Make the sink ready for the tasks of a write with this token. Raises CommitFault."""
    token, name = Token.of(text), options.transactional_id or WRITER
    two_phase, on_lost = options.two_phase, options.on_lost
    topics = frozenset(
        topic for topic in (options.topic, options.deadletter_topic) if topic and options.topic
    )
    old = Sink(id_before(name, text))
    runner.run(give_up(old, options.accepted))
    before = runner.run(begin_before(old, text, topics, two_phase=two_phase, on_lost=on_lost))
    if before is not None:
        return StartedWrite(before, Run(before.incarnation, before.identity, before.batch))
    sink = Sink(token.sink_id(name, options.topic))
    runner.run(give_up(sink, options.accepted))
    key = (repr(options.client.bootstrap), sink.id, "write")
    last_run, accept = run_memory.take(*key), acceptable(options.accepted)
    rules = begin_write(sink, text, last_run=last_run, two_phase=two_phase, on_lost=on_lost, accept=accept)
    begun, run = runner.run(rules)
    if not token.digits:  # no other token uses this sink
        return StartedWrite(begun, run)
    run_memory.keep(run, *key)
    return StartedWrite(begun, run, key)


def written_by(options: SinkOptions, text: str, runner: Runner) -> str | None:
    """Whether the token is written: the query whose foreachBatch wrote last under its stem, "" if none is
    known. None: it is not written. Raises CommitFault."""
    token = Token.of(text)
    sink = Sink(token.sink_id(options.transactional_id or WRITER, options.topic))
    last = runner.run(observed_decision(sink))
    return None if last is None or last.tokens.get(token) is None else last.write_of or ""
