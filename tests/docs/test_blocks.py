"""The blocks of the pages can be typed; those that start queries with Spark processes of their own: make
test-docs.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.reader import (
    PAGES,
    ROOT,
    RUN,
    SHOWN,
    Block,
    Reader,
    all_blocks,
    all_match,
    blocks_of,
    needs_spark,
    steps,
)

NOT_RUN = {"README.md": 1}
"""Pages with blocks that no test runs, and how many; each says why in a comment before it."""

WITH_SPARK = [page for page in PAGES if needs_spark(page)]
IN_SUITE = ROOT / "README.md"
"""The one page with a query that is typed here, in the suite's session; test_blocks.py types others."""
HERE = [page for page in PAGES if not needs_spark(page) and any(one.is_run_here for one in blocks_of(page))]
ENOUGH = 40  # letters of a reason
PATIENCE_S = 600  # a page takes seconds on a machine that has nothing else to do


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("page", HERE, ids=name)
def test_what_a_page_says_can_be_typed(page: Path, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for block in blocks_of(page):
            if block.is_run_here:
                reader.type(block)


@pytest.mark.spark
@pytest.mark.timeout(PATIENCE_S)
def test_the_readme_can_be_typed(spark: SparkSession, tmp_path: Path) -> None:
    with Reader(tmp_path, shares_spark=True) as reader:
        for block in blocks_of(IN_SUITE):
            if block.is_run_here:
                reader.type(block)


@pytest.mark.parametrize("block", all_blocks(), ids=lambda block: block.place)
def test_a_block_is_of_a_known_kind(block: Block) -> None:
    assert block.language in (*RUN, *SHOWN), f"{block.place}: say what it is: one of {RUN} or {SHOWN}"
    assert block.mark != "not run" or len(block.says) >= ENOUGH, f"{block.place}: why is it not run?"
    if block.mark == "run by":
        path = ROOT / block.says
        assert path.exists(), f"{block.place}: {block.says} is not there"
        assert block.page.name in path.read_text(), f"{block.says} does not read {block.page.name}"


def test_what_is_not_run_is_known() -> None:
    found: dict[str, int] = {}
    for block in all_blocks():
        if block.mark == "not run":
            found[name(block.page)] = found.get(name(block.page), 0) + 1
    assert found == NOT_RUN


def test_no_page_is_left_out() -> None:
    """A page is typed here or, with a Spark session, by make test-docs; of both together every block."""
    assert not set(WITH_SPARK) & set(HERE) and IN_SUITE in WITH_SPARK
    typed = {one for page in (*HERE, *WITH_SPARK) for one in blocks_of(page) if one.is_run_here}
    others = {one for one in all_blocks() if one.mark in ("not run", "run by") or one.language in SHOWN}
    assert typed | others == set(all_blocks()) and not typed & others


def test_every_fence_of_a_page_is_a_block() -> None:
    """Counted by another rule than the parser's: a fence that is not closed swallows the ones behind it."""
    for page in PAGES:
        fences = len(re.findall(r"(?m)^\s*(?:```|~~~)", page.read_text()))
        assert fences == 2 * len(blocks_of(page)), name(page)


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("```python\nraise OSError('the page is wrong')\n```", "the page is wrong"),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2, 'x'\n```", "x"),
        ("```bash\neoslog topics create a\neoslog topics describe b\n```", "ended with 1"),
        ("```console\n$ eoslog topics list\nnothing\n```", "printed"),
        ("```properties\nnum.partitons=3\n```", "no such options"),
        ("<!-- options: connector -->\n```properties\nkafka.bootstrap.server=a:1\n```", "no such options"),
        ('```json\n{"a": }\n```', "Expecting value"),
        ("<!-- tests: 1 -->\n```python\ndef test_it():\n    assert 1 == 2\n```", "1 == 2"),
    ],
)
def test_a_page_that_is_wrong_is_noticed(page: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(Exception, match=re.escape(says)), Reader(tmp_path) as reader:
        for block in blocks_of(tmp_path / "page.md"):
            reader.type(block)


def test_marks_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: needs\n  a cluster -->\n```bash\nx\n```\n\ntext\n\n```bash\ny\n```\n")
    first, second = blocks_of(page)
    assert (first.mark, first.says, first.line, first.is_run_here) == ("not run", "needs a cluster", 3, False)
    assert (second.mark, second.is_run_here) == ("", True)


def test_lines_are_compared() -> None:
    assert list(steps("$ a\n1\n2\n$ b\n")) == [("a", ["1", "2"]), ("b", [])]
    assert all_match(["x 1 y", "2"], ["x ... y", "2"]) and all_match(["1", "2", "3"], ["...", "3"])
    assert not all_match(["1"], []) and not all_match(["1", "2"], ["2"]) and not all_match([], ["1"])


def test_what_blocks_import_of_eoslog_is_there() -> None:
    """Those that a page's reader types only with Spark, too: names of the connector's inside move."""
    for block in all_blocks():
        if block.language == "python":
            for module, name in _imported(ast.parse(block.code)):
                there = hasattr(importlib.import_module(module), name) or find_spec(f"{module}.{name}")
                assert there, f"{block.place}: {module} has no {name}"


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Modules of eoslog that a block imports from, and the names that it takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "eoslog":
            yield from ((str(node.module), name.name) for name in node.names)
        if isinstance(node, ast.Import):
            split = (name.name.rpartition(".") for name in node.names)
            yield from ((module, name) for module, _, name in split if module.split(".")[0] == "eoslog")


def _streams() -> Iterator[tuple[str, str]]:
    """Python that starts a query with eoslog's sink, with its place."""
    pages = [
        (block.place, block.code) for page in PAGES for block in blocks_of(page) if block.language == "python"
    ]
    files = sorted([*(ROOT / "examples").rglob("*.py"), *(ROOT / "examples").rglob("*.ipynb")])
    for place, code in [*pages, *((str(file.relative_to(ROOT)), file.read_text()) for file in files)]:
        if re.search(r"\.writeStream\.format\((?!\S*console)", code.replace("\\", "")):
            yield place, code


@pytest.mark.parametrize(("place", "code"), list(_streams()))
def test_a_query_names_its_sink(place: str, code: str) -> None:
    """People copy examples. Without a name, a lost checkpoint writes all rows again, without a word."""
    assert "transactional.id" in code, f"{place}: give the sink a transactional.id"


# -- pages that start queries --------------------------------------------------------------------
# The pages whose blocks start queries, typed with Spark processes of their own: make test-docs.


POWER_CUT = ROOT / "tests" / "docs" / "power_cut.md"
"""A session behind what recovering.md says: it takes the sink apart, to let it die at one moment."""
LOST_CHECKPOINT = POWER_CUT.with_name("lost_checkpoint.md")
"""Another one: a query goes on with a new checkpoint."""


SESSIONS = [*WITH_SPARK, POWER_CUT, LOST_CHECKPOINT]


@pytest.mark.long
@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_with_spark_says_can_be_typed(page: Path, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for block in blocks_of(page):
            if block.is_run_here:
                reader.type(block)
