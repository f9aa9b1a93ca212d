"""`eoslog audit TOPIC --to parquet:PATH`: what the command does if --to names a table."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from eoslog.audit.bounds import Bound, places, settled
from eoslog.audit.lines import Lines
from eoslog.audit.read import ReadSettings
from eoslog.audit.run import AuditedCluster, Job, audit
from eoslog.audit.table.columns import Columns
from eoslog.audit.table.files import BadTable, Table
from eoslog.audit.table.location import Location
from eoslog.audit.table_contents import AuditedTable, identity_of
from eoslog.audit.table_report import content_document, document
from eoslog.audit.table_run import TableJob, audit_table
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.progress import shown
from eoslog.commands.session import client_config, pairs

_OF_TOPICS = {
    "to_start": "--to-start", "to_end": "--to-end", "to_bootstrap_server": "--to-bootstrap-server",
    "to_command_config": "--to-command-config", "order": "--order", "headers": "--header",
    "all_headers": "--all-headers", "read_uncommitted": "--read-uncommitted",
}  # fmt: skip
"""Options that say nothing about a table."""


def audited(
    location: Location, addresses: str | None, config: str | None, timeout: float, options: dict[str, Any],
    is_given: Callable[[str], bool],
) -> Any:  # fmt: skip
    """The report of one audit of a table.

    The table's version is read first: a row of it was in the topic even earlier, so it is before the topic's
    end, which is read later. Raises click.UsageError, BadBound, BadTable, and what reading raises.
    """
    wrong = [name for option, name in _OF_TOPICS.items() if is_given(option)]
    if wrong:
        raise click.UsageError(f"{', '.join(wrong)}: only for topics, but --to {location} is a table")
    by_contents = options["key"] or options["content"]
    if options["key"] and options["content"]:
        raise click.UsageError("give either --key or --content")
    now_ms = time.time() * 1000
    named = pairs(options["columns"], "--column")
    table = location.open()
    columns = _columns(table, named)
    if not by_contents:
        _check_places(table, columns, list(dict.fromkeys(options["from_topics"])))
    start = Bound.parse("--from-start", options["from_start"])
    end = Bound.parse("--from-end", options["from_end"])
    own = client_config(
        options["from_bootstrap_server"] or addresses, options["from_command_config"] or config, timeout
    )
    with (
        Cluster(own) as cluster,
        tempfile.TemporaryDirectory(prefix="eoslog-audit-", dir=options["temp_dir"]) as directory,
    ):
        source = AuditedCluster(cluster, places(cluster, options["from_topics"], start, end, committed=True))
        late = [place.end for place in source.places]
        if options["grace"] is not None:
            late = settled(cluster, source.places, int(now_ms - options["grace"] * 1000))
        if by_contents:
            return _audit_contents(source, AuditedTable(table, columns), Path(directory), late, options)
        lines = Lines(
            source.places,
            from_start=options["from_start"] == "earliest",
            to_end=options["from_end"] == "latest",
        )
        job = TableJob(columns, lines, Path(directory), late, options["show"])
        with shown() as watch:
            findings = audit_table(source, table, job, watch)
    return document(findings, table.version, columns, allow_foreign=options["allow_foreign"])


def _audit_contents(
    source: AuditedCluster, target: AuditedTable, directory: Path, late: list[int], options: dict[str, Any]
) -> Any:
    """The report of an audit by key or content."""
    version = target.table.version
    identity = identity_of(target.columns, version, key=options["key"])
    with shown() as watch:
        found = audit(
            source, target, Job(ReadSettings(identity), False, directory, late, options["show"]), watch
        )
    return content_document(
        found, len(source.places), version, target.columns, identity, allow_foreign=options["allow_foreign"]
    )


def _columns(table: Table, named: dict[str, str]) -> Columns:
    if not table.schema.names:
        raise BadTable(
            f"{table.version} has no files: nothing says what its columns are. Is this the table's folder?"
        )
    return Columns.of(table.schema, named)


def _check_places(table: Table, columns: Columns, topics: list[str]) -> None:
    if not columns.places:
        raise BadTable(
            f"{table.version} has no columns partition and offset, but {', '.join(table.schema.names)}: "
            "name them by --column partition=NAME --column offset=NAME, or compare by --content or --key"
        )
    if "topic" not in columns.names and len(topics) > 1:
        raise BadTable(
            f"{table.version} has no column topic, so its rows could be of any of {', '.join(topics)}: name "
            "it by --column topic=NAME, or audit one topic"
        )
