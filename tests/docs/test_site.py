"""The site: built without a warning and without the network, with every page, every block shown as code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from tests.docs.blocks import ROOT, blocks_of

CONFIG = ROOT / "mkdocs.yml"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
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


def test_a_dead_link_and_a_page_outside_of_the_navigation_stop_the_build(tmp_path: Path) -> None:
    config = yaml.safe_load(CONFIG.read_text()) | {"docs_dir": str(tmp_path / "docs"), "nav": ["index.md"]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n[b](b.md)\n[c](#c)\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    told = [line for line in done.stdout.splitlines() if line.startswith(("WARNING", "  -"))]
    for wrong in ("b.md", "#c", "other.md"):
        assert any(wrong in line for line in told), done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_to_files_and_sections(name: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", (ROOT / name).read_text()):
        assert target.startswith("https://") or not target or (ROOT / target).exists(), target
