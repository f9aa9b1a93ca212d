"""The broker of the audit's tests (EOSLOG_TEST_BROKER=kafka: Apache Kafka), and an Iceberg catalog."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from eoslog.testing import EmbeddedBroker
from tests.scenarios.apache_kafka import ApacheKafka


@pytest.fixture(scope="module")
def cluster_broker() -> Iterator[Any]:
    on_kafka = os.environ.get("EOSLOG_TEST_BROKER", "eoslog") == "kafka"
    with ApacheKafka({}) if on_kafka else EmbeddedBroker(timeout=60) as started:
        yield started


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlCatalog]:
    """A catalog `here` in SQLite, with the namespace `ns`."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__HERE__URI", uri)
    monkeypatch.setenv("PYICEBERG_CATALOG__HERE__TYPE", "sql")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # what it has read when it was imported
    made = SqlCatalog("here", uri=uri, warehouse=f"file://{tmp_path}/warehouse")
    made.create_namespace("ns")
    yield made
    made.close()
