"""The demo on the first flights of the year: the same kills, the same auditor, and an audit that can fail."""

import subprocess
import sys
from pathlib import Path

import pytest

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
