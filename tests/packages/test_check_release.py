"""What the check of a release must not let pass: its rules, on small made-up trees."""

import zipfile
from pathlib import Path

import pytest
from check_release import Release, Wrong, changelog, run, versions


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
