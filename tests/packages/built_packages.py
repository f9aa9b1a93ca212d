"""The three packages as they were built."""

import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))  # scripts: a library has the folder's name

from build_dist import build
from build_jar import install


class Built(NamedTuple):
    """The three packages, and the Maven repository that holds the jar."""

    wheel: Path
    sdist: Path
    jar: Path
    repository: Path


def build_all(folder: Path) -> Built:
    """Wheel, sdist and jar of the source tree as it is, without the network."""
    wheel, sdist = build(folder / "dist", isolated=False)
    return Built(wheel, sdist, install(wheel, folder / "maven"), folder / "maven")
