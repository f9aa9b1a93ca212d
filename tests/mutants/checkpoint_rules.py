"""Rules of edits of checkpoints, each broken: what is counted, what is moved, and what is refused."""

from tests.mutants.mutant import Break, Mutant, mutants_of

MOVES = ("tests/connector/commit/test_move_decision.py",)
COUNTS = ("tests/connector/client/test_count_rows.py",)
RUNNING = ("tests/checkpoint/test_running.py",)
COMMAND = ("tests/checkpoint/test_command.py",)
EDITS = ("tests/checkpoint/test_edits.py",)
COMPARE = ("tests/checkpoint/test_compare.py",)
MOVE = ("tests/checkpoint/test_move_cluster.py",)
FORK = ("tests/checkpoint/test_fork.py",)
AT_ONCE = ("tests/checkpoint/test_two_edits_at_once.py",)

REFRESHED = ("tests/connector/checkpoint/test_refreshed_flow.py",)

MUTANTS: list[Mutant] = [
    *mutants_of(
        "connector/checkpoint/refreshed_flow.py",
        REFRESHED,
        Break("only the one before counts", "reversed(range(int(found[2])))", "[int(found[2]) - 1]"),
        Break("any numbered folder is a flow's", "(.*/_checkpoints/(?:[^/]+/)+)", "(.*/(?:[^/]+/)+)"),
        Break("a refresh goes on", "if former is None:", "if former is not None:"),
    ),
    *mutants_of(
        "connector/commit/move_decision.py",
        MOVES,
        Break("a decision made since is lost", "    if last != seen:", "    if False:"),
        Break("attempts stay", "    yield from _move_attempt(sink, to)\n", ""),
        Break("tokens are forgotten", ", tokens=last.tokens", ""),
        Break("topics are forgotten", ", topics=last.topics", ""),
        Break("who edits a checkpoint comes back to a sink that was left", ", left=last.left)", ")"),
        Break("a saved state is forgotten", "seen.saved is not None and saving is None:", "False:"),
    ),
    *mutants_of(
        "eoslog/checkpoint/edits.py",
        ("tests/checkpoint/test_rebuild.py",),
        Break("rows are guessed", "    if planned.digest != decision.batch.digest:\n", "    if False:\n"),
        Break(
            "rows of a table's batch are guessed",
            "if marked.entries is None and marked.file_logs():",
            "if False:",
            ("tests/fanout/test_lost_plan.py",),
        ),
        Break(
            "a fan-out's batch is planned empty",
            "    if not is_dropped:\n",
            "    if False:\n",
            ("tests/fanout/test_lost_plan.py",),
        ),
        Break("another query's batch", "standing.completed >= batch:\n", "standing.completed > batch:\n"),
        Break("other ends are rebuilt under a batch that is done", " or there != planned", ""),
        Break(
            "a batch that was planned from lost files stays",
            "{**lost, **later}",
            "lost",
        ),
        Break(
            "the batch before is left as it is",
            "    if batch > 0 and not _is_done(checkpoint, batch - 1):\n",
            "    if False:\n",
        ),
        Break(
            "state is guessed",
            '    if standing.is_stateful:\n        raise NotEditable(\n            f"the query keeps state, and the checkpoint has',
            '    if False:\n        raise NotEditable(\n            f"the query keeps state, and the checkpoint has',
        ),
    ),
    *mutants_of(
        "eoslog/checkpoint/backups.py",
        ("tests/checkpoint/test_moved_batches.py",),
        Break("a move by option is not seen", "then.clusters() - now.clusters()", "False"),
        Break("an unknown cluster is another", "now.clusters() and then", "then"),
    ),
    *mutants_of(
        "connector/client/records/count_rows.py",
        COUNTS,
        Break("a batch that is cut counts as a whole", "header.next_offset <= end:", "True:"),
        Break("offsets are rows", "if header.count == header.last_offset_delta + 1:", "if header.count > 0:"),
    ),
    *mutants_of(
        "eoslog/checkpoint/editing.py",
        COMMAND,
        Break("nobody has to accept", "    if needed:", "    if False:"),
        Break(
            "one row more is fine",
            'twice > how.get("accept_duplicates", 0)',
            'twice > how.get("accept_duplicates", 0) + 1',
        ),
    ),
    *mutants_of(
        "eoslog/checkpoint/running.py",
        RUNNING,
        Break("drivers here are passed over", "    if drivers:", "    if False:"),
        Break("nobody looks at what is done", "if now.state != first.state or", "if"),
    ),
    *mutants_of(
        "connector/run/run_memory.py",
        RUNNING,
        Break(
            "a driver that has ended runs", "if query == query_id and lives(driver):", "if query == query_id:"
        ),
        Break("any driver runs any query", "if query == query_id and lives(driver):", "if lives(driver):"),
    ),
    *mutants_of(
        "eoslog/checkpoint/standing.py",
        COMMAND,
        Break(
            "what nobody knows is taken for written",
            "if standing.next_start is NextStart.RUN_AGAIN and standing.newest is not None:",
            "if standing.newest is None:",
        ),
    ),
    *mutants_of(
        "eoslog/checkpoint/edits.py",
        EDITS,
        Break(
            "a batch is noted as done first",
            '{"offsets": 3, "commits": 4}',
            '{"offsets": 4, "commits": 3}',
        ),
        Break("lower batches go first", "else 1), -batch", "else 1), batch"),
        Break(
            "taken back, ends come first",
            '(file[0] == "offsets", file[1])',
            '(file[0] != "offsets", file[1])',
        ),
    ),
    *mutants_of(
        "eoslog/checkpoint/backups.py",
        EDITS,
        Break("what was written since is taken back", "return since != 0 and (", "return False and ("),
        Break("an edit is not interrupted", "(EditState.BEGUN, EditState.UNDOING)", "()"),
        Break(
            "later batches do not count", "            elif batch > least:\n                return True\n", ""
        ),
    ),
    *mutants_of(
        "eoslog/checkpoint/carry_out.py",
        EDITS,
        Break("there is no backup", "        backup.put(standing.checkpoint, EditState.BEGUN)\n", ""),
        Break(
            "the decision stays",
            "    _move(cluster, standing, backup.becomes, source, edit.end.ends, saving)\n",
            "",
        ),
        Break("files of a query that runs change", "    _check_files(standing, backup.before)\n", ""),
        Break(
            "what was planned since stays",
            '        standing.checkpoint.change("offsets", batch, None)\n',
            "        continue\n",
        ),
        Break(
            "an edit stays undone in part",
            "        _move_back(cluster, standing, backup)\n",
            "        pass\n",
        ),
    ),
    *mutants_of(
        "eoslog/checkpoint/edit_numbers.py",
        AT_ONCE,
        Break("claims of others do not count", "    if others:", "    if False:"),
        Break("claims of the dead count", "return by.elsewhere or by.works_here", "return True"),
        Break(
            "claims of another machine do not count",
            "return by.elsewhere or by.works_here",
            "return by.works_here",
        ),
        Break("edits of others do not count", "    if LastEdit.of(checkpoint) != seen:", "    if False:"),
    ),
    *mutants_of(
        "eoslog/checkpoint/checks.py",
        EDITS,
        Break("gaps are fine", "        if gaps:", "        if False:"),
        Break("batches may be left out", "else completed) < newest.batch_id - 1", "else completed) < -1"),
        Break("more may be done than planned", "completed > newest.batch_id)", "completed < 0)"),
        Break("nothing is lost", "        if lost:", "        if False:"),
    ),
    *mutants_of(
        "eoslog/checkpoint/fork_command.py",
        ("tests/checkpoint/test_fork.py",),
        Break(
            "new partitions are no rows", "return {**stands, **{place", "return {**stands, **{} and {place"
        ),
    ),
    *mutants_of(
        "eoslog/checkpoint/compare.py",
        COMPARE,
        Break("an unknown cluster is this one", 'if not document[name]["clusters"]', "if False"),
        Break(
            "aborted rows count",
            "foretell(cluster, [move], watch, committed=committed)",
            "foretell(cluster, [move], watch, committed=False)",
        ),
        Break("whoever is behind is ahead", 'return "a" if a > b else "b"', 'return "b" if a > b else "a"'),
    ),
    *mutants_of(
        "eoslog/checkpoint/earlier.py",
        COMPARE,
        Break("only the first edit counts", "in reversed(backups):", "in backups[:1]:"),
        Break("later batches were there", "int(batch) > self._least", "False"),
    ),
    *mutants_of(
        "eoslog/checkpoint/fork.py",
        FORK,
        Break("a copy may start before it is complete", '    copy.put("offsets", str(newest), _MARK)\n', ""),
        Break("what is there is overwritten", "    if files_at(new.location).walk():", "    if False:"),
        Break("a fork of a group by default has none", "Sink(given).offsets_group)\n", "None)\n"),
        Break(
            "two queries have one name",
            'json.dumps({"id": new.query_id})',
            'json.dumps({"id": found.query_id})',
        ),
        Break("the query may go on meanwhile", "    _check_rested(cluster, found)\n", ""),
        Break(
            "names may be used", "if group is not None and fetch_committed", "if False and fetch_committed"
        ),
    ),
    *mutants_of(
        "eoslog/checkpoint/backups.py",
        MOVE,
        Break("a move is taken back under the old query", " or backup.cluster is not None:", ":"),
    ),
    *mutants_of(
        "eoslog/checkpoint/carry_out.py",
        MOVE,
        Break(
            "the sink's note stays on the new cluster",
            "        standing.checkpoint.note(NOTED_SINK, backup.note)\n",
            "        pass\n",
        ),
    ),
    *mutants_of(
        "eoslog/checkpoint/boundary.py",
        MOVE,
        Break("the first place that fits is the one", "    if len(candidates) == 1:", "    if candidates:"),
        Break("what the user says is believed", "if not _fits(below, above, new, given):", "if False:"),
        Break("records may differ", "return not len(one) or", "return True or"),
    ),
    *mutants_of(
        "eoslog/checkpoint/move_command.py",
        MOVE,
        Break(
            "nothing is missing", "max(_count(here, at, watch) - _count(there, ends[place], None), 0)", "0"
        ),
    ),
]
