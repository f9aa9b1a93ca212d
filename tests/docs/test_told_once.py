"""Facts that pages told in different ways: each has one page, which a test or figures back."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.lines import Figure, Goal, Kind, Result
from benchmarks.report import Store, with_others
from benchmarks.run import KEPT, NAMES
from benchmarks.simulate import JSON
from eoslog.connector.options.table import TABLE
from eoslog.connector.spark.libraries import SPARK, numbers
from tests.docs.blocks import PAGES, ROOT

NUMBER = r"(?:\d[\d,]*|two|three|four|five|six|seven|eight|nine|ten)"
MADE = re.compile(r"<!-- (kafka|PySpark) versions -->.*?<!-- end of \1 versions -->", re.DOTALL)
"""Made from results by tests/versions."""

ONE_PAGE = {
    rf"\b{NUMBER}(?: or {NUMBER})? (?:more )?round trips|round trips \(\d+": "docs/exactly-once.md",
    r"milliseconds (?:apart|before those)|(?:for|within|these) milliseconds": "",
    r"\d passed": "",
    r"\d ms, with a light checkpoint": "",
}
"""What is said only there -> that page ("" for none). Round trips are counted by test_round_trips.py."""


def found(pattern: str) -> Iterator[tuple[str, str]]:
    """Each page that says it, and what it says."""
    for page in PAGES:
        for said in re.findall(pattern, MADE.sub("", page.read_text())):
            yield str(page.relative_to(ROOT)), said


@pytest.mark.parametrize("pattern", ONE_PAGE)
def test_a_fact_stands_on_one_page(pattern: str) -> None:
    page = ONE_PAGE[pattern]
    assert [(where, said) for where, said in found(pattern) if where != page] == []


@pytest.mark.parametrize(
    "said",
    [
        "its commit is 15 round trips",
        "9 or 10 round trips a micro-batch",
        "which costs three round trips",
        "some round trips (15, whatever its size)",
        "a part, for milliseconds",
        "a few milliseconds apart",
        "TV1, the crash table and the writer: 69 passed.",
        "eoslog 228 ms, with a light checkpoint 99",
    ],
)
def test_what_pages_said_would_be_found(said: str) -> None:
    assert any(re.search(pattern, said) for pattern in ONE_PAGE)


def test_for_how_long_a_part_is_seen_is_what_was_measured() -> None:
    page = " ".join((ROOT / "docs" / "exactly-once.md").read_text().split())
    found = json.loads(JSON.read_text())
    one, three = (
        [f"{measured[tasks]['in_part']:,.0f} ms" for tasks in ("10", "100", "1000")]
        for measured in (found[name]["measured"] for name in ("one Kafka node", "three Kafka nodes"))
    )
    assert f"on one node {one[0]} with 10 tasks, {one[1]} with 100, {one[2]} with 1,000" in page
    assert f"on three nodes {three[0]}, {three[1]} and {three[2]}" in page


ROUNDED_MS = 0.5
P50 = {
    "stream to noop": "a stream of 1,000 rows/s to noop, both on Apache Kafka",
    "200 rows of Spark to a topic": "200 rows of Spark to a topic, both on Apache Kafka",
    "stream to a topic": "a stream of 1,000 rows/s to a topic, both on Apache Kafka",
}
"""A line of the table of a small micro-batch -> what `make bench` calls it."""


@pytest.mark.parametrize("light", ["", ", light checkpoint"], ids=["default", "light"])
@pytest.mark.parametrize("line", P50)
def test_the_table_of_a_small_micro_batch_says_what_was_measured(line: str, light: str) -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text().partition("## A small micro-batch")[2]
    told = next(row for row in page.splitlines() if row.startswith(f"| {line}{light} |"))
    store = Store(ROOT / "docs" / "benchmarks.json")
    results = {one.work: one for one in store.results(["micro-batch", "micro-batch-light"])}
    figures = results[f"micro-batch p50{light}, {P50[line]}"].figures
    said = [int(cell) for cell in re.findall(r"\| (\d+) (?=\|)", told)]
    assert len(said) == len(figures)
    off = [abs(number - one.middle) for number, one in zip(said, figures, strict=True)]
    assert max(off) <= ROUNDED_MS, told


def one_line(work: str, kind: Kind, first: float, second: float) -> Result:
    figures = [Figure(name, [value], "-", "-") for name, value in (("ours", first), ("theirs", second))]
    return Result("line", work, "s", Goal(kind, 2), figures)


def test_what_another_pyspark_reaches_stands_beside_the_own(tmp_path: Path) -> None:
    """More is better of a ratio, and less of times."""
    store = Store(tmp_path / "kept.json")
    store.put("rows", [one_line("a copy", "ratio", 30, 10), one_line("its cost", "cost", 1, 2)], 0.1)
    store.put("batches", [one_line("a batch", "times", 10, 10)], 0.2)
    assert with_others(store, ["rows", "batches"]) == []
    store.put("rows", [one_line("a copy", "ratio", 27, 10)], 0.3, "4.0.5")
    store.put("batches", [one_line("a batch", "times", 20, 10)], 0.4, "4.1.4")
    *heads, table = with_others(store, ["rows", "batches"])
    assert [head.rpartition(": ")[2] for head in heads] == [
        "rows with PySpark 4.0.5 0.3.",
        "batches with PySpark 4.1.4 0.4.",
    ]
    assert table.splitlines()[2:] == [
        "| a copy | >= 2 | 3.00 | 2.70 (0.90) | - |",
        "| a batch | <= 2 times | 1.00 | - | 2.00 (0.50) |",
    ]
    assert [one.work for one in store.results(["rows", "batches"])] == ["a copy", "its cost", "a batch"]


def test_the_page_has_what_other_pysparks_reach() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert all(part in page for part in with_others(Store(KEPT), NAMES))


def test_the_table_of_extras_says_what_all_brings() -> None:
    """Extras above the line of `all` are in it, those below are not."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = dict(setup["options.extras_require"])
    page = (ROOT / "docs" / "installing.md").read_text()
    table = page.partition("| extra | for |")[2].partition("\n\n")[0]
    above, _, below = table.partition("| `eoslog[all]` |")
    in_all = re.sub(r"\s*eoslog\[(.*)\]", r"\1", extras["all"]).split(",")
    first = [re.findall(r"`eoslog\[([a-z-]+)\]`", part) for part in (above, below)]
    assert sorted(first[0]) == sorted(in_all)
    assert sorted(first[1]) == sorted(set(extras) - {*in_all, "all", "dev"})


SPARKS_VERSION = re.compile(
    r"Spark(?:'s)?[ (]{1,2}(\d+\.\d+)|spark-sql-kafka-0-10_2\.13:(\d+\.\d+)|in (\d\.\d) (?:to|and) \d\.\d"
)


def test_no_page_option_or_example_speaks_of_a_spark_that_eoslog_does_not_run_on() -> None:
    files = (*PAGES, *(ROOT / "examples").glob("*.py"))
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in files}
    texts |= {one.name: one.meaning for one in TABLE}
    said = {
        (where, "".join(match)) for where, text in texts.items() for match in SPARKS_VERSION.findall(text)
    }
    assert len({version for _, version in said}) > 1, "the pattern finds nothing any more"
    assert sorted(one for one in said if numbers(one[1]) < numbers(SPARK.oldest)) == []


def test_the_page_on_examples_says_which_scripts_lack_an_option() -> None:
    page = " ".join((ROOT / "docs" / "examples.md").read_text().split())
    scripts = {path.name: path.read_text() for path in (ROOT / "examples").glob("*.py")}
    asked = {name: text for name, text in scripts.items() if "ArgumentParser" in text}
    assert len(asked) > 5
    for option in ("--once", "--bootstrap"):
        lacking = sorted((name for name, text in asked.items() if f'"{option}"' not in text), reverse=True)
        assert f"All but {' and '.join(f'`{name}`' for name in lacking)} take `{option}`" in page


def test_the_readme_s_promise_names_its_limits() -> None:
    why = (ROOT / "README.md").read_text().partition("**Why.**")[2].partition("\n\n")[0]
    assert "exactly" in why and "(docs/limits.md)" in why and "no matter" not in why


def test_the_objections_name_their_source() -> None:
    first = (ROOT / "docs" / "objections.md").read_text().partition("\n## ")[0]
    assert "pull request" in first and "](https://github.com/apache/spark/pull/25618)" in first
