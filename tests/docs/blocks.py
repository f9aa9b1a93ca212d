"""The blocks of code of the pages, and what becomes of each.

A block is run by its language (reader.py), unless a comment right before it says otherwise:

    <!-- not run: why it cannot be -->        listed in test_blocks.py, which must know every one
    <!-- run by: tests/.../test_simulation.py -->   that file reads this page, and runs the block its own way
    <!-- file: copy.py -->                    the reader saves the block under this name
    <!-- tests: 2 -->                         a file of tests, of which so many pass
    <!-- options: connector -->               whose names a `properties` block has: broker, connector, topic
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
SHOWN = ("text", "diff", "yaml")
"""Languages of blocks that are read, not run: output, messages, changes, files for other programs."""
RUN = ("python", "bash", "console", "properties", "json")

_MARKS = ("not run", "run by", "file", "tests", "options")
_MARK = re.compile(rf"<!--\s*({'|'.join(_MARKS)}):\s*(.*?)\s*-->\s*", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block: the page it stands on, its first line there, what language it says it is, and its mark."""

    page: Path
    line: int
    language: str
    code: str
    mark: str = ""
    says: str = ""
    """What the mark says behind its colon."""

    @property
    def place(self) -> str:
        """Where it is, for messages: docs/testing.md:42."""
        return (
            f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page.name}:{self.line}"
        )

    @property
    def is_run_here(self) -> bool:
        """Whether the reader does something with it."""
        return self.language in RUN and self.mark not in ("not run", "run by")


def blocks_of(page: Path) -> list[Block]:
    """Every block of a page, in order, as CommonMark has them; lists and quotations included."""
    found, before = [], ""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
        if token.type == "html_block":
            before = token.content
            continue
        if token.type in ("fence", "code_block"):
            mark = _MARK.fullmatch(before)
            kind, says = mark.groups() if mark else ("", "")
            line = (token.map or [0])[0] + 1
            found.append(
                Block(page, line, token.info.strip(), token.content, kind, re.sub(r"\s+", " ", says))
            )
        before = ""
    return found


def code_of(page: str, sign: str) -> str:
    """The code of the one block of a page of docs/ that begins so."""
    (found,) = (one.code for one in blocks_of(ROOT / "docs" / page) if one.code.startswith(sign))
    return found


def all_blocks() -> list[Block]:
    """Every block of every page."""
    return [block for page in PAGES for block in blocks_of(page)]


def needs_spark(page: Path) -> bool:
    """Whether something on the page is run that starts a query."""
    return any(
        "pyspark" in one.code and one.language == "python" and one.is_run_here for one in blocks_of(page)
    )
