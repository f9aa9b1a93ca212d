"""`eoslog audit`: the command line of the audit.

Exit status: 0 the target is right, 1 it is not, 2 the audit failed.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from click.core import ParameterSource

from eoslog.audit.bounds import Bound, places, settled
from eoslog.audit.findings import OF_CONTENTS, OF_NEWEST, OF_PLACES, OF_TOPICS, Kinds
from eoslog.audit.identity import Deletes, Identity
from eoslog.audit.lines import Lines
from eoslog.audit.read import ReadSettings
from eoslog.audit.report import document, lines
from eoslog.audit.run import AuditedCluster, AuditedTable, Job, audit, audit_places, identity_of
from eoslog.audit.table.columns import Columns
from eoslog.audit.table.files import BadTable, Table
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.output import show_json, shown
from eoslog.commands.session import client_config, cluster_options, judging, pairs

WRONG = 1
_BOUND = "earliest, latest, a time as 2026-11-21T10:00:00+01:00, or offsets as 0:1200,1:900"
_FIRST, _SAME = ("from", "start"), "as for --from-start"

_OF_TOPICS = {
    "to_start": "--to-start", "to_end": "--to-end", "to_bootstrap_server": "--to-bootstrap-server",
    "to_command_config": "--to-command-config", "order": "--order", "headers": "--header",
    "all_headers": "--all-headers", "read_uncommitted": "--read-uncommitted",
}  # fmt: skip
"""Options that say nothing about a table."""
_FORMS = (
    "parquet:PATH, delta:PATH[@VERSION], iceberg:CATALOG.NAMESPACE.TABLE[@SNAPSHOT] or postgres:SCHEMA.TABLE"
)
_VERSIONED = re.compile(r"(?P<name>.+?)(?:@(?P<version>\d+))?")


@dataclass(frozen=True)
class Location:
    """A table by its format, name and version."""

    kind: str
    name: str
    version: int | None = None

    @classmethod
    def parse(cls, text: str) -> Location | None:
        """None if `text` names a topic: no topic has a colon. Raises BadTable."""
        kind, colon, name = text.partition(":")
        if not colon:
            return None
        if kind not in ("parquet", "delta", "iceberg", "postgres") or not name:
            raise BadTable(f"--to {text}: give a topic, or a table as {_FORMS}")
        found = _VERSIONED.fullmatch(name)
        if kind in ("parquet", "postgres") or found is None or found["version"] is None:
            return cls(kind, name)
        return cls(kind, found["name"], int(found["version"]))

    def open(self) -> Table:
        """The table as it is now. Raises BadTable, OSError."""
        if self.kind == "delta":
            from eoslog.audit.table.delta import DeltaFolder

            return DeltaFolder(self.name, self.version)
        if self.kind == "iceberg":
            from eoslog.audit.table.iceberg import IcebergTable

            return IcebergTable(self.name, self.version)
        if self.kind == "postgres":
            from eoslog.audit.table.postgres import PostgresTable

            return PostgresTable(self.name)
        from eoslog.audit.table.parquet import ParquetFolder

        return ParquetFolder(self.name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" + ("" if self.version is None else f"@{self.version}")


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of one side twice: for --from and for --to."""
    for side in ("to", "from"):
        for name, default, text in (("end", "latest", "end"), ("start", "earliest", "begin")):
            function = click.option(
                f"--{side}-{name}", default=default, show_default=True, metavar="WHERE",
                help=f"Where the --{side} topics {text}: {_BOUND if (side, name) == _FIRST else _SAME}.",
            )(function)  # fmt: skip
        function = click.option(
            f"--{side}-command-config", metavar="FILE", help=f"As --command-config, for --{side} alone."
        )(function)
        function = click.option(
            f"--{side}-bootstrap-server",
            metavar="HOST:PORT,...",
            help=f"As --bootstrap-server, for --{side} alone.",
        )(function)
    function = click.option(
        "--to", "to_topics", multiple=True, required=True, metavar="TOPIC",
        help=f"Repeatable; or a table: {_FORMS}.",
    )(function)  # fmt: skip
    function = click.option(
        "--from", "from_topics", multiple=True, metavar="TOPIC", help="As TOPIC; repeatable."
    )(function)
    return function


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@_options
@click.option("--key", is_flag=True, help="Records are the same if their key is; rows of a table too.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME", help="... if their header NAME is; repeatable."
)
@click.option("--content", is_flag=True, help="... if key and value are; the default of topics.")
@click.option("--all-headers", is_flag=True, help="With --content: all headers too.")
@click.option(
    "--order", type=click.Choice(["partition", "key", "none"]), default="partition", show_default=True,
    help="Check the order of a partition's records, or of those with the same key.",
)  # fmt: skip
@click.option(
    "--grace", type=click.FloatRange(0), metavar="SECONDS",
    help="Younger records of --from are not lost: they may be on their way.",
)  # fmt: skip
@click.option("--allow-foreign", is_flag=True, help="The target may have records from elsewhere, too.")
@click.option("--read-uncommitted", is_flag=True, help="Records of open and aborted transactions too.")
@click.option(
    "--show", type=click.IntRange(0), default=20, show_default=True, help="Findings of each kind to list."
)
@click.option(
    "--temp-dir", type=click.Path(exists=True, file_okay=False, writable=True),
    help="Where to store some 100 bytes a record while it runs.  [default: the system's]",
)  # fmt: skip
@cluster_options("Brokers of both sides.")
@click.option("--timeout", type=click.FloatRange(0.1), default=30.0, show_default=True, metavar="SECONDS",
              help="How long to keep trying.")  # fmt: skip
@click.option(
    "--column", "columns", multiple=True, metavar="PART=NAME",
    help="The table's column of a record's topic, partition, offset, key or value; PART= for none.  "
    "[default: the column of this name]",
)  # fmt: skip
@click.option(
    "--newest", is_flag=True,
    help="Records are changes: the table has the newest of each key, and none whose value is null.",
)  # fmt: skip
@click.option(
    "--deletes", metavar="FIELD=WORD,...",
    help="With --newest: nor one whose JSON has one of the words in FIELD; Debezium's are op=d.",
)  # fmt: skip
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="As --output json.")
@judging
def command(
    topics: tuple[str, ...], addresses: str | None, command_config: str | None, timeout: float, **options: Any
) -> None:
    """Prove that --to has each record of TOPIC exactly once, and in order.

    Exit status: 0 it does, 1 it does not, 2 the audit failed.
    """
    options["from_topics"] = (*topics, *options["from_topics"])
    if not options["from_topics"]:
        raise click.UsageError("give the topic to audit: eoslog audit TOPIC --to ...")
    # The system's allocator gives memory back between two batches: 45 MB less at the most, in no more time.
    pa.set_memory_pool(pa.system_memory_pool())
    table = _table(options["to_topics"])
    kinds: Kinds = OF_TOPICS
    if table is not None:
        by_place = OF_NEWEST if options["newest"] else OF_PLACES
        kinds = OF_CONTENTS if options["key"] or options["content"] else by_place
        report = _audited_table(table, addresses, command_config, timeout, options)
    else:
        report = _audited(addresses, command_config, timeout, options)
    if options["as_json"] or options["output"] == "json":
        show_json(report)
    else:
        click.echo("\n".join(lines(report, kinds)))
    if not report["right"]:
        raise click.exceptions.Exit(WRONG)


def _table(targets: tuple[str, ...]) -> Location | None:
    tables = [found for found in map(Location.parse, targets) if found is not None]
    if tables and len(targets) > 1:
        raise click.UsageError(f"--to {tables[0]} is a table: give no other --to")
    return tables[0] if tables else None


def _is_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def _audited(
    addresses: str | None, command_config: str | None, timeout: float, options: dict[str, Any]
) -> Any:
    """The report of an audit of topics."""
    for name, option in (("columns", "--column"), ("newest", "--newest")):
        if options[name]:
            raise click.UsageError(f"{option} is for tables: --to parquet:PATH")
    identity = _identity(options)
    way = ReadSettings(identity, by_key=options["order"] == "key", committed=not options["read_uncommitted"])
    with ExitStack() as stack:
        source, target, until = _sides(stack, addresses, command_config, timeout, options)
        directory = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="eoslog-audit-", dir=options["temp_dir"])
        )
        job = Job(Path(directory), until, options["show"])
        with shown() as watch:
            findings = audit(source, target, way, job, watch, in_order=options["order"] != "none")
    return document(
        findings,
        compared=str(identity),
        allow_foreign=options["allow_foreign"],
        heads={"order": options["order"]},
        counts={"order_not_checked": findings.loose},
    )


def _identity(options: dict[str, Any]) -> Identity:
    named = options["key"] or bool(options["headers"])
    if named and (options["content"] or options["all_headers"]):
        raise click.UsageError("give either --key and --header, or --content and --all-headers")
    return Identity(
        key=options["key"], headers=options["headers"], content=not named, all_headers=options["all_headers"]
    )


def _sides(
    stack: ExitStack, addresses: str | None, config: str | None, timeout: float, options: dict[str, Any]
) -> tuple[AuditedCluster, AuditedCluster, list[int]]:
    """Both sides as they are now, and the offset in each place of the source where the grace period begins.

    The target's end is read first: a record before it was in the source even earlier, so it is before the
    source's end, which is read later.
    """
    now_ms = time.time() * 1000
    bounds = {
        (side, end): Bound.parse(f"--{side}-{end}", options[f"{side}_{end}"])
        for side in ("from", "to")
        for end in ("start", "end")
    }
    sides = {}
    for side in ("to", "from"):
        own = client_config(
            options[f"{side}_bootstrap_server"] or addresses,
            options[f"{side}_command_config"] or config,
            timeout,
        )
        cluster = stack.enter_context(Cluster(own))
        found = places(
            cluster, options[f"{side}_topics"], bounds[side, "start"], bounds[side, "end"],
            committed=not options["read_uncommitted"],
        )  # fmt: skip
        sides[side] = AuditedCluster(cluster, found)
    source, target = sides["from"], sides["to"]
    _check_apart(source, target)
    if options["grace"] is None:
        return source, target, [place.end for place in source.places]
    until = settled(source.cluster, source.places, int(now_ms - options["grace"] * 1000))
    return source, target, until


def _check_apart(source: AuditedCluster, target: AuditedCluster) -> None:
    both = {place.topic for place in source.places} & {place.topic for place in target.places}
    if both and _is_one(source.cluster, target.cluster, min(both)):
        raise click.UsageError(
            f"topic {min(both)} is on both sides: --from and --to must be different topics"
        )


def _is_one(source: Cluster, target: Cluster, topic: str) -> bool:
    """Whether both are the same cluster. One that was restored from a copy has its original's id, and so may
    stand beside it: its brokers have other addresses, and its leaders other epochs."""
    if source.cluster_id != target.cluster_id:
        return False
    if {*source.known_addresses()} & {*target.known_addresses()}:
        return True
    theirs = target.describe(topic).epochs
    return any(theirs.get(partition) == epoch for partition, epoch in source.describe(topic).epochs.items())


def _audited_table(
    location: Location, addresses: str | None, config: str | None, timeout: float, options: dict[str, Any],
) -> Any:  # fmt: skip
    """The report of one audit of a table.

    The table's version is read first: a row of it was in the topic even earlier, so it is before the topic's
    end, which is read later. Raises click.UsageError, BadBound, BadTable, and what reading raises.
    """
    wrong = [name for option, name in _OF_TOPICS.items() if _is_given(option)]
    if wrong:
        raise click.UsageError(f"{', '.join(wrong)}: only for topics, but --to {location} is a table")
    by_contents = options["key"] or options["content"]
    if options["key"] and options["content"]:
        raise click.UsageError("give either --key or --content")
    deletes = _deletes(options)
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
        target, job = AuditedTable(table, columns), Job(Path(directory), late, options["show"])
        if by_contents:
            return _audited_contents(source, target, job, options)
        _check_partitions(table, columns, [place.partition for place in source.places])
        numbered = Lines(
            source.places,
            from_start=options["from_start"] == "earliest",
            to_end=options["from_end"] == "latest",
        )
        with shown() as watch:
            findings = audit_places(source, target, numbered, job, watch, deletes)
    rows = sum(findings.records[findings.sources :])
    return document(
        findings,
        compared=", ".join([*columns.placed, *columns.contents])
        + ("; of each key the newest" if options["newest"] else ""),
        allow_foreign=options["allow_foreign"],
        heads={"table": table.version, "identity": "place", "columns": dict(columns.names)},
        counts={"outside_of_bounds": findings.outside},
        pairs=rows if columns.contents else 0,
    )


def _audited_contents(source: AuditedCluster, target: AuditedTable, job: Job, options: dict[str, Any]) -> Any:
    """The report of an audit of a table by key or content."""
    version, columns = target.table.version, target.columns
    identity = identity_of(columns, version, key=options["key"])
    with shown() as watch:
        found = audit(source, target, ReadSettings(identity), job, watch, in_order=False)
    heads = {
        "table": version,
        "identity": "key" if identity.key else "content",
        "columns": {part: columns.names[part] for part in identity.contents},
    }
    return document(found, compared=str(identity), allow_foreign=options["allow_foreign"], heads=heads)


def _deletes(options: dict[str, Any]) -> Deletes | None:
    """None: all records count. Raises click.UsageError."""
    given = options["deletes"]
    if not options["newest"]:
        if given:
            raise click.UsageError("--deletes is for --newest")
        return None
    others = {"key": "--key", "content": "--content", "grace": "--grace", "from_end": "--from-end"}
    if wrong := [option for name, option in others.items() if _is_given(name)]:
        raise click.UsageError(
            f"{', '.join(wrong)}: not with --newest, which looks at all records up to the topic's end. Let "
            "the query come to it first"
        )
    ((field, words),) = pairs([given], "--deletes").items() if given else (("", ""),)
    return Deletes(field, tuple(words.split(",")))


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


def _check_partitions(table: Table, columns: Columns, partitions: list[int]) -> None:
    if "partition" not in columns.names and any(partitions):
        raise BadTable(
            f"{table.version} has no column partition, so its rows could be of any of the topic's: name it "
            "by --column partition=NAME, or compare by --content or --key"
        )
