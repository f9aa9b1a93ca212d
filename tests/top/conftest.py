"""The broker of the tests of `eoslog top`; with EOSLOG_TEST_BROKER=kafka an Apache Kafka node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from eoslog.testing import EmbeddedBroker
from tests.scenarios.apache_kafka import ApacheKafka
from tests.top.busy import Busy


@pytest.fixture(scope="module")
def cluster_broker() -> Iterator[Any]:
    on_kafka = os.environ.get("EOSLOG_TEST_BROKER", "eoslog") == "kafka"
    with ApacheKafka({}) if on_kafka else EmbeddedBroker(timeout=60) as started:
        yield started


@pytest.fixture(scope="module")
def busy(cluster_broker: Any) -> Iterator[Busy]:
    with Busy(cluster_broker.bootstrap) as busy:
        yield busy
