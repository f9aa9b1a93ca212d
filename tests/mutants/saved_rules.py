"""Rules of saved checkpoints, each broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

MUTANTS: list[Mutant] = [
    *mutants_of(
        "connector/checkpoint/start_checks.py",
        ("tests/connector/checkpoint/test_crosscheck.py",),
        Break("the sink's last decision may be another query's", "    if by is not None and group is not None:", "    if False:"),
    ),
    *mutants_of(
        "connector/commit/decision.py",
        ("tests/histories/test_kept.py", "tests/connector/commit/test_decision.py"),
        Break("no query follows another", "followed = self.batch.query_id != query_id and any(", "followed = False and any("),
        Break("a query that has never decided is followed", "and any(b.query_id == query_id for b in self.earlier)", "or False"),
    ),
    *mutants_of(
        "connector/commit/begin.py",
        ("tests/connector/commit/test_replay.py",),
        Break("lost rows stop a restored query before it comes to them", "        if _passes(last, batch, leads_to):\n            return ()\n", ""),
    ),
    *mutants_of(
        "connector/commit/decide.py",
        ("tests/connector/commit/test_replay.py",),
        Break("a batch that is passed finishes a later one", "        if not last.is_after(stamp.batch):\n", "        if True:\n"),
    ),
    *mutants_of(
        "connector/saved/state_files.py",
        ("tests/connector/saved/test_state_files.py",),
        Break("a gap does not matter", "== 1 for n in range(max(begin, 1), version + 1))", "<= 1 for n in range(max(begin, 1), version + 1))"),
        Break("unique ids do not matter", "clear = begin == version or all(", "clear = True or all("),
        Break("the oldest whole version will do", "kind in _WHOLE}, reverse=True)", "kind in _WHOLE})"),
        Break("tables are left out", "_named_in(one, read)", "()"),
        Break("what is missing is left out", "    if lacks:", "    if False:"),
        Break("later versions are saved", "one.version <= version]", "one.version <= version + 1]"),
        Break("drafts are saved", 'return "/." in name or name.startswith(".")', "return False"),
        Break("checksums are left out", '{f"{one.name}.crc" for one in state} & there', "set[str]()"),
    ),
    *mutants_of(
        "connector/saved/manifest.py",
        ("tests/connector/saved/test_manifest.py", "tests/connector/saved/test_save.py"),
        Break("any manifest will do", "return Content.of(text.encode()) == (saved.size, saved.digest)", "return True"),
        Break("the first piece is the file", "range(max(1, -(-size // PIECE)))", "range(1)"),
        Break("another version's records count", "if version == _VERSION else None", "if version else None"),
    ),
    *mutants_of(
        "connector/saved/save.py",
        ("tests/connector/saved/test_save.py",),
        Break("a query that was set back keeps its files", "last.batch >= self.batch.batch_id  #", "False  #"),
        Break("a note of another topic counts", 'found.get("topic_id") != topic_id', "False"),
        Break("nothing is removed", "((key, None) for key in sorted(gone))", "()"),
        Break("all files are the old ones", "before is not None and is_versioned(name)", "before is not None"),
        Break("another topic's save counts", "last.topic != self.topic or", "False or"),
        Break("operators do not matter", "check_operators(self.checkpoint, self.every)", "pass"),
    ),
    *mutants_of(
        "connector/saved/run_again.py",
        ("tests/connector/saved/test_run_again.py",),
        Break("the watermark does not matter", "if marks[0] != marks[1]:", "if False:"),
        Break("rows do not matter", "if then.rows != now.rows:", "if False:"),
        Break("checksums do not matter", "then.checksums != now.checksums", "False"),
        Break("nothing is compared", "    if then is None:", "    if True:"),
        Break("processing time runs again", 'mode in ("None", "EventTime")', "True"),
        Break("an interrupted restore is whole", "if checkpoint.noted(UNFINISHED) is not None:", "if False:"),
    ),
    *mutants_of(
        "connector/saved/read_back.py",
        ("tests/connector/saved/test_save.py",),
        Break("open transactions do not matter", "committed=True)[where]) < until", "committed=True)[where]) < 0"),
    ),
    *mutants_of(
        "connector/saved/state_topic.py",
        ("tests/connector/saved/test_save.py",),
        Break("state may expire", 'if policy != "compact":', "if False:"),
        Break("any source can plan again", "if others and state.every > 1:", "if False:"),
    ),
    *mutants_of(
        "connector/commit/begin.py",
        ("tests/connector/saved/test_save.py",),
        Break("any older batch runs again", "return leads and last.is_after(batch)", "return last.is_after(batch)"),
    ),
    *mutants_of(
        "connector/commit/leave_sink.py",
        ("tests/connector/saved/test_run_again.py",),
        Break("the living driver goes on", "owned = yield from acquire(sink)\n    return decode(sink, owned.stored.chunks)", "return decode(sink, (yield from fetch_stored(sink, None)).chunks)"),
    ),
    *mutants_of(
        "connector/commit/decide.py",
        ("tests/connector/saved/test_save.py",),
        Break("the decision does not say what was saved", "decision._replace(saved=saved)", "decision"),
    ),
    *mutants_of(
        "eoslog/checkpoint/restore.py",
        ("tests/connector/saved/test_save.py",),
        Break("files are not compared", "if Content.of(data) != expected:", "if False:"),
        Break("the last batch's end does not matter", "not decision.batch.repeats(decision.batch._replace(digest=last.digest))", "False"),
        Break("any name is a file's", "if not all(map(is_of_checkpoint, manifest.files)):", "if False:"),
        Break("a checkpoint is overwritten", "if not is_empty(checkpoint):", "if False:"),
    ),
]  # fmt: skip
