"""Rules of the audit of tables, each broken: what is wrong with a row, and which rows a table has."""

from tests.mutants.mutant import Break, Mutant, mutants_of

JUDGE = ("tests/audit/test_table_judge.py",)
COMMAND = ("tests/audit/test_table_command.py",)
CONTENTS = ("tests/audit/test_table_contents.py",)
PARQUET = ("tests/audit/table/test_parquet.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        "eoslog/audit/table_judge.py",
        JUDGE,
        Break(
            "what was removed is a phantom", "missing & gone(rows) & ~seen[group]", "missing & seen[group]"
        ),
        Break("an aborted record may have been one", " & ~seen[group]", ""),
        Break(
            "a doubled row is not looked into", "in_table & recorded & differs", "~again & recorded & differs"
        ),
        Break("pieces forget what came before", "known=len(head)", "known=0"),
        Break(
            "rows that cannot be checked are never doubled", "again & (recorded | maybe)", "again & recorded"
        ),
    ),
    *mutants_of(
        "eoslog/audit/lines.py",
        JUDGE,
        Break("rows behind the end are nobody's", "beyond & ~outside", "beyond & outside"),
        Break("rows behind the end are outside", "before if self._to_end else", ""),
        Break("a row without an offset is at -1", "there &= known & (offsets >= 0)", "there &= known"),
        Break("any topic will do", "mine &= pc.fill_null", "mine |= pc.fill_null"),
    ),
    *mutants_of(
        "eoslog/audit/table_run.py",
        COMMAND,
        Break("a compacted topic is read once", "(True, False) if compacted else (True,)", "(True,)"),
    ),
    *mutants_of(
        "eoslog/audit/table_contents.py",
        CONTENTS,
        Break(
            "rows are told by their value alone",
            'content=not key and "key" in columns.names',
            "content=False",
        ),
        Break("a file's rows all have one number", "                row += batch.num_rows\n", ""),
        Break(
            "rows without a key are dropped",
            "Read(place, rows[there], rows[~there])",
            "Read(place, rows[there], rows[:0])",
        ),
    ),
    *mutants_of(
        "eoslog/audit/table/spark_log.py",
        PARQUET,
        Break("a compacted log is read twice", "and int(m[1]) > compact", ""),
        Break("a hole in the log is passed over", "    if later != list(", "    if False and later != list("),
        Break("files that are gone count", "        found.pop(inside, None)", "        pass"),
    ),
    *mutants_of(
        "eoslog/audit/table/parquet.py",
        PARQUET,
        Break("files of dead tasks count", "        if named is None:", "        if True:"),
        Break("a file that is not whole counts", "if there.get(path) != size:", "if path not in there:"),
        Break("hidden files count", "if not _hidden(path))", "if path)"),
    ),
    *mutants_of(
        "eoslog/audit/table/delta.py",
        ("tests/audit/table/test_delta.py",),
        Break("renamed columns are read by their names", 'if mapping != "none":', "if False:"),
        Break("the newest version is read", "DeltaTable(name, version=version)", "DeltaTable(name)"),
    ),
    *mutants_of(
        "eoslog/audit/table/iceberg.py",
        ("tests/audit/table/test_iceberg.py",),
        Break("deletes are passed over", "if task.delete_files or", "if"),
        Break("an unknown snapshot is empty", "if snapshot is not None and self", "if False and self"),
        Break(
            "columns are found by their names",
            "stored={name: ids[one] for name, one in wanted.items()}",
            "stored={}",
        ),
    ),
]
