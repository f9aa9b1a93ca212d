"""What is in the wheel, the sdist and the jar, what they say of themselves, and what the check of a release
refuses.
"""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from build_dist import ROOT, source_files
from build_jar import ARTIFACT, GROUP, wheel_metadata, write_jar
from check_release import Release, Wrong, changelog, run, versions

import eoslog
from eoslog.connector.spark.libraries import LIBRARIES
from tests.packages.built_packages import Built

"""The first test waits for the build, which takes seconds on a machine that has nothing else to do."""

_ROOMS = {"eoslog/": "eoslog/"} | {
    f"{room}/": f"eoslog/{room}/" for room in ("protocol", "broker", "client", "connector")
}
_POM = "{http://maven.apache.org/POM/4.0.0}"


def _expected() -> set[str]:
    """Every file of the five rooms, where a package has it."""
    found = {"pyspark_eoslog.py"}
    for name in source_files():
        for room, home in _ROOMS.items():
            if name.startswith(room) and not name.endswith(".md") and not (ROOT / name).is_symlink():
                found.add(home + name.removeprefix(room))
    return found


def _names(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as opened:
        return opened.namelist()


@pytest.mark.timeout(900)
def test_the_wheel_holds_the_rooms_and_nothing_else(built: Built) -> None:
    """A package that setup.cfg forgets would be missing only for those who install it."""
    assert built.wheel.name == f"eoslog-{eoslog.__version__}-py3-none-any.whl"
    inside = {name for name in _names(built.wheel) if ".dist-info/" not in name}
    command = f"eoslog-{eoslog.__version__}.data/scripts/eoslog-python"
    assert inside == _expected() | {command, "eoslog.pth"}
    typed = {name for name in inside if name.endswith("py.typed")}
    assert typed == {"eoslog/py.typed", *(f"{home}py.typed" for home in _ROOMS.values())}


@pytest.mark.timeout(900)
def test_the_metadata_is_fit_for_an_index(built: Built) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", built.wheel, built.sdist],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count("PASSED") == 2
    about = wheel_metadata(built.wheel)
    assert about["Version"] == eoslog.__version__
    assert about["License-Expression"] == "Apache-2.0" and about["License-File"] == "LICENSE"
    assert about["Requires-Python"] == ">=3.11"
    page = str(about.get_payload())
    assert not re.findall(r"\]\((?!https://)[^)]*\)", page), "links that lead nowhere on an index's page"


@pytest.mark.timeout(900)
def test_what_pip_installs_with_it(built: Built) -> None:
    """PySpark is the user's own; what a jar's user is told to install is what pip would have installed."""
    about = wheel_metadata(built.wheel)
    always = {line for line in about.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert not [line for line in always if line.startswith("pyspark")]
    assert {library.requirement for library in LIBRARIES} <= always
    extras = about.get_all("Provides-Extra", [])
    assert len(extras) <= 13
    assert {"metrics", "broker-oauth", "keystores", "msk-iam", "oauth", "all", "dev"} <= set(extras)


@pytest.mark.timeout(900)
def test_the_sdist_can_build_the_wheel_and_says_what_changed(built: Built) -> None:
    """It has built the wheel here: `build` makes the wheel from the sdist."""
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "setup.cfg", "pyproject.toml"} <= names
    assert not [name for name in names if name.startswith(("tests", "examples", "benchmarks", "docs"))]


@pytest.mark.timeout(900)
def test_the_jar_holds_what_the_wheel_holds(built: Built) -> None:
    names = _names(built.jar)
    assert names[0] == "META-INF/MANIFEST.MF" and "META-INF/LICENSE" in names
    assert {name for name in names if not name.startswith("META-INF/")} == _expected()


@pytest.mark.timeout(900)
def test_the_jar_lies_where_maven_looks(built: Built) -> None:
    version = eoslog.__version__
    home = built.repository / "io" / "github" / "eoslog" / "eoslog_2.13"
    assert built.jar == home / version / f"eoslog_2.13-{version}.jar"
    pom = ElementTree.parse(built.jar.with_suffix(".pom")).getroot()
    told = [pom.findtext(_POM + tag) for tag in ("groupId", "artifactId", "version", "packaging")]
    assert told == [GROUP, ARTIFACT, version, "jar"]
    assert pom.findtext(f"{_POM}licenses/{_POM}license/{_POM}name") == "Apache-2.0"
    summed = [built.jar, built.jar.with_suffix(".pom"), home / "maven-metadata.xml"]
    for path in summed:
        for kind in ("md5", "sha1"):
            said = path.with_name(f"{path.name}.{kind}").read_text()
            assert said == hashlib.new(kind, path.read_bytes()).hexdigest()


@pytest.mark.timeout(900)
def test_the_same_wheel_gives_the_same_jar(built: Built, tmp_path: Path) -> None:
    write_jar(built.wheel, tmp_path / "again.jar")
    assert (tmp_path / "again.jar").read_bytes() == built.jar.read_bytes()


@pytest.mark.timeout(900)
def test_python_imports_from_the_jar(built: Built, tmp_path: Path) -> None:
    """The connector and the command line, no other copy of eoslog being on the way."""
    code = (
        "import eoslog.cli, eoslog.connector.sink.stream_writer, pyspark_eoslog, eoslog.registration as r;"
        "print(r.home_archive(), pyspark_eoslog.__file__)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(built.jar)},
        capture_output=True,
        text=True,
    )
    assert said.stdout.split() == [str(built.jar), f"{built.jar}/pyspark_eoslog.py"], said.stderr


@pytest.mark.timeout(900)
def test_the_changelog_begins_with_this_version() -> None:
    heads = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0] == eoslog.__version__


@pytest.mark.timeout(900)
def test_the_tree_has_one_version(built: Built, tmp_path: Path) -> None:
    release = Release(ROOT, built.wheel.parent, built.repository, tmp_path)
    assert versions(release) == f"{eoslog.__version__} everywhere"


# -- the check of a release ----------------------------------------------------------------------
# What the check of a release must not let pass: its rules, on small made-up trees.


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """A tree and packages of version 1.2.0."""
    source, dist, jar = tmp_path / "source", tmp_path / "dist", tmp_path / "maven" / "eoslog_2.13-1.2.0.jar"
    for path in (source / "eoslog", source / "docs", dist, jar.parent):
        path.mkdir(parents=True)
    (source / "eoslog/version").mkdir()
    (source / "eoslog/version/__init__.py").write_text('__version__ = "1.2.0"\n')
    (source / "docs/installing.md").write_text("--packages io.github.eoslog:eoslog_2.13:1.2.0 app.py")
    (source / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 1.2.0 (unreleased)\n- more\n\n## 1.1.0 (2026-01-31)\n"
    )
    with zipfile.ZipFile(dist / "eoslog-1.2.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("eoslog-1.2.0.dist-info/METADATA", "Name: eoslog\nVersion: 1.2.0\n")
    (dist / "eoslog-1.2.0.tar.gz").touch()
    jar.touch()
    return Release(source, dist, jar.parent, tmp_path / "bin")


def test_one_version_everywhere(release: Release) -> None:
    assert versions(release) == "1.2.0 everywhere"


@pytest.mark.parametrize("where", ["wheel", "sdist", "jar", "docs/installing.md"])
def test_a_version_that_was_forgotten(release: Release, where: str) -> None:
    if where == "wheel":
        with zipfile.ZipFile(release.wheel, "w") as wheel:
            wheel.writestr("eoslog-1.2.0.dist-info/METADATA", "Name: eoslog\nVersion: 1.1.0\n")
    elif where == "sdist":
        (release.dist / "eoslog-1.2.0.tar.gz").rename(release.dist / "eoslog-1.1.0.tar.gz")
    elif where == "jar":
        (release.maven / "eoslog_2.13-1.2.0.jar").rename(release.maven / "eoslog_2.13-1.1.0.jar")
    else:
        page = release.source / where
        page.write_text(page.read_text() + "\nio.github.eoslog:eoslog_2.13:1.1.0")
    with pytest.raises(Wrong, match=f"says 1.2.0, but .*{where}.*1.1.0"):
        versions(release)


def test_the_changelog_has_an_entry(release: Release) -> None:
    assert changelog(release, final=False) == "1.2.0 (unreleased)"
    with pytest.raises(Wrong, match="a release has a date"):
        changelog(release, final=True)
    page = release.source / "CHANGELOG.md"
    page.write_text(page.read_text().replace("(unreleased)", "(2026-02-28)"))
    assert changelog(release, final=True) == "1.2.0 (2026-02-28)"
    page.write_text("# Changelog\n\n## 1.1.0 (2026-01-31)\n")
    with pytest.raises(Wrong, match=r"begins with 1\.1\.0, not with 1\.2\.0"):
        changelog(release, final=False)


def test_a_command_that_fails_is_told_with_its_words() -> None:
    with pytest.raises(Wrong, match="exit status 3\nbecause"):
        run("sh", "-c", "echo because; exit 3")
