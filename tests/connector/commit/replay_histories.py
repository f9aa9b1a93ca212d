"""Histories in which a decided batch loses rows first, and anything may happen after that."""

from eoslog.connector.commit.finish import COMMITTED
from tests.connector.commit.model_coverage import Coverage
from tests.connector.commit.model_history import Choices, Fault, Shape
from tests.connector.commit.model_judge import judge
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
    covered = Coverage()
    given: tuple[int, ...] | None = ()
    while given is not None:
        choices = Choices(given)
        done = LossFirst(shape, choices)
        try:
            covered.add(judge(done.run()), done)
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n{shape}\n{given}\n{done.used}\n{done.faults}") from wrong
        given = choices.following()
    return covered
