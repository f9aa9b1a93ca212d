"""eoslog.register(spark) where it cannot work: what it says. Where it works: `make test-packages`."""

import subprocess
import sys
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import eoslog
from eoslog import registration
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.spark.libraries import EnvironmentUnfit, check_versions, numbers


class Session:
    """As much of a session as register touches."""

    def __init__(self, *includes: str) -> None:
        self.shipped: list[str] = []
        self.registered: list[type] = []
        self.sparkContext = SimpleNamespace(
            _python_includes=list(includes), addPyFile=self.shipped.append, environment={"PYTHONPATH": "mine"}
        )
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.createDataFrame = lambda rows, schema: None


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Hides modules from this Python."""
    real = util.find_spec

    def hide(*names: str) -> None:
        monkeypatch.setattr(util, "find_spec", lambda name: None if name in names else real(name))

    return hide


def test_installed_by_pip_it_only_names_the_source() -> None:
    session = Session()
    eoslog.register(session)  # type: ignore[arg-type]
    assert session.registered == [EoslogDataSource] and not session.shipped


def test_a_library_that_the_driver_lacks(without: Any) -> None:
    without("google_crc32c", "numpy")
    with pytest.raises(EnvironmentUnfit) as refused:
        eoslog.register(Session())  # type: ignore[arg-type]
    said = str(refused.value)
    assert "numpy is missing; google-crc32c is missing" in said
    assert f"{sys.executable} -m pip install 'numpy>=1.26' 'google-crc32c>=1.5'" in said


@pytest.mark.parametrize(
    ("name", "version", "wanted"),
    [
        ("pyspark", "3.5.9", "pyspark>=4.0"),
        ("numpy", "1.9.2", "numpy>=1.26"),
    ],
)
def test_a_library_that_is_too_old(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str, wanted: str
) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda asked: version if asked == name else real(asked))
    with pytest.raises(EnvironmentUnfit, match=f"{name} is {version}, which is too old.*{wanted}"):
        eoslog.register(Session())  # type: ignore[arg-type]


def test_a_spark_without_pips_notes_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own Python folder, on PYTHONPATH, was not installed by pip."""

    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", unknown)
    check_versions()
    monkeypatch.setattr("pyspark.__version__", "3.5.0")
    with pytest.raises(EnvironmentUnfit, match=r"pyspark is 3\.5\.0, which is too old"):
        check_versions()


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.2.0.dev3", (4, 2, 0)), ("4.10", (4, 10)), ("4.3.0+db.1", (4, 3, 0)), ("x", ())],
)
def test_the_numbers_of_a_version(version: str, expected: tuple[int, ...]) -> None:
    assert numbers(version) == expected


def test_an_executor_that_lacks_a_library_says_so_and_where(tmp_path: Path) -> None:
    """The first thing that a process gets of the connector is enough."""
    code = (
        "import sys; sys.modules['google_crc32c'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name: None if name == 'google_crc32c' else real(name)\n"
        "import eoslog.connector.source.reader"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "EnvironmentUnfit: eoslog cannot run in" in ended.stderr
    assert "google-crc32c is missing" in ended.stderr and "pip install 'google-crc32c>=1.5'" in ended.stderr


def test_a_session_of_spark_connect_without_a_jar_is_refused() -> None:
    with pytest.raises(registration.RegistrationError, match=r"Spark Connect.* pip there.* PYTHONPATH="):
        eoslog.register(SimpleNamespace(dataSource=None))  # type: ignore[arg-type]


def test_a_session_of_spark_connect_gets_the_jar_before_the_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jar = tmp_path / "e.jar"
    jar.touch()
    monkeypatch.setattr(registration, "home_archive", lambda: jar)
    asked: list[Any] = []
    session: Any = SimpleNamespace(
        addArtifacts=lambda *paths, pyfile: asked.append((paths, pyfile)),
        dataSource=SimpleNamespace(register=asked.append),
    )
    eoslog.register(session)
    assert asked == [((str(jar),), True), EoslogDataSource]


@pytest.mark.parametrize(("includes", "shipped"), [((), 1), (("e.jar",), 0), (("other.jar",), 1)])
def test_the_jar_is_handed_on_unless_spark_has_done_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, includes: tuple[str, ...], shipped: int
) -> None:
    jar = tmp_path / "e.jar"
    jar.touch()
    monkeypatch.setattr(registration, "home_archive", lambda: jar)
    session = Session(*includes)
    eoslog.register(session)  # type: ignore[arg-type]
    eoslog.register(session)  # type: ignore[arg-type]
    assert session.shipped == [str(jar)] * (2 * shipped)  # Spark notes its name, this session does not
    assert session.sparkContext.environment == {"PYTHONPATH": f"{jar}:mine"}
    assert session.registered == [EoslogDataSource] * 2


def test_a_jar_that_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registration, "home_archive", lambda: tmp_path / "gone.jar")
    with pytest.raises(registration.RegistrationError, match="which is gone"):
        eoslog.register(Session())  # type: ignore[arg-type]
