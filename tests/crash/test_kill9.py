"""kill -9 and power loss under stock clients: what was acked is there once, transactions whole or not."""

from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import create
from tests.crash.soak_kill9 import Round


def test_what_stock_clients_were_told_holds_after_the_broker_died() -> None:
    with EmbeddedBroker(faults=True, config={"offsets.topic.num.partitions": "2"}) as broker:
        create(broker.bootstrap, "plain", 3)
        create(broker.bootstrap, "whole", 2)
        round_ = Round(broker, 3)
        round_.run(2)
        round_.audit()
