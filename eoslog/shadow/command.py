"""`eoslog shadow`: the command line.

Exit status: 0 both versions have written the same, 1 they have not, 2 that could not be found out.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from eoslog.audit.identity import Identity
from eoslog.commands.judging import judging
from eoslog.commands.progress import shown
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.client.admin.list_offsets import LATEST, list_offsets
from eoslog.connector.client.wire.cluster import Cluster
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.shadow.compare import compare
from eoslog.shadow.report import COLUMNS, document, lines, rows
from eoslog.shadow.steps import NoShadow, cut_of, steps

DIFFERENT = 1


@click.group()
def command() -> None:
    """Compare a new version of a query, a shadow, with the running one."""


@command.command()
@click.argument("checkpoint")
@click.option("--from-batch", type=click.IntRange(0), metavar="N", help="Leave out earlier batches.")
@click.option("--key", is_flag=True, help="Rows with the same key are equal; the values may differ.")
@click.option("--all-headers", is_flag=True, help="Equal rows have the same headers, too.")
@click.option(
    "--show",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Differing rows to list of each step.",
)
@click.option(
    "--decision-topic", metavar="TOPIC", help="The running query's option decision.topic, if it has one."
)
@click.option(
    "--temp-dir", type=click.Path(exists=True, file_okay=False, writable=True),
    help="Where to store some 32 bytes a row while it runs.  [default: the system's]",
)  # fmt: skip
@judging
@cluster_command
def report(session: CommandSession, checkpoint: str, **options: Any) -> None:
    """Compare batch by batch what the shadow with this CHECKPOINT and the running query have written.

    Exit status: 0 both have written the same, 1 they have not, 2 that could not be found out.
    """
    if options["key"] and options["all_headers"]:
        raise click.UsageError("give either --key or --all-headers")
    pa.set_memory_pool(pa.system_memory_pool())  # as in eoslog audit: it gives memory back
    batches, is_done = _batches(Checkpoint.at(checkpoint), options["from_batch"])
    last = cut_of(batches[-1])
    found = steps(batches, _ends(session.cluster, last.own) if is_done else None)
    if not found:
        raise NoShadow("the shadow has done no batch yet that can be compared: wait for one")
    identity = Identity(key=options["key"], content=not options["key"], all_headers=options["all_headers"])
    with (
        tempfile.TemporaryDirectory(prefix="eoslog-shadow-", dir=options["temp_dir"]) as directory,
        shown() as watch,
    ):
        compared = compare(session.cluster, found, identity, Path(directory), options["show"], watch)
    behind = _behind(session.cluster, last.sink, last.sequence, options["decision_topic"])
    said = document(found, compared, sink=last.sink, compared=str(identity), behind=behind)
    if session.as_json:
        session.show_json(said)
    else:
        session.show(rows(said), COLUMNS)
        click.echo("\n".join(lines(said)))
    if not said["equal"]:
        raise click.exceptions.Exit(DIFFERENT)


def _batches(checkpoint: Checkpoint, first: int | None) -> tuple[list[Planned], bool]:
    """The planned batches that can be compared, without gaps, from the one before `first`; and whether the
    last of them is done. Raises NoShadow, CheckpointUnreadable."""
    numbers = checkpoint.batches("offsets")
    completed = checkpoint.newest_completed()
    kept = [number for number in numbers if completed is not None and number <= completed + 1]
    kept = [number for number in kept if number >= (first or 1) - 1]
    if not kept:
        raise NoShadow(f"checkpoint {checkpoint.location} has no batch to compare yet: wait for one")
    return [checkpoint.planned(number) for number in kept], kept[-1] == completed


def _ends(cluster: Cluster, own: Offsets) -> Offsets:
    return list_offsets(cluster, dict.fromkeys(own, LATEST), committed=True)


def _behind(cluster: Cluster, sink: str, sequence: int, topic: str | None) -> int | None:
    runner = Runner(cluster, OWN_TIMEOUT_MS, decisions=topic or ANCHOR)
    decision = runner.run(observed_decision(Sink(sink)))
    return None if decision is None else decision.sequence - sequence
