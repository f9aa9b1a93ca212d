"""`eoslog audit`: the command line of the audit.

Exit status: 0 the target is right, 1 it is not, 2 the audit could not be made.
"""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import click

from eoslog.audit.bounds import Bound, places, settled
from eoslog.audit.identity import Identity
from eoslog.audit.match import DigestsCollide
from eoslog.audit.progress import shown
from eoslog.audit.read import Way
from eoslog.audit.report import document, lines
from eoslog.audit.run import Job, Side, audit
from eoslog.commands.output import show_json
from eoslog.commands.session import client_config, in_our_terms
from eoslog.connector.client.wire.cluster import Cluster
from eoslog.connector.errors import EoslogError
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.decode import PayloadTooLarge
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.schema import ProtocolError

WRONG, NOT_AUDITED = 1, 2
_TOLD = (EoslogError, KafkaError, ProtocolError, CorruptBatch, PayloadTooLarge, DigestsCollide, OSError)
_BOUND = "earliest, latest, a time as 2026-11-21T10:00:00+01:00, or offsets as 0:1200,1:900"


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """Say the options of one side twice: for --from and for --to."""
    for side in ("to", "from"):
        for name, default, text in (("end", "latest", "end"), ("start", "earliest", "begin")):
            function = click.option(
                f"--{side}-{name}", default=default, show_default=True, metavar="WHERE",
                help=f"Where the --{side} topics {text}: {_BOUND}.",
            )(function)  # fmt: skip
        function = click.option(
            f"--{side}-command-config", metavar="FILE", help=f"As --command-config, for --{side} alone."
        )(function)
        function = click.option(
            f"--{side}-bootstrap-server",
            metavar="HOST:PORT,...",
            help=f"As --bootstrap-server, for --{side}.",
        )(function)
        function = click.option(
            f"--{side}", f"{side}_topics", multiple=True, required=True, metavar="TOPIC", help="Repeatable."
        )(function)
    return function


def _status(function: Callable[..., None]) -> Callable[..., None]:
    """Leave with NOT_AUDITED whatever goes wrong: status 1 says that the records are wrong."""

    @wraps(function)
    def told(**options: Any) -> None:
        try:
            function(**options)
        except click.ClickException as error:
            error.show()
            raise click.exceptions.Exit(NOT_AUDITED) from error
        except _TOLD as error:
            _give_up(f"Error: {in_our_terms(str(error))}")
        except KeyboardInterrupt:
            _give_up("interrupted: nothing was proven")
        except click.exceptions.Exit:
            raise
        except Exception:
            _give_up(traceback.format_exc())

    return told


def _give_up(text: str) -> None:
    click.echo(text, err=True)
    raise click.exceptions.Exit(NOT_AUDITED)


@click.command()
@_options
@click.option("--key", is_flag=True, help="Records are the same whose keys are.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME", help="... whose header NAME is; repeatable."
)
@click.option("--content", is_flag=True, help="... whose key and value are; the default.")
@click.option("--all-headers", is_flag=True, help="With --content: and all their headers.")
@click.option(
    "--order", type=click.Choice(["partition", "key", "none"]), default="partition", show_default=True,
    help="Among which records order is kept: all of a partition, or those of the same key.",
)  # fmt: skip
@click.option(
    "--grace", type=click.FloatRange(0), metavar="SECONDS",
    help="Younger records of --from may still be on their way, and are not called lost.",
)  # fmt: skip
@click.option("--allow-foreign", is_flag=True, help="The target may have records of others, too.")
@click.option("--read-uncommitted", is_flag=True, help="Also records of open and aborted transactions.")
@click.option(
    "--show", type=click.IntRange(0), default=20, show_default=True, help="List so many of each kind."
)
@click.option(
    "--temp-dir", type=click.Path(exists=True, file_okay=False, writable=True),
    help="Where to keep some 100 bytes a record while it runs.  [default: the system's]",
)  # fmt: skip
@click.option("--bootstrap-server", "addresses", metavar="HOST:PORT,...",
              help="Brokers of both sides.  [default: 127.0.0.1:9092]")  # fmt: skip
@click.option("--command-config", metavar="FILE", help="Properties of Kafka's clients, for TLS and SASL too.")
@click.option("--timeout", type=click.FloatRange(0.1), default=30.0, show_default=True, metavar="SECONDS",
              help="How long to go on trying.")  # fmt: skip
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_status
def command(addresses: str | None, command_config: str | None, timeout: float, **options: Any) -> None:
    """Prove that each record of --from stands in --to exactly once, and in order.

    Exit status: 0 it does, 1 it does not, 2 that could not be found out.
    """
    identity = _identity(options)
    way = Way(identity, by_key=options["order"] == "key", committed=not options["read_uncommitted"])
    with ExitStack() as stack:
        source, target, until = _sides(stack, addresses, command_config, timeout, options)
        directory = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="eoslog-audit-", dir=options["temp_dir"])
        )
        job = Job(way, options["order"] != "none", Path(directory), until, options["show"])
        with shown() as watch:
            findings = audit(source, target, job, watch)
    report = document(
        findings, len(source.places),
        compared=str(identity), order=options["order"], allow_foreign=options["allow_foreign"],
    )  # fmt: skip
    if options["output"] == "json":
        show_json(report)
    else:
        click.echo("\n".join(lines(report)))
    if not report["right"]:
        raise click.exceptions.Exit(WRONG)


def _identity(options: dict[str, Any]) -> Identity:
    named = options["key"] or bool(options["headers"])
    if named and (options["content"] or options["all_headers"]):
        raise click.UsageError("give either --key and --header, or --content and --all-headers")
    return Identity(options["key"], options["headers"], not named, options["all_headers"])


def _sides(
    stack: ExitStack, addresses: str | None, config: str | None, timeout: float, options: dict[str, Any]
) -> tuple[Side, Side, list[int]]:
    """Both sides as they are now, and where in each place of the source the grace begins.

    The target's end is taken first: what stands before it was in the source before that, and so stands
    before the source's end, which is taken later.
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
        sides[side] = Side(cluster, found)
    source, target = sides["from"], sides["to"]
    _check_apart(source, target)
    if options["grace"] is None:
        return source, target, [place.end for place in source.places]
    until = settled(source.cluster, source.places, int(now_ms - options["grace"] * 1000))
    return source, target, until


def _check_apart(source: Side, target: Side) -> None:
    both = {place.topic for place in source.places} & {place.topic for place in target.places}
    if both and source.cluster.cluster_id == target.cluster.cluster_id:
        raise click.UsageError(
            f"topic {min(both)} is on both sides: --from and --to have to be different topics"
        )
