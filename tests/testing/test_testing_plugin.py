"""The pytest plugin: found by its entry point, quiet when not used, set by marker, option and ini file."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
USE = """
    import socket

    def test_one(eoslog_broker):
        socket.create_connection((eoslog_broker.host, eoslog_broker.port)).close()
        print("THREAD" if eoslog_broker.pid == __import__("os").getpid() else "PROCESS")

    def test_two(eoslog_broker):
        assert eoslog_broker.faults.cut_connections() == 0
        eoslog_broker.kill()
        eoslog_broker.start()
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A pytest in a process of its own that has the plugin, as an entry point gives it."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p eoslog.pytest_plugin")
    return pytester


def test_a_broker_for_each_test(run: pytest.Pytester) -> None:
    run.makepyfile(USE)
    result = run.runpytest_subprocess("-s", "-W", "error")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines("*PROCESS*")


def test_in_a_thread_by_the_command_line(run: pytest.Pytester) -> None:
    run.makepyfile(USE)
    result = run.runpytest_subprocess("-s", "--eoslog-in-thread")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines("*THREAD*")


def test_settings_of_the_ini_file_and_the_nearest_marker(run: pytest.Pytester) -> None:
    run.makeini("[pytest]\neoslog_flush = os\neoslog_in_thread = true\n")
    run.makepyfile("""
        import pytest

        pytestmark = pytest.mark.eoslog_broker(config={"num.partitions": "3"}, log_level="error")

        def test_ini(eoslog_broker):
            assert eoslog_broker._flush == "os"
            assert eoslog_broker._config == {"num.partitions": "3"}

        @pytest.mark.eoslog_broker(config={"num.partitions": "5"}, flush="fsync")
        def test_marker(eoslog_broker):
            assert eoslog_broker._flush == "fsync"
            assert eoslog_broker._config == {"num.partitions": "5"}
            assert eoslog_broker._log_level == "error"
    """)
    run.runpytest_subprocess("--strict-markers").assert_outcomes(passed=2)
    result = run.runpytest_subprocess("--eoslog-flush", "fsync")
    result.assert_outcomes(passed=1, failed=1)


def test_one_broker_for_all(run: pytest.Pytester) -> None:
    run.makepyfile("""
        ports = set()

        def test_one(eoslog_session_broker):
            ports.add(eoslog_session_broker.port)

        def test_two(eoslog_session_broker):
            assert ports == {eoslog_session_broker.port}
    """)
    run.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize("mark", ["parts=3", "'a'"])
def test_a_marker_that_makes_no_sense(run: pytest.Pytester, mark: str) -> None:
    run.makepyfile(f"""
        import pytest

        @pytest.mark.eoslog_broker({mark})
        def test_it(eoslog_broker): ...
    """)
    result = run.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*marker eoslog_broker of *test_it does not know*it takes data, port, flush*")


def test_unused_it_imports_nothing(run: pytest.Pytester) -> None:
    run.makepyfile("""
        import sys

        def test_modules():
            loaded = {name for name in sys.modules if name.startswith("eoslog")}
            assert loaded <= {"eoslog", "eoslog.pytest_plugin", "eoslog.registration", "eoslog.version"}
            assert not {"numpy", "pyarrow", "click", "asyncio"} & set(sys.modules)
    """)
    run.runpytest_subprocess().assert_outcomes(passed=1)


def test_installed(tmp_path: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the built package, far from the source tree, by the entry point alone."""
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name in ("eoslog", "protocol", "broker", "client", "connector"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "pyspark_eoslog.py"):
        shutil.copy(ROOT / name, source)
    (source / "packaging").mkdir()
    shutil.copy(ROOT / "packaging" / "eoslog-python", source / "packaging")
    site.mkdir()
    setup = [sys.executable, "-c", "import setuptools; setuptools.setup()"]
    commands = ["build", "--build-lib", str(site), "egg_info", "--egg-base", str(site)]
    done = subprocess.run([*setup, *commands], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(
        USE
        + f"""
    def test_where():
        import eoslog.broker
        assert eoslog.broker.__file__.startswith({str(site)!r})
    """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)
