"""Rules of the tools and of the front door, each broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

JUDGE = ("tests/audit/test_table_judge.py",)
COMMAND = ("tests/audit/test_table_command.py",)
CONTENTS = ("tests/audit/test_table_command.py",)
PARQUET = ("tests/audit/test_tables.py",)
OTHER_PYTHON = ("tests/packages/test_other_python.py",)
BROUGHT = ("tests/connector/spark/test_spark_processes.py",)
HERE = "tests/rehearse/"
BROKERS = (f"{HERE}test_broken_brokers.py",)
NAMED = f"{HERE}test_broken_brokers.py::test_a_broken_broker_is_named"
FORGETS = f"{HERE}test_broken_brokers.py::test_a_broker_that_forgets_in_a_crash_is_named"
KILLS = (f"{HERE}test_broken_brokers.py",)
WHOLE = (f"{HERE}test_rehearse.py",)
WARM = ("tests/warm/test_warm.py",)
PROVE = ("tests/prove/test_prove.py",)
COPIES = ("tests/prove/test_copies.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        PROVE,
        Break("missing decisions are proven", "batches._numbers", "number >= case.first", "False"),
        Break("the first of two decisions counts", "History.of", "twice.add(decision.sequence)", "pass"),
        Break("a task may be doubled", "batches._rows", "len(good) > 1", "False"),
        Break("aborted rows are fine", "batches._task", "one.unseen(False)", "[]"),
        Break("a transaction needs no marker", "batches._task", "[where for where in one.unseen(None) if not case.logs[where].compacted]", "[]"),
        Break("fewer rows will do", "batches._task", "one.seen == (one.seen if wanted is None else wanted)", "one.seen"),
        Break("removed rows are lost ones", "_why_lacking", "log.begins > reach.before(where, one.sequence) + 1", "False"),
        Break("whatever lacks was removed", "_why_lacking", "log.begins > reach.before(where, one.sequence) + 1", "True"),
        Break("compaction takes no rows", "_why_lacking", "log.compacted", "False"),
        Break("rows of no decision are others'", "batches._others", "one.writer.producer_id in producers or sink_of(writer) == case.sink.id", "False"),
        Break("rows of no decision are a missing one's", "batches._undecided", "not missing", "False"),
        Break("rows of a missing decision are proven", "batches._undecided", "missing[-1] >= case.first or numbers[-1] >= case.first", "False"),
        Break("unnamed writers are others", "command._entries", "judged.unnamed if allow_foreign else []", "[]"),
        Break("a source may go back", "batches._starts", "end < start", "False"),
        Break("batches may be left out", "batches._starts", "number > known + 1", "False"),
        Break("another query begins anywhere", "_check_follows", "start != ended[where]", "False"),
        Break("rows that are held back are read", "_check_readable", "one.last >= case.logs[where].stable", "False"),
        Break("a document is written over another file", "command._prove", "'x'", "'w'"),
    ),
    *mutants_of(
        COPIES,
        Break("rows have no order", "document.reordered", "content.sha256.hexdigest() != part.sha256", "False"),
        Break("headers are no content", "content_of", "[*parts, *_headers(records.headers)]", "parts"),
        Break("null is empty", "logs._framed", "BinaryColumn.of('content', column, len(column)).lengths", "np.maximum(BinaryColumn.of('content', column, len(column)).lengths, 0)"),
        Break("any number of rows will do", "is_like", "copy.rows == total", "True"),
        Break("a batch is taken for one like it", "aligned", "at != counted and _next_stands(parts[number + 1:], there - here, sums)", "False"),
        Break("what has moved needs no order", "command._aligned", "content.sha256.hexdigest() != parts[one[0]].sha256", "False"),
        Break("rows that lack are others'", "document._said", "lost and more", "False"),
        Break("a line stands alone", "document._hash", "before + _canonical(entry)", "_canonical(entry)"),
        Break("a line may be changed", "read_document", "text.rstrip('\\n') != _canonical({**entry, _HASH: before})", "False"),
        Break("a document needs no end", "_check_whole", "entries[-1].get('kind') != 'end' or entries[-1]['lines'] != len(entries)", "False"),
        Break("what was not right is now", "command._check", "'wrong' if wrong else end['verdict']", "'wrong' if wrong else 'proven'"),
    ),
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
    *mutants_of(COMMAND, Break("a compacted topic is read once", "_line_rows", "np.flatnonzero(compacted).tolist()", "()")),
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
    *mutants_of(
        OTHER_PYTHON,
        Break("any Python will do", "_is_this", "if found is None or Path(found).parent != here.parent:\n    return False", "return True\nif Path(found).parent != here.parent:\n    return False"),
        Break("a start waits for another Python", "warn_if_other", "threading.Thread(target=_warn, args=asked, name='eoslog-python', daemon=True).start()", "_warn(*asked)"),
        Break("one that lacks eoslog is fine", "what_it_lacks", "done.returncode == 0", "True"),
        Break("one that has eoslog is not", "what_it_lacks", "done.returncode == 0", "False"),
        Break("any session is registered", "register", "_what_sparks_python_lacks()", "''"),
        Break("Spark's own processes are looked at", "watch_pythons", "'pyspark' not in sys.modules or ours or connects or (home_archive() is not None)", "'pyspark' not in sys.modules or connects or home_archive() is not None"),
        Break("clients of Spark Connect are looked at", "watch_pythons", "'pyspark' not in sys.modules or ours or connects or (home_archive() is not None)", "'pyspark' not in sys.modules or ours or home_archive() is not None"),
        Break("commands are looked at", "watch_pythons", "'pyspark' not in sys.modules or ours or connects or (home_archive() is not None)", "ours or connects or home_archive() is not None"),
    ),
    *mutants_of(
        BROUGHT,
        Break("eoslog before its jar", "reduce_with_jar", "(_Jar(jar), _Blank(type(value)))", "(_Blank(type(value)), _Jar(jar))"),
        Break("an eoslog of a folder is a jar", "reduce_with_jar", "jar is None", "False"),
        Break(
            "executors look where the driver does",
            "_ON_PATH",
            "\"[__import__('pyspark.worker_util', fromlist=['add_path']).add_path(__import__('os').path.abspath(jar)) for jar in [{path!r}, *__import__('glob').glob({sent!r})]]\"",
            "\"[__import__('pyspark.worker_util', fromlist=['add_path']).add_path(__import__('os').path.abspath(jar)) for jar in [{path!r}]]\"",
        ),
    ),
    *mutants_of(OTHER_PYTHON, Break("sources run the Python of tasks", "python_of_sources", "environment.get('PYSPARK_DRIVER_PYTHON', environment.get('PYSPARK_PYTHON', 'python3'))", "'' or environment.get('PYSPARK_PYTHON', 'python3')")),
    *mutants_of(
        BROKERS,
        Break("rows too many are none", "Work.check_rows", "lost or extra", "lost"),
        Break("rows that are missing are none", "Work.check_rows", "lost or extra", "extra"),
        Break(
            "readers that are held back are not",
            "Work.check_readable",
            "if held:\n"
            "    (name, number), (stable, end) = next(iter(held.items()))\n"
            "    raise DoesNotHold(f'{when}: readers are held back on {len(held)} of {len(PARTITIONS)} partitions for more than {self.patience_s:g} s (last stable offset of {name}-{number}: {stable}, its end: {end}). A marker is missing, or is not seen')",
            "if False:\n"
            "    (name, number), (stable, end) = next(iter(held.items()))\n"
            "    raise DoesNotHold(f'{when}: readers are held back on {len(held)} of {len(PARTITIONS)} partitions for more than {self.patience_s:g} s (last stable offset of {name}-{number}: {stable}, its end: {end}). A marker is missing, or is not seen')",
        ),
        Break("what must be refused may be done", "refused", "raise DoesNotHold(what)", "return 'done'"),
        Break("a stable offset at the end is good", "open_rows_are_hidden", "len(held) < len(PARTITIONS)", "False"),
        Break("offsets of the aborted count", "new_producer_aborts", "found is not None", "False"),
        Break("a sealed transaction may time out", "two_phase", "state.timeout_ms != NEVER_MS", "False", (f"{NAMED}[kept_transactions_time_out]",)),
    ),
    *mutants_of(
        (f"{HERE}test_rehearse.py", *BROKERS),
        Break("a transaction that has time may be gone", "TimeOut._lasts", "self.work.end(self.longer, commit=True)", "pass"),
        Break("sealed ones may be gone", "TimeOut._stays_sealed", "state is None or state.state not in OPEN", "False"),
    ),
    *mutants_of(WHOLE, Break("any command is a crash", "look", "not lost", "False")),
    *mutants_of(
        (f"{HERE}test_broken_brokers.py",),
        Break("an epoch may come again", "Load.check", "again.identity <= told.who.identity", "False", (f"{FORGETS}[a_new_epoch_is_not_waited_for]",)),
        Break("what was told is not asked", "Load.check", "told.committed", "False"),
    ),
    *mutants_of(
        (*KILLS, *WHOLE),
        Break("the dead stay dead", "_Query.story", "_has_begun(life) and (not life.ended)", "False"),
        Break("the last batch is not looked at", "_Query._check", "rows_of(range(self.batch_id + 1))", "self.work.rows(self.topic)"),
        Break("source offsets are not looked at", "_Query._check", "found is None or found[0] != self.batch_id + 1", "False"),
        Break("it ends when the dead one has", "_Query.story", "is_last", "life.ended"),
    ),
    *mutants_of(
        WHOLE,
        Break("transactions stay open", "CleanUp._end_transactions", "partial(_abort, cluster)", "lambda name: None"),
        Break("what was not deleted is not told", "CleanUp._delete_topics", "self.left += [f'topic {name}: {why}' for name, why in left.items()]", "[f'topic {name}: {why}' for name, why in left.items()]"),
    ),
    *mutants_of(WHOLE, Break("what is unknown holds", "exit_status", "NOT_FOUND_OUT if Verdict.UNKNOWN in found or not found else ALL_HOLD", "ALL_HOLD")),
    *mutants_of(
        WHOLE,
        Break("any limit is long enough", "_compared", "has >= needed", "True"),
        Break("downtime does not count", "Query.transaction_ms", "(self.batch_ms if self.sealed else self.away_ms) + SAFETY_MS", "self.batch_ms"),
        Break("any retention is long enough", "topic_rows", "retention < query.away_ms", "False"),
    ),
    *mutants_of(
        (f"{HERE}test_rehearse.py",),
        Break("old brokers tell nothing of producers", "broker_rows", "not values and limit.name == PRODUCERS", "not values and False"),
        Break("leaders ask everywhere", "broker_rows", "limit.name == PRODUCERS and query.verified and (row.verdict is Verdict.FAILS)", "limit.name == PRODUCERS and row.verdict is Verdict.FAILS"),
        Break("any replica may lead", "unclean_row", "value == 'false'", "value"),
    ),
    *mutants_of((f"{HERE}test_rehearse.py",), Break("rights for a Kerberos principal", "_principal", "re.split('[/@]', owner(sasl.kerberos))[0]", "sasl.user"), Break("rights for its host", "_principal", "'[/@]'", "'@'")),
    *mutants_of(WHOLE, Break("no right is missing", "missing", "bits is not None", "False")),
    *mutants_of(
        ("tests/connector/commit/test_decision.py",),
        Break("a decision that is made just now is a fault", "observed", "answer.code == ErrorCode.UNSTABLE_OFFSET_COMMIT", "False"),
    ),
    *mutants_of(
        ("tests/shadow/test_cuts.py",),
        Break("a later decision's rows may be among them", "Shadowed.cut", "after.sequence != decision.sequence", "False"),
        Break("open transactions do not matter", "Shadowed.cut", "written != self._ends(self._shadow.topic, committed=False)", "False"),
        Break("a first batch has no decision", "Shadowed.end", "self.await_cut() if before is None else self.cut()", "self.cut()"),
        Break("readers see all", "Shadowed.cut", "False", "True"),
        Break("the same decision is a new batch", "Shadowed.end", "known == cut.sequence", "False"),
        Break("with availableNow another decision counts", "Shadowed.end", "self._last or (self.await_cut() if before is None else self.cut())", "self.await_cut() if before is None else self.cut()"),
        Break("a whole query's end is older than its beginning", "Shadowed.await_cut", "self._last is not None", "False"),
        Break("who begins ahead was set back", "Shadowed.end", "back and before is None", "False"),
        Break("a query that was set back is followed", "Shadowed.end", "back or (known is not None and known > cut.sequence)", "False"),
        Break(
            "another query's group will do",
            "Shadowed.cut",
            "if others:\n    raise OptionError(f'kafka.group.id: the offsets of group {self._shadow.group} are those of the query with transactional.id={others[0]}, and shadow.of is {sink.id}: give the group of that one')",
            "if False:\n    raise OptionError(f'kafka.group.id: the offsets of group {self._shadow.group} are those of the query with transactional.id={others[0]}, and shadow.of is {sink.id}: give the group of that one')",
        ),
        Break("partitions not read yet are left out", "Shadowed.end", "position.offsets | ends", "ends"),
    ),
    *mutants_of(
        ("tests/connector/source/test_whole_batches.py",),
        Break("a decision that is made meanwhile does not matter", "WholeBatches.ends", "before is None or after is not before", "before is None"),
        Break("a part of a batch is met", "Decided.why_part", "ends.get(tp, need) < need", "False"),
        Break("what was read of earlier batches is forgotten", "places_known", "(*(() if decision.behind is None else decision.behind.everywhere), *decision.everywhere)", "decision.places"),
        Break("a batch write forgets what came before it", "places_known", "() if decision.behind is None else decision.behind.everywhere", "()"),
        Break("what has no place has no rows", "WholeBatches._look", "any(may_have(d, tp) for d in made)", "False"),
        Break("the last row may be missing", "rows_end", "place.offset + 1", "place.offset"),
        Break("a topic that was made anew has the old rows", "rows_end", "len(anew) < 2", "True"),
        Break("a batch write has its rows where the query had", "may_have", "decision.is_write", "False"),
        Break("a decision says all topics", "may_have", "len(topics) >= KEPT_TOPICS", "False"),
        Break("a misspelt name is no sink", "whole_batches.Decided.why_part", "[name for name, decision in self.last.items() if decision is None]", "[]"),
        Break("what the cluster has forgotten is unknown", "WholeBatches._look", "found or (None if known is None else known.last[name])", "found"),
        Break("a sink that was left is enough", "check_left", "left is not None and left.sink not in last", "False"),
        Break("the topics of a known decision stay", "WholeBatches._look", "(known.last, known.ids) == (last, self._log.ids)", "known.last == last"),
        Break("a log that was cut is waited for", "WholeBatches.ends", "ends.get(tp, at) < at", "False"),
        Break("a first batch does not wait", "StreamReader._end", "wait", "False"),
        Break("a query begins in the middle of a batch", "StreamReader.initialOffset", "self._whole is not None and self.options.starting == LATEST", "False"),
    ),
    *mutants_of(
        ("tests/shadow/test_shadow.py",),
        Break("two sources may be shadows", "check_apart", "len(cuts) > 1", "False"),
        Break(
            "who has taken over is a shadow again",
            "check_apart",
            "if noted == cut.sink:\n    raise OptionError(f\"shadow.of={cut.sink}: this checkpoint has taken that query's place, and is no shadow's any more. Nothing was written. Leave shadow.of out, and give the writer transactional.id={cut.sink}, kafka.group.id={cut.group} and that query's topic\")",
            "if False:\n    raise OptionError(f\"shadow.of={cut.sink}: this checkpoint has taken that query's place, and is no shadow's any more. Nothing was written. Leave shadow.of out, and give the writer transactional.id={cut.sink}, kafka.group.id={cut.group} and that query's topic\")",
        ),
        Break(
            "the running query is stopped",
            "check_apart",
            "if sink == cut.sink:\n    raise OptionError(f'transactional.id={sink} is that of the query that this one shadows, and would stop it: give the shadow another one. To take over, see shadow.md#taking-over')",
            "if False:\n    raise OptionError(f'transactional.id={sink} is that of the query that this one shadows, and would stop it: give the shadow another one. To take over, see shadow.md#taking-over')",
        ),
        Break("its group is moved", "check_apart", "group == cut.group", "False"),
        Break("a forgotten take-over goes on", "check_taken", "noted == cut.sink or not shared", "True"),
        Break("its own topic is another's", "check_taken", "topic is None or topic in written or sink == cut.sink or (group == cut.group)", "topic is None or sink == cut.sink or group == cut.group"),
        Break("who has taken over is a shadow for ever", "check_taken", "noted == cut.sink or not shared", "not shared"),
        Break("its topic is written", "check_apart", "topic not in own or topic in written", "False"),
    ),
    *mutants_of(
        ("tests/shadow/test_take_over.py",),
        Break("the batch before does not matter", "_check_shadow", "before.shadows()", "before.shadows()[:0]"),
        Break("a shadow is edited", "_check_no_shadow", "of and tuple(lines) != last.sources", "False"),
        Break("what has taken over is not edited", "_check_no_shadow", "[cut.sink for cut in last.shadows() if cut.sink != sink]", "[cut.sink for cut in last.shadows()]"),
    ),
    *mutants_of(
        ("tests/shadow/test_shadow.py",),
        Break("half of a digest is enough", "compare.judge", "_numbered(rows['digest'], rows['more'])", "_numbered(rows['digest'])"),
        Break("steps do not matter", "compare.judge", "_numbered(content, rows['step'])", "content"),
        Break("late rows are not alike", "compare.judge", "np.isin(left_content, left_content[paired]) | left_met[by_side]", "left_met[by_side]"),
        Break("rows of a step are not alike", "compare.judge", "both[surplus] > 0", "both[surplus] < 0"),
        Break("late rows are missing", "compare.judge", "_rank(left_content, left_shadow) < _both(left_content, left_shadow)", "-1 > _both(left_content, left_shadow)"),
    ),
    *mutants_of(
        ("tests/shadow/test_take_over.py",),
        Break("a topic of long ago is compared", "elsewhere", "topic not in own and decision > since", "topic not in own"),
    ),
    *mutants_of(
        ("tests/shadow/test_shadow.py",),
        Break("what comes before the first batch counts", "compare.steps", "batch or _is_empty(batches[number])", "False"),
        Break("batches at one decision are steps", "compare.steps", "found[-1].decision == step.decision", "False"),
        Break("a batch that is not done is compared", "compare.steps", "own_end is None or (before is None and (batch or _is_empty(batches[number])))", "before is None and (batch or _is_empty(batches[number]))"),
    ),
    *mutants_of(
        ("tests/shadow/test_take_over.py",),
        Break("a batch that is not done will do", "take_over_point", "shadow.next_start is NextStart.GO_ON", "True"),
        Break(
            "other topics do not matter",
            "check_topic",
            "if others:\n"
            "    said = ', '.join((f'{topic} (last in decision {decision})' for topic, decision in others))\n"
            "    own = ', '.join(sorted({topic for topic, _ in place.cut.written}))\n"
            "    raise NoTakeOver(f'the running query has written to {said}, and {own} alone is compared: rows would be missing, or there twice. Nothing was changed. Compare later steps alone, once there are {LEAST_STEPS} of them (--from-batch); or begin the shadow anew, with a new checkpoint, and with the topic that the running query writes now as shadow.topic')",
            "if False:\n"
            "    said = ', '.join((f'{topic} (last in decision {decision})' for topic, decision in others))\n"
            "    own = ', '.join(sorted({topic for topic, _ in place.cut.written}))\n"
            "    raise NoTakeOver(f'the running query has written to {said}, and {own} alone is compared: rows would be missing, or there twice. Nothing was changed. Compare later steps alone, once there are {LEAST_STEPS} of them (--from-batch); or begin the shadow anew, with a new checkpoint, and with the topic that the running query writes now as shadow.topic')",
        ),
        Break("what a forgotten start has planned stays", "carry_out_take_over", "shadow.checkpoint.change('offsets', unwritten, None)", "pass"),
        Break("a forgotten start is in the way", "take_over_point", "_unwritten(shadow) is not None", "False"),
        Break("the shadow may be behind", "take_over_point", "seen.sequence != cut.sequence", "False"),
        Break("a few steps are enough", "check_equal", "len(steps) < LEAST_STEPS", "False"),
        Break(
            "rows may be written again",
            "check_equal",
            "if missing:\n"
            "    raise NoTakeOver(f'{missing:,} rows were written by the running query alone, first in batch {steps[int(np.flatnonzero(found.missing)[0])].first}, and the shadow would write them again. Nothing was changed. See eoslog shadow report')",
            "if False:\n"
            "    raise NoTakeOver(f'{missing:,} rows were written by the running query alone, first in batch {steps[int(np.flatnonzero(found.missing)[0])].first}, and the shadow would write them again. Nothing was changed. See eoslog shadow report')",
        ),
        Break(
            "the versions may differ",
            "check_equal",
            "if earlier:\n"
            "    raise NoTakeOver(f'{earlier:,} rows were written by the shadow alone, first in batch {steps[int(np.flatnonzero(found.extra)[0])].first}, before the last step: the versions differ. Nothing was changed. See eoslog shadow report')",
            "if False:\n"
            "    raise NoTakeOver(f'{earlier:,} rows were written by the shadow alone, first in batch {steps[int(np.flatnonzero(found.extra)[0])].first}, before the last step: the versions differ. Nothing was changed. See eoslog shadow report')",
        ),
        Break("a key tells rows of one key apart", "check_equal", "by_key and found.alike", "False"),
        Break("any number of rows is added", "check_equal", "found.extra[-1] > MOST_LEFT", "False"),
        Break("rows of the last step are a difference", "check_equal", "found.extra[:-1]", "found.extra"),
        Break("rows of the shadow alone are lost", "left_rows", "if not len(found.differing):\n    return None", "return None"),
        Break("all rows of the shadow are written", "LeftRows._copy", "np.isin(records.offset.to_numpy(), offsets)", "np.ones(len(records), bool)"),
        Break("partitions do not matter", "left_rows", "[p for _, p in written] != [p for _, p in own]", "False"),
        Break(
            "open transactions do not matter",
            "check_settled",
            "if held:\n    topic, p = held[0]\n    raise NoTakeOver(f'a transaction is open in {topic}-{p}, so not all rows of the shadow can be read. Nothing was changed. Wait until it has ended: see eoslog transactions list')",
            "if False:\n    topic, p = held[0]\n    raise NoTakeOver(f'a transaction is open in {topic}-{p}, so not all rows of the shadow can be read. Nothing was changed. Wait until it has ended: see eoslog transactions list')",
        ),
        Break("it is taken over twice", "carry_out_take_over", "not place.is_taken", "True"),
        Break("the state is saved with the shadow's sink", "carry_out_take_over", "shadow.checkpoint.changed({f'eoslog/{NOTED_SINK}': noted.text()})", "shadow.checkpoint"),
        Break("the checkpoint keeps its sink", "carry_out_take_over", "noted.write(shadow.checkpoint)", "pass"),
        Break("who takes over misses the shadow's rows", "carry_out_take_over", "before is None or before.sink != cut.sink", "False"),
        Break("the shadow's sink gets the batches from the first on", "carry_out_take_over", "batch.batch_id", "0"),
    ),
    *mutants_of(
        ("tests/test_simulation.py",),
        Break("sealing writes nothing", "MicroBatch.state_records", "1 + (1 if old else self.leaders) + self.sealed", "1 + (1 if old else self.leaders)"),
        Break("sealing asks nothing", "MicroBatch.requests", "self.tasks * self.sealed", "0"),
        Break("a batch has no decision of its own", "MicroBatch.state_records", "self.tasks * task + self.groups + 2", "self.tasks * task"),
        Break("the decision has no marker", "offset_records", "chunks + 1", "chunks"),
    ),
    *mutants_of(
        ("tests/test_simulation.py",),
        Break("the first marker waits for another", "_ends", "-inf", "0.0"),
        Break("markers do not queue up", "_ends", "last + costs.marker.each", "0.0"),
        Break("the driver looks without a pause", "_look_until", "now += pause", "pass", hangs=True),
        Break("a round has no end", "_rounds", "mine[at:at + IN_FLIGHT]", "mine[at:] if not at else []"),
        Break("a round is free", "_ends", "costs.end.alone", "0.0"),
    ),
    *mutants_of(
        WARM,
        Break("archives are looked into again", "prefer_installed", "one in gone or one.startswith(within)", "False", ("tests/connector/spark/test_spark_python.py",)),
        Break("threads are lost", "differences", "has_threads(wanted.environment)", "False"),
        Break("any folder will do", "differences", "wanted.folder != warm.folder", "False"),
        Break("any module is run", "differences", "wanted.module not in RUNS", "False"),
        Break("what libraries have read does not count", "differences", "ours.get(name) != theirs.get(name)", "False"),
        Break("Spark's own variables count", "_inherited", "name not in _ITS_OWN and name != _THREADS", "name != _THREADS"),
        Break("a daemon's worker is not looked at", "Request.worker", "self.module != DAEMON", "True"),
        Break("fields of any kind", "decode", "not all((isinstance(value, kind) for value, kind in zip(found, kinds, strict=True)))", "False"),
        Break("any process has a warm one", "address", "not command.endswith('(java')", "False"),
        Break("all Pythons share one", "address", "(sys.executable, sys.version, __version__)", "(sys.version, __version__)"),
        Break("a stranger is trusted", "_connect", "peer(connection)[1] == os.geteuid()", "True"),
        Break("a stuck one is left", "_end_the_stuck", "os.kill(process, signal.SIGKILL)", "pass", hangs=True),
        Break(
            "a program of the user's is a fork", "hand_over", "arguments[:1] != ['-m'] or len(arguments) < 2 or arguments[1] not in RUNS or has_threads(os.environ)", "arguments[:1] != ['-m'] or len(arguments) < 2 or has_threads(os.environ)"
        ),
        Break("how the fork ended is not told", "_live_as_long", "os._exit(status)", "os._exit(0)"),
        Break("by which signal is not told", "_live_as_long", "os.kill(os.getpid(), -status)", "pass"),
        Break("anybody is answered", "WarmServer._welcome", "peer(connection)[1] != os.geteuid()", "False"),
        Break("a fork outlives who stood for it", "WarmServer._hear", "os.kill(guest.fork, signal.SIGTERM)", "pass"),
        Break("streams may be missing", "WarmServer._consider", "len(guest.streams) != _STREAMS", "False"),
        Break("a refusal is not said", "WarmServer._refuse", "guest.connection.send", "str"),
        Break("forks come before their imports", "WarmServer._answer_waiting", "self._is_ready", "True"),
        Break("a fork keeps the others' connections", "WarmServer._forget_all_but", "other is not guest", "False"),
        Break("streams are kept open", "WarmServer._fork", "guest.close_streams()", "pass"),
        Break("ends are kept open", "WarmServer._report_end", "os.close(descriptor)", "pass"),
        Break("the end is not told", "WarmServer._report_end", "guest.connection.send", "str"),
        Break("it outlives the JVM", "WarmServer.serve", "descriptor == self._jvm", "False", hangs=True),
        Break("all draw the same", "reseed_numpy", "numbers.seed()", "pass"),
        Break("the environment of another", "become", "os.environ.clear()\nos.environ.update(request.environment)", "pass"),
        Break("the streams of another", "become", "os.dup2(stream, standard)", "pass"),
        Break("its workers stand for it as well", "become", "os.register_at_fork(after_in_child=guest.connection.close)", "pass"),
        Break("whose it is", "become", "processes.driver_is(jvm)", "pass"),
        Break("its arguments", "become", "[request.module, *request.arguments]", "[request.module]"),
        Break("interrupts", "become", "request.ignores_interrupts", "True"),
        Break("the mask of another", "become", "request.umask", "0"),
    ),
]
