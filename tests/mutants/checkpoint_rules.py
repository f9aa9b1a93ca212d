"""Rules of edits of checkpoints and of saved checkpoints, each broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

MOVES = ("tests/connector/commit/test_move_decision.py",)
COUNTS = ("tests/client/test_transaction_lists.py",)
RUNNING = ("tests/checkpoint/test_edits.py",)
COMMAND = ("tests/checkpoint/test_command.py",)
EDITS = ("tests/checkpoint/test_edits.py",)
COMPARE = ("tests/checkpoint/test_command.py",)
MOVE = ("tests/checkpoint/test_move_cluster.py",)
FORK = ("tests/checkpoint/test_fork.py",)
AT_ONCE = ("tests/checkpoint/test_edits.py",)
REFRESHED = ("tests/connector/checkpoint/test_changed_starts.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        REFRESHED,
        Break("only the one before counts", "former_checkpoints", "reversed(range(int(found[2])))", "[int(found[2]) - 1]"),
        Break("any numbered folder is a flow's", "_OF_A_FLOW", "'(.*/_checkpoints/(?:[^/]+/)+)(\\\\d+)/*'", "'(.*/(?:[^/]+/)+)(\\\\d+)/*'"),
        Break("a refresh goes on", "check_not_refreshed", "former is None", "former is not None"),
    ),
    *mutants_of(
        MOVES,
        Break("a decision made since is lost", "move_decision.move_decision", "last != seen", "False"),
        Break("attempts stay", "move_decision.move_decision", "yield from _move_attempt(sink, to)", "pass"),
        Break("tokens are forgotten", "_moved", "decision._replace(earlier=earlier, tokens=last.tokens, topics=last.topics, left=last.left)", "decision._replace(earlier=earlier, topics=last.topics, left=last.left)"),
        Break("topics are forgotten", "_moved", "decision._replace(earlier=earlier, tokens=last.tokens, topics=last.topics, left=last.left)", "decision._replace(earlier=earlier, tokens=last.tokens, left=last.left)"),
        Break(
            "who edits a checkpoint comes back to a sink that was left",
            "_moved",
            "decision._replace(earlier=earlier, tokens=last.tokens, topics=last.topics, left=last.left)",
            "decision._replace(earlier=earlier, tokens=last.tokens, topics=last.topics)",
        ),
        Break("a saved state is forgotten", "move_decision.move_decision", "known is not None and known.saved is not None and (saving is None)", "seen is not None and False"),
    ),
    *mutants_of(
        ("tests/checkpoint/test_rebuild.py",),
        Break("what a copy has decided elsewhere is the query's", "rebuild._check_topic", "not known or lost.topic in known", "True", ("tests/histories/test_kept.py",)),
        Break("a checkpoint is written over another one", "_check_empty", "files or (checkpoint.text('metadata') is not None and checkpoint.query_id() != query)", "False"),
        Break("a rebuild that is taken back loses the plan", "_move_back", "made is not None and made.batch == backup.was", "False"),
        Break("a saved state is left behind", "_check_goes_on", "decision.saved is not None", "False"),
        Break("an edit's rows went to no topic", "copied", "', '.join(last.went_to) or 'no topic'", "'no topic'", ("tests/histories/test_kept.py",)),
        Break("a living query has lost decisions", "_check_still", "(now.planned, now.completed, now.decision) != (found.planned, found.completed, found.decision)", "False", ("tests/checkpoint/test_command.py",)),
        Break("who has taken over is to be started as a shadow", "_check_not_taken", "seen is not None and seen.batch.query_id == shadow.query_id", "False", ("tests/shadow/test_take_over.py",)),
        Break("rows are guessed", "_plan_of", "planned.digest != decision.batch.digest", "False"),
        Break("rows of a table's batch are guessed", "_batch_of", "marked.entries is None and marked.file_logs()", "False", ("tests/fanout/test_crash_table.py",)),
        Break("a fan-out's batch is planned empty", "_before", "not is_dropped", "False", ("tests/fanout/test_crash_table.py",)),
        Break("another query's batch", "rebuilt", "standing.completed >= batch", "standing.completed > batch"),
        Break("other ends are rebuilt under a batch that is done", "rebuilt", "standing.completed > batch or there != planned or (not lost)", "standing.completed > batch or not lost"),
        Break("a batch that was planned from lost files stays", "rebuilt", "{**lost, **later}", "lost"),
        Break("the batch before is left as it is", "rebuilt", "batch > 0 and (not _is_done(checkpoint, batch - 1))", "False"),
        Break("files of a refused start count as read", "_check_read_before", "planned.batch_id - 1 in numbers", "True"),
        Break("lost entries of files count as there", "_check_read_before", "there", "True"),
        Break("state is guessed", "_before", "standing.is_stateful", "False"),
    ),
    *mutants_of(
        ("tests/checkpoint/test_move_cluster.py",),
        Break("a move by option is not seen", "check_not_moved", "then.clusters() - now.clusters()", "False"),
        Break("an unknown cluster is another", "check_not_moved", "then is not None and now is not None and now.clusters() and then.clusters() - now.clusters()", "then is not None and now is not None and then.clusters() - now.clusters()"),
    ),
    *mutants_of(COUNTS, Break("a batch that is cut counts as a whole", "_rows", "header.next_offset <= end", "True"), Break("offsets are rows", "_rows", "header.count == header.last_offset_delta + 1", "header.count > 0")),
    *mutants_of(
        COMMAND,
        Break(
            "nobody has to accept",
            "_check_accepted",
            "if needed:\n    if session.as_json:\n        session.show_json(document | {'done': False})\n    raise click.ClickException(f\"nothing was changed. If that is what you want, give {' '.join(needed)}\")",
            "if False:\n    if session.as_json:\n        session.show_json(document | {'done': False})\n    raise click.ClickException(f\"nothing was changed. If that is what you want, give {' '.join(needed)}\")",
        ),
        Break("one row more is fine", "_check_accepted", "how.get('accept_duplicates', 0)", "how.get('accept_duplicates', 0) + 1"),
    ),
    *mutants_of(
        RUNNING,
        Break(
            "drivers here are passed over",
            "check_rests",
            "if drivers:\n    said = ', '.join(map(str, drivers))\n    raise NotEditable(f'a driver of this query lives on this machine (pid {said}). {_FENCE}')",
            "if False:\n    said = ', '.join(map(str, drivers))\n    raise NotEditable(f'a driver of this query lives on this machine (pid {said}). {_FENCE}')",
        ),
        Break("nobody looks at what is done", "check_rests", "now.state != first.state or now.open - first.open", "now.open - first.open"),
    ),
    *mutants_of(
        RUNNING, Break("a driver that has ended runs", "drivers_of", "query == query_id and lives(driver)", "query == query_id"), Break("any driver runs any query", "drivers_of", "query == query_id and lives(driver)", "lives(driver)")
    ),
    *mutants_of(
        COMMAND,
        Break("what foreachBatch has written is not shown", "Standing.next_start", "self.foreach is not None and self.foreach.batch == self.next_batch", "False"),
        Break("a batch that foreachBatch has written since is not missed", "_foreach", "one is not None and one.batch > standing.next_batch", "False"),
    ),
    *mutants_of(COMMAND, Break("what nobody knows is taken for written", "position_of", "unknown and standing.perhaps_written is None", "False")),
    *mutants_of(
        EDITS,
        Break("set back, any log is the one that was read", "_end_of", "tp in mine and mine[tp] <= position.offsets[tp]", "False", ("tests/histories/test_kept.py",)),
        Break("an older copy is edited", "_check_newest", "decided.batch_id > newest.batch_id", "False"),
        Break("set forth, any log is the one that was read", "_check_read", "ends.get((number, topic, partition), 0) > at", "False", ("tests/histories/test_kept.py",)),
        Break("a batch is noted as done first", "_WRITTEN", "{'offsets': 3, 'commits': 4}", "{'offsets': 4, 'commits': 3}"),
        Break("lower batches go first", "order.rank", "-batch", "batch"),
        Break("taken back, ends come first", "order_back", "file[0] == 'offsets'", "file[0] != 'offsets'"),
        Break("what was written since is taken back", "has_gone_on", "since != 0", "False"),
        Break("an edit is not interrupted", "Backup.is_open", "(EditState.BEGUN, EditState.UNDOING)", "()"),
        Break("later batches do not count", "_has_other_files", "if batch > least:\n    return True", "pass"),
        Break("there is no backup", "carry_out.carry_out", "backup.put(standing.checkpoint, EditState.BEGUN)", "pass"),
        Break("the decision stays", "carry_out.carry_out", "_move(cluster, standing, backup.becomes, source, edit.end.ends, saving)", "pass"),
        Break("files of a query that runs change", "carry_out.carry_out", "_check_files(standing, backup.before)", "pass"),
        Break("what was planned since stays", "undo", "standing.checkpoint.change('offsets', batch, None)", "continue"),
        Break("an edit stays undone in part", "undo", "_move_back(cluster, standing, backup)", "pass"),
    ),
    *mutants_of(
        AT_ONCE,
        Break(
            "claims of others do not count",
            "check_alone",
            "if others:\n    raise NotEditable(f'another edit of this checkpoint begins at this moment; nothing was changed. Look at the checkpoint again. If no other edit runs, one has died in its first step: delete eoslog/{others[0]}')",
            "if False:\n    raise NotEditable(f'another edit of this checkpoint begins at this moment; nothing was changed. Look at the checkpoint again. If no other edit runs, one has died in its first step: delete eoslog/{others[0]}')",
        ),
        Break("claims of the dead count", "_is_alive", "by.elsewhere or by.works_here", "True"),
        Break("claims of another machine do not count", "_is_alive", "by.elsewhere or by.works_here", "by.works_here"),
        Break("edits of others do not count", "check_alone", "LastEdit.of(checkpoint) != seen", "False"),
    ),
    *mutants_of(
        EDITS,
        Break(
            "gaps are fine",
            "_files",
            "if gaps:\n    yield f'{log}/{gaps[0]} is missing between others ({len(gaps)} files): restore it from a copy'",
            "if False:\n    yield f'{log}/{gaps[0]} is missing between others ({len(gaps)} files): restore it from a copy'",
        ),
        Break("batches may be left out", "_files", "newest.batch_id - 1", "-1"),
        Break("more may be done than planned", "_files", "completed > newest.batch_id", "completed < 0"),
        Break("nothing is lost", "_lost", "if lost:\n    yield f'DataLoss: {lost}'", "if False:\n    yield f'DataLoss: {lost}'"),
    ),
    *mutants_of(("tests/checkpoint/test_fork.py",), Break("new partitions are no rows", "_with_new_partitions", "{**stands, **{place: first[place[1:]] for place in new}}", "stands")),
    *mutants_of(
        COMPARE,
        Break("an unknown cluster is this one", "lines", "not document[name]['clusters']", "False"),
        Break("aborted rows count", "_rows", "effect_of(cluster, [move], watch, committed=committed)", "effect_of(cluster, [move], watch, committed=False)"),
        Break("whoever is behind is ahead", "_ahead", "'a' if a > b else 'b'", "'b' if a > b else 'a'"),
    ),
    *mutants_of(COMPARE, Break("only the first edit counts", "before_edit", "reversed(backups)", "backups[:1]"), Break("later batches were there", "_EarlierFiles._is_later", "int(batch) > self._least", "False")),
    *mutants_of(
        FORK,
        Break("a copy may start before it is complete", "carry_out_fork", "copy.put('offsets', str(newest), _MARK)", "pass"),
        Break("what is there is overwritten", "check_free", "files_at(new.location).walk()", "False"),
        Break("a fork of a group by default has none", "NewQuery.named", "Sink(given).offsets_group", "None"),
        Break("two queries have one name", "carry_out_fork", "{'id': new.query_id}", "{'id': found.query_id}"),
        Break("the query may go on meanwhile", "carry_out_fork", "_check_rested(cluster, found)", "pass"),
        Break("names may be used", "check_free", "group is not None", "False"),
    ),
    *mutants_of(MOVE, Break("a move is taken back under the old query", "has_gone_on", "standing.sink is None or backup.cluster is not None", "standing.sink is None")),
    *mutants_of(MOVE, Break("the sink's note stays on the new cluster", "undo", "standing.checkpoint.note(NOTED_SINK, backup.note)", "pass")),
    *mutants_of(
        MOVE,
        Break("the first place that fits is the one", "found_again", "len(candidates) == 1", "candidates"),
        Break("what the user says is believed", "found_again", "not _fits(below, above, new, given)", "False"),
        Break("records may differ", "_same", "not len(one)", "True"),
    ),
    *mutants_of(MOVE, Break("nothing is missing", "_mapped", "max(_count(here, at, watch) - _count(there, ends[place], None), 0)", "0")),
    *mutants_of(
        ("tests/connector/checkpoint/test_crosscheck.py",),
        Break("the sink's last decision may be another query's", "check_followed", "by is not None and group is not None", "False"),
    ),
    *mutants_of(
        ("tests/histories/test_kept.py", "tests/connector/commit/test_decision.py"),
        Break("no query follows another", "Decision.successor_of", "newest != query_id", "False"),
        Break("a query that has never decided is followed", "Decision.successor_of", "newest != query_id and any((b.query_id == query_id for b in self._batches))", "newest != query_id or False"),
        Break("a batch write takes a query's place", "Decision.successor_of", "None if self.of_query is None else self.of_query.batch.query_id", "self.batch.query_id"),
    ),
    *mutants_of(
        ("tests/connector/commit/test_replay.py",),
        Break("lost rows stop a restored query before it comes to them", "_roll_forward", "if _passes(last, batch, leads_to):\n    return ()", "pass"),
        Break("a batch that is passed finishes a later one", "_end", "not last.is_after(stamp.batch)", "True"),
    ),
    *mutants_of(
        ("tests/connector/saved/test_state_files.py",),
        Break("a gap does not matter", "_needed", "len(ids.get(n, ())) == 1", "len(ids.get(n, ())) <= 1"),
        Break("unique ids do not matter", "_needed", "begin == version", "True"),
        Break("the oldest whole version will do", "_needed", "sorted({one.version for one in old if one.kind in _WHOLE}, reverse=True)", "sorted({one.version for one in old if one.kind in _WHOLE})"),
        Break("tables are left out", "files_before", "_named_in(one, read)", "()"),
        Break(
            "what is missing is left out",
            "files_before",
            "if lacks:\n    raise StateGone(f\"{', '.join(lacks[:5])} of {len(lacks)} files that batch {batch} needs are missing\")",
            "if False:\n    raise StateGone(f\"{', '.join(lacks[:5])} of {len(lacks)} files that batch {batch} needs are missing\")",
        ),
        Break("later versions are saved", "_needed", "one.version <= version", "one.version <= version + 1"),
        Break("drafts are saved", "_is_hidden", "'/.' in name or name.startswith('.')", "False"),
        Break("checksums are left out", "files_before", "{f'{one.name}.crc' for one in state} & there", "set[str]()"),
    ),
    *mutants_of(
        ("tests/connector/saved/test_state_files.py", "tests/connector/saved/test_save.py"),
        Break("any manifest will do", "is_that_of", "Content.of(text.encode()) == (saved.size, saved.digest)", "True"),
        Break("the first piece is the file", "keys_of", "max(1, -(-size // PIECE))", "1"),
        Break("another version's records count", "Key.read", "version == _FORMAT", "version"),
    ),
    *mutants_of(
        ("tests/connector/saved/test_save.py",),
        Break("a query that was set back keeps its files", "CheckpointSaving._known", "self.is_done or (last is not None and last.batch >= self._number)", "self.is_done"),
        Break("a note of another log counts", "CheckpointSaving._known", "last is not None and (not back) and (last.log == log_now)", "last is not None and (not back)"),
        Break("another log has what was saved less often", "CheckpointSaving.write", "last is not None and is_there and number % self.every and (last.batch < number)", "last is not None and number % self.every and (last.batch < number)"),
        Break("the beginning of a log does not matter", "CheckpointSaving._log", "list_offsets(self.cluster, {where: EARLIEST}, committed=False)[where]", "0"),
        Break("a topic's id does not matter", "CheckpointSaving._log", "topic_id", "None"),
        Break("nothing is removed", "CheckpointSaving._all_records", "((key, None) for key in sorted(gone))", "()"),
        Break("all files are the old ones", "CheckpointSaving._collected", "before is not None and is_versioned(name)", "before is not None"),
        Break("another topic's save counts", "CheckpointSaving.write", "last.topic != self.topic", "False"),
        Break("what runs again is not said where each batch is saved", "CheckpointSaving._save", "[] if self.is_done else [self._decided(contents)]", "[] if self.every == 1 else [self._decided(contents)]"),
        Break("operators do not matter from now on", "CheckpointSaving.write", "check_operators(self.checkpoint, self.every)", "pass"),
        Break("operators do not matter", "CheckpointSaving._save", "check_operators(self.checkpoint, self.every)", "pass"),
    ),
    *mutants_of(
        ("tests/connector/saved/test_run_again.py",),
        Break("the watermark does not matter", "differs", "marks[0] != marks[1]", "False"),
        Break("rows do not matter", "differs", "then.rows != now.rows", "False"),
        Break("checksums do not matter", "differs", "then.checksums != now.checksums", "False"),
        Break("nothing is compared", "check_equal_run", "then is None", "True"),
        Break("processing time runs again", "_obstacle", "mode in ('None', 'EventTime')", "True"),
        Break("an interrupted restore is whole", "check_restored", "checkpoint.noted(UNFINISHED) is not None", "False"),
    ),
    *mutants_of(
        ("tests/connector/saved/test_save.py",),
        Break("open transactions do not matter", "_settled_end", "until", "0"),
        Break("state may expire", "check_state_topic", "policy != 'compact'", "False"),
        Break("any source can plan again", "check_state_topic", "others and state.every > 1", "False"),
        Break("any older batch runs again", "_passes", "leads and last.is_after(batch)", "last.is_after(batch)"),
    ),
    *mutants_of(
        ("tests/connector/saved/test_run_again.py",),
        Break("the living driver goes on", "taken_over", "owned = (yield from acquire(sink))\nreturn decode(sink, owned.stored.chunks)", "return decode(sink, (yield from fetch_stored(sink, None)).chunks)"),
    ),
    *mutants_of(
        ("tests/connector/saved/test_save.py",),
        Break("the decision does not say what was saved", "decide.decide", "decision._replace(saved=written.saved)", "decision"),
        Break("what is saved may be gone when it is decided", "decide.decide", "(*open_rows, *written.rows)", "open_rows"),
        Break("files are not compared", "_written.content", "Content.of(data) != expected", "False"),
        Break("the last batch's end does not matter", "_planned", "not decision.batch.repeats(decision.batch._replace(digest=last.digest))", "False"),
        Break("any name is a file's", "_written", "not all(map(is_of_checkpoint, manifest.files))", "False"),
        Break("a checkpoint is overwritten", "restore.restore", "not is_empty(checkpoint)", "False"),
        Break("what is lost is found too late", "_written", "content(name)", "pass"),
    ),
    *mutants_of(
        ("tests/checkpoint/test_rebuild.py",),
        Break("the files are saved as they were", "_saving", "standing.checkpoint.changed(changes)", "standing.checkpoint"),
        Break("the note of the old cluster is saved", "carry_out.carry_out", "moved is None", "True"),
        Break("a move forgets the state", "carry_out.carry_out", "state_topic or state_topic_of(standing.decision)", "state_topic_of(standing.decision)"),
        Break("whether it can be saved is found too late", "state_saving", "found.check()", "pass"),
        Break("a fork forgets the state", "carry_out_fork", "carry_out.state_topic_of(found.decision)", "None"),
        Break("the batch after an edit is there", "files_before", "batch if planned else batch - 1", "batch"),
    ),
]
