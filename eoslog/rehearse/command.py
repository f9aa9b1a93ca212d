"""`eoslog rehearse`: the command line of the rehearsal.

Exit status: 0 all holds, 1 something does not, 2 something could not be found out or removed.
"""

from __future__ import annotations

import re
import secrets
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import click

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.commands.output import several, show_json
from eoslog.commands.session import client_config, cluster_options, in_our_terms, principal_of
from eoslog.connector.commit.decision import ANCHOR
from eoslog.errors import EoslogError
from eoslog.rehearse import kills
from eoslog.rehearse.limits import Query
from eoslog.rehearse.run import CleanUp, Rehearsal
from eoslog.rehearse.work import (
    ALL_HOLD,
    NOT_FOUND_OUT,
    PATIENCE_S,
    SOME_FAIL,
    Row,
    ScratchNames,
    Verdict,
    Work,
    exit_status,
    summary,
)

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXAMPLES = """
\b
EXAMPLES
  eoslog rehearse --bootstrap-server kafka:9092 --command-config client.properties
  eoslog rehearse --bootstrap-server kafka:9092 --batch-seconds 300 --downtime 86400 --topic orders
  eoslog rehearse --bootstrap-server hosted:9092 --decision-topic decisions
  eoslog rehearse --bootstrap-server test:9092 --crash ./power-cycle-the-test-node.sh
\b
EXIT STATUS
  0  all holds
  1  something does not hold; its row says what to do
  2  something could not be found out, or not be removed, or the command line is wrong
\b
FILES
  --command-config FILE has properties of Kafka's Java clients, as kafka-topics.sh takes them.
\b
SEE ALSO
  docs/rehearse.md, docs/cluster.md, eoslog acls suggest, eoslog doctor
"""


@click.command("rehearse", epilog=_EXAMPLES)
@cluster_options()
@click.option("--batch-seconds", type=click.FloatRange(0), default=60.0, show_default=True,
              metavar="SECONDS", help="How long a micro-batch takes, from first row to commit.")  # fmt: skip
@click.option("--downtime", type=click.FloatRange(0), default=600.0, show_default=True,
              metavar="SECONDS", help="How long the query may be down between two runs.")  # fmt: skip
@click.option("--topic", "topics", multiple=True, metavar="TOPIC",
              help="A topic of the query: its retention, replicas and rights are looked at, no records; "
              "repeatable.")  # fmt: skip
@click.option("--decision-topic", "decisions", default=ANCHOR, show_default=True, metavar="TOPIC",
              help="The query's option decision.topic. Offsets of its partitions are committed.")  # fmt: skip
@click.option("--crash", "crash_command", metavar="COMMAND",
              help="A shell command that kills brokers of a test cluster, or cuts their power, and starts "
              "them again; run once.  [default: no broker is crashed]")  # fmt: skip
@click.option("--principal", callback=principal_of, metavar="TYPE:NAME",
              help="Whom printed ACLs are for, as User:alice.  [default: "
              "the SASL user, the first part of a Kerberos principal, else User:ANONYMOUS]")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(0.1), default=30.0, show_default=True, metavar="SECONDS",
              help="How long to keep trying each request.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    addresses: str | None,
    command_config: str | None,
    batch_seconds: float,
    downtime: float,
    topics: tuple[str, ...],
    decisions: str,
    crash_command: str | None,
    principal: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Certify a cluster before you trust it with data.

    Runs eoslog's commit protocol against the cluster, without Spark, and kills the driver at every command.
    Says row by row what holds: API versions, rights, what readers see, fencing, retries, offsets, two-phase
    commit, time-outs, retention. Exit status 2 also says that something was not found out, or not removed.

    It writes, ends and deletes only new names that begin with eoslog-rehearsal-. It removes them at the end,
    also after a failure, Ctrl-C or SIGTERM.
    """
    try:
        config = client_config(addresses, command_config, timeout)
    except EoslogError as error:
        raise click.UsageError(in_our_terms(str(error))) from error
    query = Query(round(batch_seconds * 1000), round(downtime * 1000))
    names = ScratchNames(secrets.token_hex(6))
    if not as_json:
        click.echo(f"scratch names: {names.stem}.*")
    with _ended_by_signals():
        crashes = None if crash_command is None else lambda: kills.run_command(crash_command)
        with Cluster(config) as cluster:
            work = Work(cluster, names, min(PATIENCE_S, config.api_timeout_ms / 1000), decisions=decisions)
            who, address = principal or _principal(config), ",".join(f"{h}:{p}" for h, p in config.bootstrap)
            rehearsal = Rehearsal(work, lambda: Cluster(config), query, topics, who, address, crashes)
            done = _rehearse(config, rehearsal, as_json)
    ended = [one for one in done.rows if one.name == "rehearsal"]
    ended.append(_removed(done.clean_up))
    done.rows.append(ended[-1])
    if as_json:
        show_json(_document(names, done))
    else:
        for row in ended:
            _print(row)
        click.echo(f"rows: {summary(done.rows)}")
    raise SystemExit(exit_status(done.rows))


@dataclass
class _Done:
    """A rehearsal that is over, or interrupted, and cleaned up. `stops`: where drivers were killed."""

    rows: list[Row] = field(default_factory=list)
    clean_up: CleanUp = field(default_factory=CleanUp)
    stops: list[str] = field(default_factory=list)


def _rehearse(config: ClientConfig, rehearsal: Rehearsal, as_json: bool) -> _Done:
    """Print the rows as they come, unless `as_json`; and clean up in any case."""
    done = _Done()
    try:
        for row in rehearsal.rows():
            done.rows.append(row)
            if not as_json:
                _print(row)
    except KeyboardInterrupt:
        done.rows.append(Row("rehearsal", Verdict.UNKNOWN, "interrupted: nothing more was looked at"))
    except Exception:
        click.echo(traceback.format_exc(), err=True)
        done.rows.append(Row("rehearsal", Verdict.UNKNOWN, "a fault of its own ended it, see above"))
    finally:
        _clean(config, done.clean_up, rehearsal)
    done.stops = rehearsal.stops
    return done


def _clean(config: ClientConfig, clean_up: CleanUp, rehearsal: Rehearsal) -> None:
    """Remove what was made, on new connections: the old ones may have answers to come."""
    if not rehearsal.made:
        return
    try:
        with Cluster(config) as cluster:
            clean_up.run(cluster, rehearsal.work.names, rehearsal.made)
    except KeyboardInterrupt:
        names = rehearsal.work.names.name("*")
        clean_up.left += [f"{kind} {names}: interrupted" for kind in clean_up.to_do]


def _removed(clean_up: CleanUp) -> Row:
    """The row of the clean-up."""
    removed = ", ".join(several(number, kind) for kind, number in clean_up.removed.items())
    stay = f"; {clean_up.ids} transactional ids stay until they expire, nothing is open under them"
    what = f"removed {removed or 'nothing'}{stay if clean_up.ids else ''}"
    if not clean_up.left:
        return Row("clean-up", Verdict.HOLDS, what)
    do = tuple(f"not removed: {in_our_terms(text)}" for text in clean_up.left)
    return Row("clean-up", Verdict.UNKNOWN, what, do)


def _print(row: Row) -> None:
    for line in row.lines():
        click.echo(in_our_terms(line))


def _document(names: ScratchNames, done: _Done) -> dict[str, Any]:
    status = exit_status(done.rows)
    return {
        "verdict": {ALL_HOLD: "holds", SOME_FAIL: "does not hold", NOT_FOUND_OUT: "not found out"}[status],
        "scratch_names": f"{names.stem}.*",
        "rows": [row.document() for row in done.rows],
        "killed": done.stops,
        "removed": done.clean_up.removed,
        "left": done.clean_up.left,
        "transactional_ids_left": done.clean_up.ids,
    }


def _principal(config: ClientConfig) -> str:
    """Whom brokers take this client for. Of a Kerberos principal that is the first part, unless they have
    other sasl.kerberos.principal.to.local.rules than DEFAULT."""
    sasl = config.security.sasl
    user = sasl.user if sasl is not None else ""
    if sasl is not None and sasl.kerberos is not None:
        from eoslog.client.wire.kerberos import owner  # needs an extra

        user = re.split("[/@]", owner(sasl.kerberos))[0]
    return f"User:{user or 'ANONYMOUS'}"


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Within it, SIGTERM and SIGHUP interrupt as Ctrl-C does, so that scratch names are removed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
