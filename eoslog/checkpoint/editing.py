"""What all edits on the command line share: their options, whether the query may be edited, and the price."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from eoslog.checkpoint import carry_out
from eoslog.checkpoint.backups import Backup, interrupted
from eoslog.checkpoint.checks import stops
from eoslog.checkpoint.edits import Edit
from eoslog.checkpoint.errors import NotEditable
from eoslog.checkpoint.foretell import Fate, Foretold, foretell, stretches
from eoslog.checkpoint.report import foretold_lines
from eoslog.checkpoint.running import check_rests
from eoslog.checkpoint.standing import SourcePlace, Standing, places, position_of, standing
from eoslog.commands import progress
from eoslog.commands.session import CommandSession
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.commit.faults import RowsGone

WATCH_SECONDS = 2.0


def editing(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every edit of a checkpoint."""
    option = click.option("--accept-loss", type=click.IntRange(0), default=0, metavar="N",
                          help="At most so many rows may never appear.")  # fmt: skip
    return option(doubling(function))


def resting(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of an edit of a query that has to rest."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Only say what would happen."),
        click.option("--fence", is_flag=True, help="Take the sink from a query that runs: it stops."),
        click.option("--watch", type=click.FloatRange(0), default=WATCH_SECONDS, show_default=True,
                     metavar="SECONDS", help="How long to look whether the query runs."),
    ):  # fmt: skip
        function = option(function)
    return function


def doubling(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of an edit that makes no row disappear."""
    for option in (
        click.option("--read-uncommitted", is_flag=True,
                     help="The query reads with kafka.isolation.level=read_uncommitted."),
        click.option("--accept-duplicates", type=click.IntRange(0), default=0, metavar="N",
                     help="At most so many rows may appear twice."),
    ):  # fmt: skip
        function = option(function)
    return resting(function)


def editable(session: CommandSession, checkpoint: str, *, forked: bool = False) -> Standing:
    """Where the query stands, if it may be edited, or `forked`. Raises NotEditable."""
    found = uninterrupted(session, checkpoint)
    position_of(found)
    if not forked:
        _check_newest(found)
    faults = stops(session.cluster, found, forked=forked)
    wrong = [one for one in faults if not one.startswith(RowsGone.__name__)]
    if wrong:
        raise NotEditable(f"the next start would stop, so no edit is safe: {wrong[0]}")
    return found


def _check_newest(found: Standing) -> None:
    """Raise NotEditable if the sink has decided a batch that the checkpoint does not have: an edit would move
    that decision, and with it the query whose copy this may be."""
    decided, newest = found.decided, found.newest
    if decided is not None and newest is not None and decided.batch_id > newest.batch_id:
        raise NotEditable(
            f"the sink has decided {decided}, and the checkpoint has batch {newest.batch_id} as its newest: "
            "it is an older copy, or a power cut has taken its last files. Bring the right checkpoint back; "
            "or write them again: eoslog checkpoint rebuild. If this copy is to be a query of its own: "
            "eoslog checkpoint fork"
        )


def uninterrupted(session: CommandSession, checkpoint: str) -> Standing:
    """Where the query stands, if no edit was interrupted. Raises NotEditable."""
    found = standing(session.cluster, Checkpoint.at(checkpoint))
    last = interrupted(found)
    if last is not None:
        raise NotEditable(
            f"the edit {last.name} ({last.kind}) was interrupted. Take it back first: eoslog checkpoint undo"
        )
    return found


def pay_and_carry_out(
    session: CommandSession,
    found: Standing,
    edit: Edit,
    how: Mapping[str, Any],
    begins: Mapping[SourcePlace, int] | None = None,
) -> None:
    """Foretell the edit, and carry it out if its price is accepted. `begins`: where partitions begin that the
    query does not read yet."""
    stands = {**(begins or {}), **places(position_of(found))}
    with progress.shown() as watch:
        moves = stretches(stands, places(edit.end))
        foretold = foretell(session.cluster, moves, watch, committed=not how["read_uncommitted"])
    if edit.before == edit.after:
        raise NotEditable("nothing was changed: the query stands there already")
    document = {"edit": edit.kind, "foretold": foretold.document()}
    if not may_go_on(session, found, foretold, document, how):
        return
    backup = carry_out.carry_out(session.cluster, found, edit)
    tell(session, document | {"done": True, "backup": backup.name}, done(backup))


def may_go_on(
    session: CommandSession,
    found: Standing,
    foretold: Foretold,
    document: dict[str, Any],
    how: Mapping[str, Any],
    *beside: str,
) -> bool:
    """Say what is foretold, and the lines `beside` it; False if that is all that was asked for (--dry-run).
    Raises ClickException if its price is not accepted, NotEditable if the query runs."""
    if not session.as_json:
        click.echo("\n".join([*foretold_lines(foretold), *beside]))
    if how["dry_run"]:
        tell(session, document | {"done": False}, "nothing was changed (--dry-run)")
        return False
    _check_accepted(session, foretold, document, how)
    if not how["fence"]:
        check_rests(session.cluster, found, how["watch"])
    return True


def _check_accepted(
    session: CommandSession, foretold: Foretold, document: dict[str, Any], how: Mapping[str, Any]
) -> None:
    """Refuse unless the user has accepted so many rows."""
    twice, never = foretold.rows(Fate.TWICE), foretold.rows(Fate.NEVER)
    needed = [f"--accept-duplicates {twice}"] if twice > how.get("accept_duplicates", 0) else []
    needed += [f"--accept-loss {never}"] if never > how.get("accept_loss", 0) else []
    if needed:
        if session.as_json:
            session.show_json(document | {"done": False})
        raise click.ClickException(f"nothing was changed. If that is what you want, give {' '.join(needed)}")


def done(backup: Backup) -> str:
    """What is said of an edit that is carried out."""
    return f"done; the backup is {backup.name}. To take it back before the next start: eoslog checkpoint undo"


def tell(session: CommandSession, document: dict[str, Any], text: str) -> None:
    """Print the document with --json, else the text."""
    if session.as_json:
        session.show_json(document)
    else:
        click.echo(text)
