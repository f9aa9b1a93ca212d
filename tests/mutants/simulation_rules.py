"""Rules of the model behind docs/scale.md, broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

HERE = "tests/simulation/"

MUTANTS: list[Mutant] = [
    *mutants_of(
        (f"{HERE}test_simulation.py",),
        Break("sealing writes nothing", "MicroBatch.state_records", "1 + (1 if old else self.leaders) + self.sealed", "1 + (1 if old else self.leaders)"),
        Break("sealing asks nothing", "MicroBatch.requests", "self.tasks * self.sealed", "0"),
        Break("a batch has no decision of its own", "MicroBatch.state_records", "self.tasks * task + self.groups + 2", "self.tasks * task"),
        Break("the decision has no marker", "offset_records", "chunks + 1", "chunks"),
    ),
    *mutants_of(
        (f"{HERE}test_simulation.py",),
        Break("the first marker waits for another", "_ends", "-inf", "0.0"),
        Break("markers do not queue up", "_ends", "last + costs.marker.each", "0.0"),
        Break("the driver looks without a pause", "_look_until", "now += pause", "pass", hangs=True),
        Break("a round has no end", "_rounds", "mine[at:at + IN_FLIGHT]", "mine[at:] if not at else []"),
        Break("a round is free", "_ends", "costs.end.alone", "0.0"),
    ),
]
