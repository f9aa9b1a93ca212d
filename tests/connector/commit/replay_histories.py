"""Histories in which a decided batch loses rows first, and anything may happen after that."""

from eoslog.connector.commit.finish import COMMITTED
from tests.connector.commit.model_coverage import Coverage
from tests.connector.commit.model_history import Fault, Shape
from tests.connector.commit.model_judge import explore
from tests.connector.commit.model_programs import Process, Request
from tests.connector.commit.model_spark import Simulation


class LossFirst(Simulation):
    """The first fault is a time-out as a commit goes on after its decision; the others strike anywhere."""

    def _possible(self, kind: Fault, process: Process, request: Request) -> bool:
        if not self.used:
            own = self.broker.transactions.get(self.sink.coordinator)
            decided = own is not None and own.state in COMMITTED and process.partition is None
            if kind is not Fault.EXPIRE or not decided or not request.label.startswith("commit: EndTxn"):
                return False
        return super()._possible(kind, process, request)


def explore_losses(shape: Shape) -> Coverage:
    """Every history of this shape that begins with a loss."""
    return explore(shape, LossFirst)
