"""Rules of the sink's driver and tasks, broken."""

from tests.mutants.mutant import Break, Mutant, mutants_of

HERE = "tests/connector/"
STEPS = (f"{HERE}sink/test_sink_steps.py",)
ON_A_BROKER = (
    f"{HERE}run/test_writer_memory.py",
    f"{HERE}checkpoint/test_writer_checkpoint.py",
    f"{HERE}sink/test_writer_disturbed.py",
    f"{HERE}sink/test_late_losers.py",
    f"{HERE}checkpoint/test_crosscheck_broker.py",
    f"{HERE}sink/test_lost_rows.py",
)
SINK = (*STEPS, *ON_A_BROKER)
TASK = (
    f"{HERE}sink/test_task_steps.py",
    f"{HERE}sink/test_late_losers.py",
    f"{HERE}sink/test_lost_rows.py",
    f"{HERE}sink/test_deadletters.py",
)
PLAINLY = (f"{HERE}sink/test_without_idempotence.py",)
GUARD = (f"{HERE}run/test_guard.py",)
CROSSCHECK = (f"{HERE}checkpoint/test_crosscheck.py", f"{HERE}checkpoint/test_crosscheck_broker.py")
MARKERS = (
    f"{HERE}client/test_markers_written.py",
    f"{HERE}run/test_writer_markers.py",
    f"{HERE}run/test_trap_defences_outside.py",
)

HIDDEN = ("tests/connector/crashes/test_hidden_internal_topics.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        "connector/run/run_memory.py",
        ("tests/connector/run/test_writer_memory.py",),
        Break(
            "all have their turn",
            "        fcntl.lockf(lock, fcntl.LOCK_EX)",
            "        fcntl.lockf(lock, fcntl.LOCK_UN)",
        ),
        Break(
            "what another run has written counts",
            'if (kept["run"], kept["batch"]) == (run, batch) else []',
            "if kept else []",
        ),
        Break("a thread may outlive its batch", 'and kept["batch"] > batch:', "and False:"),
    ),
    *mutants_of(
        "connector/sink/committer.py",
        SINK,
        Break(
            "the sink's own transaction may be open for long",
            "min(OWN_TIMEOUT_MS, options.transaction_timeout_ms)",
            "options.transaction_timeout_ms",
        ),
        Break(
            "a fresh process is acquainted",
            "acquainted = last_run is not None and runner.acquainted",
            "acquainted = runner.acquainted",
        ),
        Break(
            "who remembers is acquainted",
            "acquainted = last_run is not None and runner.acquainted",
            "acquainted = last_run is not None",
        ),
        Break(
            "nobody watches a batch write",
            "        abandoned_run.watch_once(sink, run, _write_key(options, run), runners)\n",
            "        pass\n",
            GUARD,
        ),
        Break(
            "the writes of a stem have no watcher",
            "    else:\n        abandoned_run.watch(",
            "    elif False:\n        abandoned_run.watch(",
            GUARD,
        ),
        Break("a write that is done is watched", "    _unwatch(options, run_of(reports))\n", "", GUARD),
        Break(
            "a write that failed is watched",
            "continues=not all(reports))\n        _unwatch(options, run)\n",
            "continues=not all(reports))\n",
            GUARD,
        ),
        Break(
            "a plan may be lost after its decision",
            "                synced.result()\n",
            "                pass\n",
        ),
        Break("two queries share a memory", "sink.id, batch.query_id", "sink.id"),
        Break("two sinks share a memory", "sink.id, batch.query_id", "batch.query_id"),
        Break(
            "another cluster's offsets",
            "        start.before()\n        runner",
            "        pass\n        runner",
        ),
        Break(
            "another cluster under a living query has lost decisions",
            "are others\n        start.before()\n",
            "are others\n        pass\n",
        ),
        Break("every start has the same word", "begun = replace(begun, start=run.start)", "pass"),
        Break(
            "at_least_once leaves the memory of another guarantee",
            "        run_memory.take(*_memory_key(options, sink, view.batch))  # of",
            "        # of",
        ),
        Break("what is complete is not told", "            completed=view.completed,\n", ""),
        Break(
            "at most once is exactly once",
            "once_at_most=options.guarantee is Guarantee.AT_MOST_ONCE",
            "once_at_most=False",
        ),
        Break(
            "two.phase.commit does not count for a stream's begin",
            "            two_phase=options.two_phase,\n            on_lost",
            "            on_lost",
        ),
        Break(
            "on.lost.transaction does not count",
            "            on_lost=options.on_lost,\n            leads_to",
            "            leads_to",
        ),
        Break(
            "a lost broker does not matter", "if runner.disturbed() or not acquainted:", "if not acquainted:"
        ),
        Break("strangers believe", "if runner.disturbed() or not acquainted:", "if runner.disturbed():"),
        Break("the start is not compared", "        start.after(begun)\n", "        pass\n"),
        Break(
            "remembered before the start is compared",
            "    if runner.disturbed() or not acquainted:\n        runner.run(prove_last(sink, begun.identity))\n",
            "    if run is not None:\n        run_memory.keep(run, *key)\n    if runner.disturbed() or not acquainted:\n        runner.run(prove_last(sink, begun.identity))\n",
        ),
        Break("nothing is remembered", "    run_memory.keep(run, *key)\n", "    pass\n"),
        Break(
            "a memory is left by a begin that fails",
            "last_run = run_memory.take(*key)",
            "last_run = run_memory.look(*key)",
        ),
        Break(
            "at least once commits no offsets",
            "        if source is not None and source.offsets:",
            "        if False:",
        ),
        Break(
            "committed without source offsets",
            "reports, batch_id, source, options.two_phase, terms)",
            "reports, batch_id, None, options.two_phase, terms)",
        ),
        Break(
            "two.phase.commit does not count for a commit",
            "reports, batch_id, source, options.two_phase, terms)",
            "reports, batch_id, source, terms=terms)",
        ),
        Break(
            "a commit does not look for lost markers",
            "    _prove_if_disturbed(runner, sink, reports)\n    _await_readable(runner, sink, last, spent)\n",
            "    _await_readable(runner, sink, last, spent)\n",
        ),
        Break(
            "a write does not look for lost markers",
            "    _prove_if_disturbed(runner, sink, reports)\n    _await_readable(runner, sink, done, {})\n",
            "    _await_readable(runner, sink, done, {})\n",
        ),
        Break(
            "a micro-batch returns before readers see it",
            "    _await_readable(runner, sink, last, spent)\n",
            "",
        ),
        Break(
            "a write returns before readers see it",
            "    _await_readable(runner, sink, done, {})\n",
            "",
        ),
        Break(
            "rows that are not readable yet are not told of",
            "    if last is not None and why is not None:\n",
            "    if False:\n",
        ),
        Break(
            "partitions are asked after every commit",
            "    if runner.disturbed():\n        own",
            "    if True:\n        own",
        ),
        Break(
            "the offsets of the newest planned batch",
            "Checkpoint.at(options.checkpoint_location).planned(batch_id)",
            "Checkpoint.at(options.checkpoint_location).newest_planned()",
        ),
        Break(
            "the group by default gets other clusters' offsets",
            "            planned = of_group(planned, group, note.sink",
            "            of_group(planned, group, note.sink",
        ),
        Break("at_least_once claims a decision", ", decided=False)", ")"),
        Break(
            "a group without a checkpoint",
            '        if options.group_id is not None:\n            raise OptionError(_needs_checkpoint("kafka.group.id", error)) from error\n',
            "",
        ),
        Break(
            "at_least_once goes on without its checkpoint",
            "        if _WORD_NO_CHECKPOINT in options.accepted:\n            return None\n",
            "        return None\n",
        ),
        Break(
            "at_least_once leaves what its name has decided",
            '        identity = runner.run(fence(sink, noted_left(view, "")))\n',
            "        identity = ProducerIdentity(1, 0)\n",
        ),
        Break(
            "at_least_once asks for its name in each batch",
            "    if run is None or not continues:\n        run_memory",
            "    if True:\n        run_memory",
        ),
        Break(
            "a write of at_least_once leaves what its name has decided",
            "        if options.transactional_id is not None:\n            runner.run(fence(Sink(options.transactional_id)))\n",
            "",
        ),
        Break(
            "one sink for all of a query",
            'return Sink(next((report.stamp.sink_id for report in reports if report is not None), ""))',
            'return Sink("sink")',
        ),
    ),
    *mutants_of(
        "connector/commit/token_write.py",
        STEPS,
        Break(
            "a token that is finished is not known",
            "last is not None and (yield from is_finished(sink, last))",
            "False",
        ),
    ),
    *mutants_of(
        "connector/sink/start_of_run.py",
        (*STEPS, *CROSSCHECK),
        Break(
            "who comes back to a sink is stopped", "words=[*known.words, last.left.word]", "words=known.words"
        ),
        Break(
            "who comes back is stopped at its second start",
            "        if self._left is not None:\n",
            "        if False:\n",
        ),
        Break(
            "a sink that was left is left again for any",
            "if left is not None and (left.sink,",
            "if False and (left.sink,",
        ),
        Break(
            "who leaves a sink does not know the word",
            "    NotedStarts.read(view.checkpoint).learn(view.checkpoint, word, number)\n",
            "",
        ),
        Break(
            "warnings are not said",
            "check_story(story):\n            log.warning(warning)\n",
            "check_story(story):\n            pass\n",
        ),
        Break("the story is not checked", "for warning in check_story(story):", "for warning in ():"),
        Break(
            "at_least_once says no warnings",
            "check_plain_start(story):\n        log.warning(warning)",
            "check_plain_start(story):\n        pass",
        ),
        Break(
            "at_least_once does not see what another decision hides",
            "            last = runner.run(taken_over(sink))\n        if group",
            "            pass\n        if group",
        ),
        Break(
            "at_least_once asks no group by default",
            "        if group is None:  # exactly_once has",
            "        if False:  # exactly_once has",
        ),
        Break(
            "another query's batch is ours",
            "decided is None or decided.query_id != view.batch.query_id or",
            "decided is None or",
        ),
        Break(
            "an older batch has the newest offsets",
            "    if decided.batch_id < planned.batch_id:\n",
            "    if False:\n",
        ),
        Break(
            "the group is not asked",
            "    if group is None or not wanted:\n        return {}",
            "    if True:\n        return {}",
        ),
        Break("the group of the ended batch is not asked", "*(() if kept is None else (kept,))", ""),
        Break(
            "sources of any cluster",
            "check_group_cluster(view.planned.clusters(), now, self._options.group_id)",
            "pass",
        ),
        Break(
            "what is completed is not compared",
            "            completed=view.completed,\n            decided",
            "            completed=None,\n            decided",
        ),
        Break(
            "what others have decided is left to them",
            "            runner.run(fence(Sink(sink), noted_left(view, new) if replaced else None))\n",
            "            pass\n",
        ),
        Break("notes are not read", "NotedOffset(at, read_note(text))", "NotedOffset(at, None)"),
        Break(
            "a successor is looked for under today's names alone",
            "            names.add((given.sink, given.group))\n",
            "            pass\n",
        ),
        Break(
            "a sink that was left is as our own",
            "is_left=is_left",
            "is_left=False",
            ("tests/histories/test_kept.py",),
        ),
        Break(
            "a group that changes is not noted",
            "if given is None or is_new or given.group != group:",
            "if given is None or is_new:",
        ),
        Break(
            "a group that changes makes the sink a new one",
            "since = view.batch.batch_id if given is None or is_new else given.since",
            "since = view.batch.batch_id",
        ),
    ),
    *mutants_of(
        "connector/checkpoint/noted_sink.py",
        (f"{HERE}checkpoint/test_changed_starts.py", *CROSSCHECK),
        Break("the group is not noted", 'found.get("group"))', "None)"),
        Break(
            "a note of a later version is guessed at", 'known = found["version"] == _VERSION', "known = True"
        ),
        Break("a note has to have a group", 'found.get("group")', 'found["group"]'),
    ),
    *mutants_of(
        "connector/checkpoint/cluster_check.py",
        CROSSCHECK,
        Break("cluster.moved.to is not asked for", "if moved_to == now:", "if True:"),
        Break("cluster.moved.to does not count", "if moved_to == now:", "if False:"),
        Break("offsets of other clusters are committed", "    if others:\n", "    if False:\n"),
        Break(
            "a sink that is not known is another cluster", "if sink is not None else []", "if True else []"
        ),
    ),
    *mutants_of(
        "connector/offsets/group_notes.py",
        CROSSCHECK,
        Break("notes longer than Kafka takes", "if len(said) <= _NOTE_LIMIT else", "if True else"),
        Break("notes of others are ours", 'if found["eoslog"] else None', "if True else None"),
        Break(
            "other texts stop the query",
            "except (ValueError, KeyError, TypeError, AttributeError):",
            "except KeyError:",
        ),
        Break("offsets of several sinks are one place", "if len(sinks) > 1:", "if False:"),
        Break("offsets of somebody else are not told", "if sinks and strange:", "if False:"),
    ),
    *mutants_of(
        "connector/run/abandoned_run.py",
        GUARD,
        Break(
            "abort does not look again",
            "        detached(lambda: _look_late(sink, run, ended, runners()))\n",
            "",
        ),
        Break("late tasks are not looked for", "LATE_SECONDS = 30.0", "LATE_SECONDS = 3.0"),
        Break(
            "who watches a write stays for ever",
            "        if run_memory.look(*key) is None:\n            return\n",
            "",
        ),
        Break(
            "who watches a query stays for ever",
            "if run is None or _is_over(sink, run, runners):",
            "if False:",
        ),
        Break(
            "who watches a query goes at once",
            "if run is None or _is_over(sink, run, runners):",
            "if True:",
        ),
        Break(
            "who goes does not look back",
            "held = None if run_memory.stamp(*key) == kept else run_memory.hold(*lock)",
            "held = None",
        ),
        Break(
            "a later batch has no watcher",
            "    if held is None:\n        return\n    run_memory.release(held, *lock)\n",
            "    if held is None:\n        return\n",
        ),
        Break(
            "what a dead driver has open is left",
            "    ended = runner.run(end_run(sink, run))\n    _log_outcome",
            "    return\n    _log_outcome",
        ),
        Break(
            "a dead driver's late tasks are left",
            "    _log_outcome(sink, run, ended)\n    _look_late",
            "    return\n    _look_late",
        ),
    ),
    *mutants_of(
        "connector/checkpoint/start_checks.py",
        CROSSCHECK,
        Break(
            "a successor is not seen",
            '    if not moved:\n        return\n    said = _listed((tp, f"{at}, this query',
            '    if True:\n        return\n    said = _listed((tp, f"{at}, this query',
        ),
        Break(
            "a new checkpoint began where its first batch ends",
            "all(self.begins_at(tp) == at",
            "all(self.ends.get(tp) == at",
        ),
        Break("a successor that stands here is not seen", "if is_left or found[0]", "if found[0]"),
        Break("a successor under the same name is refused", "if is_left or found[0]", "if True or found[0]"),
        Break(
            "any word accepts a successor",
            'f"taken-over:{by}") in accepted:',
            'f"taken-over:{by}") in accepted or accepted:',
        ),
        Break(
            "no word accepts a successor",
            'if (word := f"taken-over:{by}") in accepted:',
            'if not (word := f"taken-over:{by}"):',
        ),
        Break(
            "any decision is ours",
            "self.decided is not None and self.decided.query_id == self.batch.query_id",
            "self.decided is not None",
        ),
        Break(
            "completed and new",
            "self.completed is None and self.batch.batch_id == 0 and self.ours is None",
            "self.batch.batch_id == 0 and self.ours is None",
        ),
        Break(
            "decided and new",
            "and self.batch.batch_id == 0 and self.ours is None",
            "and self.batch.batch_id == 0",
        ),
        Break(
            "notes are not compared",
            "    _check_notes(story)\n    _check_decided(story)",
            "    _check_decided(story)",
        ),
        Break(
            "the decided batch is not compared",
            "    _check_notes(story)\n    _check_decided(story)",
            "    _check_notes(story)",
        ),
        Break(
            "other queries' notes count",
            "[note for note in notes if note.query == story.batch.query_id]",
            "notes",
        ),
        Break("the oldest note counts", "newest = max(claims", "newest = min(claims"),
        Break(
            "older notes stop the query",
            "newest is None or newest.batch < story.batch.batch_id or",
            "newest is None or",
        ),
        Break("what the sink knows stops the query", " or newest.batch <= story.last:", ":"),
        Break(
            "a checkpoint set back is a decision gone",
            "    if newest.batch > story.batch.batch_id:\n",
            "    if False:\n",
        ),
        Break(
            "other offsets of the decided batch",
            "if not decided._replace(digest=digest).repeats(decided):",
            "if False:",
        ),
        Break(
            "a new checkpoint is never told",
            "    if story.is_new:\n        return",
            "    if False:\n        return",
        ),
        Break(
            "at_least_once begins where others stand",
            "    if not any(away.values()) or max(away.values()) > 0:",
            "    if False:",
        ),
        Break(
            "at_least_once begins where others stood",
            "    if not any(away.values()) or max(away.values()) > 0:",
            "    if not any(away.values()):",
        ),
        Break(
            "at_least_once does not read again what others have read",
            "    if not any(away.values()) or max(away.values()) > 0:",
            "    if True:",
        ),
        Break(
            "at_least_once is always new",
            "    if not story.is_new:\n        return []\n    _check_taken",
            "    _check_taken",
        ),
        Break(
            "at_least_once takes any offsets",
            "        return []\n    _check_taken(story)\n",
            "        return []\n",
        ),
        Break("at_least_once leaves rows out", "    if not skips:\n", "    if True:\n"),
        Break("a beginning that is not known leaves none out", 'or {"": end}', 'or {"": 0}'),
        Break(
            "an older decision ended anywhere",
            "        unknown = story.decided is not None and",
            "        unknown = False and",
        ),
        Break("who begins at the beginning may leave rows out", " and max(begins.values()) > 0", ""),
        Break(
            "a decision tells at_least_once nothing",
            "    written = [] if decided is None else [decided]\n",
            "    written: list[Mapping[str, int]] = []\n",
        ),
        Break(
            "a group tells at_least_once nothing",
            "        written.append(dict(found.note.apart)",
            "        list((found.note.apart)",
        ),
        Break(
            "a consumer's offset says what is written",
            "found.note is not None and (decided is None or found",
            "(decided is None or found",
        ),
        Break(
            "another sink's note says what is written",
            "(decided is None or found.note.sink == story.sink)",
            "True",
        ),
        Break(
            "another sink's note says nothing",
            "(decided is None or found.note.sink == story.sink)",
            "found.note.sink == story.sink",
        ),
        Break(
            "sources share their ends", "at <= ends.get(n, min(ends.values()))", "at <= max(ends.values())"
        ),
        Break("one source is enough", "if all(any(at <=", "if any(any(at <="),
        Break("the line names what nobody reads", "return reading_only(end, read, rest) if", "return end if"),
        Break(
            "the line is of a batch that nothing is read of", " if read & ended.keys() else", " if True else"
        ),
        Break(
            "the line leaves the group out",
            "group[tp].offset if tp in group else EARLIEST",
            "EARLIEST",
        ),
        Break(
            "a new partition begins where the query begins",
            "group[tp].offset if tp in group else EARLIEST",
            "group[tp].offset if tp in group else story.begins_at(tp) or 0",
        ),
        Break(
            "a word is for every start",
            'if (word := f"{WORD_NEW}:{story.number}") in',
            "if (word := WORD_NEW) in",
        ),
        Break("a word for state is for every start", 'f"{WORD_STATE}:{story.number}"', "WORD_STATE"),
        Break("a number is always the note's", "return self.sequence or max(", "return max("),
        Break("a new partition is passed over", "and not (story.anew or story.unread)", "and not story.anew"),
        Break(
            "a new partition is passed over at the group's offsets",
            "    odd |= {tp: _not_read(story, tp) for tp in story.unread}\n",
            "",
        ),
        Break(
            "a topic made anew is passed over",
            "    if story.unread and story.decided",
            "    if False and story.decided",
        ),
        Break(
            "at_least_once passes over a new partition", "    if place in story.unread:\n", "    if False:\n"
        ),
        Break("a topic made anew is the former one", " if tp[0] not in self.remade}", "}"),
        Break("a topic made anew was read", "in known if tp[0] in remade(left, now)}", "in known if False}"),
        Break(
            "what a note tells is not known",
            "known, begins = set(noted), now",
            "known, begins = set[TopicPartition](), now",
        ),
        Break(
            "another query's topics have begun",
            "    if not {topic for topic, _ in known} & {topic for topic, _ in begins}:\n",
            "    if False:\n",
        ),
        Break(
            "a topic made anew is read without a word",
            "    if not topics:\n        return []",
            "    if True:\n        return []",
        ),
        Break(
            "a source's line names those of another",
            " if len(names) < 2 or name in story.begins.get(tp, ())}",
            "}",
        ),
        Break("a source takes any offsets", "    _check_taken(story)\n    if story", "    if story"),
        Break(
            "any word accepts others' offsets",
            'if f"offsets-of:{s}" not in story.accepted)',
            "if not story.accepted)",
        ),
        Break(
            "a batch of at_least_once that runs again was set back",
            "    if not newest.decided and all(",
            "    if False and all(",
        ),
        Break(
            "a checkpoint that was set back behind at_least_once goes on",
            "    if not newest.decided:\n        raise",
            "    if False:\n        raise",
        ),
        Break(
            "it begins anywhere",
            "    if story.at_group:\n",
            "    if story.committed:\n",
        ),
        Break(
            "where it begins does not matter",
            "    if story.at_group:\n",
            "    if False:\n",
        ),
        Break("one partition is enough", "bool(stands) and all(", "bool(stands) and any("),
        Break(
            "a group may be anywhere", "        odd = _not_where_it_ended(story)\n", "        odd = None\n"
        ),
        Break(
            "offsets without a note are the sink's",
            "    if note is None:\n        return f",
            "    if False:\n        return f",
        ),
        Break(
            "an older batch's offsets will do",
            "    if (note.query, note.batch) != story.decided[:2]:",
            "    if False:",
        ),
        Break(
            "where the batch ended does not matter",
            "        return None if _same(begins, ended) else",
            "        return None if True else",
        ),
        Break(
            "a partition without an offset is new",
            "        if not _same(story.begins[tp], left_at[tp])\n",
            "        if False\n",
        ),
        Break(
            "one source's end is every source's",
            "    if len({*ended.values()}) > 1:\n        return begins == ended\n",
            "",
        ),
        Break("the lowest end is every source's", "    apart = dict(note.apart) or", "    apart ="),
        Break(
            "another sink's later batches do not matter", "(note.query, note.batch) != other[:2]:", "False:"
        ),
        Break(
            "at_least_once may stand behind",
            "return None if is_known and not behind else",
            "return None if is_known else",
        ),
        Break("files are at the group's offsets", "    if story.anew and not odd:", "    if False:"),
        Break("files go on where topics do", "and not (story.anew or story.unread)", "and not story.unread"),
        Break(
            "only the group says where it ended",
            "    if _goes_on(story):\n        return _made_anew(story)\n",
            "",
        ),
        Break(
            "ends that are not said are beginnings",
            "        and read <= story.begins.keys()\n",
            "        and True\n",
        ),
        Break(
            "rows that at_least_once wrote are written again",
            "        and all(story.committed[tp].offset == story.begins_at(tp) for tp in later)\n",
            "",
        ),
        Break(
            "missing decisions are not told",
            "if story.since is not None or story.completed is None or story.last >= story.completed:",
            "if True:",
        ),
        Break("a group that was moved is not told", "    if not moved:\n        return []", "    return []"),
        Break("a group that stands is moved", "if found.offset != at}", "}"),
    ),
    *mutants_of(
        "connector/checkpoint/files.py",
        (f"{HERE}checkpoint/test_writer_checkpoint.py",),
        Break("Hadoop's names are Arrow's", "_ARROWS_NAMES.get(scheme, scheme)", "scheme"),
        Break("names are as they were typed", "    scheme = scheme.lower()\n", ""),
        Break(
            "Arrow takes the container of every host",
            'rest = re.sub(r"^(//[^/@:]',
            'rest = rest or re.sub(r"^(//[^/@:]',
        ),
        Break("an account's key is a container", "^(//[^/@:][^/@]*@", "^(//[^/@]*@"),
        Break("every store moves files", "except NotImplementedError:", "except ZeroDivisionError:"),
        Break("a draft that does not move stays", "                self._files.delete_file(draft)\n", ""),
        Break("an empty folder is an error", "allow_not_found=True", "allow_not_found=False"),
        Break("an empty folder here is an error", "            return []", "            raise"),
        Break(
            "a file that is not there is an error",
            "            return None\n\n    def names",
            "            raise\n\n    def names",
        ),
        Break("a draft stays", "os.replace(draft,", "__import__('shutil').copy(draft,"),
        Break("a draft stays elsewhere", "self._files.move(draft,", "self._files.copy_file(draft,"),
        Break("there is no folder", "        os.makedirs(inside, exist_ok=True)\n", ""),
        Break("a folder is made once", "exist_ok=True", "exist_ok=False"),
        Break("nanoseconds are seconds", "written_ns / 1e9", "written_ns"),
        Break("every file is there", "is not fs.FileType.NotFound", "is not None"),
        Break(
            "Arrow's errors are others",
            "except (OSError, ValueError, ArrowException)",
            "except ZeroDivisionError",
        ),
        Break("Hadoop's way to say file:", 're.sub(r"^file:(//)?(?=/)", "", location)', "location"),
    ),
    *mutants_of(
        "connector/checkpoint/checkpoint.py",
        (f"{HERE}checkpoint/test_writer_checkpoint.py", *STEPS),
        Break(
            "the oldest batch is the newest",
            "return max(self.batches(log)",
            "return min(self.batches(log)",
        ),
        Break(
            "drafts are batches",
            "if name.isdecimal()",
            "if name.strip('.').split('.')[0].isdecimal()",
        ),
        Break(
            "what Spark has removed stops the query",
            'self.planned(batch_id) if self._is_there(f"offsets/{batch_id}") else None',
            "self.planned(batch_id)",
        ),
        Break(
            "nothing is kept",
            'return self.planned(batch_id) if self._is_there(f"offsets/{batch_id}") else None',
            "return None",
        ),
        Break("any commit will do", "            check_commit(text)\n", "            pass\n"),
    ),
    *mutants_of(
        "connector/checkpoint/spark_logs.py",
        (f"{HERE}checkpoint/test_spark_logs.py", f"{HERE}checkpoint/test_writer_checkpoint.py"),
        Break("a later offset log is read", 'OFFSET_LOG = ("v1", "v2")', 'OFFSET_LOG = ("v1", "v2", "v3")'),
        Break("a later commit log is read", '("v1", "v2", "v3")\n', '("v1", "v2", "v3", "v4")\n'),
        Break("no commit log of sinks with names", '("v1", "v2", "v3")\n', '("v1", "v2")\n'),
        Break("a source without offsets was there", " if end != VOID}", "}"),
        Break(
            "a cluster that is not named is the sink's",
            "cluster_from_json(_topics(text)) == cluster else VOID",
            "cluster_from_json(_topics(text)) in (None, cluster) else VOID",
            (f"{HERE}sink/test_sink_steps.py",),
        ),
        Break("sources began at their ends", "| (began_from_json(_topics(text)) or {})", ""),
        Break("no sources are read", "        if not sources:\n", "        if False:\n"),
        Break("a source without a name", "if not name or not colon]", "if False]"),
        Break("two lines for a source", "if len(set(names)) < len(names):", "if False:"),
        Break(
            "names are nothing",
            "for _, _, end in named), names, times",
            "for _, _, end in named), (), times",
        ),
        Break(
            "a name is a part of the offsets", "tuple(_offsets(end) for _, _, end in named)", "tuple(sources)"
        ),
        Break("torn offsets are another source's", '    if text.startswith("{"):\n', "    if False:\n"),
        Break("settings are a source", "return version, values, lines[1:]", "return version, values, lines"),
        Break("any number of sinks is active", "if len(active) != 1:", "if False:"),
        Break(
            "files are not in the digest",
            "if self.entries is not None:\n            lines",
            "if False:\n            lines",
        ),
        Break(
            "files are read by their end",
            'frozenset({"logOffset"}): ReadBy.ENTRIES',
            'frozenset({"logOffset"}): ReadBy.END',
        ),
        Break("any end says what is read", "READ_BY.get(frozenset(found), ReadBy.ROWS)", "ReadBy.END"),
        Break("a Python source's end is Spark's", ' or end != json.dumps(found, separators=(",", ":"))', ""),
        Break("a compacted log is one batch", "if mark.search(line):", "if True:"),
        Break("names are not in the digest", "(*self.names, *self.sources)", "self.sources"),
        Break(
            "the settings are in the digest",
            "_digest((*self.names, *self.sources))",
            '_digest((*self.names, *self.sources, f"{self.batch_id}"))',
        ),
        Break(
            "the first source alone",
            "(*self.names, *self.sources)",
            "(*self.names, *self.sources[:1])",
        ),
        Break(
            "Spark's Kafka source is eoslog",
            "return bool(ids_from_json(topics)) or",
            "return bool(topics) or",
        ),
        Break(
            "the higher offset of two sources",
            "min(offset, together.get(place, offset))",
            "max(offset, together.get(place, offset))",
        ),
        Break("the last of two sources", "min(offset, together.get(place, offset))", "offset"),
        Break("offsets below 0", "isinstance(offset, int) and offset >= 0", "isinstance(offset, int)"),
        Break("offsets of any kind", "isinstance(offset, int) and offset >= 0", "True"),
        Break("partitions of any name", "number.isdecimal() and isinstance", "isinstance"),
        Break(
            "notations of other sources are read",
            "if not isinstance(topics, dict) or not all(_is_topic(parts) for parts in topics.values()):",
            "if not isinstance(topics, dict):",
        ),
        Break("clusters are not told", "{cluster for cluster in found if cluster is not None}", "set()"),
    ),
    *mutants_of(
        "connector/checkpoint/source_changes.py",
        (f"{HERE}checkpoint/test_source_changes.py",),
        Break("a new source may begin anywhere", "if any(said) and word not in", "if False and word not in"),
        Break("whatever was accepted", "if any(said) and word not in", "if any(said) and not"),
        Break(
            "where others ended does not matter", '        return ""\n    known', "        pass\n    known"
        ),
        Break("a former source has many successors", "        ends.remove(at)\n", ""),
        Break(
            "the first reader counts",
            "max((one.batch for one in readers), default=-1)",
            "min((one.batch for one in readers), default=-1)",
        ),
        Break("a source may come back after one batch", "former.batch != change.before.batch_id - 1", "True"),
        Break("a source may never come back", "former.batch != change.before.batch_id - 1 or ", ""),
        Break("a new source began at its end", ", beginning_of(end)[place]", ", offsets_of(end)[place]"),
        Break(
            "the group is where a new source ends",
            "in beginning_of(end).items():",
            "in offsets_of(end).items():",
        ),
        Break("removed sources are forgotten", "({**self.sources, **gone})", "(gone)"),
        Break("a topic is read twice", "    if place in still_read:\n", "    if False:\n"),
        Break("the group remembers nothing", "by_group.offset != at:", "False:"),
        Break(
            "another sink's offsets are one's own",
            "{one.sink for one in taken_of(end)}",
            "set[str]()",
        ),
        Break(
            "another sink's group is one's own",
            "if found and found.note and",
            "if False and found and found.note and",
        ),
        Break("sources may be exchanged", "        if found and word not in accepted:", "        if False:"),
        Break("what a source has left it never had", ", *then[name].left.offsets}", "}"),
        Break("what another has left nobody has read", ", (stood.left.offsets, stood.left.ids)):", ",):"),
        Break(
            "a topic made anew was read by another",
            "then.get(topic, ids.get(topic)) == ids.get(topic)",
            "True",
        ),
        Break("who stands at 0 has read", "at.get(place, 0) > 0", "place in at"),
        Break("a batch needs no sources", "    if not missing or (word", "    if True or (word"),
        Break("what was accepted once is accepted", "without-sources:{now.batch_id}", "without-sources:{4}"),
        Break("one source is two", "asked[text] < wanted[text]", "not asked[text]"),
        Break("all kinds of sources are missed", "if is_eoslog(end) and", "if"),
        Break("sources without new rows are missed", " and then.get(name) != end}", "}"),
    ),
    *mutants_of(
        "connector/sink/source_check.py",
        (f"{HERE}sink/test_source_check.py",),
        Break("what is decided is compared", "and _is_written(begun):", "and False:"),
        Break(
            "a source always takes over",
            "for name, end in now.by_name.items() if name not in then)",
            "for end in now.sources)",
        ),
        Break(
            "no source takes over", "    return any(taken_of(end)", "    return False and any(taken_of(end)"
        ),
        Break(
            "what is lost is written", "return begun.is_decided and not begun.lost", "return begun.is_decided"
        ),
        Break(
            "nobody is asked",
            "        check_present(before, now, asked, options.accepted)\n",
            "        pass\n",
        ),
        Break(
            "sources without names are not compared",
            "len(now.sources) < 2 and not now.names",
            "not now.names",
        ),
        Break("nothing is compared", "    check_added(Change(", "    (Change("),
        Break("nothing is noted", "    checkpoint.note(_FILE, removed.text())\n", ""),
    ),
    *mutants_of(
        "connector/run/source_ends.py",
        (f"{HERE}run/test_source_ends.py",),
        Break(
            "the dead are asked",
            ' if lives(ProcessIdentity(*kept["process"]))]',
            "]",
        ),
        Break("an ended query is asked", "                self._path.unlink()\n", "                pass\n"),
        Break(
            "two sources are one",
            'Counter(kept["end"] for kept in notes)',
            'Counter({kept["end"] for kept in notes})',
        ),
        Break("the first end is the last", "        if kept == self._noted:\n", "        if self._noted:\n"),
        Break("a torn line is believed", "if text and checksum == _checksum(text):", "if text:"),
        Break("a removed file is written", "os.fstat(self._file).st_nlink > 0", "True"),
        Break("a full disk is a note", "        if written < len(line):\n", "        if False:\n"),
        Break("files stay open", "            os.close(self._file)\n", "            pass\n"),
        Break("those of dropped sources stay open", "    def __del__(self)", "    def left(self)"),
    ),
    *mutants_of(
        "connector/sink/source_check.py",
        (f"{HERE}sink/test_source_check.py",),
        Break("an edit is passed over", "and canonical_text(then[name]) not in known:", "and False:"),
    ),
    *mutants_of(
        "connector/sink/begin_on_driver.py",
        (f"{HERE}sink/test_begins.py",),
        Break("errors stand behind those of pickling", "                let_through(error)\n", ""),
        Break("under another name", '"__qualname__": kind.__qualname__', '"__qualname__": "Error"'),
    ),
    *mutants_of(
        "connector/spark/plain_errors.py",
        (f"{HERE}spark/test_plainly.py", f"{HERE}spark/test_spark_log_lines.py"),
        Break("the way through eoslog is shown", "raise error.with_traceback(None) from None", "raise"),
        Break("it is never shown", "if os.environ.get(KEPT):", "if False:"),
        Break(
            "a task's errors are shown whole",
            "plainly(lambda: next(pieces, None))",
            "(lambda: next(pieces, None))",
        ),
        Break("warnings look as they did", "        look_as_sparks()\n", ""),
        Break(
            "an abort hides why the batch failed",
            "            kind = type(error).__name__\n",
            "            raise\n",
        ),
    ),
    *mutants_of(
        "connector/spark/logs.py",
        (f"{HERE}spark/test_spark_log_lines.py",),
        Break("said again and again", "if not self._was_said(record.getMessage()):", "if True:"),
        Break("said once for ever", "< REPEAT_SECONDS:", "< float('inf'):"),
        Break("said beside the user's own", "        if logging.root.handlers:\n            return\n", ""),
        Break("in a program of the user's", "if is_sparks() and not any(", "if not any("),
        Break(
            "twice",
            "if is_sparks() and not any(isinstance(handler, AsSpark) for handler in log.handlers):",
            "if is_sparks():",
        ),
    ),
    *mutants_of(
        "connector/spark/driver_stderr.py",
        (f"{HERE}spark/test_spark_log_lines.py",),
        Break("opened anew", "    found = _the_same(pid)\n", "    found = None\n"),
    ),
    *mutants_of(
        "connector/options/parsing.py",
        (f"{HERE}options/test_options.py",),
        Break("a token on a stream", "    _check_token(given, use)\n", ""),
        Break("nothing is advised", "if not quiet:", "if False:"),
        Break("clients' settings are advised", 'and not option.name.startswith("kafka.")', ""),
    ),
    *mutants_of(
        "connector/run/run_memory.py",
        (f"{HERE}run/test_writer_memory.py", *STEPS),
        Break("remembered twice", "        path.unlink()\n", ""),
        Break(
            "a start in a living driver is none",
            "        return Life.ENDED, run\n",
            "        return Life.GOES_ON, run\n",
        ),
        Break("any query that ends ends all runs", "if gone and len(gone) == len(run.streams):", "if gone:"),
        Break(
            "only the end of all queries is seen",
            "if gone and {*streams_now()} - {*run.streams}:",
            "if False:",
        ),
        Break(
            "other options are the same start",
            "Life.GOES_ON if run.options == options else Life.UNCLEAR",
            "Life.GOES_ON",
        ),
        Break(
            "all drivers are one",
            "return _hash(*map(str, driver_process()), secret)[:16]",
            'return ""',
        ),
        Break(
            "a driver is known by its JVM",
            "_hash(*map(str, driver_process()), secret)",
            "_hash(*map(str, driver_process()))",
        ),
        Break("all sinks are one", "driver.started, *key)", "driver.started)"),
        Break("names run together", '"\\0".join(words)', '"".join(words)'),
        Break(
            "folders of others are used", "status.st_uid != os.getuid() or status.st_mode & 0o077", "False"
        ),
        Break(
            "folders that others can write",
            "status.st_uid != os.getuid() or status.st_mode & 0o077",
            "status.st_uid != os.getuid()",
        ),
        Break(
            "a damaged memory stops the query",
            'TypeError, KeyError) as error:\n        log.warning(\n            f"the memory of the last micro-batch cannot be read, ',
            'ZeroDivisionError) as error:\n        log.warning(\n            f"the memory of the last micro-batch cannot be read, ',
        ),
        Break("written in place", "        draft.rename(path)\n", "        path.write_text(text[:10])\n"),
        Break("nothing is swept", "            _sweep(folder)\n", ""),
        Break("swept before its time", "if entry.stat().st_mtime < limit:", "if True:"),
        Break("swept each time", "if time.monotonic() >= _swept + _SWEEP_SECONDS:", "if True:"),
    ),
    *mutants_of(
        "connector/sink/task_writer.py",
        TASK,
        Break("a producer id is always asked for", "    if options.idempotent:\n", "    if True:\n", PLAINLY),
        Break(
            "no checksum where a replay compares",
            "compared = options.on_lost is OnLost.REPLAY or",
            "compared =",
        ),
        Break("decided rows are written again", "    if task is Task.WRITE:\n", "    if True:\n"),
        Break(
            "decided rows are not counted",
            "    for _ in rows:  # Spark expects",
            "    for _ in ():  # Spark expects",
        ),
        Break("dropped is decided", "    if task is Task.DROP:\n", "    if False:\n"),
        Break(
            "rows that pass tell no topics", "topics=by_rows and task is Task.PASS_DECIDED", "topics=False"
        ),
        Break(
            "dead letters name topics",
            "options.topic is None and options.deadletter_topic is None",
            "options.topic is None",
        ),
        Break(
            "decided without its checksum", "tally.rows, tally.checksum, topics)", "tally.rows, None, topics)"
        ),
        Break(
            "decided without its rows",
            "Decided(stamp, attempt.partition, tally.rows, tally.checksum, topics)",
            "Decided(stamp, attempt.partition, 0, tally.checksum, topics)",
        ),
        Break(
            "the first rows are left out",
            "            send(first)\n            for batch in rows:\n                send(batch)\n            producer.flush()\n    except",
            "            for batch in rows:\n                send(batch)\n            producer.flush()\n    except",
        ),
        Break(
            "the last rows are left out",
            "                send(batch)\n            producer.flush()\n    except",
            "                break\n            producer.flush()\n    except",
        ),
        Break(
            "nobody waits for acknowledgements",
            "                send(batch)\n            producer.flush()\n    except",
            "                send(batch)\n    except",
        ),
        Break(
            "at least once waits for no acknowledgement",
            "            send(batch)\n        producer.flush()\n\n",
            "            send(batch)\n\n",
        ),
        Break("a failed task stays open", "        _give_up(cluster, name, identity, error)\n", ""),
        Break(
            "a failed task commits",
            "transactions.end_txn(cluster, name, identity, commit=False)",
            "transactions.end_txn(cluster, name, identity, commit=True)",
        ),
        Break(
            "a second failure hides the first",
            "    except Exception as second:",
            "    except ZeroDivisionError as second:",
        ),
        Break(
            "a late attempt does not look",
            "    late = Runner(cluster, options.transaction_timeout_ms).run(withdraw_if_late(stamp, participant))\n",
            "    late = None\n",
        ),
        Break(
            "where it has written is not told", "written = tuple(sorted(producer.partitions))", "written = ()"
        ),
        Break(
            "which topics it has written is not told",
            "ids = tuple(sorted((topic, number) for topic, number in producer.topic_ids.items() if number))",
            "ids = ()",
        ),
        Break("rows are not told", "results = (tally.rows, written", "results = (0, written"),
        Break("the checksum is not told", "written, tally.checksum, ids", "written, None, ids"),
        Break("a topic that is gone is created", "create=topic not in seen", "create=True"),
        Break("a topic is never created", "create=topic not in seen", "create=False"),
        Break(
            "runs share their slots",
            "key = (stamp.sink_id, stamp.incarnation, stamp",
            "key = (stamp.sink_id, ProducerIdentity(0, 0), stamp",
        ),
        Break(
            "sinks share their slots",
            "key = (stamp.sink_id, stamp.incarnation, stamp",
            'key = ("", stamp.incarnation, stamp',
        ),
        Break("parities share their slots", "stamp.batch.batch_id % 2)", "0)"),
        Break("names never come again", "    if batch_id != stamp.batch.batch_id:\n        number = 0\n", ""),
        Break(
            "one name for all transactions of a batch",
            "(stamp.batch.batch_id, number + 1)",
            "(stamp.batch.batch_id, number)",
        ),
        Break("processes share a word", "uuid.uuid4().hex[:16]", '"0" * 16'),
        Break(
            "a forked process has its parent's word",
            "if _slots.process != os.getpid():",
            "if _slots.process == -1:",
        ),
        Break("dead letters are dropped", "            send(dead, letters)\n", "            pass\n"),
        Break(
            "an empty batch is the end of rows",
            "first = next((batch for batch in rows if len(batch)), None)\n    if first is None:\n        return Empty",
            "first = next((batch for batch in rows), None)\n    if not first:\n        return Empty",
        ),
    ),
    *mutants_of(
        "connector/run/markers.py",
        MARKERS,
        Break(
            "whoever is open there is ours",
            "for who, epoch in _open_in(answer) if who in names]",
            "for who, epoch in _open_in(answer)]",
        ),
        Break("idle producers are open", 'if state["current_txn_start_offset"] >= 0', "if True"),
        Break(
            "producer ids of others",
            "for who, epoch in _open_in(part) if who.producer_id == producer_id]",
            "for who, epoch in _open_in(part)]",
        ),
        Break(
            "patience is over while a leader is away",
            "    backoff: Backoff | None = None  #",
            "    backoff: Backoff | None = Backoff(cluster.config, PATIENCE_MS)  #",
        ),
        Break(
            "brokers that cannot tell stop the query",
            "        except UnsupportedByBroker:\n            return ()",
            "        except ZeroDivisionError:\n            return ()",
        ),
        Break(
            "who lacks the right to read stops",
            "except errors.TopicAuthorizationFailed as error:",
            "except ZeroDivisionError as error:",
        ),
        Break(
            "a topic that is gone stops",
            "except (UnknownTopic, errors.UnknownTopicOrPartition):",
            "except UnknownTopic:",
        ),
        Break("aborts are commits", '"transaction_result": commit', '"transaction_result": True'),
        Break(
            "refused markers are written",
            'check(part["error_code"], f"WriteTxnMarkers',
            '(part["error_code"], f"WriteTxnMarkers',
        ),
        Break(
            "markers of the next epoch",
            '"producer_epoch": participant.identity.epoch,',
            '"producer_epoch": participant.identity.epoch + 1,',
        ),
    ),
    *mutants_of(
        "connector/commit/begin.py",
        HIDDEN,
        Break("decisions on another topic are overlooked", "if stored.elsewhere:", "if False:"),
        Break("the checkpoint's topic of decisions is ignored", "if noted != now:", "if False:"),
    ),
    *mutants_of(
        "connector/run/runner.py",
        HIDDEN,
        Break(
            "only one topic is looked at for decisions", "if command.everywhere else ()", "if False else ()"
        ),
        Break(
            "decisions go to the internal topic",
            "return {(self._decisions, number)",
            "return {(ANCHOR, number)",
        ),
        Break(
            "markers are looked for on a hidden topic",
            "if self._decisions != ANCHOR and not self._sees_own():",
            "if False:",
        ),
    ),
    *mutants_of(
        "connector/run/runner.py",
        (
            f"{HERE}client/test_pipelined.py",
            *STEPS,
            f"{HERE}run/test_writer_markers.py",
            f"{HERE}run/test_trap_defences_outside.py",
            f"{HERE}sink/test_writer_disturbed.py",
            f"{HERE}sink/test_round_trips.py",
            f"{HERE}checkpoint/test_crosscheck_broker.py",
        ),
        Break(
            "all partitions are asked as one",
            "wanted = [(topic, number) for number in range(anchors)]",
            "wanted = None",
        ),
        Break(
            "one partition is asked",
            "wanted = [(topic, number) for number in range(anchors)]",
            "wanted = [(topic, 0)]",
        ),
        Break(
            "pending decisions are no decisions",
            "command.group, wanted, require_stable=True, pending_ms=pending_ms",
            "command.group, wanted, require_stable=False, pending_ms=pending_ms",
        ),
        Break(
            "switched off is a refusal",
            "_NOT_OFFERED = (UnsupportedByBroker, errors.TransactionalIdAuthorizationFailed, ",
            "_NOT_OFFERED = (UnsupportedByBroker, ",
        ),
        Break("old brokers are refusals", "_NOT_OFFERED = (UnsupportedByBroker, ", "_NOT_OFFERED = ("),
        Break(
            "any refusal is not offered",
            "isinstance(answer, _NOT_OFFERED)",
            "isinstance(answer, (UnsupportedByBroker, KafkaError))",
        ),
        Break(
            "no answer is a refusal",
            "        return Unknown(str(error))\n",
            "        return Refused(-1, str(error))\n",
        ),
        Break(
            "who wrote is the holder",
            "Sealed(answer.holder, answer.wrote)",
            "Sealed(answer.holder, answer.holder)",
        ),
        Break(
            "anybody may raise the epoch",
            "self._timeout_ms, command.current)",
            "self._timeout_ms, None)",
        ),
        Break(
            "commit is abort",
            "transactions.end_txns(self._cluster, dict(command.participants), command.commit)",
            "transactions.end_txns(self._cluster, dict(command.participants), False)",
        ),
        Break(
            "all open transactions are listed",
            "transactions.list_transactions(self._cluster, command.prefix, [ONGOING], ahead=asked)",
            "transactions.list_transactions(self._cluster, command.prefix, ahead=asked)",
            (f"{HERE}client/test_transaction_lists.py",),
        ),
    ),
]
