"""What `make dist` and `make jar` make, built once for all tests here."""

import sys
from pathlib import Path

import pytest
from built_packages import Built, build_all

sys.path.append(str(Path(__file__).parents[1] / "connector"))  # the stock client's view of a broker


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Wheel, sdist and jar of the source tree as it is."""
    return build_all(tmp_path_factory.mktemp("built"))
