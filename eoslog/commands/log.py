"""`eoslog log`: read and verify the files of a log, offline: of this broker or of Apache Kafka."""

from __future__ import annotations

import os

import click

from eoslog.commands.output import show_json, text_of


@click.group()
def command() -> None:
    """Read and verify the files of a log, without a broker."""


@command.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(exists=True))
@click.option("--print-data-log", is_flag=True, help="Print the records too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def dump(paths: tuple[str, ...], print_data_log: bool, as_json: bool) -> None:
    """Print batches of segments, and entries of indexes, snapshots and checkpoints."""
    from eoslog.commands.log_dump import entries

    failed = False
    for path in _files(paths):
        if not as_json:
            click.echo(f"Dumping {path}")
        try:
            for entry in entries(path, records=print_data_log):
                _print(entry, as_json)
                failed |= entry.get("isvalid") is False
        except (ValueError, OSError) as error:
            failed = True
            click.echo(f"Error: {path}: {error}", err=True)
    if failed:
        raise click.exceptions.Exit(1)


def _print(entry: dict[str, object], as_json: bool) -> None:
    if as_json:
        show_json(entry, indent=None)
        return
    indent = "| " if "offset" in entry and "batch" in entry else ""
    cells = (f"{name}: {_cell(value)}" for name, value in entry.items() if name not in ("batch", "file"))
    click.echo(indent + " ".join(cells))


def _cell(value: object) -> str:
    """A value as Kafka's tool writes it, where it has it."""
    return str(value).lower() if isinstance(value, bool) else text_of(value)


@command.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(exists=True))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def verify(paths: tuple[str, ...], as_json: bool) -> None:
    """Check every batch's CRC, the order of offsets, and what the indexes and snapshots say of them.

    A directory may be a partition's or a whole data directory. Exit status 1 if anything is wrong. After a
    crash a torn batch at the very end, and indexes that lag behind, are what the next start mends.
    """
    from eoslog.commands.log_verify import verify_all

    report = verify_all(paths)
    if as_json:
        show_json({"checked": report.counts, "findings": [vars(finding) for finding in report.findings]})
    else:
        for finding in report.findings:
            click.echo(f"{finding.path}, position {finding.position}: {finding.text}")
        click.echo(", ".join(f"{count} {what}" for what, count in report.counts.items()))
        click.echo(f"{len(report.findings)} findings" if report.findings else "all is well")
    if report.findings:
        raise click.exceptions.Exit(1)


def _files(paths: tuple[str, ...]) -> list[str]:
    """The files named, and the ones in directories and partitions' directories named, that can be read."""
    from eoslog.commands.log_dump import READABLE

    found = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        for place, _, names in sorted(os.walk(path)):
            found += [os.path.join(place, name) for name in sorted(names) if name.endswith(READABLE)]
    return found
