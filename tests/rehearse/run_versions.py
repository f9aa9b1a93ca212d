"""`make test-rehearse-versions`: eoslog rehearse on one version of Apache Kafka after another, by each
transaction protocol that a version has. Makes the table of docs/evidence.md from what it printed.

    python -m tests.rehearse.run_versions 3.9.1 4.0.0
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.docs.reader import ROOT
from tests.rehearse.rehearsing import document
from tests.scenarios.apache_kafka import ApacheKafka, kafka_on_zookeeper
from tests.versions.kafka_results import LEVELS, WITH_ZOOKEEPER, levels_of, with_level

PAGE = ROOT / "docs" / "evidence.md"
KEPT = Path(__file__).with_name("versions.json")
"""What the last run on each version printed."""
BEGIN, END = "<!-- versions: made by make test-rehearse-versions -->\n", "<!-- end of versions -->\n"
QUIET = ("replicas of new topics", "two-phase commit")
"""Notes that every single node of Apache Kafka gets; the page's second picture has them."""


class Node(NamedTuple):
    """A version and its transaction.version; "": it has none; or WITH_ZOOKEEPER."""

    version: str
    level: str


def nodes(versions: list[str]) -> list[Node]:
    """What to start."""
    return [Node(version, level) for version in versions for level in levels_of(version)]


def rehearsed(node: Node) -> dict[str, Any]:
    """The document of a rehearsal on a node of its own."""
    jars = ROOT / ".peers" / f"kafka-{node.version}"
    if node.level == WITH_ZOOKEEPER:
        with kafka_on_zookeeper({}, jars) as kafka:
            return document(kafka.bootstrap)
    formatting = (f"--feature=transaction.version={node.level}",) if node.level else ()
    with ApacheKafka({}, formatting, jars) as kafka:
        return document(kafka.bootstrap)


def told(found: dict[str, Any]) -> dict[str, Any]:
    """What the table has of a document."""
    rows = found["rows"]
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ("holds", "note")}
    late = next(row["what"] for row in rows if row["row"] == "aborted rows").rpartition(": ")[2]
    named = [
        f"{row['verdict']}: {row['row']}: {row['what']}"
        for row in rows
        if row["verdict"] != "holds" and row["row"] not in QUIET
    ]
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return {"status": found["status"], **counts, "late": late, "named": named, "day": day}


def table(kept: dict[str, dict[str, Any]]) -> str:
    """The table, with what is named below it."""
    lines = [
        "| version | transaction.version | exit status | rows | late rows of an aborted transaction | run |",
        "|---|---|---|---|---|---|",
    ]
    below = []
    for key, seen in sorted(kept.items(), key=lambda pair: _number(pair[0])):
        version, _, level = key.partition(" ")
        rows = f"{seen['holds']} hold, {seen['note']} to note"
        cells = (version, LEVELS[level], str(seen["status"]), rows, seen["late"], seen["day"])
        lines.append(f"| {' | '.join(cells)} |")
        name = version + with_level(level)
        below += [f"- {name}: {text}" for text in seen["named"]]
    return "\n".join(lines) + "\n" + ("\n" + "\n".join(below) + "\n" if below else "")


def _number(key: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", key)]


def put_into_page(text: str) -> None:
    """Write the table into docs/evidence.md."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}")


def main(versions: list[str]) -> int:
    kept: dict[str, dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for node in nodes(versions):
        found = rehearsed(node)
        kept[f"{node.version} {node.level}".strip()] = seen = told(found)
        print(node, json.dumps(seen, indent=1), flush=True)
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        put_into_page(table(kept))
    return int(any(seen["status"] for seen in kept.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
