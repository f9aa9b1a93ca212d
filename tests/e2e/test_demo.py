"""The demo on the first flights of the year: the same kills, the same auditor, and an audit that can fail."""

import io
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rich.console import Console

from examples.flights.audit import Verdict
from examples.flights.view import closing
from tests.svg import PICTURES

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = 30_000


def demo(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "examples.flights.run", "--data", str(folder), *args]
    command += ["--limit", str(FLIGHTS), "--rate", "3000", "--rows-per-batch", "3000"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_every_flight_once_through_three_kills(tmp_path: Path) -> None:
    done = demo(tmp_path / "demo", "--guarantee", "exactly_once")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "every flight exactly once" in done.stdout
    assert all(f"killed {what}" in done.stdout for what in ("the broker", "the Spark", "a Python worker"))


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_at_least_once_doubles_and_the_audit_says_so(tmp_path: Path) -> None:
    done = demo(tmp_path / "demo", "--guarantee", "at_least_once", "--expect-duplicates")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "not exactly once" in done.stdout


def test_the_picture_of_the_readme_shows_what_the_demo_prints_now() -> None:
    """Every line of an audit that holds, and the three kills; nothing is fetched from outside."""
    text = (PICTURES / "demo.svg").read_text()
    shown = "".join(ElementTree.fromstring(text).itertext()).replace("\xa0", " ")
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(closing(Verdict(336_776, 336_776), 3, 0.0, 0, "exactly_once"))
    printed = re.findall(r"[^│┌┐└┘─┬┴\n]+", re.sub(r"\d+ s, .* GiB", "", console.export_text()))
    for words in filter(None, map(str.strip, printed)):
        assert words in shown, f"the picture does not show {words!r}: make demo-picture"
    assert all(f"killed {what}" in shown for what in ("the broker", "the Spark", "a Python worker"))
    assert not re.search(r"""(href|src|url)\s*[=(]\s*["']?https?:""", text)
