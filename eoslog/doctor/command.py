"""`eoslog doctor`: what would slow queries down, or fail, with the settings and the environment given.

Exit status: 0 nothing would fail, 1 something would, 2 the command line is wrong.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from eoslog.commands.output import show_json
from eoslog.doctor.facts import of_defaults
from eoslog.doctor.rules import Finding, Weight, findings_of

_CONF = "spark-defaults.conf"


def _defaults(given: Path | None) -> Path | None:
    """The file that Spark would read, if there is one."""
    if given is not None:
        return given
    home = os.environ.get("SPARK_HOME")
    folders = [os.environ.get("SPARK_CONF_DIR"), home and f"{home}/conf"]
    return next((Path(one) / _CONF for one in folders if one and (Path(one) / _CONF).is_file()), None)


def _document(findings: list[Finding]) -> list[dict[str, str]]:
    return [{"weight": one.weight.name.lower(), "what": one.what, "do": one.do} for one in findings]


@click.command("doctor")
@click.option(
    "--defaults", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="A spark-defaults.conf. [default: that of SPARK_CONF_DIR or SPARK_HOME, if any]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(defaults: Path | None, as_json: bool) -> None:
    """Show what slows Spark down with eoslog, or would fail: Pythons, versions, settings.

    No session is started; for a running one use eoslog.doctor.examine(spark). Exit status 1 if something
    would fail.
    """
    path = _defaults(defaults)
    findings = findings_of(of_defaults(path.read_text() if path else "", os.environ))
    if as_json:
        show_json(_document(findings))
    else:
        click.echo(f"settings: {path or 'none'}")
        for finding in findings:
            click.echo(str(finding))
        click.echo(f"findings: {len(findings)}")
    raise SystemExit(any(finding.weight is Weight.FAILS for finding in findings))
