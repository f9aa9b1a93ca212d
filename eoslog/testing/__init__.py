"""A real broker for tests, with faults on demand.

    with EmbeddedBroker(faults=True) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        broker.faults.drop_answer("Produce", nth=3)
        broker.kill()       # SIGKILL, as a crash
        broker.restart()    # the same directory, the same port

The fixture `eoslog_broker` (`eoslog.pytest_plugin`) provides one for a test. All of it is in
docs/testing-pipelines.md.
"""

from eoslog.protocol.errors import ErrorCode
from eoslog.testing.embedded import EmbeddedBroker
from eoslog.testing.faults import Fault, Faults, FaultTimeout
from eoslog.testing.process import BrokerFailed

__all__ = ["BrokerFailed", "EmbeddedBroker", "ErrorCode", "Fault", "FaultTimeout", "Faults"]
