"""All mutants: the rules that a guarantee leans on, each broken once or more."""

from tests.mutants import (
    audit_rules,
    broker_log_rules,
    broker_rules,
    checkpoint_rules,
    client_rules,
    commit_rules,
    fanout_rules,
    front_door_rules,
    places_rules,
    rehearse_rules,
    saved_rules,
    shadow_rules,
    simulation_rules,
    sink_rules,
    source_rules,
    warm_rules,
)
from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    *audit_rules.MUTANTS,
    *broker_log_rules.MUTANTS,
    *broker_rules.MUTANTS,
    *checkpoint_rules.MUTANTS,
    *client_rules.MUTANTS,
    *commit_rules.MUTANTS,
    *fanout_rules.MUTANTS,
    *front_door_rules.MUTANTS,
    *places_rules.MUTANTS,
    *rehearse_rules.MUTANTS,
    *saved_rules.MUTANTS,
    *shadow_rules.MUTANTS,
    *simulation_rules.MUTANTS,
    *sink_rules.MUTANTS,
    *source_rules.MUTANTS,
    *warm_rules.MUTANTS,
]
