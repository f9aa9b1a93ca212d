"""docs/console.md tells the truth: its commands, its addresses, its pictures, its figures."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from confluent_kafka import Producer

from eoslog.broker.console import connection_limits, groups, messages, paging, topics, transactions
from eoslog.broker.console.broker_access import SHARE
from eoslog.broker.console.routes import CHANGES, LOOKS
from eoslog.broker.console.server import MOST_AT_ONCE
from eoslog.commands.broker import FLAGS, command
from tests.console.console_site import Site, create, write

pytestmark = pytest.mark.timeout(600)  # a broker may take long to start on a busy machine

PAGE = Path(__file__).parents[2] / "docs" / "console.md"


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_command_is_one(text: str) -> None:
    (line,) = blocks(text, "bash")
    program, name, *arguments = shlex.split(line)
    assert (program, name) == ("eoslog", "broker")
    given = command.make_context("broker", arguments).params
    assert (given["console"], given["console_writable"]) == ("127.0.0.1:8080", "true")
    assert FLAGS["console_writable"] == "console.writable"


def test_what_is_asked_and_answered(text: str) -> None:
    (block,) = blocks(text, "console")
    lines = block.strip().splitlines()
    with Site() as site:
        create(site.client(), "orders")
        write(Producer(site.client()), "orders", "a", "b", "c")
        for asked, wanted in zip(lines[::2], lines[1::2], strict=True):
            address = urlsplit(shlex.split(asked)[-1])
            assert address.netloc == "127.0.0.1:8080"
            body = site.get(address.path, **dict(parse_qsl(address.query))).body.decode()
            assert re.fullmatch(".*".join(map(re.escape, wanted.split("..."))), body), body


def test_every_address_is_there(text: str) -> None:
    assert set(re.findall(r"^\| `(/api/[a-z/]+)`", text, re.MULTILINE)) == {*LOOKS, *CHANGES}


def test_every_picture_is_there(text: str) -> None:
    pictures = re.findall(r"!\[.+\]\((.+)\)", text)
    assert len(pictures) >= 4
    for name in pictures:
        assert (PAGE.parent / name).stat().st_size < 150_000


def test_the_figures_are_those_of_the_code(text: str) -> None:
    plain = " ".join(text.split())
    for said in (
        f"{connection_limits.MOST_CONNECTIONS} connections", f"{MOST_AT_ONCE} requests at a time",
        f"{messages.MOST_RECORDS} records and {messages.MOST_SHOWN >> 10} KiB a page",
        f"{connection_limits.REQUEST_SECONDS:.0f} seconds for a request",
        f"more than {messages._MOST_UNPACKED >> 20} MiB", f"At most {paging.MOST} rows are drawn",
        f"looks at {paging.MOST_LOOKED_AT:,} names",
    ):  # fmt: skip
        assert said in plain, said
    assert "a tenth of that loop's time" in plain and SHARE == 0.1
    assert connection_limits.SILENT_SECONDS == connection_limits.REQUEST_SECONDS
    script = files("eoslog.broker.console") / "static" / "console.js"
    assert f"MOST_ROWS = {paging.MOST};" in script.read_text()


def test_the_ways_to_sort_are_those_of_the_code(text: str) -> None:
    for module, what in ((topics, "topics"), (groups, "groups"), (transactions, "transactions")):
        (line,) = (line for line in text.splitlines() if line.startswith(f"| `/api/{what}` |"))
        assert f"`sort` ({', '.join(module.SORTS)})" in line
