"""Rules of edits of checkpoints, each broken: what is counted, what is moved, and what is refused."""

from tests.mutants.mutant import Break, Mutant, mutants_of

MOVES = ("tests/connector/commit/test_move_decision.py",)
COUNTS = ("tests/connector/client/test_count_rows.py",)
RUNNING = ("tests/checkpoint/test_running.py",)
COMMAND = ("tests/checkpoint/test_command.py",)

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
            "one row more is fine", 'twice > how["accept_duplicates"]', 'twice > how["accept_duplicates"] + 1'
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
]
