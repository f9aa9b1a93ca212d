"""`eoslog shadow`: the command line.

Exit status of `report`: 0 both versions have written the same, 1 they have not, 2 that cannot be found out.
Of `take-over`: 0 the shadow has taken over, 1 nothing was changed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import pyarrow as pa

from eoslog.audit.identity import Identity
from eoslog.checkpoint.standing import Standing, check_rests, standing
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.output import shown
from eoslog.commands.session import CommandSession, cluster_command, judging
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.shadow_check import ANEW, decided_in, forgotten, is_later
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.commit import leave_sink
from eoslog.connector.commit.decision import ANCHOR, Decision
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import Offsets, ShadowCut
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.shadow.compare import (
    COLUMNS,
    NoShadow,
    ShadowComparison,
    Step,
    compare,
    cut_of,
    document,
    elsewhere,
    lines,
    planned_without_cut,
    rows,
    steps,
)
from eoslog.shadow.live import WAIT_SECONDS, How, LiveTakeOver, TakenPlace
from eoslog.shadow.take_over import (
    MOST_LEFT,
    LeftRows,
    TakeOverPoint,
    carry_out_take_over,
    check_equal,
    check_settled,
    check_topic,
    left_rows,
    take_over_point,
)

DIFFERENT = 1
WATCH_SECONDS = 2.0


@click.group()
def command() -> None:
    """Compare a new version of a query, a shadow, with the running one; let it take over."""


def comparing(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a comparison."""
    for option in (
        click.option("--temp-dir", type=click.Path(exists=True, file_okay=False, writable=True),
                     help="Where to store some 32 bytes a row while it runs.  [default: the system's]"),
        click.option("--decision-topic", metavar="TOPIC",
                     help="The running query's option decision.topic, if it has one."),
        click.option("--all-headers", is_flag=True, help="Equal rows have the same headers, too."),
        click.option("--key", is_flag=True,
                     help="Rows with the same key are equal; the values may differ."),
        click.option("--from-batch", type=click.IntRange(0), metavar="N", help="Leave out earlier batches."),
    ):  # fmt: skip
        function = option(function)
    return function


@command.command()
@click.argument("checkpoint")
@comparing
@click.option(
    "--show",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Differing rows to list of each step.",
)
@judging
@cluster_command
def report(session: CommandSession, checkpoint: str, show: int, **options: Any) -> None:
    """Compare batch by batch what the shadow with this CHECKPOINT and the running query have written.

    Exit status: 0 both have written the same, 1 they have not, 2 that could not be found out.
    """
    found = _compared(session.cluster, checkpoint, options, show)
    now = _decided(session.cluster, found.last.sink, options["decision_topic"])
    behind = None if now is None else now.sequence - found.last.sequence
    if (
        now is not None
        and found.last.decided not in (None, decided_in(now))
        and not is_later(found.last, now)
    ):
        raise NoShadow(f"{forgotten(found.last.sink, now)}. Begin its shadow anew, {ANEW}")
    said = document(
        found.steps, found.comparison, found.comparison.examples(session.cluster),
        sink=found.last.sink, compared=str(found.identity), behind=behind,
        others=elsewhere(() if now is None else now.topics, found.steps),
    )  # fmt: skip
    if session.as_json:
        session.show_json(said)
    else:
        session.show(rows(said), COLUMNS)
        click.echo("\n".join(lines(said)))
    if not said["equal"]:
        raise click.exceptions.Exit(DIFFERENT)


@command.command("take-over")
@click.argument("checkpoint")
@comparing
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--live", is_flag=True, help="While both run; the shadow goes on in the running query's place.")
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=WAIT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="With --live: how long to wait until both stand at the same batch.",
)
@click.option("--fence", is_flag=True, help="Take the shadow's sink from it, if it runs: it stops.")
@click.option("--watch", type=click.FloatRange(0), default=WATCH_SECONDS, show_default=True,
              metavar="SECONDS", help="How long to look whether the shadow runs.")  # fmt: skip
@cluster_command
def take_over(
    session: CommandSession,
    checkpoint: str,
    dry_run: bool,
    live: bool,
    wait: float,
    fence: bool,
    watch: float,
    **options: Any,
) -> None:
    """Let the shadow with this CHECKPOINT take the running query's place, with the state that it has.

    It has to end where the running query ends, and to have written the same. Stop both first, or give --live.
    """
    cluster = session.cluster
    if live:
        if dry_run or fence:
            raise click.UsageError("--live takes over while both run: leave --dry-run and --fence out")
        how = How(_identity(options), options["from_batch"], options["temp_dir"], wait)
        pa.set_memory_pool(pa.system_memory_pool())  # as in eoslog audit: it gives memory back
        taken = LiveTakeOver(cluster, checkpoint, options["decision_topic"] or ANCHOR, how).carry_out()
        _tell_live(session, taken)
        return
    shadow = standing(cluster, Checkpoint.at(checkpoint))
    place = take_over_point(cluster, shadow, options["decision_topic"] or ANCHOR)
    if not (fence or dry_run or place.is_taken):
        check_rests(cluster, shadow, watch)
    if fence and not (dry_run or place.is_taken):
        _fence(cluster, shadow)
    left = None if place.is_taken else _left(cluster, checkpoint, place, options)
    if not dry_run:
        carry_out_take_over(cluster, shadow, place, left)
    _tell(session, place, 0 if left is None else len(left.rows), done=not dry_run)


def _tell_live(session: CommandSession, taken: TakenPlace) -> None:
    if session.as_json:
        names = {"transactional.id": taken.sink, "kafka.group.id": taken.group}
        document = {"done": True, "batch": taken.batch, "decision": taken.decision, "rows": taken.rows}
        session.show_json(document | {"options": names})
        return
    session.say(
        f"done: {taken.rows:,} rows that the shadow alone has written were added, and from batch "
        f"{taken.batch + 1} on it writes as transactional.id={taken.sink}, kafka.group.id={taken.group}. "
        "The old version stops at its next batch"
    )


def _identity(options: Mapping[str, Any]) -> Identity:
    if options["key"] and options["all_headers"]:
        raise click.UsageError("give either --key or --all-headers")
    return Identity(key=options["key"], content=not options["key"], all_headers=options["all_headers"])


def _fence(cluster: Cluster, shadow: Standing) -> None:
    if shadow.sink is not None and shadow.note is not None:
        runner = Runner(cluster, OWN_TIMEOUT_MS, decisions=shadow.note.decisions)
        runner.run(leave_sink.fence(shadow.sink))


def _left(
    cluster: Cluster, location: str, place: TakeOverPoint, options: Mapping[str, Any]
) -> LeftRows | None:
    """What the shadow alone has written, if it may take over."""
    check_settled(cluster, place.cut)
    found = _compared(cluster, location, options, MOST_LEFT)
    check_topic(place, found.steps)
    check_equal(found.steps, found.comparison, by_key=options["key"])
    return left_rows(cluster, found.comparison, place.cut)


def _tell(session: CommandSession, place: TakeOverPoint, count: int, *, done: bool) -> None:
    names = {"transactional.id": place.cut.sink, "kafka.group.id": place.cut.group}
    if session.as_json:
        document = {"done": done, "batch": place.batch.batch_id, "decision": place.cut.sequence}
        session.show_json(document | {"rows": count, "options": names})
        return
    rows = f"{count:,} rows that the shadow alone has written"
    if not done:
        session.say(f"equal, but for {rows}: they would be written. Nothing was changed (--dry-run)")
        return
    given = ", ".join(f"{name}={value}" for name, value in names.items())
    session.say(
        f"done: {rows} were added. Now start the new version with this checkpoint, without shadow.of, into "
        f"the old one's topic, with {given}"
    )


class _Compared(NamedTuple):
    last: ShadowCut
    steps: list[Step]
    comparison: ShadowComparison
    identity: Identity


def _compared(cluster: Cluster, location: str, options: Mapping[str, Any], show: int) -> _Compared:
    """Compare what both versions have written."""
    identity = _identity(options)
    pa.set_memory_pool(pa.system_memory_pool())  # as in eoslog audit: it gives memory back
    batches, is_done = _batches(Checkpoint.at(location), options["from_batch"])
    last = cut_of(batches[-1])
    found = steps(batches, _ends(cluster, last.own) if is_done else None)
    if not found:
        raise NoShadow("the shadow has done no batch yet that can be compared: wait for one")
    with (
        tempfile.TemporaryDirectory(prefix="eoslog-shadow-", dir=options["temp_dir"]) as directory,
        shown() as watch,
    ):
        comparison = compare(cluster, found, identity, Path(directory), show, watch)
    return _Compared(last, found, comparison, identity)


def _batches(checkpoint: Checkpoint, first: int | None) -> tuple[list[Planned], bool]:
    """The planned batches that can be compared, without gaps, from the one before `first`; and whether the
    last of them is done. Raises NoShadow, CheckpointUnreadable."""
    numbers = checkpoint.batches("offsets")
    completed = checkpoint.newest_completed()
    kept = [number for number in numbers if completed is not None and number <= completed + 1]
    if kept and kept[-1] != completed and planned_without_cut(checkpoint.planned(kept[-1])):
        kept.pop()
    kept = [number for number in kept if number >= (first or 1) - 1]
    if not kept:
        raise NoShadow(f"checkpoint {checkpoint.location} has no batch to compare yet: wait for one")
    return [checkpoint.planned(number) for number in kept], kept[-1] == completed


def _ends(cluster: Cluster, own: Offsets) -> Offsets:
    return list_offsets(cluster, dict.fromkeys(own, LATEST), committed=True)


def _decided(cluster: Cluster, sink: str, topic: str | None) -> Decision | None:
    runner = Runner(cluster, OWN_TIMEOUT_MS, decisions=topic or ANCHOR)
    return runner.run(observed_decision(Sink(sink)))
