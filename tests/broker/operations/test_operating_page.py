"""docs/operating.md: its commands run as they stand there, and its table is that of the code."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from eoslog.broker.metrics.metrics_server import COUNTER, FAMILIES
from eoslog.cli import main
from eoslog.testing import EmbeddedBroker

PAGE = Path(__file__).parents[3] / "docs" / "operating.md"
ORDERS = "a:one\nb:two\na:three\n"
OFFLINE = ("backup", "broker", "log")


def blocks() -> Iterator[str]:
    """The console blocks, as text."""
    yield from re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


def steps(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block, with the lines it is to print."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, *wanted = part.rstrip("\n").split("\n")
        yield command, wanted


def matches(line: str, wanted: str) -> bool:
    """Whether a line is as wanted, where `...` stands for anything."""
    pattern = ".*".join(map(re.escape, wanted.split("...")))
    return re.fullmatch(pattern, line.rstrip()) is not None


def all_match(lines: list[str], wanted: list[str]) -> bool:
    """The same for several lines, where a line of only `...` stands for any number of them."""
    if not wanted:
        return not lines
    if wanted[0] == "...":
        return any(all_match(lines[skip:], wanted[1:]) for skip in range(len(lines) + 1))
    return bool(lines) and matches(lines[0], wanted[0]) and all_match(lines[1:], wanted[1:])


def run(command: str, broker: EmbeddedBroker) -> list[str]:
    """Run a command line of the page; its output, and its exit status if that is not 0."""
    program, *arguments = shlex.split(command)
    assert program == "eoslog"
    text = None
    if "<" in arguments:
        arguments, text = arguments[: arguments.index("<")], ORDERS
    if arguments[0] not in OFFLINE:
        arguments += ["--bootstrap-server", broker.bootstrap]
    done = CliRunner().invoke(main, arguments, input=text)
    lines: list[str] = done.output.splitlines()
    return lines + ([f"[exit status {done.exit_code}]"] if done.exit_code else [])


def test_every_command_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [step for block in blocks() for step in steps(block)]
    assert len(commands) > 20
    (tmp_path / "alice.password").write_text("open-sesame\n")
    with EmbeddedBroker(tmp_path / "data") as broker:
        for command, wanted in commands:
            lines = run(command, broker)
            assert all_match(lines, wanted), f"{command} printed\n" + "\n".join(lines)


def metrics_table() -> str:
    rows = ["| metric | labels | meaning |", "|---|---|---|"]
    for name, kind, labels, meaning in FAMILIES:
        shown = f"{name}_total" if kind == COUNTER else name
        rows.append(f"| `{shown}` | {', '.join(labels)} | {kind}: {meaning} |")
    return "\n".join(rows)


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    found = re.search(r"<!-- metrics:.*?-->\n(.*?)\n?<!-- end -->", PAGE.read_text(), re.S)
    assert found is not None
    assert found[1].strip() == metrics_table()


def test_the_table_of_files_names_all_that_a_broker_leaves(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        run("eoslog topics create orders", broker)
        run("eoslog produce orders --transactional-id t < orders.txt", broker)
        run("eoslog groups reset g --topic orders --to-latest --execute", broker)
    page = PAGE.read_text()
    for path in (tmp_path / "data").rglob("*"):
        known = f"*{path.suffix}" if path.name[:20].isdigit() else path.name
        if path.is_file() and path.name not in ("meta.properties", ".lock"):
            assert f"`{known}`" in page or f"/{known}`" in page, path
