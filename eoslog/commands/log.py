"""`eoslog log`: reads, verifies and repairs log files offline, of this broker or of Apache Kafka.

A repair makes files anew that are derived from the logs: indexes, snapshots, two of the checkpoints. It never
changes a log, so nothing can be lost. Each change is atomic, and durable before the next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

import click

from eoslog.broker.log import files
from eoslog.broker.log.data_dir import DataDirError
from eoslog.broker.ports import FileSystem, OsFileSystem
from eoslog.commands.log_files import READABLE, LogFinding, Report, entries
from eoslog.commands.log_places import LOCK, DataDirectory, data_directory_of, size_of, verify_all
from eoslog.commands.output import several, show_json, shown, text_of


@contextmanager
def locked(paths: Iterable[str]) -> Iterator[None]:
    """Hold the locks of the paths' data directories, as a broker does.

    Raises DataDirError if a broker is running, or a path is in no data directory of eoslog; OSError.
    """
    with ExitStack() as held:
        for path in sorted({os.path.realpath(data_directory_of(path)) for path in paths}):
            if not DataDirectory(path).ours:
                raise DataDirError(
                    f"{path} is no data directory of eoslog: --repair takes only these, and paths in them. "
                    "Nothing was changed"
                )
            try:
                held.callback(OsFileSystem().lock(os.path.join(path, LOCK)).close)
            except BlockingIOError:
                raise DataDirError(
                    f"data directory {path} is locked: a broker is running on it. Stop it, then repair. "
                    "Nothing was changed"
                ) from None
        yield


def repair(report: Report) -> None:
    """Repair each finding that has a fix. The directories are locked. Raises OSError."""
    fs, done = OsFileSystem(), set[str]()
    for number, finding in enumerate(report.findings):
        if finding.fix is not None:
            if finding.path not in done:
                _fix(fs, finding.path, finding.fix.content)
                done.add(finding.path)
            report.findings[number] = replace(finding, repaired=True)


def _fix(fs: FileSystem, path: str, content: bytes | None) -> None:
    if content is not None:
        files.write_whole(fs, path, content)
    elif fs.exists(path):
        fs.remove(path)
        fs.sync_dir(os.path.dirname(path))


def repair_note(finding: LogFinding) -> str:
    """What --repair does or did about a finding, to print after its text; "" if it cannot be repaired."""
    words = {
        "remove": "--repair removes the file",
        "rewrite": "--repair rewrites the file from the log",
        "removed": "repaired: the file was removed",
        "rewritten": "repaired: the file was rewritten from the log",
    }
    return f" ({words[finding.repair]})" if finding.repair else ""


@click.group()
def command() -> None:
    """Read and verify log files, without a broker."""


@command.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(exists=True))
@click.option("--print-data-log", is_flag=True, help="Print the records too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def dump(paths: tuple[str, ...], print_data_log: bool, as_json: bool) -> None:
    """Print batches of segments, and entries of indexes, snapshots and checkpoints."""
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
    """A value as Kafka's tool writes it, if that tool has it."""
    return str(value).lower() if isinstance(value, bool) else text_of(value)


@command.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(exists=True))
@click.option(
    "--repair", "fix", is_flag=True, help="Repair indexes, snapshots and checkpoints; no broker may run."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def verify(paths: tuple[str, ...], fix: bool, as_json: bool) -> None:
    """Read every batch, and compare the logs with all that a broker stores beside them.

    Checks CRCs, order and gaps of offsets, where logs begin and end, indexes, aborted transactions and
    snapshots. Give a partition's directory or a whole data directory. Writes of a running broker are no
    findings.

    --repair removes or rewrites wrong indexes, snapshots and checkpoints, never a log. Exit status 1 if
    anything is still wrong.
    """
    report = Report()
    try:
        with locked(paths) if fix else nullcontext(), shown(sizes=True, quiet=as_json) as watch:
            watch.begin("reading", size_of(paths))
            report.progress = watch.advance
            verify_all(paths, report, locked=fix)
            if fix:
                repair(report)
    except (DataDirError, OSError) as error:
        raise click.ClickException(str(error)) from error
    _print_report(report, as_json)
    if report.remaining:
        raise click.exceptions.Exit(1)


def _print_report(report: Report, as_json: bool) -> None:
    if as_json:
        findings = [finding.as_json() for finding in report.findings]
        show_json({"checked": report.counts, "running": report.running, "findings": findings})
        return
    for path in report.running:
        click.echo(f"a broker is running on {path}: its writes of the moment are left out")
    for finding in report.findings:
        click.echo(f"{finding.path}, position {finding.position}: {finding.text}{repair_note(finding)}")
    click.echo(", ".join(f"{count} {what}" for what, count in report.counts.items()))
    repaired = len(report.findings) - len(report.remaining)
    if repaired:
        click.echo(f"{several(repaired, 'finding')} repaired")
    click.echo(several(len(report.remaining), "finding") if report.remaining else "all is well")


def _files(paths: tuple[str, ...]) -> list[str]:
    """The readable files among those named, and in the directories named and the partitions' directories in
    them.
    """
    found = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        for place, _, names in sorted(os.walk(path)):
            found += [os.path.join(place, name) for name in sorted(names) if name.endswith(READABLE)]
    return found
