"""A bundled broker whose power fails under the load of `eoslog rehearse --crash`, and the row that tells."""

from __future__ import annotations

import time
from functools import partial
from typing import Literal

import pytest

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.rehearse import crash
from eoslog.rehearse.probes import row
from eoslog.rehearse.rows import NotFoundOut, Row
from eoslog.rehearse.work import ScratchNames, Work
from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.connector.stock_kafka import Kafka
from tests.rehearse.broken_brokers import SWEEPS, Break

NAMES = ScratchNames("0123456789ab")
SYNC_S = 0.05
"""A sync takes so long when the power fails: what was not waited for is lost then."""
PATIENCE_MS = 6_000


def crashed(broken: Break | None, keep: Literal["nothing", "some"], slow: str, seed: int) -> Row:
    """The row of one crash. `slow`: of which files (a part of their path) syncs are slow before it."""
    with pytest.MonkeyPatch.context() as patch:
        if broken is not None:
            broken(patch)
        with EmbeddedBroker(in_thread=True, config=SWEEPS) as broker:
            return _crashed(broker, keep, slow, seed)


def _crashed(broker: EmbeddedBroker, keep: Literal["nothing", "some"], slow: str, seed: int) -> Row:
    where = parse_addresses(broker.bootstrap)
    config = ClientConfig(where, api_timeout_ms=PATIENCE_MS, delivery_timeout_ms=PATIENCE_MS)
    for topic in ("crash", "crash-load"):
        Kafka(broker.bootstrap).topic(2, NAMES.name(topic))

    def cut() -> None:
        broker.faults.delay_fsync(SYNC_S, path=slow)
        time.sleep(0.2 + 0.037 * seed)  # at another moment each time
        broker.lose_unsynced(keep, seed)
        try:
            broker.start()
        except BrokerFailed as failed:
            raise NotFoundOut(f"the broker does not come back: {failed}") from failed
        broker.faults.disarm()

    with Cluster(config) as cluster:
        work = Work(cluster, NAMES, PATIENCE_MS / 3000)
        return row("a crash of brokers", partial(crash.look, work, "crash", cut, lambda: Cluster(config)))
