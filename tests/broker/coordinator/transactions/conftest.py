"""The rules of transactions over the wire, on a broker of the module's own.

With EOSLOG_TEST_BOOTSTRAP=host:port the same tests run against that Kafka broker. It should look often for
time-outs (transaction.abort.timed.out.transaction.cleanup.interval.ms=200), and serve InitProducerId 6
(unstable.api.versions.enable=true, transaction.two.phase.commit.enable=true).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest

from tests.broker.coordinator.transactions.txn_wire import QUICK, Cluster, Producer, cluster_under_test

_NUMBERS = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The broker under test, with two topics of two partitions."""
    with cluster_under_test(QUICK) as opened:
        yield opened


@pytest.fixture
def producer(cluster: Cluster) -> Producer:
    """A producer under a transactional id of the test's own, not yet initialised."""
    return Producer(cluster, f"id-{os.getpid()}-{next(_NUMBERS)}")
