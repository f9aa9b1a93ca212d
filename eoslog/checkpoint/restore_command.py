"""`eoslog checkpoint restore`: the command line."""

from __future__ import annotations

from collections.abc import Callable

import click

from eoslog.checkpoint.restore import restore
from eoslog.commands import progress
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.sink.start_of_run import cluster_id


@click.command("restore")
@click.argument("checkpoint")
@click.option("--transactional-id", required=True, metavar="ID", help="transactional.id of the query.")
@click.option(
    "--decision-topic", default=ANCHOR, metavar="TOPIC", help="decision.topic of the query, if it has one."
)
@cluster_command
def restore_command(
    session: CommandSession, checkpoint: str, transactional_id: str, decision_topic: str
) -> None:
    """Write a lost CHECKPOINT again, from the topic of state.topic, into an empty folder.

    A driver that still runs the query is stopped. Then start the query with this checkpoint.
    """
    cluster_id(session.cluster)
    runner = Runner(session.cluster, OWN_TIMEOUT_MS, decisions=decision_topic)
    with progress.shown() as watch:
        restored = restore(session.cluster, runner, Sink(transactional_id), checkpoint, _told(watch))
    if session.as_json:
        session.show_json(None if restored is None else restored._asdict())
    elif restored is None:
        session.say(f"sink {transactional_id} has decided nothing: start the query with a new checkpoint")
    else:
        session.say(str(restored))


def _told(watch: progress.ProgressListener) -> Callable[[int, int], None]:
    """A function that moves the bar, given how many offsets are read, of how many."""
    before = 0

    def seen(now: int, total: int) -> None:
        nonlocal before
        if not before:
            watch.begin("offsets of the state's topic", total)
        watch.advance(now - before)
        before = now

    return seen
