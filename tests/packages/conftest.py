"""What `make dist` and `make jar` make, built once for all tests here, without the network."""

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))

from build_dist import build
from build_jar import install


class Built(NamedTuple):
    """The three packages, and the Maven repository that holds the jar."""

    wheel: Path
    sdist: Path
    jar: Path
    repository: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Wheel, sdist and jar of the source tree as it is."""
    folder = tmp_path_factory.mktemp("built")
    wheel, sdist = build(folder / "dist", isolated=False)
    return Built(wheel, sdist, install(wheel, folder / "maven"), folder / "maven")
