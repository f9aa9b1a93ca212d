"""Rules of the fan-out, each broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

FANOUT = ("tests/fanout/test_traps.py", "tests/fanout/test_crash_table.py")

MUTANTS: list[Mutant] = [
    *mutants_of(
        "eoslog/fanout/rules.py",
        FANOUT,
        Break("any query's mark counts", "mark.query != batch.query", "False"),
        Break("a batch that is there is written", "mark.number == batch.number:", "False:"),
        Break("an older checkpoint goes on", "mark.number > batch.number:", "False:"),
        Break("gaps are passed over", "in (0 if mark is None else mark.number + 1, since):", "is not None:"),
        Break("other rows are the same", "    if had == given:\n", "    if True:\n"),
    ),
    *mutants_of(
        "eoslog/fanout/delta.py",
        FANOUT,
        Break("restored tables count", "if newer < 0 or restored:", "if newer < 0:"),
        Break("marks may expire", "if refused or special:", "if special:"),
    ),
    *mutants_of(
        "eoslog/fanout/iceberg.py",
        FANOUT,
        Break("rolled back tables count", "if at is None and all(", "if False and all("),
        Break("expired snapshots are rolled back ones", 'one.added_snapshot_id != said["snapshot"]', "True"),
        Break(
            "the library commits again",
            "self._read.catalog.commit_table(self._read, needs, transaction._updates)",
            "transaction.commit_transaction()",
        ),
    ),
    *mutants_of(
        "eoslog/fanout/table.py",
        FANOUT,
        Break("a lost answer is an error", "is Step.CHECK and mark is not None:", "is None:"),
    ),
]
