"""The page on testing tells what is there: every block of code on it is run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python (\w+)\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
RUN = [code for kind, code in BLOCKS if kind == "run"]


def test_the_page_has_code() -> None:
    assert len(RUN) >= 4
    assert [kind for kind, _ in BLOCKS].count("test") == 1


@pytest.mark.parametrize("code", RUN, ids=lambda code: code.split("\n")[0])
def test_a_script(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = (code for kind, code in BLOCKS if kind == "test")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p eoslog.pytest_plugin")
    pytester.makepyfile(code)
    pytester.runpytest_subprocess().assert_outcomes(passed=2)
