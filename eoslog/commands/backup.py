"""`eoslog backup`: copies a broker's data directory so that a broker can start with the copy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from eoslog.commands.output import show_json


@click.command()
@click.argument("data", metavar="DATA", type=click.Path(exists=True, file_okay=False))
@click.argument("to", metavar="TO", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(data: str, to: str, as_json: bool) -> None:
    """Copy the data directory DATA to TO, which must not exist yet, and verify the copy.

    The broker may be running: the copy is what a power failure at one instant would have left, and a broker
    that starts with it continues from there. Exit status 1 if there is no copy, or something wrong in it.
    """
    from eoslog.broker.log.data_dir import DataDirError
    from eoslog.commands.backup_copy import NoBackup, copied, source
    from eoslog.commands.log_files import Report
    from eoslog.commands.log_places import size_of, verify_all

    report, bar = Report(), _bar if not as_json and sys.stderr.isatty() else _no_bar
    try:
        with source(data) as found, bar("copying", found.size) as progress:
            copied(found, to, progress)
        with bar("verifying", size_of([to])) as progress:
            report.progress = progress
            verify_all([to], report)
    except (NoBackup, DataDirError, OSError) as error:
        raise click.ClickException(str(error)) from error
    instant = datetime.fromtimestamp(found.now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    if as_json:
        findings = [finding.as_json() for finding in report.findings]
        show_json({"as_of": instant, "bytes": found.size, "verified": report.counts, "findings": findings})
    else:
        for finding in report.findings:
            click.echo(f"{finding.path}, position {finding.position}: {finding.text}")
        counts = report.counts
        click.echo(
            f"{to}: {counts['partitions']} partitions as of {instant}, {found.size} bytes copied; "
            f"{counts['batches']} batches verified, {len(report.findings)} findings"
        )
    if report.findings:
        raise click.exceptions.Exit(1)


@contextmanager
def _bar(label: str, size: int) -> Iterator[Callable[[int], None]]:
    with click.progressbar(length=size, label=label, file=sys.stderr, update_min_steps=1 << 20) as bar:
        yield bar.update


@contextmanager
def _no_bar(label: str, size: int) -> Iterator[Callable[[int], None]]:
    yield lambda done: None
