"""Rules of the model behind docs/scale.md, broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

HERE = "tests/simulation/"

MUTANTS: list[Mutant] = [
    *mutants_of(
        "benchmarks/simulation/micro_batch.py",
        (f"{HERE}test_counts.py",),
        Break("sealing writes nothing", "self.leaders) + self.sealed + 2", "self.leaders) + 2"),
        Break("sealing asks nothing", "InitProducerId=self.tasks * self.sealed", "InitProducerId=0"),
        Break("a batch has no decision of its own", "+ self.groups + 2 + old", "+ old"),
        Break("the decision has no marker", "return chunks + 1 +", "return chunks +"),
    ),
    *mutants_of(
        "benchmarks/simulation/timeline.py",
        (f"{HERE}test_timeline.py",),
        Break("the first marker waits for another", "last = -inf", "last = 0.0"),
        Break("markers do not queue up", "last + costs.marker.each)", "0.0)"),
        Break("the driver looks without a pause", "        now += pause\n", "", hangs=True),
        Break(
            "a round has no end", "mine[at : at + IN_FLIGHT] for mine", "mine[at:] if not at else [] for mine"
        ),
        Break("a round is free", "if at else costs.end.alone", "if at else 0.0"),
    ),
]
