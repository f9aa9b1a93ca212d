"""Tables: for eyes at a terminal, for pipes, for programs."""

import io
import json
import sys

import pytest

from eoslog.commands.output import show

ROWS = [
    {"topic": "orders", "isr": [1, 2], "end": 10, "member": None},
    {"topic": "[bold]x[/bold]", "isr": [], "end": 5, "member": b"\xff"},
]
COLUMNS = ["topic", "isr", "end", "member"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, COLUMNS, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC           ISR  END  MEMBER",
        "orders          1,2  10   -",
        r"[bold]x[/bold]  -    5    \xff",
    ]


def test_a_table_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    show(ROWS, COLUMNS, as_json=False)
    said = terminal.getvalue()
    assert "TOPIC" in said and "orders" in said and "─" in said
    assert "[bold]x[/bold]" in said  # names are text, not markup


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, COLUMNS, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found[0] == ROWS[0]
    assert found[1]["member"] == "\\xff"
