"""The pages made from the code say what the code says."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from eoslog.broker import handlers
from eoslog.broker.config import option_table
from eoslog.connector.options.ignored_and_refused import FIXED, FORBIDDEN, NO_EFFECT
from eoslog.connector.options.parsing import read_value
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.table import ALIASES, SPARKS_OPTIONS, TABLE, Option, OptionType
from eoslog.protocol.apis import APIS

DOCS = Path(__file__).parent.parent.parent / "docs"


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


@pytest.mark.parametrize("name", ["apis.md", "options.md", "connector-options.md", "connector-errors.md"])
def test_a_page_is_what_would_be_written(pages: ModuleType, name: str) -> None:
    written = (DOCS / name).read_text()
    assert written == pages.PAGES[name](), f"docs/{name} is old: run python -m docs.pages"


@pytest.mark.parametrize("module", handlers.ALL, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_handler_s_head_can_be_told(pages: ModuleType, module: ModuleType) -> None:
    head = pages.head_of(module)
    assert head.does.endswith(".")
    assert not head.rest or head.rest.endswith(".")


def test_the_page_has_every_api_and_every_option() -> None:
    apis, options = ((DOCS / name).read_text() for name in ("apis.md", "options.md"))
    for module in handlers.ALL:
        assert f"\n## {APIS[module.KEY].name}\n" in apis
    for name in option_table():
        assert f"\n| `{name}` |" in options


def test_the_connector_s_page_has_every_option_once_and_no_other() -> None:
    page = (DOCS / "connector-options.md").read_text()
    known = [option.name for option in TABLE]
    for name in (*known, *ALIASES, *FIXED, *NO_EFFECT, *FORBIDDEN):
        assert page.count(f"\n| `{name}` |") == 1, name


def test_the_page_says_of_each_option_whether_spark_s_connector_has_it(pages: ModuleType) -> None:
    lines = [line.split(" | ") for line in (DOCS / "connector-options.md").read_text().splitlines()]
    theirs = {cells[0].removeprefix("| ").strip("`"): cells[3] for cells in lines if len(cells) > 3}
    kafkas = {*pages.kafkas_options(), *SPARKS_OPTIONS}
    unknown = {one.name for one in TABLE} - kafkas - {"path", "checkpointLocation", "queryName"}
    later = {one.name for one in TABLE if one.later}
    assert {name for name in theirs if theirs[name] == "none"} == unknown | later
    assert later and later <= kafkas and not later & set(SPARKS_OPTIONS)
    assert "decision.topic" in unknown and "kafka.group.id" not in unknown


def test_a_default_can_be_typed_as_the_page_shows_it(pages: ModuleType) -> None:
    for one in TABLE:
        shown = pages._connector_option(one).split(" | ")[2].strip()
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
