"""Rules of the fan-out, each broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

FANOUT = (
    "tests/fanout/test_traps.py",
    "tests/fanout/test_table_history.py",
    "tests/fanout/test_lost_plan.py",
    "tests/fanout/test_crash_table.py",
)

MUTANTS: list[Mutant] = [
    *mutants_of(
        "eoslog/fanout/rules.py",
        FANOUT,
        Break("any query's mark counts", "mark.query != batch.query", "False"),
        Break("a batch that is there is written", "mark.number == batch.number:", "False:"),
        Break("another name is another query", "own < batch.number <= reached:", "False:"),
        Break(
            "since excuses another name",
            "own < batch.number <= reached:",
            "batch.number not in (since, own + 1) and own < batch.number <= reached:",
        ),
        Break("an older checkpoint goes on", "mark.number > batch.number:", "False:"),
        Break("gaps are passed over", "in (0 if mark is None else mark.number + 1, since):", "is not None:"),
        Break("a batch that is gone counts", "mark.gone is not None:", "False:"),
        Break("any since excuses a loss", "if since == batch.number:", "if since is not None:"),
        Break("a batch that is to stay out is written", "if again and since", "if False and since"),
        Break("what is missing comes again", "if old < new else", "if old > new else"),
        Break("another plan is the same", "or before.digest == after.digest:", "or before:"),
        Break("other rows are the same", "    if had.content == given:\n", "    if True:\n"),
    ),
    *mutants_of(
        "eoslog/fanout/delta.py",
        FANOUT,
        Break("a RESTORE changes nothing", 'r"RESTORE|REPLACE', 'r"REPLACE'),
        Break("a table made anew is the old one", "RESTORE|REPLACE|CREATE|CLONE", "RESTORE"),
        Break("a new id is no new table", ".metadata().id != one for", ".metadata().id != one and False for"),
        Break(
            "any commit brought the batch",
            "version):\n            if self._has",
            "version) and not commit:\n            if self._has",
        ),
        Break("no state is as before", "self._state(at) == self._state(one)", "False"),
        Break("every state is as before", "self._state(at) == self._state(one)", "True"),
        Break("a way back is enough once", "kept = having[-1] == at - 1", "kept = True"),
        Break("files that are there count for nothing", "as_py() == rows)", "as_py() == -1)"),
        Break("no file is enough", "        if not rows:\n", "        if False:\n"),
        Break(
            "a log cleaned up says that all is well",
            "if self._has_files(name, number, rows, None):\n                return None\n        return",
            "if True:\n                return None\n        return",
        ),
        Break(
            "names have marks of their own",
            "marks.append(deltalake.Transaction(_of(batch.query), batch.number))",
            "pass",
        ),
        Break("marks may expire", "if refused or special:", "if special:"),
    ),
    *mutants_of(
        "eoslog/fanout/iceberg.py",
        FANOUT,
        Break("a query has one name in Iceberg", 'one["query"] == query', "False"),
        Break("rolled back tables count", "if at is not None or self", "if True or self"),
        Break("expired snapshots are rolled back ones", "one.snapshot_id == snapshot or one", "one"),
        Break("files picked onto another history are not there", "or one.data_file.file_path in paths", ""),
        Break(
            "the library commits again",
            "self._read.catalog.commit_table(self._read, needs, transaction._updates)",
            "transaction.commit_transaction()",
        ),
    ),
    *mutants_of(
        "eoslog/fanout/table.py",
        FANOUT,
        Break("any query's plan", "mark.query != number_of(query_id)", "False"),
        Break("a lost answer is an error", "is Step.CHECK and mark is not None:", "is None:"),
    ),
]
