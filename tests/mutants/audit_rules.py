"""Rules of the audit of tables, each broken: what is wrong with a row, and which rows a table has."""

from tests.mutants.mutant import Break, Mutant, mutants_of

JUDGE = ("tests/audit/test_table_judge.py",)
COMMAND = ("tests/audit/test_table_command.py",)
CONTENTS = ("tests/audit/test_table_command.py",)
PARQUET = ("tests/audit/test_tables.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        JUDGE,
        Break("what was removed is a phantom", "judge", "missing & gone(rows) & ~seen[group]", "missing & seen[group]"),
        Break("an aborted record may have been one", "judge", "missing & gone(rows) & ~seen[group]", "missing & gone(rows)"),
        Break("a doubled row is not looked into", "judge", "in_table & recorded", "~again & recorded"),
        Break("pieces forget what came before", "judge_one", "len(head)", "0"),
        Break("rows that cannot be checked are never doubled", "judge", "recorded | maybe", "recorded"),
        Break("rows behind the end are nobody's", "Lines.locate", "~outside", "outside"),
        Break("rows behind the end are outside", "Lines.locate", "before if self._to_end else before | beyond", "before | beyond"),
        Break("a row without an offset is at -1", "Lines.locate", "known & (offsets >= 0)", "known"),
        Break("any topic will do", "Lines.locate", "mine &= pc.fill_null(pc.equal(topic, name), False).to_numpy(zero_copy_only=False)", "mine |= pc.fill_null(pc.equal(topic, name), False).to_numpy(zero_copy_only=False)"),
    ),
    *mutants_of(COMMAND, Break("a compacted topic is read once", "_of_topic", "(True, False) if compacted else (True,)", "(True,)")),
    *mutants_of(
        CONTENTS,
        Break("rows are told by their value alone", "identity_of", "not key and 'key' in columns.names", "False"),
        Break("a file's rows all have one number", "AuditedTable.read", "row += batch.num_rows", "pass"),
        Break("rows without a key are dropped", "AuditedTable._rows", "rows[~there]", "rows[:0]"),
    ),
    *mutants_of(
        PARQUET,
        Break("a compacted log is read twice", "_current", "not m[2] and int(m[1]) > compact", "not m[2]"),
        Break("a hole in the log is passed over", "_current", "later != list(range(compact + 1, compact + 1 + len(later)))", "False"),
        Break("files that are gone count", "_add", "found.pop(inside, None)", "pass"),
        Break("files of dead tasks count", "ParquetFolder._paths", "named is None", "True"),
        Break("a file that is not whole counts", "ParquetFolder._paths", "there.get(path) != size", "path not in there"),
        Break("hidden files count", "ParquetFolder._paths", "not _hidden(path)", "path"),
    ),
    *mutants_of(
        ("tests/audit/test_tables.py",),
        Break("renamed columns are read by their names", "_listed", "mapping != 'none'", "False"),
        Break("the newest version is read", "_listed", "DeltaTable(name, version=version)", "DeltaTable(name)"),
    ),
    *mutants_of(
        ("tests/audit/test_tables.py",),
        Break("deletes are passed over", "IcebergTable._plain", "task.delete_files or task.file.file_format.value != 'PARQUET'", "task.file.file_format.value != 'PARQUET'"),
        Break("an unknown snapshot is empty", "IcebergTable.__init__", "snapshot is not None and self._table.snapshot_by_id(snapshot) is None", "False"),
        Break("columns are found by their names", "IcebergTable._plain", "{name: ids[one] for name, one in wanted.items()}", "{}"),
    ),
]
