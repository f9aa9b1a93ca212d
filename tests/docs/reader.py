"""A reader of docs/: finds the blocks of the pages and types them."""

from __future__ import annotations

import builtins
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from markdown_it import MarkdownIt

from eoslog.broker.config import option_table
from eoslog.broker.config.topics import TOPIC_CONFIGS
from eoslog.connector.options.ignored_and_refused import FIXED, NO_EFFECT
from eoslog.connector.options.table import ALIASES, TABLE
from eoslog.testing import EmbeddedBroker

# -- blocks ----------------------------------------------------------------------------------------
# The blocks of code of the pages, and what becomes of each.
#
# A block is run by its language (reader.py), unless a comment right before it says otherwise:
#
#     <!-- not run: why it cannot be -->        listed in test_blocks.py, which must know every one
#     <!-- run by: tests/.../test_simulation.py -->   that file reads the page and runs the block
#     <!-- file: copy.py -->                    the reader saves the block under this name
#     <!-- tests: 2 -->                         a file of tests, of which so many pass
#     <!-- options: connector -->               whose names a `properties` block has: broker, connector, topic


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
        """Where it is, for messages: docs/sql.md:42."""
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


# -- the reader ------------------------------------------------------------------------------------
# Somebody who reads a page from top to bottom and types what stands there.
#
# A page has a directory and a broker of its own; where it says 127.0.0.1:9092, that broker's address is
# typed. The broker is the page's, if it starts one, else one that is simply there. Names of one python
# block are known to the next. In `console` blocks `...` stands for what differs from one run to the next.


ADDRESS = "127.0.0.1:9092"
SPARK_GAVE_UP = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start and has no option for it: on a machine with much else
to do that is a matter of luck, and no fault of a page. What is typed then is typed once more."""
TRIES = 4
LIMIT_S = 600  # what a block may take, on a machine that has much else to do
_STARTS_BROKER = re.compile(r"eoslog broker .*--listen " + re.escape(ADDRESS))
_COMMAND = Path(__file__).with_name("typed_eoslog.py")

KNOWN_OPTIONS = {
    "broker": frozenset(option_table()),
    "topic": frozenset(TOPIC_CONFIGS),
    "connector": frozenset({*(one.name for one in TABLE), *ALIASES, *FIXED, *NO_EFFECT}),
}


class Reader:
    """Types the blocks of one page. A context manager: what was started is ended with it."""

    def __init__(self, place: Path, *, shares_spark: bool = False) -> None:
        """`shares_spark`: `python FILE` runs a saved file here, in the Spark session that is there."""
        self.place, self._shares_spark = place, shares_spark
        self._saved: dict[str, Path] = {}
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._broker: EmbeddedBroker | None = None
        self._typed: subprocess.Popen[str] | None = None
        self._address = ""

    def type(self, block: Block) -> None:
        """Do what the block's language and mark say. Raises AssertionError, or what the block raises."""
        code = block.code.replace("/var/lib/eoslog", str(self.place / "var"))
        code = code.replace(ADDRESS, self._where()) if self._needs_broker(block) else code
        if block.mark == "file":
            (self.place / block.says).write_text(code)
            self._saved[f"python {block.says}"] = self.place / block.says
        elif block.mark == "tests":
            self._tests(block, code)
        elif block.language == "properties":
            self._options(block, code)
        elif block.language == "json":
            json.loads(code)
        elif block.language == "python":
            self._python(block, code)
        elif block.language == "console":
            self._console(block, code)
        elif _STARTS_BROKER.match(code):
            self._start(code)
        else:
            for piece in self._pieces(code):
                if piece in self._saved and self._shares_spark:
                    # The session's JVM has another directory than this page.
                    self._python(block, self._saved[piece].read_text().replace('"./', f'"{self.place}/'))
                else:
                    self._bash(piece)

    def _pieces(self, code: str) -> list[str]:
        """A bash block as it is typed: whole, but for the lines that run a saved file."""
        runs = "|".join(map(re.escape, self._saved))
        return [one for one in re.split(rf"(?m)^({runs})$\n?", code) if one] if runs else [code]

    def _needs_broker(self, block: Block) -> bool:
        asks = ADDRESS in block.code or (block.language in ("bash", "console") and "eoslog " in block.code)
        return asks and not _STARTS_BROKER.match(block.code)

    def _where(self) -> str:
        if not self._address:
            self._broker = EmbeddedBroker(self.place / "some-log")
            self._broker.start()
            self._address = self._broker.bootstrap
        return self._address

    def _start(self, code: str) -> None:
        """A broker in a terminal of its own, on a free port."""
        assert not self._address and len(code.strip().splitlines()) == 1, code
        self._typed = subprocess.Popen(
            ["bash", "-c", code.replace(ADDRESS, "127.0.0.1:0")],
            cwd=self.place, env=self._environment(), stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert self._typed.stdout is not None
        ready = re.match(r"eoslog broker ready at (\S+) ", self._typed.stdout.readline())
        assert ready, f"{code} did not say that it is ready"
        self._address = ready[1]

    def _environment(self) -> dict[str, str]:
        """With the `eoslog` and `python` under test, and the page's broker as the default address."""
        programs = self.place / ".bin"
        if not programs.exists():
            programs.mkdir()
            python = sys.executable  # Spark starts its workers by the name python3
            for name, command in {
                "eoslog": f"{python} {_COMMAND}",
                "python": python,
                "python3": python,
            }.items():
                (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
                (programs / name).chmod(0o755)
        return os.environ | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "DOCS_BROKER": self._address,
        }

    def _run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the page's directory, with `more` in its environment."""
        for _ in range(TRIES):
            done = subprocess.run(
                command, cwd=self.place, env=self._environment() | more, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip
            if done.returncode == 0 or SPARK_GAVE_UP not in done.stdout:
                break
        return done

    def _type(self, command: str) -> subprocess.CompletedProcess[str]:
        return self._run("bash", "-o", "pipefail", "-ec", command)

    def _bash(self, code: str) -> None:
        done = self._type(code)
        assert done.returncode == 0, f"{code}ended with {done.returncode}:\n{done.stdout}"

    def _console(self, block: Block, code: str) -> None:
        for command, wanted in steps(code):
            done = self._type(command)
            lines = done.stdout.splitlines() + (
                [f"[exit status {done.returncode}]"] if done.returncode else []
            )
            assert all_match(lines, wanted), f"{block.place}: {command} printed\n{done.stdout}"

    def _python(self, block: Block, code: str) -> None:
        lines = "\n" * block.line  # so that an error names the page's line
        with chdir(self.place):
            exec(compile(lines + code, str(block.page), "exec"), self._names)
            for query in self._queries():
                query.processAllAvailable()

    def _queries(self) -> Iterator[Any]:
        spark = self._names.get("spark")
        yield from spark.streams.active if spark is not None else ()

    def _tests(self, block: Block, code: str) -> None:
        (self.place / "test_house.py").write_text(code)
        done = self._run(
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_house.py"),
            PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
            PYTEST_ADDOPTS="-p eoslog.pytest_plugin",
        )
        assert done.returncode == 0 and f"{block.says} passed" in done.stdout, done.stdout

    def _options(self, block: Block, code: str) -> None:
        names = re.findall(r"(?m)^\s*([^#=\s]+)\s*=", code)
        assert names, f"{block.place}: no options"
        unknown = {one.removeprefix("listener.name.").partition(".")[2] if one.startswith("listener.name.")
                   else one for one in names} - KNOWN_OPTIONS[block.says or "broker"]  # fmt: skip
        assert not unknown, f"{block.place}: no such options: {sorted(unknown)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: builtins.type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for query in list(self._queries()):
            query.stop()
        if self._typed is not None:
            os.killpg(self._typed.pid, signal.SIGKILL)
            self._typed.communicate()
        if self._broker is not None:
            self._broker.stop()


def steps(code: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block, with the lines it is to print."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, *wanted = part.rstrip("\n").split("\n")
        yield command, wanted


def all_match(lines: list[str], wanted: list[str]) -> bool:
    """Whether lines are as wanted: `...` in a line stands for anything, as a line for any number of lines."""
    if not wanted:
        return not lines
    if wanted[0] == "...":
        return any(all_match(lines[skip:], wanted[1:]) for skip in range(len(lines) + 1))
    pattern = ".*".join(map(re.escape, wanted[0].split("...")))
    return bool(lines) and bool(re.fullmatch(pattern, lines[0].rstrip())) and all_match(lines[1:], wanted[1:])
