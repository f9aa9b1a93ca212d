"""Results of the suites on versions of Apache Kafka: kept in a file, shown as the table of docs/evidence.md.

Pure but for the two files.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
KEPT, PAGE = DOCS / "kafka-versions.json", DOCS / "evidence.md"
BEGIN, END = "<!-- kafka versions -->", "<!-- end of kafka versions -->"
SUITES = ("client", "source", "sink", "crash table", "copy")
WITH_ZOOKEEPER = "ZooKeeper"
LEVELS = {
    "": "none: older protocol",
    WITH_ZOOKEEPER: "none (ZooKeeper): older protocol",
    "1": "1: older protocol",
    "2": "2: KIP-890",
}
"""Level of the feature transaction.version -> how the table names it. Before 4.0 there is none to choose, but
ZooKeeper in place of KRaft."""


RELEASED = ("3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2", "4.3")
"""Apache Kafka's releases since the first that eoslog runs on."""

WHOLE = ""
"""Stands for all files of a suite, where they ran as one."""


@dataclass(frozen=True)
class Result:
    """One run of a file of one suite on one node, or of the WHOLE suite. `of`: how many files the suite had.
    `failed`: names of tests; `detail`: what the copy said."""

    version: str
    level: str
    suite: str
    date: str
    passed: int = 0
    skipped: int = 0
    failed: tuple[str, ...] = ()
    detail: str = ""
    file: str = WHOLE
    of: int = 1

    @property
    def place(self) -> tuple[str, str, str]:
        """The cell of the table."""
        return self.version, self.level, self.suite

    @property
    def key(self) -> tuple[str, str, str, str]:
        """A later result with the same key replaces this one."""
        return *self.place, self.file


def cell(results: Sequence[Result]) -> str:
    """What the table says about a suite's runs on one node. Nothing passed is no success, and what is missing
    is said."""
    if not results:
        return "not run"
    skipped = sum(result.skipped for result in results)
    failed = sum(len(result.failed) for result in results)
    passed = sum(result.passed for result in results)
    of = max(result.of for result in results)
    said = next((result.detail for result in results if result.detail), f"{passed} passed")
    said += f", {skipped} skipped" if skipped else ""
    if not passed and not failed:
        said = "**nothing ran**"
    said += f", **{failed} failed**" if failed else ""
    return said if len(results) >= of else f"{len(results)} of {of} files: {said}"


@dataclass
class Results:
    """All that is known, by version, level, suite and file."""

    found: dict[tuple[str, str, str, str], Result] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        """Keep a result in place of the earlier one. A file's also replaces one of the whole suite."""
        if result.file != WHOLE:
            self.found.pop((*result.place, WHOLE), None)
        self.found[result.key] = result

    def of_suite(self, version: str, level: str, suite: str) -> list[Result]:
        """What has run of a suite on such a node."""
        return [result for result in self.found.values() if result.place == (version, level, suite)]

    def missing(self, version: str, level: str, suite: str, files: Sequence[str]) -> list[str]:
        """The files without a result."""
        known = {result.file for result in self.of_suite(version, level, suite)}
        return [] if WHOLE in known else [file for file in files if file not in known]

    def failed(self, version: str, level: str, suite: str, files: Sequence[str]) -> list[str]:
        """The files in which a test has failed; all of them if the suite ran as one."""
        red = {result.file for result in self.of_suite(version, level, suite) if result.failed}
        return list(files) if WHOLE in red else [file for file in files if file in red]

    @classmethod
    def read(cls, path: Path = KEPT) -> Results:
        """What the file has; empty if there is none."""
        kept = json.loads(path.read_text()) if path.exists() else []
        return cls.of(Result(**entry | {"failed": tuple(entry["failed"])}) for entry in kept)

    @classmethod
    def of(cls, results: Iterable[Result]) -> Results:
        """These, the later ones in place of earlier ones with the same key."""
        return cls({result.key: result for result in results})

    def write(self, path: Path = KEPT) -> None:
        """Write the file."""
        entries = [json.dumps(asdict(result)) for _, result in sorted(self.found.items())]
        path.write_text("[\n" + ",\n".join(entries) + "\n]\n")  # a line each, for who reads the changes

    def table(self) -> str:
        """The table and what failed, as Markdown. What did not run is said."""
        nodes = sorted({key[:2] for key in self.found}, key=lambda node: (_number(node[0]), node[1]))
        lines = [
            "| Apache Kafka | `transaction.version` | " + " | ".join(SUITES) + " | run on |",
            "|---" * (len(SUITES) + 3) + "|",
            *(self._line(version, level) for version, level in nodes),
        ]
        failures = [
            f"- {r.version}{with_level(r.level)}, {r.suite}: `{name}`"
            for r in self.found.values()
            for name in r.failed
        ]
        ran = {".".join(version.split(".")[:2]) for version, _ in nodes}
        not_run = ", ".join(release for release in RELEASED if release not in ran)
        lines += ["", f"Not run on any: {not_run}."] if not_run else []
        return "\n".join([*lines, *(["", "Failed:", "", *sorted(failures)] if failures else [])])

    def _line(self, version: str, level: str) -> str:
        ran = [self.of_suite(version, level, suite) for suite in SUITES]
        cells = [cell(results) for results in ran]
        dates = sorted({result.date for results in ran for result in results})
        return f"| {version} | {LEVELS[level]} | " + " | ".join(cells) + f" | {', '.join(dates)} |"


def of_junit(path: Path) -> tuple[int, int, tuple[str, ...]]:
    """Passed, skipped, and the names of failed tests of pytest's report."""
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    marks = [{child.tag for child in case} for case in cases]
    failed = [case.attrib["name"] for case, seen in zip(cases, marks, strict=True) if seen & _WRONG]
    skipped = sum("skipped" in seen for seen in marks)
    return len(cases) - skipped - len(failed), skipped, tuple(failed)


def put_into_page(results: Results, page: Path = PAGE) -> None:
    """Replace the table of the page. Raises ValueError if the page has no place for it."""
    put_between(page, BEGIN, results.table(), END)


def put_between(page: Path, begin: str, text: str, end: str) -> None:
    """Replace what a page has between two of its lines. Raises ValueError if it lacks one of them."""
    before, began, rest = page.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not began or not ended:
        raise ValueError(f"{page}: no lines {begin} and {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def levels_of(version: str) -> Sequence[str]:
    """Levels of transaction.version that a node of this version can be formatted with; below 4.0 the nodes
    that there are."""
    return ("1", "2") if _number(version) >= (4,) else ("", WITH_ZOOKEEPER)


def environment(version: str, level: str) -> Mapping[str, str]:
    """What tells tests/connector/brokers.py to start such nodes."""
    node = {"EOSLOG_TEST_BROKER": "kafka", "EOSLOG_TEST_KAFKA": version}
    if level == WITH_ZOOKEEPER:
        return node | {"EOSLOG_TEST_ZOOKEEPER": "1", "EOSLOG_TEST_TRANSACTION_VERSION": "0"}
    return node | {"EOSLOG_TEST_TRANSACTION_VERSION": level or "0"}


def with_level(level: str) -> str:
    """The node's kind, as it follows its version in a sentence."""
    if level == WITH_ZOOKEEPER:
        return f" with {level}"
    return f" with transaction.version {level}" if level else ""


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


_WRONG = {"failure", "error"}
