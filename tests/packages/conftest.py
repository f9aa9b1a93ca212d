"""What `make dist` and `make jar` make, built once for all tests here."""

import pytest

from tests.packages.built_packages import Built, build_all


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Wheel, sdist and jar of the source tree as it is."""
    return build_all(tmp_path_factory.mktemp("built"))
