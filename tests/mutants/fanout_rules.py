"""Rules of the fan-out, each broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

FANOUT = ("tests/fanout/test_traps.py", "tests/fanout/test_table_history.py", "tests/fanout/test_crash_table.py")

MUTANTS: list[Mutant] = [
    *mutants_of(
        FANOUT,
        Break("any query's mark counts", "step", "mark.query != batch.query", "False"),
        Break("a batch that is there is written", "step", "mark.number == batch.number", "False"),
        Break("another name is another query", "step", "own < batch.number <= reached", "False"),
        Break("since excuses another name", "step", "reached is not None and own < batch.number <= reached", "reached is not None and batch.number not in (since, own + 1) and (own < batch.number <= reached)"),
        Break("an older checkpoint goes on", "step", "mark.number > batch.number", "False"),
        Break("gaps are passed over", "step", "batch.number in (0 if mark is None else mark.number + 1, since)", "batch.number is not None"),
        Break("a batch that is gone counts", "step", "mark.gone is not None", "False"),
        Break("any since excuses a loss", "_after_a_loss", "since == batch.number", "since is not None"),
        Break("a batch that is to stay out is written", "_after_a_loss", "again and since == batch.number + 1", "False"),
        Break("what is missing comes again", "_moved", "old < new", "old > new"),
        Break("another plan is the same", "_why", "before.digest == after.digest", "before"),
        Break("other rows are the same", "compare", "had.content == given", "True"),
        Break("a RESTORE changes nothing", "_SETS", "'RESTORE|REPLACE|CREATE|CLONE'", "'REPLACE|CREATE|CLONE'"),
        Break("a table made anew is the old one", "_SETS", "'RESTORE|REPLACE|CREATE|CLONE'", "'RESTORE'"),
        Break("a new id is no new table", "DeltaLog._sets", "self._open(at - 1).metadata().id != one", "self._open(at - 1).metadata().id != one and False"),
        Break("any commit brought the batch", "DeltaLog._judged", "not _is_marked(commit, name, number, version)", "not _is_marked(commit, name, number, version) and (not commit)"),
        Break("no state is as before", "DeltaLog._having", "self._state(at) == self._state(one)", "False"),
        Break("every state is as before", "DeltaLog._having", "self._state(at) == self._state(one)", "True"),
        Break("a way back is enough once", "DeltaLog._having", "having[-1] == at - 1", "True"),
        Break("files that are there count for nothing", "DeltaLog._has_files", "pc.sum(files.filter(its)['num_records']).as_py() == rows", "pc.sum(files.filter(its)['num_records']).as_py() == -1"),
        Break("no file is enough", "DeltaLog._has_files", "not rows", "False"),
        Break("a log cleaned up says that all is well", "DeltaLog.gone", "self._has_files(name, number, rows, None)", "True"),
        Break("names have marks of their own", "DeltaTarget._marked", "marks.append(deltalake.Transaction(_of(batch.query), batch.number))", "pass"),
        Break("marks may expire", "DeltaTarget._check", "refused or special", "special"),
        Break("a query has one name in Iceberg", "IcebergTarget.reached", "one['query'] == query", "False"),
        Break("rolled back tables count", "IcebergTarget._gone", "at is not None or self._has_files(said['snapshot'], said['rows'])", "True"),
        Break("expired snapshots are rolled back ones", "IcebergTarget._has_files", "one.snapshot_id == snapshot or one.data_file.file_path in paths", "one.data_file.file_path in paths"),
        Break("files picked onto another history are not there", "IcebergTarget._has_files", "one.snapshot_id == snapshot or one.data_file.file_path in paths", "one.snapshot_id == snapshot"),
        Break("the library commits again", "IcebergTarget.commit", "self._read.catalog.commit_table(self._read, needs, transaction._updates)", "transaction.commit_transaction()"),
        Break("any query's plan", "marked_ends", "mark.query != number_of(query_id)", "False"),
        Break("a lost answer is an error", "write", "step_of(table, mark, batch) is Step.CHECK and mark is not None", "step_of(table, mark, batch) is None"),
    ),
    *mutants_of(
        ("tests/fanout/test_merge.py",),
        Break("the first change of a key wins", "Merge.newest", "np.append(np.flatnonzero(is_next), len(changes) - 1)", "np.append(0, np.flatnonzero(is_next) + 1)"),
        Break("any of two changes is the last one", "Merge._check_ties", "not one.equals(two)", "False"),
        Break("other words are upserts", "Merge._check", "one not in (*self.upserts, *self.deletes)", "False"),
        Break("a null is a key", "Merge._check", "changes[one].null_count", "False"),
        Break("a change as old as the row is newer", "DeltaTarget._merge", "lambda name: f'old.{_quoted(name)}'", "lambda name: f'(old.{_quoted(name)} - 1)'"),
        Break("a delete wins at any age", "DeltaTarget._merge", "f'new.{DELETED} AND ({newer})'", "f'new.{DELETED}'"),
        Break("a delete of no row inserts it", "DeltaTarget._merge", "merger.when_not_matched_insert(values, f'NOT new.{DELETED}').execute()", "merger.when_not_matched_insert(values).execute()"),
        Break("a merge of nothing new has no mark", "DeltaTarget.commit", "self.merge is None or self._read.version() == version", "self.merge is None"),
        Break("files that a merge took away count for nothing", "DeltaLog._has_files", "bool(added | removed) and added <= has and not removed & has", "added <= has"),
    ),
]
