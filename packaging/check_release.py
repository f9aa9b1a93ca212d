"""Checks what would be released, from nothing but the commit: `make check-release` (FINAL=1).

It works in a folder that is removed at the end: a fresh clone; the wheel, the sdist and the jar built from
it, with a build system fetched for it; an index's check of their metadata; one version everywhere; an entry
in the changelog; an empty environment with the wheel and PySpark; and the first section of README.md, typed
there. The first failure ends it, with exit status 1.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from build_dist import ROOT
from build_jar import ARTIFACT, GROUP, wheel_metadata

ADDRESS = "127.0.0.1:9092"


class Wrong(Exception):
    """The release is not fit; the message says what is wrong, and where."""


class Release(NamedTuple):
    """A release being checked: the clone, what was built from it, the environment to try it in."""

    source: Path
    dist: Path
    maven: Path
    bin: Path

    @property
    def wheel(self) -> Path:
        """The wheel."""
        return next(self.dist.glob("*.whl"))

    @property
    def version(self) -> str:
        """The version in the source."""
        found = re.search(
            r'^__version__ = "(.*)"', (self.source / "eoslog/version/__init__.py").read_text(), re.M
        )
        if found is None:
            raise Wrong("eoslog/version/__init__.py has no line __version__ = ...")
        return found[1]


def run(*words: object, **more: str) -> str:
    """What a command printed. Raises Wrong with all of its output if it failed."""
    done = subprocess.run(
        [str(word) for word in words],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more,
        cwd=more.get("PWD"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise Wrong(f"{' '.join(map(str, words))[:300]}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def clone(release: Release) -> str:
    """Clone the commit, and nothing else."""
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, release.source)
    left_out = run("git", "-C", ROOT, "status", "--short").splitlines()
    commit = run("git", "-C", release.source, "log", "-1", "--format=%h %s").strip()
    return commit + (f"; {len(left_out)} changes are not committed, and not checked" if left_out else "")


def build(release: Release) -> str:
    """Build with the scripts and the build system of the clone."""
    scripts = release.source / "packaging"
    run(sys.executable, scripts / "build_dist.py", "--out", release.dist)
    run(sys.executable, scripts / "build_jar.py", release.wheel, "--repository", release.maven)
    return ", ".join(f"{path.name} {path.stat().st_size:,} bytes" for path in sorted(release.dist.iterdir()))


def metadata(release: Release) -> str:
    """Check the metadata as an index would."""
    run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *release.dist.iterdir())
    return "fit for an index (twine check --strict)"


def versions(release: Release) -> str:
    """Check that the version is the same everywhere."""
    version = release.version
    page = (release.source / "docs/installing.md").read_text()
    named = set(re.findall(rf"{re.escape(f'{GROUP}:{ARTIFACT}')}:([\w.]+)", page))
    stated = {
        "wheel": wheel_metadata(release.wheel)["Version"],
        "sdist": next(release.dist.glob("*.tar.gz")).name.removeprefix("eoslog-").removesuffix(".tar.gz"),
        "jar": next(release.maven.rglob("*.jar")).stem.rpartition("-")[2],
        "docs/installing.md": " ".join(sorted(named)),
    }
    wrong = {where: said for where, said in stated.items() if said != version}
    if wrong:
        raise Wrong(f"eoslog/version/__init__.py says {version}, but {wrong}")
    return f"{version} everywhere"


def changelog(release: Release, final: bool) -> str:
    """Check that the first entry is this version's; for a final release it must have a date."""
    head = re.search(r"^## (\S+) *\(?(.*?)\)?$", (release.source / "CHANGELOG.md").read_text(), re.M)
    if head is None or head[1] != release.version:
        raise Wrong(f"CHANGELOG.md begins with {head and head[1]}, not with {release.version}")
    if final and not re.fullmatch(r"\d{4}-\d\d-\d\d", head[2]):
        raise Wrong(f"CHANGELOG.md: {head[1]} ({head[2]}): a release has a date, as 2026-01-31")
    return f"{head[1]} ({head[2]})"


def install(release: Release) -> str:
    """Install the wheel, and the PySpark that the development environment pins, into an empty environment."""
    run(sys.executable, "-m", "venv", release.bin.parent)
    spark = re.search(r"^ +(pyspark==\S+)", (release.source / "setup.cfg").read_text(), re.M)
    if spark is None:
        raise Wrong("setup.cfg pins no pyspark==")
    pip = (release.bin / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", release.wheel, spark[1])
    run(*pip, "check")
    said = run(release.bin / "eoslog", "--version", PWD=str(release.dist)).strip()
    if not said.endswith(release.version):
        raise Wrong(f"eoslog --version says {said!r}")
    return f"{said}, with {spark[1]}"


def quick_start(release: Release) -> str:
    """Run README.md's first section, except its clone, in the environment. The section counts its rows
    itself.
    """
    sys.path.insert(0, str(release.source))
    from tests.docs.newcomer import path_of, script_of

    blocks = [block for block in path_of(release.source / "README.md") if block.mark != "run by"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    place = release.dist.parent / "place"
    place.mkdir()
    path = os.pathsep.join([str(release.bin), os.environ["PATH"]])
    run("bash", "-c", script_of(blocks, "", address), PATH=path, PWD=str(place), SPARK_LOCAL_IP="127.0.0.1")
    return f"README.md's first section, {len(blocks)} blocks"


def main() -> int:
    """The command line; one line for each step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--final", action="store_true", help="the changelog's entry must have a date")
    final = parser.parse_args().final
    steps: list[Callable[[Release], str]] = [clone, build, metadata, versions]
    steps += [lambda release: changelog(release, final), install, quick_start]
    names = ("clone", "build", "metadata", "versions", "changelog", "install", "quick start")
    with tempfile.TemporaryDirectory(prefix="eoslog-release-") as folder:
        at = Path(folder)
        release = Release(at / "source", at / "dist", at / "maven", at / "venv" / "bin")
        for name, step in zip(names, steps, strict=True):
            began = time.monotonic()
            try:
                said = step(release)
            except Wrong as wrong:
                print(f"{name:12} WRONG: {wrong}", flush=True)
                return 1
            print(f"{name:12} {said} ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
