"""Rules of saved checkpoints, each broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

MUTANTS: list[Mutant] = [
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
        Break("lost rows stop a restored query before it comes to them", "_roll_forward", "if _passes(last, batch, leads_to):\n" "    return ()", "pass"),
        Break("a batch that is passed finishes a later one", "_end", "not last.is_after(stamp.batch)", "True"),
    ),
    *mutants_of(
        ("tests/connector/saved/test_state_files.py",),
        Break("a gap does not matter", "_needed", "len(ids.get(n, ())) == 1", "len(ids.get(n, ())) <= 1"),
        Break("unique ids do not matter", "_needed", "begin == version", "True"),
        Break("the oldest whole version will do", "_needed", "sorted({one.version for one in old if one.kind in _WHOLE}, reverse=True)", "sorted({one.version for one in old if one.kind in _WHOLE})"),
        Break("tables are left out", "files_before", "_named_in(one, read)", "()"),
        Break("what is missing is left out", "files_before", 'if lacks:\n    raise StateGone(f"{\', \'.join(lacks[:5])} of {len(lacks)} files that batch {batch} needs are missing")', 'if False:\n    raise StateGone(f"{\', \'.join(lacks[:5])} of {len(lacks)} files that batch {batch} needs are missing")'),
        Break("later versions are saved", "_needed", "one.version <= version", "one.version <= version + 1"),
        Break("drafts are saved", "_is_hidden", "'/.' in name or name.startswith('.')", "False"),
        Break("checksums are left out", "files_before", "{f'{one.name}.crc' for one in state} & there", "set[str]()"),
    ),
    *mutants_of(
        ("tests/connector/saved/test_state_files.py", "tests/connector/saved/test_save.py"),
        Break("any manifest will do", "is_that_of", "Content.of(text.encode()) == (saved.size, saved.digest)", "True"),
        Break("the first piece is the file", "keys_of", "max(1, -(-size // PIECE))", "1"),
        Break("another version's records count", "Key.read", "version == _VERSION", "version"),
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
        Break("the living driver goes on", "taken_over", "owned = (yield from acquire(sink))\n" "return decode(sink, owned.stored.chunks)", "return decode(sink, (yield from fetch_stored(sink, None)).chunks)"),
    ),
    *mutants_of(
        ("tests/connector/saved/test_save.py",),
        Break("the decision does not say what was saved", "decide.decide", "decision._replace(saved=written.saved)", "decision"),
        Break("what is saved may be gone when it is decided", "decide.decide", "(*first_rows, *written.first_rows)", "first_rows"),
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
]  # fmt: skip
