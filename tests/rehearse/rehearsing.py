"""Runs `eoslog rehearse` as a test's program would, and reads its document."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from eoslog.cli import main


def rehearse(bootstrap: str, *more: str) -> Result:
    return CliRunner().invoke(main, ["rehearse", "--bootstrap-server", bootstrap, *more])


def document(bootstrap: str, *more: str) -> dict[str, Any]:
    """The JSON document, with the exit status as `status`."""
    result = rehearse(bootstrap, "--json", *more)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    found: dict[str, Any] = json.loads(result.stdout)
    return found | {"status": result.exit_code}


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    """Row -> verdict."""
    return {row["row"]: row["verdict"] for row in found["rows"]}


def not_holding(found: dict[str, Any]) -> dict[str, str]:
    """Row -> what was seen, of rows that fail or are unknown."""
    return {row["row"]: row["what"] for row in found["rows"] if row["verdict"] in ("fails", "unknown")}


def names_of(bootstrap: str) -> set[str]:
    """Topics and groups of the cluster."""
    found: set[str] = set()
    for kind, column in (("topics", "topic"), ("groups", "group")):
        result = CliRunner().invoke(main, [kind, "list", "--bootstrap-server", bootstrap, "--json"])
        assert result.exit_code == 0, result.output
        found |= {row[column] for row in json.loads(result.stdout)}
    return found
