"""Fixtures for all tests."""

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from eoslog.testing import EmbeddedBroker
from tests.luck import ORDER, shuffled
from tests.spark_session import set_environment, small_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

set_environment()

# How long one example takes, or its making, says more about the machine than about the code.
settings.register_profile("without a clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without a clock")


LONG = (
    "tests/examples/test_spark_examples.py",
    "tests/connector/crashes/test_crash_table.py",
    "tests/stateful/",
    "tests/connector/executors/",
    "tests/connector/run/test_orderly_end.py",
    "tests/kills/",
)
"""Files of few tests that take a minute each: begun last, one worker would wait for the other."""


ON_REQUEST = {"kafka", "browser", "packages", "long", "kerberos"}
"""Markers of tests that run only where `-m` names the marker; setup.cfg says what they need."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without what nobody asked for; the long files first, the others in order or shuffled (luck.py)."""
    unasked = ON_REQUEST - set(re.findall(r"\w+", config.option.markexpr))
    left_out = {item for item in items if any(mark.name in unasked for mark in item.iter_markers())}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    if ORDER in os.environ:
        items[:] = shuffled(items, os.environ[ORDER])
    items.sort(key=lambda item: next((n for n, path in enumerate(LONG) if item.nodeid.startswith(path)), 99))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker of the module's own; tests in it keep apart by their topics' names."""
    with EmbeddedBroker() as started:
        yield started


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A small local session, shared by all tests of a process."""
    with small_session() as started:
        yield started
