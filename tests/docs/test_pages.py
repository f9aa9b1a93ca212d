"""Pages are made from the code, tell each fact once, and make a site."""

from __future__ import annotations

import ast
import configparser
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml
from markdown_it import MarkdownIt
from setuptools import find_packages

import eoslog
from benchmarks.results import (
    BEGIN,
    END,
    LINES,
    Figure,
    Goal,
    Kind,
    Result,
    Store,
    chart,
    in_short,
    with_others,
)
from benchmarks.run import CHART, KEPT, NAMES
from benchmarks.run import PAGE as PAGE_OF_BENCHMARKS
from benchmarks.run import TABLES as BENCHMARK_TABLES
from benchmarks.simulate import JSON
from eoslog.broker import handlers
from eoslog.broker.config import option_table
from eoslog.broker.config.kafka_options import kafka_names
from eoslog.broker.config.topics import TOPIC_CONFIGS
from eoslog.broker.resources import GROUP_CONFIGS
from eoslog.cli import COMMANDS, main
from eoslog.connector.options.ignored_and_refused import FIXED, FORBIDDEN, NO_EFFECT
from eoslog.connector.options.parsing import read_value
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.table import ALIASES, SPARKS_OPTIONS, TABLE, Option, OptionType
from eoslog.connector.spark.libraries import SPARK, numbers
from eoslog.protocol.apis import APIS
from eoslog.version import __version__
from tests.docs.newcomer import HOME
from tests.docs.reader import PAGES, ROOT, all_blocks, blocks_of

# -- made from the code --------------------------------------------------------------------------
# The pages made from the code say what the code says.

DOCS = Path(__file__).parent.parent.parent / "docs"
NEWCOMER = "tests/docs/newcomer.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", DOCS / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pages"] = module  # dataclasses look there for the types of their fields
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    return load()


MADE_PAGES = (
    "apis.md",
    "commands.md",
    "connector-errors.md",
    "connector-options.md",
    "options.md",
    "python-api.md",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, made in a process of their own: a command remembers how a test has asked for its help."""
    folder = tmp_path_factory.mktemp("made")
    subprocess.run([sys.executable, "-m", "docs.pages", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("name", MADE_PAGES)
def test_a_page_is_what_would_be_written(made: Path, name: str) -> None:
    written = (DOCS / name).read_text()
    assert written == (made / name).read_text(), f"docs/{name} is old: run python -m docs.pages"


def test_every_page_that_is_made_is_compared(pages: ModuleType) -> None:
    assert {*pages.PAGES} == {*MADE_PAGES}


def test_the_page_has_every_command_of_the_command_line() -> None:
    page = (DOCS / "commands.md").read_text()
    for name in COMMANDS:
        assert f"\n## eoslog {name}\n" in page and f"(#eoslog-{name})" in page


def commands_below(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Each command that can be called, by all its words."""
    context = click.Context(group)
    for word in group.list_commands(context):
        found = group.get_command(context, word)
        if isinstance(found, click.Group):
            yield from commands_below(found, f"{name} {word}")
        elif found is not None:
            yield f"{name} {word}", found


def test_the_page_has_every_option_of_every_command_and_no_other() -> None:
    sections = re.split(r"(?m)^##+ `?(eoslog .*?)`?$", (DOCS / "commands.md").read_text())
    of_all = {*re.findall(r"(?m)^(--[a-z-]+)", sections[0])} | {"--bootstrap-servers"}
    told = dict(zip(sections[1::2], sections[2::2], strict=True))
    found = [*commands_below(main, "eoslog")]
    assert len(found) > 40
    for name, command in found:
        (section,) = (one for head, one in told.items() if f"{head} ".startswith(f"{name} "))
        group = told.get(name.rpartition(" ")[0], "")
        named = {*re.findall(r"(?m)^(--?[a-z-]+)(?:, (--[a-z-]+))?", section)}
        also = re.findall(r"(?m)^Also: (.*)$", section)
        own = {one for pair in named for one in pair if one}
        listed = {one for line in also for one in re.findall(r"--[a-z-]+", line)}
        if any(" above" in line for line in also):
            listed |= {*re.findall(r"(?m)^(--[a-z-]+)", group)}
        takes = {one for part in command.params for one in part.opts if isinstance(part, click.Option)}
        if takes >= of_all and not listed & of_all and not own & of_all:
            listed |= of_all
        assert listed <= takes and takes - {"--bootstrap-servers"} <= own | listed, name
        assert own <= takes, name


# What is public of Python: eoslog.__all__, and __all__ of the modules in it.


def public() -> dict[str, set[str]]:
    """Module -> its public names."""
    modules = [name for name in eoslog.__all__ if isinstance(_resolved(f"eoslog.{name}"), ModuleType)]
    return {"eoslog": {*eoslog.__all__}} | {
        f"eoslog.{name}": {*import_module(f"eoslog.{name}").__all__} for name in modules
    }


def test_what_is_public_is_there_documented_and_on_its_page() -> None:
    page = (DOCS / "python-api.md").read_text()
    assert len(public()) > 6
    for module, names in public().items():
        assert f"\n## {module}\n" in page
        for name in names - {"__version__"}:
            found = getattr(import_module(module), name)
            heading = f"`{name}`" if module == "eoslog.errors" else f"\n### {name}\n"
            assert isinstance(found, ModuleType) or heading in page, name
            assert (found.__doc__ or "").strip(), f"{module}.{name} has no docstring"


def test_pages_and_examples_import_what_is_public() -> None:
    files = (*PAGES, *(ROOT / "examples").rglob("*.py"))
    known, wrong = public(), set()
    for file in files:
        text = file.read_text()
        codes = [one.code for one in blocks_of(file) if one.language == "python"]
        for code in [text] if file.suffix == ".py" else codes:
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "eoslog":
                    names = {one.name for one in node.names}
                    if not names <= known.get(str(node.module), set()):
                        wrong.add((file.name, str(node.module)))
    assert not wrong


@pytest.mark.parametrize("module", handlers.ALL, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_handler_s_head_can_be_told(pages: ModuleType, module: ModuleType) -> None:
    head = pages.head_of(module)
    assert head.does.endswith(".")
    assert not head.rest or head.rest.endswith(".")


def _rows(page: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each row of a page's tables, and each point: the heading above it, the names that it begins with, all
    cells."""
    heading = ""
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith(("| `", "- `")):
            cells = line.strip("|- ").split(" | ") if line[0] == "|" else line[2:].split(": ", 1)
            yield heading, re.findall(r"`([^`]+)`", cells[0].partition("<br>")[0]), cells


def test_the_page_has_every_api() -> None:
    page = (DOCS / "apis.md").read_text()
    for module in handlers.ALL:
        assert f"\n## {APIS[module.KEY].name}\n" in page


def test_the_broker_s_page_has_every_option_and_config_once_and_no_other(pages: ModuleType) -> None:
    options, configs = [], []
    assert option_table().keys() >= pages.RARE
    effect = {name: line for name, line in TOPIC_CONFIGS.items() if not line.no_effect}
    for heading, names, cells in _rows((DOCS / "options.md").read_text()):
        if heading == "Configs of topics":
            configs += names
            option = cells[0].split("<br>")[1].strip("`")
            assert option == effect[names[0]].synonym
            options.append(option)
        elif heading == "Without effect":
            for name in names:  # an option that is called as its config stands there once
                lines = [one for one in TOPIC_CONFIGS.values() if name in (one.name, one.synonym)]
                meaning = "" if lines else option_table()[name].metadata["meaning"]
                why = lines[0].no_effect if lines else meaning.partition("; without effect: ")[2]
                assert why and cells[1] == pages._coded(why), name
                configs += [name] * (name in TOPIC_CONFIGS)
                options += [name] * (name in option_table())
        elif heading == "Configs of groups":
            configs += names
        elif heading != "Other names":
            assert (heading == "Rarely set") == (names[0] in pages.RARE), names
            options += names
    assert sorted(options) == sorted(option_table())
    assert sorted(configs) == sorted([*TOPIC_CONFIGS, *GROUP_CONFIGS])


_CONNECTORS_OTHERS: dict[str, Mapping[str, object]] = {
    "Other names": ALIASES,
    "As they are": FIXED,
    "Without effect": NO_EFFECT,
    "Refused": FORBIDDEN,
}
_NO_OPTIONS_THERE = ("Columns of the rows to write", "By version of PySpark")


def test_the_connector_s_page_has_every_option_once_and_no_other() -> None:
    told: dict[str, list[str]] = {}
    for heading, names, _ in _rows((DOCS / "connector-options.md").read_text()):
        told.setdefault(heading if heading in (*_CONNECTORS_OTHERS, *_NO_OPTIONS_THERE) else "", []).extend(
            names
        )
    assert sorted(told[""]) == sorted(one.name for one in TABLE)
    for heading, options in _CONNECTORS_OTHERS.items():
        assert sorted(told[heading]) == sorted(options), heading


def test_the_page_says_why_an_option_has_no_effect_or_is_refused(pages: ModuleType) -> None:
    said = {
        name: cells[1]
        for heading, names, cells in _rows((DOCS / "connector-options.md").read_text())
        if heading in ("Without effect", "Refused")
        for name in names
    }
    assert said == {name: pages._coded(why) for name, why in {**NO_EFFECT, **FORBIDDEN}.items()}


def test_the_page_says_of_each_option_whether_spark_s_connector_has_it(pages: ModuleType) -> None:
    rows = [*_rows((DOCS / "connector-options.md").read_text())]
    ours = {name for heading, names, _ in rows if heading.endswith(pages.NOT_IN_SPARK) for name in names}
    kafkas = {*pages.kafkas_options(), *SPARKS_OPTIONS}
    unknown = {one.name for one in TABLE} - kafkas - {"path", "checkpointLocation", "queryName"}
    later = {one.name for one in TABLE if one.later}
    assert ours == unknown | later
    assert later and later <= kafkas and not later & set(SPARKS_OPTIONS)
    assert "decision.topic" in unknown and "kafka.group.id" not in unknown


def test_a_default_can_be_typed_as_the_page_shows_it(pages: ModuleType) -> None:
    for one in TABLE:
        below = pages._connector_option(one).partition("<br>")[2].partition(" | ")[0]
        bold = re.search(r"\*\*(.+)\*\*", below)
        shown = bold[1] if bold else below.partition(" = ")[2]
        if one.default not in (None, "") and one.kind is not OptionType.TEXT:
            assert read_value(one, shown) == one.default, one.name


UNSET = {
    **{
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "topic": "t",
        "transactional.id": "q",
        "state.topic": "s",
    },
    **{"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"},
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp.example.org/token",
    "kafka.sasl.oauthbearer.assertion.private.key.file": "key.pem",
}
"""A sink for which each default matters that only the code behind the table knows."""


@pytest.mark.parametrize("option", [one for one in TABLE if one.unset], ids=lambda one: one.name)
def test_what_applies_without_an_option_is_what_the_page_shows(option: Option) -> None:
    left_out = sink_options(UNSET, stream=True)
    assert sink_options(UNSET | {option.name: option.unset}, stream=True) == left_out
    if option.kind is OptionType.COUNT:
        assert sink_options(UNSET | {option.name: "77"}, stream=True) != left_out


def test_no_default_hides_in_an_option_s_meaning() -> None:
    """Where the value depends on other options, the meaning says it; one value stands in its column."""
    said = re.compile(r"\b(\d+\w*|true|false|[A-Z0-9.]+) (by default|if not given)|, the default,")
    assert [one.name for one in TABLE if said.search(one.meaning)] == []


@pytest.mark.parametrize(
    ("doc", "says"),
    [
        (None, "begins with"),
        ("Metadata: topics.\n\nComplete.", "begins with"),
        ("Metadata (key 3, versions 0-12): topics.\n\nComplete.", "the head says"),
        ("Metadata (key 4, versions 0-13): topics.\n\nComplete.", "the head says"),
        ("Topics (key 3, versions 0-13): topics.\n\nComplete.", "the head says"),
        ("Metadata (key 3, versions 0-13): topics.", "last paragraph"),
        ("Metadata (key 3, versions 0-13): topics.\n\nAll of them.", "last paragraph"),
    ],
)
def test_heads_of_another_form_are_refused(pages: ModuleType, doc: str | None, says: str) -> None:
    module = ModuleType("some_handler", doc)
    module.KEY, module.VERSIONS = 3, (0, 13)  # type: ignore[attr-defined]
    with pytest.raises(pages.BadHead, match=says):
        pages.head_of(module)


# -- the site ------------------------------------------------------------------------------------
# The site: built without a warning and without the network, with every page, every block shown as code.

CONFIG = ROOT / "mkdocs.yml"
SITE = sorted((ROOT / "docs").rglob("*.md"))
FETCHED = re.compile(
    r'<(?:script|img|iframe)[^>]*\ssrc="(https?:)?//|<link[^>]*rel="stylesheet"[^>]*href="(https?:)?//'
)


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Not with --quiet: that hides warnings from --strict too."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "http_proxy": "http://127.0.0.1:9", "https_proxy":
                          "http://127.0.0.1:9"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=110, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    place = tmp_path_factory.mktemp("site")
    done = build(CONFIG, place)
    assert done.returncode == 0 and "WARNING" not in done.stdout, done.stdout
    return place


def test_the_navigation_calls_a_page_as_its_heading_does() -> None:
    named = re.findall(r"^ +- ([^:\n]+): (\S+\.md)$", CONFIG.read_text(), re.MULTILINE)
    assert len(named) > 30
    heads = {
        page: f"\n{(ROOT / 'docs' / page).read_text()}".partition("\n# ")[2].split("\n")[0]
        for _, page in named
    }
    differs = {
        page: title for title, page in named if not f"{heads[page]} ".startswith((f"{title} {{", f"{title} "))
    }
    assert differs == {"index.md": "Home"}


def test_a_dead_link_and_a_page_outside_of_the_navigation_stop_the_build(tmp_path: Path) -> None:
    kept = ("site_name", "strict", "validation", "plugins", "markdown_extensions")
    config = {name: yaml.safe_load(CONFIG.read_text())[name] for name in kept}
    config |= {"docs_dir": str(tmp_path / "docs"), "nav": ["index.md"]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n[b](b.md)\n[c](#c)\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    told = [line for line in done.stdout.splitlines() if line.startswith(("WARNING", "  -"))]
    for wrong in ("b.md", "#c", "other.md"):
        assert any(wrong in line for line in told), done.stdout


@pytest.mark.parametrize("page", SITE, ids=lambda page: page.name)
def test_a_page_is_shown_as_it_is_meant_and_fetches_nothing(site: Path, page: Path) -> None:
    shown = (site / page.relative_to(ROOT / "docs").with_suffix(".html")).read_text()
    article = shown.partition("<article")[2].partition("</article>")[0]
    kinds = [token.type for token in MarkdownIt("commonmark").enable("table").parse(page.read_text())]
    assert len(re.findall(r'<div class="(?:language-\w+ )?highlight">', article)) == len(blocks_of(page))
    assert article.count("<table>") == kinds.count("table_open")
    lists = kinds.count("bullet_list_open") + kinds.count("ordered_list_open")
    assert len(re.findall("<[ou]l>", article)) == lists, "a list needs an empty line before it"
    assert "```" not in re.sub(r"(?s)<code>.*?</code>", "", shown)
    assert not FETCHED.search(shown)


_CODE = re.compile(r"(?ms)^ *```.*?^ *```$|<!--.*?-->|(`+)(?!`).*?(?<!`)\1(?!`)")
_TAG = re.compile(r"</?[A-Za-z][\w.-]*[^<>\n]*>")


@pytest.mark.parametrize("page", SITE, ids=lambda page: page.name)
def test_no_word_is_a_tag(page: Path) -> None:
    """A browser does not show <name> outside of code."""
    assert {*_TAG.findall(_CODE.sub("", page.read_text()))} <= {"<br>"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_has_a_title_not_a_file_s_name(page: Path) -> None:
    assert re.findall(r"\[`?[\w./-]+\.md`?\]\(", page.read_text()) == []


def test_the_site_has_the_project_s_marks_and_asks_no_host_for_more(site: Path) -> None:
    """Material's link to the repository asks GitHub for its stars; packaging/site has one that does not."""
    home = (site / "index.html").read_text()
    assert 'class="md-source"' in home and 'data-md-component="source"' not in home
    assert f"eoslog {__version__}, alpha" in home.partition('class="md-copyright')[2]
    assert (site / "pictures" / "logo.svg").exists() and (site / "theme" / "eoslog.css").exists()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_to_files_and_sections(name: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", (ROOT / name).read_text()):
        assert target.startswith("https://") or not target or (ROOT / target).exists(), target


# -- each fact once ------------------------------------------------------------------------------
# Facts that pages told in different ways: each has one page, which a test or figures back.

NUMBER = r"(?:\d[\d,]*|two|three|four|five|six|seven|eight|nine|ten)"
MADE = re.compile(
    r"<!-- (kafka|PySpark) versions -->.*?<!-- end of \1 versions -->"
    r"|<!-- made by: make certify -->.*?<!-- end of certified -->",
    re.DOTALL,
)
"""Made from results, by tests/versions and `make certify`."""

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
    page = BENCHMARK_TABLES.read_text().partition("## A small micro-batch")[2]
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
    store.put("rows", [one_line("a copy", "ratio", 30, 10), one_line("its cost", "above", 1, 2)], 0.1)
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
    page = BENCHMARK_TABLES.read_text()
    assert all(part in page for part in with_others(Store(KEPT), NAMES))


def test_the_benchmarks_and_their_chart_are_made_from_the_results() -> None:
    told = PAGE_OF_BENCHMARKS.read_text().partition(BEGIN)[2].partition(END)[0].strip()
    assert told == in_short(Store(KEPT)), "run python -m benchmarks.run --draw"
    assert CHART.read_text() == chart(Store(KEPT)), "run python -m benchmarks.run --draw"
    assert told.count("\n| ") == 1 + 5, "a head and five figures"


def test_the_chart_has_one_colour_in_each_light_and_a_ground_of_its_own() -> None:
    chart = CHART.read_text()
    light, _, dark = chart.partition("prefers-color-scheme: dark")
    for style in (light, dark):
        assert (
            len(re.findall(r"\.bar \{ fill: #", style)) == len(re.findall(r"\.page \{ fill: #", style)) == 1
        )
    assert chart.count('class="bar"') == len(LINES) == chart.count('text-anchor="end"')


NO_PYTHON = {"eoslog.marks", "eoslog.shop.orders", "eoslog.pth", "eoslog.py"} | {
    "eoslog.progress",
    "eoslog.broker.authorizer",
}
"""Tables of databases, files, and loggers."""


TABLES = re.compile(r"^\| `(eoslog\.[\w.]+)` \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE)


def _resolved(name: str) -> object:
    """What a dotted name stands for: a module, or what one has. Raises AttributeError, ImportError."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            found: object = import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ImportError(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_name_of_eoslog_can_be_imported(page: Path) -> None:
    """Dotted names, and what stands in a table whose head is a module, with the names of its parameters."""
    text, wrong = page.read_text(), []
    for name in sorted(set(re.findall(r"(?<![\w./-])eoslog(?:\.[A-Za-z_]\w*)+", text)) - NO_PYTHON):
        try:
            _resolved(name)
        except (AttributeError, ImportError):
            wrong.append(name)
    for module, rows in TABLES.findall(text):
        for name, told in re.findall(r"^\| `(\w+)\((.*?)\)`", rows, re.MULTILINE):
            found = getattr(import_module(module), name, None)
            parameters = [one.partition("=")[0].strip() for one in told.split(",")]
            if not callable(found) or parameters != [*signature(found).parameters][: len(parameters)]:
                wrong.append(f"{module}.{name}({told})")
    assert not wrong, wrong


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


def test_what_pip_is_told_is_the_repository_with_extras_that_there_are() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = dict(setup["options.extras_require"])
    code = "\n".join(block.code for block in all_blocks() if block.language == "bash")
    told = re.findall(
        r"pip (?:install|wheel)\b.*?(?:eoslog\[(\S+?)\] @ |\s)git\+(\S+?)'?$", code, re.MULTILINE
    )
    assert len(told) >= 6 and {home for _, home in told} == {HOME}, told
    assert {one for given, _ in told for one in given.split(",") if one} <= set(extras)
    assert not re.findall(r"pip install (?!--no-index).*(?<!\S)'?eoslog(?:\[\S+\]'?)?$", code, re.MULTILINE)


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


FRONT = ("README.md", "docs/index.md", "packaging/description.md")
"""What a visitor sees first: they say the same, and only what was measured."""


def front_facts() -> dict[str, str]:
    """What the front pages have to say, made from results and settings."""
    soaks = (ROOT / "docs" / "soaks.md").read_text()
    copies = [row.strip("| ").split(" | ") for row in soaks.splitlines() if row.startswith("| ")]
    killed = [row for row in copies if len(row) > 4 and "20 of the driver" in row[1] and "4.3.1" in row[0]]
    kafkas = {row[0]: row[2:5] for row in killed}
    (theirs,) = (found for name, found in kafkas.items() if name.startswith("Spark's own connector"))
    ours = [found for name, found in kafkas.items() if name.startswith("eoslog")]
    assert ours and all(found == ["0"] * 3 for found in ours) and theirs[0] == "0"
    store = Store(ROOT / "docs" / "benchmarks.json")
    reads, writes = (
        [one.reached()[0] for one in store.results(sections)]
        for sections in (["spark-source"], ["spark-sink-batch", "spark-sink-stream"])
    )
    sparks, logs = (
        sorted({one["version"] for one in json.loads((DOCS / name).read_text())}, key=numbers)
        for name in ("spark-versions.json", "kafka-versions.json")
    )
    measured = (DOCS / "benchmarks.md").read_text()
    small = re.search(r"df\.write of (.* in 100 tasks), (.* s beside .* s)\.", measured)
    assert small is not None
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    python = setup["options"]["python_requires"].removeprefix(">=")
    first, last, oldest = (one.rpartition(".")[0] for one in (sparks[0], sparks[-1], logs[0]))
    return {
        "kills": f"""| Spark's `format("kafka")` | 0 | {theirs[1]} | {theirs[2]} |""",
        "ours": """| `format("eoslog")` | 0 | **0** | 0 |""",
        "reads": f"a batch job reads a topic {min(reads):.1f} to {max(reads):.1f} times as fast as with "
        "Spark's connector",
        "writes": f"Writes are {min(writes):.1f} to {max(writes):.1f} times as fast (",
        "small writes": f"Small writes in many tasks take longer: `df.write` of {small[1]} {small[2]}.",
        "needs": f"PySpark {first} to {last}, Python {python} or later, Java 17 or later, and Apache Kafka "
        f"{oldest} or later",
        "state": "Alpha." if ":: 3 - Alpha" in setup["metadata"]["classifiers"] else "",
    }


@pytest.mark.parametrize("name", FRONT)
def test_the_front_pages_say_what_was_measured(name: str) -> None:
    page = " ".join((ROOT / name).read_text().split())
    assert [fact for fact in front_facts().values() if not fact or fact not in page] == []
    assert "exactly once if readers read" in page and "limits.md)" in page and "no matter" not in page


def test_the_table_of_versions_says_what_was_run() -> None:
    sparks, logs = (
        sorted({one["version"] for one in json.loads((DOCS / name).read_text())}, key=numbers)
        for name in ("spark-versions.json", "kafka-versions.json")
    )
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    pythons = re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])
    ranges = [
        f"{first.rpartition('.')[0]} to {last.rpartition('.')[0]}"
        for first, last in ((sparks[0], sparks[-1]), (logs[0], logs[-1]))
    ]
    (row,) = re.findall(
        r"(?m)^\| (\d\S+?)(?:, not released)? \| (.*) \|$", (DOCS / "versions.md").read_text()
    )
    assert row[0] == __version__
    assert row[1].split(" | ")[:3] == [*ranges, f"{pythons[0]} to {pythons[-1]}"]


def test_the_front_pages_say_whether_there_is_a_release() -> None:
    head = re.search(r"^## (\S+) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert head is not None
    for name in (*FRONT[:2], "docs/versions.md", "docs/installing.md"):
        said = re.search(rf"{re.escape(head[1])}(?: is|,) not released", (ROOT / name).read_text())
        assert bool(said) == (head[2] == "unreleased"), name


def test_home_installs_as_the_readme_does() -> None:
    (home,) = (one.code for one in blocks_of(DOCS / "index.md") if one.language == "bash")
    assert home in next(one.code for one in blocks_of(ROOT / "README.md") if one.says == NEWCOMER)


def test_the_objections_name_their_source() -> None:
    first = (ROOT / "docs" / "objections.md").read_text().partition("\n## ")[0]
    assert "pull request" in first and "](https://github.com/apache/spark/pull/25618)" in first


# -- options that texts name ---------------------------------------------------------------------
# Errors, hints, what commands print, docstrings and pages name options that are there.

_FILES = [
    *(ROOT / "eoslog").glob("*.py"),
    *(file for room in sorted((ROOT / "eoslog").iterdir()) for file in sorted(room.resolve().rglob("*.py"))),
]
_OPTION = re.compile(r"(?<![\w./@:$<%-])[a-z][a-zA-Z]*(?:\.[a-z][a-zA-Z0-9]*)+(?![\w(/*-]|\.\w)")
"""What may be the name of an option."""
_CONNECTORS = {one.name for one in TABLE} | {*ALIASES, *FIXED, *NO_EFFECT, *FORBIDDEN, *SPARKS_OPTIONS}
_BROKERS = {*option_table(), *TOPIC_CONFIGS, *GROUP_CONFIGS, *kafka_names()}
_OPTIONS = _CONNECTORS | _BROKERS
_LAST_WORDS = {name.rpartition(".")[2] for name in _OPTIONS if "." in name} - {"py"}
_MODULES = {".".join(file.with_suffix("").parts[-parts:]) for file in _FILES for parts in (2, 3)}
_NO_OPTIONS = {
    "fs.s3a.access.key": "Hadoop's",
    "java.security.auth.login.config": "the JVM's",
    "auto.offset.reset": "of Kafka's consumers",
    "isolation.level": "of Kafka's consumers",
    "bootstrap.servers": "of Kafka's clients",
    "client.rack": "of Kafka's consumers; the connector's is kafka.client.rack",
    "security.protocol": "of Kafka's clients",
    "metadata.recovery.strategy": "of Kafka's clients",
    "group.consumer.regex.refresh.interval.ms": "of Kafka's brokers, which do not document it",
    "group.version": "a feature of the cluster",
    "transaction.version": "a feature of the cluster",
    "listener.name": "begins the name of an option of one listener",
    "kafka.sasl.oauthbearer.assertion": "begins the names of options",
    "deadletter.source.topic": "a header of dead letters",
    "group.instance.id": "a field of messages",
    "sys.path": "Python's",
}
"""What looks like an option and is none, and what it is."""


def _texts() -> Iterator[tuple[str, str]]:
    """Where a text is, and the text: strings of the code that are sentences, and pages' inline code."""
    for file in _FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield f"{file.relative_to(ROOT)}:{node.lineno}", node.value
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", page.read_text()):
            yield page.name, code


def _wrong_options(text: str) -> Iterator[str]:
    """What a text names like an option, and is in no table."""
    for found in _OPTION.finditer(text):
        name, follows = found[0], text[found.end() : found.end() + 1]
        like = name.startswith("kafka.") or follows == "=" or name.rpartition(".")[2] in _LAST_WORDS
        others = name.startswith(("spark.", "eoslog.")) or name in _MODULES  # Spark's settings; loggers
        if like and not others and name not in _OPTIONS and name not in _NO_OPTIONS:
            yield name


def test_every_option_that_a_text_names_is_in_a_table() -> None:
    wrong = {f"{where}: {name}" for where, text in _texts() for name in _wrong_options(text)}
    wrong -= {"migrating.md: transaction.timeout.ms"}  # Flink's
    assert not wrong, "\n".join(sorted(wrong))


def test_a_wrong_option_in_a_text_is_found() -> None:
    text = "set transaction.timeout=5, kafka.transacton.timeout.ms, write.tokn=1 (kafka.batch.size, log.dirs)"
    assert [*_wrong_options(text)] == ["transaction.timeout", "kafka.transacton.timeout.ms", "write.tokn"]
    assert len({where for where, _ in _texts()}) > 1000


# -- CONTRIBUTING.md -----------------------------------------------------------------------------
# CONTRIBUTING.md tells of every package and every make target, and its paths and commands are there.

PAGE = ROOT / "CONTRIBUTING.md"
TEXT = PAGE.read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's table."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_target_of_the_makefile_is_told_and_no_other() -> None:
    there = re.findall(r"(?m)^([a-z0-9-]+):.*?## (.*)$", (ROOT / "Makefile").read_text())
    told = [(target.strip("`").removeprefix("make "), what) for target, what in rows("Targets")]
    assert dict(told) == dict(there), "bring the table of targets in CONTRIBUTING.md to the Makefile's words"


def test_every_package_has_its_line() -> None:
    packages = find_packages(str(ROOT), include=["eoslog*"])
    told = {name.strip("`"): folder.strip("`") for name, folder, _ in rows("Rooms")}
    assert set(told) == set(packages)
    for name, folder in told.items():
        assert (ROOT / folder / "__init__.py").exists(), name


def test_every_path_is_there() -> None:
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", TEXT)
    assert len(paths) > 60
    for path in paths:
        assert (ROOT / path).exists(), path


def test_the_commands_name_tests_that_are_there() -> None:
    (block,) = (one for one in blocks_of(PAGE) if one.says.endswith(Path(__file__).name))
    for line in block.code.splitlines():
        words = shlex.split(line)
        assert words[:3] == ["python", "-m", "pytest"]
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))
        if "-k" in words:
            named = words[words.index("-k") + 1]
            assert f"def test_{named}" in (ROOT / words[3]).read_text()


@pytest.mark.parametrize("heading", ["Rooms", "Where a rule lives", "Judges", "Targets"])
def test_the_tables_are_found(heading: str) -> None:
    assert len(rows(heading)) > 8
