"""All mutants: the rules that a guarantee leans on, each broken once or more."""

from tests.mutants import (
    broker_rules,
    checkpoint_rules,
    client_rules,
    commit_rules,
    fanout_rules,
    places_rules,
    sink_rules,
    source_rules,
    tool_rules,
)
from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    *broker_rules.MUTANTS,
    *checkpoint_rules.MUTANTS,
    *client_rules.MUTANTS,
    *commit_rules.MUTANTS,
    *fanout_rules.MUTANTS,
    *places_rules.MUTANTS,
    *sink_rules.MUTANTS,
    *source_rules.MUTANTS,
    *tool_rules.MUTANTS,
]
