"""`eoslog checkpoint diff`: the command line."""

from __future__ import annotations

import click

from eoslog.checkpoint.compare import COLUMNS, compared, end_lines, lines, two_sides
from eoslog.commands import progress
from eoslog.commands.session import CommandSession, cluster_command


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--read-uncommitted", is_flag=True,
              help="The query reads with kafka.isolation.level=read_uncommitted.")  # fmt: skip
@cluster_command
def diff(session: CommandSession, a: str, b: str, read_uncommitted: bool) -> None:
    """Show two checkpoints side by side, and the rows between where their queries stand.

    B is another checkpoint, or a backup of A as edit-0001: A as it was before that edit.
    """
    sides = two_sides(session.cluster, a, b)
    with progress.shown() as watch:
        document = compared(session.cluster, *sides, watch, committed=not read_uncommitted)
    if session.as_json:
        session.show_json(document)
        return
    click.echo("\n".join(lines(document)))
    session.show(document["partitions"], COLUMNS)
    click.echo("\n".join(end_lines(document)))
